//! Stored blocks and leaves of the map decay: a bit flips, or the device does not give a leaf any more; on one device
//! only, so that another copy is whole. A leaf that is in memory is not looked up, so now and then the device's node
//! starts anew when one has become unreadable.

use crate::workloads::contents::is_clients;
use crate::world::World;

/// After so many of the leaves that become unreadable the node starts anew, in percent.
const STARTS_ANEW_PERCENT: u64 = 40;

impl World {
    pub(crate) fn flip_a_bit(&mut self) -> &'static str {
        let (id, random) = (self.scene.faults.decaying, &mut self.random);
        let flipped = self.devices.get_mut(&id).is_some_and(|device| device.disk.flip(random, is_clients));
        if flipped { "flipped bit" } else { "nothing" }
    }

    pub(super) fn damage_a_leaf(&mut self) -> &'static str {
        let (id, random) = (self.scene.faults.decaying, &mut self.random);
        let damaged = self.devices.get_mut(&id).is_some_and(|device| device.damage_a_leaf(random));
        if damaged { "damaged leaf" } else { "nothing" }
    }

    pub(super) fn spoil_a_leaf(&mut self) -> &'static str {
        let (id, random) = (self.scene.faults.decaying, &mut self.random);
        let spoilt = self.devices.get_mut(&id).is_some_and(|device| device.spoil_a_leaf(random));
        if !spoilt {
            return "nothing";
        }
        if !self.scene.faults.directed.chance(STARTS_ANEW_PERCENT) {
            return "unreadable leaf";
        }
        self.crash_and_return(self.node_of(id));
        "unreadable leaf, and a start without it"
    }
}
