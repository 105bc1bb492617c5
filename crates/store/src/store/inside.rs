//! The store for people and tools: how full it is, what it has done, what it waits for, and whether its accounts fit.

use crate::checkpoint::position::oldest_unsettled;
use crate::checkpoint::replay_bytes;
use crate::cx::StoreCx;
use crate::map::{LeafImage, LeafKey};
use crate::options::capacity_bytes;
use crate::segments::State;
use crate::statistics::{Space, Statistics};
use crate::store::Store;
use crate::tools::{Inside, accounts_problems};
use azekura_base::{BLOCK_SIZE, PgId};

/// The device counts as nearly full when less than this share of its capacity is left, in percent.
const NEAR_FULL_PERCENT: u64 = 10;

impl Store {
    /// How full the device is.
    #[must_use]
    pub fn space(&self) -> Space {
        space_of(self.cx(), self.log.queue_blocks())
    }

    /// Counters and present sizes.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let (leaf_hits, leaf_misses, leaf_bytes) = self.engine.map().cache_figures();
        let (cache_hits, cache_misses, cache_bytes) = self.engine.reads().cache_figures();
        Statistics {
            leaf_hits,
            leaf_misses,
            leaf_bytes: leaf_bytes as u64,
            cache_hits,
            cache_misses,
            cache_bytes: cache_bytes as u64,
            replay_bytes: replay_bytes(self.cx()),
            batches_in_flight: self.log.batches_in_flight() as u64,
            records_waiting: self.log.queue().len() as u64,
            ..*self.cx().statistics()
        }
    }

    /// What tools look at beside the saved map.
    pub(crate) fn inside(&self) -> Inside<'_> {
        Inside {
            segments: self.cx().segments(),
            map: self.engine.map(),
            groups: self.engine.groups(),
            jobs: self.engine.jobs(),
            is_saving: self.checkpointer.is_saving(),
        }
    }

    /// Compares the live counts with the whole map, and whether each block has one owner: `saved` are all leaves of the
    /// saved map. Of groups for which `is_kept` is not true, what they inherit is not looked at: their copies are to be
    /// given up, and nothing need be known of their layers any more. For tests and tools: the comparison looks at every
    /// leaf.
    ///
    /// # Panics
    /// When they differ.
    pub fn assert_accounts<'a>(
        &self,
        saved: impl Iterator<Item = (LeafKey, &'a LeafImage)>,
        is_kept: impl Fn(PgId) -> bool,
    ) {
        let problems = accounts_problems(&self.inside(), saved, is_kept);
        assert!(problems.is_empty(), "{problems:#?}");
    }

    /// There are chunks that [`Store::unknown_blocks`] would name.
    #[must_use]
    pub fn has_unknown_blocks(&self) -> bool {
        self.engine.map().has_unknown()
    }

    /// Bytes that count as live and that no leaf reaches, because the leaf that did can't be used any more
    /// (docs/decisions/0015-saved-map.md, "Unknown blocks").
    #[must_use]
    pub fn ghost_bytes(&self) -> u64 {
        self.cx().segments().ghosts() * BLOCK_SIZE as u64
    }

    /// What the store is waiting for, for people who look for a fault.
    #[must_use]
    pub fn describe(&self) -> String {
        let (cx, map, cleaner) = (self.cx(), self.engine.map(), self.engine.cleaner());
        let used = cx.segments().iter().filter(|(_, s)| s.state != State::Free || s.readers > 0);
        let segments: Vec<String> = used
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
                    if s.alone_until > cx.now() { " left alone" } else { "" }
                )
            })
            .collect();
        format!(
            "head {:?}, next record {:?}, {} for cleaning with credit {:.0}, {} leaves unsaved (oldest {:?}), saving {}, \
             unsettled from {}, chunks waiting {}, {:?}; {}",
            cx.log().head().map(|(link, block)| (link.segment, link.generation, block)),
            self.log.queue().front().map(|queued| queued.item.payload_blocks()),
            cleaner.queue().len(),
            cleaner.credit(),
            map.dirty_count(),
            map.oldest_dirty(),
            self.checkpointer.is_saving(),
            oldest_unsettled(cx, self.engine.groups()),
            self.engine.chunks_waiting(),
            cleaner,
            segments.join("; ")
        )
    }
}

/// How full the device is. `waiting` payload blocks wait for a batch.
fn space_of(cx: &StoreCx, waiting: u64) -> Space {
    let options = cx.options();
    let block = BLOCK_SIZE as u64;
    let capacity = capacity_bytes(cx.segments().usable(), cx.segments().promised_blocks());
    // What is on its way will be live soon.
    let waiting = waiting + cx.segments().pinned();
    let live = cx.segments().live() * block;
    let used = live + waiting * block;
    let segment = u64::from(options.segment_blocks) * block;
    let taken = cx.segments().ready() - cx.segments().free();
    Space {
        capacity,
        live,
        used,
        occupied: u64::from(taken) * segment,
        free_segments: cx.segments().free(),
        segments: cx.segments().len(),
        cleaning_backlog: (u64::from(taken) * u64::from(options.segment_blocks)).saturating_sub(cx.segments().live())
            as u32
            / options.segment_blocks,
        full: used >= capacity,
        near_full: live + capacity * NEAR_FULL_PERCENT / 100 >= capacity,
    }
}
