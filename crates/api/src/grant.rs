//! Grants: who may ask what.

use azekura_base::Role;
use serde::{Deserialize, Serialize};

/// A grant; never what proves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GrantView {
    /// Its number, as it stands in its token.
    pub id: String,
    /// A name for people; no two have the same.
    pub name: String,
    /// What its owner may.
    pub role: Role,
    /// Whose volumes it is about.
    pub project: String,
    /// When it ends, RFC 3339; null: when it is revoked.
    pub until: Option<String>,
    /// When it was made, RFC 3339.
    pub created: String,
    /// Who has made it.
    pub by: String,
}

/// Body of `POST /v1/grants`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateGrant {
    /// A name for people.
    pub name: String,
    /// What its owner may.
    pub role: Role,
    /// It ends after so long, seconds; when it is revoked, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_after_seconds: Option<u64>,
}

/// A grant that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GrantCreated {
    /// The token, which is told this once.
    pub token: String,
    /// The grant.
    pub grant: GrantView,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WhoView {
    /// His grant's name, or what he is known by else.
    pub name: String,
    /// What he may.
    pub role: Role,
}
