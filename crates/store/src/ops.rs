//! Operations on the map. They are done at once when the leaves that they need are in memory; otherwise they wait,
//! and everything that comes later for the same chunk waits behind them, so that a chunk sees its operations in the
//! order in which they were asked for.

use crate::cleaner::Probe;
use crate::cx::log_position;
use crate::effect::{Failure, MapError};
use crate::groups::Place;
use crate::heirs::Heir;
use crate::inheritance::Inheritor;
use crate::jobs::Job;
use crate::leaf::{DamagedLeaf, Entry, Leaf, LeafKey, SavedLeaf};
use crate::leaf_cache::{Content, SlotId};
use crate::log::Move;
use crate::store::Store;
use azekura_base::{BlockRange, Body, Checksums, ChunkIndex, LayerId, PgId, Sequence};
use std::collections::VecDeque;

/// Leaves that one effect asks for at most.
pub(crate) const LEAVES_PER_LOAD_MAX: usize = 64;
/// Ancestors whose leaves are asked for together, at first and at most.
const ANCESTORS_PER_STEP_MIN: usize = 16;
const ANCESTORS_PER_STEP_MAX: usize = 512;

/// Blocks that are on the device, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload<'a> {
    address: u32,
    checksums: &'a Checksums,
    lost: bool,
}

impl Payload<'_> {
    /// The entry of the leaf that owns block `index` of it.
    pub fn entry(&self, index: usize) -> Entry {
        let entry = Entry::own(self.address + index as u32, self.checksums[index]);
        Entry { flags: if self.lost { Entry::LOST } else { 0 }, ..entry }
    }
}

#[derive(Debug)]
pub(crate) enum Op {
    /// A committed write. `stamp`: all relocations up to this log position came before.
    Apply {
        pg: PgId,
        sequence: Sequence,
        stamp: u64,
    },
    Copy {
        id: u64,
    },
    Relocate {
        moved: Move,
        place: Place,
        position: u64,
    },
    Read {
        token: u64,
        pg: PgId,
        range: BlockRange,
    },
    Status {
        token: u64,
        pg: PgId,
        layer: LayerId,
        chunk: ChunkIndex,
    },
    /// Garbage collection asks what is live of a run of blocks.
    Probe(Probe),
    Digest {
        token: u64,
        key: LeafKey,
    },
    Measure {
        token: u64,
        key: LeafKey,
    },
    Difference {
        token: u64,
        pg: PgId,
        chunk: ChunkIndex,
    },
    /// A job comes to the leaf.
    Job {
        key: LeafKey,
        job: Job,
    },
}

impl Op {
    /// It changes leaves, and must not be lost.
    pub fn is_change(&self) -> bool {
        matches!(self, Op::Apply { .. } | Op::Copy { .. } | Op::Relocate { .. } | Op::Job { .. })
    }
}

/// How an attempt at an operation ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    /// Leaves have been asked for.
    Loading,
    /// Its record is not durable yet.
    Blocked,
}

type Chunk = (PgId, ChunkIndex);

impl Store {
    /// Does `op`, now or in its turn.
    pub(crate) fn submit(&mut self, chunk: Chunk, op: Op) {
        if !self.ops.is_empty()
            && let Some(queue) = self.ops.get_mut(&chunk)
        {
            queue.push_back(op);
            return;
        }
        match self.step(&op) {
            Step::Done => {}
            step => {
                if step == Step::Blocked {
                    self.blocked.push(chunk);
                }
                self.ops.insert(chunk, VecDeque::from([op]));
            }
        }
    }

    /// Goes on with what waits for `chunk`.
    pub(crate) fn run_ops(&mut self, chunk: Chunk) {
        while let Some(queue) = self.ops.get_mut(&chunk) {
            let Some(op) = queue.pop_front() else {
                self.ops.remove(&chunk);
                return;
            };
            let step = self.step(&op);
            if step != Step::Done {
                if step == Step::Blocked {
                    self.blocked.push(chunk);
                }
                if let Some(queue) = self.ops.get_mut(&chunk) {
                    queue.push_front(op);
                }
                return;
            }
        }
    }

    /// More of the log is durable: goes on with what waited for that.
    pub(crate) fn run_blocked(&mut self) {
        for chunk in std::mem::take(&mut self.blocked) {
            self.run_ops(chunk);
        }
    }

