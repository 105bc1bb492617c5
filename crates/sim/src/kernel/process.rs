//! A process, as far as time goes: which life of it is meant, what its clock shows, and until when it stands still.

use crate::kernel::random::Random;
use azekura_base::{Endpoint, NodeId, Shard};
use std::fmt;
use std::time::Duration;

const MILLION: u32 = 1_000_000;
/// A clock runs at most this much too fast or too slow, in millionths: as chrony slews one that is to be set right.
const CLOCK_SKEW_MAX: u32 = 83_000;

/// A process's life on a node, as one of its shards has it: its event loop. Events for a life that has ended are void.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Life {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
    pub(crate) shard: Shard,
}

impl Life {
    /// The life of a process's first shard.
    pub(crate) const fn first(node: NodeId, incarnation: u64) -> Life {
        Life { node, incarnation, shard: Shard(0) }
    }

    /// Where it is reached.
    pub(crate) fn endpoint(self) -> Endpoint {
        Endpoint { node: self.node, shard: self.shard }
    }

    /// The same for all shards of its process.
    pub(crate) fn process(self) -> (NodeId, u64) {
        (self.node, self.incarnation)
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut life = f.debug_struct("Life");
        life.field("node", &self.node).field("incarnation", &self.incarnation);
        if self.shard != Shard(0) {
            life.field("shard", &self.shard);
        }
        life.finish()
    }
}

/// A process's clock. It has an origin and a pace of its own.
pub(crate) struct Clock {
    /// What it would have shown when the run began.
    ahead: Duration,
    /// How fast it runs, in millionths of the run's time.
    rate: u32,
    /// It has stood still since then, and its process with it.
    paused: Option<Duration>,
    /// Time that it knows nothing of.
    missed: Duration,
}

impl Clock {
    /// A clock that shows the run's time.
    pub(crate) fn new() -> Clock {
        Clock { ahead: Duration::ZERO, rate: MILLION, paused: None, missed: Duration::ZERO }
    }

    /// A new process begins with another origin.
    pub(crate) fn restart(&mut self, random: &mut Random) {
        self.ahead = random.micros(0, 100_000_000);
        (self.paused, self.missed) = (None, Duration::ZERO);
    }

    /// Draws how fast it runs.
    pub(crate) fn draw_rate(&mut self, random: &mut Random) {
        let skew = random.between(0, 2 * u64::from(CLOCK_SKEW_MAX)) as u32;
        self.rate = MILLION - CLOCK_SKEW_MAX + skew;
    }

    /// It runs so many times slower.
    pub(crate) fn slow_down(&mut self, times: u32) {
        self.rate /= times;
    }

    /// What it shows.
    pub(crate) fn shows(&self, now: Duration) -> Duration {
        let known = self.paused.unwrap_or(now).saturating_sub(self.missed);
        self.ahead + known * self.rate / MILLION
    }

    /// When it shows `clock`.
    pub(crate) fn when(&self, clock: Duration) -> Duration {
        self.missed + clock.saturating_sub(self.ahead) * MILLION / self.rate
    }

    /// It stands still from now on.
    pub(crate) fn stop(&mut self, now: Duration) {
        self.paused.get_or_insert(now);
    }

    /// It goes on after it has stood still since then. False when it did not.
    pub(crate) fn go_on(&mut self, since: Duration, now: Duration) -> bool {
        let stood = self.paused.take_if(|paused| *paused == since).is_some();
        self.missed += if stood { now - since } else { Duration::ZERO };
        stood
    }

    /// It stands still.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_has_stood_still_knows_nothing_of_that_time() {
        let at = Duration::from_secs;
        let mut clock = Clock::new();
        clock.stop(at(3));
        assert_eq!((clock.shows(at(9)), clock.is_paused()), (at(3), true));
        assert!(!clock.go_on(at(2), at(9)), "it has not stood still since then");
        assert!(clock.go_on(at(3), at(9)));
        assert_eq!((clock.shows(at(10)), clock.when(at(4))), (at(4), at(10)));
    }

    #[test]
    fn a_skewed_clock_shows_at_a_time_what_it_is_to_show_then() {
        let mut random = Random::new(5);
        for _ in 0..100 {
            let mut clock = Clock::new();
            clock.restart(&mut random);
            clock.draw_rate(&mut random);
            let now = random.micros(0, 1_000_000_000);
            let back = clock.when(clock.shows(now));
            assert!(now.abs_diff(back) < Duration::from_micros(1), "{now:?} {back:?}");
        }
    }
}
