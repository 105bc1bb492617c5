//! Invariant 9: what the map reaches and what segments count as live are equal.

use crate::leaf::{Leaf, LeafImage, LeafKey};
use crate::leaf_cache::Content;
use crate::store::Store;
use azekura_base::{ChunkIndex, LayerId};
use std::collections::BTreeMap;

impl Store {
    /// Compares the live counts with the whole map: `saved` are all leaves of the saved map. For tests and tools: it
    /// looks at every leaf.
    ///
    /// # Panics
    /// When they differ.
    pub fn assert_accounts<'a>(&'a self, saved: impl Iterator<Item = (LeafKey, &'a LeafImage)>) {
        let mut leaves: BTreeMap<(LayerId, ChunkIndex), &Leaf> = BTreeMap::new();
        let mut saved_live: BTreeMap<u32, u32> = BTreeMap::new();
        for (key, leaf) in saved {
            leaves.insert((key.layer, key.chunk), leaf);
            self.count(leaf, &mut saved_live);
        }
        let saving = self.saving.is_some();
        for slot in self.cache.unsaved() {
            let key = (slot.key.layer, slot.key.chunk);
            match &slot.content {
                Content::Present(leaf) => leaves.insert(key, leaf),
                _ => leaves.remove(&key),
            };
        }
        let mut live: BTreeMap<u32, u32> = BTreeMap::new();
        for leaf in leaves.values() {
            self.count(leaf, &mut live);
        }
        for (segment, entry) in self.segments.iter() {
            let counted = live.get(&segment).copied().unwrap_or(0);
            assert_eq!(entry.live, counted, "live blocks of segment {segment}");
            let counted = saved_live.get(&segment).copied().unwrap_or(0);
            assert!(saving || entry.saved_live == counted, "saved live blocks of segment {segment}");
        }
        assert_eq!(self.segments.live(), live.values().map(|blocks| u64::from(*blocks)).sum::<u64>());
    }

    fn count(&self, leaf: &Leaf, live: &mut BTreeMap<u32, u32>) {
        for entry in leaf.entries.iter().filter(|e| e.is_own()) {
            *live.entry(self.segments.segment_of(entry.address)).or_default() += 1;
        }
    }
}
