//! A device's map is lost, and made anew from the log while its node is down, as `azekura store rebuild-map` does it.

use crate::report::Invariant;
use crate::world::World;
use azekura_base::DeviceId;
use azekura_model::DeviceView;
use azekura_store::{KnownLayers, RebuildSettings};

/// Memory for the records of a rebuild: often all of them, or so little that the log is read in many parts.
const MEMORY_BYTES: [u64; 3] = [1, 1 << 16, 1 << 30];

impl World {
    pub(super) fn rebuild_a_map(&mut self) -> &'static str {
        let Some(id) = self.pick_expendable() else { return "nothing" };
        let node = self.node_of(id);
        self.crash(node);
        let settings = self.rebuild_settings(id);
        self.trace.step(self.now, u64::from(id.0), || format!("{id:?} gets a map from its log alone: {settings:?}"));
        let rebuilt = self.devices.get_mut(&id).map(|device| device.rebuild_map(settings));
        if let Some(Err(why)) = rebuilt {
            self.violate(Invariant::StoreKeeps, format!("the map of {id:?} can't be made anew: {why}"));
        }
        let back = self.now + self.scene.wear.random.spread_millis(1, 10_000);
        self.start_at(back, node);
        "map made anew"
    }

    /// What the configuration says of the device, as its node's copy has it.
    fn rebuild_settings(&mut self, id: DeviceId) -> RebuildSettings {
        let memory_bytes = *self.scene.wear.random.pick(&MEMORY_BYTES);
        let (model, mut known) = (self.configuration.model(), DeviceView::default());
        model.layers.values().for_each(|layer| known.add_layer(layer));
        known.add_next_layer(model.counters.get("layers").copied().unwrap_or_default());
        model.groups.values().for_each(|group| known.add_group(group, id));
        let DeviceView { living, parents, merging, newest, groups, .. } = known;
        let layers = KnownLayers { living, parents, merging, newest };
        RebuildSettings { layers, groups, memory_bytes, ..RebuildSettings::default() }
    }
}