    fn step(&mut self, op: &Op) -> Step {
        match op {
            Op::Apply { pg, sequence, stamp } => self.apply_write(*pg, *sequence, *stamp),
            Op::Copy { id } => self.apply_copy(*id),
            Op::Relocate { moved, place, position } => self.apply_relocation(moved, *place, *position),
            Op::Read { token, pg, range } => self.step_read(*token, *pg, *range),
            Op::Status { token, pg, layer, chunk } => {
                self.step_status(*token, LeafKey { layer: *layer, chunk: *chunk, pg: *pg })
            }
            Op::Probe(probe) => self.step_probe(probe),
            Op::Digest { token, key } => self.step_digest(*token, *key),
            Op::Measure { token, key } => self.step_measure(*token, *key),
            Op::Difference { token, pg, chunk } => self.step_difference(*token, *pg, *chunk),
            Op::Job { key, job } => self.step_job(*key, *job),
        }
    }

    fn apply_write(&mut self, pg: PgId, sequence: Sequence, stamp: u64) -> Step {
        let durable = self.cx.log().durable();
        let pending = self.groups.get_mut(pg).find(sequence).expect("a write stays until it is applied");
        let Some(place) = pending.place.filter(|p| p.log <= durable) else { return Step::Blocked };
        // Moves that were in the log before the record have been made before this: they were durable earlier. Some may
        // not have been when the write was committed, if it waited. (When its blocks were moved, it was committed after
        // that.)
        let before = log_position(place.log.saturating_sub(1), usize::MAX);
        let stamp = if place.generation == pending.origin { stamp.max(before) } else { stamp };
        // What a replay would need to do this again is the record itself, wherever its blocks have gone since.
        let place = Place { generation: pending.origin, ..place };
        let (range, zero) = (pending.info.header.range, pending.info.zero);
        let key = LeafKey::of(pg, &range);
        if !self.dropped.contains(&key.layer) && !self.groups.get_mut(pg).forgotten {
            let slot = match self.leaf_for_change(key, !zero) {
                Ok(slot) => slot,
                Err(step) => return step,
            };
            if let Some(slot) = slot
                && self.cache.leaf(slot).is_some_and(|leaf| leaf.modified < sequence)
            {
                let checksums = self.groups.get_mut(pg).find(sequence).and_then(|p| p.checksums.take());
                let data = checksums.as_ref();
                let data = data.map(|checksums| Payload { address: place.address, checksums, lost: false });
                let own = self.put_blocks(slot, place, range, data, sequence, stamp);
                self.layers.own(key.layer, own);
            }
        } else {
            self.jobs.passed_over(key.layer, place.generation);
        }
        let group = self.groups.get_mut(pg);
        if let Some(pending) = group.find(sequence) {
            pending.applied = true;
            pending.bytes = None;
        }
        group.trim();
        place.unpin(self.cx.segments_mut(), range.count);
        Step::Done
    }

    fn apply_copy(&mut self, id: u64) -> Step {
        let state = self.copies.get(id).expect("a copy stays until it is applied");
        let Some((place, position)) = state.place.filter(|(place, _)| place.log <= self.cx.log().durable()) else {
            return Step::Blocked;
        };
        let range = state.copy.range;
        let key = LeafKey::of(state.copy.pg, &range);
        if !self.dropped.contains(&key.layer) && !self.groups.get_mut(key.pg).forgotten {
            // Also zeros make a leaf: it remembers that the copy came before later writes, which replay has to know.
            let slot = match self.leaf_for_change(key, true) {
                Ok(slot) => slot,
                Err(step) => return step,
            };
            if let Some(slot) = slot {
                let inheritors = match self.copy_inheritors(key, slot, range.first, range.count, position) {
                    Ok(inheritors) => inheritors,
                    Err(step) => return step,
                };
                if self.cache.leaf(slot).is_some_and(|leaf| leaf.copied_upto < position) {
                    self.put_copy(id, slot, &inheritors, place, position);
                }
            }
        }
        self.copies.remove(id);
        self.cx.segments_mut().release(place.segment);
        Step::Done
    }

