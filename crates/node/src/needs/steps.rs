//! A shard finds out whom it needs, and whom no more.

use super::{primaries, sharers};
use crate::effect::Effect;
use crate::links::Outbound;
use crate::node::Node;
use azekura_base::{DeviceId, Endpoint, NodeId};
use std::collections::BTreeSet;
use std::time::Duration;

/// How often it is looked for volumes that nobody uses any more, and for questions that nobody asks any more.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

impl Node {
    /// Hangs up when nothing has needed a connection for so long, instead of [`crate::LINK_IDLE`].
    pub fn set_link_idle(&mut self, idle: Duration) {
        self.mesh.needs.idle = idle;
    }

    /// Somebody wants to know whether a process of another node has ended, which the configuration says to have begun:
    /// the node is dialled, if there is no connection, and [`Node::has_ended`] tells what came of it.
    pub fn ask_about(&mut self, node: NodeId, incarnation: u64) {
        if node == self.identity.endpoint.node {
            return;
        }
        self.mesh.links.heard_of(node, incarnation);
        if let Some(state @ Outbound::Idle(_)) = self.mesh.links.out.get_mut(&Endpoint::first(node)) {
            *state = Outbound::Idle(self.now); // Not when the next try would be due.
        }
        self.mesh.needs.asked_about.insert(node, self.now + self.mesh.needs.idle);
        self.mesh.needs.changed();
    }

    /// There is a connection to this very process, so it runs, as far as can be known.
    #[must_use]
    pub fn is_reached(&self, node: NodeId, incarnation: u64) -> bool {
        if node == self.identity.endpoint.node {
            return incarnation == self.identity.incarnation;
        }
        let latest = self.mesh.links.latest_process(node) == Some(incarnation);
        latest && self.mesh.links.up_peers().any(|peer| peer.node == node)
    }

    /// Lets go whom nobody needs any more, and finds out whom somebody needs now.
    pub(crate) fn tick_needs(&mut self) {
        let now = self.now;
        if now >= self.mesh.needs.look_at {
            self.mesh.needs.look_at = now + LOOK_INTERVAL;
            self.gateway.forget_unused(now, self.mesh.needs.idle);
            let before = self.mesh.needs.asked_about.len();
            self.mesh.needs.asked_about.retain(|_, until| now < *until);
            self.mesh.needs.stale |= self.mesh.needs.asked_about.len() < before;
        }
        let changes = self.gateway.changes_of_use();
        if self.mesh.needs.stale || self.mesh.needs.gateway_changes != changes {
            self.mesh.needs.gateway_changes = changes;
            self.follow_needs();
        }
        let idle = self.mesh.needs.idle;
        let over = self.mesh.needs.unneeded.iter().filter(|(_, since)| now >= **since + idle);
        let over: Vec<Endpoint> = over.map(|(peer, _)| *peer).collect();
        over.into_iter().for_each(|peer| self.end_link(peer));
    }

    /// Starts links to shards that are needed now, and ends those to shards that are not there any more.
    pub(crate) fn follow_needs(&mut self) {
        let me = self.identity.endpoint;
        if std::mem::take(&mut self.mesh.needs.shares_stale) {
            // Records may place them elsewhere, or others here, until the node's start is in them.
            let devices = &self.directory.view.devices;
            let placed = devices.iter().filter(|(device, at)| **at == me && !self.devices.contains_key(device));
            let mine: Vec<DeviceId> = placed.map(|(device, _)| *device).chain(self.devices.keys().copied()).collect();
            let copies = self.copies.groups.values().map(azekura_replica::Group::config);
            self.mesh.needs.shares = sharers(&self.directory.view, &mine, copies);
        }
        let view = &self.directory.view;
        let mut all = self.mesh.needs.shares.clone();
        all.extend(self.gateway.peers());
        all.extend(primaries(view, self.fencing.groups_to_ask()));
        all.extend(self.mesh.needs.asked_about.keys().map(|node| Endpoint::first(*node)));
        all.retain(|peer| *peer != me && self.can_be_dialled(*peer));
        self.mesh.needs.stale = false;
        self.mesh.needs.all = all;
        let unneeded: Vec<Endpoint> = self.mesh.links.peers().filter(|peer| !self.mesh.needs.has(*peer)).collect();
        for peer in unneeded {
            let stands = matches!(self.mesh.links.out.get(&peer), Some(Outbound::Greeting(..) | Outbound::Up(_)));
            if stands && self.can_be_dialled(peer) {
                self.mesh.needs.unneeded.entry(peer).or_insert(self.now);
            } else {
                self.end_link(peer);
            }
        }
        for peer in &self.mesh.needs.all {
            self.mesh.needs.unneeded.remove(peer);
            self.mesh.links.out.entry(*peer).or_insert(Outbound::Idle(self.now));
        }
    }

