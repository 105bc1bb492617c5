//! Copies that are much slower than the others, for long. Every write waits for the slowest copy in sync, so one slow
//! copy makes the whole group slow although nothing fails. A slow copy is left behind where enough copies stay. While
//! it is being brought up to date it is sent every write and nobody waits for it, and it joins when it keeps pace.
//!
//! A primary measures its own device by the same rule. Under every rule of acknowledgement all writes wait for the
//! primary, so a slow primary hands over and takes leave, as one does whose device hangs (`hung.rs`). Decision 0021
//! argues for the numbers.

use crate::action::Action;
use crate::config::GroupConfig;
use crate::group::{Group, Role};
use crate::leaving::is_recent;
use crate::peer::{Peer, Standing};
use crate::primary::Primary;
use azekura_base::{AckRule, DeviceId, Sequence};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A copy is slow when it takes at least this time to make a write durable ...
const SLOW: Duration = Duration::from_millis(200);
/// ... and at least so many times the time that the others take (their median).
const SLOW_TIMES: u32 = 8;
/// It is left behind when it has been slow for this time without a break ...
const SLOW_FOR: Duration = Duration::from_secs(10);
/// ... and so many copies stay in sync, whatever the class demands at least.
const STAYING_MIN: usize = 2;
/// Where a copy takes this time, one other copy is enough to stay, if the class's own minimum allows that.
const UNBEARABLE: Duration = Duration::from_secs(1);
/// A copy that was left behind for its slowness is not brought up to date before this time has passed.
const STAYS_AWAY: Duration = Duration::from_secs(30);
/// A time that was measured longer ago says nothing.
const STALE: Duration = Duration::from_secs(5);

/// How long one copy takes to make writes durable: of one write at a time, from its sending to its acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The write that is measured, and when it was sent.
    probe: Option<(Sequence, Duration)>,
    /// The mean of the latest times; the last counts for an eighth.
    usual: Duration,
    /// The last of them.
    last: Duration,
    /// When the last one was measured.
    measured: Option<Duration>,
    /// Since when the copy has been slow.
    slow_since: Option<Duration>,
}

impl Pace {
    /// A write is on its way to the copy.
    pub(crate) fn sent(&mut self, sequence: Sequence, now: Duration) {
        self.probe.get_or_insert((sequence, now));
    }

    /// Everything up to here is durable there.
    pub(crate) fn acked(&mut self, sequence: Sequence, now: Duration) {
        let Some((_, sent)) = self.probe.take_if(|(probe, _)| *probe <= sequence) else { return };
        let time = now.saturating_sub(sent);
        self.usual = if self.measured.is_none() { time } else { (self.usual * 7 + time) / 8 };
        (self.last, self.measured) = (time, Some(now));
    }

    /// What was sent before has perhaps not arrived.
    pub(crate) fn interrupted(&mut self) {
        self.probe = None;
    }

    /// The time that a write takes there now; `None` when nothing has been written for a while.
    fn time(&self, now: Duration) -> Option<Duration> {
        let waiting = self.probe.map(|(_, sent)| now.saturating_sub(sent));
        let usual = self.measured.filter(|at| now < *at + STALE).map(|_| self.usual);
        usual.max(waiting)
    }

    /// As [`Pace::time`], or the last time that was measured, if that is longer: a copy whose writes all take seconds
    /// is slow from the first one on, long before the mean says so.
    fn worst(&self, now: Duration) -> Option<Duration> {
        let last = self.measured.filter(|at| now < *at + STALE).map(|_| self.last);
        self.time(now).max(last)
    }

    /// The copy has been slow for so long that it may be left behind: it is to answer no reader by then.
    pub(crate) fn is_slow(&self, now: Duration) -> bool {
        self.slow_since.is_some_and(|since| now >= since + SLOW_FOR)
    }

    /// Something is on its way to the copy, and nothing has been measured yet.
    fn is_unknown(&self) -> bool {
        self.measured.is_none() && self.probe.is_some()
    }
}

/// The wish of a slow copy that nobody waits for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Yields {
    until: Duration,
    /// So many other copies were in sync when that began: with fewer, all wait for this copy.
    others_min: usize,
}

impl Yields {
    /// The copy, one of `in_sync`, is not to be waited for.
    pub(crate) fn hold(&self, in_sync: usize, now: Duration) -> bool {
        now < self.until && in_sync > self.others_min
    }

    /// The copy is not to be brought up to date yet.
    pub(crate) fn keep_away(&self, now: Duration) -> bool {
        now < self.until
    }
}

impl Primary {
    /// `time` is much more than what the copies in sync take, the one on `device` not counted; this copy itself is
    /// `None`.
    fn stands_out(&self, time: Duration, device: Option<DeviceId>, now: Duration) -> bool {
        if time < SLOW {
            return false;
        }
        let in_sync =
            |(other, peer): &(&DeviceId, &Peer)| Some(**other) != device && matches!(peer.standing, Standing::InSync);
        let peers = self.peers.iter().filter(in_sync).map(|(_, peer)| &peer.pace);
        let others = peers.chain(device.is_some().then_some(&self.pace));
        let mut others: Vec<Duration> = others.map(|pace| pace.time(now).unwrap_or_default()).collect();
        others.sort_unstable();
        let median = others.len().checked_sub(1).map(|last| others[last / 2]);
        median.is_some_and(|median| time >= median * SLOW_TIMES)
    }

