//! Blocks that several leaves reach: one owns each, its descendants inherit it.
//!
//! A leaf's descendants hold the same address until they are written themselves. Whatever changes a block's address in
//! the owner's leaf without changing what the descendants should read must change it in theirs: relocation by the
//! cleaner, and repairs of a layer that has children. The merging of a layer into its only child changes who owns.

use crate::groups::Place;
use crate::log::Move;
use crate::map::cache::{Content, SlotId};
use crate::map::leaf::{Entry, Leaf, LeafKey};
use crate::map::payload::Payload;
use crate::map::right::LiveRight;
use crate::map::step::Step;
use crate::map::{Map, MapCx};
use azekura_base::{BlockIndex, LayerId};
use std::rc::Rc;

/// A leaf, and which of a repair's blocks it inherits.
pub(crate) type Inheritor = (SlotId, Rc<[bool]>);

impl Map {
    /// The leaves of `key`'s descendants that inherit one of some blocks: those for which `inherits` is true. It is
    /// true for none below a leaf for which it is false, since a leaf is made as a copy of its nearest ancestor's; but
    /// for a layer that ends, whose leaves have been emptied.
    fn inheritors(
        &mut self,
        s: &mut MapCx<'_>,
        key: LeafKey,
        inherits: impl Fn(&Leaf) -> bool,
    ) -> Result<Vec<SlotId>, Step> {
        if !self.layers.has_children(key.layer) {
            return Ok(Vec::new());
        }
        let mut layers: Vec<LayerId> = self.layers.children(key.layer).collect();
        let mut slots = Vec::new();
        let mut missing = false;
        while let Some(layer) = layers.pop() {
            let key = LeafKey { layer, ..key };
            match self.lookup(s, key) {
                Some(Content::Loading | Content::Broken(_)) | None => missing = true,
                Some(Content::Absent) => {}
                Some(Content::Present(leaf)) => {
                    if inherits(&leaf) {
                        slots.extend(self.cache.find(key));
                    } else if !s.jobs.is_merging(layer) && !s.jobs.is_dropped(layer) {
                        continue;
                    }
                }
            }
            layers.extend(self.layers.children(layer));
        }
        if missing { Err(Step::Loading) } else { Ok(slots) }
    }

    /// The leaf in `slot` has been changed, and others lie on it. A leaf is made as a copy of what it lies on: one that
    /// is not saved yet is made again at replay, and must not find what came later. So it is saved with this one.
    pub(super) fn save_with_unsaved_below(&mut self, slot: SlotId) {
        let key = self.cache.slot(slot).key;
        let mut below: Vec<LayerId> = self.layers.children(key.layer).collect();
        while let Some(layer) = below.pop() {
            let key = LeafKey { layer, ..key };
            let here = self.cache.find(key).map(|slot| self.cache.slot(slot));
            match here.filter(|leaf| matches!(leaf.content, Content::Present(_))) {
                Some(leaf) if leaf.dirty.is_some() => self.cache.save_with(slot, key),
                Some(_) => {}
                None => below.extend(self.layers.children(layer)),
            }
        }
    }

    /// Blocks have durably been moved: gives them their new address in all leaves that reach them.
    pub fn apply_relocation(&mut self, s: &mut MapCx<'_>, moved: &Move, place: Place, position: u64) -> Step {
        let key = LeafKey::of(moved.pg, &moved.range);
        let range = moved.range.indexes();
        // At replay, a leaf that has been saved since may be further on than its descendants.
        let reaches = |leaf: &Leaf| {
            if leaf.log_upto >= position {
                return true;
            }
            let mut entries = (moved.old..).zip(leaf.entries.of(range.clone()));
            entries.any(|(old, entry)| entry.address == old)
        };
        // The owner's leaf and all that inherit from it must be here before any is changed.
        let owner = match self.leaf_here(s, key) {
            Ok(owner) => owner,
            Err(step) => return step,
        };
        // At replay, the blocks may still be a layer's that was merged into this one when the record was written: the
        // merge is done again later.
        let merged = match s.jobs.merged_into(key.layer).map(|layer| self.leaf_here(s, LeafKey { layer, ..key })) {
            Some(Err(step)) => return step,
            Some(Ok(merged)) => merged,
            None => None,
        };
        let inheritors = match self.inheritors(s, key, reaches) {
            Ok(slots) => slots,
            Err(step) => return step,
        };
        for slot in merged.into_iter().chain(owner).chain(inheritors) {
            self.move_blocks(s, slot, moved, place, position);
        }
        let (blocks, segments) = (u32::from(moved.range.count), s.cx.segments_mut());
        segments.release(place.segment);
        let (from, to) = (segments.segment_of(moved.old), segments.segment_of(place.address()));
        segments.left(from, blocks);
        if to != place.segment {
            segments.landed(to, blocks, place.generation);
        }
        Step::Done
    }

