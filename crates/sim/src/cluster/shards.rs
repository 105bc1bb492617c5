//! Shards of processes: who they are, which devices they have, and the control plane's side of that.
//!
//! A process has as many as the plan says. Its devices are dealt out by number when it starts, which its records tell
//! others. A later process may have more or fewer, and then devices change shards.

use crate::cluster::machine::EventLoop;
use crate::cluster::{Cluster, Scene};
use crate::kernel::process::Life;
use crate::plan::{Mode, Shards};
use azekura_base::{DeviceId, Endpoint, NodeId, Shard};
use azekura_model::MetaError;
use azekura_model::transitions::members::{DeviceSpec, NodeSpec, register_device, register_node};
use azekura_node::Node;
use azekura_store::Store;
use std::num::NonZeroU8;
use std::time::Duration;

impl<S: Scene> Cluster<S> {
    /// The life of the first shard of the process that runs on a node now.
    pub(crate) fn process_on(&self, node: NodeId) -> Option<Life> {
        self.life_of(Endpoint::first(node))
    }

    /// The life of the shard that runs there now.
    pub(crate) fn life_of(&self, at: Endpoint) -> Option<Life> {
        self.machines.get(&at.node)?.life(at.node, at.shard)
    }

    /// Its process still runs.
    pub(crate) fn is_alive(&self, life: Life) -> bool {
        self.life_of(life.endpoint()) == Some(life)
    }

    /// All shards that run.
    pub(crate) fn lives(&self) -> Vec<Life> {
        self.machines.iter().flat_map(|(node, machine)| machine.lives(*node)).collect()
    }

    /// The shards of the process that runs on a node.
    pub(crate) fn lives_on(&self, node: NodeId) -> Vec<Life> {
        self.machines.get(&node).into_iter().flat_map(|machine| machine.lives(node)).collect()
    }

    /// The shards of the process that one of them belongs to, if it still runs.
    pub(crate) fn lives_of(&self, life: Life) -> Vec<Life> {
        if self.is_alive(life) { self.lives_on(life.node) } else { Vec::new() }
    }

    /// The shards of all nodes, also of those that do not run now.
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        let shards = |shards: NonZeroU8| (0..shards.get()).map(Shard);
        let all = self.machines.iter().map(|(node, machine)| (*node, machine.shards));
        all.flat_map(|(node, count)| shards(count).map(move |shard| Endpoint { node, shard })).collect()
    }

    /// The shards of a node, also when it does not run now.
    pub(crate) fn endpoints_of(&self, node: NodeId) -> Vec<Endpoint> {
        let count = self.machines.get(&node).map_or(0, |machine| machine.shards.get());
        (0..count).map(|shard| Endpoint { node, shard: Shard(shard) }).collect()
    }

    /// What runs at a shard.
    pub(crate) fn node_at(&self, at: Endpoint) -> Option<&Node> {
        Some(&self.machines.get(&at.node)?.at(at.shard)?.node)
    }

    /// What runs at all shards of all nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.machines.values().flat_map(|machine| machine.loops()).map(|at| &at.node)
    }

    /// The store of a device, once a process has it open.
    pub(crate) fn store_of(&self, device: DeviceId) -> Option<&Store> {
        let machine = self.machines.get(&self.devices.get(&device)?.node)?;
        machine.loops().find_map(|at| at.node.store(device))
    }

    /// The event loop of a shard, while its process lives.
    pub(crate) fn loop_of_mut(&mut self, life: Life) -> Option<&mut EventLoop> {
        self.machines.get_mut(&life.node).filter(|machine| machine.is_latest(life))?.at_mut(life.shard)
    }

    /// What processes of a node take for the time.
    pub(crate) fn clock_on(&self, node: NodeId) -> Duration {
        self.machines.get(&node).map(|machine| machine.clock.shows(self.now)).unwrap_or_default()
    }

    /// The shard that has a device, as the records say.
    pub(crate) fn shard_of(&self, device: DeviceId) -> Shard {
        self.configuration.model().devices.get(&device).map_or(Shard(0), |record| record.shard)
    }

    /// A process is about to start: it has so many shards, and each of its devices is one's. Gives its incarnation.
    pub(super) fn register_start(&mut self, node: NodeId) -> Option<u64> {
        let machine = self.machines.get_mut(&node)?;
        let count = match self.plan.shards {
            Shards::Each(count) => count,
            Shards::UpTo(most) => machine.draw_shards(most),
        };
        machine.shards = count;
        let next = machine.next_incarnation();
        let incarnation = self.register(node, count, next)?;
        let devices: Vec<DeviceId> =
            self.devices.iter().filter(|(_, device)| device.node == node).map(|(id, _)| *id).collect();
        for (nth, device) in devices.into_iter().enumerate() {
            self.register_shard_of(device, Shard((nth % usize::from(count.get())) as u8));
        }
        Some(incarnation)
    }

    /// A start of a node enters its record; gives its incarnation: what the node has counted, or beyond what was
    /// registered. A node of which the configuration knows nothing, since that is an older one or the node was taken
    /// out, has its own count only; so has one in runs whose starts are not registered, where its record says how many
    /// shards it has.
    fn register(&mut self, node: NodeId, shards: NonZeroU8, counted: u64) -> Option<u64> {
        let all = self.plan.registered_starts;
        let record = self.configuration.model().nodes.get(&node).filter(|record| !record.removed || !all);
        let Some(record) = record.filter(|record| all || record.shards != shards) else { return Some(counted) };
        let spec = NodeSpec {
            uuid: record.uuid.clone(),
            name: record.name.clone(),
            data_address: record.data_address,
            api_address: record.api_address,
            endpoints: record.endpoints.clone(),
            site: record.site.clone(),
            rack: record.rack.clone(),
            incarnation: if all { counted } else { record.incarnation },
            shards,
            api_tls: false,
            key: self.key_in_folder(node),
        };
        let registered = self.configuration.run(|records| register_node(records, &spec));
        if self.plan.mode == Mode::Keys && matches!(registered, Err(MetaError::KeyNotListed { .. })) {
            return None;
        }
        let registered = self.must(registered);
        self.inform_all();
        Some(registered.filter(|_| all).map_or(counted, |(record, _)| record.incarnation))
    }

    fn register_shard_of(&mut self, device: DeviceId, shard: Shard) {
        let record = self.configuration.model().devices.get(&device);
        let Some(record) = record.filter(|record| record.shard != shard && !record.removed) else { return };
        let spec = DeviceSpec {
            uuid: record.uuid.clone(),
            node: record.node,
            shard,
            name: record.name.clone(),
            capacity_bytes: record.capacity_bytes,
            usable_bytes: record.usable_bytes(),
        };
        let registered = self.configuration.run(|records| register_device(records, &spec));
        self.must(registered);
        self.inform_all();
    }
}
