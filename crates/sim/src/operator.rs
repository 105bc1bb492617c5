//! The control plane, as far as it decides which devices are to have copies (docs/decisions/0008): new homes for what
//! is lost or stays out of service, away from devices that are drained, and a share for new devices.
//!
//! It knows what the real one knows: what nodes note of their devices, and which nodes are absent. It changes members
//! only; the rest is up to the groups' primaries. A device that is gone comes back as another one with a new number, as
//! a data folder does that was emptied: nothing opens under the number of a device that it is not.

use crate::device::{Device, Honesty, Silence};
use crate::events::Event;
use crate::plan::{Lie, Plan};
use crate::random::Random;
use crate::records::device_record;
use crate::report::Invariant;
use crate::world::World;
use azekura_base::{DeviceId, NodeId, PgId};
use azekura_model::{Key, Txn};
use azekura_node::Breakdown;
use azekura_replica::GroupConfig;
use azekura_store::Options;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The first of a node's devices has this number, times the node's.
const NUMBERS_PER_NODE: u32 = 100;
/// Devices that a node has in a run, one after the other.
const DEVICES_PER_NODE_MAX: u32 = 50;
/// Groups that move at once for another reason than that a copy is lost.
const MOVES_AT_ONCE: usize = 2;
/// Nodes have told everything about errors of a device by this time after the last one.
const TRUST_AGAIN: Duration = Duration::from_secs(2);

/// See the module's description.
pub(crate) struct Operator {
    /// It works in this run.
    pub(crate) on: bool,
    random: Random,
    /// What new devices look like.
    options: Options,
    /// How long a node may be absent, or a device out of service, until its copies get new homes.
    patience: Duration,
    /// Devices that are gone for good. Of those that are named false, their node has not noted it yet.
    lost: BTreeMap<DeviceId, bool>,
    /// Devices that their nodes do without, and since when.
    stopped: BTreeMap<DeviceId, Duration>,
    /// Nodes that are absent, and since when.
    absent: BTreeMap<NodeId, Duration>,
    draining: BTreeSet<DeviceId>,
    /// Nodes that find a new device when they start.
    due: BTreeMap<NodeId, u32>,
}

impl Operator {
    pub(crate) fn new(plan: &Plan, options: Options, mut random: Random) -> Operator {
        Operator {
            on: plan.devices_fail,
            patience: random.spread_millis(500, 8000),
            random,
            options,
            lost: BTreeMap::new(),
            stopped: BTreeMap::new(),
            absent: BTreeMap::new(),
            draining: BTreeSet::new(),
            due: BTreeMap::new(),
        }
    }

    /// The device is gone, or its node does without it: it confirms nothing.
    pub(crate) fn is_out(&self, device: DeviceId) -> bool {
        self.lost.contains_key(&device) || self.stopped.contains_key(&device)
    }

    /// The device is to be emptied.
    pub(crate) fn is_draining(&self, device: DeviceId) -> bool {
        self.draining.contains(&device)
    }

    /// A device is to be emptied, and then taken away.
    pub(crate) fn drain(&mut self, device: DeviceId) {
        self.draining.insert(device);
    }

    /// A node is to find another device at its next start.
    pub(crate) fn order_device(&mut self, node: NodeId) {
        *self.due.entry(node).or_default() += 1;
    }

    /// Nobody waits for anything much longer: the run is to end.
    pub(crate) fn hurry(&mut self) {
        self.patience = self.patience.min(Duration::from_secs(2));
    }
}

/// The node that a device of this number belongs to.
pub(crate) fn node_of(device: DeviceId) -> NodeId {
    NodeId(device.0 / NUMBERS_PER_NODE)
}

/// All devices that a node may have in a run.
pub(crate) fn numbers_of(node: NodeId) -> impl Iterator<Item = DeviceId> {
    (0..DEVICES_PER_NODE_MAX).map(move |nth| DeviceId(node.0 * NUMBERS_PER_NODE + nth))
}

