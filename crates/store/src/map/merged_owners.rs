//! Who owns the blocks that a layer wrote which has since been merged into its child.
//!
//! A segment's summary names the layer that wrote each block; the cleaner looks the block up in that layer's leaf. When
//! a layer is merged, the new owner is noted for each segment that holds blocks which changed hands, until the segment
//! is free. The notes are saved with the leaves that they belong to, and read when a segment is cleaned.

use azekura_base::LayerId;
use std::collections::BTreeMap;

/// In a segment, blocks that `layer` wrote are `owner`'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergedOwner {
    /// The segment.
    pub segment: u32,
    /// The layer that the log names.
    pub layer: LayerId,
    /// The layer that it was merged into.
    pub owner: LayerId,
}

/// Notes that are not saved yet.
#[derive(Debug, Default)]
pub(crate) struct MergedOwners {
    unsaved: BTreeMap<(u32, LayerId), LayerId>,
    saving: BTreeMap<(u32, LayerId), LayerId>,
}

impl MergedOwners {
    pub fn add(&mut self, segment: u32, layer: LayerId, owner: LayerId) {
        self.unsaved.insert((segment, layer), owner);
    }

    /// Notes for a checkpoint, without those of segments that it makes free.
    pub fn take(&mut self, freed: &[u32]) -> Vec<MergedOwner> {
        self.saving = std::mem::take(&mut self.unsaved);
        self.saving.retain(|(segment, _), _| !freed.contains(segment));
        self.saving
            .iter()
            .map(|((segment, layer), owner)| MergedOwner { segment: *segment, layer: *layer, owner: *owner })
            .collect()
    }

    /// The checkpoint in progress saves notes of this segment.
    pub fn is_saving(&self, segment: u32) -> bool {
        self.saving.range((segment, LayerId(0))..=(segment, LayerId(u64::MAX))).next().is_some()
    }

    /// The checkpoint is saved.
    pub fn saved(&mut self) {
        self.saving.clear();
    }

    /// The merged owner of `layer` in `segment`, as far as it is not saved.
    pub fn get(&self, segment: u32, layer: LayerId) -> Option<LayerId> {
        let key = (segment, layer);
        self.unsaved.get(&key).or_else(|| self.saving.get(&key)).copied()
    }
}
