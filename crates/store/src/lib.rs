//! The store of one device: a log that is also the data, and a map that says where each block is.
//!
//! Nothing here does I/O or knows the time: [`Store`] takes calls, gives [`Effect`]s to be done, is told what came of
//! them ([`Done`]), and gives [`Completion`]s and [`Report`]s. The formats are in `docs/formats/log.md` and `map.md`.
//! Why the parts are cut as they are: `docs/decisions/0032-store-components.md`.
//!
//! A tour, in the order in which a block meets the folders:
//!
//! - `store/`: the interface. It passes calls and the ends of effects on.
//! - `cx/`: the context that every part is handed: geometry, time, effects, how far the log is. Beside it the table of
//!   segments (`segments/`).
//! - `engine/`: the order of operations on the map, and the passing on of work from one part to another.
//! - `groups/`: *prepare and commit*. A placement group's epoch, commit point and writes that are not applied yet.
//! - `log/`: *write*. Records ([`Record`]) wait, are sealed into batches, one device write each, and become durable in
//!   order; `log/format/` has the bytes.
//! - `map/`: *apply*. An operation changes the leaf of its chunk, in memory. Layers have leaves of their own, whose
//!   blocks may be an ancestor's. Every block is accounted for in its segment and its layer.
//! - `read/`: *read*. From the leaf to addresses to verified extents, or from memory.
//! - `checkpoint/`: changed leaves are saved into a database (the crate `map-db`; in tests in memory). Then replay
//!   begins later, and emptied segments become free.
//! - `cleaner/`: segments with few live blocks are emptied.
//! - `jobs/`: work in the background: the ends of layers and groups.
//! - `recovery/`: *open*. From the checkpoint along the log to its end.
//! - `query/`: what changed since, what a chunk holds, what two layers show differently, what the end of one gives
//!   back.
//! - `rebuild/`: a map that is damaged or gone is made anew from the log.
//! - `tools/`: a check of a closed device, a listing of its log, its accounts.
//!
//! No part knows the store, and none but replay the engine. No more than three files use each other in a circle.

// Tests of what can't be seen from outside use the surroundings of the others (`tests/common`).
#[cfg(test)]
extern crate self as azekura_store;

mod checkpoint;
mod cleaner;
mod cx;
mod effect;
mod engine;
mod groups;
mod hash;
mod jobs;
mod log;
mod map;
mod options;
mod query;
mod read;
mod rebuild;
mod record;
mod recovery;
mod report;
mod segments;
mod statistics;
mod store;
mod tools;

pub use checkpoint::{
    CheckpointBatch, CheckpointRoot, GroupRow, InMemoryMap, MapDamage, MapRow, PendingRow, Position, Root, SavedMap,
    SegmentRow,
};
pub use effect::{Completion, DeviceError, Done, Effect, Failure, IoId, MapError, OpenError, ReadError};
pub use groups::{REPLAYED_REQUESTS_MAX, Requests};
pub use jobs::Job;
pub use map::{
    DamagedLeaf, Entries, Entry, Leaf, LeafError, LeafImage, LeafKey, LeafStamps, MergedOwner, OverdueLeaf, SavedLeaf,
    UnknownBlocks,
};
pub use options::{Identity, Initialisation, Options, SUPERBLOCK_AREA_BLOCKS};
pub use rebuild::{KnownLayers, Rebuild, RebuildReport, RebuildSettings, RebuildStep};
pub use record::{GroupState, Mark, Record, Repair};
pub use report::{ChangedChunk, ChangedPage, ChunkDigest, DigestRun, Report};
pub use statistics::{Space, Statistics};
pub use store::{Format, Store};
pub use tools::{
    BatchInfo, CheckReport, Finding, Inspector, ReadDevice, RecordInfo, SegmentInfo, Severity, SuperblockInfo, check,
};
