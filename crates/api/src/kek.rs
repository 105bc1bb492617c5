//! The keys that data keys of encrypted volumes are wrapped with (KEKs).

use serde::{Deserialize, Serialize};

/// By which KEKs data keys are wrapped, and which nodes have these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KekView {
    /// Data keys.
    pub keys: u64,
    /// Of those that the node which was asked has, the newest version, which wraps what is made.
    pub newest: Option<u32>,
    /// Versions that wrap data keys, or that this node has.
    pub versions: Vec<KekVersionView>,
    /// The nodes.
    pub nodes: Vec<NodeKeksView>,
    /// Why data keys can't be wrapped with the newest version now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// A version of the KEK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KekVersionView {
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
    /// The versions in its key file.
    pub versions: Vec<u32>,
    /// Why they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A node's KEKs, as other nodes compare them: nothing of the keys themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeKeks {
    /// By version, the newest last.
    pub keks: Vec<KekMarkView>,
    /// Why they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// One of a node's KEKs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KekMarkView {
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
}

/// What one request has wrapped anew: a part of all, so that no request takes long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RewrappedView {
    /// The version that wraps them now.
    pub version: u32,
    /// Data keys that were wrapped anew.
    pub rewrapped: u64,
    /// Data keys that are still wrapped with an older version, and have not failed: the same is to be asked again.
    pub left: u64,
    /// Data keys that can't be wrapped anew, and why.
    pub failed: Vec<String>,
}
