//! How fast segments are emptied: as much as clients write asks for, so that the effort rises smoothly as free segments
//! get fewer.

use crate::cx::StoreCx;
use crate::groups::Groups;
use crate::segments::{CLEANER_SEGMENTS, ZERO_SEGMENTS};
use std::time::Duration;

/// Free segments that cleaning aims at, on a device so small or so full that there can't be more.
const TARGET_MIN: u32 = CLEANER_SEGMENTS + ZERO_SEGMENTS + 1;
/// Segments that one checkpoint is to free, at most.
const FREED_AT_ONCE_MAX: u32 = 256;
/// Clients count as idle after this time without a batch; cleaning then goes on by itself.
const IDLE: Duration = Duration::from_millis(100);
/// Blocks that cleaning may move in each idle millisecond (64 MiB/s).
const IDLE_BLOCKS_PER_MS: f64 = 16.0;
/// Credit does not pile up beyond this, in blocks.
const CREDIT_MAX: f64 = 2048.0;
/// Most blocks that cleaning writes for one block of a client's.
const RATIO_MAX: f64 = 16.0;

/// Segments that one checkpoint should free. Blocks that were moved or overwritten at random lie in nearly every
/// leaf, so each checkpoint for the sake of space saves nearly every leaf: 12 bytes for each live block. Four
/// tenths of the reserve at a time, 4 % of the device, makes that 5 % of what goes into the log meanwhile on a
/// device of which 70 % is live. On a fuller one so much free space would cost more, by fuller victims, than it
/// wins: what a free segment costs goes with the inverse square of what is not live.
pub(crate) fn freed_at_once(cx: &StoreCx) -> u32 {
    let ready = u64::from(cx.segments().ready());
    let share = ready * u64::from(cx.options().cleaning_reserve_percent) / 250;
    let slack = slack(cx);
    share.min(slack * slack * 5 / (ready * 8).max(1)).min(u64::from(FREED_AT_ONCE_MAX)) as u32
}

/// Segments that would be free if all others were full, beyond the least that has to be.
fn slack(cx: &StoreCx) -> u64 {
    let live = cx.segments().live().div_ceil(u64::from(cx.options().segment_blocks));
    u64::from(cx.segments().ready()).saturating_sub(live + u64::from(TARGET_MIN))
}

/// Free segments that cleaning aims at: beyond the least, those that the next checkpoint is to free, and what is
/// written while it is being saved. Where a checkpoint takes long, since the map is large, that is what counts: what is
/// emptied while one is being saved becomes free at the end of the next one, so both have to be gone through with what
/// is free. That may take a third of the slack, for what a free segment costs.
pub(crate) fn free_target(cx: &StoreCx) -> u32 {
    let freed = freed_at_once(cx);
    let two_checkpoints = u64::from(cx.segments().written_while_saving()) * 2;
    TARGET_MIN + (freed + freed.min(1) + freed / 16).max(two_checkpoints.min(slack(cx) / 3) as u32)
}

/// Segments that are free, or will be at the next checkpoint: what an epoch whose record waits keeps from becoming
/// free is not among them.
pub(super) fn available(cx: &StoreCx, groups: &Groups) -> u32 {
    cx.segments().free() + cx.segments().empty(groups.oldest_epoch_waiting())
}

/// How much is missing to the target: 0 nothing, 1 so much that cleaning has to do its utmost.
fn urgency(cx: &StoreCx, groups: &Groups) -> f64 {
    let missing = free_target(cx).saturating_sub(available(cx, groups));
    let all = TARGET_MIN - CLEANER_SEGMENTS + freed_at_once(cx) / 4;
    (f64::from(missing) / f64::from(all)).min(1.0)
}

/// The pace. See the module's description.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Blocks that may be moved now.
    credit: f64,
    /// Share of live blocks in the victims of late.
    fullness: f64,
    last_client: Duration,
    last_idle: Duration,
    /// Blocks moved since clients last wrote.
    moved_idle: u64,
}

impl Pace {
    pub fn credit(&self) -> f64 {
        self.credit
    }

    /// Clients have written `blocks` blocks of log. To stay level, emptying victims that are `fullness` full takes
    /// fullness / (1 - fullness) blocks for each of them; the cleaner may move 0.8 to 2.4 times as many, by urgency.
    pub fn earn(&mut self, cx: &StoreCx, groups: &Groups, blocks: u32) {
        self.last_client = cx.now();
        self.moved_idle = 0;
        let urgency = urgency(cx, groups);
        if urgency > 0.0 {
            let full = self.fullness;
            let level = (full / (1.0 - full).max(0.01)).max(0.1);
            let ratio = (level * (0.8 + 1.6 * urgency)).min(RATIO_MAX);
            self.credit = (self.credit + ratio * f64::from(blocks)).min(CREDIT_MAX);
        }
    }

    /// While clients are idle, cleaning goes on by itself; but not in circles, if the device is so full that the
    /// target is out of reach: everything moved once is enough.
    pub fn earn_idle(&mut self, cx: &StoreCx, groups: &Groups) {
        let blocks = u64::from(cx.options().segments) * u64::from(cx.options().segment_blocks);
        if self.moved_idle > blocks {
            return;
        }
        let since = self.last_idle.max(self.last_client + IDLE);
        if cx.now() > since && urgency(cx, groups) > 0.0 {
            let elapsed = (cx.now() - since).as_secs_f64() * 1e3;
            self.credit = (self.credit + elapsed * IDLE_BLOCKS_PER_MS).min(CREDIT_MAX);
        }
        self.last_idle = cx.now();
    }

    /// So many blocks have been moved.
    pub fn spend(&mut self, blocks: u32) {
        // What was moved because clients waited is not owed.
        self.spend_ahead(blocks);
        self.credit = self.credit.max(0.0);
    }

    /// The same, but what there was no credit for has to be earned before more is moved.
    pub fn spend_ahead(&mut self, blocks: u32) {
        self.moved_idle += u64::from(blocks);
        self.credit -= f64::from(blocks);
    }

    /// So many blocks may be moved besides.
    pub fn allow(&mut self, blocks: u32) {
        self.credit = self.credit.max(0.0) + f64::from(blocks);
    }

    /// A victim was chosen that is so full.
    pub fn chosen(&mut self, fullness: f64) {
        // The first victim counts in full, later ones smooth.
        let before = self.fullness;
        self.fullness = if before == 0.0 { fullness } else { before * 0.75 + fullness * 0.25 };
    }

    #[cfg(test)]
    pub fn grant(&mut self, blocks: f64) {
        self.credit = blocks;
    }
}
