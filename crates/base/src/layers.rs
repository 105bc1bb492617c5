//! Questions about layers that no client asks: what two of them show differently, and what the end of one would give
//! back. Control plane, node and store speak of them in these words; the answers come a page at a time.

use crate::{ChunkIndex, DeviceId, LayerId, PgId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Asks for the blocks of a group's chunks that two layers show differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompareLayers {
    /// The configuration says what it says of the layers from this revision on.
    pub revision: u64,
    /// The group.
    pub pg: PgId,
    /// The layer before; without one, everything that the layer after shows is asked for.
    pub from: Option<LayerId>,
    /// The layer after.
    pub to: LayerId,
    /// The first chunk.
    pub first: ChunkIndex,
    /// The one behind the last chunk.
    pub end: ChunkIndex,
    /// Chunks that are compared for one answer, at most.
    pub limit: u32,
}

/// A run of blocks that differ: the first one, how many, and whether they hold data in the layer after; else they read
/// as zeros there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct DifferingBlocks(pub u16, pub u16, pub bool);

/// A part of what two layers show differently in a group's chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Differences {
    /// Chunks that differ, in order, with their runs of blocks, in order.
    pub chunks: Vec<(u32, Vec<DifferingBlocks>)>,
    /// All chunks before this one have been compared; `None`: all have.
    pub next: Option<u32>,
}

/// Query of `GET /v1/node/measure`: what would the end of a layer give back on a device?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasureLayer {
    /// The configuration says what it says of the layers from this revision on.
    pub revision: u64,
    /// The device.
    #[cfg_attr(feature = "schemars", schemars(with = "u32"))]
    pub device: DeviceId,
    /// The layer.
    #[cfg_attr(feature = "schemars", schemars(with = "u64"))]
    pub layer: LayerId,
    /// The layer that gets what it shows of it; without one, nothing of it is needed any more.
    #[serde(default, rename = "heir", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemars", schemars(with = "Option<u64>"))]
    pub merged_into: Option<LayerId>,
    /// The first chunk.
    #[cfg_attr(feature = "schemars", schemars(with = "u32"))]
    pub from: ChunkIndex,
    /// Leaves of the map after which it is enough for one answer.
    pub leaves_max: u32,
}

/// A part of what the end of a layer would give back on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Measured {
    /// Bytes of blocks that the layer owns and the layer that it is merged into does not show.
    pub bytes: u64,
    /// The chunk with which it goes on; `None`: that was all.
    pub next: Option<u32>,
}

/// Why a node has not answered a question about layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NotTold {
    /// Another node may answer, or this one a moment later.
    Later,
    /// The layer is gone, or is about to be.
    Gone,
    /// The device can't tell, and why.
    Failed(String),
}

impl fmt::Display for NotTold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotTold::Later => f.write_str("not now"),
            NotTold::Gone => f.write_str("the layer is gone"),
            NotTold::Failed(why) => f.write_str(why),
        }
    }
}
