//! Links and disks become slow for a while.

use crate::world::World;
use azekura_base::DeviceId;

impl World {
    /// A link, until it is replaced.
    pub(super) fn slow_a_link(&mut self) -> &'static str {
        let whole = self.network().whole();
        if whole.is_empty() {
            return "nothing";
        }
        let random = &mut self.random;
        let (conn, times) = (*random.pick(&whole), random.between(2, 50) as u32);
        self.slow_down(conn, times);
        "slow link"
    }

    /// A disk, for some time.
    pub(super) fn slow_a_disk(&mut self) -> &'static str {
        let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
        let random = &mut self.random;
        let (id, times, until) =
            (*random.pick(&ids), random.between(2, 100) as u32, self.now + random.spread_millis(20, 2000));
        if let Some(device) = self.devices.get_mut(&id) {
            device.slow = (times, until);
        }
        "slow disk"
    }
}
