//! The map: where each block of each layer is, in leaves of which memory holds some and a database the others.
//!
//! - *Leaves*: one for each chunk of a layer (`leaf.rs`), in memory within a bound (`cache.rs`), found or asked for
//!   (`lookup.rs`).
//! - *Changes*: what committed writes and repairs do to them (`apply.rs`, `repairs.rs`); what relocations, merges and
//!   repairs do to layers that lie on one another (`inheritance.rs`, `layers.rs`, `merged_owners.rs`). Writes to leaves
//!   that are not in memory wait until there are some for each (`deferred.rs`, `settling.rs`).
//! - *Checkpoints*: which changed leaves are saved together (`saving.rs`).
//! - *Damage*: leaves that can't be used (`damage.rs`, `broken.rs`).
//!
//! Whoever calls a method that needs leaves gets [`Step::Loading`] when one is not here: it has been asked for, and the
//! call is to be made again. Nothing has changed then. The map alone changes how many blocks of a segment are live: the
//! table asks for a [`LiveRight`], which only this folder can give.

mod apply;
mod broken;
mod cache;
mod damage;
mod deferred;
mod entries;
mod inheritance;
mod layers;
mod leaf;
mod lookup;
mod merged_owners;
mod payload;
mod repairs;
mod right;
mod saving;
mod settling;
mod step;

pub(crate) use cache::{Content, Slot, SlotId};
pub use damage::{OverdueLeaf, UnknownBlocks};
pub use entries::Entries;
pub use leaf::{DamagedLeaf, Entry, Leaf, LeafError, LeafImage, LeafKey, LeafStamps, SavedLeaf};
pub use merged_owners::MergedOwner;
pub(crate) use merged_owners::MergedOwners;
pub(crate) use repairs::Repairs;
pub(crate) use right::LiveRight;
pub(crate) use saving::Wanted;
pub(crate) use step::Step;

use crate::checkpoint::CheckpointRoot;
use crate::cx::StoreCx;
use crate::groups::Groups;
use crate::jobs::Jobs;
use crate::options::Options;
use azekura_base::LayerId;
use cache::LeafCache;
use damage::Damage;
use deferred::Deferred;
use layers::Layers;

/// Leaves that one effect asks for at most. One thread looks up all of them, beside others that look up other ones: the
/// fewer they are, the sooner the first that were asked for are here.
const LEAVES_PER_LOAD_MAX: usize = 4;

/// Leaves make room for writes that wait when these have taken such a share of the memory more.
const EVICT_SHARE: usize = 128;

/// What the map looks at and changes beside itself.
pub(crate) struct MapCx<'a> {
    pub cx: &'a mut StoreCx,
    pub groups: &'a mut Groups,
    pub jobs: &'a mut Jobs,
    pub repairs: &'a mut Repairs,
}

/// The map. See the module's description.
#[derive(Debug)]
pub(crate) struct Map {
    cache: LeafCache,
    layers: Layers,
    merged_owners: MergedOwners,
    damage: Damage,
    deferred: Deferred,
    /// The log generation in which replay begins, of the last checkpoint, whether or not that is saved yet.
    replay_from: u64,
    /// Memory that writes which wait had taken when leaves were let go the last time.
    evicted_at: usize,
    /// Leaves to ask for with the next effects.
    loads_wanted: Vec<LeafKey>,
}

impl Map {
    /// As the checkpoint has it.
    pub fn new(options: &Options, checkpoint: &CheckpointRoot) -> Map {
        Map {
            cache: LeafCache::new(options.leaf_cache_bytes_max),
            layers: Layers::new(&checkpoint.layers),
            merged_owners: MergedOwners::default(),
            damage: Damage::new(&checkpoint.damaged),
            deferred: Deferred::default(),
            replay_from: 0,
            evicted_at: 0,
            loads_wanted: Vec::new(),
        }
    }

    /// Leaves to ask for next, for one effect.
    pub fn take_loads_wanted(&mut self) -> Option<Vec<LeafKey>> {
        if self.loads_wanted.is_empty() {
            return None;
        }
        let rest = self.loads_wanted.split_off(self.loads_wanted.len().min(LEAVES_PER_LOAD_MAX));
        Some(std::mem::replace(&mut self.loads_wanted, rest))
    }

