//! How much may be on its way to copies that no write waits for: those that are brought up to date, and, where writes
//! do not wait for all copies, those that lag. What writes wait for is bounded by the gateways' windows and needs no
//! bound here.
//!
//! Everything that has a place in the order is sent at once: a write that is committed can't be read back from the log
//! by its place. So what is on its way is bounded where writes get their places. New writes of a group wait for a copy
//! that is brought up to date, as they will when it is in sync. A copy in sync that lags too much is sent nothing more,
//! and is left behind. docs/decisions/0024 has the numbers.

use crate::group::{Group, Role};
use crate::limits::{PENDING_WRITES_MAX, TICK};
use crate::peer::{Peer, Standing};
use crate::primary::Primary;
use azekura_base::{AckRule, Body, DeviceId, Extent, Sequence};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Most bytes on their way to one node for copies that are brought up to date: of all groups, and of copies in sync
/// that lag.
pub const WINDOW_BYTES: usize = 16 << 20;
/// Most bytes on their way to one node that writes need not wait for; copies in sync that lag are left behind then.
pub const LAG_BYTES_MAX: usize = 64 << 20;
/// So many bytes of a group may be on their way to a copy that is brought up to date, whatever other groups do.
const SHARE_MIN: usize = 64 << 10;
/// What a group begins with, before it is known how fast the copy is.
const SHARE_FIRST: usize = 1 << 20;
/// What is on its way to such a copy is to be durable there after this time. Less than what makes a copy slow
/// (`sluggish.rs`).
const LAG_TIME: Duration = Duration::from_millis(150);
/// What a write counts beside its data.
const WRITE_OVERHEAD: usize = 512;
/// A copy for which writes wait, and that makes nothing durable for so long, is given up for a while ...
const HOLD_MAX: Duration = Duration::from_millis(500);
/// ... and so is one that is much slower than the others for so long.
const HOLD_SLOW_MAX: Duration = Duration::from_secs(3);
/// It is tried again after this time, twice that the next time, and so on ...
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// ... up to this.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Where nothing has been written for so long, nobody waits for the copy: it is tried at once. Twenty times
/// [`HOLD_MAX`], so that a useless copy costs those who write now and then no more than others.
const RETRY_IDLE: Duration = Duration::from_secs(10);
/// A copy in sync that was left behind because it lagged is not tried before.
pub(crate) const LAGGED_RETRY: Duration = Duration::from_secs(1);
/// Who has not been given up for so long after that has a clean slate.
const RETRY_FORGET: Duration = Duration::from_secs(120);

/// How much may be on its way to one node that no write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// See [`WINDOW_BYTES`].
    pub window_bytes: usize,
    /// See [`LAG_BYTES_MAX`].
    pub lag_bytes_max: usize,
}

impl Default for WindowLimits {
    fn default() -> WindowLimits {
        WindowLimits { window_bytes: WINDOW_BYTES, lag_bytes_max: LAG_BYTES_MAX }
    }
}

/// Bytes on their way to one node that no write waits for, of all groups that share this.
///
/// Groups of one node live on one thread; the counters are atomic only so that a node may be made on another.
#[derive(Clone, Debug, Default)]
pub struct Window(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    limits: WindowLimits,
    on_the_way: AtomicUsize,
    unsent: AtomicUsize,
}

impl Window {
    /// Nothing is on its way yet.
    #[must_use]
    pub fn new(limits: WindowLimits) -> Window {
        Window(Arc::new(Counts { limits, ..Counts::default() }))
    }

    /// Bytes that were handed out to be sent and are not known to have arrived.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.on_the_way.load(Ordering::Relaxed)
    }

    /// So many bytes wait in the connection's outbox: also what nobody counts any more, because its copy was given up.
    pub fn set_unsent(&self, bytes: usize) {
        self.0.unsent.store(bytes, Ordering::Relaxed);
    }

    fn add(&self, bytes: usize) {
        self.0.on_the_way.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sub(&self, bytes: usize) {
        self.0.on_the_way.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn fullness(&self) -> usize {
        self.bytes().max(self.0.unsent.load(Ordering::Relaxed))
    }

    /// Nothing more is to be begun for copies that are brought up to date.
    pub(crate) fn is_full(&self) -> bool {
        self.fullness() >= self.0.limits.window_bytes
    }
}

/// What was sent to a copy that writes need not wait for, and is not durable there. Counts in its node's window while
/// it lives.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    window: Window,
    /// Writes, and what each counts.
    writes: VecDeque<(Sequence, usize)>,
    /// For the first so many of them nobody waits: they count.
    needless: usize,
    /// Repairs.
    repairs: BTreeMap<u64, usize>,
    /// What counts.
    bytes: usize,
}

