//! Copies that are much slower than the others, for long. Every write waits for the slowest copy in sync, so one slow
//! copy makes the whole group slow although nothing fails. A slow copy is left behind where enough copies stay. While
//! it is being brought up to date it is sent every write and nobody waits for it, and it joins when it keeps pace.
//! Decision 0021 argues for the numbers.

use crate::group::GroupConfig;
use crate::leaving::is_recent;
use crate::peer::{Peer, Standing};
use crate::primary::Primary;
use crate::quorum::AckRule;
use azekura_base::{DeviceId, Sequence};
use std::collections::BTreeMap;
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
        self.measured = Some(now);
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

    /// The copy has been slow for so long that it may be left behind: it is to answer no reader by then.
    pub(crate) fn is_slow(&self, now: Duration) -> bool {
        self.slow_since.is_some_and(|since| now >= since + SLOW_FOR)
    }

    /// Something is on its way to the copy, and nothing has been measured yet.
    fn is_unknown(&self) -> bool {
        self.measured.is_none() && self.probe.is_some()
    }
}

impl Primary {
    /// The time that a write takes on a copy, if that is much more than on the others.
    fn slowness(&self, device: DeviceId, now: Duration) -> Option<Duration> {
        let time = self.peers.get(&device)?.pace.time(now).filter(|time| *time >= SLOW)?;
        let in_sync =
            |(other, peer): &(&DeviceId, &Peer)| **other != device && matches!(peer.standing, Standing::InSync);
        let others = self.peers.iter().filter(in_sync).map(|(_, peer)| &peer.pace).chain([&self.pace]);
        let mut others: Vec<Duration> = others.map(|pace| pace.time(now).unwrap_or_default()).collect();
        others.sort_unstable();
        let median = others[(others.len() - 1) / 2];
        (time >= median * SLOW_TIMES).then_some(time)
    }

    /// The copy that is to be left behind because it is slow, if there is one: it stays away for a while, as those in
    /// `departed`.
    pub(crate) fn too_slow(
        &mut self,
        config: &GroupConfig,
        departed: &mut BTreeMap<DeviceId, Duration>,
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
            let staying_min = if time >= UNBEARABLE { 1 } else { STAYING_MIN };
            if peer.pace.is_slow(now) && in_sync > staying_min.max(least) {
                departed.insert(device, now + STAYS_AWAY);
                self.was_slow.insert(device);
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
        !unknown && self.slowness(device, now).is_none()
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
