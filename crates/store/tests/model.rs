//! The store against an executable model, with crashes at any moment.
//!
//! The model is a list of calls. The store's log is a sequence of records, and a crash keeps a prefix of it: so after
//! a crash there must be a prefix, at least as long as what was called durable, with which the model gives what the
//! store has.

#![allow(clippy::unwrap_used)]

mod common;

use azekura_base::{BlockIndex, ChunkIndex, LayerId, PgId, Sequence};
use azekura_store::{Body, Completion, Copy, Mark, Options, Report, Space, Store};
use common::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::{BTreeMap, BTreeSet};

const GROUPS: u32 = 3;
const CHUNKS: u32 = 6;

fn group_of(chunk: u32) -> u32 {
    chunk % GROUPS
}

/// Blocks of a chunk; a value of 0 stands for zeros.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    layer: u64,
    chunk: u32,
    first: u16,
    count: u16,
    value: u64,
}

impl Range {
    fn body(&self) -> Body {
        if self.value == 0 { Body::Zero } else { filled(self.value, self.count) }
    }
}

#[derive(Debug, Clone)]
enum Call {
    Write {
        record: usize,
        pg: u32,
        epoch: u64,
        sequence: u64,
        range: Range,
    },
    Copy {
        record: usize,
        range: Range,
    },
    Epoch {
        record: usize,
        pg: u32,
        epoch: u64,
        committed: u64,
        jump: bool,
    },
    Drop {
        record: usize,
        layer: u64,
    },
    /// What a job comes to is the same as before, but for a group that is forgotten.
    Merge {
        record: usize,
    },
    Mark {
        record: usize,
    },
    Forget {
        record: usize,
        pg: u32,
    },
    Commit {
        pg: u32,
        upto: u64,
    },
    Parent {
        layer: u64,
        parent: u64,
    },
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Group {
    epoch: u64,
    committed: u64,
    /// At most so much may be known as committed.
    committed_max: u64,
    prepared: BTreeMap<u64, (u64, Range)>,
    end: u64,
    epoch_lost: bool,
}

/// What a list of calls comes to.
#[derive(Debug, Clone, Default)]
struct State {
    groups: BTreeMap<u32, Group>,
    blocks: BTreeMap<(u64, u32), BTreeMap<u16, (u64, u16)>>,
    parents: BTreeMap<u64, u64>,
    dropped: BTreeSet<u64>,
}

impl State {
    /// Runs `calls`, leaving out records from `limit` on.
    fn run(calls: &[Call], limit: usize) -> State {
        let mut state = State::default();
        for call in calls {
            match *call {
                Call::Write { record, pg, epoch, sequence, range } if record < limit => {
                    let group = state.groups.entry(pg).or_default();
                    assert_eq!(sequence, group.end + 1);
                    group.end = sequence;
                    group.prepared.insert(sequence, (epoch, range));
                }
                Call::Copy { record, range } if record < limit => state.put(range),
                Call::Epoch { record, pg, epoch, committed, jump } => {
                    let group = state.groups.entry(pg).or_default();
                    if record >= limit {
                        if !jump && !group.epoch_lost {
                            group.committed_max = group.committed_max.max(committed.min(group.end));
                        }
                        group.epoch_lost = true;
                        continue;
                    }
                    let keep = if jump { group.committed } else { committed };
                    state.commit(pg, keep);
                    let group = state.groups.entry(pg).or_default();
                    group.prepared.clear();
                    group.epoch = epoch;
                    (group.committed, group.end) = (committed, committed);
                }
                Call::Drop { record, layer } if record < limit => {
                    state.dropped.insert(layer);
                    state.blocks.retain(|(l, _), _| *l != layer);
                }
                Call::Forget { record, pg } if record < limit => {
                    state.groups.remove(&pg);
                    state.blocks.retain(|(_, chunk), _| group_of(*chunk) != pg);
                }
                Call::Commit { pg, upto } => {
                    let group = state.groups.entry(pg).or_default();
                    if !group.epoch_lost {
                        let upto = upto.min(group.end);
                        state.commit(pg, upto);
                    }
                }
                Call::Parent { layer, parent } => {
                    state.parents.insert(layer, parent);
                }
                _ => {}
            }
        }
        state
    }

    fn commit(&mut self, pg: u32, upto: u64) {
        let group = self.groups.entry(pg).or_default();
        let mut ranges = Vec::new();
        while group.committed < upto {
            group.committed += 1;
            if let Some((_, range)) = group.prepared.remove(&group.committed) {
                ranges.push(range);
            }
        }
        group.committed_max = group.committed_max.max(group.committed);
        ranges.into_iter().for_each(|range| self.put(range));
    }

