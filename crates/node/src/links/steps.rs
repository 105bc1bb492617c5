//! What happens on connections between shards.

use super::{Inbound, Outbound};
use crate::effect::{ConnKey, Effect};
use crate::node::Node;
use crate::{DIAL_TIMEOUT, GREETING_TIMEOUT, INBOUND_MAX, LINK_SILENCE, UNGREETED_MAX};
use azekura_base::{DeviceId, Endpoint, NodeId, PeerKey, Warning};
use azekura_replica::{Client, Window, WindowLimits};
use azekura_wire::{Hello, Message, VERSION};

impl Node {
    /// Dials what is due and gives up what takes too long.
    pub(crate) fn tick_links(&mut self) {
        self.tick_needs();
        let now = self.now;
        let (mut due, mut failed, mut late) = (Vec::new(), Vec::new(), Vec::new());
        for (peer, state) in &self.mesh.links.out {
            match *state {
                Outbound::Idle(at) if at <= now => due.push(*peer),
                // The kernel would go on asking at ever longer intervals.
                Outbound::Dialling(by) if by <= now => failed.push(*peer),
                Outbound::Greeting(conn, by) if by <= now => {
                    failed.push(*peer);
                    late.push(conn);
                }
                _ => {}
            }
        }
        for peer in due {
            if let Some(effect) = self.way_to(peer) {
                self.mesh.links.out.insert(peer, Outbound::Dialling(now + DIAL_TIMEOUT));
                self.mesh.links.dials.entry(peer).or_default().under_way += 1;
                self.effects.push_back(effect);
            }
        }
        failed.into_iter().for_each(|peer| self.dial_later(peer));
        if now.saturating_sub(self.mesh.links.ticked) > LINK_SILENCE / 3 {
            // This process stood still: what was said meanwhile is yet to be read.
            self.mesh.links.heard.values_mut().for_each(|heard| *heard = now);
        }
        self.mesh.links.ticked = now;
        // A connection that was cut without a word would swallow requests for minutes.
        let mut cut = Vec::new();
        for (peer, state) in &self.mesh.links.out {
            if let Outbound::Up(conn) = state
                && now >= self.mesh.links.heard.get(peer).copied().unwrap_or(now) + LINK_SILENCE
            {
                cut.push(*conn);
            }
        }
        for conn in cut {
            self.hang_up(conn);
            self.closed(conn);
        }
        let silent = |state: &Inbound| matches!(state, Inbound::Unknown(by) if *by <= now);
        late.extend(self.mesh.links.inbound.iter().filter(|(_, state)| silent(state)).map(|(conn, _)| *conn));
        for conn in late {
            self.mesh.links.inbound.remove(&conn);
            self.hang_up(conn);
        }
    }

    /// A dialled connection stands; at its other end is who has this key, where the transport proves one.
    pub fn connected(&mut self, peer: Endpoint, conn: ConnKey, key: Option<PeerKey>) {
        self.mesh.links.dial_ends(peer);
        let Some(state) = self.mesh.links.out.get_mut(&peer).filter(|s| matches!(s, Outbound::Dialling(_))) else {
            self.hang_up(conn);
            return;
        };
        *state = Outbound::Greeting(conn, self.now + GREETING_TIMEOUT);
        self.mesh.links.proofs.note(conn, key);
        self.mesh.links.dialled_on.retain(|_, dialled| *dialled != peer);
        self.mesh.links.dialled_on.insert(conn, peer);
        self.mesh.links.dialled += 1;
        let hello = self.hello(peer);
        self.effects.push_back(Effect::Send(conn, Message::Hello(hello)));
    }

    /// A peer could not be reached; `refused`: its machine has answered that nobody listens there.
    pub fn connect_failed(&mut self, peer: Endpoint, refused: bool) {
        // A refusal that was long on its way is older than what has greeted meanwhile.
        if self.mesh.links.dial_ends(peer) && refused {
            self.mesh.links.refused.insert(peer.node);
        }
        // A try that was given up says so late.
        if matches!(self.mesh.links.out.get(&peer), Some(Outbound::Dialling(_))) {
            self.dial_later(peer);
        }
    }

    /// Limits what may be on its way to each peer that no write waits for: before the first connection.
    pub fn limit_windows(&mut self, limits: WindowLimits) {
        self.mesh.links.window_limits = limits;
    }

