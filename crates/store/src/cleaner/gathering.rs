//! Blocks that a client has read, and that lie scattered over the device, are moved to where they are neighbours.
//!
//! A log keeps blocks in the order in which they were written. What was overwritten at random and is then read from end
//! to end is read a block at a time, which disks are slow at. WAFL calls the cure reallocation on read (decision 0063).
//! The bytes are in memory already, so that it costs a write, once; in all else it is like a move of the cleaner's
//! (`apart.rs`).
//!
//! It is done at a pace, and only while the cleaner has nothing to win back: space and disk are clients' first.

use crate::cleaner::pace::{available, free_target};
use crate::cleaner::{Cleaner, oldest_unmoved};
use crate::cx::StoreCx;
use crate::groups::Groups;
use crate::log::Move;
use crate::segments::State;
use std::time::Duration;

/// Blocks that are gathered in a millisecond at most (128 MiB/s).
const BLOCKS_PER_MS: f64 = 32.0;

/// The pace of gathering.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Blocks that were gathered faster than that.
    ahead: f64,
    last: Duration,
}

impl Gathering {
    fn time_passes(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.last).as_secs_f64() * 1e3;
        self.ahead = (self.ahead - elapsed * BLOCKS_PER_MS).max(0.0);
        self.last = now;
    }
}

impl Cleaner {
    /// So many blocks may be gathered now.
    pub fn may_gather(&mut self, cx: &StoreCx, groups: &Groups, blocks: u32) -> bool {
        let most = cx.options().gathering_blocks_max;
        self.gathering.time_passes(cx.now());
        cx.is_running()
            && self.apart.has_room_for(cx, self.mover.blocks() + blocks)
            && available(cx, groups) >= free_target(cx)
            && self.mover.blocks() + blocks <= most
            && self.gathering.ahead + f64::from(blocks) <= f64::from(most)
    }

    /// Blocks may be moved from this address, which was in use when its segment had this generation: by the same rules
    /// as those of a victim (`best_victim`).
    pub fn may_move_from(&self, cx: &StoreCx, groups: &Groups, address: u32, generation: u64) -> bool {
        let segment = cx.segments().segment_of(address);
        let entry = cx.segments().get(segment);
        let (whole_before, limit) = oldest_unmoved(cx, groups);
        let is_whole = if entry.apart { entry.pins == 0 } else { entry.generation < whole_before };
        entry.state == State::Sealed
            && entry.generation == generation
            && is_whole
            && entry.generation < limit
            && entry.alone_until <= cx.now()
    }

    /// Moves blocks that were read, in their order. True: there are some.
    pub fn gather(&mut self, cx: &mut StoreCx, moves: Vec<Move>) -> bool {
        let blocks: u32 = moves.iter().map(|moved| u32::from(moved.range.count)).sum();
        self.gathering.ahead += f64::from(blocks);
        self.pace.allow(blocks);
        cx.counters().gathered_blocks += u64::from(blocks);
        let any = !moves.is_empty();
        moves.into_iter().for_each(|moved| self.mover.add_read(cx, moved));
        any
    }
}