    fn move_blocks(&mut self, s: &mut MapCx<'_>, slot: SlotId, moved: &Move, place: Place, position: u64) {
        let first = usize::from(moved.range.first.0);
        let Some(leaf) = self.cache.leaf(slot) else { return };
        let here = |leaf: &Leaf, index: usize| leaf.entries[first + index].address == moved.old + index as u32;
        let count = usize::from(moved.range.count);
        if leaf.log_upto >= position || !(0..count).any(|index| here(leaf, index)) {
            return;
        }
        let old_segment = s.cx.segments().segment_of(moved.old);
        // Not that of the record, if the blocks have a segment of their own.
        let new_segment = s.cx.segments().segment_of(place.address());
        let (leaf, delta) = self.cache.change(slot, place.generation);
        leaf.log_upto = position;
        let mut own = 0;
        for index in 0..count {
            if here(leaf, index) {
                let entry = leaf.entries[first + index];
                own += u32::from(entry.is_own());
                leaf.entries.set(first + index, Entry { address: place.address() + index as u32, ..entry });
            }
        }
        if own > 0 {
            delta.push((old_segment, -(own as i32)));
            delta.push((new_segment, own as i32));
            s.cx.segments_mut().remove_live(LiveRight::LEAF, old_segment, own);
            s.cx.segments_mut().add_live(LiveRight::LEAF, new_segment, own);
            // The layer was merged into another while its blocks waited to be moved under its name. At replay it may be
            // the other way round: the merge into it is done again.
            let owner = self.cache.slot(slot).key.layer;
            let layer = moved.range.layer;
            if owner != layer && s.jobs.merged_into(layer) != Some(owner) {
                self.merged_owners.add(new_segment, layer, owner);
            }
        }
        self.save_with_unsaved_below(slot);
    }

    /// Before a repair replaces blocks in the leaf of `key`, in `slot`: gives the leaves that hold the same as that
    /// leaf in some of the blocks, and in which: those get what the repair brings. Below a leaf that owns one of the
    /// blocks nobody inherits that block from here, even where both show zeros.
    pub(super) fn repair_inheritors(
        &mut self,
        s: &mut MapCx<'_>,
        key: LeafKey,
        slot: SlotId,
        first: BlockIndex,
        count: u16,
        position: u64,
    ) -> Result<Vec<Inheritor>, Step> {
        let Some(leaf) = self.cache.leaf(slot) else { return Ok(Vec::new()) };
        if !self.layers.has_children(key.layer) {
            return Ok(Vec::new());
        }
        let range = usize::from(first.0)..usize::from(first.0) + usize::from(count);
        let before = leaf.entries.of(range.clone()).copied().collect::<Vec<_>>();
        let all: Rc<[bool]> = vec![true; before.len()].into();
        let children = |map: &Map, layer, blocks: &Rc<[bool]>| {
            map.layers.children(layer).map(|child| (child, blocks.clone())).collect::<Vec<_>>()
        };
        let mut below = children(self, key.layer, &all);
        let mut inheritors = Vec::new();
        let mut missing = false;
        while let Some((layer, blocks)) = below.pop() {
            let key = LeafKey { layer, ..key };
            let blocks = match self.lookup(s, key) {
                Some(Content::Loading | Content::Broken(_)) | None => {
                    missing = true;
                    blocks
                }
                Some(Content::Absent) => blocks,
                Some(Content::Present(leaf)) => {
                    // A leaf that has seen the repair may have been changed since, and needs nothing; what it inherits,
                    // others that have not seen the repair may inherit as well. One of a layer that ends has been
                    // emptied, or is being.
                    let seen = leaf.repaired_upto >= position;
                    let emptied = s.jobs.is_merging(layer) || s.jobs.is_dropped(layer);
                    let entries = || leaf.entries.of(range.clone()).zip(&before).zip(blocks.iter());
                    let inherited: Rc<[bool]> =
                        entries().map(|((entry, old), wanted)| *wanted && same_block(entry, old)).collect();
                    if !seen && inherited.contains(&true) {
                        inheritors.extend(self.cache.find(key).map(|slot| (slot, inherited.clone())));
                    }
                    if seen || emptied {
                        entries().map(|((entry, _), wanted)| *wanted && !entry.hides_ancestors()).collect()
                    } else {
                        inherited
                    }
                }
            };
            if blocks.contains(&true) {
                below.extend(children(self, layer, &blocks));
            }
        }
        if missing { Err(Step::Loading) } else { Ok(inheritors) }
    }

