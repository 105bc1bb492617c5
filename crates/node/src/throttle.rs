//! How much work in the background (bringing copies up to date, scrubs) a node's groups may do beside clients'
//! requests.
//!
//! A control loop: the 99th percentile of the times that requests take is measured in short windows and compared with
//! that of quiet times. While it stays below [`STRAIN_MAX`] times the quiet one, the rate grows by a constant; above,
//! it shrinks by a factor (additive increase and multiplicative decrease, Chiu and Jain, 1989). In long work the
//! background rests for a moment now and then, so that what is quiet is measured anew. Without requests there is no
//! limit; with them the rate never falls below [`RATE_MIN`], so that work always ends (0012). Requests that wait, of
//! which none is answered, are the slowest of all.
//!
//! These rates are a node's. Each of its shards has a loop of its own, for its share of them.

use std::num::NonZeroU8;
use std::time::Duration;

/// Least rate, bytes a second.
pub(crate) const RATE_MIN: u64 = 4 << 20;
/// Rate with which work begins, bytes a second.
const RATE_FIRST: u64 = 16 << 20;
/// Above that, a limit is none.
const RATE_MAX: u64 = 4 << 30;
/// What is added to the rate after a good window, bytes a second.
const RATE_STEP: u64 = 4 << 20;
/// What is left of the rate after a bad window, in percent.
const RATE_LEFT_PERCENT: u64 = 60;
/// A window is bad when requests take so many times as long as in quiet times. The aim is twice; what a window says is
/// some five percent off, and its answer comes late.
const STRAIN_MAX: f64 = 1.7;
/// Least length of a window.
const WINDOW: Duration = Duration::from_millis(500);
/// Requests that a window should have before it is judged.
const SAMPLES_MIN: u64 = 100;
/// A window is over after this time, however few requests it has.
const WINDOW_MAX: Duration = Duration::from_secs(3);
/// Without any request for so long, clients are idle.
const IDLE: Duration = Duration::from_secs(2);
/// Time between two rests of the background.
const REST_INTERVAL: Duration = Duration::from_secs(15);
/// What was begun before a rest may last so long.
const REST_LEAD: Duration = Duration::from_millis(200);
/// Rates are handed out for at most so long at once: what was not used is not saved up.
const GRANT_MAX: Duration = Duration::from_millis(100);
/// Share of a newer quiet window in the quiet time that is compared with, in percent.
const QUIET_SHARE_PERCENT: f64 = 50.0;

/// Buckets of an octave of times.
const STEPS: usize = 8;
/// Octaves of microseconds: up to some 70 minutes.
const OCTAVES: usize = 32;

/// Times of requests: counts in buckets that are an eighth of an octave wide.
#[derive(Clone, Debug)]
struct Times {
    counts: [u32; STEPS * OCTAVES],
    total: u64,
}

impl Times {
    fn new() -> Times {
        Times { counts: [0; STEPS * OCTAVES], total: 0 }
    }

    fn add(&mut self, time: Duration) {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1);
        let octave = micros.ilog2();
        // The three bits behind the first.
        let step = if octave >= 3 { micros >> (octave - 3) } else { micros << (3 - octave) } & 7;
        self.counts[octave as usize * STEPS + step as usize] += 1;
        self.total += 1;
    }

    /// The time that 99 percent of the requests stayed below, microseconds: the end of its bucket.
    fn p99(&self) -> f64 {
        let mut above = self.total / 100;
        for (bucket, count) in self.counts.iter().enumerate().rev() {
            let count = u64::from(*count);
            if count > above {
                let (octave, step) = (bucket / STEPS, bucket % STEPS);
                return 2_f64.powi(octave as i32) * (1.0 + (step as f64 + 1.0) / STEPS as f64);
            }
            above -= count;
        }
        0.0
    }
}

/// What a window tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// There is no work in the background.
    Quiet,
    /// There is, and it rests.
    Rest,
    /// There is.
    Busy,
}