    /// The leaf in a slot, if there is one.
    pub fn leaf(&self, slot: SlotId) -> Option<&Leaf> {
        self.cache.leaf(slot)
    }

    /// Whose leaf is in this slot.
    pub fn key_of(&self, slot: SlotId) -> LeafKey {
        self.cache.slot(slot).key
    }

    /// A leaf that is in memory.
    pub fn leaf_in_memory(&mut self, key: LeafKey) -> Option<&Leaf> {
        let slot = self.cache.find(key)?;
        self.cache.leaf(slot)
    }

    /// The leaves that are here, or that writes wait for, and for whose keys `wanted` is true, in order.
    pub fn present(&self, wanted: impl Fn(&LeafKey) -> bool) -> Vec<LeafKey> {
        let mut keys = self.cache.present(&wanted);
        let here = keys.len();
        keys.extend(self.waiting_leaves().map(|(key, _)| key).filter(|key| wanted(key)));
        if keys.len() > here {
            keys.sort_unstable();
            keys.dedup();
        }
        keys
    }

    /// All leaves that differ from the saved map, or are being saved.
    pub fn unsaved(&self) -> impl Iterator<Item = &Slot> {
        self.cache.unsaved()
    }

    /// Lets leaves go that memory has no room for; those for which `keep` is true stay.
    pub fn evict(&mut self, keep: impl Fn(&LeafKey) -> bool) {
        self.evicted_at = self.deferred.bytes();
        self.cache.evict(self.evicted_at, keep);
    }

    /// Writes that wait have taken memory that leaves have to give up.
    pub fn is_over_memory(&mut self) -> bool {
        let (bytes, bytes_max) = (self.deferred.bytes(), self.cache.bytes_max());
        self.evicted_at = self.evicted_at.min(bytes);
        bytes - self.evicted_at > bytes_max / EVICT_SHARE && self.cache.bytes() + bytes > bytes_max
    }

    /// Memory that leaves take which are not saved.
    pub fn dirty_bytes(&self) -> usize {
        self.cache.dirty_bytes()
    }

    /// Leaves that are not saved, with those that writes wait for.
    pub fn dirty_count(&self) -> usize {
        self.cache.dirty_count() + self.deferred.len()
    }

    /// The oldest log generation with changes that are not saved, or that wait for their leaf.
    pub fn oldest_dirty(&self) -> Option<u64> {
        self.cache.oldest_dirty().into_iter().chain(self.deferred.oldest()).min()
    }

    /// Lookups that found their leaf, lookups that had to load one, and the bytes of all leaves.
    pub fn cache_figures(&self) -> (u64, u64, usize) {
        (self.cache.hits, self.cache.misses, self.cache.bytes() + self.deferred.bytes())
    }

    /// See [`crate::Store::set_parent`].
    pub fn set_parent(&mut self, layer: LayerId, parent: Option<LayerId>) {
        self.layers.set_parent(layer, parent);
    }

    pub fn parent(&self, layer: LayerId) -> Option<LayerId> {
        self.layers.parent(layer)
    }

    /// See [`Layers::between`].
    pub fn layers_between(&self, one: Option<LayerId>, other: LayerId) -> Vec<LayerId> {
        self.layers.between(one, other)
    }

    /// All layers that own blocks, and how many.
    pub fn layers(&self) -> impl Iterator<Item = (LayerId, u64)> + '_ {
        self.layers.iter()
    }

    /// Who owns the blocks of merged layers, as far as it is not saved.
    pub fn merged_owners(&self) -> &MergedOwners {
        &self.merged_owners
    }

    #[cfg(test)]
    pub fn note_owner(&mut self, owner: &MergedOwner) {
        self.merged_owners.add(owner.segment, owner.layer, owner.owner);
    }

    /// A layer that was to give up more than it owns: then the saved map is wrong.
    pub fn take_mismatch(&mut self) -> Option<LayerId> {
        self.layers.mismatch.take()
    }
}
