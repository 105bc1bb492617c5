//! Clients that overwrite some blocks often and others hardly, on a device whose writes end in any order.

use super::batch::{Batch, ENTRY_MOVED, KIND_MOVES};
use crate::common::{Disk, Rig, bytes_of, filled};
use azekura_base::{PgId, Sequence};
use azekura_store::{InMemoryMap, Options, SavedMap};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Chunks of which each has so many blocks. The last is written most.
const CHUNKS: u32 = 4;
const BLOCKS: u16 = 128;
/// Writes of a client that are under way at once.
pub const DEPTH: usize = 8;
/// Steps after which a round of writes counts as stuck.
const STEPS_MAX: usize = 5_000;

/// Much of the device is kept free, so that what is moved goes into segments of its own.
pub fn options() -> Options {
    Options {
        segments: 32,
        segment_blocks: 64,
        batch_blocks_max: 16,
        batch_records_max: 16,
        batches_in_flight_max: 4,
        leaf_cache_bytes_max: 64 << 10,
        read_cache_bytes_max: 0,
        cleaning_reserve_percent: 60,
        cleaning_blocks_in_flight_max: 48,
        replay_bytes_max: 6 * 64 * 4096,
        checkpoint_leaves_max: 4,
        ..Options::default()
    }
}

/// What of the unfinished writes a crash lets land.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lands {
    Nothing,
    All,
    /// Batches of the chain, and no moved blocks.
    Chain,
    /// Moved blocks, and nothing of the chain.
    Moves,
    /// Some sectors of each.
    Pieces,
}

/// At which moments with moved blocks there were crashes.
#[derive(Debug, Default)]
pub struct Crashes {
    /// Blocks are durable where they were moved to, and no record says so.
    pub before_the_record: u32,
    /// The same, and their segment is full.
    pub in_a_full_segment: u32,
    /// A record is durable, and nothing of it is applied.
    pub behind_the_record: u32,
    /// A segment that has held moved blocks was given to somebody else.
    pub after_reuse: u32,
}

pub struct Load {
    pub rig: Rig,
    options: Options,
    /// The place of each write; write `i` has sequence `i + 1`, and blocks that hold `i + 1`.
    writes: Vec<(u32, u16)>,
    acknowledged: u64,
    dice: u64,
    turns: u64,
    /// Addresses of blocks that are durable where they were moved to, and of which no durable record tells.
    placed: BTreeSet<u64>,
    /// Segments that have held moved blocks, and whose next write would begin at this block.
    pub apart: BTreeMap<u32, u32>,
    /// Those of them that were written anew.
    pub reused: BTreeSet<u32>,
    /// Segments into which the chain was written.
    pub chained: BTreeSet<u32>,
    pub crashes: Crashes,
    /// Of a segment of moved blocks: the generation of the last landed record that moves blocks to it.
    records: BTreeMap<u32, u64>,
    /// The generation with which each segment was opened last.
    opened: BTreeMap<u32, u64>,
    /// Moved blocks land only when nothing else is left to be done.
    pub holds_moves: bool,
}

impl Load {
    pub fn new(options: Options) -> Load {
        Load::on(Rig::format(&options), options, Vec::new())
    }

    fn on(rig: Rig, options: Options, writes: Vec<(u32, u16)>) -> Load {
        let acknowledged = writes.len() as u64;
        Load {
            rig,
            options,
            acknowledged,
            // The same device has another fate after each start.
            dice: 1 + acknowledged,
            writes,
            turns: 0,
            placed: BTreeSet::new(),
            apart: BTreeMap::new(),
            reused: BTreeSet::new(),
            chained: BTreeSet::new(),
            crashes: Crashes::default(),
            records: BTreeMap::new(),
            opened: BTreeMap::new(),
            holds_moves: false,
        }
    }

