//! A store and its model, to which the same happens.

use super::actions::Action;
use super::moves::Moves;
use super::opening::interrupted_open;
use super::state::*;
use super::troubles::Troubles;
use crate::common::*;
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
use azekura_store::{Completion, Mark, Options, ReadError, Repair, Report, Space, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A small generator for which sectors land.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

pub struct World {
    options: Options,
    rig: Option<Rig>,
    pub calls: Vec<Call>,
    /// Records so far; record `i` has token `i`.
    records: usize,
    /// Records called durable: all below this.
    pub durable: usize,
    durable_seen: BTreeSet<usize>,
    value: u64,
    /// From the oldest snapshot to the head.
    pub layers: Vec<u64>,
    /// Heads on one of those.
    pub clones: Vec<u64>,
    /// The tree as the store knows it.
    pub tree: BTreeMap<u64, u64>,
    /// Layers that are being merged, into which, and by which record.
    pub merging: Vec<(u64, u64, usize)>,
    pub next_layer: u64,
    /// What each read should give, of which chunk, from which block on, and how many.
    reads: BTreeMap<u64, (Vec<u8>, u32, u16, u16)>,
    next_read: u64,
    pub time: u64,
    pub troubles: Troubles,
    pub moves: Moves,
}

pub const READ_TOKENS: u64 = 1 << 40;
/// Times that the same blocks are written until the log has gone round, at most.
const ROUNDS_MAX: usize = 400;

impl World {
    pub fn new(options: Options) -> World {
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
            troubles: Troubles::default(),
            moves: Moves::default(),
        }
    }

    pub fn rig(&mut self) -> &mut Rig {
        self.rig.as_mut().unwrap()
    }

    pub fn store(&mut self) -> &mut Store {
        &mut self.rig().store
    }

    pub fn space(&mut self) -> Space {
        self.store().space()
    }

    pub fn new_record(&mut self) -> (usize, u64) {
        self.records += 1;
        (self.records - 1, (self.records - 1) as u64)
    }

    /// Blocks come from another replica, or word that there is none that has them.
    fn copy(&mut self, range: Range) {
        if self.space().full && range.value != 0 {
            return;
        }
        let Range { chunk, first, count, .. } = range;
        let pg = PgId(group_of(chunk));
        // A crash may have left writes to a frozen layer uncommitted here. The other replica has committed them,
        // or it could not have what it sends; so this one has to, before it takes the copy.
        if self.store().prepared(pg).any(|write| write.header.range.layer.0 != range.layer) {
            self.act(&Action::Commit { pg: pg.0, back: 0 });
        }
        let sequence = self.store().group(pg).committed;
        let (record, token) = self.new_record();
        self.calls.push(Call::Repair { record, range });
        let copy = Repair { pg, sequence, range: blocks(range.layer, chunk, first, count), body: range.body() };
        self.store().append(token, copy);
    }

    pub fn range(&mut self, chunk: u32, first: u16, count: u16, zero: bool) -> Range {
        self.value += 1;
        let clone = self.clones.first().filter(|_| self.value.is_multiple_of(4));
        let layer = *clone.unwrap_or(self.layers.last().unwrap());
        let value = if zero { 0 } else { self.value };
        Range { layer, chunk, first, count, value }
    }

    pub fn on_top(&mut self, parent: u64) -> u64 {
        let layer = self.next_layer;
        self.next_layer += 1;
        self.calls.push(Call::Parent { layer, parent });
        self.tree.insert(layer, parent);
        self.store().set_parent(LayerId(layer), LayerId(parent));
        layer
    }

    pub fn merge(&mut self, layer: u64, into: u64) {
        let (record, token) = self.new_record();
        self.calls.push(Call::Merge { record });
        self.merging.push((layer, into, record));
        self.store().merge_layer(token, LayerId(layer), LayerId(into));
    }

    /// The group that an action is about, if it needs it whole.
    pub fn needs_group(action: &Action) -> Option<u32> {
        match *action {
            Action::Write { chunk, .. }
            | Action::Repair { chunk, .. }
            | Action::Lose { chunk, .. }
            | Action::GoRound { chunk, .. }
            | Action::Mark { chunk } => Some(group_of(chunk)),
            Action::Read { chunk, .. } => Some(group_of(chunk)),
            Action::Commit { pg, .. } | Action::Epoch { pg, .. } | Action::Jump { pg, .. } => Some(pg),
            Action::Rejoin { pg, .. } | Action::Forget { pg } => Some(pg),
            _ => None,
        }
    }

    pub fn act(&mut self, action: &Action) {
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
                let (epoch, sequence) = (write.header.epoch.0, write.header.sequence.0);
                self.calls.push(Call::Write { record, pg, epoch, sequence, range });
                self.store().append(token, write);
            }
            Action::Repair { chunk, first, count, zero } => {
                let range = self.range(chunk, first, count, zero);
                self.copy(range);
            }
            Action::Lose { chunk, first, count } => {
                let range = self.range(chunk, first, count, false);
                self.copy(Range { value: LOST, ..range });
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
                self.store().rejoin(token, PgId(pg), crate::common::epoch(epoch), Sequence(committed));
            }
            Action::Mark { chunk } => {
                let layer = self.range(chunk, 0, 1, true).layer;
                let pg = PgId(group_of(chunk));
                if self.store().prepared(pg).any(|write| write.header.range.layer.0 != layer) {
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
                let layer = self.layer_of_age(age);
                let expected = State::run(&self.calls, usize::MAX).read(layer, chunk, first, count);
                let token = self.next_read;
                self.next_read += 1;
                self.reads.insert(token, (expected, chunk, first, count));
                let pg = PgId(group_of(chunk));
                self.store().serve_read(token, pg, blocks(layer, chunk, first, count));
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
                let (waiting, done) = (self.rig().map_waiting.len(), self.rig().looked_up.len());
                match usize::from(index).checked_rem(waiting + done) {
                    Some(index) if index < waiting => self.rig().finish_map(index),
                    Some(index) => self.rig().answer(index - waiting),
                    None => {}
                }
            }
            Action::LookUp(index) => {
                self.rig().take_effects();
                self.rig().look_up(index.into());
            }
            Action::Checkpoint => self.store().begin_checkpoint(|_| None),
            Action::Tick(ms) => self.pass(Duration::from_millis(ms.into())),
            Action::Trouble(trouble) => self.make_trouble(trouble),
            Action::Settle => self.settle(),
            Action::GoRound { chunk, records, count } => self.go_round(chunk, records, count),
            Action::Crash { seed, coarse, checkpoint_lands, interrupted, unreadable } => {
                self.crash(seed, coarse, checkpoint_lands, interrupted, unreadable);
            }
        }
        self.look();
    }

    /// Nothing that the cleaner reads is answered meanwhile.
    fn go_round(&mut self, chunk: u32, records: u16, count: u16) {
        let end = self.store().statistics().log_bytes + self.options.device_bytes();
        for _ in 0..ROUNDS_MAX {
            for record in 0..records {
                self.act(&Action::Write { chunk, first: record * count, count, zero: false });
            }
            self.act(&Action::Commit { pg: group_of(chunk), back: 0 });
            self.store().pump();
            self.rig().take_effects();
            while !self.rig().disk.waiting.is_empty() {
                self.rig().finish_write(0);
                self.rig().take_effects();
            }
            if self.store().checkpoint_due() {
                self.store().begin_checkpoint(|_| None);
            }
            self.rig().take_effects();
            while !self.rig().map_waiting.is_empty() {
                self.rig().finish_map(0);
                self.rig().take_effects();
            }
            if self.store().statistics().log_bytes >= end || self.space().full {
                return;
            }
        }
    }

    pub fn start_epoch(&mut self, pg: u32, epoch: u64, committed: u64) {
        let (record, token) = self.new_record();
        let jump = committed > self.store().group(PgId(pg)).prepared_end.0;
        self.calls.push(Call::Epoch { record, pg, epoch, committed, jump });
        self.store().start_epoch(token, PgId(pg), crate::common::epoch(epoch), Sequence(committed));
    }

    pub fn settle(&mut self) {
        self.outlast_troubles();
        self.rig().settle();
        self.look();
        assert!(self.reads.is_empty(), "reads without an end");
        let space = self.space();
        let state = self.store().describe();
        assert_eq!(self.durable, self.records, "records that never became durable: {space:?}; {state}");
        if !self.troubles.uncounted {
            self.rig().check_accounts();
        }
    }

    /// Looks at what the store has told.
    pub fn look(&mut self) {
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
                    let (expected, chunk, first, count) = self.reads.remove(&token).unwrap();
                    match result {
                        Ok(extents) => {
                            let same = flatten(&extents, count) == expected;
                            assert!(same, "a read of {count} blocks from {first} gave something else");
                        }
                        Err(ReadError::Lost { block }) => {
                            assert_eq!(first_lost(&expected).map(|lost| first + lost), Some(block.0));
                        }
                        Err(error) => assert!(self.troubles.excuse(chunk, &error), "{error}"),
                    }
                }
                Completion::Checkpointed => {}
                other => panic!("{other:?}"),
            }
        }
        for report in std::mem::take(&mut self.rig().reports) {
            match report {
                Report::LayerGone { layer } => self.layer_gone(layer.0),
                Report::Forgotten { .. } => {}
                report if self.troubles.explain(&report) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn record_settled(&mut self, record: usize) {
        self.durable_seen.insert(record);
        while self.durable_seen.remove(&self.durable) {
            self.durable += 1;
        }
    }

    /// What the configuration does when a device says that a layer is gone.
    pub fn layer_gone(&mut self, layer: u64) {
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

    /// With `unreadable`, some blocks of what was being written can't be read afterwards.
    pub fn crash(&mut self, seed: u64, coarse: bool, checkpoint_lands: bool, interrupted: u8, unreadable: bool) {
        let mut dice = Dice(seed);
        let mut rig = self.rig.take().unwrap();
        self.moves.crash(&rig.store.statistics());
        rig.take_effects();
        if checkpoint_lands {
            while !rig.map_waiting.is_empty() {
                rig.finish_map(0);
            }
        }
        let whole = dice.roll() % 3;
        let mut fates = BTreeMap::new();
        let mut other_dice = Dice(!seed);
        let blocks = |_, _| unreadable && other_dice.roll().is_multiple_of(4);
        let keep = |write, sector| {
            let sector = if coarse { sector / 8 } else { sector };
            // Whole writes are lost or landed in two of three crashes.
            let part = if whole > 0 { 0 } else { sector };
            *fates.entry((write, part)).or_insert_with(|| dice.roll().is_multiple_of(2))
        };
        let (mut disk, mut map) = rig.crash_with(keep, blocks);
        self.reads.clear();
        self.troubles.restart();
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
        rig.time = rig.time.max(Duration::from_millis(self.time));
        if !self.troubles.uncounted {
            rig.check_accounts();
        }
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
    pub fn match_prefix(&mut self, rig: &mut Rig) {
        let mut reasons = Vec::new();
        for limit in (self.durable..=self.records).rev() {
            let mut state = State::run(&self.calls, limit);
            match state.compare_groups(rig) {
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
                    let want = state.read(*layer, chunk, 0, 32);
                    if self.is_damaged(chunk) {
                        if let Some(block) = self.differs_where_known(rig, limit, *layer, chunk, &want) {
                            reasons.push(format!("{limit}: layer {layer} chunk {chunk} block {block} differs"));
                            same = false;
                        }
                        continue;
                    }
                    let mut got = Vec::new();
                    while got.len() < want.len() {
                        let (at, rest) = ((got.len() / 4096) as u16, 32 - (got.len() / 4096) as u16);
                        match rig.read(group_of(chunk), *layer, chunk, at, rest) {
                            Ok(bytes) => got.extend(bytes),
                            // As far as it is not lost, and then the lost block as the model has it.
                            Err(ReadError::Lost { block }) => {
                                let before = block.0 - at;
                                if before > 0 {
                                    got.extend(rig.read(group_of(chunk), *layer, chunk, at, before).unwrap());
                                }
                                got.resize(got.len() + 4096, LOST_BYTE);
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
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
    pub fn shorten(&mut self, limit: usize) {
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
            Call::Repair { record, .. } | Call::Drop { record, .. } => *record < limit,
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
}
