//! Nodes and devices that leave the cluster for good: whether they may, and what is still to be done before their
//! records can go. Pure, so that every case can be tried without a process.

use std::collections::BTreeSet;

use azekura_base::{DeviceId, NodeId, PgId};

use crate::MetaError;
use crate::{AckRule, GroupRecord, Model, class_shown, named};

/// Steps of one round: each is a write to the configuration.
const STEPS_MAX: usize = 256;

/// The next thing to do for what was removed.
#[derive(Clone, Debug, PartialEq)]
pub enum RemovalStep {
    /// Replace a group's record, which was last changed at this revision, with one that names less of what was removed.
    Group(Box<GroupRecord>, i64),
    /// Nothing names the device any more: its record goes.
    Device(DeviceId),
    /// It has no devices any more: its record goes.
    Node(NodeId),
}

impl Model {
    /// Whether a node may be removed; `lost`: it will never come back, and others are to make up for its copies.
    pub fn check_node_removal(&self, node: NodeId, lost: bool) -> Result<(), MetaError> {
        let Some(record) = self.nodes.get(&node) else { return Ok(()) };
        let what = format!("node {}", record.name);
        let name = &record.name;
        let devices = self.devices_of(node);
        let needing = self.groups_needing(&devices);
        if self.alive.contains_key(&node) {
            let reason = "it is running".to_owned();
            let hint = if needing.is_empty() && self.groups_leaving(&devices) == 0 {
                format!("stop its process, then 'azekura node remove {name}'")
            } else {
                format!(
                    "'azekura node drain {name} --wait 3600' moves its copies to other nodes; then stop its process, then \
                     'azekura node remove {name}'"
                )
            };
            return Err(MetaError::RemovalRefused { what, reason, hint });
        }
        let has = |id| {
            self.attachments.get(id).is_some_and(|record| record.attachments.iter().any(|a| a.node == node && a.pinned))
        };
        let attached: Vec<&str> =
            self.volumes.values().filter(|volume| has(&volume.id)).map(|volume| volume.name.as_str()).collect();
        if let Some(first) = attached.first() {
            let reason =
                format!("volumes are attached to it until they are detached: {}", named(attached.iter().copied()));
            let hint = format!("'azekura volume detach {first} --node {name}' takes one away from it");
            return Err(MetaError::RemovalRefused { what, reason, hint });
        }
        let hint = format!(
            "start it and 'azekura node drain {name} --wait 3600', which moves them to other nodes; if it will never come \
             back, 'azekura node remove {name} --lost' gives them up, and they are made anew from the other copies"
        );
        self.check_copies(what, &devices, lost, hint)
    }

    /// The same for a device.
    pub fn check_device_removal(&self, device: DeviceId, lost: bool) -> Result<(), MetaError> {
        let Some(record) = self.devices.get(&device) else { return Ok(()) };
        let node = self.nodes.get(&record.node).map_or_else(|| record.node.to_string(), |node| node.name.clone());
        let what = format!("device {device} ({} of node {node})", record.name);
        let devices = BTreeSet::from([device]);
        if self.is_device_alive(device) {
            if lost {
                let reason = "its node serves it, so it is not lost".to_owned();
                let hint =
                    format!("'azekura device drain {device} --wait 3600' moves its copies to others; then remove it");
                return Err(MetaError::RemovalRefused { what, reason, hint });
            }
            let leaving = self.groups_leaving(&devices);
            if self.groups_needing(&devices).is_empty() && leaving > 0 {
                let reason = format!("it is still giving back what it held of {leaving} placement groups");
                let hint = "that takes moments; try again".to_owned();
                return Err(MetaError::RemovalRefused { what, reason, hint });
            }
        }
        let hint = format!(
            "'azekura device drain {device} --wait 3600' moves them to other devices; if it has failed for good, 'azekura \
             device remove {device} --lost' gives them up, and they are made anew from the other copies"
        );
        self.check_copies(what, &devices, lost, hint)
    }

