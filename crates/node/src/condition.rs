//! The condition of a device, looked at as time passes: whether the device answers, whether a checkpoint is due, and
//! whether there is room.

use crate::effect::Effect;
use crate::node::Node;
use azekura_base::DeviceId;
use azekura_gateway::Counters;
use azekura_replica::Group;
use azekura_store::Space;
use std::time::Duration;

/// How often the condition of a device is looked at, as long as there are turns.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

impl Node {
    /// Time passes for a device.
    pub(crate) fn tick_device(&mut self, id: DeviceId) {
        let now = self.now;
        let Some(device) = self.devices.get_mut(&id) else { return };
        device.store.tick(now);
        // A millisecond may have many turns, and none of this is a matter of less than that.
        let look = now >= device.look_at;
        if look {
            device.look_at = now + LOOK_INTERVAL;
            self.watch_device(id);
            self.give_up_leaves(id);
        }
        let Some(device) = self.devices.get_mut(&id).filter(|device| device.open) else { return };
        let store = &device.store;
        if device.checkpoints.begin(|| look && store.checkpoint_due()) {
            let groups = &self.copies.groups;
            device.store.begin_checkpoint(|pg| groups.get(&(pg, id)).map(Group::note));
        }
        if look {
            self.report_unknown_blocks(id);
            self.note_fullness(id);
            self.merge_layers(id);
        }
    }

    /// Another than the store has found that a device fails: the device is to be emptied, and serves meanwhile.
    pub fn device_fails(&mut self, id: DeviceId, why: String) {
        let news = self.devices.get_mut(&id).is_some_and(|device| !device.errors.is_failing());
        self.effects.extend(news.then_some(Effect::DeviceFailing(id, why)));
    }

    /// Tells a device's groups when it takes no more data from clients, or takes some again.
    pub(crate) fn note_fullness(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        let full = is_full(&device.store.space(), self.directory.view.full_percent);
        if full != device.full {
            device.full = full;
            self.copies.groups.iter_mut().filter(|(key, _)| key.1 == id).for_each(|(_, group)| group.set_full(full));
        }
    }

    /// Whether a device takes no more data from clients.
    #[must_use]
    pub fn is_full(&self, id: DeviceId) -> bool {
        self.devices.get(&id).is_some_and(|device| device.full)
    }

    /// Whether nobody is to wait for a device, since it does not answer.
    #[must_use]
    pub fn hangs(&self, id: DeviceId) -> bool {
        self.devices.get(&id).is_some_and(|device| device.hanging.hangs())
    }

    /// A device's reads, and its writes with its flushes, that have ended. Bytes are not counted.
    #[must_use]
    pub fn device_counters(&self, id: DeviceId) -> Option<(&Counters, &Counters)> {
        self.devices.get(&id).map(|device| device.hanging.counters())
    }
}

/// Whether a device takes no more data from clients. What brings copies up to date may still use the rest.
fn is_full(space: &Space, percent: Option<u8>) -> bool {
    let limit = percent.map_or(space.capacity, |percent| space.capacity / 100 * u64::from(percent));
    space.full || space.used >= limit
}
