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
    /// By a host's name, over iSCSI or NVMe.
    Host,
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
    /// The SHA-256 of the key's SubjectPublicKeyInfo, in hexadecimal digits; null: no key proves it.
    #[serde(default)]
    pub key: Option<String>,
    /// Whose volumes it is about.
    pub project: String,
    /// The volumes that it is about, with their snapshots: then it is for their clients, and not for the API. null: all
    /// of the project.
    #[serde(default)]
    pub volumes: Option<Vec<String>>,
    /// The host whose grant it is; null: nobody's.
    #[serde(default)]
    pub host: Option<HostView>,
    /// When it ends, RFC 3339; null: when it is revoked.
    pub until: Option<String>,
    /// When it was made, RFC 3339.
    pub created: String,
    /// Who has made it.
    pub by: String,
}

/// A host that comes over iSCSI or NVMe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostView {
    /// What it calls itself: the name of an iSCSI initiator, or an NQN.
    pub name: String,
    /// Its name for CHAP, of an NVMe host its NQN; null: it proves nothing, and whoever gives himself its name is let
    /// in.
    pub chap_user: Option<String>,
    /// The target's name for CHAP; null: the target proves nothing to it.
    pub mutual_user: Option<String>,
}

/// What is to be proved by CHAP, or by an NVMe host by DH-HMAC-CHAP.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateChap {
    /// The name. Without this: the host's own name, and for the target 'azekura'. NVMe has no such names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The secret, 12 to 255 bytes; for NVMe 'DHHC-1:00:…:', as nvme gen-dhchap-key makes it. Without this the node
    /// makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl std::fmt::Debug for CreateChap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CreateChap({:?}, …)", self.user)
    }
}

/// What is proved by CHAP, or by an NVMe host by DH-HMAC-CHAP.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChapCreated {
    /// The name.
    pub user: String,
    /// The secret that the node has made, which is told this once; null: it was told to the node.
    pub secret: Option<String>,
}

impl std::fmt::Debug for ChapCreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChapCreated({:?}, …)", self.user)
    }
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
    /// Whose volumes it is about; if it is not said, the project of whoever asks, or 'default'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
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
    /// Whose volumes it is about; if it is not said, the project of whoever asks, or 'default'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
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

/// Body of `POST /v1/hosts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateHost {
    /// A name for people.
    pub name: String,
    /// What the host calls itself: the name of an iSCSI initiator, or an NQN.
    pub host: String,
    /// The volumes that it may use, with their snapshots. Without this: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<String>>,
    /// What it proves to be let in. Without this: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<CreateChap>,
    /// What the target proves to it, if it asks for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<CreateChap>,
    /// Whose volumes it is about; if it is not said, the project of whoever asks, or 'default'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// It ends after so long, seconds; when it is revoked, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_after_seconds: Option<u64>,
}

/// A host that is let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostCreated {
    /// The grant.
    pub grant: GrantView,
    /// What the host proves: a secret that the node has made is told this once.
    pub chap: Option<ChapCreated>,
    /// What the target proves to it, likewise.
    pub mutual: Option<ChapCreated>,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WhoView {
    /// His grant's name, or what he is known by else.
    pub name: String,
    /// What he may.
    pub role: Role,
    /// The project whose volumes he has to do with; null: those of all projects.
    #[serde(default)]
    pub project: Option<String>,
}