/// How the loop stands, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThrottleReport {
    /// Bytes a second that the background may move; `None` without a limit.
    pub rate: Option<u64>,
    /// 99th percentile of requests in the last window, microseconds; `None` before the first that had enough of them.
    pub p99_us: Option<f64>,
    /// The same in quiet times, microseconds; `None` while nobody knows.
    pub quiet_p99_us: Option<f64>,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Throttle {
    now: Duration,
    /// The shards that share the rates.
    shards: NonZeroU8,
    rate: u64,
    times: Times,
    kind: Kind,
    started: Duration,
    /// When the last request was answered.
    answered: Option<Duration>,
    /// Since when requests have waited for their answers, one or another.
    waiting: Option<Duration>,
    quiet_p99: Option<f64>,
    last_p99: Option<f64>,
    next_rest: Duration,
    /// Rates are handed out up to here.
    granted: Duration,
    /// Bytes that were used, and bytes that were granted, in this window.
    used: i64,
    grants: u64,
}

impl Throttle {
    pub(crate) fn new(now: Duration) -> Throttle {
        Throttle {
            now,
            shards: NonZeroU8::MIN,
            rate: RATE_FIRST,
            times: Times::new(),
            kind: Kind::Quiet,
            started: now,
            answered: None,
            waiting: None,
            quiet_p99: None,
            last_p99: None,
            next_rest: now,
            granted: now,
            used: 0,
            grants: 0,
        }
    }

    /// This is the loop of one of so many shards.
    pub(crate) fn set_shards(&mut self, shards: NonZeroU8) {
        self.shards = shards;
        self.rate = self.share(RATE_FIRST);
    }

    /// The share of a node's rate.
    fn share(&self, rate: u64) -> u64 {
        rate / u64::from(self.shards.get())
    }

    /// A client's request was answered after this time.
    pub(crate) fn answered(&mut self, time: Duration) {
        self.answered = Some(self.now);
        if self.kind != Kind::Rest || self.now >= self.started + REST_LEAD {
            self.times.add(time);
        }
    }

    /// The background has begun to move so many bytes; less than nothing, when it had counted too many before.
    pub(crate) fn used(&mut self, bytes: i64) {
        self.used += bytes;
    }

    /// Time passes; `busy` says whether there is work in the background, and `waiting` whether a request of a client's
    /// waits for its answer.
    pub(crate) fn advance(&mut self, now: Duration, busy: bool, waiting: bool) {
        self.now = now;
        self.waiting = waiting.then(|| self.waiting.unwrap_or(now));
        if busy != (self.kind != Kind::Quiet) {
            // A window without work that is long enough tells what is quiet, the last one before work begins most of
            // all.
            self.judge();
            if busy {
                self.rate = self.share(RATE_FIRST);
                self.next_rest = if self.quiet_p99.is_some() { now + REST_INTERVAL } else { now };
            }
            self.begin(if busy { Kind::Busy } else { Kind::Quiet });
        }
        let enough = self.times.total >= SAMPLES_MIN && now >= self.started + WINDOW + self.lead();
        if enough || now >= self.started + WINDOW_MAX {
            self.judge();
            let rests = self.kind == Kind::Busy && now >= self.next_rest && !self.is_idle();
            let kind = match self.kind {
                Kind::Quiet => Kind::Quiet,
                Kind::Busy | Kind::Rest if rests => Kind::Rest,
                Kind::Busy | Kind::Rest => Kind::Busy,
            };
            self.begin(kind);
        }
        if self.kind == Kind::Busy && self.quiet_p99.is_none() && now >= self.next_rest && !self.is_idle() {
            // Nobody knows yet what is quiet.
            self.begin(Kind::Rest);
        }
    }

    /// Bytes that may be moved now besides what was granted before; `None`: there is no limit.
    pub(crate) fn grant(&mut self) -> Option<u64> {
        let time = self.now.saturating_sub(self.granted).min(GRANT_MAX);
        self.granted = self.now;
        if self.is_idle() {
            return None;
        }
        if self.kind == Kind::Rest {
            return Some(0);
        }
        let bytes = (u128::from(self.rate) * time.as_micros() / 1_000_000) as u64;
        self.grants += bytes;
        Some(bytes)
    }

    /// How the loop stands.
    pub(crate) fn report(&self) -> ThrottleReport {
        let rate = (self.kind != Kind::Quiet && !self.is_idle()).then_some(self.rate);
        ThrottleReport { rate, p99_us: self.last_p99, quiet_p99_us: self.quiet_p99 }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_none() && self.answered.is_none_or(|answered| self.now >= answered + IDLE)
    }

    /// Requests wait, and none was answered in this window.
    fn is_stalled(&self) -> bool {
        self.times.total == 0 && self.waiting.is_some_and(|waiting| waiting <= self.started)
    }

