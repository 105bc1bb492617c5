//! Leaves are found in memory, or asked for.

use crate::map::cache::{Content, SlotId};
use crate::map::leaf::{Leaf, LeafKey, SavedLeaf};
use crate::map::step::Step;
use crate::map::{Map, MapCx};

/// Ancestors whose leaves are asked for together, at first and at most.
const ANCESTORS_PER_STEP_MIN: usize = 16;
const ANCESTORS_PER_STEP_MAX: usize = 512;

impl Map {
    /// What is known of a leaf; asks for it when nothing is.
    pub fn lookup(&mut self, s: &mut MapCx<'_>, key: LeafKey) -> Option<Content> {
        match self.cache.find(key) {
            Some(slot) => {
                self.cache.hits += 1;
                if matches!(self.cache.slot(slot).content, Content::Broken(_)) && self.replace_broken(s, slot).is_err()
                {
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
    pub fn leaf_here(&mut self, s: &mut MapCx<'_>, key: LeafKey) -> Result<Option<SlotId>, Step> {
        match self.lookup(s, key) {
            Some(Content::Loading | Content::Broken(_)) | None => Err(Step::Loading),
            Some(Content::Absent) => Ok(None),
            Some(Content::Present(_)) => Ok(self.cache.find(key)),
        }
    }

    /// The slot of a leaf that is to be changed. `None`: there is none and, with `create` false, none is needed,
    /// because no ancestor has one either. `Err`: not now.
    pub(super) fn leaf_for_change(
        &mut self,
        s: &mut MapCx<'_>,
        key: LeafKey,
        create: bool,
    ) -> Result<Option<SlotId>, Step> {
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
                self.replace_broken(s, slot)?;
                return Ok(Some(slot));
            }
            Content::Absent => {}
        }
        let nearest = self.nearest(s, key)?;
        let leaf = match nearest {
            Some(ancestor) => {
                let mut leaf = self.cache.leaf(ancestor).map(Leaf::child).unwrap_or_default();
                if !s.cx.is_running() {
                    // At replay the ancestor may have been saved after repairs of the child that are still to be done.
                    leaf.repaired_upto = 0;
                }
                leaf
            }
            None if create => Leaf::default(),
            None => return Ok(None),
        };
        self.cache.create(slot, leaf);
        self.layers.leaf_made(key.layer);
        // What it inherits may be blocks that a replay finds elsewhere: of a write that was committed while its blocks
        // were being moved.
        let unsaved = nearest.map(|ancestor| self.cache.slot(ancestor)).filter(|ancestor| ancestor.dirty.is_some());
        if let Some(ancestor) = unsaved.map(|ancestor| ancestor.key) {
            self.cache.save_with(slot, ancestor);
        }
        Ok(Some(slot))
    }

    /// The leaf that a read of `key` looks into: the layer's own, or its nearest ancestor's.
    pub fn nearest(&mut self, s: &mut MapCx<'_>, key: LeafKey) -> Result<Option<SlotId>, Step> {
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
                    self.cache.is_read(slot);
                    break Some(slot);
                }
                Content::Loading => return Err(Step::Loading),
                Content::Broken(_) => {
                    self.replace_broken(s, slot)?;
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

    /// The saved map has given a leaf.
    pub fn leaf_loaded(&mut self, key: LeafKey, leaf: SavedLeaf) {
        self.damage.leaf_came(&key, &leaf);
        self.cache.loaded(key, leaf);
    }

    /// The saved map does not give a leaf: nothing is known of it any more.
    pub fn load_failed(&mut self, key: LeafKey) {
        self.cache.load_failed(key);
    }
}