    /// So many bytes wait in the outbox of a connection that this shard has dialled: to be told when they are many, and
    /// when they are few again. While they are too many, nothing is
    /// begun for copies that nobody waits for (decision 0024).
    pub fn unsent(&mut self, conn: ConnKey, bytes: usize) {
        if let Some(peer) = self.mesh.links.dialled_on(conn) {
            self.mesh.links.window(peer).set_unsent(bytes);
        }
    }

    /// Bytes on their way to each peer that no write waits for, to look at.
    pub fn windows(&self) -> impl Iterator<Item = (Endpoint, usize)> + '_ {
        self.mesh.links.windows.iter().map(|(peer, window)| (*peer, window.bytes()))
    }

    /// Somebody connected, who has this key, where the transport proves one.
    pub fn accepted(&mut self, conn: ConnKey, key: Option<PeerKey>) {
        if self.mesh.links.inbound.len() >= INBOUND_MAX + UNGREETED_MAX {
            self.hang_up(conn);
            return;
        }
        // Keys count up, and so do the times by which they have to greet.
        let ungreeted = self.mesh.links.inbound.iter().filter(|(_, state)| matches!(state, Inbound::Unknown(_)));
        let mut ungreeted = ungreeted.map(|(conn, _)| *conn);
        if let Some(oldest) = ungreeted.next()
            && ungreeted.count() + 1 >= UNGREETED_MAX
        {
            self.mesh.links.inbound.remove(&oldest);
            self.hang_up(oldest);
        }
        self.mesh.links.proofs.note(conn, key);
        self.mesh.links.inbound.insert(conn, Inbound::Unknown(self.now + GREETING_TIMEOUT));
    }

    /// The peer at the other end of a connection, once that has said who it is.
    #[must_use]
    pub fn other_end(&self, conn: ConnKey) -> Option<Endpoint> {
        let came_from = || match self.mesh.links.inbound.get(&conn) {
            Some(Inbound::From(peer, _)) => Some(*peer),
            _ => None,
        };
        self.mesh.links.dialled_on(conn).or_else(came_from)
    }

    /// A connection has ended.
    pub fn closed(&mut self, conn: ConnKey) {
        self.mesh.links.inbound.remove(&conn);
        self.mesh.links.local.forget(conn);
        self.mesh.links.proofs.forget(conn);
        let Some(peer) = self.mesh.links.dialled_on(conn) else { return };
        let was_up = self.mesh.links.link(peer).is_some();
        self.dial_later(peer);
        if was_up {
            self.link_lost(peer);
        }
    }

    /// A message came.
    pub fn received(&mut self, conn: ConnKey, message: Message) {
        if let Some(peer) = self.mesh.links.dialled_on(conn) {
            self.mesh.links.heard.insert(peer, self.now);
            match message {
                Message::Welcome(hello) => self.welcomed(peer, conn, hello),
                message if self.mesh.links.link(peer) == Some(conn) => self.answered(peer, message),
                _ => self.refuse(conn, "an answer came before the greeting"),
            }
            return;
        }
        match (self.mesh.links.inbound.get(&conn).copied(), message) {
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
        if let Err(why) = self.check_key(conn, peer.node) {
            self.refuse_key(conn, peer, &why);
            return;
        }
        self.mesh.links.met(&hello);
        self.mesh.links.out.insert(peer, Outbound::Up(conn));
        self.mesh.links.redials.forget(peer);
        self.fencing.link_up(self.now);
        self.mesh.links.heard.insert(peer, self.now);
        self.gateway.trust(peer, self.mesh.links.local.has(conn));
        self.gateway.link_up(peer);
        self.mesh.beats.forget(peer);
        self.directory.layers.forget(peer);
        // What was sent on an earlier connection is on its way no more.
        let window = Window::new(self.mesh.links.window_limits);
        self.mesh.links.windows.insert(peer, window.clone());
        for device in self.devices_of(peer) {
            for (key, group) in &mut self.copies.groups {
                group.share_window(device, window.clone());
                group.peer_up(device);
                self.copies.awake.push_back(*key);
            }
        }
    }

    fn greeted(&mut self, conn: ConnKey, hello: Hello) {
        if let Err(why) = self.check_hello(&hello, None) {
            self.refuse_greeting(conn, hello.from, &why);
            return;
        }
        if let Err(why) = self.check_key(conn, hello.from.node) {
            self.refuse_key(conn, hello.from, &why);
            return;
        }
        self.mesh.links.met(&hello);
        // What a former process of the node has sent ends as well, through whichever of its shards.
        let is_former = |state: &Inbound| match state {
            Inbound::From(peer, life) => {
                *peer == hello.from || peer.node == hello.from.node && *life < hello.incarnation
            }
            Inbound::Unknown(_) => false,
        };
        let older: Vec<ConnKey> =
            self.mesh.links.inbound.iter().filter(|(_, state)| is_former(state)).map(|(conn, _)| *conn).collect();
        for old in older {
            self.mesh.links.inbound.remove(&old);
            self.hang_up(old);
        }
        self.mesh.links.inbound.insert(conn, Inbound::From(hello.from, hello.incarnation));
        // It is there: the next try need not be later than the first would be. Nor at once: all peers of a process that
        // starts hear of it together.
        if let Some(Outbound::Idle(at)) = self.mesh.links.out.get(&hello.from).copied() {
            self.mesh.links.redials.forget(hello.from);
            let soon = self.now + self.mesh.links.redials.pause(hello.from);
            self.mesh.links.out.insert(hello.from, Outbound::Idle(at.min(soon)));
        }
        let welcome = self.hello(hello.from);
        self.effects.push_back(Effect::Send(conn, Message::Welcome(welcome)));
    }

    fn hello(&self, to: Endpoint) -> Hello {
        let crate::Identity { cluster, endpoint: from, incarnation } = self.identity;
        Hello { version: VERSION, cluster, from, to, incarnation, connection: self.mesh.links.dialled }
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
    pub(in crate::links) fn refuse_greeting(&mut self, conn: ConnKey, peer: Endpoint, why: &str) {
        if let Some(more) = self.mesh.links.refusals.note(&peer, self.now) {
            self.warn(Warning::new(format!("closing a connection of node {peer}: {why}{more}")).peer(peer));
        }
        self.hang_up(conn);
        self.closed(conn);
    }

    /// Closes a connection whose peer does not keep to the protocol.
    pub(crate) fn refuse(&mut self, conn: ConnKey, why: &str) {
        let warning = Warning::new(format!("closing a connection: {why}"));
        self.warn(match self.other_end(conn) {
            Some(peer) => warning.peer(peer),
            None => warning,
        });
        self.hang_up(conn);
        self.closed(conn);
    }

    pub(crate) fn link_lost(&mut self, peer: Endpoint) {
        self.fencing.link_down(peer);
        self.gateway.link_down(peer);
        for device in self.devices_of(peer) {
            for (key, group) in &mut self.copies.groups {
                group.peer_down(device);
                self.copies.awake.push_back(*key);
            }
        }
    }

    /// True when a process is known to have ended: a later one has greeted, or nobody listens there any more.
    /// Incarnations count up. False says nothing where there is no connection: see [`Node::ask_about`].
    #[must_use]
    pub fn has_ended(&self, node: NodeId, incarnation: u64) -> bool {
        if node == self.identity.endpoint.node {
            return incarnation < self.identity.incarnation;
        }
        match self.mesh.links.incarnations.get(&node) {
            Some(latest) if *latest > incarnation => true,
            Some(latest) => *latest == incarnation && self.mesh.links.refused.contains(&node),
            None => false,
        }
    }

    /// The peer that dialled an accepted connection, once it has greeted and while the connection stands.
    pub(crate) fn inbound_from(&self, conn: ConnKey) -> Option<Endpoint> {
        match self.mesh.links.inbound.get(&conn)? {
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
        self.directory.view.devices.iter().filter(|(_, at)| **at == peer).map(|(device, _)| *device).collect()
    }

    /// Sends a request to a shard, which may be this one. Lost when there is no connection: whoever asked is told of
    /// connections and asks again.
    pub(crate) fn send_to(&mut self, peer: Endpoint, message: Message) {
        if peer == self.identity.endpoint {
            self.mesh.to_self.push_back(message);
        } else if let Some(conn) = self.mesh.links.link(peer) {
            self.effects.push_back(Effect::Send(conn, message));
        }
    }

    /// Answers whoever a request came from.
    pub(crate) fn answer(&mut self, client: Client, message: Message) {
        match client {
            Client::Own => self.answered(self.identity.endpoint, message),
            Client::Conn(conn) if self.mesh.links.inbound.contains_key(&ConnKey(conn)) => {
                self.effects.push_back(Effect::Send(ConnKey(conn), message));
            }
            Client::Conn(_) => {}
        }
    }
}
