//! A whole machine is gone for good, with all that it held. It is taken out of the cluster, and another one joins in
//! its place.

use crate::plan::Mode;
use crate::world::World;
use azekura_base::{DeviceId, NodeId};

impl World {
    pub(super) fn replace_a_node(&mut self) -> &'static str {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let node = *self.scene.wear.random.pick(&nodes);
        let devices: Vec<DeviceId> =
            self.devices.iter().filter(|(_, device)| device.node == node).map(|(id, _)| *id).collect();
        let may_go = |id: &DeviceId| self.is_sound(*id) && self.may_lose(*id);
        // In the other modes, clients stay with a node for the whole run.
        let clients_move = matches!(self.plan.mode, Mode::Devices | Mode::All);
        if !clients_move || self.has_dismissed() || devices.is_empty() || !devices.iter().all(may_go) {
            return "nothing";
        }
        self.crash(node);
        for device in devices {
            if !self.may_lose(device) {
                // Together they had what nobody else has: this one is still there.
                let back = self.now + self.scene.wear.random.spread_millis(1, 10_000);
                self.start_at(back, node);
                return "wiped device";
            }
            self.lose_device(device);
        }
        let Some(newcomer) = self.replace_machine(node) else { return "nothing" };
        let start = self.now + self.scene.wear.random.spread_millis(1, 10_000);
        self.start_at(start, newcomer);
        "node replaced"
    }
}
