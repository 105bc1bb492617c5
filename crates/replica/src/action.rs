//! What a group asks its surroundings to do.

use crate::config::GroupConfig;
use crate::finding::{Finding, ScrubReport};
use azekura_base::{BlockRange, ChunkIndex, DeviceId, Epoch, Extent, IoStatus, LayerId, RequestId, Sequence, Write};
use azekura_wire::{Message, Prepare, ReadRequest, Repair, StatusRequest};
use std::fmt;
use std::time::Duration;

/// Who asks, and where the answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// This process itself.
    Own,
    /// Whoever is at the other end of a connection. Its number is chosen by the surroundings, and opaque to the group.
    Conn(u64),
}

/// One thing to do. Actions are performed in the order in which they are returned.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Append to the log; [`crate::Group::appended`] with the number when durable.
    Append(Write, u32),
    /// Append a repair to the log, visible once durable, in the order of commits and repairs;
    /// [`crate::Group::repair_appended`] when durable.
    AppendRepair(Repair),
    /// List the chunks that were changed after this place; [`crate::Group::changes_listed`].
    ListChanges {
        /// Names the wish.
        id: u64,
        /// For this copy.
        device: DeviceId,
        /// The place.
        after: Sequence,
    },
    /// Read committed blocks; [`crate::Group::blocks_loaded`].
    LoadBlocks {
        /// Names the wish.
        id: u64,
        /// The blocks.
        range: BlockRange,
    },
    /// Look up the checksums of a chunk's committed blocks, without reading these; [`crate::Group::checksums_loaded`].
    LoadChecksums {
        /// Names the wish.
        id: u64,
        /// The layer.
        layer: LayerId,
        /// The chunk.
        chunk: ChunkIndex,
    },
    /// Apply everything up to this place to the map. Logically immediate.
    Commit(Sequence),
    /// Record, durably, that this copy is in `epoch` and that prepared writes after `keep` are void;
    /// [`crate::Group::epoch_started`] when durable.
    StartEpoch {
        /// The epoch.
        epoch: Epoch,
        /// The last prepared write that stays.
        keep: Sequence,
    },
    /// A scrub of this group has ended, and has found these blocks bad, of which it names [`crate::FINDINGS_MAX`] at
    /// most.
    Scrubbed(ScrubReport, Vec<Finding>),
    /// Tell people: these blocks of a copy were bad and are being written anew from another copy.
    Mended {
        /// The copy.
        device: DeviceId,
        /// The blocks.
        range: BlockRange,
        /// A scrub tells of them at its end, or has told.
        scrubbing: bool,
    },
    /// Keep [`crate::Group::note`] in a checkpoint now; [`crate::Group::note_saved`] with this name when it is durable.
    SaveNote(u64),
    /// Note in the log, behind all that was appended until now, that this copy holds everything that it has committed.
    SetComplete,
    /// Tell people: no copy of these blocks is good.
    NoGoodCopy {
        /// The blocks.
        range: BlockRange,
        /// A scrub is under way, and tells of them at its end.
        scrubbing: bool,
    },
    /// Tell people: a write takes this time on this device, many times longer than on the other copies' devices, and
    /// has done so for long. From now on no write waits for the copy.
    TooSlow(DeviceId, Duration),
    /// Read a prepared write's blocks back from the log, in the reign of this epoch; [`crate::Group::prepared_loaded`].
    LoadPrepared(Sequence, Epoch),
    /// Read one committed block for a merge; [`crate::Group::edge_loaded`].
    LoadEdge {
        /// Names the merge.
        merge: u64,
        /// The block.
        block: BlockRange,
    },
    /// Send to the node that has this device. May be lost with the connection.
    Send(DeviceId, Message),
    /// Send a prepared write to the node that has this device. Where the client is given and is a gateway of that very
    /// node, it holds the blocks already.
    SendPrepare(DeviceId, Prepare, Option<Client>),
    /// Answer whoever opened the epoch on this copy, on the connection that it did so on.
    Answer(Client, Message),
    /// Answer a write.
    AnswerWrite(Client, RequestId, Result<(), IoStatus>),
    /// Read committed blocks and answer the client with them; [`crate::Group::read_failed`] where that can't be done.
    ServeRead(Client, ReadRequest),
    /// Answer a read with these blocks, which another copy has given.
    AnswerRead(Client, RequestId, Vec<Extent>),
    /// Look committed blocks up and answer the client.
    ServeStatus(Client, StatusRequest),
    /// Answer a read, or a status request, with a refusal.
    Refuse(Client, RequestId, IoStatus),
    /// Replace the group's configuration by compare-and-swap, if it is still the one of the version before;
    /// [`crate::Group::proposal_done`] with the outcome.
    Propose(GroupConfig),
}

/// A message contradicts the protocol or its own checksums: the connection that it came on must be closed, so that
/// both sides start afresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// A block or piece does not have the checksum that it came with.
    Checksum,
    /// A write came out of order.
    Gap {
        /// What came.
        got: Sequence,
        /// What should have come.
        expected: Sequence,
    },
    /// A prepared write refers to one that this node's gateway does not hold.
    NotOurs,
    /// The request is not one that a gateway sends.
    Request,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Checksum => f.write_str("data was damaged on the way (checksum)"),
            Mismatch::Gap { got, expected } => write!(f, "prepare {got} came where {expected} was due"),
            Mismatch::NotOurs => f.write_str("a prepared write refers to a write that this node has not sent"),
            Mismatch::Request => f.write_str("malformed request"),
        }
    }
}

impl std::error::Error for Mismatch {}