impl Backlog {
    pub(crate) fn new(window: Window) -> Backlog {
        let mut backlog = Backlog::default();
        backlog.window = window;
        backlog
    }

    fn count(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.window.add(bytes);
    }

    fn discount(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.window.sub(bytes);
    }

    pub(crate) fn sent(&mut self, sequence: Sequence, bytes: usize) {
        self.writes.push_back((sequence, bytes));
    }

    /// Nobody waits for the writes up to here any more.
    pub(crate) fn needless(&mut self, upto: Sequence) {
        while let Some((_, bytes)) = self.writes.get(self.needless).filter(|(sent, _)| *sent <= upto).copied() {
            self.needless += 1;
            self.count(bytes);
        }
    }

    /// The writes up to here are durable there. What that makes room for.
    pub(crate) fn acked(&mut self, sequence: Sequence) -> usize {
        let before = self.bytes;
        while let Some((_, bytes)) = self.writes.front().filter(|(sent, _)| *sent <= sequence).copied() {
            self.writes.pop_front();
            if self.needless > 0 {
                self.needless -= 1;
                self.discount(bytes);
            }
        }
        before - self.bytes
    }

    pub(crate) fn repair_sent(&mut self, id: u64, extents: &[Extent]) {
        let data = |extent: &Extent| match extent {
            Extent::Data { bytes, .. } => bytes.len(),
            Extent::Zero { .. } => 0,
        };
        let bytes = WRITE_OVERHEAD + extents.iter().map(data).sum::<usize>();
        self.repairs.insert(id, bytes);
        self.count(bytes);
    }

    /// A repair is durable there. What that makes room for.
    pub(crate) fn repair_done(&mut self, id: u64) -> usize {
        let bytes = self.repairs.remove(&id).unwrap_or(0);
        self.discount(bytes);
        bytes
    }

    /// More than is to wait for one copy, or for one node.
    pub(crate) fn is_too_long(&self) -> bool {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::has_no_window() {
            return false;
        }
        self.needless > PENDING_WRITES_MAX
            || self.bytes > 0 && self.window.fullness() > self.window.0.limits.lag_bytes_max
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.window.sub(self.bytes);
    }
}

/// What a write counts.
pub(crate) fn cost(body: Option<&Body>) -> usize {
    let bytes = match body {
        Some(Body::Data { bytes, .. }) => bytes.len(),
        _ => 0,
    };
    WRITE_OVERHEAD + bytes
}

/// How far a copy that is brought up to date may lag before writes wait for it: what it makes durable in [`LAG_TIME`],
/// as measured while they waited. A bound in bytes would be seconds for a slow copy, and would look like slowness.
#[derive(Debug)]
pub(crate) struct Share {
    bytes_max: usize,
    /// Bytes that became durable since the last look.
    done: usize,
    looked: Duration,
    /// Writes have waited since the last look.
    held: bool,
    /// Since when they have waited at every look.
    held_since: Option<Duration>,
    /// Since when the copy was slow as well.
    slow_since: Option<Duration>,
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

    /// Time passes; `slow`: the copy takes much longer than others.
    fn look(&mut self, slow: bool, now: Duration) {
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

    /// It is not to be tried yet.
    pub(crate) fn are_due_later(&self, device: DeviceId, now: Duration) -> bool {
        self.0.get(&device).is_some_and(|retry| now < retry.until)
    }

    fn forget_old(&mut self, now: Duration) {
        self.0.retain(|_, retry| now < retry.until + RETRY_FORGET);
    }
}

impl Peer {
    /// Writes wait for it in vain.
    fn is_held_for_nothing(&self, now: Duration) -> bool {
        let Share { held_since, slow_since, .. } = self.share;
        held_since.is_some_and(|since| now >= since.max(self.moved) + HOLD_MAX)
            || slow_since.is_some_and(|since| now >= since + HOLD_SLOW_MAX)
    }
}

impl Primary {
    /// A write can't get a place in the order now: a copy that is brought up to date could not keep up.
    pub(crate) fn waits_for_learner(&mut self) -> bool {
        let mut waits = false;
        for peer in self.peers.values_mut().filter(|peer| matches!(peer.standing, Standing::Learning(_))) {
            if !peer.share.has_room(&peer.backlog) {
                peer.share.held = true;
                waits = true;
            }
        }
        waits
    }

