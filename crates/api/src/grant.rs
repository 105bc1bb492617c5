//! Grants: who may ask what.

use azekura_base::Role;
use serde::{Deserialize, Serialize};

/// How a grant is proved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GrantProof {
    /// By a token.
    #[default]
    Token,
    /// By the key of a client's certificate.
    Key,
}

/// A grant; never what proves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GrantView {
    /// Its number; it stands in its token.
    pub id: String,
    /// A name for people; no two have the same.
    pub name: String,
    /// What its owner may.
    pub role: Role,
    /// How it is proved.
    #[serde(default)]
    pub proof: GrantProof,
    /// The SHA-256 of the key's SubjectPublicKeyInfo, in hexadecimal digits; null: a token proves it.
    #[serde(default)]
    pub key: Option<String>,
    /// Whose volumes it is about.
    pub project: String,
    /// The volumes that it is about, with their snapshots: then it is for their clients, and not for the API. null: all
    /// of the project.
    #[serde(default)]
    pub volumes: Option<Vec<String>>,
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

/// Body of `POST /v1/keys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// A name for people.
    pub name: String,
    /// What the key's owner may.
    pub role: Role,
    /// The SHA-256 of the key's SubjectPublicKeyInfo (RFC 5280, in DER): 64 hexadecimal digits.
    pub key: String,
    /// The key itself, if the cluster's authority is to sign a certificate for it: a point of P-256, uncompressed, in
    /// 130 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
    /// The volumes that it is about, with their snapshots: then it is for their clients, and not for the API. Without
    /// this: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<String>>,
    /// It ends after so long, seconds; when it is revoked, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_after_seconds: Option<u64>,
}

/// A key that has a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyCreated {
    /// The grant.
    pub grant: GrantView,
    /// A certificate with the key, by the cluster's authority, in PEM: where it was asked for.
    pub certificate: Option<String>,
    /// The authority's certificate, by which clients know the nodes, in PEM.
    pub authority: String,
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
