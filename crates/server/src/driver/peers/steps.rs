//! What happens on connections with other nodes.

use super::Dialled;
use super::conn::{Handed, PeerConn, Stage, UNGREETED_BYTES_MAX};
use super::floods::{About, STRANGE_HANDSHAKES_MAX};
use crate::driver::commands::Command;
use crate::driver::dataplane::DataPlane;
use crate::driver::messages::Handle;
use crate::driver::peers::UNSENT_REPORT_BYTES;
use crate::driver::stream::Conn;
use azekura_base::Warning;
use azekura_node::ConnKey;
use azekura_reactor::{Close, ConnId, PeerAddress};
use azekura_transport::{Channel, ChannelError, Opened};
use azekura_wire::{Hello, Message, VERSION};
use std::fmt::Display;
use std::net::IpAddr;

impl DataPlane {
    fn add_peer(&mut self, conn: ConnId, make: impl FnOnce(ConnKey) -> PeerConn) -> ConnKey {
        let key = self.peers.add(conn);
        // Heartbeats are not to wait for data in the kernel.
        self.reactor.send_just_in_time(conn);
        let _ = self.reactor.install(conn, Conn::Peer(Box::new(make(key))));
        key
    }

    /// Somebody has connected.
    pub(in crate::driver) fn peer_accepted(&mut self, conn: ConnId, from: PeerAddress) {
        let from = match from {
            PeerAddress::Tcp(address) => Some(address.ip().to_canonical()),
            PeerAddress::Unix => None,
        };
        let key = self.add_peer(conn, |key| PeerConn::accepted(key, from));
        self.node.accepted(key, None);
    }

    /// A shard that was dialled has taken the connection.
    pub(in crate::driver) fn peer_connected(&mut self, conn: ConnId, Dialled { to, tls }: Dialled) {
        let channel = if tls { self.peers.credentials.connect() } else { Ok(Channel::plain()) };
        match channel {
            Ok(channel) => {
                let key = self.add_peer(conn, |key| PeerConn::dialled(key, channel));
                self.node.connected(to, key, None);
            }
            Err(error) => {
                self.tell(About::Peer(to), &format!("can't connect to node {to}: {error}"));
                self.reactor.close(conn, Close::AtOnce);
                self.node.connect_failed(to, false);
            }
        }
    }

    /// Something has come from another node.
    pub(in crate::driver) fn read_peer(&mut self, conn: ConnId) {
        loop {
            let Some(Conn::Peer(peer)) = self.reactor.stream(conn) else { return };
            if matches!(peer.stage, Stage::Silent | Stage::Ended) && !self.begins(conn) {
                return;
            }
            let Some(Conn::Peer(peer)) = self.reactor.stream(conn) else { return };
            let opened = peer.open();
            if peer.stage == Stage::ShakingHands
                && let Some(proved) = peer.channel.peer()
            {
                match peer.is_dialled {
                    true => peer.greeted(),
                    false => peer.stage = Stage::Ungreeted,
                }
                let key = peer.key;
                self.node.proved(key, proved);
            }
            if !self.read_messages(conn) {
                return;
            }
            match opened {
                Ok(Opened::Part) => {}
                Ok(Opened::All) => break,
                Ok(Opened::Ended) => return self.end_peer(conn),
                Err(error) => return self.refuse_tls(conn, &error),
            }
        }
        self.touched.insert(conn);
    }

