//! Connections between nodes: dialling, greeting, and which of two connections counts.
//!
//! A node dials one connection to every other node and sends its requests there; answers come back on it. A node that
//! accepts a second connection from the same peer drops the first one before it reads from the second, so nothing
//! that was sent on the first can arrive after what is sent on the second.

use crate::effect::{ConnKey, Effect};
use crate::node::Node;
use crate::{DIAL_TIMEOUT, GREETING_TIMEOUT, INBOUND_MAX, LINK_SILENCE, RECONNECT_INTERVAL, UNGREETED_MAX};
use azekura_base::{NodeId, Repeats};
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
    From(NodeId),
}

/// All connections of a node.
#[derive(Debug, Default)]
pub(crate) struct Links {
    out: BTreeMap<NodeId, Outbound>,
    /// The nodes that were dialled, by connection; may name connections that have ended.
    dialled_on: BTreeMap<ConnKey, NodeId>,
    inbound: BTreeMap<ConnKey, Inbound>,
    dialled: u64,
    /// When each node last answered anything.
    heard: BTreeMap<NodeId, Duration>,
    /// The latest process of each node that has greeted this one.
    incarnations: BTreeMap<NodeId, u64>,
    /// What is on its way to each node and need not be waited for.
    windows: BTreeMap<NodeId, Window>,
    window_limits: WindowLimits,
    /// Nodes whose process was not there at the last dial.
    refused: BTreeSet<NodeId>,
    ticked: Duration,
    /// Greetings that were refused, by the node that sent them.
    refusals: Repeats<NodeId>,
}

impl Links {
    pub(crate) fn up_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.out.iter().filter(|(_, state)| matches!(state, Outbound::Up(_))).map(|(node, _)| *node)
    }

    pub(crate) fn next_dial(&self) -> Option<Duration> {
        let out = self.out.values().filter_map(|state| match state {
            Outbound::Idle(at) | Outbound::Dialling(at) | Outbound::Greeting(_, at) => Some(*at),
            Outbound::Up(_) => None,
        });
        let inbound = self.inbound.values().filter_map(|state| match state {
            Inbound::Unknown(at) => Some(*at),
            Inbound::From(_) => None,
        });
        out.chain(inbound).min()
    }

    /// A process of a node has greeted.
    fn met(&mut self, hello: &Hello) {
        let latest = self.incarnations.entry(hello.node).or_default();
        *latest = hello.incarnation.max(*latest);
        self.refused.remove(&hello.node);
    }

    /// The window of the connection to a node.
    pub(crate) fn window(&mut self, node: NodeId) -> Window {
        self.windows.entry(node).or_insert_with(|| Window::new(self.window_limits)).clone()
    }

    /// A connection to the node stands.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.link(node).is_some()
    }

    fn link(&self, node: NodeId) -> Option<ConnKey> {
        match self.out.get(&node)? {
            Outbound::Up(conn) => Some(*conn),
            _ => None,
        }
    }

    /// The node that was dialled on `conn`.
    fn dialled_on(&self, conn: ConnKey) -> Option<NodeId> {
        let node = *self.dialled_on.get(&conn)?;
        let current = matches!(self.out.get(&node)?, Outbound::Greeting(c, _) | Outbound::Up(c) if *c == conn);
        current.then_some(node)
    }
}

impl Node {
    /// Starts links to nodes that are new in the view and ends those to nodes that have left it.
    pub(crate) fn follow_links(&mut self) {
        let me = self.identity.node;
        let gone: Vec<NodeId> = self.links.out.keys().filter(|n| !self.view.nodes.contains_key(n)).copied().collect();
        for node in gone {
            if let Some(Outbound::Greeting(conn, _) | Outbound::Up(conn)) = self.links.out.remove(&node) {
                self.effects.push_back(Effect::Close(conn));
                self.link_lost(node);
            }
        }
        for node in self.view.nodes.keys().filter(|node| **node != me) {
            self.links.out.entry(*node).or_insert(Outbound::Idle(self.now));
        }
    }

