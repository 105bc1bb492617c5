//! What the operator does with the cluster.

use super::{MOVES_AT_ONCE, Operator, TRUST_AGAIN};
use crate::cluster::devices::identity;
use crate::cluster::events::Event;
use crate::cluster::records::CAPACITY_BYTES;
use crate::cluster::{Cluster, Scene};
use crate::kernel::device::{Device, Honesty, Silence};
use crate::plan::Lie;
use crate::report::Invariant;
use azekura_base::{DeviceId, NodeId, PgId, Shard};
use azekura_model::transitions::members::{DeviceSpec, register_device};
use azekura_model::{DeviceState, FailureKind};
use azekura_node::Breakdown;
use azekura_replica::GroupConfig;
use std::collections::BTreeSet;
use std::time::Duration;

impl<S: Scene> Cluster<S> {
    /// The node that a device belongs to, or has belonged to.
    ///
    /// # Panics
    /// When there has never been such a device.
    pub(crate) fn node_of(&self, device: DeviceId) -> NodeId {
        self.operator.nodes[&device]
    }

    /// The control plane looks at everything once more.
    pub(crate) fn operate(&mut self) {
        let again = self.now + self.operator.random.spread_millis(100, 1500);
        self.queue.push(again, Event::Operate);
        self.note_failures();
        self.give_signs_of_life();
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
            let drained: BTreeSet<DeviceId> =
                config.members.iter().copied().filter(|id| self.is_drained(*id)).collect();
            let whole = config.in_sync == config.members && moving < MOVES_AT_ONCE;
            let (why, next) = if !gone.is_empty() {
                ("new homes", self.with_others(&config, &gone, &lost))
            } else if !whole || S::copies_stay(self) || !self.working {
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
            self.count(why);
            self.configuration.change_members(pg, members);
            self.inform_all();
        }
        self.trust_again();
        if !S::is_calm(self) {
            self.take_away_drained();
            self.take_removal_steps();
            self.start_anew_for_stopped();
        }
    }

    /// A device that had refused something and has been in use since is as good as another.
    fn trust_again(&mut self) {
        let long_ago = |until: Duration| self.now > until.saturating_add(TRUST_AGAIN);
        let trusted = |(id, device): &(&DeviceId, &Device)| {
            let serves = self.store_of(**id).is_some();
            let Silence { reads_until, writes_until, crawls_until, .. } = device.silent;
            let silent_until = reads_until.max(writes_until).max(crawls_until);
            device.hurt && serves && long_ago(device.refuses.end().max(silent_until))
        };
        let trusted: Vec<DeviceId> = self.devices.iter().filter(trusted).map(|(id, _)| *id).collect();
        for id in trusted {
            self.devices.entry(id).and_modify(|device| device.hurt = false);
        }
    }

