//! What the store asks for, what it is told, and what it tells.

use crate::checkpoint::CheckpointBatch;
use crate::map::MergedOwner;
use crate::map::{LeafKey, SavedLeaf};
use azekura_base::{BlockIndex, Body, ChunkIndex, Extent, LayerId, PgId, Run, Sequence};
use bytes::Bytes;
use std::fmt;
use std::ops::Range;

/// Names one effect until it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// Something that the surroundings do for the store; they report with [`crate::Store::done`].
#[derive(Debug)]
pub enum Effect {
    /// One contiguous write to the device.
    Write {
        /// Its name.
        io: IoId,
        /// Byte offset on the device, a multiple of 4096.
        offset: u64,
        /// Page-aligned pieces of whole blocks, one after the other.
        pieces: Vec<Bytes>,
        /// Done means: on stable storage.
        durable: bool,
    },
    /// One contiguous read from the device.
    Read {
        /// Its name.
        io: IoId,
        /// Byte offset on the device, a multiple of 4096.
        offset: u64,
        /// Bytes, a multiple of 4096.
        len: usize,
    },
    /// Everything that the device has accepted goes to stable storage. Asked for once, at the end of recovery.
    Flush {
        /// Its name.
        io: IoId,
    },
    /// Leaves are looked up in the saved map, as a [lookup](Effect::is_lookup).
    LoadLeaves {
        /// Its name.
        io: IoId,
        /// The leaves, answered in this order.
        keys: Vec<LeafKey>,
        /// The block addresses that there are: a leaf that names others is a damaged one.
        addresses: Range<u32>,
    },
    /// Leaves of one layer are listed from the saved map, in order of their chunks.
    ScanLayer {
        /// Its name.
        io: IoId,
        /// The layer.
        layer: LayerId,
        /// Only chunks from this one on.
        from: ChunkIndex,
        /// At most so many.
        limit: usize,
    },
    /// The saved map's leaves of a group that were modified after a sequence are listed, in order of layer and chunk.
    ScanModified {
        /// Its name.
        io: IoId,
        /// The group.
        pg: PgId,
        /// Only leaves modified after this; with 0, all leaves.
        after: Sequence,
        /// Only leaves from this one on.
        from: (LayerId, ChunkIndex),
        /// At most so many.
        limit: usize,
    },
    /// The layers of a segment that were merged into others are listed, as a [lookup](Effect::is_lookup).
    LoadMergedOwners {
        /// Its name.
        io: IoId,
        /// The segment.
        segment: u32,
    },
    /// What the saved map has of a group is compared with how much it should be.
    CompareTotals {
        /// Its name.
        io: IoId,
        /// The group.
        pg: PgId,
    },
    /// One transaction of the saved map: all or nothing, durable when done.
    Checkpoint {
        /// Its name.
        io: IoId,
        /// What it writes.
        batch: Box<CheckpointBatch>,
    },
}

impl Effect {
    /// It looks something up in the saved map as of the last checkpoint that had ended when it was asked for, or of a
    /// later one, and may pass all that the map has to do before it: a checkpoint takes as long as the device takes for
    /// all that it saves, and neither readers nor the cleaner wait for it (docs/decisions/0035-map-at-any-size.md). All
    /// other effects of the map are done in the order in which they are asked for.
    #[must_use]
    pub fn is_lookup(&self) -> bool {
        matches!(self, Effect::LoadLeaves { .. } | Effect::LoadMergedOwners { .. })
    }

    /// The end of an effect of the saved map that gives `error`; `None` when it is none of the map's.
    #[must_use]
    pub fn map_error(&self, error: MapError) -> Option<(IoId, Done)> {
        match self {
            Effect::LoadLeaves { io, .. } => Some((*io, Done::Leaves(Err(error)))),
            Effect::ScanLayer { io, .. } => Some((*io, Done::Layer(Err(error)))),
            Effect::ScanModified { io, .. } => Some((*io, Done::Modified(Err(error)))),
            Effect::LoadMergedOwners { io, .. } => Some((*io, Done::MergedOwners(Err(error)))),
            Effect::CompareTotals { io, .. } => Some((*io, Done::Totals(Err(error)))),
            Effect::Checkpoint { io, .. } => Some((*io, Done::Checkpointed(Err(error)))),
            Effect::Write { .. } | Effect::Read { .. } | Effect::Flush { .. } => None,
        }
    }
}

