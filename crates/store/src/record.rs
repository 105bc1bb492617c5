//! What goes into the log.

use azekura_base::{
    BLOCK_SIZE, BlockIndex, Checksum, ChunkIndex, Epoch, LayerId, PgId, RequestId, Sequence, SessionId,
};
use bytes::Bytes;
use std::sync::Arc;

/// The checksums of a run of blocks. One checksum, the common case, takes no allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checksums(Inner);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Inner {
    One(Checksum),
    Many(Arc<[Checksum]>),
}

impl Checksums {
    /// The checksums, in block order.
    #[must_use]
    pub fn as_slice(&self) -> &[Checksum] {
        match &self.0 {
            Inner::One(one) => std::slice::from_ref(one),
            Inner::Many(many) => many,
        }
    }
}

impl std::ops::Deref for Checksums {
    type Target = [Checksum];
    fn deref(&self) -> &[Checksum] {
        self.as_slice()
    }
}

impl From<Checksum> for Checksums {
    fn from(one: Checksum) -> Checksums {
        Checksums(Inner::One(one))
    }
}

impl From<&[Checksum]> for Checksums {
    fn from(many: &[Checksum]) -> Checksums {
        match many {
            [one] => Checksums(Inner::One(*one)),
            _ => Checksums(Inner::Many(many.into())),
        }
    }
}

impl FromIterator<Checksum> for Checksums {
    fn from_iter<I: IntoIterator<Item = Checksum>>(iter: I) -> Checksums {
        let mut iter = iter.into_iter();
        match (iter.next(), iter.next()) {
            (Some(one), None) => Checksums(Inner::One(one)),
            (first, second) => Checksums(Inner::Many(first.into_iter().chain(second).chain(iter).collect())),
        }
    }
}

/// What a write puts into its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Whole blocks, page-aligned in memory, and the checksum of each, which the caller has verified.
    Data {
        /// The blocks.
        bytes: Bytes,
        /// One checksum a block.
        checksums: Checksums,
    },
    /// Zeros: the blocks give their space back.
    Zero,
    /// No copy could give them: reads of them fail until they are written. Of a [`Copy`] only.
    Lost {
        /// The checksums of what they held: who has that, can still give it.
        checksums: Checksums,
    },
}

impl Body {
    /// A body of `bytes`, with checksums computed here.
    #[must_use]
    pub fn data(bytes: Bytes) -> Body {
        let checksums = azekura_base::block_checksums(&bytes).collect();
        Body::Data { bytes, checksums }
    }

    /// Blocks that this body takes on the device.
    pub(crate) fn payload_blocks(&self) -> usize {
        match self {
            Body::Data { bytes, .. } => bytes.len() / BLOCK_SIZE,
            Body::Zero => 0,
            Body::Lost { checksums } => checksums.len(),
        }
    }

    /// The same as it is stored: in the place of lost blocks there are zeros, which take space, so that they are moved
    /// and accounted for like all others.
    pub(crate) fn stored(self) -> Body {
        match self {
            Body::Lost { checksums } => {
                Body::data(azekura_base::PageBuf::zeroed(checksums.len() * BLOCK_SIZE).freeze())
            }
            body => body,
        }
    }
}

/// A write in its placement group's order. Prepared when durable; visible when committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The placement group.
    pub pg: PgId,
    /// The epoch in which the primary ordered it.
    pub epoch: Epoch,
    /// Its position in the group's order: one more than the last.
    pub sequence: Sequence,
    /// The group's commit point when the write was sent, below `sequence`. Replay takes it as known.
    pub commit: Sequence,
    /// The client session.
    pub session: SessionId,
    /// The request inside the session.
    pub request: RequestId,
    /// The layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkIndex,
    /// The first block.
    pub first: BlockIndex,
    /// Blocks, 1..=1024, not past the end of the chunk.
    pub count: u16,
    /// What goes into the blocks.
    pub body: Body,
}

/// Blocks brought up to date outside of the group's order, from another replica: visible once durable, in the order of
/// calls to append and commit. The group must have been committed up to `sequence` before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The placement group.
    pub pg: PgId,
    /// The commit point at which the other replica had these contents.
    pub sequence: Sequence,
    /// The layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkIndex,
    /// The first block.
    pub first: BlockIndex,
    /// Blocks, 1..=1024, not past the end of the chunk.
    pub count: u16,
    /// What goes into the blocks.
    pub body: Body,
}

/// Says that a chunk equals another replica's as of a sequence, whatever had to be copied for that: from here on this
/// replica can tell that the chunk has changed up to there. The group must have been committed up to `sequence` before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The placement group.
    pub pg: PgId,
    /// The last write that touched the chunk at the other replica.
    pub sequence: Sequence,
    /// The layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkIndex,
}

/// Something to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A prepared write.
    Write(Write),
    /// Blocks from another replica.
    Copy(Copy),
    /// A chunk is level with another replica's.
    Mark(Mark),
}

impl From<Write> for Record {
    fn from(write: Write) -> Record {
        Record::Write(write)
    }
}

impl From<Mark> for Record {
    fn from(mark: Mark) -> Record {
        Record::Mark(mark)
    }
}

impl From<Copy> for Record {
    fn from(copy: Copy) -> Record {
        Record::Copy(copy)
    }
}

/// A prepared, uncommitted write, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedInfo {
    /// The epoch in which it was ordered.
    pub epoch: Epoch,
    /// Its position in the group's order.
    pub sequence: Sequence,
    /// The client session.
    pub session: SessionId,
    /// The request inside the session.
    pub request: RequestId,
    /// The layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkIndex,
    /// The first block.
    pub first: BlockIndex,
    /// Blocks.
    pub count: u16,
    /// It writes zeros.
    pub zero: bool,
    /// It is on stable storage.
    pub durable: bool,
}

/// How far a placement group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GroupState {
    /// The epoch that was last started.
    pub epoch: Epoch,
    /// Everything up to here is committed.
    pub committed: Sequence,
    /// The last prepared write; equal to `committed` when there is none.
    pub prepared_end: Sequence,
    /// This copy holds all that was committed up to here: `committed`, except between [`crate::Store::rejoin`] and
    /// [`crate::Store::set_complete`].
    pub complete: Sequence,
}
