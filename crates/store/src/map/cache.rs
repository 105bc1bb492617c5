//! Leaves in memory: looked up, changed, saved by checkpoints, and let go when memory is short.

use crate::hash::FixedMap;
use crate::map::leaf::{DamagedLeaf, Leaf, LeafImage, LeafKey, SavedLeaf};
use azekura_base::{ChunkIndex, LayerId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Memory that a slot takes without its leaf, about: with its places in the index and among the dirty ones.
const SLOT_BYTES: usize = size_of::<Slot>() + 64;

pub(crate) type SlotId = u32;

#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// Has been asked for.
    Loading,
    /// There is no such leaf.
    Absent,
    Present(LeafImage),
    /// There is one, and it can't be used: it is replaced before anybody looks at it (`damage.rs`).
    Broken(Arc<DamagedLeaf>),
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub key: LeafKey,
    pub content: Content,
    /// The oldest log generation whose changes are not saved; `None` when all are.
    pub dirty: Option<u64>,
    /// Own blocks gained and lost in each segment since the leaf was last saved.
    pub delta: Vec<(u32, i32)>,
    /// So many deltas are merged.
    merge_at: usize,
    /// Blocks that a leaf owned which was damaged; in which segments is not known. Not saved yet.
    pub ghosts: u32,
    /// Leaves that must be saved with this one, if they have changed.
    pub needs: Vec<LeafKey>,
    /// Memory that it was last counted with.
    bytes: usize,
    /// Part of the checkpoint in progress: the saved map may still give the older state.
    pub saving: bool,
    /// Where there is no leaf: no ancestor before this one has one either, none at all with `None`, as long as the tree
    /// of layers has this version.
    pub skip: Option<(u64, Option<LayerId>)>,
    /// No reader has looked into the leaf since it was loaded.
    only_written: bool,
    /// Used since the clock hand last passed.
    referenced: bool,
    used: bool,
}

/// The cache. See the module's description.
#[derive(Debug)]
pub(crate) struct LeafCache {
    index: FixedMap<(LayerId, ChunkIndex), SlotId>,
    slots: Vec<Slot>,
    unused: Vec<SlotId>,
    dirty: BTreeSet<(u64, SlotId)>,
    bytes: usize,
    /// Of those, the ones of leaves that are not saved.
    dirty_bytes: usize,
    /// Its leaf may have grown since its memory was counted.
    changed: Option<SlotId>,
    bytes_max: usize,
    hand: usize,
    /// Leaves that were saved and that no reader has looked into.
    only_saved: Vec<SlotId>,
    pub hits: u64,
    pub misses: u64,
}

/// Deltas are merged when a leaf has gathered so many, and twice as many as were left of them the last time: a leaf
/// whose blocks lay in many segments would otherwise sort them anew with each change.
const DELTAS_MAX: usize = 64;

