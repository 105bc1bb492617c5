//! Projects: what belongs together, and how much of it there may be.

use serde::{Deserialize, Serialize};

/// As much as a project may have; what is missing is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProjectQuota {
    /// Sum of its volumes' sizes, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<u64>,
    /// Snapshots of all its volumes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<u64>,
    /// Sum of its volumes' limits, requests a second; each volume has a limit then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
}

/// What a project has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProjectUse {
    /// Sum of its volumes' sizes, bytes.
    pub bytes: u64,
    /// Volumes.
    pub volumes: u64,
    /// Snapshots of all its volumes together.
    pub snapshots: u64,
    /// Sum of its volumes' limits, requests a second.
    pub iops: u64,
    /// Volumes without such a limit.
    pub unlimited: u64,
}

/// A project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProjectView {
    /// Its name, which stands before the `/` in the names of its volumes.
    pub name: String,
    /// The storage classes that its new volumes may have; null: all.
    pub classes: Option<Vec<String>>,
    /// As much as it may have.
    pub quota: ProjectQuota,
    /// What it has.
    pub used: ProjectUse,
    /// Its grants: tokens, keys and hosts.
    pub grants: usize,
    /// Time of creation, RFC 3339.
    pub created: String,
}

/// Body of `POST /v1/projects`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateProject {
    /// Its name: at most 63 characters.
    pub name: String,
    /// The storage classes that its volumes may have. Without this: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<String>>,
    /// As much as it may have.
    #[serde(default)]
    pub quota: ProjectQuota,
}

/// Body of `POST /v1/projects/{name}`: what is not named stays, and what is `null` is not limited any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeProject {
    /// The storage classes that its new volumes may have.
    #[serde(default, deserialize_with = "crate::named", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<Vec<String>>"))]
    pub classes: Option<Option<Vec<String>>>,
    /// Sum of its volumes' sizes, bytes.
    #[serde(default, deserialize_with = "crate::named", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub bytes: Option<Option<u64>>,
    /// Volumes.
    #[serde(default, deserialize_with = "crate::named", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub volumes: Option<Option<u64>>,
    /// Snapshots of all its volumes together.
    #[serde(default, deserialize_with = "crate::named", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub snapshots: Option<Option<u64>>,
    /// Sum of its volumes' limits, requests a second.
    #[serde(default, deserialize_with = "crate::named", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub iops: Option<Option<u64>>,
}