    /// Something that was on its way to a copy has arrived. True when writes may wait for that.
    pub(crate) fn made_room(&mut self, device: DeviceId, bytes: usize) -> bool {
        if bytes == 0 {
            return false;
        }
        let Some(peer) = self.peers.get_mut(&device) else { return false };
        peer.share.done += bytes;
        peer.share.held && peer.backlog.bytes <= peer.share.bytes_max / 4 * 3
    }

    /// Measures how fast copies are that are brought up to date, and gives up those for which writes wait in vain.
    pub(crate) fn watch_shares(&mut self, now: Duration) {
        self.retries.forget_old(now);
        let learning = self.peers.iter().filter(|(_, peer)| matches!(peer.standing, Standing::Learning(_)));
        let learners: Vec<DeviceId> = learning.map(|(device, _)| *device).collect();
        self.has_learners = !learners.is_empty();
        for device in learners {
            let slow = !self.keeps_up(device, now);
            let Some(peer) = self.peers.get_mut(&device) else { continue };
            peer.share.look(slow, now);
            if peer.is_held_for_nothing(now) {
                self.forget_learner(device);
                self.retries.put_off(device, Duration::ZERO, now);
            }
        }
    }
}

impl Group {
    /// What will be on its way to the copy on `device` counts in this window: to be called before [`Group::peer_up`].
    pub fn share_window(&mut self, device: DeviceId, window: Window) {
        self.windows.insert(device, window);
    }

    /// An empty backlog for the copy on `device`.
    pub(crate) fn backlog(&self, device: DeviceId) -> Backlog {
        Backlog::new(self.windows.get(&device).cloned().unwrap_or_default())
    }

    /// Another repair is durable on the copy on `device`.
    pub(crate) fn repair_arrived(&mut self, device: DeviceId, id: u64) {
        let Role::Primary(primary) = &mut self.role else { return };
        let room = primary.peers.get_mut(&device).map_or(0, |peer| peer.backlog.repair_done(id));
        if primary.made_room(device, room) {
            self.retry_waiting();
        }
    }

    /// A copy is not to be brought up to date now: writes have waited for it in vain, and will again; or its node has
    /// enough on its way.
    pub(crate) fn is_put_off(&self, device: DeviceId) -> bool {
        let Role::Primary(primary) = &self.role else { return false };
        let ahead = primary.ahead.get(&device).is_some_and(|until| self.now < *until);
        let written = primary.ordered_at.is_some_and(|at| self.now < at + RETRY_IDLE);
        ahead
            || written && primary.retries.are_due_later(device, self.now)
            || self.windows.get(&device).is_some_and(Window::is_full)
    }

    /// Everything up to here is committed: copies that do not have it are not waited for any more.
    pub(crate) fn count_laggards(&mut self, upto: Sequence) {
        let Role::Primary(primary) = &mut self.role else { return };
        if self.config.ack == AckRule::All {
            return;
        }
        for peer in primary.peers.values_mut() {
            peer.backlog.needless(upto);
            peer.missed |= peer.synced && peer.sent < upto;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_counts_until_it_arrives_or_is_given_up() {
        let window = Window::default();
        let mut first = Backlog::new(window.clone());
        let mut second = Backlog::new(window.clone());
        (1..=10).for_each(|n| first.sent(Sequence(n), 100));
        assert_eq!(window.bytes(), 0, "writes wait for it");
        first.needless(Sequence(6));
        second.sent(Sequence(3), 50);
        second.needless(Sequence(3));
        second.repair_sent(7, &[]);
        assert_eq!(window.bytes(), 650 + WRITE_OVERHEAD);
        assert_eq!(first.acked(Sequence(4)), 400);
        first.needless(Sequence(8));
        assert_eq!(first.acked(Sequence(10)), 400);
        assert_eq!(window.bytes(), 50 + WRITE_OVERHEAD);
        assert_eq!((second.repair_done(7), second.repair_done(7)), (WRITE_OVERHEAD, 0));
        drop(second);
        assert_eq!(window.bytes(), 0);
    }

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
