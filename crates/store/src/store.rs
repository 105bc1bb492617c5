//! The store's interface.

use crate::*;
use azekura_base::{BlockIndex, ChunkIndex, Epoch, LayerId, PgId, Sequence};
use bytes::Bytes;
use std::time::Duration;

/// What formatting writes: the superblock to the device, then the first checkpoint to the saved map.
#[derive(Debug)]
pub struct Format {
    /// Where the superblock goes, in bytes.
    pub offset: u64,
    /// The superblock, page-aligned whole blocks.
    pub pieces: Vec<Bytes>,
    /// The first checkpoint.
    pub checkpoint: CheckpointBatch,
}

/// How full the device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes that clients can store.
    pub capacity: u64,
    /// Bytes of blocks that the map reaches.
    pub live: u64,
    /// Segments that can be written to at once.
    pub free_segments: u32,
    /// All segments.
    pub segments: u32,
    /// No more data should be accepted.
    pub full: bool,
    /// Less than a tenth of the capacity is left.
    pub near_full: bool,
}

/// Counters since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Batches written.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of log written: headers, payloads and summaries.
    pub log_bytes: u64,
    /// Payload blocks of client records.
    pub client_blocks: u64,
    /// Payload blocks of relocations.
    pub gc_blocks: u64,
    /// Segments that garbage collection has emptied.
    pub gc_segments: u64,
    /// Checkpoints saved.
    pub checkpoints: u64,
    /// Leaves saved.
    pub checkpoint_leaves: u64,
    /// Bytes of leaf images handed to the saved map, before its own overhead.
    pub checkpoint_bytes: u64,
    /// Lookups that found their leaf in memory.
    pub leaf_hits: u64,
    /// Lookups that had to load a leaf.
    pub leaf_misses: u64,
    /// Memory in leaves, in bytes.
    pub leaf_bytes: u64,
    /// Blocks read from the read cache.
    pub cache_hits: u64,
    /// Blocks read that were not in it.
    pub cache_misses: u64,
    /// Memory in the read cache, in bytes.
    pub cache_bytes: u64,
    /// Reads from the device.
    pub device_reads: u64,
    /// Blocks whose contents did not match their checksum.
    pub checksum_errors: u64,
    /// Bytes of log that a restart would replay now.
    pub replay_bytes: u64,
    /// Batch writes in flight now.
    pub batches_in_flight: u64,
    /// Records that wait to be put into a batch now.
    pub records_waiting: u64,
}

/// One device's store.
#[derive(Debug)]
pub struct Store {}

#[allow(unused_variables, missing_docs, clippy::unused_self)]
impl Store {
    pub fn format(options: &Options, identity: &Identity) -> Result<Format, OpenError> {
        unimplemented!()
    }
    pub fn open(options: Options, identity: Identity, checkpoint: CheckpointRoot) -> Store {
        unimplemented!()
    }
    pub fn append(&mut self, token: u64, record: impl Into<Record>) {
        unimplemented!()
    }
    pub fn commit(&mut self, pg: PgId, upto: Sequence) {
        unimplemented!()
    }
    pub fn start_epoch(&mut self, token: u64, pg: PgId, epoch: Epoch, committed: Sequence) {
        unimplemented!()
    }
    /// At most 1 KiB.
    pub fn set_note(&mut self, token: u64, pg: PgId, note: Bytes) {
        unimplemented!()
    }
    pub fn note(&self, pg: PgId) -> Bytes {
        unimplemented!()
    }
    pub fn read(&mut self, token: u64, pg: PgId, layer: LayerId, chunk: ChunkIndex, first: BlockIndex, count: u16) {
        unimplemented!()
    }
    pub fn read_prepared(&mut self, token: u64, pg: PgId, sequence: Sequence) {
        unimplemented!()
    }
    pub fn status(&mut self, token: u64, pg: PgId, layer: LayerId, chunk: ChunkIndex) {
        unimplemented!()
    }
    pub fn modified_since(&mut self, token: u64, pg: PgId, after: Sequence) {
        unimplemented!()
    }
    pub fn prepared(&self, pg: PgId) -> impl Iterator<Item = PreparedInfo> + '_ {
        std::iter::empty()
    }
    pub fn group(&self, pg: PgId) -> GroupState {
        unimplemented!()
    }
    pub fn groups(&self) -> impl Iterator<Item = (PgId, GroupState)> + '_ {
        std::iter::empty()
    }
    pub fn set_parent(&mut self, layer: LayerId, parent: LayerId) {
        unimplemented!()
    }
    pub fn drop_layer(&mut self, token: u64, layer: LayerId) {
        unimplemented!()
    }
    pub fn pump(&mut self) {
        unimplemented!()
    }
    pub fn tick(&mut self, now: Duration) {
        unimplemented!()
    }
    pub fn checkpoint_due(&self) -> bool {
        unimplemented!()
    }
    pub fn begin_checkpoint(&mut self, note: impl FnMut(PgId) -> Option<Bytes>) {
        unimplemented!()
    }
    pub fn segments_ready(&mut self, segments: u32) {
        unimplemented!()
    }
    pub fn next_effect(&mut self) -> Option<Effect> {
        unimplemented!()
    }
    pub fn done(&mut self, io: IoId, done: Done) {
        unimplemented!()
    }
    pub fn next_completion(&mut self) -> Option<Completion> {
        unimplemented!()
    }
    pub fn space(&self) -> Space {
        unimplemented!()
    }
    pub fn statistics(&self) -> Statistics {
        unimplemented!()
    }
}