    /// The first byte of an accepted connection says what is spoken on it. False: there is nothing to read.
    fn begins(&mut self, conn: ConnId) -> bool {
        let Some(Conn::Peer(peer)) = self.reactor.stream(conn) else { return false };
        let speaks_tls = peer.speaks_tls().filter(|_| peer.stage == Stage::Silent);
        let Some(speaks_tls) = speaks_tls else { return false };
        if !speaks_tls {
            peer.stage = Stage::Ungreeted;
            return true;
        }
        let from = peer.from;
        if !self.peers.floods.admits(from, self.time) {
            let what = format!(
                "refusing handshakes: there are more than {STRANGE_HANDSHAKES_MAX} a second from addresses that are no \
                 node's; one is from {}",
                shown(from)
            );
            self.tell(About::Flood, &what);
            self.end_peer(conn);
            return false;
        }
        peer.stage = Stage::ShakingHands;
        match self.peers.credentials.accept_begun(&mut peer.inbox) {
            Ok(channel) => peer.channel = channel,
            Err(error) => {
                self.refuse_tls(conn, &error);
                return false;
            }
        }
        true
    }

    /// Hands the node what has come. False when the connection is not this shard's any more.
    fn read_messages(&mut self, conn: ConnId) -> bool {
        loop {
            let Some(Conn::Peer(peer)) = self.reactor.stream(conn) else { return false };
            let key = peer.key;
            match peer.decoder.next(&mut peer.inbox) {
                Ok(Some(Message::Hello(hello))) => {
                    peer.greeted();
                    if let Some(shard) = self.shard_of(key, &hello) {
                        self.hand_over(conn, key, hello, &shard);
                        return false;
                    }
                    self.node.received(key, Message::Hello(hello));
                }
                Ok(Some(message)) => self.node.received(key, message),
                Ok(None) if peer.is_too_much() => {
                    let most = UNGREETED_BYTES_MAX >> 10;
                    self.refuse_peer(conn, &format!("a greeting is not longer than {most} KiB"));
                    self.end_peer(conn);
                    return false;
                }
                Ok(None) => return true,
                Err(error) => {
                    self.refuse_peer(conn, &error);
                    self.end_peer(conn);
                    return false;
                }
            }
        }
    }

    /// A peer is cut off whose TLS is wrong. Its side is told why.
    fn refuse_tls(&mut self, conn: ConnId, error: &ChannelError) {
        self.refuse_peer(conn, error);
        let Some(Conn::Peer(peer)) = self.reactor.stream(conn) else { return };
        peer.stage = Stage::Ended;
        let key = peer.key;
        self.peers.remove(key);
        self.node.closed(key);
        self.reactor.close(conn, Close::AfterDrain);
    }

    fn end_peer(&mut self, conn: ConnId) {
        if let Some(Conn::Peer(peer)) = self.reactor.stream(conn) {
            peer.stage = Stage::Ended;
        }
        self.reactor.close(conn, Close::AtOnce);
    }

    /// Tells why a connection is closed.
    fn refuse_peer(&mut self, conn: ConnId, why: &impl Display) {
        let Some(Conn::Peer(peer)) = self.reactor.stream(conn) else { return };
        let (key, from) = (peer.key, peer.from);
        let (about, who) = self.other_end(key, from);
        self.tell(about, &format!("closing a connection with {who}: {why}"));
    }

    /// Who is at the other end of a connection, as far as he has said so, for people.
    pub(in crate::driver) fn other_end(&self, key: ConnKey, from: Option<IpAddr>) -> (About, String) {
        match self.node.other_end(key) {
            Some(peer) => (About::Peer(peer), format!("node {peer}")),
            None => (About::Address(from), format!("{}, who had not greeted yet", shown(from))),
        }
    }

    pub(in crate::driver) fn tell(&mut self, about: About, what: &str) {
        if let Some(line) = self.peers.floods.line(about, what, self.time) {
            let warning = Warning::new(line);
            self.warn(match about {
                About::Peer(peer) => warning.peer(peer),
                About::Address(_) | About::Flood => warning,
            });
        }
    }

    /// The other shard of this node that a connection which begins with this greeting is for. Whatever else is wrong
    /// with it, that one finds out.
    fn shard_of(&self, key: ConnKey, hello: &Hello) -> Option<Handle> {
        let me = self.node.identity().endpoint;
        let is_first = self.node.other_end(key).is_none();
        let is_for_another = hello.version == VERSION && hello.to.node == me.node && hello.to.shard != me.shard;
        (is_first && is_for_another).then(|| self.shards.of(hello.to.shard).cloned()).flatten()
    }