    fn lead(&self) -> Duration {
        if self.kind == Kind::Rest { REST_LEAD } else { Duration::ZERO }
    }

    fn begin(&mut self, kind: Kind) {
        if kind == Kind::Rest {
            self.next_rest = self.now + REST_INTERVAL;
        }
        self.kind = kind;
        self.started = self.now;
        self.times = Times::new();
        (self.used, self.grants) = (0, 0);
    }

    /// Draws the conclusions from a window.
    fn judge(&mut self) {
        if self.kind == Kind::Busy && self.is_stalled() {
            return self.slow_down();
        }
        if self.times.total < SAMPLES_MIN / 10 {
            return;
        }
        let p99 = self.times.p99();
        self.last_p99 = Some(p99);
        match (self.kind, self.quiet_p99) {
            (Kind::Quiet | Kind::Rest, None) => self.quiet_p99 = Some(p99),
            (Kind::Quiet | Kind::Rest, Some(quiet)) => {
                self.quiet_p99 = Some(quiet + (p99 - quiet) * QUIET_SHARE_PERCENT / 100.0);
            }
            (Kind::Busy, Some(quiet)) if p99 > quiet * STRAIN_MAX => self.slow_down(),
            // What is not used up tells nothing about more.
            (Kind::Busy, _) if self.used.max(0) as u64 * 4 >= self.grants * 3 => {
                self.rate = (self.rate + self.share(RATE_STEP)).min(RATE_MAX);
            }
            (Kind::Busy, _) => {}
        }
    }

