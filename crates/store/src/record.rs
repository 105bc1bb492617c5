//! What goes into the log.

use azekura_base::{BLOCK_SIZE, BlockRange, Body, ChunkIndex, Epoch, LayerId, PgId, Sequence, Write};

/// Blocks that a body takes on the device.
pub(crate) fn payload_blocks(body: &Body) -> usize {
    match body {
        Body::Data { bytes, .. } => bytes.len() / BLOCK_SIZE,
        Body::Zero => 0,
        Body::Lost { checksums } => checksums.len(),
    }
}

/// A body as it is stored: in the place of lost blocks there are zeros, which take space, so that they are moved and
/// accounted for like all others (decision 0014).
pub(crate) fn stored(body: Body) -> Body {
    match body {
        Body::Lost { checksums } => Body::data(azekura_base::PageBuf::zeroed(checksums.len() * BLOCK_SIZE).freeze()),
        body => body,
    }
}

/// Blocks brought up to date outside of the group's order, from another replica: visible once durable, in the order of
/// calls to append and commit. The group must have been committed up to `sequence` before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The placement group.
    pub pg: PgId,
    /// The commit point at which the other replica had these contents.
    pub sequence: Sequence,
    /// The blocks.
    pub range: BlockRange,
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
    Repair(Repair),
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

impl From<Repair> for Record {
    fn from(repair: Repair) -> Record {
        Record::Repair(repair)
    }
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
    /// The copy is of a map that was made from the log alone ([`crate::Rebuild`]), and is not complete again yet: what
    /// it holds may be older than what it held, and newer.
    pub unproven: bool,
}