/// The end of an effect.
#[derive(Debug)]
pub enum Done {
    /// Of [`Effect::Write`].
    Written(Result<(), DeviceError>),
    /// Of [`Effect::Read`]: exactly the bytes asked for.
    Read(Result<Bytes, DeviceError>),
    /// Of [`Effect::Flush`].
    Flushed(Result<(), DeviceError>),
    /// Of [`Effect::LoadLeaves`].
    Leaves(Result<Vec<SavedLeaf>, MapError>),
    /// Of [`Effect::ScanLayer`].
    Layer(Result<Vec<LeafKey>, MapError>),
    /// Of [`Effect::ScanModified`].
    Modified(Result<Vec<(LeafKey, Sequence)>, MapError>),
    /// Of [`Effect::LoadMergedOwners`].
    MergedOwners(Result<Vec<MergedOwner>, MapError>),
    /// Of [`Effect::CompareTotals`]: what differs, if something does.
    Totals(Result<Option<String>, MapError>),
    /// Of [`Effect::Checkpoint`].
    Checkpointed(Result<(), MapError>),
}

impl Done {
    /// Why the saved map is of no more use, if the map says so.
    pub(crate) fn map_failure(&self) -> Option<&MapError> {
        let error = match self {
            Done::Leaves(result) => result.as_ref().err(),
            Done::Layer(result) => result.as_ref().err(),
            Done::Modified(result) => result.as_ref().err(),
            Done::MergedOwners(result) => result.as_ref().err(),
            Done::Totals(result) => result.as_ref().err(),
            Done::Checkpointed(result) => result.as_ref().err(),
            Done::Written(_) | Done::Read(_) | Done::Flushed(_) => None,
        };
        error.filter(|error| matches!(error, MapError::Failed(_)))
    }
}

/// A device that did not do as told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceError(pub String);

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device error: {}", self.0)
    }
}

impl std::error::Error for DeviceError {}

/// A saved map that did not do as told, or holds what it should not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapError {
    /// The saved map is of no more use: nothing that it says or does can be relied on before the device is opened
    /// again.
    Failed(String),
    /// The saved map could not be read for the effect. Nothing has changed, and the same may be tried again.
    Refused(String),
    /// There is no room to write the saved map. Nothing has changed, and the same may be tried again.
    Full(String),
}

impl MapError {
    /// It has refused the same for so long that it is not waited for any more; `what` says what it refuses.
    #[must_use]
    pub fn refused_for_long(what: &str) -> MapError {
        let way_out = "start the node anew when the disk is well again; if that does not help, stop it and make the map anew \
                       from the log (azekura store rebuild-map)";
        MapError::Failed(format!("{what}; {way_out}"))
    }

    /// Both copies of a row are damaged; `what` names the row.
    #[must_use]
    pub fn both_damaged(what: &str) -> MapError {
        MapError::Failed(format!("{what} is damaged in the map, and so is its second copy"))
    }
}

impl MapError {
    /// What is wrong, for whoever has said already that it is about the map.
    #[must_use]
    pub fn what(&self) -> &str {
        match self {
            MapError::Failed(what) | MapError::Refused(what) | MapError::Full(what) => what,
        }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "map error: {}", self.what())
    }
}

impl std::error::Error for MapError {}

