//! Records come into the map: committed writes and repairs, when their leaves are here and they are durable.

use crate::cx::log_position;
use crate::groups::{Place, Written};
use crate::map::cache::SlotId;
use crate::map::inheritance::Inheritor;
use crate::map::leaf::{Entry, LeafKey};
use crate::map::payload::Payload;
use crate::map::right::LiveRight;
use crate::map::step::Step;
use crate::map::{Map, MapCx};
use crate::record::Repair;
use azekura_base::{BlockRange, Body, PgId, Sequence};

/// What a leaf has seen once a record's blocks are in it.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// The group's writes up to here, as far as they touch the chunk.
    pub modified: Sequence,
    /// Repairs and relocations up to this log position.
    pub stamp: u64,
}

/// Up to which log position all relocations came before a write that was committed at `stamp`.
pub(super) fn stamp_of(written: &Written, stamp: u64) -> u64 {
    let Written { place, origin } = written;
    // Moves that were in the log before the record have been made before this: they were durable earlier. Some may
    // not have been when the write was committed, if it waited. (When its blocks were moved, it was committed after
    // that.)
    let before = log_position(place.log.saturating_sub(1), usize::MAX);
    if place.generation == *origin { stamp.max(before) } else { stamp }
}

impl Map {
    /// Applies a committed write. `stamp`: all relocations up to this log position came before.
    pub fn apply_write(&mut self, s: &mut MapCx<'_>, pg: PgId, sequence: Sequence, stamp: u64) -> Step {
        let durable = s.cx.log().durable();
        let pending = s.groups.get_mut(pg).find(sequence).expect("a write stays until it is applied");
        let Some(written) = pending.written.filter(|written| written.place.log <= durable) else {
            return Step::Blocked;
        };
        let stamp = stamp_of(&written, stamp);
        let Written { place, origin } = written;
        // What a replay would need to do this again is the record itself, wherever its blocks have gone since.
        let place = Place { generation: origin, ..place };
        let (range, zero) = (pending.info.header.range, pending.info.zero);
        let key = LeafKey::of(pg, &range);
        if !s.jobs.is_dropped(key.layer) && !s.groups.get_mut(pg).is_forgotten() {
            let slot = match self.leaf_for_change(s, key, !zero) {
                Ok(slot) => slot,
                Err(step) => return step,
            };
            if let Some(slot) = slot
                && self.cache.leaf(slot).is_some_and(|leaf| leaf.modified < sequence)
            {
                let checksums = s.groups.get_mut(pg).find(sequence).and_then(|p| p.checksums.take());
                let data = checksums.as_ref();
                let data = data.map(|checksums| Payload { address: place.address(), checksums, lost: false });
                let own = self.put_blocks(s, slot, place, range, data, Seen { modified: sequence, stamp });
                self.layers.own(key.layer, own);
            }
        } else {
            s.jobs.passed_over(key.layer, place.generation);
        }
        s.groups.get_mut(pg).applied(sequence);
        place.unpin(s.cx.segments_mut(), range.count);
        Step::Done
    }

    /// Applies a repair from another replica.
    pub fn apply_repair(&mut self, s: &mut MapCx<'_>, id: u64) -> Step {
        let state = s.repairs.get(id).expect("a repair stays until it is applied");
        let Some((place, position)) = state.place.filter(|(place, _)| place.log <= s.cx.log().durable()) else {
            return Step::Blocked;
        };
        let range = state.repair.range;
        let key = LeafKey::of(state.repair.pg, &range);
        if !s.jobs.is_dropped(key.layer) && !s.groups.get_mut(key.pg).is_forgotten() {
            // Also zeros make a leaf: it remembers that the repair came before later writes, which replay has to know.
            let slot = match self.leaf_for_change(s, key, true) {
                Ok(slot) => slot,
                Err(step) => return step,
            };
            if let Some(slot) = slot {
                let inheritors = match self.repair_inheritors(s, key, slot, range.first, range.count, position) {
                    Ok(inheritors) => inheritors,
                    Err(step) => return step,
                };
                if self.cache.leaf(slot).is_some_and(|leaf| leaf.repaired_upto < position) {
                    let repair = s.repairs.get(id).map(|state| state.repair.clone());
                    let repair = repair.expect("a repair stays until it is applied");
                    self.put_repair(s, &repair, slot, &inheritors, place, position);
                }
            }
        } else {
            s.jobs.passed_over(key.layer, place.generation);
        }
        s.repairs.remove(id);
        s.cx.segments_mut().release(place.segment);
        Step::Done
    }

