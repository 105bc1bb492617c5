//! Devices that neither complete what they are asked for nor fail it (0021).
//!
//! What counts is silence, not slowness. A device under load may take long for each operation, and operations may wait
//! long for their turn in the event loop's queue: as long as others of their kind end, the device works. So the silence
//! begins when the oldest operation that is under way was handed out, or when the last one of its kind ended, whichever
//! is later. One that others of its kind overtake may be lost in the device while these succeed: its silence begins
//! some seconds after the first did so, since devices and schedulers put off single operations under load.
//!
//! Writes and reads are kinds of their own: a device may have stopped taking writes and still answer reads from its
//! cache. The saved map does one thing after the other, and some of that is long: it has ten times as much time.
//!
//! A device that keeps silent for long is out of service: its copies get new homes in time, as those of a device that
//! has failed. But its store stays as it is, with all that is under way, and goes on when the device answers.
//!
//! Time counts only as far as this process could work: what a stopped process has not heard is no silence of the
//! device's.

use azekura_gateway::Counters;
use azekura_replica::TICK;
use azekura_store::{Done, Effect as StoreEffect, IoId};
use std::collections::VecDeque;
use std::time::Duration;

mod steps;

/// After a silence of this length nobody is to wait for the device: its copies take leave.
const HESITATION: Duration = Duration::from_secs(1);
/// The saved map may keep silent for so long.
const MAP_HESITATION: Duration = Duration::from_secs(10);
/// A device is as good as before when it has known no silence of this length ...
const STIR: Duration = Duration::from_millis(500);
/// ... for this time.
const RECOVERY: Duration = Duration::from_secs(2);
/// An operation that others have overtaken may be put off for so long.
const UNFAIRNESS: Duration = Duration::from_secs(4);
/// More time than this between two looks was not spent waiting: the process stood still.
const STEP_MAX: Duration = TICK.saturating_mul(2);

/// The operations of one kind that are under way.
#[derive(Debug, Default)]
struct Kind {
    /// When each was handed out, in the order of their names, which is about that of time.
    asked: VecDeque<(IoId, Duration)>,
    /// When one ended last.
    ended: Duration,
    /// When the oldest was first overtaken.
    overtaken: Option<Duration>,
    /// Those that have ended, and how long they took.
    counters: Counters,
}

impl Kind {
    fn end(&mut self, io: IoId, clock: Duration, failed: bool) {
        let Ok(place) = self.asked.binary_search_by_key(&io, |(io, _)| *io) else { return };
        if let Some((_, asked)) = self.asked.remove(place) {
            self.counters.note(0, clock.saturating_sub(asked), failed);
        }
        self.ended = clock;
        if place == 0 {
            self.overtaken = None;
        } else {
            self.overtaken.get_or_insert(clock);
        }
    }

    fn silence(&self, clock: Duration) -> Duration {
        let Some((_, asked)) = self.asked.front() else { return Duration::ZERO };
        let since = self.ended.max(*asked);
        let since = self.overtaken.map_or(since, |overtaken| since.min(overtaken + UNFAIRNESS));
        clock.saturating_sub(since)
    }
}

/// What a device owes. See the module's description.
#[derive(Debug)]
pub(crate) struct Hanging {
    writes: Kind,
    reads: Kind,
    /// The time that this process could work.
    clock: Duration,
    looked: Duration,
    /// Nobody is to wait for the device.
    hangs: bool,
    /// People know that the device does not answer while it is opened.
    opening_reported: bool,
    /// It has not answered for so long that it is out of service.
    out: bool,
    /// When a silence was last worth mentioning.
    stirred: Duration,
    /// The longest silence since the device began to hang.
    longest: Duration,
}

impl Hanging {
    pub(crate) fn new(now: Duration) -> Hanging {
        Hanging {
            writes: Kind::default(),
            reads: Kind::default(),
            clock: Duration::ZERO,
            looked: now,
            hangs: false,
            opening_reported: false,
            out: false,
            stirred: Duration::ZERO,
            longest: Duration::ZERO,
        }
    }

