//! Copies that are much slower than the others, for long. Every write waits for the slowest copy in sync, so one slow
//! copy makes the whole group slow although nothing fails. A slow copy is left behind where enough copies stay. While
//! it is being brought up to date it is sent every write and nobody waits for it, and it joins when it keeps pace.
//!
//! A primary measures its own device by the same rule. Under every rule of acknowledgement all writes wait for the
//! primary, so a slow primary hands over and takes leave, as one does whose device hangs (`leave.rs`). Decision 0021
//! argues for the numbers.

use crate::action::Action;
use crate::config::GroupConfig;
use crate::context::GroupCx;
use crate::lease::is_recent;
use crate::pace::Yields;
use crate::primary::Primary;
use crate::primary::peer::{Peer, Standing};
use azekura_base::{AckRule, DeviceId};
use std::time::Duration;

/// A copy is slow when it takes at least this time to make a write durable ...
const SLOW: Duration = Duration::from_millis(200);

/// ... and at least so many times the time that the others take (their median).
const SLOW_TIMES: u32 = 8;

/// One that has been slow for long is left behind where so many copies stay in sync, whatever the class demands at
/// least.
const STAYING_MIN: usize = 2;

/// Where a copy takes this time, one other copy is enough to stay, if the class's own minimum allows that.
const UNBEARABLE: Duration = Duration::from_secs(1);

/// A copy that was left behind for its slowness is not brought up to date before this time has passed.
const STAYS_AWAY: Duration = Duration::from_secs(30);

impl Primary {
    /// `time` is much more than what the copies in sync take, the one on `device` not counted; this copy itself is
    /// `None`.
    fn stands_out(&self, time: Duration, device: Option<DeviceId>, now: Duration) -> bool {
        if time < SLOW {
            return false;
        }
        let in_sync =
            |(other, peer): &(&DeviceId, &Peer)| Some(**other) != device && matches!(peer.standing, Standing::InSync);
        let peers = self.peers.iter().filter(in_sync).map(|(_, peer)| &peer.stream.pace);
        let others = peers.chain(device.is_some().then_some(&self.pace));
        let mut others: Vec<Duration> = others.map(|pace| pace.time(now).unwrap_or_default()).collect();
        others.sort_unstable();
        let median = others.len().checked_sub(1).map(|last| others[last / 2]);
        median.is_some_and(|median| time >= median * SLOW_TIMES)
    }

    /// The time that a write takes on a copy, if that is much more than on the others.
    fn slowness(&self, device: DeviceId, now: Duration) -> Option<Duration> {
        let time = self.peers.get(&device)?.stream.pace.worst(now)?;
        self.stands_out(time, Some(device), now).then_some(time)
    }

    /// The copy on `device` takes much longer than others.
    pub(crate) fn is_slower(&self, device: DeviceId, now: Duration) -> bool {
        let time = self.peers.get(&device).and_then(|peer| peer.stream.pace.time(now));
        time.is_some_and(|time| self.stands_out(time, Some(device), now))
    }

    /// The time that a write takes on this primary's own device, if that is much more than on the others.
    fn own_slowness(&self, now: Duration) -> Option<Duration> {
        self.pace.worst(now).filter(|time| self.stands_out(*time, None, now))
    }

    /// The copy that is to be left behind because it is slow, if there is one: the copy stays away for a while, as
    /// those that have taken leave.
    pub(crate) fn too_slow(&mut self, cx: &mut GroupCx) -> Option<DeviceId> {
        let (now, config) = (cx.now, &cx.config);
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
                peer.stream.pace.slow_since = None;
                continue;
            };
            peer.stream.pace.slow_since.get_or_insert(now);
            if peer.stream.pace.is_slow(now) && in_sync > staying_min(time).max(least) {
                cx.links.depart(device, now + STAYS_AWAY);
                if self.was_slow.insert(device) {
                    cx.act(Action::TooSlow(device, time));
                }
                return Some(device);
            }
        }
        None
    }

    /// Writes need not be slower when they wait for this copy.
    pub(crate) fn keeps_up(&self, device: DeviceId, now: Duration) -> bool {
        let unmeasured = |peer: &Peer| {
            peer.stream.pace.is_unknown() || self.was_slow.contains(&device) && peer.stream.pace.measured.is_none()
        };
        // Where nobody writes, nobody waits.
        let unknown = is_recent(self.ordered_at, now) && self.peers.get(&device).is_some_and(unmeasured);
        !unknown && !self.is_slower(device, now)
    }

    /// A primary looks how slow its own device is. A slow one wants to hand over, and takes leave as soon as another
    /// copy reigns. What a primary that is cut off does not hear of the others says nothing.
    pub(crate) fn watch_own_pace(&mut self, cx: &mut GroupCx) {
        let (now, me) = (cx.now, cx.me);
        let time = self.own_slowness(now).filter(|_| self.may_serve(cx, now));
        let since = time.map(|_| self.pace.slow_since.unwrap_or(now));
        self.pace.slow_since = since;
        let yields = match time {
            Some(time) if self.pace.is_slow(now) && can_spare(&cx.config, me, time) => {
                if !cx.condition.was_slow(now) {
                    cx.act(Action::TooSlow(me, time));
                }
                Yields { until: now + STAYS_AWAY, others_min: cx.config.in_sync.len() - 1 }
            }
            _ => Yields::default(),
        };
        cx.condition.set_yields(yields);
    }
}

/// So many copies must stay in sync without one that takes `time`.
fn staying_min(time: Duration) -> usize {
    if time >= UNBEARABLE { 1 } else { STAYING_MIN }
}

/// The copies of a configuration but for `me` are enough: nobody waits for this copy when another one reigns, and this
/// copy may even be left behind, where its writes take `time`.
fn can_spare(config: &GroupConfig, me: DeviceId, time: Duration) -> bool {
    let (in_sync, least) = (config.in_sync.len(), config.copies_min as usize);
    match config.ack {
        AckRule::All => in_sync > staying_min(time).max(least),
        _ => in_sync > least && config.could_acknowledge(&config.in_sync, |device| device != me),
    }
}
