//! What a node's data plane is asked about layers.

pub use azekura_api::layers::{Differences, DifferingBlocks, MeasureLayer, Measured, NotTold};
use azekura_base::{ChunkIndex, LayerId, PgId};

/// Asks for the blocks of a group's chunks that two layers show differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompareLayers {
    /// The configuration says what it says of the layers from this revision on.
    pub revision: u64,
    /// The group.
    pub pg: PgId,
    /// The layer before.
    pub from: LayerId,
    /// The layer after.
    pub to: LayerId,
    /// The first chunk.
    pub first: ChunkIndex,
    /// The one behind the last chunk.
    pub end: ChunkIndex,
    /// Chunks that are compared for one answer, at most.
    pub limit: u32,
}