    /// Dials what is due and gives up what takes too long.
    pub(crate) fn tick_links(&mut self) {
        let now = self.now;
        let mut late = Vec::new();
        for (node, state) in &mut self.links.out {
            match *state {
                Outbound::Idle(at) if at <= now => {
                    if let Some(address) = self.view.nodes.get(node) {
                        *state = Outbound::Dialling(now + DIAL_TIMEOUT);
                        self.effects.push_back(Effect::Connect(*node, *address));
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
        for (node, state) in &self.links.out {
            if let Outbound::Up(conn) = state
                && now >= self.links.heard.get(node).copied().unwrap_or(now) + LINK_SILENCE
            {
                cut.push(*conn);
            }
        }
        for conn in cut {
            self.effects.push_back(Effect::Close(conn));
            self.closed(conn);
        }
        let silent = |state: &Inbound| matches!(state, Inbound::Unknown(by) if *by <= now);
        late.extend(self.links.inbound.iter().filter(|(_, state)| silent(state)).map(|(conn, _)| *conn));
        for conn in late {
            self.links.inbound.remove(&conn);
            self.effects.push_back(Effect::Close(conn));
        }
    }

    /// A dialled connection stands.
    pub fn connected(&mut self, node: NodeId, conn: ConnKey) {
        let Some(state) = self.links.out.get_mut(&node).filter(|s| matches!(s, Outbound::Dialling(_))) else {
            self.effects.push_back(Effect::Close(conn));
            return;
        };
        *state = Outbound::Greeting(conn, self.now + GREETING_TIMEOUT);
        self.links.dialled_on.retain(|_, dialled| *dialled != node);
        self.links.dialled_on.insert(conn, node);
        self.links.dialled += 1;
        let hello = self.hello(node);
        self.effects.push_back(Effect::Send(conn, Message::Hello(hello)));
    }

    /// A node could not be reached; `refused`: its machine has answered that nobody listens there.
    pub fn connect_failed(&mut self, node: NodeId, refused: bool) {
        if refused {
            self.links.refused.insert(node);
        }
        // A try that was given up says so late.
        if let Some(state) = self.links.out.get_mut(&node).filter(|s| matches!(s, Outbound::Dialling(_))) {
            *state = Outbound::Idle(self.now + RECONNECT_INTERVAL);
        }
    }

    /// Limits what may be on its way to each node that no write waits for: before the first connection.
    pub fn limit_windows(&mut self, limits: WindowLimits) {
        self.links.window_limits = limits;
    }

    /// So many bytes wait in the outbox of a connection that this node has dialled: to be told when they are many, and
    /// when they are few again. Nothing is begun for copies that nobody waits for while they are too many.
    pub fn unsent(&mut self, conn: ConnKey, bytes: usize) {
        if let Some(node) = self.links.dialled_on(conn) {
            self.links.window(node).set_unsent(bytes);
        }
    }

    /// Bytes on their way to each node that no write waits for, to look at.
    pub fn windows(&self) -> impl Iterator<Item = (NodeId, usize)> + '_ {
        self.links.windows.iter().map(|(node, window)| (*node, window.bytes()))
    }

    /// Somebody connected.
    pub fn accepted(&mut self, conn: ConnKey) {
        if self.links.inbound.len() >= INBOUND_MAX + UNGREETED_MAX {
            self.effects.push_back(Effect::Close(conn));
            return;
        }
        // Keys count up, and so do the times by which they have to greet.
        let ungreeted = self.links.inbound.iter().filter(|(_, state)| matches!(state, Inbound::Unknown(_)));
        let mut ungreeted = ungreeted.map(|(conn, _)| *conn);
        if let Some(oldest) = ungreeted.next()
            && ungreeted.count() + 1 >= UNGREETED_MAX
        {
            self.links.inbound.remove(&oldest);
            self.effects.push_back(Effect::Close(oldest));
        }
        self.links.inbound.insert(conn, Inbound::Unknown(self.now + GREETING_TIMEOUT));
    }

    /// The node at the other end of a connection, once that has said who it is.
    #[must_use]
    pub fn other_end(&self, conn: ConnKey) -> Option<NodeId> {
        let came_from = || match self.links.inbound.get(&conn) {
            Some(Inbound::From(node)) => Some(*node),
            _ => None,
        };
        self.links.dialled_on(conn).or_else(came_from)
    }

    /// A connection has ended.
    pub fn closed(&mut self, conn: ConnKey) {
        self.links.inbound.remove(&conn);
        let Some(node) = self.links.dialled_on(conn) else { return };
        let was_up = self.links.link(node).is_some();
        self.links.out.insert(node, Outbound::Idle(self.now + RECONNECT_INTERVAL));
        if was_up {
            self.link_lost(node);
        }
    }

    /// A message came.
    pub fn received(&mut self, conn: ConnKey, message: Message) {
        if let Some(node) = self.links.dialled_on(conn) {
            self.links.heard.insert(node, self.now);
            match message {
                Message::Welcome(hello) => self.welcomed(node, conn, hello),
                message if self.links.link(node) == Some(conn) => self.answered(node, message),
                _ => self.refuse(conn, "an answer came before the greeting"),
            }
            return;
        }
        match (self.links.inbound.get(&conn).copied(), message) {
            (Some(Inbound::Unknown(_)), Message::Hello(hello)) => self.greeted(conn, hello),
            (Some(Inbound::From(node)), message) => self.deliver(node, conn.into(), message),
            (Some(Inbound::Unknown(_)), _) => self.refuse(conn, "a request came before the greeting"),
            (None, _) => {} // Closed by this side; the last bytes of an older connection end here.
        }
    }

    fn welcomed(&mut self, node: NodeId, conn: ConnKey, hello: Hello) {
        if let Err(why) = self.check_hello(&hello, Some(node)) {
            self.refuse_greeting(conn, node, &why);
            return;
        }
        self.links.met(&hello);
        self.links.out.insert(node, Outbound::Up(conn));
        self.links.heard.insert(node, self.now);
        self.gateway.link_up(node);
        self.beats.forget(node);
        self.layers.forget(node);
        // What was sent on an earlier connection is on its way no more.
        let window = Window::new(self.links.window_limits);
        self.links.windows.insert(node, window.clone());
        for device in self.devices_of(node) {
            for (key, group) in &mut self.groups {
                group.share_window(device, window.clone());
                group.peer_up(device);
                self.awake.push_back(*key);
            }
        }
    }

    fn greeted(&mut self, conn: ConnKey, hello: Hello) {
        if let Err(why) = self.check_hello(&hello, None) {
            self.refuse_greeting(conn, hello.node, &why);
            return;
        }
        self.links.met(&hello);
        let from_same = |state: &Inbound| matches!(state, Inbound::From(node) if *node == hello.node);
        let older: Vec<ConnKey> =
            self.links.inbound.iter().filter(|(_, state)| from_same(state)).map(|(conn, _)| *conn).collect();
        for old in older {
            self.links.inbound.remove(&old);
            self.effects.push_back(Effect::Close(old));
        }
        self.links.inbound.insert(conn, Inbound::From(hello.node));
        let welcome = self.hello(hello.node);
        self.effects.push_back(Effect::Send(conn, Message::Welcome(welcome)));
    }

    fn hello(&self, to: NodeId) -> Hello {
        let crate::Identity { cluster, node, incarnation } = self.identity;
        Hello { version: VERSION, cluster, node, to, incarnation, connection: self.links.dialled }
    }

    fn check_hello(&self, hello: &Hello, expected: Option<NodeId>) -> Result<(), String> {
        if hello.version != VERSION {
            return Err(format!("it speaks version {} of the protocol, this node {VERSION}", hello.version));
        }
        if hello.cluster != self.identity.cluster {
            return Err(format!("it belongs to another cluster ({:032x})", hello.cluster));
        }
        if hello.to != self.identity.node {
            return Err(format!("it looks for node {}, this is node {}", hello.to, self.identity.node));
        }
        match expected {
            Some(node) if node != hello.node => {
                Err(format!("it is node {}, not {node}: two nodes have exchanged addresses", hello.node))
            }
            _ => Ok(()),
        }
    }

    /// Closes a connection whose peer is not who it should be, or looks for somebody else. It will come again, and
    /// again.
    fn refuse_greeting(&mut self, conn: ConnKey, node: NodeId, why: &str) {
        if let Some(more) = self.links.refusals.note(&node, self.now) {
            self.effects.push_back(Effect::Warn(format!("closing a connection of node {node}: {why}{more}")));
        }
        self.effects.push_back(Effect::Close(conn));
        self.closed(conn);
    }

    /// Closes a connection whose peer does not keep to the protocol.
    pub(crate) fn refuse(&mut self, conn: ConnKey, why: &str) {
        self.effects.push_back(Effect::Warn(format!("closing a connection: {why}")));
        self.effects.push_back(Effect::Close(conn));
        self.closed(conn);
    }

    fn link_lost(&mut self, node: NodeId) {
        self.fencing.link_down(node);
        self.gateway.link_down(node);
        for device in self.devices_of(node) {
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

    /// The node that dialled an accepted connection, once it has greeted and while the connection stands.
    pub(crate) fn inbound_from(&self, conn: ConnKey) -> Option<NodeId> {
        match self.links.inbound.get(&conn)? {
            Inbound::From(node) => Some(*node),
            Inbound::Unknown(_) => None,
        }
    }

    /// The other node that a request came from, while its connection stands.
    pub(crate) fn node_of(&self, client: Client) -> Option<NodeId> {
        match client {
            Client::Own => None,
            Client::Conn(conn) => self.inbound_from(ConnKey(conn)),
        }
    }

    pub(crate) fn devices_of(&self, node: NodeId) -> Vec<azekura_base::DeviceId> {
        self.view.devices.iter().filter(|(_, n)| **n == node).map(|(device, _)| *device).collect()
    }

    /// Sends a request to a node, which may be this one. Lost when there is no connection: whoever asked is told of
    /// connections and asks again.
    pub(crate) fn send_to_node(&mut self, node: NodeId, message: Message) {
        if node == self.identity.node {
            self.local.push_back(message);
        } else if let Some(conn) = self.links.link(node) {
            self.effects.push_back(Effect::Send(conn, message));
        }
    }

    /// Answers whoever a request came from.
    pub(crate) fn answer(&mut self, client: Client, message: Message) {
        match client {
            Client::Own => self.answered(self.identity.node, message),
            Client::Conn(conn) if self.links.inbound.contains_key(&ConnKey(conn)) => {
                self.effects.push_back(Effect::Send(ConnKey(conn), message));
            }
            Client::Conn(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;

    fn node() -> Node {
        Node::new(Identity { cluster: 1, node: NodeId(9), incarnation: 1 }, Duration::ZERO)
    }

    fn effects(node: &mut Node) -> (Vec<String>, Vec<ConnKey>) {
        let (mut warnings, mut closed) = (Vec::new(), Vec::new());
        while let Some(effect) = node.next_effect() {
            match effect {
                Effect::Warn(what) => warnings.push(what),
                Effect::Close(conn) => closed.push(conn),
                effect => panic!("unexpected {effect:?}"),
            }
        }
        (warnings, closed)
    }

    #[test]
    fn who_looks_for_another_node_again_and_again_is_told_of_once_a_minute() {
        let mut node = node();
        let hello =
            Hello { version: VERSION, cluster: 1, node: NodeId(5), to: NodeId(6), incarnation: 1, connection: 1 };
        for n in 1..=601 {
            node.advance(Duration::from_millis(200) * n);
            node.accepted(ConnKey(u64::from(n)));
            node.received(ConnKey(u64::from(n)), Message::Hello(hello));
        }
        let (warnings, closed) = effects(&mut node);
        assert_eq!(closed.len(), 601, "each is closed");
        let why = "closing a connection of node 5: it looks for node 6, this is node 9";
        let more = format!("{why} (299 times more in the last minute)");
        assert_eq!(warnings, [why, &more, &more]);
    }

    #[test]
    fn connections_that_do_not_greet_leave_room_for_nodes() {
        let mut node = node();
        let hello = |from| Hello {
            version: VERSION,
            cluster: 1,
            node: NodeId(from),
            to: NodeId(9),
            incarnation: 1,
            connection: 1,
        };
        node.accepted(ConnKey(1));
        node.received(ConnKey(1), Message::Hello(hello(1)));
        for silent in 2..=10_000 {
            node.accepted(ConnKey(silent));
        }
        node.accepted(ConnKey(10_001));
        node.received(ConnKey(10_001), Message::Hello(hello(2)));
        assert_eq!(node.inbound_from(ConnKey(1)), Some(NodeId(1)));
        assert_eq!(node.inbound_from(ConnKey(10_001)), Some(NodeId(2)));
        assert_eq!(node.links.inbound.len(), UNGREETED_MAX + 1);
    }
}