impl World {
    /// The control plane looks at everything once more.
    pub(crate) fn operate(&mut self) {
        let again = self.now + self.operator.random.spread_millis(100, 1500);
        self.queue.push(again, Event::Operate);
        self.look_for_absence();
        let lost = self.counted_as_lost();
        let groups = self.configuration.view().groups.clone();
        let mut moving = groups.values().filter(|config| config.in_sync != config.members).count();
        for (pg, config) in groups {
            let gone = config.members.intersection(&lost).copied();
            // What a device that lied has damaged, only copies may have that were left behind since: they are waited
            // for.
            let only_liars = config.in_sync.iter().all(|id| self.devices.get(id).is_some_and(|device| device.lied));
            let gone: BTreeSet<DeviceId> = gone.filter(|id| !only_liars || !self.devices.contains_key(id)).collect();
            let drained: BTreeSet<DeviceId> = config.members.intersection(&self.operator.draining).copied().collect();
            let whole = config.in_sync == config.members && moving < MOVES_AT_ONCE;
            let (why, next) = if !gone.is_empty() {
                ("new homes", self.with_others(&config, &gone, &lost))
            } else if !whole || self.wear.calm && !self.wear.loses() || !self.working {
                continue;
            } else if !drained.is_empty() {
                ("drain", self.with_others(&config, &drained, &lost))
            } else {
                ("balance", self.with_an_empty_device(&config, &lost))
            };
            let Some(members) = next else { continue };
            moving += 1;
            let version = config.version + 1;
            self.trace.step(self.now, version, || format!("{why}: members of {pg:?} are {members:?}"));
            *self.faults.counts.entry(why).or_default() += 1;
            self.configuration.change_members(pg, members);
            self.inform_all();
        }
        self.trust_again();
        if !self.wear.calm {
            self.take_away_drained();
            self.start_anew_for_stopped();
        }
    }

    /// A device that had refused something and has been in use since is as good as another.
    fn trust_again(&mut self) {
        let long_ago = |until: Duration| self.now > until.saturating_add(TRUST_AGAIN);
        let trusted = |(id, device): &(&DeviceId, &Device)| {
            let node = self.machines.get(&device.node).and_then(|machine| machine.node.as_ref());
            let serves = node.is_some_and(|node| node.store(**id).is_some());
            let Silence { reads_until, writes_until, crawls_until, .. } = device.silent;
            let silent_until = reads_until.max(writes_until).max(crawls_until);
            device.hurt && serves && long_ago(device.refuses.end().max(silent_until))
        };
        let trusted: Vec<DeviceId> = self.devices.iter().filter(trusted).map(|(id, _)| *id).collect();
        for id in trusted {
            self.devices.entry(id).and_modify(|device| device.hurt = false);
        }
    }

    /// A node without a process, or without the configuration store, is absent.
    fn look_for_absence(&mut self) {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        for node in nodes {
            let present = self.life_of(node).is_some() && self.configuration.away(node, self.now).is_none();
            if present {
                self.operator.absent.remove(&node);
            } else {
                self.operator.absent.entry(node).or_insert(self.now);
            }
        }
    }

    /// Devices whose copies get new homes.
    fn counted_as_lost(&self) -> BTreeSet<DeviceId> {
        let Operator { lost, stopped, absent, patience, .. } = &self.operator;
        let over = |since: Option<&Duration>| since.is_some_and(|since| self.now >= *since + *patience);
        let devices = self.configuration.view().devices.iter();
        let counts = |(device, node): &(&DeviceId, &NodeId)| {
            lost.get(device) == Some(&true) || over(stopped.get(device)) || over(absent.get(node))
        };
        devices.filter(counts).map(|(device, _)| *device).collect()
    }

    /// Devices that may take another copy, and their nodes.
    fn homes(&self, lost: &BTreeSet<DeviceId>) -> Vec<(DeviceId, NodeId)> {
        let Operator { draining, absent, .. } = &self.operator;
        let sound = |(id, device): &(&DeviceId, &Device)| {
            !device.retired && !lost.contains(id) && !self.operator.is_out(**id) && !draining.contains(id)
        };
        let homes = self.devices.iter().filter(sound).map(|(id, device)| (*id, device.node));
        homes.filter(|(_, node)| !absent.contains_key(node)).collect()
    }

    /// A group's members with others in the place of `leaving`; `None` when there are not enough.
    fn with_others(
        &mut self,
        config: &GroupConfig,
        leaving: &BTreeSet<DeviceId>,
        lost: &BTreeSet<DeviceId>,
    ) -> Option<BTreeSet<DeviceId>> {
        let mut members: BTreeSet<DeviceId> = config.members.difference(leaving).copied().collect();
        let mut homes = self.homes(lost);
        while members.len() < config.members.len() {
            homes.retain(|(home, node)| {
                let admits = !config.leaving.contains(home) || config.in_sync.contains(home);
                admits && !leaving.contains(home) && members.iter().all(|member| node_of(*member) != *node)
            });
            if homes.is_empty() {
                return None;
            }
            members.insert(self.operator.random.pick(&homes).0);
        }
        Some(members)
    }

