//! What the operator does with the cluster.

use super::{Leadership, Operator, TRUST_AGAIN};
use crate::cluster::devices::identity;
use crate::cluster::events::Event;
use crate::cluster::machine::{Machine, shards_of_later};
use crate::cluster::records::{CAPACITY_BYTES, address};
use crate::cluster::{Cluster, Scene};
use crate::kernel::device::{Device, Honesty, Silence};
use crate::plan::Lie;
use crate::report::Invariant;
use azekura_base::{DeviceId, NodeId, PeerKey, Shard};
use azekura_model::transitions::members::{DeviceSpec, NodeSpec, register_device, register_node};
use azekura_model::transitions::removal::remove_node;
use azekura_model::{MetaError, Model};
use azekura_node::Breakdown;
use azekura_plans::homes::{Move, Reason};
use azekura_plans::{Moment, Plan};
use std::num::NonZeroU8;
use std::time::Duration;

impl<S: Scene> Cluster<S> {
    /// The node that a device belongs to, or has belonged to.
    ///
    /// # Panics
    /// When there has never been such a device.
    pub(crate) fn node_of(&self, device: DeviceId) -> NodeId {
        self.operator.nodes[&device]
    }

    /// Somebody moves copies, and devices come and go.
    pub(crate) fn has_operator(&self) -> bool {
        self.operator.on
    }

    /// The device is gone, or its node does without it: it confirms nothing.
    pub(crate) fn is_out(&self, device: DeviceId) -> bool {
        self.operator.is_out(device)
    }

    /// A node is to find another device at its next start.
    pub(crate) fn order_device(&mut self, node: NodeId) {
        self.operator.order_device(node);
    }

    /// The control plane looks at everything once more.
    pub(crate) fn operate(&mut self) {
        let again = self.now + self.operator.random.spread_millis(100, 1500);
        self.queue.push(again, Event::Operate);
        self.note_failures();
        self.give_signs_of_life();
        if self.elect() {
            self.lead();
        }
        self.trust_again();
        if !S::is_calm(self) {
            self.take_away_drained();
            self.take_out_dismissed();
            self.start_anew_for_stopped();
        }
    }

    /// The leader looks, and does what is next.
    fn lead(&mut self) {
        let (model, now) = (self.configuration.model().clone(), self.moment());
        let Some(Leadership { leader, .. }) = &mut self.operator.leadership else { return };
        let round = leader.step(&model, now);
        let mut changed = false;
        for plan in round.plans {
            let taken = self.may_be_done(&model, &plan) && self.carry_out(&model, &plan);
            if let (true, Plan::Move(Move { reason, group, members })) = (taken, &plan) {
                self.trace.step(self.now, u64::from(group.0), || format!("{reason:?}: {group:?} moves to {members:?}"));
                self.count(match reason {
                    Reason::Repair => "new homes",
                    Reason::Drain => "drain",
                    Reason::Balance => "balance",
                });
            }
            changed |= taken;
        }
        if changed {
            self.inform_all();
        }
    }

    /// Whether the faults of this run leave room for it.
    fn may_be_done(&self, model: &Model, plan: &Plan) -> bool {
        match plan {
            Plan::Move(_) if self.operator.stays => false,
            Plan::Move(wanted) if wanted.reason != Reason::Repair => !S::copies_stay(self),
            Plan::Move(Move { group, members, .. }) => {
                // What a device that lied has damaged, only copies may have that were left behind since: they are
                // waited for.
                let Some(group) = model.groups.get(group) else { return false };
                let lied = |id: &DeviceId| self.devices.get(id).is_some_and(|device| device.lied);
                let mut gone = group.members.iter().filter(|id| !members.contains(id));
                !group.in_sync.iter().all(lied) || !gone.any(|id| self.devices.contains_key(id))
            }
            Plan::Removal(_) => !S::is_calm(self),
            _ => true,
        }
    }

    /// From now on copies stay where they are, or may move again. A leader may find later that something can be
    /// levelled out: when it has just begun to reign, or when a device that serves again is no longer noted as stopped.
    pub(crate) fn let_copies_stay(&mut self, stays: bool) {
        self.operator.stays = stays;
    }

    /// All copies are where the leader wants them, or are on their way; and nobody changes its mind, since it leads and
    /// all nodes give signs of life.
    pub(crate) fn copies_are_home(&self) -> bool {
        if !self.operator.on {
            return true;
        }
        let model = self.configuration.model();
        let Some(Leadership { life, leader, .. }) = &self.operator.leadership else { return false };
        self.is_alive(*life)
            && self.machines.keys().all(|node| model.alive.contains_key(node))
            && leader.moves(model, self.moment()).is_empty()
    }