    fn advance(&mut self, now: Duration) {
        self.clock += now.saturating_sub(self.looked).min(STEP_MAX);
        self.looked = self.looked.max(now);
    }

    /// An effect of the store is handed to the event loop.
    pub(crate) fn asked(&mut self, effect: &StoreEffect, now: Duration) {
        self.advance(now);
        let (kind, io) = match effect {
            StoreEffect::Write { io, .. } | StoreEffect::Flush { io } => (&mut self.writes, *io),
            StoreEffect::Read { io, .. } => (&mut self.reads, *io),
            _ => return,
        };
        let place = kind.asked.partition_point(|(earlier, _)| *earlier < io);
        kind.asked.insert(place, (io, self.clock));
    }

    /// An effect of the store is done.
    pub(crate) fn ended(&mut self, io: IoId, done: &Done, now: Duration) {
        self.advance(now);
        match done {
            Done::Written(result) => self.writes.end(io, self.clock, result.is_err()),
            Done::Flushed(result) => self.writes.end(io, self.clock, result.is_err()),
            Done::Read(result) => self.reads.end(io, self.clock, result.is_err()),
            _ => {}
        }
    }

    /// How long the device has kept silent about something that it was asked for; `map`: and its saved map, of which
    /// only long silences count.
    pub(crate) fn silence(&mut self, map: Duration, now: Duration) -> Duration {
        self.advance(now);
        let map = if map >= MAP_HESITATION { map } else { Duration::ZERO };
        self.writes.silence(self.clock).max(self.reads.silence(self.clock)).max(map)
    }

    /// It is out of service for its silence.
    pub(crate) fn is_out(&self) -> bool {
        self.out
    }

    /// Reads, and writes with flushes, that have ended.
    pub(crate) fn counters(&self) -> (&Counters, &Counters) {
        (&self.reads.counters, &self.writes.counters)
    }

    /// Nobody is to wait for the device.
    pub(crate) fn hangs(&self) -> bool {
        self.hangs
    }

    /// Time has passed. `Some(true)`: from now on nobody is to wait for the device. `Some(false)`: it is as good as
    /// before.
    pub(crate) fn look(&mut self, map: Duration, now: Duration) -> Option<bool> {
        let silence = self.silence(map, now);
        #[cfg(feature = "sabotage")]
        if crate::sabotage::overlooks_hangs() {
            return None;
        }
        if silence >= STIR {
            self.stirred = self.clock;
        }
        self.longest = self.longest.max(silence);
        if !self.hangs && silence >= HESITATION {
            (self.hangs, self.longest) = (true, silence);
            return Some(true);
        }
        if self.hangs && self.clock >= self.stirred + RECOVERY {
            self.hangs = false;
            return Some(false);
        }
        None
    }

    /// The longest silence since the device began to hang.
    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const SECOND: Duration = Duration::from_secs(1);

    /// A device and the time, which passes in steps of a tick.
    struct Watched {
        hanging: Hanging,
        now: Duration,
        asked: u64,
    }

    impl Watched {
        fn new() -> Watched {
            let now = 100 * SECOND;
            Watched { hanging: Hanging::new(now), now, asked: 0 }
        }

        fn write(&mut self) -> IoId {
            self.asked += 1;
            let io = IoId(self.asked);
            let write = StoreEffect::Write { io, offset: 0, pieces: vec![Bytes::new()], durable: true };
            self.hanging.asked(&write, self.now);
            io
        }

        fn read(&mut self) -> IoId {
            self.asked += 1;
            let io = IoId(self.asked);
            self.hanging.asked(&StoreEffect::Read { io, offset: 0, len: 4096 }, self.now);
            io
        }

        fn written(&mut self, io: IoId) {
            self.hanging.ended(io, &Done::Written(Ok(())), self.now);
        }

        fn pass(&mut self, time: Duration) -> Vec<bool> {
            let until = self.now + time;
            let mut changes = Vec::new();
            while self.now < until {
                self.now += TICK;
                changes.extend(self.hanging.look(Duration::ZERO, self.now));
            }
            changes
        }
    }

