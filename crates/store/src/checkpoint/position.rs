//! Where replay may begin.

use crate::cx::StoreCx;
use crate::groups::Groups;

/// The oldest log generation that replay needs for records which are not durable, or not applied and not writes: writes
/// that are not applied are saved with the checkpoint.
pub(crate) fn oldest_unsettled(cx: &StoreCx, groups: &Groups) -> u64 {
    let oldest = [cx.log().oldest_unsettled(), groups.oldest_epoch_waiting(), cx.segments().oldest_held()];
    oldest.into_iter().flatten().min().unwrap_or(0)
}