    pub fn roll(&mut self) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.dice >> 33
    }

    /// Writes all blocks once.
    pub fn fill(&mut self) {
        let all: Vec<_> = (0..CHUNKS).flat_map(|chunk| (0..BLOCKS).map(move |block| (chunk, block))).collect();
        all.chunks(DEPTH).for_each(|some| self.round(some, &mut |_| {}));
    }

    /// So many rounds of writes, mostly to the last chunk. At each step `look` may look.
    pub fn overwrite(&mut self, rounds: u32, look: &mut dyn FnMut(&mut Load)) {
        for _ in 0..rounds {
            let place = |load: &mut Load| {
                let hot = load.roll() % 100 < 85;
                let chunk = if hot { CHUNKS - 1 } else { load.roll() as u32 % (CHUNKS - 1) };
                (chunk, load.roll() as u16 % BLOCKS)
            };
            let places: Vec<_> = (0..DEPTH).map(|_| place(self)).collect();
            self.round(&places, look);
        }
    }

    fn round(&mut self, places: &[(u32, u16)], look: &mut dyn FnMut(&mut Load)) {
        for (chunk, block) in places {
            self.writes.push((*chunk, *block));
            let value = self.writes.len() as u64;
            let write = self.rig.next_write(1, 10, *chunk, *block, filled(value, 1), 1);
            assert_eq!(write.header.sequence, Sequence(value));
            self.rig.store.append(value, write);
        }
        for _ in 0..STEPS_MAX {
            self.turn();
            look(self);
            let waits = self.rig.store.prepared(PgId(1)).find(|prepared| !prepared.durable);
            self.acknowledged = waits.map_or(self.writes.len() as u64, |first| first.header.sequence.0 - 1);
            if self.acknowledged == self.writes.len() as u64 {
                self.rig.store.commit(PgId(1), Sequence(self.acknowledged));
                return;
            }
            self.step();
        }
        panic!("clients wait without an end: {}", self.rig.store.describe());
    }

    fn turn(&mut self) {
        self.turns += 1;
        self.rig.store.tick(Duration::from_micros(self.turns * 200));
        self.rig.store.pump();
        if self.rig.store.checkpoint_due() {
            self.rig.store.begin_checkpoint(|_| None);
        }
        self.rig.take_effects();
        self.rig.done.clear();
        self.look_at_writes();
    }

    /// No segment is written anew before a replay begins behind all records that move blocks to it, nor while a write
    /// of its earlier use may still land.
    fn look_at_writes(&mut self) {
        let mut under_way: BTreeMap<u32, u64> = BTreeMap::new();
        for (_, _, bytes) in &self.rig.disk.waiting {
            let Batch { segment, generation, .. } = Batch::of(bytes);
            let other = *under_way.entry(segment).or_insert(generation);
            assert_eq!(other, generation, "segment {segment} is written for two generations at once");
            if self.opened.insert(segment, generation) != Some(generation)
                && let Some(record) = self.records.remove(&segment)
            {
                let position = self.rig.map.root().unwrap().unwrap().root.position.generation;
                assert!(position > record, "segment {segment} is written anew, and a replay reads generation {record}");
            }
        }
    }

    /// One of the effects that are under way is done, whichever.
    fn step(&mut self) {
        let (writes, reads) = (self.rig.disk.waiting.len(), self.rig.reads_waiting.len());
        let all = writes + reads + self.rig.map_waiting.len();
        if all == 0 {
            return;
        }
        let mut index = self.roll() as usize % all;
        let is_held = |(_, _, bytes): &(_, _, Vec<u8>)| self.holds_moves && Batch::of(bytes).kind == KIND_MOVES;
        if index < writes && is_held(&self.rig.disk.waiting[index]) {
            let other = self.rig.disk.waiting.iter().position(|write| !is_held(write));
            index = other.unwrap_or(if all > writes { writes } else { index });
        }
        if index < writes {
            self.note(index);
            self.rig.finish_write(index);
        } else if index < writes + reads {
            self.rig.finish_read(index - writes);
        } else {
            self.rig.finish_map(index - writes - reads);
        }
    }

    /// Notes what the unfinished write `index` does, which is about to land.
    fn note(&mut self, index: usize) {
        let batch = Batch::of(&self.rig.disk.waiting[index].2);
        let base = 256 + u64::from(batch.segment * self.options.segment_blocks);
        if batch.kind != KIND_MOVES {
            self.chained.insert(batch.segment);
            self.reused.extend(self.apart.remove(&batch.segment).map(|_| batch.segment));
            for entry in batch.entries.iter().filter(|entry| entry.kind == ENTRY_MOVED) {
                let segment = (entry.new - 256) as u32 / self.options.segment_blocks;
                self.records.insert(segment, batch.generation);
                (entry.new..entry.new + u64::from(entry.count)).for_each(|at| {
                    self.placed.remove(&at);
                });
            }
            return;
        }
        let next = batch.block + batch.header_blocks + batch.payload_blocks;
        if self.apart.insert(batch.segment, next).is_some() && batch.block == 0 {
            self.reused.insert(batch.segment);
        }
        let segment = base..base + u64::from(self.options.segment_blocks);
        if batch.block == 0 {
            self.placed.retain(|at| !segment.contains(at));
        }
        let first = base + u64::from(batch.block + batch.header_blocks);
        self.placed.extend(first..first + u64::from(batch.payload_blocks));
    }

    /// Writes that a client was told are durable.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Something of what is moved is under way.
    pub fn moves_are_under_way(&self) -> bool {
        let waiting = self.rig.disk.waiting.iter().map(|(_, _, bytes)| Batch::of(bytes));
        let mut moves = waiting.filter(|batch| batch.kind == KIND_MOVES || batch.moves_blocks());
        !self.placed.is_empty() || moves.next().is_some()
    }

    /// The device and the map after a crash now, of which the store goes on to know nothing.
    pub fn crashed(&mut self, lands: Lands) -> (Disk, InMemoryMap) {
        let mut disk = self.rig.disk.clone();
        let waiting = std::mem::take(&mut disk.waiting);
        let mut told = false;
        for (_, offset, bytes) in waiting {
            let batch = Batch::of(&bytes);
            let whole = match lands {
                Lands::Nothing => continue,
                Lands::All => true,
                Lands::Chain => batch.kind != KIND_MOVES,
                Lands::Moves => batch.kind == KIND_MOVES,
                Lands::Pieces => {
                    for (sector, part) in bytes.chunks(512).enumerate() {
                        if !self.roll().is_multiple_of(4) {
                            disk.write(offset + sector as u64 * 512, part);
                        }
                    }
                    continue;
                }
            };
            if whole {
                disk.write(offset, &bytes);
                told |= batch.moves_blocks();
            }
        }
        self.crashes.behind_the_record += u32::from(told);
        self.crashes.before_the_record += u32::from(!self.placed.is_empty() && !told);
        let full = |at: &u64| {
            let segment = (at - 256) as u32 / self.options.segment_blocks;
            self.apart.get(&segment).is_some_and(|next| next + 2 >= self.options.segment_blocks)
        };
        self.crashes.in_a_full_segment += u32::from(self.placed.iter().any(full) && !told);
        self.crashes.after_reuse += u32::from(!self.reused.is_empty());
        (disk, self.rig.map.clone())
    }

    /// Opens what is left. All that was acknowledged is there, and what is there was written.
    pub fn reopened(&self, disk: Disk, map: InMemoryMap) -> Load {
        let rig = Rig::open(&self.options, disk, map).unwrap_or_else(|error| panic!("the device opens: {error}"));
        rig.check_accounts();
        let end = rig.store.group(PgId(1)).prepared_end.0;
        assert!(end >= self.acknowledged, "{end} of {} acknowledged writes are there", self.acknowledged);
        let writes = self.writes[..end as usize].to_vec();
        let mut load = Load::on(rig, self.options.clone(), writes);
        load.rig.store.commit(PgId(1), Sequence(end));
        load.rig.settle_map();
        load.check();
        load
    }

    /// Every block holds what was written last, and the accounts are right.
    pub fn check(&mut self) {
        self.rig.check_accounts();
        let last: BTreeMap<_, u64> = self.writes.iter().copied().zip(1..).collect();
        for chunk in 0..CHUNKS {
            let got = self.rig.read(1, 10, chunk, 0, BLOCKS).unwrap();
            for (block, got) in (0..).zip(got.chunks_exact(4096)) {
                let value = last.get(&(chunk, block)).copied();
                let want = value.map_or(vec![0; 4096], |value| bytes_of(&filled(value, 1), 1));
                assert!(got == want, "chunk {chunk} block {block} is not what write {value:?} wrote");
            }
        }
    }

    /// Everything comes to rest.
    pub fn settle(&mut self) {
        while !self.rig.disk.waiting.is_empty() {
            self.note(0);
            self.rig.finish_write(0);
            self.turn();
        }
        self.rig.settle_map();
    }
}
