//! Durations of the failure detector (decision 0004). Only durations are compared between machines, never clocks.
//!
//! A primary's heartbeat carries its own stamp and echoes the secondary's last one. The secondary's answer promises to
//! follow nobody else for [`GRACE`] from its receipt, so the primary may serve for [`LEASE`] < GRACE from the moment
//! it *sent* the heartbeat. The secondary may serve reads for LEASE from the moment it sent the stamp that the
//! primary echoes, so a primary that has sent no heartbeat for LEASE knows that the secondary has stopped.

use std::time::Duration;

/// Time between two heartbeats to one node.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);
/// How long a lease allows serving.
pub const LEASE: Duration = Duration::from_millis(1000);
/// How long a secondary follows nobody but the primary that it last heard.
pub const GRACE: Duration = Duration::from_millis(1500);

/// A copy that has said nothing for so long is left behind. Less than [`LEASE`]: when the configuration has changed,
/// its lease has almost run out.
pub(crate) const SILENCE: Duration = Duration::from_millis(750);
/// A copy that has made nothing durable for so long, although it was sent something and this copy has made it durable,
/// is left behind.
pub(crate) const STUCK: Duration = Duration::from_secs(3);
/// Time given to others after this process has stood still.
pub(crate) const AFTER_STALL: Duration = Duration::from_millis(400);
/// A group that was written to within this time is about to be written to again.
const BUSY: Duration = Duration::from_secs(5);
/// A time service may have the kernel's clocks run faster or slower by one in so many: chrony does so until they are
/// right again (`maxslewrate`, 83,333 ppm).
const SLEW: u32 = 12;
/// Clocks of two machines may run apart by this part of a lease: 12/11 of it by one that runs slow are 13/11, less than
/// 6/5, by one that runs fast.
const SKEW: u32 = 5;

const _: () = assert!(HEARTBEAT_INTERVAL.as_millis() * 3 < LEASE.as_millis());
const _: () = assert!(LEASE.as_millis() < GRACE.as_millis());
const _: () = assert!(outlasts(LEASE.as_millis() + LEASE.as_millis() / SKEW as u128, LEASE.as_millis()));
const _: () = assert!(outlasts(GRACE.as_millis(), LEASE.as_millis()));

/// `wait` on the fastest clock is longer than `lease` on the slowest.
const fn outlasts(wait: u128, lease: u128) -> bool {
    wait * (SLEW as u128 - 1) > lease * (SLEW as u128 + 1)
}

/// True when a copy makes so little progress that it may be left behind soon: the copy is not to answer readers by
/// then.
pub(crate) fn is_sluggish(moved: Duration, now: Duration) -> bool {
    readers_until(now) >= moved + STUCK
}

/// Until when a copy may answer readers by itself that was last told a stamp of its own which had arrived at
/// `stamp_arrived`.
pub(crate) fn readers_until(stamp_arrived: Duration) -> Duration {
    stamp_arrived + LEASE + LEASE / SKEW
}

/// Writes have come until a moment ago.
pub(crate) fn is_recent(ordered_at: Option<Duration>, now: Duration) -> bool {
    ordered_at.is_some_and(|at| now < at + BUSY)
}
