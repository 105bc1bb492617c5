//! Connections between shards of nodes: dialling, greeting, and which of two connections counts.
//!
//! A shard dials one connection to every other one that it needs (`needs.rs`) and sends its requests there; answers
//! come back on it. A shard that accepts a second connection from the same peer drops the first one before it reads
//! from the second, so nothing that was sent on the first can arrive after what is sent on the second. Other shards of
//! the peer's node are other peers.

use crate::Identity;
use crate::effect::ConnKey;
use crate::local::Local;
use azekura_base::{Endpoint, NodeId, Repeats};
use azekura_replica::{Window, WindowLimits};
use azekura_wire::Hello;
use proofs::Proofs;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

mod proofs;
mod redials;
mod steps;

use redials::Redials;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Outbound {
    /// Not connected, although somebody needs it; dial at this time.
    Idle(Duration),
    /// Dialled; it has to succeed by this time, or another try begins.
    Dialling(Duration),
    /// Connected; the peer's greeting has to come by this time.
    Greeting(ConnKey, Duration),
    Up(ConnKey),
}

#[derive(Clone, Copy, Debug)]
enum Inbound {
    /// Accepted; the greeting has to come by this time.
    Unknown(Duration),
    /// The peer, and which start of its node.
    From(Endpoint, u64),
}

/// Dials of which nobody has said yet how they went.
#[derive(Debug, Default)]
struct Dials {
    under_way: u32,
    /// Of those, the ones that were begun before the peer's node last greeted: what is heard of so many says nothing of
    /// the process that has greeted.
    outdated: u32,
}

/// All connections of a shard.
#[derive(Debug)]
pub(crate) struct Links {
    /// A shard that is not in here is not needed.
    pub(crate) out: BTreeMap<Endpoint, Outbound>,
    pub(crate) redials: Redials,
    /// The peers that were dialled, by connection; may name connections that have ended.
    dialled_on: BTreeMap<ConnKey, Endpoint>,
    inbound: BTreeMap<ConnKey, Inbound>,
    dialled: u64,
    dials: BTreeMap<Endpoint, Dials>,
    /// When each peer last answered anything.
    heard: BTreeMap<Endpoint, Duration>,
    /// The latest process of each node, of those that have greeted this shard or that it was asked about.
    incarnations: BTreeMap<NodeId, u64>,
    /// What is on its way to each peer and need not be waited for.
    windows: BTreeMap<Endpoint, Window>,
    window_limits: WindowLimits,
    /// Nodes whose process was not there at the last dial.
    refused: BTreeSet<NodeId>,
    ticked: Duration,
    pub(crate) local: Local,
    pub(crate) proofs: Proofs,
    /// Greetings that were refused, by the peer that sent them.
    refusals: Repeats<Endpoint>,
}

impl Links {
    pub(crate) fn new(identity: Identity) -> Links {
        Links {
            out: BTreeMap::new(),
            redials: Redials::new(identity),
            dialled_on: BTreeMap::new(),
            inbound: BTreeMap::new(),
            dialled: 0,
            dials: BTreeMap::new(),
            heard: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            windows: BTreeMap::new(),
            window_limits: WindowLimits::default(),
            refused: BTreeSet::new(),
            ticked: Duration::ZERO,
            local: Local::default(),
            proofs: Proofs::default(),
            refusals: Repeats::default(),
        }
    }

    /// The peers that are connected, or dialled.
    pub(crate) fn peers(&self) -> impl Iterator<Item = Endpoint> + '_ {
        self.out.keys().copied()
    }

    /// Nothing was expected of the peer up to now: it has not been silent.
    pub(crate) fn need_not_answer(&mut self, peer: Endpoint, now: Duration) {
        self.heard.insert(peer, now);
    }

    pub(crate) fn up_peers(&self) -> impl Iterator<Item = Endpoint> + '_ {
        self.out.iter().filter(|(_, state)| matches!(state, Outbound::Up(_))).map(|(peer, _)| *peer)
    }

    pub(crate) fn next_dial(&self) -> Option<Duration> {
        let out = self.out.values().filter_map(|state| match state {
            Outbound::Idle(at) | Outbound::Dialling(at) | Outbound::Greeting(_, at) => Some(*at),
            Outbound::Up(_) => None,
        });
        let inbound = self.inbound.values().filter_map(|state| match state {
            Inbound::Unknown(at) => Some(*at),
            Inbound::From(..) => None,
        });
        out.chain(inbound).min()
    }

    /// A process of a node has greeted.
    fn met(&mut self, hello: &Hello) {
        self.proofs.met(hello.from);
        self.begun(hello.from.node, hello.incarnation);
    }

    /// The configuration says of a process that there was one. If that is news, only what is dialled from now on tells
    /// whether there still is.
    pub(crate) fn heard_of(&mut self, node: NodeId, incarnation: u64) {
        if self.incarnations.get(&node).is_none_or(|latest| *latest < incarnation) {
            self.begun(node, incarnation);
        }
    }

    /// The latest process of a node that is known of.
    pub(crate) fn latest_process(&self, node: NodeId) -> Option<u64> {
        self.incarnations.get(&node).copied()
    }

    /// There is, or was, such a process. What was dialled before says nothing of it.
    fn begun(&mut self, node: NodeId, incarnation: u64) {
        let latest = self.incarnations.entry(node).or_default();
        *latest = incarnation.max(*latest);
        self.refused.remove(&node);
        for (_, dials) in self.dials.iter_mut().filter(|(peer, _)| peer.node == node) {
            dials.outdated = dials.under_way;
        }
    }

    /// It was heard how a dial went. False: it may have been begun before the peer's node last greeted.
    fn dial_ends(&mut self, peer: Endpoint) -> bool {
        let Some(dials) = self.dials.get_mut(&peer) else { return false };
        let counts = dials.outdated == 0;
        dials.outdated = dials.outdated.saturating_sub(1);
        dials.under_way = dials.under_way.saturating_sub(1);
        if dials.under_way == 0 {
            self.dials.remove(&peer);
        }
        counts
    }

    /// The window of the connection to a peer: one for all groups of this shard (decision 0024).
    pub(crate) fn window(&mut self, peer: Endpoint) -> Window {
        self.windows.entry(peer).or_insert_with(|| Window::new(self.window_limits)).clone()
    }

    /// A connection to the peer stands.
    pub(crate) fn is_up(&self, peer: Endpoint) -> bool {
        self.link(peer).is_some()
    }

    fn link(&self, peer: Endpoint) -> Option<ConnKey> {
        match self.out.get(&peer)? {
            Outbound::Up(conn) => Some(*conn),
            _ => None,
        }
    }

    /// The peer that was dialled on `conn`.
    fn dialled_on(&self, conn: ConnKey) -> Option<Endpoint> {
        let peer = *self.dialled_on.get(&conn)?;
        let current = matches!(self.out.get(&peer)?, Outbound::Greeting(c, _) | Outbound::Up(c) if *c == conn);
        current.then_some(peer)
    }
}

#[cfg(test)]
mod tests;