    fn moment(&self) -> Moment {
        Moment { elapsed: self.now, unix_seconds: self.now.as_secs() }
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

    /// A node's machine is gone for good, with its devices, and another one is set up with empty ones. Gives the new
    /// node, which has yet to start.
    pub(crate) fn replace_machine(&mut self, node: NodeId) -> Option<NodeId> {
        self.machines.remove(&node);
        self.operator.due.remove(&node);
        self.operator.dismissed.insert(node);
        let model = self.configuration.model();
        let name = format!("node{}", model.counters.get("nodes")?);
        let site = model.nodes.get(&node)?.site.clone();
        let address = address(node);
        let spec = NodeSpec {
            key: PeerKey::unproved(&name),
            api_tls: false,
            uuid: name.clone(),
            name,
            data_address: address,
            api_address: address,
            endpoints: Vec::new(),
            site,
            rack: String::new(),
            incarnation: 0,
            shards: NonZeroU8::MIN,
        };
        let registered = self.configuration.run(|records| register_node(records, &spec));
        let (record, _) = self.must(registered)?;
        self.machines.insert(record.id, Machine::new(self.operator.random.fork(), shards_of_later(record.id)));
        (0..self.plan.devices_per_node).for_each(|_| self.operator.order_device(record.id));
        self.trace.step(self.now, u64::from(node.0), || format!("{node:?} is gone, {:?} joins", record.id));
        self.inform_all();
        Some(record.id)
    }

    /// Whether a node waits to be taken out of the cluster.
    pub(crate) fn has_dismissed(&self) -> bool {
        self.operator.has_dismissed()
    }

    /// What the leader does next for nodes that are being removed is done at once.
    pub(crate) fn take_removal_steps(&mut self) {
        let model = self.configuration.model().clone();
        let mut changed = false;
        for step in model.removal_steps() {
            changed |= self.carry_out(&model, &Plan::Removal(step));
        }
        if changed {
            self.inform_all();
        }
    }

    /// Nodes whose machines are gone are taken out of the cluster, as soon as that is allowed.
    fn take_out_dismissed(&mut self) {
        let dismissed: Vec<NodeId> = self.operator.dismissed.iter().copied().collect();
        for node in dismissed {
            match self.configuration.run(|records| remove_node(records, node, true)) {
                Ok(_) => {
                    self.operator.dismissed.remove(&node);
                    self.trace.step(self.now, u64::from(node.0), || format!("{node:?} is taken out of the cluster"));
                    self.count("node removed");
                    self.inform_all();
                }
                // Its sign of life has yet to end, or it is still the only one that certainly has something.
                Err(MetaError::RemovalRefused { .. }) => {}
                Err(error) => self.violate(Invariant::Protocol, format!("{node:?} can't be removed: {error}")),
            }
        }
    }

    /// A node makes a new device known; gives the number that it gets.
    fn register_device(&mut self, node: NodeId) -> Option<DeviceId> {
        let name = format!("device{}", self.operator.nodes.len());
        let spec = DeviceSpec {
            uuid: name.clone(),
            node,
            shard: Shard(0),
            name,
            capacity_bytes: CAPACITY_BYTES,
            usable_bytes: CAPACITY_BYTES,
        };
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
            Ok(device) => {
                let device = if self.plan.new_logs { device.with_new_log() } else { device };
                self.devices.insert(id, device);
            }
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

    /// A device does not answer, and is out of service until it does.
    pub(crate) fn device_is_out(&mut self, id: DeviceId, why: &str) {
        let Some(device) = self.devices.get(&id) else { return };
        if !device.hurt {
            let what = format!("{id:?} of {:?} is out of service: {why}", device.node);
            return self.violate(Invariant::StoreKeeps, what);
        }
        self.count("device out of service for its silence");
        self.trace.step(self.now, u64::from(id.0), || format!("{id:?} is out of service: {why}"));
        self.operator.stopped.insert(id);
    }

    /// A device's store is open, or answers again.
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
        self.hurry();
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
            let stays = !device.retired && !self.can_be_taken_away(*id);
            stays && (self.is_out_for_good(*id) || !self.operator.is_out(*id) && serves)
        };
        let up = self.endpoints().into_iter().all(|at| self.ready_life(at).is_some());
        let rest = || self.operator.due.is_empty() && !self.operator.has_dismissed() && self.devices.iter().all(rests);
        !self.operator.on || up && rest() && !self.has_planned_stop()
    }
}
