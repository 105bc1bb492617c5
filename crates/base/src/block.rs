//! The words of a block request: which blocks, which write, what is in them. Messages, records of the log and the state
//! of a group are made of them, so that nothing is copied field by field on a write's way.

use crate::{
    BLOCK_SIZE, BlockIndex, CHUNK_BLOCKS, Checksums, ChunkIndex, Epoch, KeyGeneration, LayerId, PgId, RequestId,
    Sequence, SessionId, block_checksums,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A range of blocks in one chunk of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockRange {
    /// The layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkIndex,
    /// First block.
    pub first: BlockIndex,
    /// Number of blocks.
    pub count: u16,
}

impl BlockRange {
    /// One block.
    #[must_use]
    pub fn block(layer: LayerId, chunk: ChunkIndex, block: BlockIndex) -> BlockRange {
        BlockRange { layer, chunk, first: block, count: 1 }
    }

    /// All blocks of a chunk.
    #[must_use]
    pub fn chunk(layer: LayerId, chunk: ChunkIndex) -> BlockRange {
        BlockRange { layer, chunk, first: BlockIndex(0), count: CHUNK_BLOCKS as u16 }
    }

    /// The blocks that bytes of a chunk touch.
    ///
    /// # Panics
    /// When the bytes are not inside a chunk.
    #[must_use]
    pub fn of_bytes(layer: LayerId, chunk: ChunkIndex, offset: u32, len: u32) -> BlockRange {
        let first = offset as usize / BLOCK_SIZE;
        let end = (offset as usize + len as usize).div_ceil(BLOCK_SIZE);
        assert!(end <= CHUNK_BLOCKS, "{len} bytes from {offset} on are not inside a chunk");
        BlockRange { layer, chunk, first: BlockIndex(first as u16), count: (end - first) as u16 }
    }

    /// True when the range has blocks, and ends within its chunk.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.count > 0 && self.indexes().end <= CHUNK_BLOCKS
    }

    /// The same range as indexes of the chunk's blocks.
    #[must_use]
    pub fn indexes(&self) -> std::ops::Range<usize> {
        usize::from(self.first.0)..usize::from(self.first.0) + usize::from(self.count)
    }

    /// The blocks, one after the other.
    pub fn each(&self) -> impl Iterator<Item = BlockIndex> {
        (self.first.0..self.first.0.saturating_add(self.count)).map(BlockIndex)
    }

    /// True when both ranges have a block in common.
    #[must_use]
    pub fn overlaps(&self, other: &BlockRange) -> bool {
        self.layer == other.layer
            && self.chunk == other.chunk
            && self.first.0 < other.first.0 + other.count
            && other.first.0 < self.first.0 + self.count
    }
}

/// What names one write in its placement group's order, and the blocks that it changes. Primary, secondaries and logs
/// keep the same header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHeader {
    /// The placement group.
    pub pg: PgId,
    /// The epoch in which the write was ordered.
    pub epoch: Epoch,
    /// The write's place in the group's order: one more than the last.
    pub sequence: Sequence,
    /// Everything up to here was committed when the header was made. Below `sequence`.
    pub commit: Sequence,
    /// The session that asked for the write.
    pub session: SessionId,
    /// The write's number in that session.
    pub request: RequestId,
    /// The blocks.
    pub range: BlockRange,
}

/// What is in blocks, or is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Bytes, and the checksum of each block's part of them. But for a client's write, which may begin and end within a
    /// block, the bytes are whole blocks.
    Data {
        /// The bytes.
        bytes: Bytes,
        /// One checksum a block.
        checksums: Checksums,
    },
    /// Zeros: whole blocks, which give their space back.
    Zero,
    /// Blocks that no copy can give: reads of them fail until they are written. Of repairs only.
    Lost {
        /// The checksums of what the blocks held: who has that, can still give it.
        checksums: Checksums,
    },
}

impl Body {
    /// Whole blocks, with checksums computed here.
    ///
    /// # Panics
    /// When `bytes` are not whole blocks.
    #[must_use]
    pub fn data(bytes: Bytes) -> Body {
        let checksums = block_checksums(&bytes).collect();
        Body::Data { bytes, checksums }
    }

    /// The same, encrypted under this generation of the volume's key. Zeros have none.
    #[must_use]
    pub fn under(self, key: KeyGeneration) -> Body {
        match self {
            Body::Data { bytes, checksums } => Body::Data { bytes, checksums: checksums.under(key) },
            Body::Zero => Body::Zero,
            Body::Lost { checksums } => Body::Lost { checksums: checksums.under(key) },
        }
    }