    /// Puts a copy's blocks into the leaf in `slot`, and into those that inherit from it what it replaces.
    fn put_copy(&mut self, id: u64, slot: SlotId, inheritors: &[Inheritor], place: Place, position: u64) {
        let copy = &self.copies.get(id).expect("a copy stays until it is applied").copy;
        let (blocks, sequence) = (copy.range, copy.sequence);
        let body = copy.body.clone();
        let data = match &body {
            Body::Data { checksums, .. } => Some(Payload { address: place.address, checksums, lost: false }),
            Body::Lost { checksums } => Some(Payload { address: place.address, checksums, lost: true }),
            Body::Zero => None,
        };
        if !inheritors.is_empty() {
            let before = self.cache.leaf(slot).map(|leaf| leaf.entries[blocks.indexes()].to_vec()).unwrap_or_default();
            for inheritor in inheritors {
                self.inherit_copy(inheritor, place, blocks.first, &before, data, position);
                // What the owner had before is forgotten once it is saved: replay could not do this again.
                let other = self.cache.slot(inheritor.0).key;
                self.cache.save_with(slot, other);
            }
        }
        let own = self.put_blocks(slot, place, blocks, data, sequence, position);
        self.layers.own(blocks.layer, own);
        self.save_with_unsaved_below(slot);
    }

    /// Puts blocks, or zeros, into the leaf in `slot`, and keeps the segments' accounts. Gives by how many blocks more,
    /// or less, the leaf owns.
    fn put_blocks(
        &mut self,
        slot: SlotId,
        place: Place,
        blocks: BlockRange,
        data: Option<Payload<'_>>,
        modified: Sequence,
        stamp: u64,
    ) -> i64 {
        let (leaf, delta) = self.cache.change(slot, place.generation);
        leaf.modified = leaf.modified.max(modified);
        leaf.log_upto = leaf.log_upto.max(stamp);
        leaf.copied_upto = leaf.copied_upto.max(stamp);
        let mut run = (0, 0);
        let mut own = 0;
        for (index, entry) in leaf.entries[blocks.indexes()].iter_mut().enumerate() {
            if entry.is_own() {
                let segment = self.cx.segments().segment_of(entry.address);
                if segment != run.0 && run.1 > 0 {
                    self.cx.segments_mut().remove_live(run.0, run.1);
                    delta.push((run.0, -(run.1 as i32)));
                    run.1 = 0;
                }
                run = (segment, run.1 + 1);
                own -= 1;
            }
            *entry = match data {
                Some(payload) => payload.entry(index),
                None => Entry::default(),
            };
        }
        if run.1 > 0 {
            self.cx.segments_mut().remove_live(run.0, run.1);
            delta.push((run.0, -(run.1 as i32)));
        }
        if data.is_some() {
            self.cx.segments_mut().add_live(place.segment, u32::from(blocks.count));
            delta.push((place.segment, i32::from(blocks.count)));
            own += i64::from(blocks.count);
        }
        own
    }

    /// Goes on with cleaning, if it is needed.
    pub(crate) fn clean(&mut self) {
        self.cleaner.go_on(&mut self.cx, &self.groups, &self.jobs);
        self.probe_more();
    }

    /// The saved map has listed the heirs of a segment that is being emptied.
    pub(crate) fn heirs_listed(&mut self, segment: u32, result: Result<Vec<Heir>, MapError>) {
        if self.cleaner.heirs_listed(&mut self.cx, &self.heirs, &self.jobs, segment, result) {
            self.probe_more();
        }
    }

    fn probe_more(&mut self) {
        while let Some(probe) = self.cleaner.next_probe(&mut self.cx, &mut self.groups, &self.jobs) {
            let position = self.cx.log().durable_position();
            self.submit_ahead((probe.key.pg, probe.key.chunk), position, Op::Probe(probe));
        }
    }

    /// Cleaning wants to know what is live.
    fn step_probe(&mut self, probe: &Probe) -> Step {
        let slot = match self.leaf_here(probe.key) {
            Ok(slot) => slot,
            Err(step) => return step,
        };
        self.cleaner.probed(&self.cx, probe, slot.and_then(|slot| self.cache.leaf(slot)));
        Step::Done
    }

    /// Blocks have durably been moved.
    pub(crate) fn relocate(&mut self, moved: Move, place: Place, position: u64) {
        self.submit_ahead((moved.pg, moved.range.chunk), position, Op::Relocate { moved, place, position });
    }

