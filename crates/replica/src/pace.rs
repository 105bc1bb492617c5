//! How long copies take to make writes durable.

use azekura_base::Sequence;
use std::time::Duration;

/// A copy that has been slow for this time without a break may be left behind (`primary/slowness.rs`).
const SLOW_FOR: Duration = Duration::from_secs(10);

/// A time that was measured longer ago says nothing.
const STALE: Duration = Duration::from_secs(5);

/// How long one copy takes to make writes durable: of one write at a time, from its sending to its acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The write that is measured, and when it was sent.
    pub(crate) probe: Option<(Sequence, Duration)>,
    /// The mean of the latest times; the last counts for an eighth.
    pub(crate) usual: Duration,
    /// The last of them.
    pub(crate) last: Duration,
    /// When the last one was measured.
    pub(crate) measured: Option<Duration>,
    /// Since when the copy has been slow.
    pub(crate) slow_since: Option<Duration>,
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

    /// Whoever measures has stood still: how long anything took is not known, nor whether the copy is slow.
    pub(crate) fn excuse(&mut self) {
        (self.probe, self.slow_since) = (None, None);
    }

    /// The time that a write takes there now; `None` when nothing has been written for a while.
    pub(crate) fn time(&self, now: Duration) -> Option<Duration> {
        let waiting = self.probe.map(|(_, sent)| now.saturating_sub(sent));
        let usual = self.measured.filter(|at| now < *at + STALE).map(|_| self.usual);
        usual.max(waiting)
    }

    /// As [`Pace::time`], or the last time that was measured, if the last one is longer: a copy whose writes all take
    /// seconds is slow from the first one on, long before the mean says so.
    pub(crate) fn worst(&self, now: Duration) -> Option<Duration> {
        let last = self.measured.filter(|at| now < *at + STALE).map(|_| self.last);
        self.time(now).max(last)
    }

    /// The copy has been slow for so long that it may be left behind: the copy is to answer no reader by then.
    pub(crate) fn is_slow(&self, now: Duration) -> bool {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::bears_slowness() {
            return false;
        }
        self.slow_since.is_some_and(|since| now >= since + SLOW_FOR)
    }

    /// Something is on its way to the copy, and nothing has been measured yet.
    pub(crate) fn is_unknown(&self) -> bool {
        self.measured.is_none() && self.probe.is_some()
    }
}

/// The wish of a slow copy that nobody waits for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Yields {
    pub(crate) until: Duration,
    /// So many other copies were in sync when that began: with fewer, all wait for this copy.
    pub(crate) others_min: usize,
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
