//! The records of layers: the same states and transactions as the control plane's (docs/decisions/0011-snapshots.md),
//! and what nodes are told of them.

use azekura_base::{DeviceId, LayerId, VolumeId};
use azekura_node::ClusterView;
use std::collections::{BTreeMap, BTreeSet};

/// What a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It will be a head when its cut is finished.
    Next,
    /// It takes a volume's writes.
    Head,
    /// A snapshot.
    Frozen,
    /// No snapshot any more.
    Hidden,
    /// What it has becomes this layer's, its only child's.
    Merging(LayerId),
    /// What it has is given up.
    Deleted,
}

/// One layer.
#[derive(Debug)]
struct Layer {
    parent: Option<LayerId>,
    state: State,
    /// Devices that have nothing of it any more.
    confirmed: BTreeSet<DeviceId>,
}

/// All layers.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    layers: BTreeMap<LayerId, Layer>,
    last: u64,
    last_volume: u64,
}

impl Tree {
    /// The heads of a view's volumes, which lie on nothing.
    pub(crate) fn of(view: &ClusterView) -> Tree {
        let mut tree = Tree::default();
        for volume in view.volumes.values() {
            let layer = Layer { parent: None, state: State::Head, confirmed: BTreeSet::new() };
            tree.layers.insert(volume.layer, layer);
            tree.last = tree.last.max(volume.layer.0);
            tree.last_volume = tree.last_volume.max(volume.id.0);
        }
        tree
    }

    /// The number of a new volume.
    pub(crate) fn volume_id(&mut self) -> VolumeId {
        self.last_volume += 1;
        VolumeId(self.last_volume)
    }

    /// Makes a layer.
    pub(crate) fn make(&mut self, parent: Option<LayerId>, state: State) -> LayerId {
        self.last += 1;
        let id = LayerId(self.last);
        self.layers.insert(id, Layer { parent, state, confirmed: BTreeSet::new() });
        id
    }

    /// A layer is something else from now on.
    pub(crate) fn becomes(&mut self, layer: LayerId, state: State) {
        if let Some(layer) = self.layers.get_mut(&layer) {
            layer.state = state;
        }
    }

    /// A layer that was to be a head is not to be one: nothing was ever written to it.
    pub(crate) fn call_off(&mut self, layer: LayerId) {
        self.layers.remove(&layer);
    }

    /// A device has nothing of a layer any more.
    pub(crate) fn confirm(&mut self, layer: LayerId, device: DeviceId) {
        if let Some(layer) = self.layers.get_mut(&layer)
            && matches!(layer.state, State::Merging(_) | State::Deleted)
        {
            layer.confirmed.insert(device);
        }
    }

    /// Layers whose end has begun: what gets its blocks, and the devices that have not confirmed it. One that gets what
    /// another has is not dropped before that is over.
    fn ending(&self, holders: &BTreeSet<DeviceId>) -> Vec<(LayerId, Option<LayerId>, BTreeSet<DeviceId>)> {
        let receiving: BTreeSet<LayerId> = self.layers.values().filter_map(Layer::heir).collect();
        let ends = |(id, layer): (&LayerId, &Layer)| {
            let ends = match layer.state {
                State::Merging(_) => true,
                State::Deleted => !receiving.contains(id),
                _ => false,
            };
            ends.then(|| (*id, layer.heir(), holders.difference(&layer.confirmed).copied().collect()))
        };
        self.layers.iter().filter_map(ends).collect()
    }

    /// Layers whose end every device has confirmed.
    pub(crate) fn ended(&self, holders: &BTreeSet<DeviceId>) -> Vec<LayerId> {
        let over = self.ending(holders).into_iter().filter(|(.., open)| open.is_empty());
        over.map(|(layer, ..)| layer).collect()
    }

    /// Removes a layer that has ended; what lay on a merged one lies on its parent then.
    pub(crate) fn remove(&mut self, layer: LayerId) {
        let Some(gone) = self.layers.remove(&layer) else { return };
        if let Some(child) = gone.heir().and_then(|into| self.layers.get_mut(&into)) {
            child.parent = gone.parent;
        }
    }

