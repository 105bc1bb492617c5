//! The tree of layers, as the configuration gives it, and how much each layer holds.

use azekura_base::LayerId;
use std::collections::{BTreeMap, BTreeSet};

/// The tree of layers.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    parents: BTreeMap<LayerId, LayerId>,
    children: BTreeMap<LayerId, Vec<LayerId>>,
    /// Raised when what was found out about the ancestors of a layer may not hold any more.
    version: u64,
    owned: BTreeMap<LayerId, Owned>,
    /// Layers whose saved count differs from what was last saved.
    changed: BTreeSet<LayerId>,
    /// A layer that was to give up more than it owns: then the saved map is wrong.
    pub mismatch: Option<LayerId>,
}

/// Blocks that the leaves of a layer own.
#[derive(Debug, Default, Clone, Copy)]
struct Owned {
    live: u64,
    /// Of the leaves as they are saved.
    saved: u64,
}

impl Layers {
    pub fn new(rows: &[(LayerId, u64)]) -> Layers {
        let owned = rows.iter().map(|(layer, blocks)| (*layer, Owned { live: *blocks, saved: *blocks }));
        Layers { owned: owned.collect(), ..Layers::default() }
    }

    /// Goes with what is remembered of ancestors' leaves.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A layer gets a leaf: those that lie on it look there from now on.
    pub fn leaf_made(&mut self, layer: LayerId) {
        if self.has_children(layer) {
            self.version += 1;
        }
    }

    pub fn set_parent(&mut self, layer: LayerId, parent: Option<LayerId>) {
        assert!(Some(layer) != parent, "{layer:?} can't be its own parent");
        let before = match parent {
            Some(parent) => self.parents.insert(layer, parent),
            None => self.parents.remove(&layer),
        };
        if before == parent {
            return;
        }
        if before.is_some() {
            self.version += 1;
        }
        if let Some(before) = before
            && let Some(children) = self.children.get_mut(&before)
        {
            children.retain(|child| *child != layer);
            if children.is_empty() {
                self.children.remove(&before);
            }
        }
        if let Some(parent) = parent {
            self.children.entry(parent).or_default().push(layer);
        }
    }

    pub fn parent(&self, layer: LayerId) -> Option<LayerId> {
        self.parents.get(&layer).copied()
    }

    pub fn children(&self, layer: LayerId) -> impl Iterator<Item = LayerId> + '_ {
        self.children.get(&layer).into_iter().flatten().copied()
    }

    pub fn has_children(&self, layer: LayerId) -> bool {
        self.children.contains_key(&layer)
    }

    /// The layers between two layers, which are among them, and their nearest common ancestor, which is not; ancestors
    /// before what lies on them. Without the first one: the second and all that it lies on.
    pub fn between(&self, one: Option<LayerId>, other: LayerId) -> Vec<LayerId> {
        let path = |layer| -> Vec<LayerId> {
            let path: Vec<LayerId> = std::iter::successors(layer, |layer| self.parent(*layer)).collect();
            path.into_iter().rev().collect()
        };
        let (one, other) = (path(one), path(Some(other)));
        let common = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
        one[common..].iter().chain(&other[common..]).copied().collect()
    }

    /// Leaves of `layer` own so many blocks more, or less.
    pub fn own(&mut self, layer: LayerId, blocks: i64) {
        if blocks == 0 {
            return;
        }
        let owned = self.owned.entry(layer).or_default();
        if let Some(live) = owned.live.checked_add_signed(blocks) {
            owned.live = live;
        } else {
            (owned.live, self.mismatch) = (0, Some(layer));
        }
        if owned.live == 0 && owned.saved == 0 {
            self.owned.remove(&layer);
        }
    }

    /// The same for leaves as they are saved with the next checkpoint.
    pub fn add_saved(&mut self, layer: LayerId, blocks: i64) {
        if blocks == 0 {
            return;
        }
        let owned = self.owned.entry(layer).or_default();
        if let Some(saved) = owned.saved.checked_add_signed(blocks) {
            owned.saved = saved;
        } else {
            (owned.saved, self.mismatch) = (0, Some(layer));
        }
        if owned.live == 0 && owned.saved == 0 {
            self.owned.remove(&layer);
        }
        self.changed.insert(layer);
    }

    /// Rows that a checkpoint has to save: 0 blocks means that the row goes.
    pub fn take_changed(&mut self) -> Vec<(LayerId, u64)> {
        let changed = std::mem::take(&mut self.changed);
        let saved = |layer: &LayerId| self.owned.get(layer).map_or(0, |owned| owned.saved);
        changed.iter().map(|layer| (*layer, saved(layer))).collect()
    }

    /// All layers that own blocks.
    pub fn iter(&self) -> impl Iterator<Item = (LayerId, u64)> + '_ {
        self.owned.iter().filter(|(_, owned)| owned.live > 0).map(|(layer, owned)| (*layer, owned.live))
    }
}
