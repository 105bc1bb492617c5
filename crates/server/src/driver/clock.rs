//! The clock that leases run on, and whether it can be believed.
//!
//! Leases hold for durations, so the clock must not stand still while other machines' clocks go on. `CLOCK_BOOTTIME`
//! goes on while the machine is suspended. A virtual machine that is paused, saved or moved may find all its clocks
//! where they were; then somebody sets the wall clock (the hypervisor's agent, or the time service), and that is what
//! can be noticed: the wall clock has advanced by more, or by less, than the other. docs/decisions/0022 says what can't
//! be.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The clocks may run apart by so much between two looks: time services that do their work step by step are not meant.
const JUMP_MIN: Duration = Duration::from_millis(100);

/// What both clocks showed at one moment.
#[derive(Clone, Copy, Debug)]
struct Seen {
    boot: Duration,
    wall: Duration,
}

impl Seen {
    fn now() -> Seen {
        Seen { boot: read(ClockId::Boottime), wall: read(ClockId::Realtime) }
    }

    /// By how much one clock has advanced further than the other since `before`.
    fn jump_since(&self, before: Seen) -> Duration {
        let ahead = |clock: Seen| clock.wall.as_nanos() as i128 - clock.boot.as_nanos() as i128;
        let apart = (ahead(*self) - ahead(before)).unsigned_abs();
        Duration::from_nanos(u64::try_from(apart).unwrap_or(u64::MAX))
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // A wall clock before 1970 is as good as one at it: only how it goes on counts.
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// See the module's description. Copies of one show the same time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Duration,
    last: Seen,
}

impl Clock {
    /// A clock that shows nothing yet.
    #[must_use]
    pub fn start() -> Clock {
        let last = Seen::now();
        Clock { started: last.boot, last }
    }

    /// The time since the start, suspended or not.
    #[must_use]
    pub fn now(&self) -> Duration {
        read(ClockId::Boottime).saturating_sub(self.started)
    }

    /// The time since the start, and by how much the wall clock has jumped since the last look, against this clock;
    /// `None`: by nothing worth mentioning.
    pub fn look(&mut self) -> (Duration, Option<Duration>) {
        let seen = Seen::now();
        let jump = seen.jump_since(self.last);
        self.last = seen;
        (seen.boot.saturating_sub(self.started), (jump > JUMP_MIN).then_some(jump))
    }

    /// As though the machine had stood still for so long since the last look.
    #[cfg(test)]
    pub fn stood_still(&mut self, time: Duration) {
        self.last.wall -= time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_run_apart_are_noticed_whichever_is_ahead() {
        let at = |boot, wall| Seen { boot: Duration::from_millis(boot), wall: Duration::from_millis(wall) };
        assert_eq!(at(2_000, 101_010).jump_since(at(1_000, 100_000)), Duration::from_millis(10));
        assert_eq!(at(1_001, 110_000).jump_since(at(1_000, 100_000)), Duration::from_millis(9_999));
        assert_eq!(at(11_000, 50_000).jump_since(at(1_000, 100_000)), Duration::from_secs(60));
    }

    #[test]
    fn the_clock_goes_on_and_does_not_jump() {
        let mut clock = Clock::start();
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(5));
        assert!(clock.now() >= before + Duration::from_millis(5));
        let (now, jump) = clock.look();
        assert!(now >= before + Duration::from_millis(5) && jump.is_none());
    }
}