    /// Does `op`, of log position `position`, before everything that waits for a record which is not durable yet: such
    /// a record may itself wait for the space that garbage collection is to win. Copies and relocations of a chunk are
    /// applied in log order, so that a leaf can say with one number which of them it has seen.
    pub(crate) fn submit_ahead(&mut self, chunk: Chunk, position: u64, op: Op) {
        if !self.ops.contains_key(&chunk) {
            return self.submit(chunk, op);
        }
        let durable = self.cx.log().durable();
        let index = {
            let (groups, copies) = (&self.groups, &self.copies);
            let position_of = |id: &u64| copies.position(*id);
            let waits = |op: &Op| match op {
                Op::Copy { id } => position_of(id).is_none_or(|copy| copy > position),
                Op::Apply { pg, sequence, .. } => {
                    let place = groups.get(*pg).and_then(|group| group.place(*sequence));
                    place.is_none_or(|place| place.log > durable)
                }
                _ => false,
            };
            // A copy that comes earlier in the log has to be done before, with all that it waits for: that is earlier
            // in the log as well.
            let before = |op: &Op| matches!(op, Op::Copy { id } if position_of(id).is_some_and(|copy| copy < position));
            self.ops.get(&chunk).map_or(0, |queue| {
                let first = queue.iter().position(waits).unwrap_or(queue.len());
                first.max(queue.iter().rposition(before).map_or(0, |index| index + 1))
            })
        };
        if let Some(queue) = self.ops.get_mut(&chunk) {
            queue.insert(index, op);
        }
        if index == 0 {
            self.run_ops(chunk);
        }
    }

    /// Does to one leaf what a job is about.
    fn step_job(&mut self, key: LeafKey, job: Job) -> Step {
        let step = match job {
            Job::DropLayer(_) | Job::ForgetGroup(_) => self.drop_leaf(key),
            Job::MergeLayer { into, .. } => self.merge_leaf(key, into),
        };
        if step == Step::Done {
            self.leaf_swept(job);
        }
        step
    }

    fn drop_leaf(&mut self, key: LeafKey) -> Step {
        let slot = match self.leaf_here(key) {
            Ok(Some(slot)) => slot,
            Ok(None) => return Step::Done,
            Err(step) => return step,
        };
        let generation = self.cx.log().generation();
        let (leaf, delta) = self.cache.change(slot, generation);
        let mut own = 0;
        for entry in leaf.entries.iter().filter(|e| e.is_own()) {
            own += 1;
            let segment = self.cx.segments().segment_of(entry.address);
            self.cx.segments_mut().remove_live(segment, 1);
            match delta.last_mut() {
                Some((last, blocks)) if *last == segment => *blocks -= 1,
                _ => delta.push((segment, -1)),
            }
        }
        self.layers.own(key.layer, -own);
        self.cache.remove(slot);
        Step::Done
    }

    /// What is known of a leaf; asks for it when nothing is.
    pub(crate) fn lookup(&mut self, key: LeafKey) -> Option<Content> {
        match self.cache.find(key) {
            Some(slot) => {
                self.cache.hits += 1;
                if matches!(self.cache.slot(slot).content, Content::Broken(_)) && self.replace_broken(slot).is_err() {
                    return Some(Content::Loading);
                }
                Some(self.cache.slot(slot).content.clone())
            }
            None => {
                self.want_leaf(key);
                None
            }
        }
    }

    fn want_leaf(&mut self, key: LeafKey) {
        self.cache.misses += 1;
        self.cache.start_loading(key);
        self.loads_wanted.push(key);
    }

    /// The layer's own leaf, if it has one.
    pub(crate) fn leaf_here(&mut self, key: LeafKey) -> Result<Option<SlotId>, Step> {
        match self.lookup(key) {
            Some(Content::Loading | Content::Broken(_)) | None => Err(Step::Loading),
            Some(Content::Absent) => Ok(None),
            Some(Content::Present(_)) => Ok(self.cache.find(key)),
        }
    }

    /// The slot of a leaf that is to be changed. `None`: there is none and, with `create` false, none is needed,
    /// because no ancestor has one either. `Err`: not now.
    fn leaf_for_change(&mut self, key: LeafKey, create: bool) -> Result<Option<SlotId>, Step> {
        let Some(slot) = self.cache.find(key) else {
            self.want_leaf(key);
            self.want_ancestors(key, ANCESTORS_PER_STEP_MIN);
            return Err(Step::Loading);
        };
        match self.cache.slot(slot).content {
            Content::Present(_) => {
                self.cache.hits += 1;
                return Ok(Some(slot));
            }
            Content::Loading => return Err(Step::Loading),
            Content::Broken(_) => {
                self.replace_broken(slot)?;
                return Ok(Some(slot));
            }
            Content::Absent => {}
        }
        let leaf = match self.nearest(key)? {
            Some(ancestor) => {
                let mut leaf = self.cache.leaf(ancestor).map(Leaf::child).unwrap_or_default();
                if !self.cx.is_running() {
                    // At replay the ancestor may have been saved after copies into the child that are still to be done.
                    leaf.copied_upto = 0;
                }
                leaf
            }
            None if create => Leaf::default(),
            None => return Ok(None),
        };
        self.cache.create(slot, leaf);
        self.layers.leaf_made(key.layer);
        Ok(Some(slot))
    }

