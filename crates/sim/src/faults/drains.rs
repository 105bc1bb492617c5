//! Devices are drained, to be taken away when they are empty, and nodes get new ones.

use crate::world::World;
use azekura_base::{DeviceId, NodeId};
use azekura_plans::homes::check_drain;
use std::collections::BTreeSet;

impl World {
    /// One device, or several at once.
    pub(super) fn drain_devices(&mut self) -> &'static str {
        let count = self.scene.wear.random.between(1, 2);
        let mut drained = false;
        for _ in 0..count {
            let free = |id: &DeviceId| self.is_sound(*id) && !self.is_drained(*id);
            let sound: Vec<DeviceId> = self.devices.keys().copied().filter(free).collect();
            if sound.is_empty() {
                break;
            }
            let id = *self.scene.wear.random.pick(&sound);
            if check_drain(self.configuration.model(), "", &[id]).is_ok() {
                self.drain_device(id);
                drained = true;
            }
        }
        if drained { "drain" } else { "nothing" }
    }

    /// Who has found out that a device lies does not use it any longer than necessary.
    pub(super) fn drain_liars(&mut self) {
        let liars: BTreeSet<DeviceId> =
            self.devices.iter().filter(|(_, device)| device.lied).map(|(id, _)| *id).collect();
        liars.into_iter().for_each(|id| self.drain_device(id));
    }

    /// A node is stopped as planned, and comes back with one device more.
    pub(super) fn add_a_device(&mut self) -> &'static str {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let node = *self.scene.wear.random.pick(&nodes);
        let there = self.devices.keys().filter(|id| self.node_of(**id) == node).count();
        if there > self.plan.devices_per_node as usize {
            return "nothing";
        }
        self.order_device(node);
        self.restart_as_planned(node);
        "device added"
    }
}
