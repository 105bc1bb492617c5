//! Invariant 9, inside of each store: what it counts for every segment and every layer is what its leaves own.

use crate::world::World;
use azekura_base::DeviceId;

impl World {
    /// Counts all stores that are open, from their leaves alone. A device that has lied may have lost whom its blocks
    /// are from. One that has lost a leaf with its row in the index does not know how much that owned.
    ///
    /// # Panics
    /// When one has counted something else: for the run, an assertion that does not hold.
    pub(crate) fn check_accounts(&self) {
        let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
        for id in ids {
            let Some(device) = self.devices.get(&id).filter(|device| !device.uncounted) else { continue };
            if let Some(store) = self.store_of(id) {
                self.trace.remark(self.now, || format!("the blocks of {id:?} are counted"));
                let groups = &self.configuration.view().groups;
                let is_member = |pg| groups.get(&pg).is_some_and(|config| config.members.contains(&id));
                store.assert_accounts(device.saved_map().leaves(), |pg| !device.lied && is_member(pg));
            }
        }
    }
}
