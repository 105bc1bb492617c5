//! What a volume's clients may ask for in a second, and how much of that they have used.
//!
//! The generic cell rate algorithm (ITU-T I.371; the leaky bucket as a meter), once for requests and once for bytes. Of
//! each it keeps one moment: that at which all that was let in is paid for at the limit's rate. A request may enter
//! while that moment is not further ahead than the burst. It is paid for in full then, so a large one makes those
//! behind it wait for its whole size, and no request is too large to enter.

use azekura_base::{IoLimits, VolumeId};
use azekura_gateway::{Op, VolumeView};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What every limit saves up: an event loop that looks a little later than it wanted to loses nothing.
const BURST_MIN: Duration = Duration::from_millis(100);
/// Requests that wait for their limit are looked at so often, at the most: those of a high limit enter a few at a time.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// What a request counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    requests: u64,
    bytes: u64,
}

impl Cost {
    /// Zeros and trims move no bytes; a flush does nothing, as everything that was answered is durable.
    fn of(op: &Op) -> Cost {
        match op {
            Op::Read { len, .. } => Cost { requests: 1, bytes: *len },
            Op::Write { bytes, .. } | Op::CompareAndWrite { bytes, .. } => {
                Cost { requests: 1, bytes: bytes.len() as u64 }
            }
            Op::Zero { .. } | Op::Trim { .. } | Op::Status { .. } => Cost { requests: 1, bytes: 0 },
            Op::Flush => Cost { requests: 0, bytes: 0 },
        }
    }
}

/// A volume that has limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limited(VolumeId, IoLimits);

impl Limited {
    /// `None` when it has none.
    pub(crate) fn of(view: &VolumeView) -> Option<Limited> {
        view.limits.map(|limits| Limited(view.id, limits))
    }
}

/// What of one volume's limits is used.
#[derive(Clone, Copy, Debug)]
struct Budget {
    limits: IoLimits,
    /// When the requests that were let in are paid for.
    requests_paid: Duration,
    /// When their bytes are.
    bytes_paid: Duration,
}

impl Budget {
    fn new(limits: IoLimits, now: Duration) -> Budget {
        Budget { limits, requests_paid: now, bytes_paid: now }
    }

    /// From when on the next request may enter.
    fn opens_at(&self) -> Duration {
        self.requests_paid.max(self.bytes_paid).saturating_sub(self.limits.burst().max(BURST_MIN))
    }

    fn charge(&mut self, cost: Cost, now: Duration) {
        self.requests_paid = self.requests_paid.max(now) + time_for(cost.requests, self.limits.iops);
        self.bytes_paid = self.bytes_paid.max(now) + time_for(cost.bytes, self.limits.bytes_per_second);
    }
}

fn time_for(amount: u64, per_second: Option<u64>) -> Duration {
    let Some(rate) = per_second else { return Duration::ZERO };
    let nanos = u128::from(amount) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// What of the limits of all volumes is used by the clients of one process: its front ends have this together, since
/// the connections to a volume may be served by several of them. They have to go by one clock. Clients of other nodes
/// are not counted.
#[derive(Debug, Default)]
pub struct Budgets(Mutex<BTreeMap<VolumeId, Budget>>);

impl Budgets {
    fn all(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Budget>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, Limited(volume, limits): Limited, now: Duration, work: impl FnOnce(&mut Budget) -> T) -> T {
        let mut all = self.all();
        let budget = all.entry(volume).or_insert_with(|| Budget::new(limits, now));
        if budget.limits != limits {
            // What was used of other limits is forgotten: a debt of the former could be long.
            *budget = Budget::new(limits, now);
        }
        work(budget)
    }

    /// Forgets what is used of volumes that are gone, or have no limits any more.
    pub(crate) fn retain(&self, volumes: &BTreeMap<String, Arc<VolumeView>>) {
        let mut all = self.all();
        if all.is_empty() {
            return;
        }
        let limited = volumes.values().filter(|view| view.limits.is_some()).map(|view| view.id);
        let limited: BTreeSet<VolumeId> = limited.collect();
        all.retain(|volume, _| limited.contains(volume));
    }
}

/// How much a volume's clients have waited for its limits at one front end. It only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Requests that entered after the limits had held some back.
    pub requests: u64,
    /// The time in which requests were held back.
    pub time: Duration,
    /// Up to when that is counted.
    counted_to: Duration,
    /// Some were, since the last one entered.
    holds: bool,
}

impl Throttled {
    /// A request is held back until `opens_at`, which others may be waiting for already.
    fn hold(&mut self, now: Duration, opens_at: Duration) {
        self.time += opens_at.saturating_sub(self.counted_to.max(now));
        self.counted_to = self.counted_to.max(opens_at);
        self.holds = true;
    }

    fn enter(&mut self) {
        self.requests += u64::from(std::mem::take(&mut self.holds));
    }
}

/// One front end's requests that wait for their volumes' limits.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    budgets: Arc<Budgets>,
    /// What has waited, of volumes of which something has.
    throttled: BTreeMap<VolumeId, Throttled>,
    /// When the first of those that wait may enter.
    next_look: Option<Duration>,
}

impl Throttle {
    pub(crate) fn new(budgets: Arc<Budgets>) -> Throttle {
        Throttle { budgets, throttled: BTreeMap::new(), next_look: None }
    }

    /// All that waits is asked for anew.
    pub(crate) fn begin_round(&mut self) {
        self.next_look = None;
    }

    /// When a new round is to begin at the latest.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        self.next_look
    }

    /// True when a request on the volume may enter now. Else it is to be asked for in a later round.
    pub(crate) fn lets_in(&mut self, limited: Limited, now: Duration) -> bool {
        let opens_at = self.budgets.with(limited, now, |budget| budget.opens_at());
        if opens_at <= now {
            return true;
        }
        self.throttled.entry(limited.0).or_default().hold(now, opens_at);
        let look = opens_at.max(now + LOOK_INTERVAL);
        self.next_look = Some(self.next_look.map_or(look, |next| next.min(look)));
        false
    }

    /// It enters.
    pub(crate) fn charge(&mut self, limited: Limited, op: &Op, now: Duration) {
        if let Some(throttled) = self.throttled.get_mut(&limited.0) {
            throttled.enter();
        }
        self.budgets.with(limited, now, |budget| budget.charge(Cost::of(op), now));
    }

    pub(crate) fn throttled(&self) -> &BTreeMap<VolumeId, Throttled> {
        &self.throttled
    }

    /// Forgets volumes that are gone, and what is used of those that have no limits any more.
    pub(crate) fn retain(&mut self, volumes: &BTreeMap<String, Arc<VolumeView>>) {
        self.budgets.retain(volumes);
        if !self.throttled.is_empty() {
            let there: BTreeSet<VolumeId> = volumes.values().map(|view| view.id).collect();
            self.throttled.retain(|volume, _| there.contains(volume));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_which_requests_are_held_back_counts_once() {
        let ms = Duration::from_millis;
        let mut throttled = Throttled::default();
        throttled.enter();
        assert_eq!(throttled, Throttled::default(), "nothing was held back");
        throttled.hold(ms(10), ms(30));
        throttled.hold(ms(12), ms(30));
        throttled.enter();
        throttled.hold(ms(30), ms(50));
        throttled.enter();
        throttled.enter();
        assert_eq!((throttled.requests, throttled.time), (2, ms(40)));
        // The one that waited has gone away: what comes much later has waited for itself alone.
        throttled.hold(ms(1000), ms(1010));
        throttled.hold(ms(5000), ms(5001));
        assert_eq!(throttled.time, ms(51));
    }
}