/// What the store has to tell.
#[derive(Debug)]
pub enum Completion {
    /// Opening ended. On `Ok` the store takes every call; on an error it is of no more use.
    Recovered(Result<(), OpenError>),
    /// The record, epoch or layer drop with this token is on stable storage, and all that was appended before it.
    Durable {
        /// The caller's token.
        token: u64,
    },
    /// An epoch has dropped the write with this token before any of it was written: the write never becomes durable.
    Dropped {
        /// The caller's token.
        token: u64,
    },
    /// The end of a read.
    Read {
        /// The caller's token.
        token: u64,
        /// Extents in block order that cover what was asked for.
        result: Result<Vec<Extent>, ReadError>,
    },
    /// The end of reading a prepared write's payload.
    Prepared {
        /// The caller's token.
        token: u64,
        /// The body.
        result: Result<Body, ReadError>,
    },
    /// The end of a status query.
    Status {
        /// The caller's token.
        token: u64,
        /// Runs in block order that cover the chunk.
        result: Result<Vec<Run>, ReadError>,
    },
    /// The end of a query for modified chunks.
    Modified {
        /// The caller's token.
        token: u64,
        /// Each chunk with the sequence of its last committed write, ordered by layer and chunk.
        result: Result<Vec<(LayerId, ChunkIndex, Sequence)>, ReadError>,
    },
    /// A checkpoint is saved.
    Checkpointed,
    /// The device or the saved map failed at a write: nothing more is accepted, nothing more becomes durable.
    Failed(Failure),
}

/// Why the store stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// A write to the device failed.
    Device(DeviceError),
    /// The saved map failed.
    Map(MapError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Device(error) => write!(f, "the store stopped: {error}"),
            Failure::Map(error) => write!(f, "the store stopped: {error}"),
        }
    }
}

impl std::error::Error for Failure {}

/// Why a read gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// What the device gave is not what was written.
    Checksum {
        /// The first bad block.
        block: BlockIndex,
    },
    /// It is known that no copy could give what was written.
    Lost {
        /// The first such block.
        block: BlockIndex,
    },
    /// Where some blocks are was said by a leaf of the map that is damaged: this copy knows nothing of them.
    Unknown {
        /// The first such block.
        first: BlockIndex,
        /// How many there are from there on.
        count: u16,
    },
    /// The device refused.
    Device(DeviceError),
    /// The saved map refused.
    Map(MapError),
    /// There is no such prepared write.
    NotPrepared,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Checksum { block } => write!(f, "block {block} of the chunk fails its checksum"),
            ReadError::Lost { block } => write!(f, "block {block} of the chunk is lost: no copy could give it"),
            ReadError::Unknown { first, count } => {
                write!(
                    f,
                    "the map of the device was damaged: of {count} blocks of the chunk from block {first} on nothing is known here"
                )
            }
            ReadError::Device(error) => error.fmt(f),
            ReadError::Map(error) => error.fmt(f),
            ReadError::NotPrepared => write!(f, "there is no such prepared write"),
        }
    }
}

impl std::error::Error for ReadError {}

/// Why a device can't be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenError {
    /// The options don't fit together, or not to what the device was formatted with.
    Options(String),
    /// There is no superblock: not formatted, or not a device of ours.
    NotFormatted,
    /// A format that this version does not read.
    Version(u16),
    /// The device belongs to another cluster, is another device, or its map belongs to another log.
    Identity(String),
    /// The log was damaged at a place where it had been durable.
    Damaged(String),
    /// The device refused.
    Device(DeviceError),
    /// The saved map refused, or holds what it should not.
    Map(MapError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Options(what) => write!(f, "wrong options: {what}"),
            OpenError::NotFormatted => write!(f, "there is no superblock: this is not a formatted device"),
            OpenError::Version(version) => write!(
                f,
                "format version {version} is not known to this program: if it is a former one, the device has to be \
                 formatted again, and gets its copies from others"
            ),
            OpenError::Identity(what) => write!(f, "not the expected device: {what}"),
            OpenError::Damaged(what) => write!(f, "the log is damaged: {what}"),
            OpenError::Device(error) => error.fmt(f),
            OpenError::Map(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<Failure> for OpenError {
    fn from(failure: Failure) -> OpenError {
        match failure {
            Failure::Device(error) => OpenError::Device(error),
            Failure::Map(error) => OpenError::Map(error),
        }
    }
}
