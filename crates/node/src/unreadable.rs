//! Leaves of a device's saved map that can't be read: which are given up, and what the groups are told of them.

use crate::node::Node;
use azekura_base::{BlockIndex, BlockRange, DeviceId, Warning};
use azekura_replica::Group;
use azekura_store::{LeafKey, OverdueLeaf, UnknownBlocks};
use std::time::Duration;

/// A device names to its groups what it knows nothing of any more, again and again until they have given it.
const UNKNOWN_REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// A leaf that is refused for so long is taken for lost, if another copy has its blocks. A path to a disk that is down
/// costs nothing until then; a sector that can't be read any more must not hold the log for ever.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(600);
/// The same for one that is refused while the rest of the map can be read: then it is no path that is down. A device
/// that is being opened can't go on before that.
const GIVEN_UP_ALONE_AFTER: Duration = Duration::from_secs(60);

impl Node {
    /// Leaves that the saved map of a device has refused for very long are given up where another copy in sync has
    /// their blocks. The device may yet give the others, and nobody else can (docs/decisions/0015-saved-map.md).
    pub(crate) fn give_up_leaves(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        let overdue = device.store.overdue_leaves();
        for OverdueLeaf { key, refused_for, alone_for } in &overdue {
            let group = self
                .copies
                .groups
                .get(&(key.pg, id))
                .map(Group::config)
                .or_else(|| self.directory.view.groups.get(&key.pg));
            let another_has_it = group.is_none_or(|config| config.in_sync.iter().any(|other| *other != id));
            let for_long = *refused_for >= GIVEN_UP_AFTER || *alone_for >= GIVEN_UP_ALONE_AFTER;
            if another_has_it && for_long {
                device.store.give_up_leaf(key);
            }
        }
        if let Some(OverdueLeaf { key: first, refused_for, alone_for }) = overdue.first() {
            let place = self.directory.view.place_of(first.layer, first.chunk, BlockIndex(0));
            let what = if *alone_for > Duration::ZERO { "a part of its saved map" } else { "its saved map" };
            let text = format!(
                "device {id}: {what} has not been readable for {} s: what was written to {} chunks (the first at \
                 {place}) can be read from other copies only until the device can be read again",
                refused_for.as_secs(),
                overdue.len(),
            );
            self.warn(place.named_in(Warning::new(text).device(id)));
        }
    }

    /// Tells the groups of a device which blocks it should have and knows nothing of, now and then.
    pub(crate) fn report_unknown_blocks(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id).filter(|device| self.now >= device.unknown_at) else { return };
        device.unknown_at = self.now + UNKNOWN_REPORT_INTERVAL;
        for UnknownBlocks { key: LeafKey { layer, chunk, pg }, runs } in device.store.unknown_blocks() {
            self.wake(pg, id, |group| {
                runs.into_iter()
                    .for_each(|(first, count)| group.found_unknown(BlockRange { layer, chunk, first, count }));
            });
        }
    }
}
