//! Leaves on their way to the saved map.

use crate::checkpoint::CheckpointBatch;
use crate::cx::StoreCx;
use crate::map::Map;
use crate::map::cache::Content;
use crate::map::leaf::LeafKey;
use azekura_base::LayerId;

/// Which leaves a checkpoint takes: all with changes from generations before `replay_from`; and at most `limit` others,
/// of at most `bytes_max` bytes of memory and one leaf more, the longest dirty first, with changes from generations
/// before `before`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub limit: usize,
    pub bytes_max: usize,
    pub replay_from: u64,
    pub before: u64,
}

impl Map {
    /// Takes leaves for a checkpoint, also those that gave up blocks in a segment in which nothing is live any more,
    /// and keeps the accounts of what is saved. Gives their keys.
    pub fn take_leaves(&mut self, cx: &mut StoreCx, wanted: Wanted, batch: &mut CheckpointBatch) -> Vec<LeafKey> {
        let (mut taken, mut deltas) = (Vec::new(), Vec::new());
        let mut owned: Vec<(LayerId, i64)> = Vec::new();
        let (segments, damage) = (cx.segments(), &mut self.damage);
        let emptied = |segment: u32| segments.get(segment).live == 0;
        self.cache.take_dirty((wanted.limit, wanted.bytes_max), wanted.replay_from, wanted.before, emptied, |slot| {
            taken.push(slot.key);
            deltas.extend_from_slice(&slot.delta);
            let gained: i64 = slot.delta.iter().map(|(_, blocks)| i64::from(*blocks)).sum();
            owned.push((slot.key.layer, gained - i64::from(slot.ghosts)));
            match &slot.content {
                Content::Present(leaf) => {
                    damage.saved(&slot.key, Some(leaf));
                    batch.leaves.push((slot.key, leaf.clone()));
                }
                _ => {
                    damage.saved(&slot.key, None);
                    batch.removed.push(slot.key);
                }
            }
        });
        for (segment, blocks) in deltas {
            cx.segments_mut().add_saved(segment, blocks);
        }
        for (layer, blocks) in owned {
            self.layers.add_saved(layer, blocks);
        }
        cx.counters().checkpoint_leaves += batch.leaves.len() as u64;
        cx.counters().checkpoint_bytes += batch.leaves.iter().map(|(_, leaf)| leaf.image_bytes() as u64).sum::<u64>();
        taken
    }

    /// Takes the rows of layers and merged owners that belong to it, without those of segments that it makes free.
    pub fn take_rows(&mut self, batch: &mut CheckpointBatch) {
        batch.layers = self.layers.take_changed();
        batch.merged_owners = self.merged_owners.take(&batch.merged_owners_gone);
    }

    /// The checkpoint with these leaves is saved.
    pub fn saved(&mut self, leaves: &[LeafKey]) {
        self.cache.saved(leaves);
        self.merged_owners.saved();
    }
}
