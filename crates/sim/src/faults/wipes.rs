//! A node crashes, and a device of it is gone with all that it held. The node comes back without it, or with an empty
//! one, which is another device: its number is new.

use crate::world::World;
use azekura_base::DeviceId;

impl World {
    pub(super) fn wipe_a_device(&mut self) -> &'static str {
        let Some(first) = self.pick_expendable() else { return "nothing" };
        let node = self.node_of(first);
        self.crash(node);
        self.lose_device(first);
        if self.scene.wear.random.chance(30) {
            // The whole machine has burnt down, as far as its groups can do without it.
            let rest: Vec<DeviceId> =
                self.devices.iter().filter(|(_, device)| device.node == node).map(|(id, _)| *id).collect();
            for device in rest {
                if self.is_sound(device) && self.may_lose(device) {
                    self.lose_device(device);
                }
            }
        }
        let back = self.now + self.scene.wear.random.spread_millis(1, 10_000);
        self.start_at(back, node);
        "wiped device"
    }
}
