//! The keys that data keys of encrypted volumes are wrapped with (KEKs).

use serde::{Deserialize, Serialize};

/// By which KEKs data keys are wrapped, and which nodes have these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KekView {
    /// Data keys.
    pub keys: u64,
    /// The provider that wraps new data keys at the node which was asked: `file`, `vault` or `kmip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wraps: Option<String>,
    /// Of that provider's keys, the newest version, which wraps what is made.
    pub newest: Option<u32>,
    /// Versions that wrap data keys, or that this node has.
    pub versions: Vec<KekVersionView>,
    /// The nodes.
    pub nodes: Vec<NodeKeksView>,
    /// Data keys that are wrapped with a secret of their volume's own.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub by_secrets: u64,
    /// Why data keys can't be wrapped with the newest version now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// The provider of nodes that know no other.
fn file() -> String {
    "file".to_owned()
}

/// A version of a provider's KEK.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KekVersionView {
    /// Who has it: `file`, `vault` or `kmip`.
    #[serde(default = "file")]
    pub provider: String,
    /// Its number.
    pub version: u32,
    /// Data keys that it wraps.
    pub keys: u64,
}

/// What a node has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeKeksView {
    /// The node.
    pub name: String,
    /// The versions that it has, of each provider.
    pub keks: Vec<NodeKekView>,
    /// Why they, or some of them, are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// One of the KEKs that a node has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeKekView {
    /// Who has it: `file`, `vault` or `kmip`.
    pub provider: String,
    /// Its version.
    pub version: u32,
}

/// A node's KEKs, as other nodes compare them: nothing of the keys themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeKeks {
    /// By provider and version, the newest of each provider last.
    pub keks: Vec<KekMarkView>,
    /// Why they, or some of them, are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// One of a node's KEKs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KekMarkView {
    /// Who has it: `file`, `vault` or `kmip`.
    #[serde(default = "file")]
    pub provider: String,
    /// Its version.
    pub version: u32,
    /// 16 hexadecimal digits that it has in common with the same key elsewhere.
    pub mark: String,
}

/// Body of `POST /v1/kek/rewrap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RewrapKeys {
    /// Also while nodes give no sign of life, of which nobody knows what they have.
    #[serde(default)]
    pub force: bool,
    /// The answer's `next` to the request before: none of the data keys before that is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

/// What one request has wrapped anew: a part of all, so that no request takes long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RewrappedView {
    /// The provider that wraps them now: `file`, `vault` or `kmip`.
    #[serde(default = "file")]
    pub provider: String,
    /// The version of its key.
    pub version: u32,
    /// Data keys that were wrapped anew.
    pub rewrapped: u64,
    /// Data keys that are still to be looked at: the next request does that.
    pub left: u64,
    /// What the next request has as `after`, while keys are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Data keys that are wrapped with a secret of their volume's own: these stay as they are.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub by_secrets: u64,
    /// Data keys that can't be wrapped anew, and why.
    pub failed: Vec<String>,
}