    fn put(&mut self, range: Range) {
        if self.dropped.contains(&range.layer) {
            return;
        }
        let key = (range.layer, range.chunk);
        if !self.blocks.contains_key(&key) {
            let inherited = self.nearest(range.layer, range.chunk);
            if inherited.is_none() && range.value == 0 {
                return;
            }
            self.blocks.insert(key, inherited.unwrap_or_default());
        }
        let leaf = self.blocks.get_mut(&key).unwrap();
        for index in 0..range.count {
            if range.value == 0 {
                leaf.remove(&(range.first + index));
            } else {
                leaf.insert(range.first + index, (range.value, index));
            }
        }
    }

    fn nearest(&self, layer: u64, chunk: u32) -> Option<BTreeMap<u16, (u64, u16)>> {
        let mut layer = layer;
        loop {
            if let Some(leaf) = self.blocks.get(&(layer, chunk)) {
                return Some(leaf.clone());
            }
            layer = *self.parents.get(&layer)?;
        }
    }

    fn read(&self, layer: u64, chunk: u32, first: u16, count: u16) -> Vec<u8> {
        let leaf = self.nearest(layer, chunk).unwrap_or_default();
        let mut out = Vec::new();
        for block in first..first + count {
            match leaf.get(&block) {
                Some((value, index)) => {
                    let body = bytes_of(&filled(*value, index + 1), index + 1);
                    out.extend_from_slice(&body[usize::from(*index) * 4096..]);
                }
                None => out.resize(out.len() + 4096, 0),
            }
        }
        out
    }
}

#[derive(Debug, Clone)]
enum Action {
    Write { chunk: u32, first: u16, count: u16, zero: bool },
    Copy { chunk: u32, first: u16, count: u16, zero: bool },
    Commit { pg: u32, back: u64 },
    Epoch { pg: u32, back: u64 },
    Jump { pg: u32, by: u64 },
    Rejoin { pg: u32, by: u64 },
    Mark { chunk: u32 },
    Forget { pg: u32 },
    Read { age: u8, chunk: u32, first: u16, count: u16 },
    Snapshot,
    Clone { age: u8 },
    Merge { age: u8 },
    Drop,
    DropClone,
    Pump,
    FinishWrite(u8),
    FinishRead(u8),
    FinishMap(u8),
    Checkpoint,
    Tick(u16),
    Settle,
    Crash { seed: u64, coarse: bool, checkpoint_lands: bool, interrupted: u8 },
}

fn action() -> impl Strategy<Value = Action> {
    let chunk = 0..CHUNKS;
    let chunk_again = chunk.clone();
    let first = 0u16..20;
    let count = prop_oneof![4 => 1u16..2, 2 => 2u16..5, 1 => 5u16..13];
    prop_oneof![
        24 => (chunk.clone(), first.clone(), count.clone(), prop::bool::weighted(0.12))
            .prop_map(|(chunk, first, count, zero)| Action::Write { chunk, first, count, zero }),
        2 => (chunk.clone(), first.clone(), count.clone(), prop::bool::weighted(0.1))
            .prop_map(|(chunk, first, count, zero)| Action::Copy { chunk, first, count, zero }),
        12 => (0..GROUPS, 0u64..3).prop_map(|(pg, back)| Action::Commit { pg, back }),
        1 => (0..GROUPS, 0u64..4).prop_map(|(pg, back)| Action::Epoch { pg, back }),
        1 => (0..GROUPS, 1u64..9).prop_map(|(pg, by)| Action::Jump { pg, by }),
        8 => (0u8..3, chunk, first, count).prop_map(|(age, chunk, first, count)| Action::Read { age, chunk, first, count }),
        1 => (0..GROUPS, 0u64..6).prop_map(|(pg, by)| Action::Rejoin { pg, by }),
        1 => chunk_again.prop_map(|chunk| Action::Mark { chunk }),
        1 => prop::bool::weighted(0.3).prop_flat_map(|rare| if rare { 0..GROUPS } else { GROUPS..GROUPS + 1 })
            .prop_map(|pg| Action::Forget { pg }),
        2 => Just(Action::Snapshot),
        1 => (0u8..3).prop_map(|age| Action::Clone { age }),
        2 => (0u8..3).prop_map(|age| Action::Merge { age }),
        1 => Just(Action::Drop),
        1 => Just(Action::DropClone),
        10 => Just(Action::Pump),
        14 => any::<u8>().prop_map(Action::FinishWrite),
        8 => any::<u8>().prop_map(Action::FinishRead),
        8 => any::<u8>().prop_map(Action::FinishMap),
        2 => Just(Action::Checkpoint),
        1 => (0u16..50_000).prop_map(Action::Tick),
        2 => Just(Action::Settle),
        1 => (any::<u64>(), any::<bool>(), any::<bool>(), 0u8..12).prop_map(
            |(seed, coarse, checkpoint_lands, interrupted)| Action::Crash { seed, coarse, checkpoint_lands, interrupted }
        ),
    ]
}

/// A small generator for which sectors land.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

struct World {
    options: Options,
    rig: Option<Rig>,
    calls: Vec<Call>,
    /// Records so far; record `i` has token `i`.
    records: usize,
    /// Records called durable: all below this.
    durable: usize,
    durable_seen: BTreeSet<usize>,
    value: u64,
    /// From the oldest snapshot to the head.
    layers: Vec<u64>,
    /// Heads on one of those.
    clones: Vec<u64>,
    /// The tree as the store knows it.
    tree: BTreeMap<u64, u64>,
    /// Layers that are being merged, into which, and by which record.
    merging: Vec<(u64, u64, usize)>,
    next_layer: u64,
    reads: BTreeMap<u64, (Vec<u8>, u16, u16)>,
    next_read: u64,
    time: u64,
}

const READ_TOKENS: u64 = 1 << 40;

impl World {
    fn new(options: Options) -> World {
        let rig = Rig::format(&options);
        World {
            options,
            rig: Some(rig),
            calls: Vec::new(),
            records: 0,
            durable: 0,
            durable_seen: BTreeSet::new(),
            value: 0,
            layers: vec![1],
            clones: Vec::new(),
            tree: BTreeMap::new(),
            merging: Vec::new(),
            next_layer: 2,
            reads: BTreeMap::new(),
            next_read: READ_TOKENS,
            time: 0,
        }
    }

