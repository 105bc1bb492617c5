//! Storage classes: the policy of their volumes.

use serde::{Deserialize, Serialize};

/// What may fail at once: two copies of a group never share one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureDomain {
    /// A device.
    Device,
    /// A machine.
    Host,
    /// A rack.
    Rack,
    /// A site.
    Site,
}

impl std::fmt::Display for FailureDomain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FailureDomain::Device => "device",
            FailureDomain::Host => "host",
            FailureDomain::Rack => "rack",
            FailureDomain::Site => "site",
        })
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AckRule {
    /// Every in-sync copy is durable.
    All,
    /// More than half of the copies are durable.
    Majority,
    /// A majority at home and one copy in every other site are durable.
    EachSite,
}

impl std::fmt::Display for AckRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AckRule::All => "all",
            AckRule::Majority => "majority",
            AckRule::EachSite => "each-site",
        })
    }
}

/// A storage class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassView {
    /// Its name.
    pub name: String,
    /// Copies of every block.
    pub copies: u32,
    /// What two copies never share.
    pub failure_domain: FailureDomain,
    /// When a write is acknowledged.
    pub ack_rule: AckRule,
    /// With fewer in-sync copies a group is read-only.
    pub copies_min: u32,
    /// Volumes may promise this multiple of the devices' size.
    pub overcommit_ratio: f64,
    /// Seconds that a request waits for a group which does not serve it, before its client gets an error; null: for
    /// ever.
    pub io_timeout_seconds: Option<u64>,
    /// Its new volumes are encrypted.
    #[serde(default)]
    pub encrypt: bool,
    /// Its placement groups; 0 before its first volume.
    pub groups: usize,
    /// Its volumes.
    pub volumes: usize,
    /// Time of creation, RFC 3339.
    pub created: String,
    /// Why no volume can be made in it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Body of `POST /v1/classes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateClass {
    /// Its name.
    pub name: String,
    /// Copies of every block.
    pub copies: u32,
    /// What two copies never share; a host, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<FailureDomain>,
    /// When a write is acknowledged; when all in-sync copies are durable, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_rule: Option<AckRule>,
    /// With fewer in-sync copies a group is read-only; 1, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies_min: Option<u32>,
    /// Volumes may promise this multiple of the devices' size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overcommit_ratio: Option<f64>,
    /// Seconds that a request waits for a group which does not serve it, before its client gets an error; null: for
    /// ever; 30, if it is not said.
    #[serde(default, deserialize_with = "crate::named", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub io_timeout_seconds: Option<Option<u64>>,
    /// Encrypt its volumes, each with a key of its own.
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub encrypt: bool,
}

/// Body of `POST /v1/classes/{name}`: what is not named stays. What would move copies can't be changed: make another
/// class for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeClass {
    /// See [`CreateClass`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overcommit_ratio: Option<f64>,
    /// See [`CreateClass`]; `null`: for ever.
    #[serde(default, deserialize_with = "crate::named", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub io_timeout_seconds: Option<Option<u64>>,
}
