//! What people set is changed while clients work: the cluster's settings, and a storage class that comes and goes.

use crate::plan::Mode;
use crate::world::World;
use azekura_model::transitions::settings::{REHOME_AFTER_SECONDS_MIN, SettingsChange};

impl World {
    /// How many groups move at once, or how long nodes and devices are waited for.
    pub(super) fn change_some_setting(&mut self) -> &'static str {
        let random = &mut self.scene.wear.random;
        let change = if random.chance(70) {
            SettingsChange { moves_at_once: Some(random.between(1, 4) as u32), ..SettingsChange::default() }
        } else {
            let seconds = random.between(REHOME_AFTER_SECONDS_MIN, 2 * REHOME_AFTER_SECONDS_MIN);
            SettingsChange { rehome_after_seconds: Some(Some(seconds)), ..SettingsChange::default() }
        };
        self.change_settings(change);
        "settings changed"
    }

    /// A class is made, with groups and a volume; the volume is deleted; the class is deleted.
    pub(super) fn change_the_classes(&mut self) -> &'static str {
        if !matches!(self.plan.mode, Mode::Devices | Mode::All) {
            return "nothing"; // Other modes count volumes and layers.
        }
        // Nobody else could give what a group has whose copies begin on devices that are gone already.
        let sound = self.configuration.model().devices.values().filter(|device| device.is_sound());
        if sound.map(|device| device.id).all(|id| self.is_sound(id)) || self.has_extra_class() {
            self.turn_extra_class()
        } else {
            "nothing"
        }
    }
}
