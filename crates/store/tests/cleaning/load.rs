//! Clients that write blocks, and what the store does meanwhile.

use super::device::Device;
use crate::common::{IDENTITY, blocks, bytes_of, filled, flatten};
use azekura_base::{PgId, RequestId, SessionId, Write, WriteHeader};
use azekura_store::{Completion, Done, Effect, InMemoryMap, Options, SavedMap, Statistics, Store};
use std::fmt;
use std::time::Duration;

/// Turns of the event loop that clients wait at most.
const TURNS_MAX: u64 = 2_000;
const CHUNK_BLOCKS: u64 = 1024;
const PG: PgId = PgId(1);

/// Blocks of a volume: one in so many.
#[derive(Clone, Copy)]
pub struct Range {
    pub layer: u64,
    pub blocks: u64,
    pub every: u64,
}

impl Range {
    fn place(self, at: u64) -> (u32, u16) {
        let block = at * self.every;
        ((block / CHUNK_BLOCKS) as u32, (block % CHUNK_BLOCKS) as u16)
    }
}

/// What some writes have cost.
pub struct Cost {
    /// Blocks that cleaning moved for each that clients wrote.
    pub moved: f64,
    /// Blocks of log for each of them, with headers and summaries.
    pub log: f64,
    /// Bytes of leaves that were saved for each of them.
    leaf_bytes: f64,
    /// Turns of the event loop that clients waited for a round of their writes, on average and at most.
    turns: f64,
    turns_max: u64,
    /// Blocks of log that were written between some writes and the answer to them: 99th percentile, and most.
    beside: u64,
    pub beside_max: u64,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { moved, log, leaf_bytes, turns, turns_max, beside, beside_max } = self;
        write!(
            f,
            "{moved:.2} moved, {log:.2} log, {leaf_bytes:.0} B of leaves; {turns:.2} turns, {turns_max} at most, "
        )?;
        write!(f, "p99 {beside} blocks, {beside_max} at most")
    }
}

pub struct Load {
    store: Store,
    device: Device,
    map: InMemoryMap,
    /// What is under way: writes, reads, and what the map is asked for.
    waiting: [Vec<Effect>; 3],
    /// Writes that clients have under way.
    depth: u64,
    turns: u64,
    random: u64,
    written: u64,
    /// What was written last, by layer, place: looked at in the end. The write times 1,024, and which of its blocks.
    ranges: Vec<(Range, Vec<u64>)>,
    read: Option<Vec<u8>>,
    is_open: bool,
}

