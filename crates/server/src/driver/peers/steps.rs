//! What happens on connections with other nodes.

use crate::driver::commands::Command;
use crate::driver::dataplane::DataPlane;
use crate::driver::messages::{Handle, Report};
use crate::driver::peers::UNSENT_REPORT_BYTES;
use crate::driver::stream::Conn;
use azekura_node::ConnKey;
use azekura_reactor::{Close, ConnId, Released};
use azekura_wire::{Hello, Message, VERSION};

impl DataPlane {
    pub(in crate::driver) fn add_peer(&mut self, conn: ConnId) -> ConnKey {
        let key = self.peers.add(conn);
        // Heartbeats are not to wait for data in the kernel.
        self.reactor.send_just_in_time(conn);
        let _ = self.reactor.install(conn, Conn::peer(key));
        key
    }

    pub(in crate::driver) fn read_peer(&mut self, conn: ConnId) {
        loop {
            let Some(Conn::Peer(peer)) = self.reactor.stream(conn) else { return };
            let key = peer.key;
            match peer.decoder.next(&mut peer.inbox) {
                Ok(Some(Message::Hello(hello))) => {
                    if let Some(shard) = self.shard_of(key, &hello) {
                        return self.hand_over(conn, key, hello, &shard);
                    }
                    self.node.received(key, Message::Hello(hello));
                }
                Ok(Some(message)) => self.node.received(key, message),
                Ok(None) => break,
                Err(error) => {
                    let other = self.node.other_end(key).map_or_else(String::new, |node| format!(" (node {node})"));
                    self.report(Report::Warn(format!("closing a node's connection{other}: {error}")));
                    self.reactor.close(conn, Close::AtOnce);
                    return;
                }
            }
        }
        self.touched.insert(conn);
    }

    /// The other shard of this node that a connection which begins with this greeting is for. Whatever else is wrong
    /// with it, that one finds out.
    fn shard_of(&self, key: ConnKey, hello: &Hello) -> Option<Handle> {
        let me = self.node.identity().endpoint;
        let is_first = self.node.other_end(key).is_none();
        let is_for_another = hello.version == VERSION && hello.to.node == me.node && hello.to.shard != me.shard;
        (is_first && is_for_another).then(|| self.shards.of(hello.to.shard).cloned()).flatten()
    }

    /// Hands a connection over to another shard. Whoever has dialled waits for the answer to his greeting.
    fn hand_over(&mut self, conn: ConnId, key: ConnKey, hello: Hello, shard: &Handle) {
        self.peers.remove(key);
        self.touched.remove(&conn);
        self.node.closed(key);
        let waits = matches!(self.reactor.stream(conn), Some(Conn::Peer(peer)) if peer.inbox.available().is_empty());
        let place = self.peers.place(hello.to.shard).filter(|_| waits);
        match place.and_then(|place| Some((self.reactor.release(conn)?, place))) {
            Some((released, place)) => shard.send(Command::TakePeer(released, hello, place)),
            None => self.reactor.close(conn, Close::AtOnce),
        }
    }

    /// Another shard has accepted a connection that is for this one.
    pub(in crate::driver) fn take_peer(&mut self, released: Released, hello: Hello) {
        let Some(conn) = self.reactor.adopt(released) else { return };
        let key = self.add_peer(conn);
        self.node.accepted(key, None);
        self.node.received(key, Message::Hello(hello));
        self.touched.insert(conn);
    }

    /// Tells the node how much waits to be sent to another one, when that is much or has been.
    pub(in crate::driver) fn tell_unsent(&mut self, conn: ConnId) {
        let unsent = self.reactor.unsent_bytes(conn);
        let Some(Conn::Peer(peer)) = self.reactor.stream(conn) else { return };
        if unsent.max(peer.unsent_reported) >= UNSENT_REPORT_BYTES {
            peer.unsent_reported = unsent;
            let key = peer.key;
            self.node.unsent(key, unsent);
        }
    }
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
            let key = fixture.plane.add_peer(conn);
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