    /// Hidden layers that can end now, and what gets their blocks. `settled`: all groups have all their copies in sync.
    pub(crate) fn to_end(&self, settled: bool) -> Vec<(LayerId, Option<LayerId>)> {
        let mut receiving: BTreeSet<LayerId> = self.layers.values().filter_map(Layer::heir).collect();
        let mut ends = Vec::new();
        for (id, _) in self.layers.iter().filter(|(_, layer)| layer.state == State::Hidden) {
            let children: Vec<LayerId> = self.children(*id).collect();
            match children[..] {
                [] => ends.push((*id, None)),
                [only] => {
                    let takes = self.layers.get(&only).is_some_and(Layer::takes);
                    let free = !receiving.contains(id) && !receiving.contains(&only);
                    if takes && free && settled {
                        receiving.extend([*id, only]);
                        ends.push((*id, Some(only)));
                    }
                }
                _ => {}
            }
        }
        ends
    }

    fn children(&self, layer: LayerId) -> impl Iterator<Item = LayerId> + '_ {
        self.layers.iter().filter(move |(_, child)| child.parent == Some(layer)).map(|(id, _)| *id)
    }

    /// Tells a view of the tree.
    pub(crate) fn show(&self, view: &mut ClusterView) {
        view.parents = self.layers.iter().filter_map(|(id, layer)| Some((*id, layer.parent?))).collect();
        (view.merging, view.dropped) = (BTreeMap::new(), BTreeMap::new());
        for (layer, into, open) in self.ending(&holders(view)) {
            match into {
                Some(into) => drop(view.merging.insert(layer, (into, open))),
                None => drop(view.dropped.insert(layer, open)),
            }
        }
    }
}

impl Layer {
    fn heir(&self) -> Option<LayerId> {
        match self.state {
            State::Merging(into) => Some(into),
            _ => None,
        }
    }

    /// Another layer may be merged into it.
    fn takes(&self) -> bool {
        matches!(self.state, State::Head | State::Frozen | State::Hidden)
    }
}

/// Devices that may hold a part of a layer.
pub(crate) fn holders(view: &ClusterView) -> BTreeSet<DeviceId> {
    view.groups.values().flat_map(|group| group.members.iter().chain(&group.in_sync)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_ends_in_its_only_child_one_at_a_time() {
        let mut tree = Tree::default();
        let layers: Vec<LayerId> = (0..3).fold(Vec::new(), |mut made, _| {
            made.push(tree.make(made.last().copied(), State::Hidden));
            made
        });
        let head = tree.make(Some(layers[2]), State::Head);
        assert_eq!(tree.to_end(false), []);
        assert_eq!(tree.to_end(true), [(layers[0], Some(layers[1])), (layers[2], Some(head))]);
        tree.becomes(layers[0], State::Merging(layers[1]));
        let holders = BTreeSet::from([DeviceId(1), DeviceId(2)]);
        tree.confirm(layers[0], DeviceId(1));
        assert!(tree.ended(&holders).is_empty());
        tree.confirm(layers[0], DeviceId(2));
        assert_eq!(tree.ended(&holders), [layers[0]]);
        tree.remove(layers[0]);
        assert_eq!(tree.to_end(true), [(layers[1], Some(layers[2]))]);
    }

    #[test]
    fn a_layer_with_two_children_waits() {
        let mut tree = Tree::default();
        let below = tree.make(None, State::Hidden);
        let one = tree.make(Some(below), State::Head);
        tree.make(Some(below), State::Head);
        assert_eq!(tree.to_end(true), []);
        tree.becomes(one, State::Deleted);
        assert_eq!(tree.to_end(true), [], "it is still there");
        assert_eq!(tree.ended(&BTreeSet::new()), [one]);
        tree.remove(one);
        assert_eq!(tree.to_end(true).len(), 1);
    }
}