    /// The time that a write takes on a copy, if that is much more than on the others.
    fn slowness(&self, device: DeviceId, now: Duration) -> Option<Duration> {
        let time = self.peers.get(&device)?.pace.worst(now)?;
        self.stands_out(time, Some(device), now).then_some(time)
    }

    /// The copy on `device` takes much longer than others.
    pub(crate) fn is_slower(&self, device: DeviceId, now: Duration) -> bool {
        let time = self.peers.get(&device).and_then(|peer| peer.pace.time(now));
        time.is_some_and(|time| self.stands_out(time, Some(device), now))
    }

    /// The time that a write takes on this primary's own device, if that is much more than on the others.
    fn own_slowness(&self, now: Duration) -> Option<Duration> {
        self.pace.worst(now).filter(|time| self.stands_out(*time, None, now))
    }

    /// The copy that is to be left behind because it is slow, if there is one: it stays away for a while, as those in
    /// `departed`.
    pub(crate) fn too_slow(
        &mut self,
        config: &GroupConfig,
        departed: &mut BTreeMap<DeviceId, Duration>,
        actions: &mut VecDeque<Action>,
        now: Duration,
    ) -> Option<DeviceId> {
        if config.ack != AckRule::All || !self.is_open() {
            return None; // Under the other rules nobody waits for the slowest.
        }
        let (in_sync, least) = (config.in_sync.len(), config.copies_min as usize);
        let counting = self.peers.iter().filter(|(_, peer)| matches!(peer.standing, Standing::InSync));
        let times: Vec<(DeviceId, Option<Duration>)> =
            counting.map(|(device, _)| (*device, self.slowness(*device, now))).collect();
        for (device, time) in times {
            let Some(peer) = self.peers.get_mut(&device) else { continue };
            let Some(time) = time else {
                peer.pace.slow_since = None;
                continue;
            };
            peer.pace.slow_since.get_or_insert(now);
            if peer.pace.is_slow(now) && in_sync > staying_min(time).max(least) {
                departed.insert(device, now + STAYS_AWAY);
                if self.was_slow.insert(device) {
                    actions.push_back(Action::TooSlow(device, time));
                }
                return Some(device);
            }
        }
        None
    }

    /// Writes need not be slower when they wait for this copy.
    pub(crate) fn keeps_up(&self, device: DeviceId, now: Duration) -> bool {
        let unmeasured =
            |peer: &Peer| peer.pace.is_unknown() || self.was_slow.contains(&device) && peer.pace.measured.is_none();
        // Where nobody writes, nobody waits.
        let unknown = is_recent(self.ordered_at, now) && self.peers.get(&device).is_some_and(unmeasured);
        !unknown && !self.is_slower(device, now)
    }
}

/// So many copies must stay in sync without one that takes `time`.
fn staying_min(time: Duration) -> usize {
    if time >= UNBEARABLE { 1 } else { STAYING_MIN }
}

/// The copies of a configuration but for `me` are enough: nobody waits for this copy when another one reigns, and it
/// may even be left behind, where its writes take `time`.
fn can_spare(config: &GroupConfig, me: DeviceId, time: Duration) -> bool {
    let (in_sync, least) = (config.in_sync.len(), config.copies_min as usize);
    match config.ack {
        AckRule::All => in_sync > staying_min(time).max(least),
        _ => in_sync > least && config.could_acknowledge(&config.in_sync, |device| device != me),
    }
}

impl Group {
    /// A primary looks how slow its own device is. A slow one wants to hand over, and takes leave as soon as another
    /// copy reigns. What a primary that is cut off does not hear of the others says nothing.
    pub(crate) fn watch_own_pace(&mut self) {
        let (now, me) = (self.now, self.me);
        let time = self.primary().and_then(|primary| primary.own_slowness(now)).filter(|_| self.may_serve(now));
        let Group { role: Role::Primary(primary), config, yields, actions, .. } = self else { return };
        let since = time.map(|_| primary.pace.slow_since.unwrap_or(now));
        primary.pace.slow_since = since;
        *yields = match time {
            Some(time) if primary.pace.is_slow(now) && can_spare(config, me, time) => {
                if !yields.keep_away(now) {
                    actions.push_back(Action::TooSlow(me, time));
                }
                Yields { until: now + STAYS_AWAY, others_min: config.in_sync.len() - 1 }
            }
            _ => Yields::default(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_write_at_a_time_is_measured() {
        let at = Duration::from_millis;
        let mut pace = Pace::default();
        assert!(!pace.is_unknown() && pace.time(at(0)).is_none());
        pace.sent(Sequence(1), at(0));
        pace.sent(Sequence(2), at(90));
        assert!(pace.is_unknown());
        assert_eq!(pace.time(at(90)), Some(at(90)), "it waits");
        pace.acked(Sequence(2), at(100));
        assert_eq!(pace.time(at(120)), Some(at(100)));
        pace.sent(Sequence(3), at(200));
        pace.acked(Sequence(2), at(300));
        pace.acked(Sequence(3), at(1100));
        assert_eq!(pace.time(at(1100)), Some(at(200)), "an eighth of what is new");
        assert_eq!(pace.time(at(1100) + STALE), None);
    }
}