    /// The leaf that a read of `key` looks into: the layer's own, or its nearest ancestor's.
    pub(crate) fn nearest(&mut self, key: LeafKey) -> Result<Option<SlotId>, Step> {
        let version = self.layers.version();
        let mut first = None;
        let mut steps = 0;
        let mut key = key;
        let found = loop {
            let Some(slot) = self.cache.find(key) else {
                self.want_leaf(key);
                // As many more as have been passed: a long chain takes few steps.
                self.want_ancestors(key, steps.clamp(ANCESTORS_PER_STEP_MIN, ANCESTORS_PER_STEP_MAX));
                return Err(Step::Loading);
            };
            match self.cache.slot(slot).content {
                Content::Present(_) => {
                    self.cache.hits += 1;
                    break Some(slot);
                }
                Content::Loading => return Err(Step::Loading),
                Content::Broken(_) => {
                    self.replace_broken(slot)?;
                    break Some(slot);
                }
                Content::Absent => {
                    first.get_or_insert(slot);
                    let skip = self.cache.slot(slot).skip.filter(|(of, _)| *of == version);
                    match skip.map_or_else(|| self.layers.parent(key.layer), |(_, ancestor)| ancestor) {
                        Some(ancestor) => key.layer = ancestor,
                        None => break None,
                    }
                    steps += 1;
                }
            }
        };
        if let Some(first) = first.filter(|_| steps > 1) {
            self.cache.set_skip(first, version, found.map(|_| key.layer));
        }
        Ok(found)
    }

    fn want_ancestors(&mut self, key: LeafKey, count: usize) {
        let mut layer = key.layer;
        for _ in 0..count {
            let Some(parent) = self.layers.parent(layer) else { return };
            layer = parent;
            let key = LeafKey { layer, ..key };
            if self.cache.find(key).is_none() {
                self.want_leaf(key);
            }
        }
    }

    /// Leaves came from the saved map.
    pub(crate) fn leaves_loaded(&mut self, keys: &[LeafKey], result: Result<Vec<SavedLeaf>, MapError>) {
        let counted = result.and_then(|leaves| match leaves.len() == keys.len() {
            true => Ok(leaves),
            false => Err(MapError::Failed(format!("{} leaves were asked for, {} came", keys.len(), leaves.len()))),
        });
        match counted {
            Ok(leaves) => {
                for (key, leaf) in keys.iter().zip(leaves) {
                    let leaf = self.with_addresses(leaf);
                    self.leaf_came(key, &leaf);
                    self.cache.loaded(*key, leaf);
                }
            }
            Err(error @ MapError::Failed(_)) => {
                for key in keys {
                    self.cache.load_failed(*key);
                    let ops = self.ops.remove(&(key.pg, key.chunk)).unwrap_or_default();
                    ops.into_iter().for_each(|op| self.fail_op(op, &error));
                }
                return self.cx.fail(Failure::Map(error));
            }
            // One that is refused must not take the others with it.
            Err(_) if keys.len() > 1 => {
                keys.iter().for_each(|key| self.load_leaves(vec![*key]));
                return;
            }
            Err(error) => keys.iter().for_each(|key| self.leaf_refused(*key, &error)),
        }
        for key in keys {
            self.run_ops((key.pg, key.chunk));
        }
        self.cleaner.may_retry();
        let ops = &self.ops;
        self.cache.evict(|key| ops.contains_key(&(key.pg, key.chunk)));
    }

    /// A leaf, if its blocks are on the device.
    fn with_addresses(&self, leaf: SavedLeaf) -> SavedLeaf {
        let SavedLeaf::Whole(image) = &leaf else { return leaf };
        let bad = image.entries.iter().find(|e| e.is_allocated() && self.cx.segments().locate(e.address).is_none());
        let Some(entry) = bad else { return leaf };
        let what = format!("a leaf names block {}, which is not on the device", entry.address);
        SavedLeaf::Damaged(Box::new(DamagedLeaf { what, stamps: Some(image.stamps()), own: None }))
    }
}
