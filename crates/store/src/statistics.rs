//! How full the store is, and what it has done.

use crate::checkpoint::position::oldest_unsettled;
use crate::segments::{GC_SEGMENTS, ZERO_SEGMENTS};
use crate::store::Store;
use azekura_base::BLOCK_SIZE;

/// How full the device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes that clients can store.
    pub capacity: u64,
    /// Bytes of blocks that the map reaches.
    pub live: u64,
    /// The same, with what is on its way to the device.
    pub used: u64,
    /// Bytes of the segments that are not free: live blocks, and what garbage collection has yet to win back.
    pub occupied: u64,
    /// Segments that can be written to at once.
    pub free_segments: u32,
    /// All segments.
    pub segments: u32,
    /// Segments' worth of space that is neither free nor live: what garbage collection could win.
    pub gc_backlog: u32,
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

/// The device counts as nearly full when less than this share of its capacity is left, in percent.
const NEAR_FULL_PERCENT: u64 = 10;

impl Space {
    pub(crate) fn of(store: &Store) -> Space {
        let options = store.cx.options();
        let block = BLOCK_SIZE as u64;
        let ready = u64::from(store.cx.segments().ready().saturating_sub(GC_SEGMENTS + ZERO_SEGMENTS + 1));
        let capacity = ready * u64::from(store.promised_blocks) * block;
        // What is on its way will be live soon.
        let waiting = store.log.queue_blocks() + store.cx.segments().pinned();
        let live = store.cx.segments().live() * block;
        let used = live + waiting * block;
        let segment = u64::from(options.segment_blocks) * block;
        let taken = store.cx.segments().ready() - store.cx.segments().free();
        Space {
            capacity,
            live,
            used,
            occupied: u64::from(taken) * segment,
            free_segments: store.cx.segments().free(),
            segments: store.cx.segments().len(),
            gc_backlog: (u64::from(taken) * u64::from(options.segment_blocks))
                .saturating_sub(store.cx.segments().live()) as u32
                / options.segment_blocks,
            full: used >= capacity,
            near_full: live + capacity * NEAR_FULL_PERCENT / 100 >= capacity,
        }
    }
}

impl Store {
    /// What the store is waiting for, for people who look for a fault.
    #[must_use]
    pub fn describe(&self) -> String {
        let segments: Vec<String> = self
            .cx
            .segments()
            .iter()
            .filter(|(_, s)| s.state != crate::segments::State::Free || s.readers > 0)
            .map(|(segment, s)| {
                format!(
                    "{segment}:{:?} g{} live {} saved {} pins {} holds {} readers {}{}",
                    s.state,
                    s.generation,
                    s.live,
                    s.saved_live,
                    s.pins,
                    s.holds,
                    s.readers,
                    if s.alone_until > self.cx.now() { " left alone" } else { "" }
                )
            })
            .collect();
        format!(
            "head {:?}, next record {:?}, {} for collection with credit {:.0}, {} leaves unsaved (oldest {:?}), saving {}, \
             unsettled from {}, chunks waiting {}, {:?}; {}",
            self.cx.log().head().map(|(link, block)| (link.segment, link.generation, block)),
            self.log.queue().front().map(|queued| queued.item.payload_blocks()),
            self.cleaner.queue().len(),
            self.cleaner.credit(),
            self.cache.dirty_count(),
            self.cache.oldest_dirty(),
            self.checkpointer.is_saving(),
            oldest_unsettled(&self.cx, &self.groups),
            self.ops.len(),
            self.cleaner,
            segments.join("; ")
        )
    }
}