    fn slow_down(&mut self) {
        self.rate = (self.rate * RATE_LEFT_PERCENT / 100).max(self.share(RATE_MIN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(10);
    const MIB: u64 = 1 << 20;

    /// A device and its clients: requests take longer, the more the background moves.
    struct Rig {
        throttle: Throttle,
        now: Duration,
        /// Requests between two steps.
        requests: u32,
        /// Others wait for their answers.
        waiting: bool,
        /// Time of a request in quiet times.
        quiet_us: u64,
        /// Bytes a second of the background that double that time.
        doubling: u64,
        /// What the background has left to use.
        allowance: i64,
        moved: u64,
        random: u64,
    }

    impl Rig {
        fn new(doubling: u64) -> Rig {
            let now = Duration::from_secs(100);
            let throttle = Throttle::new(now);
            let (waiting, allowance, moved) = (false, 0, 0);
            Rig { throttle, now, requests: 20, waiting, quiet_us: 400, doubling, allowance, moved, random: 1 }
        }

        fn draw(&mut self, below: u64) -> u64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.random >> 33) % below
        }

        /// Time passes; the mean rate of the background.
        fn pass(&mut self, seconds: u64, busy: bool) -> u64 {
            let before = self.moved;
            for _ in 0..seconds * 100 {
                self.now += STEP;
                self.throttle.advance(self.now, busy, self.waiting);
                let mut bytes = 0;
                match self.throttle.grant() {
                    _ if !busy => {}
                    None => bytes = 2000 * MIB / 100,
                    Some(grant) => {
                        self.allowance = (self.allowance + grant as i64).min(4 << 20);
                        while self.allowance > 0 {
                            self.allowance -= MIB as i64;
                            bytes += MIB;
                        }
                    }
                }
                self.moved += bytes;
                self.throttle.used(bytes as i64);
                let rate = self.throttle.report().rate.unwrap_or(0);
                let load = if busy && self.throttle.kind != Kind::Rest { rate } else { 0 };
                let longest = self.quiet_us + self.quiet_us * load / self.doubling;
                for _ in 0..self.requests {
                    let time = longest / 2 + self.draw(longest / 2);
                    self.throttle.answered(Duration::from_micros(time));
                }
            }
            (self.moved - before) / seconds
        }
    }

    #[test]
    fn times_fall_into_buckets_of_an_eighth_of_an_octave() {
        let mut times = Times::new();
        for micros in 1..=10_000 {
            times.add(Duration::from_micros(micros));
        }
        assert!((9_900.0..=9_900.0 * 1.13).contains(&times.p99()), "{}", times.p99());
        let mut one = Times::new();
        one.add(Duration::from_micros(700));
        assert!((700.0..=790.0).contains(&one.p99()), "{}", one.p99());
        one.add(Duration::from_secs(100_000));
        one.add(Duration::ZERO);
        assert!(one.p99() > 1e9);
    }

    #[test]
    fn without_clients_there_is_no_limit() {
        let mut rig = Rig::new(100 * MIB);
        rig.requests = 0;
        assert_eq!(rig.pass(5, true), 2000 * MIB / 100 * 100);
        // Somebody comes, and goes.
        rig.requests = 10;
        rig.pass(2, true);
        assert!(rig.throttle.report().rate.is_some());
        rig.requests = 0;
        rig.pass(3, true);
        assert_eq!(rig.throttle.report().rate, None);
    }

    /// A device that can't keep up answers nobody for seconds: the background must not take all of it then.
    #[test]
    fn requests_that_wait_without_an_answer_are_clients() {
        let mut rig = Rig::new(100 * MIB);
        rig.pass(5, false);
        rig.pass(5, true);
        (rig.requests, rig.waiting) = (0, true);
        rig.pass(10, true);
        assert!(rig.throttle.report().rate.is_some());
        let rate = rig.pass(30, true);
        assert!((RATE_MIN / 2..=2 * RATE_MIN).contains(&rate), "{rate}");
        // They have given up.
        rig.waiting = false;
        rig.pass(3, true);
        assert_eq!(rig.throttle.report().rate, None);
    }

    #[test]
    fn the_rate_settles_below_what_doubles_the_time() {
        for doubling in [20 * MIB, 80 * MIB, 300 * MIB] {
            let mut rig = Rig::new(doubling);
            rig.pass(5, false);
            rig.pass(60, true);
            let rate = rig.pass(60, true);
            assert!((doubling * 30 / 100..doubling).contains(&rate), "{} of {} MiB/s", rate / MIB, doubling / MIB);
            let strain = 1.0 + rig.throttle.rate as f64 / doubling as f64;
            assert!(strain < 2.1, "{strain}");
        }
    }

    #[test]
    fn what_nobody_has_measured_is_not_told() {
        let mut rig = Rig::new(60 * MIB);
        assert_eq!(rig.throttle.report(), ThrottleReport::default());
        rig.requests = 0;
        rig.pass(5, true);
        let report = rig.throttle.report();
        assert_eq!((report.p99_us, report.quiet_p99_us), (None, None), "nobody has asked for anything");
    }

    #[test]
    fn what_is_quiet_is_found_although_work_was_there_first() {
        let mut rig = Rig::new(60 * MIB);
        rig.requests = 0;
        rig.pass(5, true);
        rig.requests = 20;
        rig.pass(30, true);
        let quiet = rig.throttle.report().quiet_p99_us.expect("known by now");
        assert!((380.0..=480.0).contains(&quiet), "{quiet}");
        assert!(rig.pass(60, true) < 60 * MIB);
    }

    #[test]
    fn what_is_quiet_is_measured_again() {
        let mut rig = Rig::new(60 * MIB);
        rig.pass(5, false);
        rig.pass(30, true);
        // The clients' own load grows: that is not the background's fault.
        rig.quiet_us = 4000;
        rig.pass(90, true);
        let quiet = rig.throttle.report().quiet_p99_us.expect("known by now");
        assert!((3200.0..=4800.0).contains(&quiet), "{quiet}");
        assert!(rig.pass(60, true) > 15 * MIB);
    }

    #[test]
    fn the_shards_of_a_node_share_the_least_rate() {
        let mut rig = Rig::new(MIB / 10);
        rig.throttle.set_shards(NonZeroU8::new(4).expect("four"));
        rig.pass(5, false);
        rig.pass(60, true);
        let rate = rig.pass(60, true);
        assert!((RATE_MIN * 8 / 40..=RATE_MIN * 11 / 40).contains(&rate), "{rate}");
    }

    #[test]
    fn work_goes_on_whatever_it_costs() {
        let mut rig = Rig::new(MIB / 10);
        rig.pass(5, false);
        rig.pass(60, true);
        let rate = rig.pass(60, true);
        assert!((RATE_MIN * 8 / 10..=RATE_MIN * 11 / 10).contains(&rate), "{rate}");
    }

    #[test]
    fn few_requests_are_clients_too() {
        let mut rig = Rig::new(40 * MIB);
        rig.pass(5, false);
        let mut rate = 0;
        for _ in 0..60 {
            // One each second.
            rig.throttle.answered(Duration::from_micros(500));
            rig.requests = 0;
            rate = rate.max(rig.pass(1, true));
        }
        assert!(rate < 1000 * MIB, "{rate}");
    }
}
