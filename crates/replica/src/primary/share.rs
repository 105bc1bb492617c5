//! How far a copy that is brought up to date may lag, and when one is tried again that was given up.

use crate::limits::TICK;
use crate::window::{Backlog, WINDOW_BYTES};
use azekura_base::DeviceId;
use std::collections::BTreeMap;
use std::time::Duration;

/// So many bytes of a group may be on their way to a copy that is brought up to date, whatever other groups do.
const SHARE_MIN: usize = 64 << 10;

/// What a group begins with, before it is known how fast the copy is.
const SHARE_FIRST: usize = 1 << 20;

/// What is on its way to such a copy is to be durable there after this time. Less than what makes a copy slow
/// (`slowness.rs`).
const LAG_TIME: Duration = Duration::from_millis(150);

/// A copy that was given up is tried again after this time, twice that the next time, and so on ...
const RETRY_FIRST: Duration = Duration::from_millis(100);

/// ... up to this.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// A copy in sync that was left behind because it lagged is not tried before.
pub(crate) const LAGGED_RETRY: Duration = Duration::from_secs(1);

/// Who has not been given up for so long after that has a clean slate.
const RETRY_FORGET: Duration = Duration::from_secs(120);

/// How far a copy that is brought up to date may lag before writes wait for it: what it makes durable in [`LAG_TIME`],
/// as measured while they waited. A bound in bytes would be seconds for a slow copy, and would look like slowness.
#[derive(Debug)]
pub(crate) struct Share {
    pub(super) bytes_max: usize,
    /// Bytes that became durable since the last look.
    pub(super) done: usize,
    pub(super) looked: Duration,
    /// Writes have waited since the last look.
    pub(super) held: bool,
    /// Since when they have waited at every look.
    pub(super) held_since: Option<Duration>,
    /// Since when the copy was slow as well.
    pub(super) slow_since: Option<Duration>,
}

impl Share {
    pub(crate) fn new(now: Duration) -> Share {
        Share { bytes_max: SHARE_FIRST, done: 0, looked: now, held: false, held_since: None, slow_since: None }
    }

    /// There is room for another write.
    pub(crate) fn has_room(&self, backlog: &Backlog) -> bool {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::has_no_window() {
            return true;
        }
        backlog.bytes < SHARE_MIN || backlog.bytes < self.bytes_max && !backlog.window.is_full()
    }

    /// There is room for a repair beside the writes, when so many are under way. One may always be: bringing the copy
    /// up to date goes on.
    pub(crate) fn has_room_for_repair(&self, backlog: &Backlog, under_way: usize) -> bool {
        under_way == 0 || backlog.bytes < self.bytes_max / 2 && !backlog.window.is_full()
    }

    /// Whoever measures has stood still until `now`: it begins anew.
    pub(super) fn excuse(&mut self, now: Duration) {
        (self.done, self.looked, self.held) = (0, now, false);
        (self.held_since, self.slow_since) = (None, None);
    }

    /// Time passes; `slow`: the copy takes much longer than others.
    pub(super) fn look(&mut self, slow: bool, now: Duration) {
        let time = now.saturating_sub(self.looked);
        if time < TICK {
            return;
        }
        if self.held {
            let rate = self.done as u128 * LAG_TIME.as_micros() / time.as_micros();
            self.bytes_max = usize::try_from(rate).unwrap_or(usize::MAX).clamp(SHARE_MIN, WINDOW_BYTES);
            self.held_since.get_or_insert(self.looked);
        } else {
            self.held_since = None;
        }
        self.slow_since = if slow && self.held { self.slow_since.or(Some(now)) } else { None };
        (self.done, self.looked, self.held) = (0, now, false);
    }
}

/// A copy that was given up because writes had waited for it in vain.
#[derive(Clone, Copy, Debug)]
struct Retry {
    wait: Duration,
    until: Duration,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Retries(BTreeMap<DeviceId, Retry>);

impl Retries {
    pub(crate) fn put_off(&mut self, device: DeviceId, least: Duration, now: Duration) {
        let before = self.0.get(&device).map_or(Duration::ZERO, |retry| retry.wait * 2);
        let wait = before.clamp(RETRY_FIRST.max(least), RETRY_MAX);
        self.0.insert(device, Retry { wait, until: now + wait });
    }

    /// The copy on `device` is not to be tried yet.
    pub(crate) fn are_due_later(&self, device: DeviceId, now: Duration) -> bool {
        self.0.get(&device).is_some_and(|retry| now < retry.until)
    }

    pub(super) fn forget_old(&mut self, now: Duration) {
        self.0.retain(|_, retry| now < retry.until + RETRY_FORGET);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_follows_what_the_copy_can_take_while_writes_wait() {
        let at = Duration::from_millis;
        let mut share = Share::new(at(0));
        share.done = 100 << 10;
        share.look(false, at(100));
        assert_eq!(share.bytes_max, SHARE_FIRST, "nobody wants more");
        (share.done, share.held) = (200 << 10, true);
        share.look(false, at(200));
        assert_eq!(share.bytes_max, 300 << 10);
        (share.done, share.held) = (0, true);
        share.look(true, at(300));
        assert_eq!((share.bytes_max, share.held_since), (SHARE_MIN, Some(at(100))));
        assert_eq!(share.slow_since, Some(at(300)));
        (share.done, share.held) = (usize::MAX / 2, true);
        share.look(false, at(400));
        assert_eq!((share.bytes_max, share.slow_since), (WINDOW_BYTES, None));
    }

    #[test]
    fn who_is_given_up_again_and_again_is_tried_ever_later() {
        let mut retries = Retries::default();
        let device = DeviceId(1);
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..12 {
            retries.put_off(device, Duration::ZERO, now);
            let wait = retries.0[&device].wait;
            waits.push(wait.as_millis());
            assert!(retries.are_due_later(device, now));
            now += wait;
            assert!(!retries.are_due_later(device, now));
        }
        assert_eq!(waits[..4], [100, 200, 400, 800]);
        assert_eq!(waits[11], 60_000);
        retries.forget_old(now + RETRY_FORGET);
        retries.put_off(device, RETRY_MAX, now);
        assert_eq!(retries.0[&device].wait, RETRY_MAX);
    }
}