    /// Puts a repair's blocks into the leaf in `slot`, and into those that inherit from it what it replaces.
    fn put_repair(
        &mut self,
        s: &mut MapCx<'_>,
        repair: &Repair,
        slot: SlotId,
        inheritors: &[Inheritor],
        place: Place,
        position: u64,
    ) {
        let (blocks, sequence) = (repair.range, repair.sequence);
        let data = match &repair.body {
            Body::Data { checksums, .. } => Some(Payload { address: place.address(), checksums, lost: false }),
            Body::Lost { checksums } => Some(Payload { address: place.address(), checksums, lost: true }),
            Body::Zero => None,
        };
        if !inheritors.is_empty() {
            let before = self.entries_of(slot, &blocks);
            for inheritor in inheritors {
                self.inherit_repair(inheritor, place, blocks.first, &before, data, position);
                // What the owner had before is forgotten once it is saved: replay could not do this again.
                let other = self.cache.slot(inheritor.0).key;
                self.cache.save_with(slot, other);
            }
        }
        let own = self.put_blocks(s, slot, place, blocks, data, Seen { modified: sequence, stamp: position });
        self.layers.own(blocks.layer, own);
        self.save_with_unsaved_below(slot);
    }

    /// The entries of some blocks in the leaf in `slot`; none without a leaf.
    fn entries_of(&self, slot: SlotId, blocks: &BlockRange) -> Vec<Entry> {
        let leaf = self.cache.leaf(slot);
        leaf.map(|leaf| leaf.entries.of(blocks.indexes()).copied().collect()).unwrap_or_default()
    }

    /// Puts blocks, or zeros, into the leaf in `slot`, and keeps the segments' accounts. Gives by how many blocks more,
    /// or less, the leaf owns.
    pub(super) fn put_blocks(
        &mut self,
        s: &mut MapCx<'_>,
        slot: SlotId,
        place: Place,
        blocks: BlockRange,
        data: Option<Payload<'_>>,
        seen: Seen,
    ) -> i64 {
        let (leaf, delta) = self.cache.change(slot, place.generation);
        leaf.modified = leaf.modified.max(seen.modified);
        leaf.log_upto = leaf.log_upto.max(seen.stamp);
        leaf.repaired_upto = leaf.repaired_upto.max(seen.stamp);
        let mut run = (0, 0);
        let mut own = 0;
        for (index, block) in blocks.indexes().enumerate() {
            let replaced = leaf.entries.replace(block, data.map_or(Entry::default(), |payload| payload.entry(index)));
            if replaced.is_own() {
                let segment = s.cx.segments().segment_of(replaced.address);
                if segment != run.0 && run.1 > 0 {
                    s.cx.segments_mut().remove_live(LiveRight::LEAF, run.0, run.1);
                    delta.push((run.0, -(run.1 as i32)));
                    run.1 = 0;
                }
                run = (segment, run.1 + 1);
                own -= 1;
            }
        }
        if run.1 > 0 {
            s.cx.segments_mut().remove_live(LiveRight::LEAF, run.0, run.1);
            delta.push((run.0, -(run.1 as i32)));
        }
        if data.is_some() {
            s.cx.segments_mut().add_live(LiveRight::LEAF, place.segment, u32::from(blocks.count));
            delta.push((place.segment, i32::from(blocks.count)));
            own += i64::from(blocks.count);
        }
        own
    }

    /// Gives up all that a leaf owns, and the leaf.
    pub fn drop_leaf(&mut self, s: &mut MapCx<'_>, key: LeafKey) -> Step {
        let slot = match self.leaf_here(s, key) {
            Ok(Some(slot)) => slot,
            Ok(None) => return Step::Done,
            Err(step) => return step,
        };
        let generation = s.cx.log().generation();
        let (leaf, delta) = self.cache.change(slot, generation);
        let mut own = 0;
        for (_, entry) in leaf.entries.present().filter(|(_, e)| e.is_own()) {
            own += 1;
            let segment = s.cx.segments().segment_of(entry.address);
            s.cx.segments_mut().remove_live(LiveRight::LEAF, segment, 1);
            match delta.last_mut() {
                Some((last, blocks)) if *last == segment => *blocks -= 1,
                _ => delta.push((segment, -1)),
            }
        }
        self.layers.own(key.layer, -own);
        self.cache.remove(slot);
        Step::Done
    }
}
