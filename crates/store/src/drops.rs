//! The end of a layer: its leaves are found and removed a few at a time, and their space comes back.
//!
//! The record in the log stays pinned until all of it is done, so that a crash in between starts it again.

use crate::effect::{Effect, Failure, MapError};
use crate::groups::Place;
use crate::leaf::LeafKey;
use crate::ops::Op;
use crate::store::{Io, Store};
use azekura_base::{ChunkIndex, LayerId};
use std::collections::BTreeSet;

/// Leaves removed in one step.
const LEAVES_PER_STEP: usize = 64;

/// A layer that is being given up.
#[derive(Debug)]
pub(crate) struct Drop {
    place: Place,
    /// The next chunk to ask the saved map for; `None` once it has none left.
    from: Option<ChunkIndex>,
    /// Leaves of the step that are not removed yet.
    left: usize,
}

impl Store {
    /// The record that ends `layer` is durable.
    pub(crate) fn start_drop(&mut self, layer: LayerId, place: Place) {
        self.dropped.insert(layer);
        if self.drops.contains_key(&layer) {
            self.segments.release(place.segment);
            return;
        }
        // Leaves that the saved map does not know yet come first.
        let keys = self.cache.of_layer(layer);
        self.drops.insert(layer, Drop { place, from: Some(ChunkIndex(0)), left: 0 });
        self.drop_leaves(layer, keys);
    }

    fn drop_leaves(&mut self, layer: LayerId, keys: impl IntoIterator<Item = LeafKey>) {
        let keys: BTreeSet<LeafKey> = keys.into_iter().collect();
        let Some(drop) = self.drops.get_mut(&layer) else { return };
        // One more than there are: the step must not end while it is being started.
        drop.left = keys.len() + 1;
        let generation = drop.place.generation;
        for key in keys {
            self.submit((key.pg, key.chunk), Op::DropLeaf { key, generation });
        }
        self.leaf_dropped(layer);
    }

    /// One leaf of the step is gone.
    pub(crate) fn leaf_dropped(&mut self, layer: LayerId) {
        let Some(drop) = self.drops.get_mut(&layer) else { return };
        drop.left -= 1;
        if drop.left > 0 {
            return;
        }
        match drop.from {
            Some(from) => {
                let io = self.new_io(Io::Layer(layer));
                self.effects.push_back(Effect::ScanLayer { io, layer, from, limit: LEAVES_PER_STEP });
            }
            None => {
                let segment = drop.place.segment;
                self.drops.remove(&layer);
                self.segments.release(segment);
            }
        }
    }

    /// The saved map has listed some leaves of the layer.
    pub(crate) fn layer_listed(&mut self, layer: LayerId, result: Result<Vec<LeafKey>, MapError>) {
        let keys = match result {
            Ok(keys) => keys,
            Err(error) => return self.fail(Failure::Map(error)),
        };
        if let Some(drop) = self.drops.get_mut(&layer) {
            let last = keys.last().filter(|_| keys.len() >= LEAVES_PER_STEP);
            drop.from = last.and_then(|key| key.chunk.0.checked_add(1)).map(ChunkIndex);
        }
        self.drop_leaves(layer, keys);
    }
}