    /// The blocks are as they were when their checksums were made. True of what has no bytes.
    #[must_use]
    pub fn is_undamaged(&self) -> bool {
        match self {
            Body::Data { bytes, checksums } => block_checksums(bytes).eq(checksums.iter().copied()),
            Body::Zero | Body::Lost { .. } => true,
        }
    }
}

/// One write in its placement group's order. Prepared when durable; visible when committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which write, and to which blocks.
    pub header: WriteHeader,
    /// What goes into the blocks; never [`Body::Lost`].
    pub body: Body,
}

/// A prepared, uncommitted write as a log has it, without its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Which write, and to which blocks.
    pub header: WriteHeader,
    /// The write is of zeros.
    pub zero: bool,
    /// The write is on stable storage.
    pub durable: bool,
}

/// A run of blocks as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Blocks with contents, encrypted under one generation of a key, if they are.
    Data {
        /// Whole blocks.
        bytes: Bytes,
        /// One checksum a block.
        checksums: Checksums,
    },
    /// Blocks that read as zeros.
    Zero {
        /// Number of blocks.
        count: u16,
    },
}

impl Extent {
    /// Number of blocks.
    #[must_use]
    pub fn count(&self) -> u16 {
        match self {
            Extent::Data { checksums, .. } => checksums.len() as u16,
            Extent::Zero { count } => *count,
        }
    }
}

impl From<Extent> for Body {
    fn from(extent: Extent) -> Body {
        match extent {
            Extent::Data { bytes, checksums } => Body::Data { bytes, checksums },
            Extent::Zero { .. } => Body::Zero,
        }
    }
}

/// A run of blocks that all hold data, or all read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of blocks.
    pub count: u16,
    /// The blocks hold data: encrypted under this generation of a key, if they are.
    pub data: Option<KeyGeneration>,
}

impl Run {
    /// The blocks hold data.
    #[must_use]
    pub fn is_data(&self) -> bool {
        self.data.is_some()
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckRule {
    /// Every in-sync copy is durable.
    #[default]
    All,
    /// More than half of the copies that the group is to have are durable, the primary among them; all that are in sync
    /// if those are fewer.
    Majority,
    /// More than half of the in-sync copies of the primary's site, the primary among them, and one of every other site
    /// that has any, are durable.
    EachSite,
}

impl fmt::Display for AckRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AckRule::All => "all",
            AckRule::Majority => "majority",
            AckRule::EachSite => "each-site",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Checksum;

    fn range(layer: u64, first: u16, count: u16) -> BlockRange {
        BlockRange { layer: LayerId(layer), chunk: ChunkIndex(3), first: BlockIndex(first), count }
    }

    #[test]
    fn ranges_end_within_their_chunk() {
        assert!(range(1, 0, 1024).is_valid() && range(1, 1023, 1).is_valid());
        assert!(
            !range(1, 0, 0).is_valid() && !range(1, 1023, 2).is_valid() && !range(1, u16::MAX, u16::MAX).is_valid()
        );
        assert_eq!(range(1, 1022, 2).each().collect::<Vec<_>>(), [BlockIndex(1022), BlockIndex(1023)]);
    }

    #[test]
    fn ranges_overlap_in_the_same_chunk_of_the_same_layer_only() {
        assert!(range(1, 4, 4).overlaps(&range(1, 7, 1)) && range(1, 7, 1).overlaps(&range(1, 4, 4)));
        assert!(!range(1, 4, 4).overlaps(&range(1, 8, 1)) && !range(1, 4, 4).overlaps(&range(2, 4, 4)));
        let other = BlockRange { chunk: ChunkIndex(4), ..range(1, 4, 4) };
        assert!(!range(1, 4, 4).overlaps(&other));
    }

    #[test]
    fn a_changed_block_is_damaged() {
        let Body::Data { checksums, .. } = Body::data(Bytes::from(vec![7; 8192])) else { panic!("it is data") };
        let mut bytes = vec![7; 8192];
        assert!(Body::Data { bytes: bytes.clone().into(), checksums: checksums.clone() }.is_undamaged());
        bytes[8191] ^= 1;
        assert!(!Body::Data { bytes: bytes.into(), checksums }.is_undamaged());
        assert_eq!(Body::Lost { checksums: Checksum(9).into() }, Body::Lost { checksums: Checksum(9).into() });
    }
}
