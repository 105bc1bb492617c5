//! Nodes without devices come and go for good, in runs whose groups remember few gateways: each guest has another
//! number. There may be one more than groups remember; its clients wait then until another guest leaves.
//!
//! A guest's process goes on for a while after it was taken out of the cluster, as that of a node does which the others
//! took for dead. What it had sent and has no answer to, it sends again.

use crate::cue::Cue;
use crate::kernel::random::Random;
use crate::plan::Plan;
use crate::report::Invariant;
use crate::world::World;
use azekura_base::{DeviceId, Endpoint, NodeId, PeerKey};
use azekura_model::transitions::members::{NodeSpec, register_node};
use azekura_model::transitions::removal::remove_node;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU8;
use std::time::Duration;

/// The node that has clients whoever else is there.
const HOST: NodeId = NodeId(1);
/// A guest that is to go writes nothing for so long at most before it goes.
const WAITS_MAX: Duration = Duration::from_millis(500);
/// When the first guest comes.
pub(crate) const FIRST_AT: Duration = Duration::from_millis(800);

/// Who has come, and who has left.
pub(crate) struct Guests {
    pub(crate) on: bool,
    random: Random,
    /// Guests that the configuration knows.
    here: BTreeSet<NodeId>,
    /// Guests that it knows no more, whose processes go on.
    left: BTreeSet<NodeId>,
    /// With as many, a client waits.
    guests_max: usize,
}

impl Guests {
    pub(crate) fn new(plan: &Plan, random: Random) -> Guests {
        let (here, left) = (BTreeSet::new(), BTreeSet::new());
        Guests { on: plan.has_guests(), random, here, left, guests_max: plan.sessions_limit() }
    }
}

impl World {
    /// A guest comes or goes, and the next one's turn is planned.
    pub(crate) fn guests_turn(&mut self) {
        if !self.works() {
            return;
        }
        let next = self.scene.faults.guests.random.spread_millis(300, 6000);
        self.cue_at(self.now + next, Cue::Guests);
        let Guests { random, here, guests_max, .. } = &mut self.scene.faults.guests;
        if here.is_empty() || here.len() < *guests_max && random.chance(60) {
            self.welcome_a_guest();
        } else {
            let here: Vec<NodeId> = here.iter().copied().collect();
            let node = *random.pick(&here);
            self.guest_leaves(node, self.now + WAITS_MAX);
        }
    }

    fn welcome_a_guest(&mut self) {
        let name = format!("guest{}", self.configuration.model().counters.get("nodes").copied().unwrap_or_default());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 7000));
        let spec = NodeSpec {
            key: PeerKey::unproved(&name),
            api_tls: false,
            uuid: name.clone(),
            name,
            data_address: address,
            api_address: address,
            endpoints: Vec::new(),
            site: String::new(),
            rack: String::new(),
            incarnation: 0,
            shards: NonZeroU8::MIN,
        };
        let registered = self.configuration.run(|records| register_node(records, &spec));
        let Some((record, _)) = self.must(registered) else { return };
        let node = record.id;
        let random = self.scene.faults.guests.random.fork();
        self.add_machine(node, random);
        self.scene.faults.guests.here.insert(node);
        self.trace.step(self.now, u64::from(node.0), || format!("{node:?} is a guest"));
        self.count("guest");
        self.start(node);
        self.inform_all();
        self.move_clients(node);
    }

    /// Some clients go to this guest.
    fn move_clients(&mut self, node: NodeId) {
        for client in 0..self.scene.clients.count() {
            if self.scene.faults.guests.random.chance(50) {
                self.scene.clients.move_to(client, Endpoint::first(node));
            }
        }
    }

    /// A guest is taken out of the cluster as soon as it writes something, or then.
    pub(crate) fn guest_leaves(&mut self, node: NodeId, by: Duration) {
        if !self.works() || !self.scene.faults.guests.here.contains(&node) {
            return;
        }
        if self.now >= by || self.scene.clients.are_writing_at(node) {
            return self.see_off(node);
        }
        let again = self.scene.faults.guests.random.micros(50, 500);
        self.cue_at(self.now + again, Cue::GuestLeaves(node, by));
    }

    /// A guest is taken out of the cluster. Often a primary crashes at that moment: its answers are lost.
    fn see_off(&mut self, node: NodeId) {
        let primaries: Vec<DeviceId> = self.configuration.view().groups.values().map(|config| config.primary).collect();
        let random = &mut self.scene.faults.guests.random;
        let crashes = random.chance(60).then(|| *random.pick(&primaries));
        let (down, rest) = (random.spread_millis(1, 4000), random.spread_millis(500, 6000));
        if let Some(primary) = crashes.filter(|_| self.works()) {
            self.crash_for(self.node_of(primary), down);
        }
        let removed = self.configuration.run(|records| remove_node(records, node, false));
        self.must(removed);
        self.take_removal_steps();
        if self.configuration.model().nodes.contains_key(&node) {
            return self.violate(Invariant::Protocol, format!("{node:?} was removed and has its record"));
        }
        self.scene.faults.guests.here.remove(&node);
        self.scene.faults.guests.left.insert(node);
        self.trace.step(self.now, u64::from(node.0), || format!("{node:?} is taken out of the cluster"));
        self.count("guest removed");
        self.cue_at(self.now + rest, Cue::GuestEnds(node));
    }

    /// The process of a guest that has left ends.
    pub(crate) fn guest_ends(&mut self, node: NodeId) {
        if self.scene.faults.guests.left.remove(&node) {
            self.crash(node);
            self.remove_machine(node);
        }
    }

    /// Nobody is left but guests that all have a place.
    pub(crate) fn end_guests(&mut self) {
        while self.scene.faults.guests.here.len() + 1 > self.plan.sessions_limit() {
            let Some(node) = self.scene.faults.guests.here.first().copied() else { break };
            self.see_off(node);
        }
        let left = std::mem::take(&mut self.scene.faults.guests.left);
        for node in left {
            self.crash(node);
            self.remove_machine(node);
        }
    }

    /// Where clients go whose node does not take requests.
    pub(crate) fn nodes_for_clients(&self) -> Vec<NodeId> {
        match self.scene.faults.guests.on {
            true => self.scene.faults.guests.here.iter().copied().chain([HOST]).collect(),
            false => self.machines.keys().copied().collect(),
        }
    }

    /// The same, by shard.
    pub(crate) fn places_for_clients(&self) -> Vec<Endpoint> {
        self.nodes_for_clients().into_iter().flat_map(|node| self.endpoints_of(node)).collect()
    }

    /// A node that was taken out of the cluster is refused by right.
    pub(crate) fn has_left(&self, node: NodeId) -> bool {
        self.scene.faults.guests.on && !self.configuration.model().nodes.contains_key(&node)
    }
}
