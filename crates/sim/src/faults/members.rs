//! An operator changes who is to have a copy of a group.

use crate::kernel::device::Device;
use crate::world::World;
use azekura_base::{DeviceId, NodeId, PgId};
use azekura_replica::GroupConfig;
use std::collections::BTreeSet;

/// A group keeps at least so many members.
const MEMBERS_MIN: usize = 2;
/// And has at most so many.
const MEMBERS_MAX: usize = 3;

impl World {
    pub(super) fn change_members(&mut self) -> &'static str {
        let groups: Vec<PgId> = self.configuration.view().groups.keys().copied().collect();
        if groups.is_empty() {
            return "nothing"; // They are closed since the configuration was restored.
        }
        let pg = *self.random.pick(&groups);
        let Some(config) = self.configuration.view().groups.get(&pg).cloned() else { return "nothing" };
        let change = if config.members.len() <= MEMBERS_MIN || self.random.chance(50) {
            self.with_new_member(&config)
        } else {
            self.without_member(&config)
        };
        let Some((what, members)) = change else { return "nothing" };
        let version = config.version + 1;
        self.trace.step(self.now, version, || format!("operator: {what} of {pg:?}: {members:?}"));
        self.configuration.change_members(pg, members);
        self.inform_all();
        what
    }

    /// Groups that have two copies on one node, or too few, get others, as the control plane gives them.
    pub(super) fn level_groups(&mut self) {
        for (pg, config) in self.configuration.view().groups.clone() {
            let mut members = self.on_different_nodes(&config);
            if members.len() < config.copies as usize
                && let Some((_, more)) =
                    self.with_new_member(&GroupConfig { members: members.clone(), ..config.clone() })
            {
                members = more;
            }
            if members != config.members {
                self.configuration.change_members(pg, members);
            }
        }
    }

    /// A group's members without those on whose node there is another that is as good.
    fn on_different_nodes(&self, config: &GroupConfig) -> BTreeSet<DeviceId> {
        let mut members: Vec<DeviceId> = config.members.iter().copied().collect();
        members.sort_by_key(|device| !config.in_sync.contains(device));
        let mut nodes = BTreeSet::new();
        members.retain(|device| nodes.insert(self.node_of(*device)));
        members.into_iter().collect()
    }

    /// One more copy, on a node that has none.
    fn with_new_member(&mut self, config: &GroupConfig) -> Option<(&'static str, BTreeSet<DeviceId>)> {
        let node_of = |device: &DeviceId| self.devices.get(device).map(|device| device.node);
        let taken: Vec<NodeId> = config.members.iter().filter_map(node_of).collect();
        // A device that is giving its copy up can't have another yet.
        let admits = |device: &DeviceId| {
            let left = !config.leaving.contains(device) || config.in_sync.contains(device);
            left && !self.is_out(*device) && !self.is_drained(*device)
        };
        let usable = |device: &Device| !device.retired && !taken.contains(&device.node);
        let free = self.devices.iter().filter(|(id, device)| usable(device) && admits(id));
        let free: Vec<DeviceId> = free.map(|(id, _)| *id).collect();
        if free.is_empty() || config.members.len() >= MEMBERS_MAX {
            return None;
        }
        let mut members = config.members.clone();
        members.insert(*self.random.pick(&free));
        Some(("new member", members))
    }

    /// One copy less, which may be the primary's.
    fn without_member(&mut self, config: &GroupConfig) -> Option<(&'static str, BTreeSet<DeviceId>)> {
        let mut members = config.members.clone();
        let all: Vec<DeviceId> = members.iter().copied().collect();
        members.remove(self.random.pick(&all));
        Some(("member removed", members))
    }
}
