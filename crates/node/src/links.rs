//! Connections between shards of nodes: dialling, greeting, and which of two connections counts.
//!
//! A shard dials one connection to every other one and sends its requests there; answers come back on it. A shard that
//! accepts a second connection from the same peer drops the first one before it reads from the second, so nothing that
//! was sent on the first can arrive after what is sent on the second. Other shards of the peer's node are other peers.

use crate::effect::{ConnKey, Effect};
use crate::local::Local;
use crate::node::Node;
use crate::{DIAL_TIMEOUT, GREETING_TIMEOUT, INBOUND_MAX, LINK_SILENCE, RECONNECT_INTERVAL, UNGREETED_MAX};
use azekura_base::{DeviceId, Endpoint, NodeId, Repeats};
use azekura_replica::{Client, Window, WindowLimits};
use azekura_wire::{Hello, Message, VERSION};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Outbound {
    /// Not connected; dial at this time.
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
#[derive(Debug, Default)]
pub(crate) struct Links {
    out: BTreeMap<Endpoint, Outbound>,
    /// The peers that were dialled, by connection; may name connections that have ended.
    dialled_on: BTreeMap<ConnKey, Endpoint>,
    inbound: BTreeMap<ConnKey, Inbound>,
    dialled: u64,
    dials: BTreeMap<Endpoint, Dials>,
    /// When each peer last answered anything.
    heard: BTreeMap<Endpoint, Duration>,
    /// The latest process of each node, of those that have greeted this shard.
    incarnations: BTreeMap<NodeId, u64>,
    /// What is on its way to each peer and need not be waited for.
    windows: BTreeMap<Endpoint, Window>,
    window_limits: WindowLimits,
    /// Nodes whose process was not there at the last dial.
    refused: BTreeSet<NodeId>,
    ticked: Duration,
    pub(crate) local: Local,
    /// Greetings that were refused, by the peer that sent them.
    refusals: Repeats<Endpoint>,
}

impl Links {
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
        let latest = self.incarnations.entry(hello.from.node).or_default();
        *latest = hello.incarnation.max(*latest);
        self.refused.remove(&hello.from.node);
        for (_, dials) in self.dials.iter_mut().filter(|(peer, _)| peer.node == hello.from.node) {
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

impl Node {
    /// Starts links to shards that are new in the view and ends those to shards that have left it.
    pub(crate) fn follow_links(&mut self) {
        let me = self.identity.endpoint;
        let local = &self.links.local;
        let is_gone = |peer: &&Endpoint| match local.is_sister(me, **peer) {
            Some(is_there) => !is_there,
            None => self.view.address_of(**peer).is_none(),
        };
        let gone: Vec<Endpoint> = self.links.out.keys().filter(is_gone).copied().collect();
        for peer in gone {
            if let Some(Outbound::Greeting(conn, _) | Outbound::Up(conn)) = self.links.out.remove(&peer) {
                self.hang_up(conn);
                self.link_lost(peer);
            }
        }
        let local = &self.links.local;
        let others = self.view.endpoints().filter(|peer| local.is_sister(me, *peer).is_none());
        let peers: Vec<Endpoint> = others.chain(local.all(me)).filter(|peer| *peer != me).collect();
        for peer in peers {
            self.links.out.entry(peer).or_insert(Outbound::Idle(self.now));
        }
    }

    /// Dials what is due and gives up what takes too long.
    pub(crate) fn tick_links(&mut self) {
        let now = self.now;
        let mut late = Vec::new();
        for (peer, state) in &mut self.links.out {
            match *state {
                Outbound::Idle(at) if at <= now => {
                    let effect = match self.links.local.is_sister(self.identity.endpoint, *peer) {
                        Some(_) => Some(Effect::ConnectLocal(*peer)),
                        None => self.view.address_of(*peer).map(|address| Effect::Connect(*peer, address)),
                    };
                    if let Some(effect) = effect {
                        *state = Outbound::Dialling(now + DIAL_TIMEOUT);
                        self.links.dials.entry(*peer).or_default().under_way += 1;
                        self.effects.push_back(effect);
                    }
                }
                // The kernel would go on asking at ever longer intervals.
                Outbound::Dialling(by) if by <= now => *state = Outbound::Idle(now + RECONNECT_INTERVAL),
                Outbound::Greeting(conn, by) if by <= now => {
                    *state = Outbound::Idle(now + RECONNECT_INTERVAL);
                    late.push(conn);
                }
                _ => {}
            }
        }
        if now.saturating_sub(self.links.ticked) > LINK_SILENCE / 3 {
            // This process stood still: what was said meanwhile is yet to be read.
            self.links.heard.values_mut().for_each(|heard| *heard = now);
        }
        self.links.ticked = now;
        // A connection that was cut without a word would swallow requests for minutes.
        let mut cut = Vec::new();
        for (peer, state) in &self.links.out {
            if let Outbound::Up(conn) = state
                && now >= self.links.heard.get(peer).copied().unwrap_or(now) + LINK_SILENCE
            {
                cut.push(*conn);
            }
        }
        for conn in cut {
            self.hang_up(conn);
            self.closed(conn);
        }
        let silent = |state: &Inbound| matches!(state, Inbound::Unknown(by) if *by <= now);
        late.extend(self.links.inbound.iter().filter(|(_, state)| silent(state)).map(|(conn, _)| *conn));
        for conn in late {
            self.links.inbound.remove(&conn);
            self.hang_up(conn);
        }
    }

    /// A dialled connection stands.
    pub fn connected(&mut self, peer: Endpoint, conn: ConnKey) {
        self.links.dial_ends(peer);
        let Some(state) = self.links.out.get_mut(&peer).filter(|s| matches!(s, Outbound::Dialling(_))) else {
            self.hang_up(conn);
            return;
        };
        *state = Outbound::Greeting(conn, self.now + GREETING_TIMEOUT);
        self.links.dialled_on.retain(|_, dialled| *dialled != peer);
        self.links.dialled_on.insert(conn, peer);
        self.links.dialled += 1;
        let hello = self.hello(peer);
        self.effects.push_back(Effect::Send(conn, Message::Hello(hello)));
    }

    /// A peer could not be reached; `refused`: its machine has answered that nobody listens there.
    pub fn connect_failed(&mut self, peer: Endpoint, refused: bool) {
        // A refusal that was long on its way is older than what has greeted meanwhile.
        if self.links.dial_ends(peer) && refused {
            self.links.refused.insert(peer.node);
        }
        // A try that was given up says so late.
        if let Some(state) = self.links.out.get_mut(&peer).filter(|s| matches!(s, Outbound::Dialling(_))) {
            *state = Outbound::Idle(self.now + RECONNECT_INTERVAL);
        }
    }

    /// Limits what may be on its way to each peer that no write waits for: before the first connection.
    pub fn limit_windows(&mut self, limits: WindowLimits) {
        self.links.window_limits = limits;
    }

    /// So many bytes wait in the outbox of a connection that this shard has dialled: to be told when they are many, and
    /// when they are few again. While they are too many, nothing is
    /// begun for copies that nobody waits for (decision 0024).
    pub fn unsent(&mut self, conn: ConnKey, bytes: usize) {
        if let Some(peer) = self.links.dialled_on(conn) {
            self.links.window(peer).set_unsent(bytes);
        }
    }

    /// Bytes on their way to each peer that no write waits for, to look at.
    pub fn windows(&self) -> impl Iterator<Item = (Endpoint, usize)> + '_ {
        self.links.windows.iter().map(|(peer, window)| (*peer, window.bytes()))
    }

    /// Somebody connected.
    pub fn accepted(&mut self, conn: ConnKey) {
        if self.links.inbound.len() >= INBOUND_MAX + UNGREETED_MAX {
            self.hang_up(conn);
            return;
        }
        // Keys count up, and so do the times by which they have to greet.
        let ungreeted = self.links.inbound.iter().filter(|(_, state)| matches!(state, Inbound::Unknown(_)));
        let mut ungreeted = ungreeted.map(|(conn, _)| *conn);
        if let Some(oldest) = ungreeted.next()
            && ungreeted.count() + 1 >= UNGREETED_MAX
        {
            self.links.inbound.remove(&oldest);
            self.hang_up(oldest);
        }
        self.links.inbound.insert(conn, Inbound::Unknown(self.now + GREETING_TIMEOUT));
    }

    /// The peer at the other end of a connection, once that has said who it is.
    #[must_use]
    pub fn other_end(&self, conn: ConnKey) -> Option<Endpoint> {
        let came_from = || match self.links.inbound.get(&conn) {
            Some(Inbound::From(peer, _)) => Some(*peer),
            _ => None,
        };
        self.links.dialled_on(conn).or_else(came_from)
    }

    /// A connection has ended.
    pub fn closed(&mut self, conn: ConnKey) {
        self.links.inbound.remove(&conn);
        self.links.local.forget(conn);
        let Some(peer) = self.links.dialled_on(conn) else { return };
        let was_up = self.links.link(peer).is_some();
        self.links.out.insert(peer, Outbound::Idle(self.now + RECONNECT_INTERVAL));
        if was_up {
            self.link_lost(peer);
        }
    }

    /// A message came.
    pub fn received(&mut self, conn: ConnKey, message: Message) {
        if let Some(peer) = self.links.dialled_on(conn) {
            self.links.heard.insert(peer, self.now);
            match message {
                Message::Welcome(hello) => self.welcomed(peer, conn, hello),
                message if self.links.link(peer) == Some(conn) => self.answered(peer, message),
                _ => self.refuse(conn, "an answer came before the greeting"),
            }
            return;
        }
        match (self.links.inbound.get(&conn).copied(), message) {
            (Some(Inbound::Unknown(_)), Message::Hello(hello)) => self.greeted(conn, hello),
            (Some(Inbound::From(peer, _)), message) => self.deliver(peer, conn.into(), message),
            (Some(Inbound::Unknown(_)), _) => self.refuse(conn, "a request came before the greeting"),
            (None, _) => {} // Closed by this side; the last bytes of an older connection end here.
        }
    }

    fn welcomed(&mut self, peer: Endpoint, conn: ConnKey, hello: Hello) {
        if let Err(why) = self.check_hello(&hello, Some(peer)) {
            self.refuse_greeting(conn, peer, &why);
            return;
        }
        self.links.met(&hello);
        self.links.out.insert(peer, Outbound::Up(conn));
        self.links.heard.insert(peer, self.now);
        self.gateway.trust(peer, self.links.local.has(conn));
        self.gateway.link_up(peer);
        self.beats.forget(peer);
        self.layers.forget(peer);
        // What was sent on an earlier connection is on its way no more.
        let window = Window::new(self.links.window_limits);
        self.links.windows.insert(peer, window.clone());
        for device in self.devices_of(peer) {
            for (key, group) in &mut self.groups {
                group.share_window(device, window.clone());
                group.peer_up(device);
                self.awake.push_back(*key);
            }
        }
    }

    fn greeted(&mut self, conn: ConnKey, hello: Hello) {
        if let Err(why) = self.check_hello(&hello, None) {
            self.refuse_greeting(conn, hello.from, &why);
            return;
        }
        self.links.met(&hello);
        // What a former process of the node has sent ends as well, through whichever of its shards.
        let is_former = |state: &Inbound| match state {
            Inbound::From(peer, life) => {
                *peer == hello.from || peer.node == hello.from.node && *life < hello.incarnation
            }
            Inbound::Unknown(_) => false,
        };
        let older: Vec<ConnKey> =
            self.links.inbound.iter().filter(|(_, state)| is_former(state)).map(|(conn, _)| *conn).collect();
        for old in older {
            self.links.inbound.remove(&old);
            self.hang_up(old);
        }
        self.links.inbound.insert(conn, Inbound::From(hello.from, hello.incarnation));
        let welcome = self.hello(hello.from);
        self.effects.push_back(Effect::Send(conn, Message::Welcome(welcome)));
    }

    fn hello(&self, to: Endpoint) -> Hello {
        let crate::Identity { cluster, endpoint: from, incarnation } = self.identity;
        Hello { version: VERSION, cluster, from, to, incarnation, connection: self.links.dialled }
    }

    fn check_hello(&self, hello: &Hello, expected: Option<Endpoint>) -> Result<(), String> {
        if hello.version != VERSION {
            return Err(format!("it speaks version {} of the protocol, this node {VERSION}", hello.version));
        }
        if hello.cluster != self.identity.cluster {
            return Err(format!("it belongs to another cluster ({:032x})", hello.cluster));
        }
        if hello.to != self.identity.endpoint {
            return Err(format!("it looks for node {}, this is node {}", hello.to, self.identity.endpoint));
        }
        match expected {
            Some(peer) if peer != hello.from => {
                Err(format!("it is node {}, not {peer}: two nodes have exchanged addresses", hello.from))
            }
            _ => Ok(()),
        }
    }

    /// Closes a connection whose peer is not who it should be, or looks for somebody else. It will come again, and
    /// again.
    fn refuse_greeting(&mut self, conn: ConnKey, peer: Endpoint, why: &str) {
        if let Some(more) = self.links.refusals.note(&peer, self.now) {
            self.effects.push_back(Effect::Warn(format!("closing a connection of node {peer}: {why}{more}")));
        }
        self.hang_up(conn);
        self.closed(conn);
    }

    /// Closes a connection whose peer does not keep to the protocol.
    pub(crate) fn refuse(&mut self, conn: ConnKey, why: &str) {
        self.effects.push_back(Effect::Warn(format!("closing a connection: {why}")));
        self.hang_up(conn);
        self.closed(conn);
    }

    fn link_lost(&mut self, peer: Endpoint) {
        self.fencing.link_down(peer);
        self.gateway.link_down(peer);
        for device in self.devices_of(peer) {
            for (key, group) in &mut self.groups {
                group.peer_down(device);
                self.awake.push_back(*key);
            }
        }
    }

    /// True when a process of another node is known to have ended: a later one has greeted, or nobody listens there any
    /// more. Incarnations count up.
    #[must_use]
    pub fn has_ended(&self, node: NodeId, incarnation: u64) -> bool {
        match self.links.incarnations.get(&node) {
            Some(latest) if *latest > incarnation => true,
            Some(latest) => *latest == incarnation && self.links.refused.contains(&node),
            None => false,
        }
    }

    /// The peer that dialled an accepted connection, once it has greeted and while the connection stands.
    pub(crate) fn inbound_from(&self, conn: ConnKey) -> Option<Endpoint> {
        match self.links.inbound.get(&conn)? {
            Inbound::From(peer, _) => Some(*peer),
            Inbound::Unknown(_) => None,
        }
    }

    /// The other shard that a request came from, while its connection stands.
    pub(crate) fn peer_of(&self, client: Client) -> Option<Endpoint> {
        match client {
            Client::Own => None,
            Client::Conn(conn) => self.inbound_from(ConnKey(conn)),
        }
    }

    pub(crate) fn devices_of(&self, peer: Endpoint) -> Vec<DeviceId> {
        self.view.devices.iter().filter(|(_, at)| **at == peer).map(|(device, _)| *device).collect()
    }

    /// Sends a request to a shard, which may be this one. Lost when there is no connection: whoever asked is told of
    /// connections and asks again.
    pub(crate) fn send_to(&mut self, peer: Endpoint, message: Message) {
        if peer == self.identity.endpoint {
            self.local.push_back(message);
        } else if let Some(conn) = self.links.link(peer) {
            self.effects.push_back(Effect::Send(conn, message));
        }
    }

    /// Answers whoever a request came from.
    pub(crate) fn answer(&mut self, client: Client, message: Message) {
        match client {
            Client::Own => self.answered(self.identity.endpoint, message),
            Client::Conn(conn) if self.links.inbound.contains_key(&ConnKey(conn)) => {
                self.effects.push_back(Effect::Send(ConnKey(conn), message));
            }
            Client::Conn(_) => {}
        }
    }
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