    fn rig(&mut self) -> &mut Rig {
        self.rig.as_mut().unwrap()
    }

    fn store(&mut self) -> &mut Store {
        &mut self.rig().store
    }

    fn space(&mut self) -> Space {
        self.store().space()
    }

    fn new_record(&mut self) -> (usize, u64) {
        self.records += 1;
        (self.records - 1, (self.records - 1) as u64)
    }

    fn range(&mut self, chunk: u32, first: u16, count: u16, zero: bool) -> Range {
        self.value += 1;
        let clone = self.clones.first().filter(|_| self.value.is_multiple_of(4));
        let layer = *clone.unwrap_or(self.layers.last().unwrap());
        let value = if zero { 0 } else { self.value };
        Range { layer, chunk, first, count, value }
    }

    fn on_top(&mut self, parent: u64) -> u64 {
        let layer = self.next_layer;
        self.next_layer += 1;
        self.calls.push(Call::Parent { layer, parent });
        self.tree.insert(layer, parent);
        self.store().set_parent(LayerId(layer), LayerId(parent));
        layer
    }

    fn merge(&mut self, layer: u64, into: u64) {
        let (record, token) = self.new_record();
        self.calls.push(Call::Merge { record });
        self.merging.push((layer, into, record));
        self.store().merge_layer(token, LayerId(layer), LayerId(into));
    }

    /// The group that an action is about, if it needs it whole.
    fn needs_group(action: &Action) -> Option<u32> {
        match *action {
            Action::Write { chunk, .. } | Action::Copy { chunk, .. } | Action::Mark { chunk } => Some(group_of(chunk)),
            Action::Read { chunk, .. } => Some(group_of(chunk)),
            Action::Commit { pg, .. } | Action::Epoch { pg, .. } | Action::Jump { pg, .. } => Some(pg),
            Action::Rejoin { pg, .. } | Action::Forget { pg } => Some(pg),
            _ => None,
        }
    }

