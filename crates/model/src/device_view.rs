//! What the configuration says of a device, for those who look at its log alone.

use crate::{GroupRecord, LayerRecord, LayerState};
use azekura_base::{DeviceId, LayerId, PgId};
use std::collections::{BTreeMap, BTreeSet};

/// The layers that there are, and the groups of which a device has a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceView {
    /// Layers that are not deleted, and not being merged.
    pub living: BTreeSet<LayerId>,
    /// On which layer another lies.
    pub parents: BTreeMap<LayerId, LayerId>,
    /// Layers that are being merged, and into which.
    pub merging: BTreeMap<LayerId, LayerId>,
    /// The highest number that was ever given to a layer.
    pub newest: LayerId,
    /// Groups that have the device as a member, or in sync.
    pub groups: BTreeSet<PgId>,
    /// Those of them of which it has the only copy in sync.
    pub last: BTreeSet<PgId>,
}

impl DeviceView {
    /// Takes a layer into account.
    pub fn add_layer(&mut self, layer: &LayerRecord) {
        self.newest = self.newest.max(layer.id);
        self.parents.extend(layer.parent.map(|parent| (layer.id, parent)));
        match (layer.state, layer.into) {
            (LayerState::Deleted, _) => {}
            (LayerState::Merging, Some(into)) => drop(self.merging.insert(layer.id, into)),
            _ => drop(self.living.insert(layer.id)),
        }
    }

    /// Takes the counter of layers into account, which is the next number to be given.
    pub fn add_next_layer(&mut self, next: u64) {
        self.newest = self.newest.max(LayerId(next.saturating_sub(1)));
    }

    /// Takes a group into account, as one that `device` may hold.
    pub fn add_group(&mut self, group: &GroupRecord, device: DeviceId) {
        if group.members.contains(&device) || group.in_sync.contains(&device) {
            self.groups.insert(group.id);
        }
        if group.in_sync == [device] {
            self.last.insert(group.id);
        }
    }
}