    /// The shard is there, as far as the view, or this process, knows.
    fn can_be_dialled(&self, peer: Endpoint) -> bool {
        match self.mesh.links.local.is_sister(self.identity.endpoint, peer) {
            Some(is_there) => is_there,
            None => self.directory.view.address_of(peer).is_some(),
        }
    }

    /// How a shard that can be dialled is reached.
    pub(crate) fn way_to(&self, peer: Endpoint) -> Option<Effect> {
        match self.mesh.links.local.is_sister(self.identity.endpoint, peer) {
            Some(_) => Some(Effect::ConnectLocal(peer)),
            None => {
                let view = &self.directory.view;
                let tls = view.transport.dials_tls();
                view.address_of(peer).map(|address| Effect::Connect(peer, address, tls))
            }
        }
    }

    /// Hangs up, or does not dial any more.
    fn end_link(&mut self, peer: Endpoint) {
        self.mesh.needs.unneeded.remove(&peer);
        if let Some(Outbound::Greeting(conn, _) | Outbound::Up(conn)) = self.mesh.links.out.remove(&peer) {
            self.hang_up(conn);
            self.link_lost(peer);
        }
        self.mesh.links.redials.forget(peer);
    }

    /// A connection is gone, or could not be made: it is dialled again a little later, if somebody needs it.
    pub(crate) fn dial_later(&mut self, peer: Endpoint) {
        if self.mesh.needs.has(peer) {
            let pause = self.mesh.links.redials.pause(peer);
            self.mesh.links.out.insert(peer, Outbound::Idle(self.now + pause));
        } else {
            self.mesh.needs.unneeded.remove(&peer);
            self.mesh.links.out.remove(&peer);
        }
    }

    /// The peers from whom an answer is expected: those that share a group, and those that were asked for a client or
    /// for the control plane. What is silent of these is cut off.
    pub(crate) fn expected_to_answer(&self) -> BTreeSet<Endpoint> {
        let asked = self.gateway.asked().chain(self.fencing.asked()).chain(self.mesh.needs.shares.iter().copied());
        asked.collect()
    }

    /// What waits here for a peer that is neither connected nor dialled, although it could be: nothing, unless a need
    /// was forgotten. Finds it by another way than [`Node::poll`] does, for simulations.
    #[must_use]
    pub fn waits_in_vain(&self) -> Option<String> {
        let needs = &self.mesh.needs;
        if needs.stale || needs.gateway_changes != self.gateway.changes_of_use() {
            return None; // Something has come since.
        }
        let me = self.identity.endpoint;
        let view = &self.directory.view;
        let forgotten =
            |peer: &Endpoint| *peer != me && self.can_be_dialled(*peer) && !self.mesh.links.out.contains_key(peer);
        for ((pg, device), group) in &self.copies.groups {
            let others = group.config().members.iter().chain(&group.config().in_sync);
            let peer = others.filter_map(|other| view.devices.get(other)).find(|peer| forgotten(peer));
            if let Some(peer) = peer {
                return Some(format!("the copy of {pg:?} on {device:?} needs {peer}, which nobody dials"));
            }
        }
        if let Some(peer) = self.gateway.wanted().find(forgotten) {
            return Some(format!("a client needs {peer}, which nobody dials"));
        }
        let fences = primaries(view, self.fencing.groups_to_ask()).find(forgotten);
        fences.map(|peer| format!("a fence needs {peer}, which nobody dials"))
    }
}