    /// Hands a connection over to another shard, with its channel. Whoever has dialled waits for the answer to his
    /// greeting.
    fn hand_over(&mut self, conn: ConnId, key: ConnKey, hello: Hello, shard: &Handle) {
        self.peers.remove(key);
        self.touched.remove(&conn);
        self.node.closed(key);
        let place = self.peers.place(hello.to.shard);
        let Some(Conn::Peer(peer)) = self.reactor.stream(conn) else { return };
        let (from, waits) = (peer.from, peer.inbox.available().is_empty());
        let channel = std::mem::replace(&mut peer.channel, Channel::plain());
        match place.filter(|_| waits).and_then(|place| Some((self.reactor.release(conn)?, place))) {
            Some((released, place)) => {
                shard.send(Command::TakePeer(Box::new(Handed { released, from, channel, hello, place })));
            }
            None => self.end_peer(conn),
        }
    }

    /// Another shard has accepted a connection that is for this one.
    pub(in crate::driver) fn take_peer(&mut self, handed: Handed) {
        let Handed { released, from, channel, hello, place } = handed;
        drop(place);
        let Some(conn) = self.reactor.adopt(released) else { return };
        let proved = channel.peer();
        let key = self.add_peer(conn, |key| PeerConn::handed(key, from, channel));
        self.node.accepted(key, proved);
        self.node.received(key, Message::Hello(hello));
        // What has come behind the greeting is in the channel.
        self.read_peer(conn);
    }

    /// Encrypts what is to be sent to another node, and tells this one how much waits, when that is much or has been.
    /// False: the connection is being closed.
    pub(in crate::driver) fn send_to_peer(&mut self, conn: ConnId) -> bool {
        let unsent = self.reactor.unsent_bytes(conn);
        let Some(Conn::Peer(peer)) = self.reactor.stream(conn) else { return false };
        if peer.stage == Stage::Ended {
            return false;
        }
        let unsent = match peer.seal(unsent) {
            Ok(unsent) => unsent,
            Err(error) => {
                self.refuse_tls(conn, &error);
                return false;
            }
        };
        if unsent.max(peer.unsent_reported) >= UNSENT_REPORT_BYTES {
            peer.unsent_reported = unsent;
            let key = peer.key;
            self.node.unsent(key, unsent);
        }
        true
    }
}

fn shown(from: Option<IpAddr>) -> String {
    from.map_or_else(|| "a process of this machine".to_owned(), |from| from.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::driver::fixture::{Fixture, THERE};
    use azekura_base::{Endpoint, NodeId};
    use azekura_node::UNGREETED_MAX;

    #[test]
    fn connections_do_not_pile_up_before_a_shard_that_stands_still() {
        let mut fixture = Fixture::new();
        let from = Endpoint::first(NodeId(2));
        let hello = Hello { version: VERSION, cluster: 1, from, to: THERE, incarnation: 1, connection: 1 };
        let there = fixture.plane.shards.of(THERE.shard).cloned().unwrap();
        let hand_over = |fixture: &mut Fixture| {
            let conn = fixture.accept();
            let key = fixture.plane.add_peer(conn, |key| PeerConn::accepted(key, None));
            fixture.plane.hand_over(conn, key, hello, &there);
        };
        (0..UNGREETED_MAX + 5).for_each(|_| hand_over(&mut fixture));
        let waiting: Vec<Command> = fixture.commands_there.try_iter().collect();
        assert_eq!(waiting.len(), UNGREETED_MAX, "nobody takes them in, and each has a descriptor");
        // The shard goes on and takes them in.
        drop(waiting);
        hand_over(&mut fixture);
        assert!(matches!(fixture.commands_there.try_recv(), Ok(Command::TakePeer(..))));
    }
}
