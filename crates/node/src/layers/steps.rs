//! What stores and other nodes are told of layers, and what they tell.

use crate::heads::Heads;
use crate::node::Node;
use crate::pending::PendingOp;
use crate::view::ClusterView;
use azekura_base::{ChunkIndex, DeviceId, Endpoint, LayerId, VolumeId};
use azekura_wire::{Layers as LayersMessage, Message};
use std::collections::BTreeSet;

impl Node {
    /// Follows what the configuration says of layers; `before` is what it said until now.
    pub(crate) fn follow_layers(&mut self, before: &ClusterView) -> Vec<VolumeId> {
        self.directory.layers.follow(&self.directory.view);
        let closed = self.directory.heads.follow(&self.directory.view);
        let view = &self.directory.view;
        let known = |(layer, (revision, _)): &(&LayerId, &(u64, LayerId))| {
            *revision <= view.revision || view.parents.contains_key(layer)
        };
        let known: Vec<LayerId> = self.directory.layers.learned.iter().filter(known).map(|(layer, _)| *layer).collect();
        self.directory.layers.learned.retain(|layer, _| !known.contains(layer));
        let gone = before.parents.keys().chain(&known).filter(|layer| !view.parents.contains_key(layer));
        for layer in gone.filter(|layer| !self.directory.layers.learned.contains_key(layer)) {
            self.devices.values_mut().for_each(|device| device.store.clear_parent(*layer));
        }
        for device in self.devices.values_mut() {
            view.parents.iter().for_each(|(layer, parent)| device.store.set_parent(*layer, *parent));
        }
        closed
    }

    /// Tells the store of a new device of the tree.
    pub(crate) fn tell_layers(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        let learned = self.directory.layers.learned.iter().map(|(layer, (_, parent))| (layer, parent));
        for (layer, parent) in self.directory.view.parents.iter().chain(learned) {
            device.store.set_parent(*layer, *parent);
        }
    }

    /// The layer whose chunk is to be compared in the place of one that is listed as changed: what is being merged is
    /// its child's. `None`: nobody can read it any more.
    fn compared_layer(&self, mut layer: LayerId) -> Option<LayerId> {
        while let Some((into, _)) = self.directory.view.merging.get(&layer) {
            layer = *into;
        }
        (!self.directory.view.dropped.contains_key(&layer) && self.directory.layers.is_known(layer)).then_some(layer)
    }

    /// What is to be compared for a list of changed chunks: parents before their children.
    pub(crate) fn compared_chunks(
        &self,
        changed: impl IntoIterator<Item = (LayerId, ChunkIndex)>,
    ) -> Vec<(LayerId, ChunkIndex)> {
        let changed = changed.into_iter();
        let chunks: BTreeSet<(LayerId, ChunkIndex)> =
            changed.filter_map(|(layer, chunk)| Some((self.compared_layer(layer)?, chunk))).collect();
        chunks.into_iter().collect()
    }

    /// A device has nothing of a layer, or what it has is about to become another's or to go: what arrives for it must
    /// not be stored.
    pub(crate) fn is_gone(&self, id: DeviceId, layer: LayerId) -> bool {
        let Some(device) = self.devices.get(&id) else { return false };
        let merged = self.directory.view.merging.get(&layer).is_some_and(|(_, devices)| !devices.contains(&id));
        merged
            || device.merging.contains(&layer)
            || device.store.is_ending(layer)
            || self.directory.view.dropped.contains_key(&layer)
            || !self.directory.layers.is_known(layer)
    }

    /// Starts merges that the configuration asks of a device, once every copy on it is whole: what a copy lacks of a
    /// merged layer could not be sent to it any more.
    pub(crate) fn merge_layers(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id).filter(|device| device.open) else { return };
        let view = &self.directory.view;
        device.merging.retain(|layer| view.merging.contains_key(layer));
        let due = view
            .merging
            .iter()
            .filter(|(layer, (_, devices))| devices.contains(&id) && !device.merging.contains(layer));
        let due: Vec<(LayerId, LayerId)> = due.map(|(layer, (into, _))| (*layer, *into)).collect();
        let mut copies = self.copies.groups.iter().filter(|((_, device), _)| *device == id);
        if due.is_empty() || !copies.all(|(_, group)| group.is_whole()) {
            return;
        }
        // What was begun in an earlier life goes on by itself.
        let (begun, due): (Vec<_>, Vec<_>) = due.into_iter().partition(|(layer, _)| device.store.is_ending(*layer));
        device.merging.extend(begun.into_iter().map(|(layer, _)| layer));
        for (layer, into) in due {
            if let Some(device) = self.devices.get_mut(&id) {
                device.merging.insert(layer);
            }
            self.with_store(id, PendingOp::Merge, |store, token| store.merge_layer(token, layer, into));
        }
    }

    /// Makes sure that a peer knows of a layer before it is sent something that names it.
    pub(crate) fn announce(&mut self, to: Endpoint, layer: LayerId) {
        if to == self.identity.endpoint || !self.mesh.links.is_up(to) {
            return;
        }
        for mut news in self.directory.layers.news(&self.directory.view, &self.directory.heads, to, layer) {
            news.revision = news.revision.max(self.directory.revision);
            self.send_to(to, Message::Layers(news));
        }
    }

    /// Another node says what it knows of layers.
    pub(crate) fn learn_layers(&mut self, news: &LayersMessage) {
        if news.revision <= self.directory.revision {
            return;
        }
        for (layer, parent) in &news.parents {
            if self.directory.view.parents.contains_key(layer) || self.directory.layers.learned.contains_key(layer) {
                continue;
            }
            self.directory.layers.learned.insert(*layer, (news.revision, *parent));
            self.devices.values_mut().for_each(|device| device.store.set_parent(*layer, *parent));
        }
        let mut changed = Vec::new();
        for (volume, layer) in &news.heads {
            if self.directory.heads.learn(news.revision, *volume, *layer) {
                changed.push(*volume);
            }
        }
        self.send_back_writes(&changed);
    }

    /// Writes to what is the head of these volumes no more, or takes no writes now, are asked to come again.
    pub(crate) fn send_back_writes(&mut self, volumes: &[VolumeId]) {
        if volumes.is_empty() {
            return;
        }
        let heads: &Heads = &self.directory.heads;
        for (key, group) in self.copies.groups.iter_mut().filter(|(_, group)| group.acts_as_primary()) {
            group.send_back(|volume, layer| volumes.contains(&volume) && !heads.takes_writes(volume, layer));
            self.copies.awake.push_back(*key);
        }
    }
}
