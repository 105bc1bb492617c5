//! Layers: how they lie on one another, how they end, and what they show and own.

use crate::jobs::Job;
use crate::log::Item;
use crate::store::Store;
use azekura_base::{CompareLayers, LayerId, MeasureLayer};

impl Store {
    /// Tells that `layer` lies on top of `parent`. Must be known before the first record that names `layer`, and again
    /// after each opening. A layer on which another lies is frozen: its last write must be committed before the first
    /// to the layer on top.
    ///
    /// # Panics
    /// When they are the same.
    pub fn set_parent(&mut self, layer: LayerId, parent: LayerId) {
        self.engine.map_mut().set_parent(layer, Some(parent));
    }

    /// Tells that `layer` lies on top of nothing any more: the layer below has been merged into it and was the last.
    pub fn clear_parent(&mut self, layer: LayerId) {
        self.engine.map_mut().set_parent(layer, None);
    }

    /// Gives what `layer` holds on this device to `into`, the only layer that lies on top of it, as far as that has not
    /// replaced it. [`crate::Completion::Durable`] with `token` follows at once, [`crate::Report::LayerGone`] when it
    /// is done. Until then the tree of layers must stay as it is at this place, also over a restart; afterwards the
    /// parent of `into` is the parent of `layer`.
    pub fn merge_layer(&mut self, token: u64, layer: LayerId, into: LayerId) {
        if self.cx().is_running() {
            self.push(token, Item::Job { job: Job::MergeLayer { layer, into } });
        }
    }

    /// Gives up everything that `layer` holds on this device. [`crate::Completion::Durable`] with `token` follows at
    /// once, [`crate::Report::LayerGone`] when the space has come back. No layer may lie on top of it, and nothing may
    /// read it any more; until it is gone, a late write to it is ignored.
    pub fn drop_layer(&mut self, token: u64, layer: LayerId) {
        if self.cx().is_running() {
            // Ahead of all others: writes that wait for space may be waiting for this.
            let id = self.engine.cx_mut().new_id();
            self.log.push_first(id, token, Item::Job { job: Job::DropLayer(layer) });
        }
    }

    /// The layer is being merged into its child, or dropped, or is not quite gone yet.
    #[must_use]
    pub fn is_ending(&self, layer: LayerId) -> bool {
        self.engine.jobs().is_merging(layer) || self.engine.jobs().is_dropped(layer)
    }

    /// All layers that hold something on this device, and the blocks that each accounts for: together they are all that
    /// is live, and all that was written and waits for its leaf. Of the latter nobody knows yet how many blocks the
    /// layer had before: it may be too many, and is never too few.
    pub fn layers(&self) -> impl Iterator<Item = (LayerId, u64)> + '_ {
        let mut layers = self.engine.map().waiting_blocks().clone();
        self.engine.map().layers().for_each(|(layer, blocks)| *layers.entry(layer).or_default() += blocks);
        layers.into_iter()
    }

    /// Finds out how many blocks the end of a layer would give back, a part of its chunks at a time.
    /// [`crate::Report::Measured`] follows; meanwhile everything else goes on, and the figure is as of some time in
    /// between for each chunk.
    pub fn measure_layer(&mut self, token: u64, asked: MeasureLayer) {
        self.engine.measure(token, asked);
    }

    /// Finds out which blocks two layers show differently, a part of the chunks at a time.
    /// [`crate::Report::Differences`] follows; meanwhile everything else goes on. Writes that were committed before are
    /// in the answer, those of meanwhile may be. The answer may name blocks that are the same, and leaves out none that
    /// differ, as long as neither layer is ending ([`Store::is_ending`]).
    ///
    /// # Panics
    /// When `limit` is 0.
    pub fn compare_layers(&mut self, token: u64, asked: CompareLayers) {
        assert!(asked.limit > 0, "a page of nothing");
        self.engine.compare(token, asked);
    }
}