impl LeafCache {
    pub fn new(bytes_max: usize) -> LeafCache {
        LeafCache {
            index: FixedMap::default(),
            slots: Vec::new(),
            unused: Vec::new(),
            dirty: BTreeSet::new(),
            bytes: 0,
            dirty_bytes: 0,
            changed: None,
            bytes_max,
            hand: 0,
            only_saved: Vec::new(),
            hits: 0,
            misses: 0,
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that leaves may take, with all that stands in for them.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    /// Memory of the leaves that are not saved.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty_bytes
    }

    /// The oldest log generation with changes that are not saved.
    pub fn oldest_dirty(&self) -> Option<u64> {
        self.dirty.first().map(|(generation, _)| *generation)
    }

    pub fn find(&mut self, key: LeafKey) -> Option<SlotId> {
        let slot = self.index.get(&(key.layer, key.chunk)).copied()?;
        let entry = &mut self.slots[slot as usize];
        assert_eq!(entry.key.pg, key.pg, "chunk {} of layer {} belongs to another group", key.chunk, key.layer);
        entry.referenced = true;
        Some(slot)
    }

    pub fn slot(&self, slot: SlotId) -> &Slot {
        &self.slots[slot as usize]
    }

    /// Remembers where the search for an ancestor's leaf has ended.
    pub fn set_skip(&mut self, slot: SlotId, version: u64, ancestor: Option<LayerId>) {
        self.slots[slot as usize].skip = Some((version, ancestor));
    }

    pub fn leaf(&self, slot: SlotId) -> Option<&Leaf> {
        match &self.slots[slot as usize].content {
            Content::Present(leaf) => Some(leaf),
            _ => None,
        }
    }

    fn set_content(&mut self, slot: SlotId, content: Content) {
        self.slots[slot as usize].content = content;
        self.count_memory(slot);
    }

    /// Counts the memory of a slot again.
    fn count_memory(&mut self, slot: SlotId) {
        let entry = &mut self.slots[slot as usize];
        let leaf = match &entry.content {
            Content::Present(leaf) => leaf.memory_bytes(),
            _ => 0,
        };
        let (before, now) = (entry.bytes, SLOT_BYTES + leaf + deltas_bytes(&entry.delta));
        entry.bytes = now;
        self.bytes = self.bytes - before + now;
        if entry.dirty.is_some() {
            self.dirty_bytes = self.dirty_bytes - before + now;
        }
    }

    /// Counts the memory of the leaf that was changed last.
    fn count_changed(&mut self) {
        if let Some(slot) = self.changed.take() {
            self.count_memory(slot);
        }
    }

    /// A slot that waits for its leaf.
    pub fn start_loading(&mut self, key: LeafKey) {
        let slot = Slot {
            key,
            content: Content::Loading,
            dirty: None,
            delta: Vec::new(),
            merge_at: DELTAS_MAX,
            ghosts: 0,
            needs: Vec::new(),
            bytes: SLOT_BYTES,
            saving: false,
            skip: None,
            only_written: true,
            referenced: true,
            used: true,
        };
        self.bytes += SLOT_BYTES;
        let id = match self.unused.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as SlotId
            }
        };
        let before = self.index.insert((key.layer, key.chunk), id);
        assert!(before.is_none(), "{key:?} was loaded twice");
    }

    /// What the saved map had.
    pub fn loaded(&mut self, key: LeafKey, leaf: SavedLeaf) {
        let slot = self.index[&(key.layer, key.chunk)];
        assert!(matches!(self.slots[slot as usize].content, Content::Loading));
        let content = match leaf {
            SavedLeaf::Absent => Content::Absent,
            SavedLeaf::Whole(leaf) => Content::Present(leaf),
            SavedLeaf::Damaged(damaged) | SavedLeaf::Refused(damaged) => Content::Broken(damaged.into()),
        };
        self.set_content(slot, content);
    }

    /// The load failed: forgets the slot.
    pub fn load_failed(&mut self, key: LeafKey) {
        let slot = self.index[&(key.layer, key.chunk)];
        self.release(slot);
    }

    fn release(&mut self, slot: SlotId) {
        let entry = &mut self.slots[slot as usize];
        assert!(entry.dirty.is_none() && !entry.saving && entry.used);
        self.bytes -= entry.bytes;
        entry.bytes = 0;
        entry.content = Content::Absent;
        entry.used = false;
        let key = (entry.key.layer, entry.key.chunk);
        self.index.remove(&key);
        self.unused.push(slot);
    }

    /// The leaf in `slot`, to be changed by a record of log `generation`.
    pub fn change(&mut self, slot: SlotId, generation: u64) -> (&mut Leaf, &mut Vec<(u32, i32)>) {
        self.count_changed();
        self.changed = Some(slot);
        self.mark_dirty(slot, generation);
        let entry = &mut self.slots[slot as usize];
        if entry.delta.len() >= entry.merge_at {
            merge_deltas(&mut entry.delta);
            entry.merge_at = DELTAS_MAX.max(entry.delta.len() * 2);
        }
        match &mut entry.content {
            Content::Present(leaf) => (Arc::make_mut(leaf), &mut entry.delta),
            _ => unreachable!("only a leaf that is here can be changed"),
        }
    }

    /// Puts a new leaf into a slot that had none.
    pub fn create(&mut self, slot: SlotId, leaf: Leaf) {
        assert!(matches!(self.slots[slot as usize].content, Content::Absent));
        self.set_content(slot, Content::Present(Arc::new(leaf)));
    }

    /// Puts `leaf` into the place of one that is damaged and owned `ghosts` blocks, as a change of log `generation`.
    pub fn replace(&mut self, slot: SlotId, leaf: Leaf, ghosts: u32, generation: u64) {
        assert!(matches!(self.slots[slot as usize].content, Content::Broken(_)));
        self.set_content(slot, Content::Present(Arc::new(leaf)));
        self.mark_dirty(slot, generation);
        self.slots[slot as usize].ghosts += ghosts;
    }

    /// Removes the leaf in `slot` for good; the caller has accounted for its blocks in the deltas.
    pub fn remove(&mut self, slot: SlotId) {
        assert!(self.slots[slot as usize].dirty.is_some(), "a removal has to be saved");
        self.set_content(slot, Content::Absent);
    }

    /// The leaf in `slot` may not be saved before the leaf of `other`.
    pub fn save_with(&mut self, slot: SlotId, other: LeafKey) {
        let needs = &mut self.slots[slot as usize].needs;
        if !needs.contains(&other) {
            needs.push(other);
        }
    }

    /// The leaf in `slot` may not be saved before those that the leaf in `of` may not be saved before.
    pub fn save_with_needs_of(&mut self, slot: SlotId, of: SlotId) {
        let key = self.slots[slot as usize].key;
        for other in self.slots[of as usize].needs.clone() {
            if other != key {
                self.save_with(slot, other);
            }
        }
    }

    fn mark_dirty(&mut self, slot: SlotId, generation: u64) {
        let entry = &mut self.slots[slot as usize];
        match entry.dirty {
            Some(since) if since <= generation => return,
            Some(since) => {
                self.dirty.remove(&(since, slot));
            }
            None => self.dirty_bytes += entry.bytes,
        }
        entry.dirty = Some(generation);
        self.dirty.insert((generation, slot));
    }

    /// Takes dirty leaves for a checkpoint: all with changes from generations before `replay_from`; and at most `limit`
    /// others, of as many bytes, the longest dirty first, with changes from generations before `before` or that gave up
    /// blocks in a segment for which `emptied` is true. Calls `save` with each slot, which counts as clean from here on
    /// but stays in memory.
    pub fn take_dirty(
        &mut self,
        (limit, bytes_max): (usize, usize),
        replay_from: u64,
        before: u64,
        emptied: impl Fn(u32) -> bool,
        mut save: impl FnMut(&Slot),
    ) {
        self.count_changed();
        let wanted = |(since, slot): &&(u64, SlotId)| {
            let delta = &self.slots[*slot as usize].delta;
            *since < before || delta.iter().any(|(segment, blocks)| *blocks < 0 && emptied(*segment))
        };
        let mut taken: Vec<(u64, SlotId)> = self.dirty.range(..(replay_from, 0)).copied().collect();
        let mut bytes = 0;
        let fits = |(_, slot): &&(u64, SlotId)| {
            let fits = bytes < bytes_max;
            bytes += self.slots[*slot as usize].bytes;
            fits
        };
        taken.extend(self.dirty.range((replay_from, 0)..).filter(wanted).take(limit).take_while(fits));
        while let Some(key) = taken.pop() {
            // It may have been taken for the sake of another one.
            if !self.dirty.remove(&key) {
                continue;
            }
            let entry = &mut self.slots[key.1 as usize];
            entry.dirty = None;
            self.dirty_bytes -= entry.bytes;
            entry.saving = true;
            merge_deltas(&mut entry.delta);
            save(entry);
            let deltas = deltas_bytes(&std::mem::take(&mut entry.delta));
            entry.bytes -= deltas;
            self.bytes -= deltas;
            entry.merge_at = DELTAS_MAX;
            entry.ghosts = 0;
            for other in std::mem::take(&mut entry.needs) {
                let slot = self.index.get(&(other.layer, other.chunk)).copied();
                let dirty = slot.and_then(|slot| self.slots[slot as usize].dirty.map(|since| (since, slot)));
                taken.extend(dirty);
            }
        }
    }

    /// The checkpoint in progress is saved.
    pub fn saved(&mut self, slots: &[LeafKey]) {
        for key in slots {
            if let Some(slot) = self.index.get(&(key.layer, key.chunk)) {
                let entry = &mut self.slots[*slot as usize];
                entry.saving = false;
                if entry.only_written {
                    self.only_saved.push(*slot);
                }
            }
        }
    }

    /// A reader looks into the leaf in `slot`.
    pub fn is_read(&mut self, slot: SlotId) {
        self.slots[slot as usize].only_written = false;
    }

    /// What was loaded to be written goes at once when many writes wait, whose leaves are not here: a write that finds
    /// such a leaf would have it saved once more for one block, and one that does not find it waits for others
    /// (`deferred.rs`).
    fn evict_saved(&mut self, taken: usize, keep: impl Fn(&LeafKey) -> bool) {
        for slot in std::mem::take(&mut self.only_saved) {
            let entry = &self.slots[slot as usize];
            let is_clean = entry.used && entry.dirty.is_none() && !entry.saving;
            let is_idle = entry.only_written && matches!(entry.content, Content::Present(_)) && !keep(&entry.key);
            if is_clean && is_idle && taken > self.bytes_max / 4 {
                self.release(slot);
            }
        }
    }

    /// Lets clean leaves go until memory is within its bound, of which something else takes `taken`; those for which
    /// `keep` is true stay.
    pub fn evict(&mut self, taken: usize, keep: impl Fn(&LeafKey) -> bool) {
        self.count_changed();
        self.evict_saved(taken, &keep);
        // Two rounds: the first may only take the marks of use away.
        let mut steps = self.slots.len() * 2;
        while self.bytes + taken > self.bytes_max && steps > 0 {
            steps -= 1;
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            if !slot.used || slot.dirty.is_some() || slot.saving || matches!(slot.content, Content::Loading) {
                continue;
            }
            if slot.referenced {
                slot.referenced = false;
            } else if !keep(&slot.key) {
                self.release(self.hand as SlotId);
            }
        }
    }

    /// All leaves that differ from the saved map, or are being saved.
    pub fn unsaved(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|s| s.used && (s.dirty.is_some() || s.saving))
    }

    /// The leaves that are here and for whose keys `wanted` is true, in order.
    pub fn present(&self, wanted: impl Fn(&LeafKey) -> bool) -> Vec<LeafKey> {
        let here = |s: &&Slot| s.used && wanted(&s.key) && matches!(s.content, Content::Present(_));
        let mut keys: Vec<LeafKey> = self.slots.iter().filter(here).map(|s| s.key).collect();
        keys.sort_unstable();
        keys
    }
}

fn deltas_bytes(delta: &Vec<(u32, i32)>) -> usize {
    delta.capacity() * size_of::<(u32, i32)>()
}

fn merge_deltas(delta: &mut Vec<(u32, i32)>) {
    delta.sort_unstable_by_key(|(segment, _)| *segment);
    delta.dedup_by(|from, into| {
        let same = from.0 == into.0;
        if same {
            into.1 += from.1;
        }
        same
    });
    delta.retain(|(_, blocks)| *blocks != 0);
}
