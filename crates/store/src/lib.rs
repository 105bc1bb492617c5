//! The store of one device: a log that is also the data, and a map that says where each block is.
//!
//! Nothing here does I/O or knows the time: [`Store`] takes calls, gives [`Effect`]s to be done, is told what came of
//! them ([`Done`]), and gives [`Completion`]s and [`Report`]s. The formats are in `docs/formats/log.md` and `map.md`.
//!
//! A tour, in the order in which a block meets the files:
//!
//! - *Write.* [`Store::append`] takes a [`Record`] (`record.rs`) into the queue of the log (`recording.rs`);
//!   [`Store::pump`] seals what waits into one batch, one device write (`log.rs`, `format/`), in a segment
//!   (`segments.rs`). Until its group commits it waits in `groups.rs`.
//! - *Commit.* [`Store::commit`] lets the write change the map: an operation (`ops.rs`) on the leaf (`leaf.rs`) of its
//!   chunk,
//!   in memory (`leaf_cache.rs`). Layers have leaves of their own, whose blocks may be an ancestor's (`layers.rs`,
//!   `inheritance.rs`). Every block is accounted for in its segment and its layer (`accounts.rs`).
//! - *Read.* From the leaf to addresses to verified extents (`reads.rs`), or from memory (`read_cache.rs`).
//! - *Checkpoint.* Changed leaves are saved into a database (`saving.rs`; what is saved: `checkpoint.rs`; where:
//!   `checkpoint_db.rs`, in tests `memory_map.rs`). Then replay begins later, and emptied segments become free.
//! - *Collection.* Segments with few live blocks are emptied (`collect.rs`, `moves.rs`). When layers have been merged,
//!   `heirs.rs` knows whose
//!   their blocks are now.
//! - *Opening.* From the checkpoint along the log to its end (`recovery.rs`, `replay.rs`; past sectors that
//!   can't be read: `rereading.rs`).
//! - *In the background.* The ends of layers and groups (`jobs.rs`).
//! - *Asked by replication.* What changed since, what a chunk holds (`modified.rs`, `questions.rs`).
//! - *Asked about snapshots.* What two layers show differently (`differences.rs`), what the end of one would give back
//!   (`measuring.rs`).
//! - *Looked at from outside.* A check of a closed device (`check.rs`), also of who owns what (`lineage.rs`), and a
//!   listing of
//!   its log (`dump.rs`).

// Tests of what can't be seen from outside use the surroundings of the others (`tests/common`).
#[cfg(test)]
extern crate self as azekura_store;

mod accounts;
mod check;
mod checkpoint;
mod checkpoint_db;
mod collect;
mod damage;
mod differences;
mod dump;
mod effect;
mod epochs;
mod format;
mod groups;
mod hash;
mod heirs;
mod inheritance;
mod jobs;
mod layers;
mod leaf;
mod leaf_cache;
mod lineage;
mod log;
mod map_file;
mod map_rows;
mod map_tables;
mod measuring;
mod memory_map;
mod modified;
mod moves;
mod ops;
mod options;
mod questions;
mod read_cache;
mod reads;
mod record;
mod recording;
mod recovery;
mod replay;
mod report;
mod requests;
mod rereading;
mod saving;
mod segments;
mod statistics;
mod store;

pub use check::{CheckReport, Finding, Severity, check};
pub use checkpoint::{CheckpointBatch, CheckpointRoot, GroupRow, PendingRow, Position, Root, SavedMap, SegmentRow};
pub use checkpoint_db::CheckpointDb;
pub use damage::UnknownBlocks;
pub use dump::{BatchInfo, Inspector, ReadDevice, RecordInfo, SegmentInfo, SuperblockInfo};
pub use effect::{Completion, DeviceError, Done, Effect, Failure, IoId, MapError, OpenError, ReadError};
pub use heirs::Heir;
pub use jobs::Job;
pub use leaf::{DamagedLeaf, Entry, Leaf, LeafError, LeafImage, LeafKey, LeafStamps, SavedLeaf};
pub use memory_map::{MapDamage, MapRow, MemoryMap};
pub use options::{Identity, Options, SUPERBLOCK_AREA_BLOCKS};
pub use record::{Copy, GroupState, Mark, Record};
pub use report::{ChangedChunk, ChangedPage, ChunkDigest, DigestRun, Report};
pub use requests::{REPLAYED_REQUESTS_MAX, Requests};
pub use statistics::{Space, Statistics};
pub use store::{Format, Store};