    /// Devices whose copies get new homes.
    fn counted_as_lost(&self) -> BTreeSet<DeviceId> {
        let Operator { out, absent, patience, .. } = &self.operator;
        let over = |since: Option<&Duration>| since.is_some_and(|since| self.now >= *since + *patience);
        let devices = self.configuration.model().devices.values();
        let lost = devices.filter(|device| {
            let for_good = device.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Lost);
            for_good || device.state == DeviceState::Down || over(out.get(&device.id)) || over(absent.get(&device.node))
        });
        lost.map(|device| device.id).collect()
    }

    /// Devices that may take another copy, and their nodes.
    fn homes(&self, lost: &BTreeSet<DeviceId>) -> Vec<(DeviceId, NodeId)> {
        let sound = |(id, device): &(&DeviceId, &Device)| {
            !device.retired && !lost.contains(id) && !self.operator.is_out(**id) && !self.is_drained(**id)
        };
        let homes = self.devices.iter().filter(sound).map(|(id, device)| (*id, device.node));
        homes.filter(|(_, node)| !self.operator.absent.contains_key(node)).collect()
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
                admits && !leaving.contains(home) && members.iter().all(|member| self.node_of(*member) != *node)
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
        let same = members.iter().find(|member| self.node_of(**member) == node).copied();
        let all: Vec<DeviceId> = members.iter().copied().collect();
        let goes = same.unwrap_or_else(|| *self.operator.random.pick(&all));
        members.remove(&goes);
        members.insert(home);
        Some(members)
    }

    /// Somebody starts a node anew whose device might work again.
    fn start_anew_for_stopped(&mut self) {
        let works = |device: &DeviceId| {
            self.devices.get(device).is_some_and(|d| !d.refuses.is_on(self.now) && !d.silent.is_on(self.now))
        };
        let stopped: Vec<DeviceId> = self.operator.stopped.iter().filter(|device| works(device)).copied().collect();
        if !stopped.is_empty() && self.operator.random.chance(if self.working { 10 } else { 50 }) {
            let device = *self.operator.random.pick(&stopped);
            let node = self.node_of(device);
            self.restart_as_planned(node);
        }
    }

    /// A node's process starts: it notes which devices are not there any more, and takes in those that are new.
    pub(crate) fn look_for_devices(&mut self, node: NodeId) {
        if !self.operator.on {
            return;
        }
        self.take_away_retired(node);
        let Operator { lost, nodes, .. } = &mut self.operator;
        let missing = lost.iter_mut().filter(|(device, _)| nodes.get(device) == Some(&node));
        missing.for_each(|(_, noted)| *noted = true);
        let due = self.operator.due.remove(&node).unwrap_or_default();
        for _ in 0..due {
            let Some(id) = self.register_device(node) else { return };
            self.format_device(id, node);
            self.count("new device");
        }
    }

    /// A node makes a new device known; gives the number that it gets.
    fn register_device(&mut self, node: NodeId) -> Option<DeviceId> {
        let name = format!("device{}", self.operator.nodes.len());
        let spec = DeviceSpec { uuid: name.clone(), node, shard: Shard(0), name, capacity_bytes: CAPACITY_BYTES };
        let registered = self.configuration.run(|records| register_device(records, &spec));
        let (record, _) = self.must(registered)?;
        self.operator.nodes.insert(record.id, node);
        self.inform_all();
        Some(record.id)
    }

    /// An empty device is formatted, under this number.
    fn format_device(&mut self, id: DeviceId, node: NodeId) {
        let options = self.operator.options.clone();
        let random = self.operator.random.fork();
        match Device::format(identity(id), node, options, random, Honesty::Doubtful, self.plan.disk_depth) {
            Ok(device) => drop(self.devices.insert(id, device)),
            Err(what) => return self.violate(Invariant::StoreKeeps, what),
        }
        self.trace.step(self.now, u64::from(id.0), || format!("{id:?} of {node:?} is new and empty"));
    }

    /// A device is gone, with all that it held.
    pub(crate) fn lose_device(&mut self, id: DeviceId) {
        self.trace.step(self.now, u64::from(id.0), || format!("{id:?} is gone"));
        self.devices.remove(&id);
        self.operator.stopped.remove(&id);
        let node = self.node_of(id);
        if self.plan.lie == Some(Lie::EmptyDevice) {
            return self.format_device(id, node);
        }
        self.operator.lost.insert(id, false);
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
            self.count("damaged device");
            self.lose_device(id);
            if let Some(noted) = self.operator.lost.get_mut(&id) {
                *noted = true;
            }
        } else {
            self.operator.stopped.insert(id);
            // It may have answered at the very moment: nothing else will start it again.
            if !self.operator.on && !device.silent.is_on(self.now) {
                self.restart_as_planned(node);
            }
            S::device_stopped(self, id);
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
        self.drain_no_more();
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
        let Operator { lost, stopped, due, .. } = &self.operator;
        let model = self.configuration.model();
        let draining: Vec<DeviceId> = model.devices.keys().copied().filter(|id| self.is_drained(*id)).collect();
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
            let serves = self.store_of(*id).is_some() && !device.refuses.is_on(self.now);
            !device.retired && (self.is_out_for_good(*id) || !self.operator.is_out(*id) && serves)
        };
        let up = self.endpoints().into_iter().all(|at| self.ready_life(at).is_some());
        let rest = || self.operator.due.is_empty() && self.devices.iter().all(rests);
        !self.operator.on || up && rest() && !self.has_planned_stop()
    }

    /// The groups of which a device has, or is to have, a copy.
    pub(crate) fn groups_on(&self, device: DeviceId) -> impl Iterator<Item = (PgId, &GroupConfig)> {
        let groups = self.configuration.view().groups.iter();
        groups.filter(move |(_, config)| config.needs(device)).map(|(pg, config)| (*pg, config))
    }
}
