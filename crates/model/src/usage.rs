//! Which volumes use what: a group, a class, a device.

use std::collections::BTreeSet;

use azekura_base::{CHUNK_SIZE, ChunkIndex, DeviceId, PgId};

use crate::{LayerState, Model, VolumeRecord};

impl Model {
    /// The groups that a volume's chunks, and those of its snapshots, are dealt to.
    #[must_use]
    pub fn groups_of_volume(&self, volume: &VolumeRecord) -> BTreeSet<PgId> {
        let Some(class) = self.classes.get(&volume.class) else { return BTreeSet::new() };
        let largest =
            self.snapshots_of(volume.id).map(|snapshot| snapshot.size_bytes).fold(volume.size_bytes, u64::max);
        let chunks = largest.div_ceil(CHUNK_SIZE as u64).min(class.groups.len() as u64);
        (0..chunks).filter_map(|chunk| self.group_of(volume, ChunkIndex(u32::try_from(chunk).ok()?))).collect()
    }

    /// The names of the volumes that have a part in one of these groups.
    #[must_use]
    pub fn volumes_in(&self, groups: &BTreeSet<PgId>) -> Vec<&str> {
        let has_part = |volume: &&str| !self.groups_of_volume(&self.volumes[*volume]).is_disjoint(groups);
        if groups.is_empty() { Vec::new() } else { self.volumes.keys().map(String::as_str).filter(has_part).collect() }
    }

    /// Whether a class has volumes, or data of volumes that is still to be given back.
    #[must_use]
    pub fn is_class_used(&self, class: &str) -> bool {
        self.volumes.values().any(|volume| volume.class == class) || self.layers_of_class(class) > 0
    }

    /// Layers of a class that have not ended yet: also those of volumes that were deleted a moment ago.
    #[must_use]
    pub fn layers_of_class(&self, class: &str) -> usize {
        self.layers.values().filter(|layer| layer.class == class).count()
    }

    /// Whether somebody misses a group when it does not serve: its class has volumes, or snapshots that outlive them.
    /// What is only still to be given back is not missed.
    #[must_use]
    pub fn is_missed(&self, class: &str) -> bool {
        self.volumes.values().any(|volume| volume.class == class)
            || self.layers.values().any(|layer| layer.class == class && layer.state != LayerState::Deleted)
    }

    /// The classes that somebody misses, as [`Model::is_missed`] says it of each.
    #[must_use]
    pub fn missed_classes(&self) -> BTreeSet<&str> {
        let layers = self.layers.values().filter(|layer| layer.state != LayerState::Deleted);
        let volumes = self.volumes.values().map(|volume| volume.class.as_str());
        volumes.chain(layers.map(|layer| layer.class.as_str())).collect()
    }

    /// The groups that need one of these devices.
    #[must_use]
    pub fn groups_needing(&self, devices: &BTreeSet<DeviceId>) -> BTreeSet<PgId> {
        let needs = |device: &DeviceId| self.groups_on(*device).map(|group| group.id).collect::<Vec<_>>();
        devices.iter().flat_map(needs).collect()
    }
}

/// Names that a message tells.
const NAMED_MAX: usize = 4;

/// The first of some names, for people: `a, b and 3 more`.
#[must_use]
pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let text = names[..names.len().min(NAMED_MAX)].join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}
