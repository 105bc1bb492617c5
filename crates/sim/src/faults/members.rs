//! An operator changes who is to have a copy of a group.

use crate::world::World;
use azekura_base::{DeviceId, NodeId, PgId};
use azekura_replica::GroupConfig;

/// A group keeps at least so many members.
const MEMBERS_MIN: usize = 2;
/// And has at most so many.
const MEMBERS_MAX: usize = 3;

impl World {
    pub(super) fn change_members(&mut self) -> &'static str {
        let groups: Vec<PgId> = self.configuration.view().groups.keys().copied().collect();
        let pg = *self.faults.random.pick(&groups);
        let Some(config) = self.configuration.view().groups.get(&pg).cloned() else { return "nothing" };
        let change = if config.members.len() <= MEMBERS_MIN || self.faults.random.chance(50) {
            self.with_new_member(&config)
        } else {
            self.without_member(&config)
        };
        let Some((what, config)) = change else { return "nothing" };
        self.trace.step(self.now, config.version, || format!("operator: {what} of {pg:?}: {:?}", config.members));
        self.configuration.replace(pg, config);
        self.inform_all();
        what
    }

    /// One more copy, on a node that has none.
    fn with_new_member(&mut self, config: &GroupConfig) -> Option<(&'static str, GroupConfig)> {
        let node_of = |device: &DeviceId| self.devices.get(device).map(|device| device.node);
        let taken: Vec<NodeId> = config.members.iter().filter_map(node_of).collect();
        let free = self.devices.iter().filter(|(_, device)| !taken.contains(&device.node)).map(|(id, _)| *id);
        let free: Vec<DeviceId> = free.collect();
        if free.is_empty() || config.members.len() >= MEMBERS_MAX {
            return None;
        }
        let device = *self.faults.random.pick(&free);
        let mut config = GroupConfig { version: config.version + 1, ..config.clone() };
        config.members.insert(device);
        Some(("new member", config))
    }

    /// One copy less: one that is not in sync if there is such a one, never the primary.
    fn without_member(&mut self, config: &GroupConfig) -> Option<(&'static str, GroupConfig)> {
        let others = config.members.iter().copied().filter(|device| *device != config.primary);
        let others: Vec<DeviceId> = others.collect();
        let device = *self.faults.random.pick(&others);
        let mut config = GroupConfig { version: config.version + 1, ..config.clone() };
        config.members.remove(&device);
        config.in_sync.remove(&device);
        config.away.remove(&device);
        self.faults.left.insert(device);
        Some(("member removed", config))
    }
}