    /// A device without any copy gets a group's, now and then.
    fn with_an_empty_device(&mut self, config: &GroupConfig, lost: &BTreeSet<DeviceId>) -> Option<BTreeSet<DeviceId>> {
        if !self.operator.random.chance(30) {
            return None;
        }
        let groups = &self.configuration.view().groups;
        let mut homes = self.homes(lost);
        homes.retain(|(home, _)| groups.values().all(|g| !g.needs(*home) && !g.leaving.contains(home)));
        if homes.is_empty() {
            return None;
        }
        let (home, node) = *self.operator.random.pick(&homes);
        // It takes the place of a copy on its own node, or of any.
        let mut members = config.members.clone();
        let same = members.iter().find(|member| node_of(**member) == node).copied();
        let all: Vec<DeviceId> = members.iter().copied().collect();
        let goes = same.unwrap_or_else(|| *self.operator.random.pick(&all));
        members.remove(&goes);
        members.insert(home);
        Some(members)
    }

    /// A drained device that no group needs, or has to give anything up, is taken away by whoever stops its node.
    fn take_away_drained(&mut self) {
        let hasty = self.plan.lie == Some(Lie::HastyRemoval);
        let groups = &self.configuration.view().groups;
        let empty = |device: &DeviceId| {
            groups.values().all(|config| match hasty {
                true => !config.members.contains(device),
                false => !config.needs(*device) && !config.leaving.contains(device),
            })
        };
        let drained: Vec<DeviceId> = self.operator.draining.iter().filter(|device| empty(device)).copied().collect();
        for id in drained {
            self.operator.draining.remove(&id);
            let Some(device) = self.devices.get_mut(&id) else { continue };
            device.retired = true;
            let node = device.node;
            self.trace.step(self.now, u64::from(id.0), || format!("{id:?} is drained and is taken away"));
            *self.faults.counts.entry("device removed").or_default() += 1;
            self.restart_as_planned(node);
        }
    }

    /// Somebody starts a node anew whose device might work again.
    fn start_anew_for_stopped(&mut self) {
        let works = |device: &DeviceId| {
            self.devices.get(device).is_some_and(|d| !d.refuses.is_on(self.now) && !d.silent.is_on(self.now))
        };
        let stopped: Vec<DeviceId> = self.operator.stopped.keys().filter(|device| works(device)).copied().collect();
        if !stopped.is_empty() && self.operator.random.chance(if self.working { 10 } else { 50 }) {
            let node = node_of(*self.operator.random.pick(&stopped));
            self.restart_as_planned(node);
        }
    }

    /// A node's process starts: it notes which devices are not there any more, and takes in those that are new.
    pub(crate) fn look_for_devices(&mut self, node: NodeId) {
        if !self.operator.on {
            return;
        }
        self.take_away_retired(node);
        let missing = self.operator.lost.iter_mut().filter(|(device, _)| node_of(**device) == node);
        missing.for_each(|(_, noted)| *noted = true);
        let due = self.operator.due.remove(&node).unwrap_or_default();
        for _ in 0..due {
            let free = numbers_of(node).find(|id| !self.configuration.view().devices.contains_key(id));
            let Some(id) = free else { return };
            self.add_device(id, node);
            *self.faults.counts.entry("new device").or_default() += 1;
        }
    }

    /// An empty device is formatted, under this number.
    pub(crate) fn add_device(&mut self, id: DeviceId, node: NodeId) {
        let options = self.operator.options.clone();
        let random = self.operator.random.fork();
        match Device::format(id, node, options, random, Honesty::Doubtful, self.plan.disk_depth) {
            Ok(device) => drop(self.devices.insert(id, device)),
            Err(what) => return self.violate(Invariant::StoreKeeps, what),
        }
        self.trace.step(self.now, u64::from(id.0), || format!("{id:?} of {node:?} is new and empty"));
        let record = device_record(id, node);
        self.configuration.change(&Txn::new().put(&Key::Device(id).to_string(), &record));
        self.inform_all();
    }

    /// A device is gone, with all that it held.
    pub(crate) fn lose_device(&mut self, id: DeviceId) {
        self.trace.step(self.now, u64::from(id.0), || format!("{id:?} is gone"));
        self.devices.remove(&id);
        self.operator.stopped.remove(&id);
        self.operator.draining.remove(&id);
        if self.plan.lie == Some(Lie::EmptyDevice) {
            let node = node_of(id);
            return self.add_device(id, node);
        }
        self.operator.lost.insert(id, false);
        let node = node_of(id);
        let left = self.devices.values().filter(|device| device.node == node).count();
        if left == 0 || self.operator.random.chance(70) {
            self.operator.order_device(node);
        }
        if !self.working {
            self.replace_devices();
        }
    }