    #[test]
    fn a_map_is_silent_when_it_has_been_for_long() {
        let mut device = Watched::new();
        assert_eq!(device.hanging.look(MAP_HESITATION - TICK, device.now), None);
        assert_eq!(device.hanging.look(MAP_HESITATION, device.now), Some(true));
        assert_eq!(device.pass(RECOVERY + TICK), [false]);
        assert!(device.hanging.longest() >= MAP_HESITATION);
    }

    #[test]
    fn a_device_hangs_when_nothing_ends_and_is_well_again_some_time_after_it_does() {
        let mut device = Watched::new();
        assert!(device.pass(60 * SECOND).is_empty(), "nothing was asked for");
        let io = device.write();
        assert!(device.pass(9 * TICK).is_empty());
        assert_eq!(device.pass(TICK), [true]);
        assert!(device.pass(5 * SECOND).is_empty());
        device.written(io);
        assert!(device.pass(RECOVERY - 2 * TICK).is_empty() && device.hanging.hangs());
        assert_eq!(device.pass(3 * TICK), [false]);
        assert!(device.hanging.longest() > 5 * SECOND);
    }

    #[test]
    fn what_has_ended_is_counted_with_the_time_that_it_took() {
        let mut device = Watched::new();
        let (write, failing, read) = (device.write(), device.write(), device.read());
        device.now += Duration::from_millis(3);
        device.hanging.ended(read, &Done::Read(Ok(Bytes::new())), device.now);
        device.written(write);
        device.written(write);
        device.now += Duration::from_millis(2);
        device.hanging.ended(failing, &Done::Written(Err(azekura_store::DeviceError("broken".to_owned()))), device.now);
        let (reads, writes) = device.hanging.counters();
        assert_eq!((reads.count, reads.errors, reads.latency_us), (1, 0, 3_000));
        assert_eq!((writes.count, writes.errors, writes.latency_us), (2, 1, 8_000));
    }

    #[test]
    fn operations_that_wait_for_their_turn_are_no_silence() {
        let mut device = Watched::new();
        let all: Vec<IoId> = (0..100).map(|_| device.write()).collect();
        for io in all {
            assert!(device.pass(TICK).is_empty(), "each takes its time, and some end");
            device.written(io);
        }
    }

    #[test]
    fn one_operation_that_all_others_overtake_hangs() {
        let mut device = Watched::new();
        let _lost = device.write();
        let mut changes = Vec::new();
        for n in 0..60 {
            let io = device.write();
            changes.extend(device.pass(TICK));
            assert!(changes.is_empty() || n > 45, "it may have been put off");
            device.written(io);
        }
        assert_eq!(changes, [true]);
    }

    #[test]
    fn reads_that_end_say_nothing_of_writes() {
        let mut device = Watched::new();
        device.write();
        let mut changes = Vec::new();
        for _ in 0..12 {
            let io = device.read();
            changes.extend(device.pass(TICK));
            device.hanging.ended(io, &Done::Read(Ok(Bytes::new())), device.now);
        }
        assert_eq!(changes, [true]);
    }

    #[test]
    fn a_process_that_stood_still_blames_nobody() {
        let mut device = Watched::new();
        let io = device.write();
        assert!(device.pass(5 * TICK).is_empty());
        device.now += 30 * SECOND;
        assert_eq!(device.hanging.look(Duration::ZERO, device.now), None);
        assert!(device.hanging.silence(Duration::ZERO, device.now) < HESITATION);
        device.written(io);
        assert!(device.pass(SECOND).is_empty());
    }

    #[test]
    fn a_device_that_crawls_hangs_all_the_time() {
        let mut device = Watched::new();
        let mut changes = Vec::new();
        for _ in 0..10 {
            let io = device.write();
            changes.extend(device.pass(2 * SECOND));
            device.written(io);
        }
        assert_eq!(changes, [true]);
    }
}
