//! Clients that write blocks, and what the store does meanwhile.

use crate::common::{Rig, bytes_of, filled};
use azekura_base::PgId;
use azekura_store::{Options, Statistics};
use std::fmt;
use std::time::Duration;

/// Writes that clients have under way.
const DEPTH: u64 = 16;
/// Turns of the event loop that they wait at most.
const TURNS_MAX: u64 = 2_000;
const CHUNK_BLOCKS: u64 = 1024;

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
    log: f64,
    /// Bytes of leaves that were saved for each of them.
    leaf_bytes: f64,
    /// Turns of the event loop that clients waited for a round of their writes, on average and at most.
    turns: f64,
    turns_max: u64,
    /// Blocks of log that were written between some writes and the answer to them: 99th percentile.
    beside: u64,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { moved, log, leaf_bytes, turns, turns_max, beside } = self;
        write!(
            f,
            "{moved:.2} moved, {log:.2} log, {leaf_bytes:.0} B of leaves; {turns:.2} turns, {turns_max} at most, p99 {beside} blocks"
        )
    }
}

pub struct Load {
    rig: Rig,
    turns: u64,
    random: u64,
    written: u64,
    /// What was written last, by layer, place: looked at in the end.
    ranges: Vec<(Range, Vec<u64>)>,
}

impl Load {
    pub fn new(options: &Options) -> Load {
        Load { rig: Rig::format(options), turns: 0, random: 1, written: 0, ranges: Vec::new() }
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// Writes each block once, in order.
    pub fn fill(&mut self, range: Range) -> Cost {
        let mut next = 0;
        self.write(range, range.blocks, |_| {
            next += 1;
            next - 1
        })
    }

    /// Writes so many blocks at random.
    pub fn overwrite(&mut self, range: Range, blocks: u64) -> Cost {
        self.write(range, blocks, |load| load.random() % range.blocks)
    }

    /// Writes so many blocks at random, nine of ten in the first tenth.
    pub fn overwrite_skewed(&mut self, range: Range, blocks: u64) -> Cost {
        self.write(range, blocks, |load| {
            let all = if load.random() % 10 < 9 { range.blocks / 10 } else { range.blocks };
            load.random() % all
        })
    }

    fn write(&mut self, range: Range, blocks: u64, mut next: impl FnMut(&mut Load) -> u64) -> Cost {
        let before = self.rig.store.statistics();
        let (mut all, mut most, mut rounds, mut beside) = (0, 0, 0, Vec::new());
        let mut left = blocks;
        while left > 0 {
            let log = self.rig.store.statistics().log_bytes;
            let count = DEPTH.min(left);
            for _ in 0..count {
                let at = next(self);
                self.append(range, at);
            }
            left -= count;
            let waited = self.wait();
            (all, most, rounds) = (all + waited, most.max(waited), rounds + 1);
            beside.push((self.rig.store.statistics().log_bytes - log) / 4096);
        }
        beside.sort_unstable();
        let after = self.rig.store.statistics();
        let of = |count: fn(&Statistics) -> u64| (count(&after) - count(&before)) as f64 / blocks as f64;
        Cost {
            moved: of(|s| s.moved_blocks),
            log: of(|s| s.log_bytes) / 4096.0,
            leaf_bytes: of(|s| s.checkpoint_bytes),
            turns: all as f64 / f64::from(rounds),
            turns_max: most,
            beside: beside[beside.len() * 99 / 100],
        }
    }

    fn append(&mut self, range: Range, at: u64) {
        self.written += 1;
        let known = self.ranges.iter().position(|(other, _)| other.layer == range.layer);
        let index = known.unwrap_or_else(|| {
            self.ranges.push((range, vec![0; range.blocks as usize]));
            self.ranges.len() - 1
        });
        self.ranges[index].1[at as usize] = self.written;
        let (chunk, block) = range.place(at);
        let write = self.rig.next_write(1, range.layer, chunk, block, filled(self.written, 1), 1);
        self.rig.store.append(self.written, write);
    }

    /// Lets the event loop turn until what was appended is durable, and commits it.
    fn wait(&mut self) -> u64 {
        let first = self.turns;
        while self.rig.store.prepared(PgId(1)).any(|p| !p.durable) {
            self.turns += 1;
            self.turn();
            let waited = self.turns - first;
            assert!(waited < TURNS_MAX, "clients wait without end: {}", self.rig.store.describe());
        }
        let end = self.rig.store.group(PgId(1)).prepared_end;
        self.rig.store.commit(PgId(1), end);
        self.turns - first
    }

    /// One turn of an event loop: what was asked for is done, each kind of effect once.
    fn turn(&mut self) {
        let rig = &mut self.rig;
        rig.store.tick(Duration::from_micros(self.turns * 200));
        rig.store.pump();
        rig.take_effects();
        if rig.store.checkpoint_due() {
            rig.store.begin_checkpoint(|_| None);
        }
        rig.take_effects();
        for _ in 0..rig.disk.waiting.len() {
            rig.finish_write(0);
        }
        for _ in 0..rig.reads_waiting.len() {
            rig.finish_read(0);
        }
        for _ in 0..rig.map_waiting.len() {
            rig.finish_map(0);
        }
        rig.take_effects();
        rig.done.clear();
    }

    /// What was written last is there, and the accounts are right.
    pub fn check(&mut self) {
        self.rig.check_accounts();
        for (range, versions) in &self.ranges {
            for (at, version) in versions.iter().enumerate().step_by(997) {
                let (chunk, block) = range.place(at as u64);
                let got = self.rig.read(1, range.layer, chunk, block, 1).unwrap();
                assert_eq!(got, bytes_of(&filled(*version, 1), 1));
            }
        }
    }
}
