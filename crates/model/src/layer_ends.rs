//! Layers: which can end, how, and which devices are still to confirm that they have nothing of them any more.

use std::collections::{BTreeMap, BTreeSet};

use azekura_base::{DeviceId, KeyId, LayerId, VolumeId};

use crate::{DeviceState, LayerRecord, LayerState, Model, Unknown};

impl LayerRecord {
    /// A new layer.
    #[must_use]
    pub fn new(id: LayerId, volume: VolumeId, parent: Option<LayerId>, state: LayerState, class: &str) -> LayerRecord {
        let (class, unknown) = (class.to_owned(), Unknown::default());
        LayerRecord { id, volume, parent, state, into: None, class, key: None, rekeyed: None, unknown }
    }

    /// This layer with what is encrypted with `key`, if there is one.
    #[must_use]
    pub fn with_key(self, key: Option<KeyId>) -> LayerRecord {
        LayerRecord { key, ..self }
    }
}

/// What becomes of a layer that no snapshot names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerEnd {
    /// Nothing lies on it: it is dropped.
    Drop,
    /// Only this layer lies on it, and gets what it has.
    MergeInto(LayerId),
}

/// Which devices may hold a part of a layer, by storage class.
#[derive(Debug, Default)]
pub struct LayerHolders {
    of_class: BTreeMap<String, BTreeSet<DeviceId>>,
    all: BTreeSet<DeviceId>,
}

impl LayerHolders {
    /// Those of a model. A device that is out of service counts while a group still needs its copy: it may come back
    /// with it. One that was removed does not.
    #[must_use]
    pub fn new(model: &Model) -> LayerHolders {
        let mut holders = LayerHolders::default();
        for group in model.groups.values() {
            let of_class = holders.of_class.entry(group.class.clone()).or_default();
            let comes_back = |id: &&DeviceId| model.devices.get(id).is_some_and(|device| !device.removed);
            of_class.extend(group.members.iter().chain(&group.in_sync).filter(comes_back));
        }
        let up = model.devices.values().filter(|device| device.state != DeviceState::Down).map(|device| device.id);
        holders.all = up.chain(holders.of_class.values().flatten().copied()).collect();
        holders
    }

    /// Those of a layer.
    #[must_use]
    pub fn of(&self, layer: &LayerRecord) -> &BTreeSet<DeviceId> {
        self.of_class.get(&layer.class).unwrap_or(&self.all)
    }
}

impl Model {
    /// Layers whose end has begun, with the devices that have not confirmed it yet. One that gets what another has is
    /// not dropped before that is over.
    pub fn ending_layers<'a>(
        &'a self,
        holders: &'a LayerHolders,
    ) -> impl Iterator<Item = (&'a LayerRecord, BTreeSet<DeviceId>)> {
        let merging = self.layers.values().filter(|layer| layer.state == LayerState::Merging);
        let receiving: BTreeSet<LayerId> = merging.filter_map(|layer| layer.into).collect();
        let ends = move |layer: &&LayerRecord| match layer.state {
            LayerState::Merging => true,
            LayerState::Deleted => !receiving.contains(&layer.id),
            _ => false,
        };
        self.layers.values().map(|layer| &layer.record).filter(ends).map(|layer| {
            let open = holders.of(layer).iter().copied();
            (layer, open.filter(|device| !self.dropped.contains(&(layer.id, *device))).collect())
        })
    }

    /// Layers whose end every device has confirmed.
    #[must_use]
    pub fn ended_layers(&self) -> Vec<LayerId> {
        if !self.layers.values().any(|layer| matches!(layer.state, LayerState::Merging | LayerState::Deleted)) {
            return Vec::new();
        }
        let holders = LayerHolders::new(self);
        let over = self.ending_layers(&holders).filter(|(_, open)| open.is_empty());
        over.map(|(layer, _)| layer.id).collect()
    }

    /// Hidden layers that can end now, and how. A merge waits until all copies of its class's groups are in sync, so
    /// that none comes back with less of the layer than the others have given on.
    #[must_use]
    pub fn layers_to_end(&self) -> Vec<(LayerId, LayerEnd)> {
        let hidden = |layer: &&LayerRecord| layer.state == LayerState::Hidden;
        if !self.layers.values().any(|layer| hidden(&&layer.record)) {
            return Vec::new();
        }
        let mut children: BTreeMap<LayerId, Vec<&LayerRecord>> = BTreeMap::new();
        let mut receiving = BTreeSet::new();
        for layer in self.layers.values() {
            if let Some(parent) = layer.parent {
                children.entry(parent).or_default().push(layer);
            }
            receiving.extend(layer.into);
        }
        let unsettled: BTreeSet<&str> =
            self.groups.values().filter(|group| !group.is_settled()).map(|group| group.class.as_str()).collect();
        let mut ends = Vec::new();
        for layer in self.layers.values().map(|layer| &layer.record).filter(hidden) {
            match children.get(&layer.id).map_or(&[][..], Vec::as_slice) {
                [] => ends.push((layer.id, LayerEnd::Drop)),
                [only] => {
                    let takes = matches!(only.state, LayerState::Head | LayerState::Frozen | LayerState::Hidden);
                    // One at a time at each place of the tree.
                    let free = !receiving.contains(&layer.id) && !receiving.contains(&only.id);
                    if takes && free && !unsettled.contains(layer.class.as_str()) {
                        receiving.extend([layer.id, only.id]);
                        ends.push((layer.id, LayerEnd::MergeInto(only.id)));
                    }
                }
                _ => {}
            }
        }
        ends
    }
}
