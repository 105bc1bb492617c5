//! A device's map does nothing any more, or the device answers reads, writes or both with an I/O error for a while.
//! When its node does without it, and its groups can, it may go on like that for ever.

use crate::world::World;
use azekura_base::DeviceId;
use std::time::Duration;

/// A map that hangs does so for this time and some more.
const HANGS_FOR: Duration = Duration::from_secs(8);
/// Some refuse reads for so many times as long.
const LONG: u32 = 4;

impl World {
    pub(super) fn refuse_io(&mut self) -> &'static str {
        let Some(id) = self.pick_expendable() else { return "nothing" };
        let random = &mut self.scene.wear.random;
        let kind = random.below(100);
        let until = self.now + random.spread_millis(5, 10_000);
        let Some(device) = self.devices.get_mut(&id) else { return "nothing" };
        let what = match kind {
            0..45 => {
                device.refuses.writes_until = until;
                "device that refuses writes"
            }
            45..55 => {
                device.refuses.reads_until = self.now + (until - self.now) * LONG;
                "device that refuses reads for long"
            }
            55..75 => {
                device.refuses.reads_until = until;
                "device that refuses reads"
            }
            75..80 => {
                (device.refuses.map_full_until, device.hurt) = (until, true);
                "device whose map has no room"
            }
            80..85 => {
                // Longer than a node waits for it.
                (device.refuses.map_hangs_until, device.hurt) = (until + HANGS_FOR, true);
                "device whose map hangs"
            }
            _ => {
                (device.refuses.reads_until, device.refuses.writes_until) = (until, until);
                "device that refuses everything"
            }
        };
        let until = device.refuses.end();
        self.trace.step(self.now, u64::from(id.0), || format!("{id:?}: {what} until {until:?}"));
        what
    }

    /// A device that its node does without is broken for good, perhaps.
    pub(crate) fn break_for_good(&mut self, id: DeviceId) {
        // Where nobody replaces devices, none breaks.
        if self.works()
            && self.has_operator()
            && self.may_lose(id)
            && self.scene.wear.random.chance(40)
            && let Some(device) = self.devices.get_mut(&id)
        {
            (device.refuses.reads_until, device.refuses.writes_until) = (Duration::MAX, Duration::MAX);
            self.trace.step(self.now, u64::from(id.0), || format!("{id:?} is broken for good"));
        }
    }
}
