//! What a node's data plane tells of layers: what two of them show differently, and what the end of one would give
//! back. Nodes ask each other; this part of the API changes without notice.

use azekura_base::{ChunkIndex, DeviceId, LayerId, PgId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Query of `GET /v1/node/compare`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CompareQuery {
    /// The configuration says what it says of the layers from this revision on.
    pub revision: u64,
    /// The layer before.
    #[cfg_attr(test, schemars(with = "u64"))]
    pub from: LayerId,
    /// The layer after.
    #[cfg_attr(test, schemars(with = "u64"))]
    pub to: LayerId,
    /// The first chunk.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub first: ChunkIndex,
    /// The one behind the last chunk.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub end: ChunkIndex,
    /// Chunks of a group that are compared for one answer, at most.
    pub limit: u32,
    /// The groups: numbers, separated by commas.
    #[serde(serialize_with = "write_groups", deserialize_with = "read_groups")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub groups: Vec<PgId>,
}

fn read_groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PgId>, D::Error> {
    let all = String::deserialize(deserializer)?;
    let number = |word: &str| word.parse().map(PgId).map_err(|_| D::Error::custom(format!("{word:?} is no group")));
    all.split(',').map(number).collect()
}

fn write_groups<S: Serializer>(groups: &[PgId], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

/// A run of blocks that differ: the first one, how many, and whether they hold data in the layer after; else they read
/// as zeros there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DifferingBlocks(pub u16, pub u16, pub bool);

/// A part of what two layers show differently in a group's chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Differences {
    /// Chunks that differ, in order, with their runs of blocks, in order.
    pub chunks: Vec<(u32, Vec<DifferingBlocks>)>,
    /// All chunks before this one have been compared; `None`: all have.
    pub next: Option<u32>,
}

/// What a node has said of one group.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupDifferences {
    /// The group.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub pg: PgId,
    /// What differs in its chunks, or why that is not told.
    pub told: Result<Differences, NotTold>,
}

/// Query of `GET /v1/node/measure`: what would the end of a layer give back on a device?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasureLayer {
    /// The configuration says what it says of the layers from this revision on.
    pub revision: u64,
    /// The device.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub device: DeviceId,
    /// The layer.
    #[cfg_attr(test, schemars(with = "u64"))]
    pub layer: LayerId,
    /// The layer that gets what it shows of it; without one, nothing of it is needed any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub heir: Option<LayerId>,
    /// The first chunk.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub from: ChunkIndex,
    /// Leaves of the map after which it is enough for one answer.
    pub leaves_max: u32,
}

/// A part of what the end of a layer would give back on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Measured {
    /// Bytes of blocks that the layer owns and its heir does not show.
    pub bytes: u64,
    /// The chunk with which it goes on; `None`: that was all.
    pub next: Option<u32>,
}

/// Why a node has not answered a question about layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NotTold {
    /// Another node may answer, or this one a moment later.
    Later,
    /// The layer is gone, or is about to be.
    Gone,
    /// The device can't tell, and why.
    Failed(String),
}