    /// Whether these devices' copies can be done without.
    fn check_copies(
        &self,
        what: String,
        devices: &BTreeSet<DeviceId>,
        lost: bool,
        hint: String,
    ) -> Result<(), MetaError> {
        let needing = self.groups_needing(devices);
        if needing.is_empty() {
            return Ok(());
        }
        let of = |groups: &BTreeSet<PgId>| match named(self.volumes_in(groups)) {
            names if names.is_empty() => "no volume has a part in them".to_owned(),
            names => format!("parts of {names}"),
        };
        if !lost {
            let reason = format!("{} placement groups need its copies ({})", needing.len(), of(&needing));
            return Err(MetaError::RemovalRefused { what, reason, hint });
        }
        let is_last = |pg: &&PgId| {
            let misses = |group: &GroupRecord| self.is_missed(&group.class) && !self.survives(group, devices);
            self.groups.get(pg).is_some_and(|group| misses(group))
        };
        let last: BTreeSet<PgId> = needing.iter().filter(is_last).copied().collect();
        if last.is_empty() {
            return Ok(());
        }
        let reason = format!(
            "it has what no other device that serves certainly has: the last copy, or one of too few, of {} placement \
             groups ({})",
            last.len(),
            of(&last)
        );
        let classes: BTreeSet<&str> =
            last.iter().filter_map(|pg| self.groups.get(pg)).map(|group| class_shown(&group.class)).collect();
        let hint = format!(
            "bring it back, or the other devices that have failed or are away; or delete the volumes of the storage class {0} \
             and then that ('azekura class delete {0}'), which gives their data up",
            classes.first().copied().unwrap_or_default()
        );
        Err(MetaError::RemovalRefused { what, reason, hint })
    }

    /// Whether a group has every acknowledged write without these devices, on devices that serve now. One that is away
    /// may be given up next, and what is to replace these copies can't be made of it.
    fn survives(&self, group: &GroupRecord, without: &BTreeSet<DeviceId>) -> bool {
        let serves = |device: &&DeviceId| {
            let removed = self.devices.get(device).is_none_or(|device| device.removed);
            !without.contains(device) && !removed && self.is_device_alive(**device)
        };
        let left = group.in_sync.iter().filter(serves).count();
        match self.classes.get(&group.class).map(|class| class.ack_rule) {
            Some(AckRule::All) => left > 0,
            // A write may be on any majority of the copies.
            _ => left * 2 > group.in_sync.len(),
        }
    }

    fn devices_of(&self, node: NodeId) -> BTreeSet<DeviceId> {
        self.devices.values().filter(|device| device.node == node).map(|device| device.id).collect()
    }

    fn groups_leaving(&self, devices: &BTreeSet<DeviceId>) -> usize {
        self.groups.values().filter(|group| !group.leaving.is_disjoint(devices)).count()
    }

    /// What is to be done next for nodes and devices that were removed.
    #[must_use]
    pub fn removal_steps(&self) -> Vec<RemovalStep> {
        let removed: BTreeSet<DeviceId> =
            self.devices.values().filter(|device| device.removed).map(|device| device.id).collect();
        let is_gone = |node: &&NodeId| {
            self.nodes[*node].removed && !self.alive.contains_key(node) && self.devices_of(**node).is_empty()
        };
        let nodes = self.nodes.keys().filter(is_gone).map(|node| RemovalStep::Node(*node));
        if removed.is_empty() {
            return nodes.take(STEPS_MAX).collect();
        }
        let changed = |group: &GroupRecord| without(group, &removed);
        let groups = self.groups.values().filter_map(|group| {
            changed(&group.record).map(|record| RemovalStep::Group(Box::new(record), group.mod_revision))
        });
        let is_named = |device: &&DeviceId| self.groups.values().any(|group| group.names(**device));
        let devices = removed.iter().filter(|device| !is_named(device)).map(|device| RemovalStep::Device(*device));
        nodes.chain(devices).chain(groups).take(STEPS_MAX).collect()
    }
}

/// A group's record that names less of the removed devices; `None`: there is nothing to do now. Who is in sync, and who
/// reigns, is its primary's business: it lets a copy go that is no member.
fn without(group: &GroupRecord, removed: &BTreeSet<DeviceId>) -> Option<GroupRecord> {
    let stay = |devices: &[DeviceId]| devices.iter().filter(|d| !removed.contains(d)).copied().collect::<Vec<_>>();
    let mut members = stay(&group.members);
    let mut changed = group.clone();
    if members.len() < group.members.len() {
        if members.is_empty() {
            members = stay(&group.in_sync);
        }
        if members.is_empty() {
            return None; // Its last copy: that is not given up.
        }
        changed = group.with_members(&members);
    }
    let over = |device: &DeviceId| removed.contains(device) && !changed.needs(*device);
    let (leaving, away) = (changed.leaving.clone(), changed.away.clone());
    let leaving: BTreeSet<DeviceId> = leaving.into_iter().filter(|device| !over(device)).collect();
    let away = away.into_iter().filter(|(device, _)| !over(device)).collect();
    (changed.leaving, changed.away) = (leaving, away);
    if changed == *group {
        return None;
    }
    changed.version = group.version + 1;
    Some(changed)
}

#[cfg(test)]
#[path = "removal_tests.rs"]
mod tests;
