//! How much a restart may have to replay, and when a checkpoint is needed for that or for space.

use crate::checkpoint::position::oldest_unsettled;
use crate::cleaner::{free_target, freed_at_once};
use crate::cx::StoreCx;
use crate::groups::Groups;
use crate::jobs::Jobs;
use crate::segments::{CLEANER_SEGMENTS, ZERO_SEGMENTS};

/// Appending waits for a checkpoint while a restart would have to replay so many times what is intended, of which it
/// would be at least so many segments.
const REPLAY_TIMES_MAX: u64 = 2;
const REPLAY_SEGMENTS_MIN: u64 = 4;

/// Bytes of log that a restart may have to replay: the configured bound, or a quarter of a small device.
pub(super) fn replay_bound(cx: &StoreCx) -> u64 {
    let quarter = u64::from(cx.options().segments / 4) * cx.options().segment_bytes();
    cx.options().replay_bytes_max.min(quarter)
}

/// Bytes of log that a restart would replay now.
pub(crate) fn replay_bytes(cx: &StoreCx) -> u64 {
    cx.segments().chain().len() as u64 * cx.options().segment_bytes()
}

/// A restart would have to replay far more than is intended, and a checkpoint can change that: to append must wait.
pub(crate) fn replay_waits(cx: &StoreCx, groups: &Groups, jobs: &Jobs) -> bool {
    let least = REPLAY_SEGMENTS_MIN * cx.options().segment_bytes();
    replay_bytes(cx) > replay_bound(cx).max(least) * REPLAY_TIMES_MAX
        && (position_can_move(cx, groups) || jobs.hold_replay())
}

/// A checkpoint would free segments, and they are needed: several at a time, unless it is urgent.
pub(super) fn wants_space(cx: &StoreCx, groups: &Groups) -> bool {
    let free = cx.segments().free();
    free < free_target(cx)
        && (cx.segments().empty(None) >= freed_at_once(cx).max(2) || free <= CLEANER_SEGMENTS + ZERO_SEGMENTS)
        && cx.segments().reclaimable(oldest_unsettled(cx, groups)).is_some()
}

/// Replay could begin later than it does.
pub(super) fn position_can_move(cx: &StoreCx, groups: &Groups) -> bool {
    cx.segments().chain().front().is_some_and(|link| link.generation < oldest_unsettled(cx, groups))
}