    fn act(&mut self, action: &Action) {
        if Self::needs_group(action).is_some_and(|pg| self.store().is_forgetting(PgId(pg))) {
            return;
        }
        match *action {
            Action::Write { chunk, first, count, zero } => {
                if self.space().full && !zero {
                    return;
                }
                let range = self.range(chunk, first, count, zero);
                let pg = group_of(chunk);
                let write = self.rig().next_write(pg, range.layer, chunk, first, range.body(), count);
                let (record, token) = self.new_record();
                let (epoch, sequence) = (write.epoch.0, write.sequence.0);
                self.calls.push(Call::Write { record, pg, epoch, sequence, range });
                self.store().append(token, write);
            }
            Action::Copy { chunk, first, count, zero } => {
                if self.space().full && !zero {
                    return;
                }
                let range = self.range(chunk, first, count, zero);
                let pg = PgId(group_of(chunk));
                // A crash may have left writes to a frozen layer uncommitted here. The other replica has committed them,
                // or it could not have what it sends; so this one has to, before it takes the copy.
                if self.store().prepared(pg).any(|write| write.layer.0 != range.layer) {
                    self.act(&Action::Commit { pg: pg.0, back: 0 });
                }
                let sequence = self.store().group(pg).committed;
                let (record, token) = self.new_record();
                self.calls.push(Call::Copy { record, range });
                let copy = Copy {
                    pg,
                    sequence,
                    layer: LayerId(range.layer),
                    chunk: ChunkIndex(chunk),
                    first: BlockIndex(first),
                    count,
                    body: range.body(),
                };
                self.store().append(token, copy);
            }
            Action::Commit { pg, back } => {
                let group = self.store().group(PgId(pg));
                let upto = group.prepared_end.0.saturating_sub(back).max(group.committed.0);
                self.calls.push(Call::Commit { pg, upto });
                self.store().commit(PgId(pg), Sequence(upto));
            }
            Action::Epoch { pg, back } => {
                let group = self.store().group(PgId(pg));
                let committed = group.prepared_end.0.saturating_sub(back).max(group.committed.0);
                self.start_epoch(pg, group.epoch.0 + 1, committed);
            }
            Action::Jump { pg, by } => {
                let group = self.store().group(PgId(pg));
                self.start_epoch(pg, group.epoch.0 + 1, group.prepared_end.0 + by);
            }
            Action::Rejoin { pg, by } => {
                let group = self.store().group(PgId(pg));
                let (epoch, committed) = (group.epoch.0 + 1, group.committed.0 + by);
                let (record, token) = self.new_record();
                self.calls.push(Call::Epoch { record, pg, epoch, committed, jump: true });
                self.store().rejoin(token, PgId(pg), common::epoch(epoch), Sequence(committed));
            }
            Action::Mark { chunk } => {
                let layer = self.range(chunk, 0, 1, true).layer;
                let pg = PgId(group_of(chunk));
                if self.store().prepared(pg).any(|write| write.layer.0 != layer) {
                    self.act(&Action::Commit { pg: pg.0, back: 0 });
                }
                let sequence = self.store().group(pg).committed;
                let (record, token) = self.new_record();
                self.calls.push(Call::Mark { record });
                let mark = Mark { pg, sequence, layer: LayerId(layer), chunk: ChunkIndex(chunk) };
                self.store().append(token, mark);
            }
            Action::Forget { pg } => {
                if pg >= GROUPS || !self.reads.is_empty() {
                    return;
                }
                let (record, token) = self.new_record();
                self.calls.push(Call::Forget { record, pg });
                self.store().forget_group(token, PgId(pg));
            }
            Action::Clone { age } => {
                let frozen = self.layers.len() - 1;
                if self.clones.is_empty() && frozen > 0 {
                    let parent = self.layers[usize::from(age) % frozen];
                    let clone = self.on_top(parent);
                    self.clones.push(clone);
                }
            }
            Action::Merge { age } => {
                let frozen = self.layers.len() - 1;
                if frozen == 0 || !self.reads.is_empty() {
                    return;
                }
                let index = usize::from(age) % frozen;
                let (layer, into) = (self.layers[index], self.layers[index + 1]);
                let children = self.tree.values().filter(|parent| **parent == layer).count();
                if children == 1 && self.tree.get(&into) == Some(&layer) {
                    self.layers.remove(index);
                    self.merge(layer, into);
                }
            }
            Action::DropClone => {
                if !self.reads.is_empty() {
                    return;
                }
                let Some(layer) = self.clones.pop() else { return };
                let (record, token) = self.new_record();
                self.calls.push(Call::Drop { record, layer });
                self.store().drop_layer(token, LayerId(layer));
            }
            Action::Read { age, chunk, first, count } => {
                let layer = self.layers[self.layers.len().saturating_sub(1 + usize::from(age))];
                let expected = State::run(&self.calls, usize::MAX).read(layer, chunk, first, count);
                let token = self.next_read;
                self.next_read += 1;
                self.reads.insert(token, (expected, first, count));
                let pg = PgId(group_of(chunk));
                self.store().read(token, pg, LayerId(layer), ChunkIndex(chunk), BlockIndex(first), count);
            }
            Action::Snapshot => {
                if self.layers.len() >= 4 {
                    return;
                }
                // A snapshot is a cut: writes to the frozen layer are committed before the new one takes any.
                for pg in 0..GROUPS {
                    self.act(&Action::Commit { pg, back: 0 });
                }
                let layer = self.on_top(*self.layers.last().unwrap());
                self.layers.push(layer);
            }
            Action::Drop => {
                // Nothing may read a layer that goes.
                let head = *self.layers.last().unwrap();
                if !self.reads.is_empty() || self.merging.iter().any(|(_, into, _)| *into == head) {
                    return;
                }
                let layer = self.layers.pop().unwrap();
                let (record, token) = self.new_record();
                self.calls.push(Call::Drop { record, layer });
                self.store().drop_layer(token, LayerId(layer));
                if self.layers.is_empty() {
                    self.layers.push(self.next_layer);
                    self.next_layer += 1;
                } else {
                    // The parent is frozen: a new head goes on top of it.
                    let head = self.on_top(*self.layers.last().unwrap());
                    self.layers.push(head);
                }
                self.settle();
            }
            Action::Pump => {
                self.store().pump();
                self.rig().take_effects();
            }
            Action::FinishWrite(index) => {
                self.rig().take_effects();
                let waiting = self.rig().disk.waiting.len();
                if waiting > 0 {
                    self.rig().finish_write(usize::from(index) % waiting);
                }
            }
            Action::FinishRead(index) => {
                self.rig().take_effects();
                let waiting = self.rig().reads_waiting.len();
                if waiting > 0 {
                    self.rig().finish_read(usize::from(index) % waiting);
                }
            }
            Action::FinishMap(index) => {
                self.rig().take_effects();
                let waiting = self.rig().map_waiting.len();
                if waiting > 0 {
                    self.rig().finish_map(usize::from(index) % waiting);
                }
            }
            Action::Checkpoint => self.store().begin_checkpoint(|_| None),
            Action::Tick(ms) => {
                self.time += u64::from(ms);
                let now = std::time::Duration::from_millis(self.time);
                self.store().tick(now);
            }
            Action::Settle => self.settle(),
            Action::Crash { seed, coarse, checkpoint_lands, interrupted } => {
                self.crash(seed, coarse, checkpoint_lands, interrupted);
            }
        }
        self.look();
    }