impl Load {
    pub fn new(options: &Options, depth: u64) -> Load {
        let format = Store::format(options, &IDENTITY).unwrap();
        let mut map = InMemoryMap::new();
        map.checkpoint(format.checkpoint).unwrap();
        let mut device = Device::new(options.device_bytes());
        device.write(format.offset, &format.pieces);
        let store = Store::open(options.clone(), IDENTITY, map.root().unwrap().unwrap());
        let (waiting, turns, random, written, ranges) = (Default::default(), 0, 1, 0, Vec::new());
        let (read, is_open) = (None, false);
        let mut load = Load { store, device, map, waiting, depth, turns, random, written, ranges, read, is_open };
        load.turn_until(|load| load.is_open);
        load
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// Writes each block once, in order.
    pub fn fill(&mut self, range: Range) -> Cost {
        self.fill_by(range, 1)
    }

    /// The same, with so many blocks in a write.
    pub fn fill_by(&mut self, range: Range, count: u16) -> Cost {
        let mut next = 0;
        self.write(range, range.blocks, count, |_| {
            next += 1;
            next - 1
        })
    }

    /// Writes so many blocks at random.
    pub fn overwrite(&mut self, range: Range, blocks: u64) -> Cost {
        self.overwrite_by(range, blocks, 1)
    }

    /// The same, with so many blocks in a write.
    pub fn overwrite_by(&mut self, range: Range, blocks: u64, count: u16) -> Cost {
        self.write(range, blocks, count, |load| load.random() % (range.blocks / u64::from(count)))
    }

    /// Writes so many blocks at random, nine of ten in the first tenth.
    pub fn overwrite_skewed(&mut self, range: Range, blocks: u64) -> Cost {
        self.write(range, blocks, 1, |load| {
            let all = if load.random() % 10 < 9 { range.blocks / 10 } else { range.blocks };
            load.random() % all
        })
    }

    /// Writes of `count` blocks. `next` says which of the range's pieces of so many blocks is written.
    fn write(&mut self, range: Range, blocks: u64, count: u16, mut next: impl FnMut(&mut Load) -> u64) -> Cost {
        let before = self.store.statistics();
        let (mut all, mut most, mut rounds, mut beside) = (0, 0, 0, Vec::new());
        let mut left = blocks / u64::from(count);
        while left > 0 {
            let log = self.store.statistics().log_bytes;
            let writes = self.depth.min(left);
            for _ in 0..writes {
                let at = next(self) * u64::from(count);
                self.append(range, at, count);
            }
            left -= writes;
            let waited = self.wait();
            (all, most, rounds) = (all + waited, most.max(waited), rounds + 1);
            beside.push((self.store.statistics().log_bytes - log) / 4096);
        }
        beside.sort_unstable();
        let after = self.store.statistics();
        let of = |counter: fn(&Statistics) -> u64| (counter(&after) - counter(&before)) as f64 / blocks as f64;
        Cost {
            moved: of(|s| s.moved_blocks),
            log: of(|s| s.log_bytes) / 4096.0,
            leaf_bytes: of(|s| s.checkpoint_bytes),
            turns: all as f64 / f64::from(rounds),
            turns_max: most,
            beside: beside[beside.len() * 99 / 100],
            beside_max: beside.last().copied().unwrap_or(0),
        }
    }

    fn append(&mut self, range: Range, at: u64, count: u16) {
        self.written += 1;
        let known = self.ranges.iter().position(|(other, _)| other.layer == range.layer);
        let index = known.unwrap_or_else(|| {
            self.ranges.push((range, vec![0; range.blocks as usize]));
            self.ranges.len() - 1
        });
        let places = &mut self.ranges[index].1[at as usize..][..usize::from(count)];
        (self.written * CHUNK_BLOCKS..).zip(places).for_each(|(version, place)| *place = version);
        let (chunk, first) = range.place(at);
        let state = self.store.group(PG);
        let header = WriteHeader {
            pg: PG,
            epoch: state.epoch,
            sequence: state.prepared_end.next(),
            commit: state.committed,
            session: SessionId(1),
            request: RequestId(self.written),
            range: blocks(range.layer, chunk, first, count),
        };
        self.store.append(self.written, Write { header, body: filled(self.written, count) });
    }

    /// Lets the event loop turn until what was appended is durable, and commits it.
    fn wait(&mut self) -> u64 {
        let waited = self.turn_until(|load| load.store.prepared(PG).all(|p| p.durable));
        let end = self.store.group(PG).prepared_end;
        self.store.commit(PG, end);
        waited
    }

    fn turn_until(&mut self, done: impl Fn(&Load) -> bool) -> u64 {
        let first = self.turns;
        while !done(self) {
            self.turns += 1;
            self.turn();
            let waited = self.turns - first;
            assert!(waited < TURNS_MAX, "clients wait without end: {}", self.store.describe());
        }
        self.turns - first
    }

    /// One turn of an event loop: what was asked for is done, each kind of effect once.
    fn turn(&mut self) {
        self.store.tick(Duration::from_micros(self.turns * 200));
        self.store.pump();
        self.take_effects();
        if self.store.checkpoint_due() {
            self.store.begin_checkpoint(|_| None);
        }
        self.take_effects();
        for effect in std::mem::take(&mut self.waiting).into_iter().flatten() {
            let (io, done) = match effect {
                Effect::Write { io, offset, pieces, .. } => {
                    self.device.write(offset, &pieces);
                    (io, Done::Written(Ok(())))
                }
                Effect::Read { io, offset, len } => (io, Done::Read(Ok(self.device.read(offset, len)))),
                effect => self.map.perform(effect).expect("an effect of the map"),
            };
            self.store.done(io, done);
        }
        self.take_effects();
    }

    fn take_effects(&mut self) {
        while let Some(effect) = self.store.next_effect() {
            match effect {
                Effect::Write { .. } => self.waiting[0].push(effect),
                Effect::Read { .. } => self.waiting[1].push(effect),
                Effect::Flush { io } => self.store.done(io, Done::Flushed(Ok(()))),
                _ => self.waiting[2].push(effect),
            }
        }
        while let Some(completion) = self.store.next_completion() {
            match completion {
                Completion::Read { result, .. } => self.read = Some(flatten(&result.unwrap(), 1)),
                Completion::Recovered(result) => self.is_open = result.is_ok(),
                _ => {}
            }
        }
        while self.store.next_report().is_some() {}
    }

    /// What was written last is there, and the accounts are right.
    pub fn check(&mut self) {
        for (range, versions) in std::mem::take(&mut self.ranges) {
            for (at, version) in (0..).zip(versions).step_by(997) {
                let (chunk, first) = range.place(at);
                self.read = None;
                self.store.read(1, PG, blocks(range.layer, chunk, first, 1));
                self.turn_until(|load| load.read.is_some());
                let block = (version % CHUNK_BLOCKS) as u16;
                let whole = bytes_of(&filled(version / CHUNK_BLOCKS, block + 1), block + 1);
                assert_eq!(self.read.as_deref(), whole.get(usize::from(block) * 4096..));
            }
        }
        self.store.assert_accounts(self.map.leaves(), |_| true);
    }
}
