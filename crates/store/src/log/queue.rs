//! Records on their way into the log, and what each does once it is durable.

use crate::groups::Place;
use crate::jobs::Job;
use crate::log::format::{EntryHead, Kind};
use crate::record::{Repair, payload_blocks};
use azekura_base::{BLOCK_SIZE, BlockRange, Body, Checksums, Epoch, PgId, Prepared, Sequence, Write};
use bytes::Bytes;

/// Live blocks on their way to a new address.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub pg: PgId,
    pub range: BlockRange,
    /// The address of the first block until now; the others follow it.
    pub old: u32,
    pub bytes: Bytes,
    pub checksums: Checksums,
}

impl Move {
    /// What its entry of this kind says, without the group's commit point.
    pub fn head(&self, kind: Kind) -> EntryHead {
        let head = EntryHead::of_range(kind, self.pg, &self.range).under(self.checksums.key());
        EntryHead { session: u64::from(self.old), ..head }
    }
}

#[derive(Debug)]
pub(crate) enum Item {
    Write(Write),
    Repair(Repair),
    Relocate(Move),
    /// The blocks of this move are at `address`, in a segment that is not in the chain.
    Moved {
        moved: Move,
        address: u32,
    },
    /// The blocks of the prepared write with this `id`, moved.
    WriteAgain {
        info: Prepared,
        id: u64,
        bytes: Bytes,
        checksums: Checksums,
    },
    Epoch {
        pg: PgId,
        epoch: Epoch,
        committed_before: Sequence,
        committed: Sequence,
        jump: bool,
        /// The group is complete up to here only.
        incomplete: Option<Sequence>,
    },
    Complete {
        pg: PgId,
    },
    Note {
        pg: PgId,
        version: u64,
        note: Bytes,
    },
    Job {
        job: Job,
    },
}

impl Item {
    pub fn payload_blocks(&self) -> u32 {
        let blocks = match self {
            Item::Write(write) => payload_blocks(&write.body),
            Item::Repair(repair) => payload_blocks(&repair.body),
            Item::Relocate(moved) => usize::from(moved.range.count),
            Item::WriteAgain { bytes, .. } => bytes.len() / BLOCK_SIZE,
            Item::Moved { .. } | Item::Epoch { .. } | Item::Complete { .. } | Item::Note { .. } | Item::Job { .. } => 0,
        };
        blocks as u32
    }

    /// The group whose records this one must stay in order with; `None`: those of all groups.
    pub fn group(&self) -> Option<PgId> {
        match self {
            Item::Write(write) => Some(write.header.pg),
            Item::Repair(repair) => Some(repair.pg),
            Item::Relocate(moved) | Item::Moved { moved, .. } => Some(moved.pg),
            Item::WriteAgain { info, .. } => Some(info.header.pg),
            Item::Epoch { pg, .. } | Item::Complete { pg } | Item::Note { pg, .. } => Some(*pg),
            Item::Job { .. } => None,
        }
    }

    pub fn entry_bytes(&self) -> usize {
        let tail = match self {
            Item::Note { note, .. } => note.len().next_multiple_of(4),
            // Those of what is lost, and of what stands in its place.
            Item::Repair(Repair { body: Body::Lost { checksums }, .. }) => checksums.len() * 2 * 4,
            _ => self.payload_blocks() as usize * 4,
        };
        let head = if matches!(self, Item::Moved { .. }) { Kind::Moved.head_bytes() } else { EntryHead::BYTES };
        head + tail
    }
}

/// A record that waits to be put into a batch.
#[derive(Debug)]
pub(crate) struct Queued {
    pub token: Option<u64>,
    pub id: u64,
    pub item: Item,
}

/// A record that is durable once its batch is written, and what follows from that.
#[derive(Debug)]
pub(crate) enum DurableRecord {
    Write { pg: PgId, sequence: Sequence, id: u64 },
    Repair,
    Relocate { moved: Move, place: Place, position: u64 },
    WriteAgain { pg: PgId, sequence: Sequence, id: u64, place: Place, count: u16 },
    Epoch { id: u64, pg: PgId, epoch: Epoch, committed: Sequence, incomplete: Option<Sequence> },
    Complete { pg: PgId },
    Note,
    Job { job: Job, segment: u32 },
}