    fn start_epoch(&mut self, pg: u32, epoch: u64, committed: u64) {
        let (record, token) = self.new_record();
        let jump = committed > self.store().group(PgId(pg)).prepared_end.0;
        self.calls.push(Call::Epoch { record, pg, epoch, committed, jump });
        self.store().start_epoch(token, PgId(pg), common::epoch(epoch), Sequence(committed));
    }

    fn settle(&mut self) {
        self.rig().settle();
        self.look();
        assert!(self.reads.is_empty(), "reads without an end");
        let space = self.space();
        let state = self.store().describe();
        assert_eq!(self.durable, self.records, "records that never became durable: {space:?}; {state}");
        self.rig().check_accounts();
    }

    /// Looks at what the store has told.
    fn look(&mut self) {
        self.rig().take_effects();
        for completion in std::mem::take(&mut self.rig().done) {
            match completion {
                Completion::Durable { token } => self.record_settled(token as usize),
                // It was never there.
                Completion::Dropped { token } => {
                    self.calls.retain(|call| !matches!(call, Call::Write { record, .. } if *record == token as usize));
                    self.record_settled(token as usize);
                }
                Completion::Read { token, result } => {
                    let (expected, first, count) = self.reads.remove(&token).unwrap();
                    let got = flatten(&result.unwrap(), first, count);
                    assert!(got == expected, "a read of {count} blocks from {first} gave something else");
                }
                Completion::Checkpointed => {}
                other => panic!("{other:?}"),
            }
        }
        for report in std::mem::take(&mut self.rig().reports) {
            match report {
                Report::LayerGone { layer } => self.layer_gone(layer.0),
                Report::Forgotten { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn record_settled(&mut self, record: usize) {
        self.durable_seen.insert(record);
        while self.durable_seen.remove(&self.durable) {
            self.durable += 1;
        }
    }

    /// What the configuration does when a device says that a layer is gone.
    fn layer_gone(&mut self, layer: u64) {
        let parent = self.tree.remove(&layer);
        let merged = self.merging.iter().position(|(merged, ..)| *merged == layer);
        let Some((_, into, _)) = merged.map(|index| self.merging.remove(index)) else {
            return self.store().clear_parent(LayerId(layer));
        };
        match parent {
            Some(parent) => {
                self.tree.insert(into, parent);
                self.store().set_parent(LayerId(into), LayerId(parent));
            }
            None => {
                self.tree.remove(&into);
                self.store().clear_parent(LayerId(into));
            }
        }
    }

    fn crash(&mut self, seed: u64, coarse: bool, checkpoint_lands: bool, interrupted: u8) {
        let mut dice = Dice(seed);
        let mut rig = self.rig.take().unwrap();
        rig.take_effects();
        if checkpoint_lands {
            while !rig.map_waiting.is_empty() {
                rig.finish_map(0);
            }
        }
        let whole = dice.roll() % 3;
        let mut fates = BTreeMap::new();
        let (mut disk, mut map) = rig.crash(|write, sector| {
            let sector = if coarse { sector / 8 } else { sector };
            // Whole writes are lost or landed in two of three crashes.
            let part = if whole > 0 { 0 } else { sector };
            *fates.entry((write, part)).or_insert_with(|| dice.roll().is_multiple_of(2))
        });
        self.reads.clear();
        let parents: Vec<(u64, u64)> = self.tree.iter().map(|(layer, parent)| (*layer, *parent)).collect();
        let prepare = |store: &mut Store| {
            for (layer, parent) in &parents {
                store.set_parent(LayerId(*layer), LayerId(*parent));
            }
        };
        if interrupted < 6 {
            (disk, map) = interrupted_open(&self.options, disk, map, &prepare, interrupted);
        }
        let mut rig = Rig::open_with(&self.options, disk, map, prepare).expect("the device opens");
        rig.check_accounts();
        self.match_prefix(&mut rig);
        self.rig = Some(rig);
        // A merge whose record was lost is asked for again.
        for (layer, into, record) in std::mem::take(&mut self.merging) {
            if record < self.records {
                self.merging.push((layer, into, record));
            } else {
                self.merge(layer, into);
            }
        }
    }

    /// Finds the prefix of the records that the store has, and goes on from there.
    fn match_prefix(&mut self, rig: &mut Rig) {
        let mut reasons = Vec::new();
        for limit in (self.durable..=self.records).rev() {
            let mut state = State::run(&self.calls, limit);
            match self.compare_groups(rig, &state) {
                Ok(()) => {}
                Err(reason) => {
                    reasons.push(format!("{limit}: {reason}"));
                    continue;
                }
            }
            // Contents are compared with all commit points brought level, which leaves the groups comparable.
            let mut level = Vec::new();
            for pg in (0..GROUPS).filter(|pg| !rig.store.is_forgetting(PgId(*pg))) {
                let ours = state.groups.get(&pg).map_or(0, |g| g.committed);
                let theirs = rig.store.group(PgId(pg)).committed.0;
                level.push((pg, ours.max(theirs)));
                state.commit(pg, theirs);
            }
            let mut trial = Vec::new();
            for (pg, upto) in &level {
                rig.store.commit(PgId(*pg), Sequence(*upto));
                trial.push(Call::Commit { pg: *pg, upto: *upto });
            }
            let layers = self.layers.iter().chain(&self.clones).copied();
            let layers: BTreeSet<u64> = layers.filter(|l| !state.dropped.contains(l)).collect();
            let mut same = true;
            for layer in &layers {
                for chunk in 0..CHUNKS {
                    if rig.store.is_forgetting(PgId(group_of(chunk))) {
                        continue;
                    }
                    let got = rig.read(group_of(chunk), *layer, chunk, 0, 32).unwrap();
                    let want = state.read(*layer, chunk, 0, 32);
                    if got != want {
                        let block = (0..32).find(|b| got[b * 4096..(b + 1) * 4096] != want[b * 4096..(b + 1) * 4096]);
                        reasons.push(format!("{limit}: layer {layer} chunk {chunk} block {block:?} differs"));
                        same = false;
                    }
                }
            }
            if same {
                self.shorten(limit);
                self.calls.extend(trial);
                self.records = limit;
                self.durable = limit;
                self.durable_seen.clear();
                return;
            }
        }
        panic!("no prefix of at least {} of {} records fits: {reasons:#?}", self.durable, self.records);
    }

    /// Takes the records from `limit` on out of the calls, and with them what they made possible: a commit of what was
    /// lost must not commit what comes in its place.
    fn shorten(&mut self, limit: usize) {
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        let mut epochs_lost: BTreeSet<u32> = BTreeSet::new();
        self.calls.retain_mut(|call| match call {
            Call::Write { record, pg, sequence, .. } => {
                let kept = *record < limit;
                if kept {
                    ends.insert(*pg, *sequence);
                }
                kept
            }
            Call::Epoch { record, pg, committed, .. } => {
                let kept = *record < limit;
                if kept {
                    ends.insert(*pg, *committed);
                } else {
                    epochs_lost.insert(*pg);
                }
                kept
            }
            Call::Copy { record, .. } | Call::Drop { record, .. } => *record < limit,
            Call::Merge { record } | Call::Mark { record } => *record < limit,
            Call::Forget { record, pg } => {
                let kept = *record < limit;
                if kept {
                    ends.remove(pg);
                    epochs_lost.remove(pg);
                }
                kept
            }
            Call::Commit { pg, upto } => {
                *upto = (*upto).min(ends.get(pg).copied().unwrap_or(0));
                !epochs_lost.contains(pg)
            }
            Call::Parent { .. } => true,
        });
    }

    fn compare_groups(&self, rig: &Rig, state: &State) -> Result<(), String> {
        for pg in (0..GROUPS).filter(|pg| !rig.store.is_forgetting(PgId(*pg))) {
            let ours = state.groups.get(&pg).cloned().unwrap_or_default();
            let theirs = rig.store.group(PgId(pg));
            if theirs.prepared_end.0 != ours.end {
                return Err(format!("group {pg} ends at {}, not {}", theirs.prepared_end, ours.end));
            }
            if theirs.epoch.0 != ours.epoch {
                return Err(format!("group {pg} is in epoch {}, not {}", theirs.epoch, ours.epoch));
            }
            if theirs.committed.0 > ours.committed_max.max(ours.committed) {
                return Err(format!("group {pg} is committed to {}, not {}", theirs.committed, ours.committed));
            }
            for info in rig.store.prepared(PgId(pg)).filter(|info| info.sequence.0 > ours.committed) {
                let Some((epoch, range)) = ours.prepared.get(&info.sequence.0) else {
                    return Err(format!("group {pg} has prepared {}", info.sequence));
                };
                let same = info.epoch.0 == *epoch
                    && (info.layer.0, info.chunk.0, info.first.0) == (range.layer, range.chunk, range.first)
                    && info.count == range.count
                    && info.zero == (range.value == 0)
                    && info.durable;
                if !same {
                    return Err(format!("group {pg} has {info:?} for {range:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Opens, but dies after some effects.
fn interrupted_open(
    options: &Options,
    disk: Disk,
    map: azekura_store::MemoryMap,
    prepare: &dyn Fn(&mut Store),
    effects: u8,
) -> (Disk, azekura_store::MemoryMap) {
    use azekura_store::SavedMap;
    let root = map.root().unwrap().unwrap();
    let mut store = Store::open(options.clone(), IDENTITY, root);
    prepare(&mut store);
    let mut rig = Rig::around(store, disk, map);
    for _ in 0..effects {
        rig.take_effects();
        if !rig.reads_waiting.is_empty() {
            rig.finish_read(0);
        } else if !rig.map_waiting.is_empty() {
            rig.finish_map(0);
        }
    }
    rig.crash(|_, _| false)
}

/// Histories are the same in every run, so that a failure is of the change at hand. PROPTEST_CASES in the environment asks for so
/// many fresh ones; whoever changes the store runs some thousands.
fn config(cases: u32) -> ProptestConfig {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let fresh = number("PROPTEST_CASES");
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: fresh.unwrap_or(cases),
        max_shrink_iters: number("PROPTEST_MAX_SHRINK_ITERS").unwrap_or(1_000),
        failure_persistence: None,
        rng_seed: if fresh.is_some() { default.rng_seed } else { RngSeed::Fixed(1) },
        ..default
    }
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn any_history_with_crashes_gives_what_the_model_gives(actions in prop::collection::vec(action(), 1..400)) {
        let mut world = World::new(tiny());
        for action in &actions {
            world.act(action);
        }
        world.settle();
    }

}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn any_long_history_on_a_small_device_gives_what_the_model_gives(
        actions in prop::collection::vec(action(), 600..1500),
    ) {
        let mut world = World::new(small());
        for action in &actions {
            world.act(action);
        }
        world.settle();
    }
}

/// Histories that once failed, one action a line: its name and its values in the order of its fields.
fn replay(history: &str, options: Options) {
    let mut world = World::new(options);
    for line in history.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        world.act(&parse(line));
    }
    world.settle();
}

fn parse(line: &str) -> Action {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |index: usize| words[index].parse::<u64>().unwrap();
    let flag = |index: usize| words[index] == "true";
    let (chunk, first, count) = (|| number(1) as u32, || number(2) as u16, || number(3) as u16);
    match words[0] {
        "Write" => Action::Write { chunk: chunk(), first: first(), count: count(), zero: flag(4) },
        "Copy" => Action::Copy { chunk: chunk(), first: first(), count: count(), zero: flag(4) },
        "Commit" => Action::Commit { pg: chunk(), back: number(2) },
        "Epoch" => Action::Epoch { pg: chunk(), back: number(2) },
        "Jump" => Action::Jump { pg: chunk(), by: number(2) },
        "Read" => {
            Action::Read { age: number(1) as u8, chunk: number(2) as u32, first: count(), count: number(4) as u16 }
        }
        "Rejoin" => Action::Rejoin { pg: chunk(), by: number(2) },
        "Mark" => Action::Mark { chunk: chunk() },
        "Forget" => Action::Forget { pg: chunk() },
        "Snapshot" => Action::Snapshot,
        "Clone" => Action::Clone { age: number(1) as u8 },
        "Merge" => Action::Merge { age: number(1) as u8 },
        "DropClone" => Action::DropClone,
        "Drop" => Action::Drop,
        "Pump" => Action::Pump,
        "FinishWrite" => Action::FinishWrite(number(1) as u8),
        "FinishRead" => Action::FinishRead(number(1) as u8),
        "FinishMap" => Action::FinishMap(number(1) as u8),
        "Checkpoint" => Action::Checkpoint,
        "Tick" => Action::Tick(number(1) as u16),
        "Settle" => Action::Settle,
        "Crash" => {
            Action::Crash { seed: number(1), coarse: flag(2), checkpoint_lands: flag(3), interrupted: number(4) as u8 }
        }
        other => panic!("no action is called {other}"),
    }
}

fn small() -> Options {
    Options { segments: 14, segment_blocks: 48, gc_blocks_in_flight_max: 24, ..tiny() }
}

#[test]
fn a_gap_that_an_epoch_left_is_no_damage() {
    replay(include_str!("histories/gap-that-an-epoch-left.txt"), tiny());
}

#[test]
fn a_copy_is_replayed_before_a_relocation_after_it() {
    replay(include_str!("histories/copy-before-relocation.txt"), small());
}

#[test]
fn no_record_tells_a_commit_ahead_of_a_copy_that_waits() {
    replay(include_str!("histories/commit-ahead-of-copy.txt"), small());
}

/// Makes the history in the file that HISTORY names as short as it can be while it fails with a message that contains
/// WHY, and prints it: cargo test -p azekura-store --test model minimise -- --ignored --nocapture
#[test]
#[ignore = "a tool"]
fn minimise() {
    let Ok(file) = std::env::var("HISTORY") else { return };
    let why = std::env::var("WHY").unwrap_or_default();
    let options = if std::env::var("SMALL").is_ok() { small() } else { tiny() };
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let fails = |lines: &[&str]| {
        let (history, options) = (lines.join("\n"), options.clone());
        let error = std::panic::catch_unwind(move || replay(&history, options)).err()?;
        error.downcast_ref::<String>().cloned().filter(|message| message.contains(&why))
    };
    std::panic::set_hook(Box::new(|_| {}));
    let mut size = lines.len();
    while size > 0 {
        let mut at = 0;
        while at < lines.len() {
            let mut shorter = lines.clone();
            shorter.drain(at..(at + size).min(lines.len()));
            if fails(&shorter).is_some() {
                lines = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    println!("# {:?}\n{}", fails(&lines), lines.join("\n"));
}

#[test]
fn a_group_holds_what_it_has_committed_until_its_end_is_durable() {
    replay(include_str!("histories/end-of-a-group-lost.txt"), tiny());
    replay(include_str!("histories/end-of-a-group-lost-long.txt"), small());
}

#[test]
fn a_gap_that_the_end_of_a_group_left_is_no_damage() {
    replay(include_str!("histories/gap-that-the-end-of-a-group-left.txt"), tiny());
}

#[test]
fn a_merge_waits_for_writes_that_may_come_back() {
    replay(include_str!("histories/merge-before-an-epoch-is-durable.txt"), small());
}

#[test]
fn a_relocation_reaches_a_layer_whose_merge_is_done_again() {
    replay(include_str!("histories/relocation-after-a-merge.txt"), small());
}

#[test]
fn a_leaf_that_is_made_after_a_copy_does_not_take_it_again() {
    replay(include_str!("histories/leaf-made-after-a-copy.txt"), tiny());
}

#[test]
fn a_batch_that_was_given_up_does_not_come_back() {
    replay(include_str!("histories/batch-given-up-comes-back.txt"), tiny());
}

#[test]
fn an_epoch_that_is_durable_counts_while_a_later_one_waits() {
    replay(include_str!("histories/two-epochs-on-their-way.txt"), tiny());
}

#[test]
fn a_copy_goes_into_a_leaf_that_replay_makes() {
    replay(include_str!("histories/copy-into-a-new-leaf.txt"), small());
}

#[test]
fn a_relocation_reaches_all_heirs_whatever_was_saved() {
    replay(include_str!("histories/leaves-of-different-age.txt"), small());
}

/// The blocks of a layer that is merged wait to be moved under its name meanwhile.
#[test]
fn a_relocation_that_was_queued_before_a_merge_is_found_by_the_next_one() {
    replay(include_str!("histories/relocation-queued-before-a-merge.txt"), small());
}

/// A relocation that names a layer which has ended can't be replayed: nobody knows who inherits from it.
#[test]
fn nothing_is_moved_under_the_name_of_a_layer_that_has_ended() {
    replay(include_str!("histories/relocation-after-the-end-of-its-layer.txt"), small());
}
