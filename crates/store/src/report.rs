//! What came of questions about whole chunks and layers, and of work in the background.

use crate::effect::{MapError, ReadError};
use crate::map::LeafKey;
use azekura_base::{
    BlockIndex, BlockSum, CHUNK_BLOCKS, Checksums, ChunkIndex, Differences, LayerId, Measured, NotTold, PgId, Sequence,
};

/// What [`crate::Store::next_report`] gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The end of [`crate::Store::changed_since`].
    Changed {
        /// The caller's token.
        token: u64,
        /// A page of the list.
        result: Result<ChangedPage, ReadError>,
    },
    /// The end of [`crate::Store::digest`].
    Digest {
        /// The caller's token.
        token: u64,
        /// The chunk's checksums.
        result: Result<ChunkDigest, ReadError>,
    },
    /// The end of [`crate::Store::measure_layer`].
    Measured {
        /// The caller's token.
        token: u64,
        /// What was found.
        result: Result<Measured, NotTold>,
    },
    /// The end of [`crate::Store::compare_layers`].
    Differences {
        /// The caller's token.
        token: u64,
        /// A page of what differs.
        result: Result<Differences, NotTold>,
    },
    /// A leaf of the map can't be used: of the blocks that it knew of nothing is known on this device any more.
    LeafDamaged {
        /// Whose it is.
        key: LeafKey,
        /// What is wrong with it.
        what: String,
    },
    /// Leaves of a group are gone that were saved; which ones is not known. The device loses writes.
    RowsLost {
        /// The group.
        pg: PgId,
        /// What differs.
        what: String,
    },
    /// The map could not be saved, for want of room or because the map could not be read: the checkpoint will be tried
    /// again. Until then no space becomes free, and a restart has more to replay.
    NotSaved {
        /// What the saved map said.
        error: MapError,
    },
    /// A layer that was dropped or merged is gone, with all its space, for good.
    LayerGone {
        /// The layer.
        layer: LayerId,
    },
    /// A group that was to be forgotten is gone, with all its space, for good: the group may begin again from nothing.
    Forgotten {
        /// The group.
        pg: PgId,
    },
}

/// A part of the list of a group's changed chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedPage {
    /// Chunks by layer and chunk; a parent's number is less than its child's.
    pub chunks: Vec<ChangedChunk>,
    /// Where the list goes on.
    pub next: Option<(LayerId, ChunkIndex)>,
}

/// A chunk that has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedChunk {
    /// The layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkIndex,
    /// The last committed write that touched it.
    pub modified: Sequence,
}

/// What a chunk holds, without saying where: two replicas with equal contents have equal digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkDigest {
    /// The last committed write that touched the chunk in this layer; `None`: the layer has nothing of its own here.
    pub modified: Option<Sequence>,
    /// Runs in block order that cover the chunk.
    pub runs: Vec<DigestRun>,
}

/// A run of blocks in a digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestRun {
    /// The first block.
    pub first: BlockIndex,
    /// Blocks.
    pub count: u16,
    /// A checksum a block; `None` for blocks of zeros.
    pub checksums: Option<Checksums>,
}

impl ChunkDigest {
    /// Runs of blocks in which the other digest differs, in block order.
    #[must_use]
    pub fn differing(&self, other: &ChunkDigest) -> Vec<(BlockIndex, u16)> {
        let (ours, theirs) = (self.by_block(), other.by_block());
        let mut runs: Vec<(BlockIndex, u16)> = Vec::new();
        for block in (0..CHUNK_BLOCKS).filter(|block| ours[*block] != theirs[*block]) {
            match runs.last_mut() {
                Some((first, count)) if usize::from(first.0 + *count) == block => *count += 1,
                _ => runs.push((BlockIndex(block as u16), 1)),
            }
        }
        runs
    }

    fn by_block(&self) -> Vec<Option<BlockSum>> {
        let mut blocks = vec![None; CHUNK_BLOCKS];
        for run in &self.runs {
            let sums = run.checksums.iter().flat_map(Checksums::each);
            let first = usize::from(run.first.0).min(CHUNK_BLOCKS);
            blocks[first..].iter_mut().zip(sums).for_each(|(block, sum)| *block = Some(sum));
        }
        blocks
    }
}
