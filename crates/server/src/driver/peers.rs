//! Connections with other nodes.

use crate::driver::dataplane::{DataPlane, Report};
use crate::driver::stream::Conn;
use azekura_node::ConnKey;
use azekura_reactor::{Close, ConnId};

/// The node is told of so many bytes that wait to be sent to another one.
const UNSENT_TOLD: usize = 4 << 20;

impl DataPlane {
    pub(super) fn add_peer(&mut self, conn: ConnId) -> ConnKey {
        self.last_key += 1;
        let key = ConnKey(self.last_key);
        self.conns.insert(key, conn);
        // Heartbeats are not to wait for data in the kernel.
        self.reactor.send_just_in_time(conn);
        let _ = self.reactor.install(conn, Conn::peer(key));
        key
    }

    pub(super) fn read_peer(&mut self, conn: ConnId) {
        loop {
            let Some(Conn::Peer(peer)) = self.reactor.stream(conn) else { return };
            let key = peer.key;
            match peer.decoder.next(&mut peer.inbox) {
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

    /// Tells the node how much waits to be sent to another one, when that is much or has been.
    pub(super) fn tell_unsent(&mut self, conn: ConnId) {
        let unsent = self.reactor.unsent_bytes(conn);
        let Some(Conn::Peer(peer)) = self.reactor.stream(conn) else { return };
        if unsent.max(peer.unsent_told) >= UNSENT_TOLD {
            peer.unsent_told = unsent;
            let key = peer.key;
            self.node.unsent(key, unsent);
        }
    }
}