    /// Devices that are to be taken away are, now that their node's process has ended.
    pub(crate) fn take_away_retired(&mut self, node: NodeId) {
        let retired = self.devices.iter().filter(|(_, device)| device.node == node && device.retired);
        let retired: Vec<DeviceId> = retired.map(|(id, _)| *id).collect();
        retired.into_iter().for_each(|id| self.lose_device(id));
    }

    /// A node's process can't use a device, or not any more.
    pub(crate) fn device_stopped(&mut self, id: DeviceId, why: &Breakdown) {
        let Some(device) = self.devices.get(&id) else { return };
        let node = device.node;
        if !device.hurt || (why.for_good && !device.lied) {
            let what = format!("{id:?} of {node:?} has stopped: {}", why.reason);
            return self.violate(Invariant::StoreKeeps, what);
        }
        self.trace.step(self.now, u64::from(id.0), || format!("{node:?} does without {id:?}: {}", why.reason));
        if why.for_good {
            *self.faults.counts.entry("damaged device").or_default() += 1;
            self.lose_device(id);
            if let Some(noted) = self.operator.lost.get_mut(&id) {
                *noted = true;
            }
        } else {
            self.operator.stopped.entry(id).or_insert(self.now);
            // It may have answered at the very moment: nothing else will start it again.
            if !self.operator.on && !device.silent.is_on(self.now) {
                self.restart_as_planned(node);
            }
            self.break_for_good(id);
        }
    }

    /// A device's store is open.
    pub(crate) fn device_opened(&mut self, id: DeviceId) {
        self.operator.stopped.remove(&id);
        let now = self.now;
        if let Some(device) = self.devices.get_mut(&id) {
            device.hurt = device.refuses.is_on(now) || device.silent.is_on(now);
        }
    }

    /// Every node has as many sound devices again as it had in the beginning, so that everything can come to rest.
    pub(crate) fn replace_devices(&mut self) {
        if !self.operator.on {
            return;
        }
        self.operator.hurry();
        self.operator.draining.clear();
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        for node in nodes {
            let sound = |device: &&Device| {
                device.node == node && !device.retired && device.refuses.writes_until < Duration::MAX
            };
            let sound = self.devices.values().filter(sound).count() as u32;
            let due = self.operator.due.get(&node).copied().unwrap_or_default();
            (sound + due..self.plan.devices_per_node).for_each(|_| self.operator.order_device(node));
            if self.operator.due.contains_key(&node) {
                self.restart_as_planned(node);
            }
        }
    }

    /// What the control plane thinks of devices, for people.
    pub(crate) fn describe_operator(&self) -> String {
        let Operator { lost, stopped, draining, due, .. } = &self.operator;
        let retired: Vec<_> = self.devices.iter().filter(|(_, device)| device.retired).map(|(id, _)| *id).collect();
        format!("lost {lost:?}, stopped {stopped:?}, draining {draining:?}, to go {retired:?}, to come {due:?}")
    }

    /// A device that nobody waits for: it takes no write ever again, and its copies are to be elsewhere.
    pub(crate) fn is_out_for_good(&self, id: DeviceId) -> bool {
        let broken = |device: &Device| device.refuses.writes_until == Duration::MAX;
        self.operator.is_out(id) && self.devices.get(&id).is_some_and(broken)
    }

    /// Everybody runs, nobody is about to restart a node, and no device fails that is in use.
    pub(crate) fn devices_rest(&self) -> bool {
        let rests = |(id, device): (&DeviceId, &Device)| {
            let node = self.machines.get(&device.node).and_then(|machine| machine.node.as_ref());
            let serves = node.is_some_and(|node| node.store(*id).is_some()) && !device.refuses.is_on(self.now);
            !device.retired && (self.is_out_for_good(*id) || !self.operator.is_out(*id) && serves)
        };
        let up = self.machines.keys().all(|node| self.ready_life(*node).is_some());
        let rest = || self.operator.due.is_empty() && self.devices.iter().all(rests);
        !self.operator.on || up && rest() && !self.queue.has_planned_stop()
    }

    /// The groups of which a device has, or is to have, a copy.
    pub(crate) fn groups_on(&self, device: DeviceId) -> impl Iterator<Item = (PgId, &GroupConfig)> {
        let groups = self.configuration.view().groups.iter();
        groups.filter(move |(_, config)| config.needs(device)).map(|(pg, config)| (*pg, config))
    }
}
