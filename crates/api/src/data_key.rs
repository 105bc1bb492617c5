//! The data key of an encrypted volume, and how another one takes its place.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The data key of a volume, which its snapshots and clones share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VolumeKeyView {
    /// Its number.
    pub id: u64,
    /// The generations that blocks may be encrypted under, the newest last: one, unless another one takes its place.
    pub generations: Vec<KeyGenerationView>,
    /// The volumes of the caller that have the key.
    pub volumes: Vec<RekeyView>,
    /// Snapshots of theirs that need a former generation, as `VOLUME@SNAPSHOT`: that stays until they are deleted.
    pub snapshots: Vec<String>,
    /// Why nothing goes on at present: `node NAME: …`; empty where something does, or nothing is to be done.
    pub waits: Vec<String>,
}

/// One generation of a data key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyGenerationView {
    /// Which one it is, 0 to 15; numbers are used again.
    pub number: u8,
    /// By whom it is wrapped: `file`, `vault`, `kmip` or `csi`.
    pub provider: String,
    /// Since when, RFC 3339.
    pub created: String,
    /// Writes are encrypted with it.
    pub writing: bool,
}

/// How far a volume is that gets another key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RekeyView {
    /// The volume.
    pub name: String,
    /// All that it shows is under the newest generation.
    pub done: bool,
    /// How far the pass through it is; null: none is under way.
    pub pass: Option<RekeyPass>,
}

/// How far a pass through a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RekeyPass {
    /// Chunks of 4 MiB that have been done.
    pub chunks_done: u64,
    /// Of so many.
    pub chunks: u64,
    /// Bytes that have got the key.
    pub bytes: u64,
}

/// What a node has of data keys that have several generations, and does with them: for other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeDataKeys {
    /// Which process of the node says it.
    pub incarnation: u64,
    /// By the key's number.
    pub keys: BTreeMap<u64, NodeDataKey>,
    /// The passes that it makes, by the volume's number.
    pub passes: BTreeMap<u64, RekeyPass>,
}

/// What a node has of one data key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeDataKey {
    /// The newest generation that it has; null: none, and `problem` says why.
    pub newest: Option<u8>,
    /// Why it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The oldest generation under which it writes, or has something on its way; null: it writes nothing.
    pub writes: Option<u8>,
}