    /// Gives an inheritor the blocks that a repair has brought to the leaf it inherits from; `before` is what that leaf
    /// had.
    pub(super) fn inherit_repair(
        &mut self,
        (slot, blocks): &Inheritor,
        place: Place,
        first: BlockIndex,
        before: &[Entry],
        data: Option<Payload<'_>>,
        position: u64,
    ) {
        if self.cache.leaf(*slot).is_none_or(|leaf| leaf.repaired_upto >= position) {
            return;
        }
        let (leaf, _) = self.cache.change(*slot, place.generation);
        leaf.log_upto = leaf.log_upto.max(position);
        leaf.repaired_upto = position;
        for (index, old) in before.iter().enumerate().filter(|(index, _)| blocks[*index]) {
            let block = usize::from(first.0) + index;
            let entry = &leaf.entries[block];
            debug_assert!(same_block(entry, old) && (!old.is_allocated() || !entry.is_own()));
            leaf.entries.set(block, data.map_or(Entry::default(), |payload| payload.entry(index).inherited()));
        }
    }

    /// A leaf of a layer that is merged into its child: what the child inherits is its own from here on, what it has
    /// replaced is given up. The layer's leaf stays, empty, until the job is over: a replay must not fill it again.
    pub fn merge_leaf(&mut self, s: &mut MapCx<'_>, key: LeafKey, into: LayerId) -> Step {
        // A group that is forgotten must get no new leaves.
        if s.groups.get_mut(key.pg).is_forgotten() {
            return Step::Done;
        }
        let child = LeafKey { layer: into, ..key };
        let (from, to) = match (self.leaf_here(s, key), self.leaf_here(s, child)) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(step), _) | (_, Err(step)) => return step,
        };
        let Some(from) = from else { return Step::Done };
        let Some(source) = self.cache.leaf(from).cloned() else { return Step::Done };
        let to = match to {
            Some(to)
                if source.entries.present().all(|(_, entry)| !entry.is_allocated() && !entry.hides_ancestors()) =>
            {
                // Nothing is left here; but that this layer was written counts for its child from here on.
                if self.cache.leaf(to).is_some_and(|leaf| leaf.modified >= source.modified) {
                    return Step::Done;
                }
                to
            }
            Some(to) => to,
            None => {
                // The child reads all of it: it gets a leaf that inherits everything.
                let slot = self.cache.find(child).expect("its absence was found just now");
                self.cache.create(slot, source.child());
                self.layers.leaf_made(into);
                slot
            }
        };
        let generation = s.cx.log().generation();
        let mut moved: Vec<(u32, i32)> = Vec::new();
        let mut freed: Vec<(u32, i32)> = Vec::new();
        {
            let segments = s.cx.segments();
            let (leaf, delta) = self.cache.change(to, generation);
            leaf.modified = leaf.modified.max(source.modified);
            leaf.log_upto = leaf.log_upto.max(source.log_upto);
            for (block, old) in source.entries.present().filter(|(_, old)| old.is_own()) {
                let entry = leaf.entries[block];
                let segment = segments.segment_of(old.address);
                if entry.address == old.address && !entry.is_own() {
                    leaf.entries.set(block, Entry { flags: entry.flags & !Entry::INHERITED, ..entry });
                    count(&mut moved, segment, 1);
                } else {
                    count(&mut freed, segment, 1);
                }
            }
            delta.extend_from_slice(&moved);
            // What is not known of the layer is not known of its child then, and not of what lies below both.
            for (block, _) in source.entries.present().filter(|(_, old)| *old == &Entry::unknown()) {
                if leaf.entries[block] == Entry::unknown().inherited() {
                    leaf.entries.set(block, Entry::unknown());
                }
            }
        }
        {
            let (leaf, delta) = self.cache.change(from, generation);
            leaf.entries.clear();
            delta.extend(moved.iter().chain(&freed).map(|(segment, blocks)| (*segment, -blocks)));
        }
        // The layer's leaf may be saved as empty only with, or after, the child's.
        self.cache.save_with(from, child);
        // What a repair brought to the layer counts as the child's own from here on. Replay gives a repair's blocks to
        // those that lie below only as long as the child inherits them: the child is saved with all that have got them.
        self.cache.save_with_needs_of(to, from);
        let blocks = |deltas: &[(u32, i32)]| deltas.iter().map(|(_, blocks)| i64::from(*blocks)).sum::<i64>();
        self.layers.own(into, blocks(&moved));
        self.layers.own(key.layer, -blocks(&moved) - blocks(&freed));
        freed
            .iter()
            .for_each(|(segment, blocks)| s.cx.segments_mut().remove_live(LiveRight::LEAF, *segment, *blocks as u32));
        moved.iter().for_each(|(segment, _)| self.merged_owners.add(*segment, key.layer, into));
        Step::Done
    }
}

/// Both entries stand for the same block of the same layer, or for zeros, or for what is not known: a leaf that
/// inherits from a damaged one knows no more than that. What is not known because the leaf itself was damaged may be
/// something else.
fn same_block(entry: &Entry, old: &Entry) -> bool {
    entry.is_unknown() == old.is_unknown() && entry.address == old.address && !entry.hides_ancestors()
}

fn count(deltas: &mut Vec<(u32, i32)>, segment: u32, blocks: i32) {
    match deltas.last_mut() {
        Some((last, sum)) if *last == segment => *sum += blocks,
        _ => deltas.push((segment, blocks)),
    }
}
