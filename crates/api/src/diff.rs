//! What has changed between a snapshot and another one, or the present; and where a snapshot has data.

use azekura_base::LayerId;
use serde::{Deserialize, Serialize};

/// What a range holds in the volume after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DiffKind {
    /// Data, to be read.
    Data,
    /// Zeros.
    Zero,
}

impl std::fmt::Display for DiffKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DiffKind::Data => "data",
            DiffKind::Zero => "zero",
        })
    }
}

/// A range that was written or trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffRange {
    /// Its first byte.
    pub offset_bytes: u64,
    /// Its length.
    pub length_bytes: u64,
    /// What it holds now.
    pub kind: DiffKind,
}

/// A page of what has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffView {
    /// The snapshot before: `VOLUME@SNAPSHOT`.
    pub from: String,
    /// Its layer; to be given with the next question.
    pub from_layer: u64,
    /// The snapshot after, or the volume as it is now: `VOLUME@SNAPSHOT` or `VOLUME`.
    pub to: String,
    /// Its layer; to be given with the next question.
    pub to_layer: u64,
    /// The size before, bytes. What lies behind it counts as zeros.
    pub from_size_bytes: u64,
    /// The size after, bytes: nothing behind it is named.
    pub size_bytes: u64,
    /// Ranges in order: all blocks that differ are in one, and some that do not differ may be. Neighbours may be of one
    /// kind where two pages meet.
    pub ranges: Vec<DiffRange>,
    /// The `offset_bytes` of the next question; without one, this was the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_offset_bytes: Option<u64>,
}

/// Query of `GET /v1/volumes/{name}/snapshots/{snapshot}/diff`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DiffQuery {
    /// The snapshot after, a name or a time; without one, the present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Its volume, if it is another one: a clone, or what this one was cloned from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_volume: Option<String>,
    /// Where to go on, bytes: the `next_offset_bytes` of the page before.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub offset_bytes: u64,
    /// The `from_layer` of the page before: that it is still the same is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub from_layer: Option<LayerId>,
    /// The `to_layer` of the page before, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub to_layer: Option<LayerId>,
}

/// A range that has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AllocatedRange {
    /// Its first byte.
    pub offset_bytes: u64,
    /// Its length.
    pub length_bytes: u64,
}

/// A page of where a snapshot has data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AllocatedView {
    /// The snapshot: `VOLUME@SNAPSHOT`.
    pub snapshot: String,
    /// Its layer; to be given with the next question.
    pub layer: u64,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Ranges in order. What is in none reads as zeros. Neighbours may meet where two pages do.
    pub ranges: Vec<AllocatedRange>,
    /// The `offset_bytes` of the next question; without one, this was the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_offset_bytes: Option<u64>,
}

/// Query of `GET /v1/volumes/{name}/snapshots/{snapshot}/allocated`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AllocatedQuery {
    /// Where to go on, bytes: the `next_offset_bytes` of the page before.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub offset_bytes: u64,
    /// The `layer` of the page before: that it is still the same is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub layer: Option<LayerId>,
}
