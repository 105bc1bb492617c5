//! Where a shard accepts its clients, and other nodes.

use crate::driver::commands::DoorWish;
use crate::driver::dataplane::{ClientsListener, DataPlane};
use crate::listeners::Speak;
use azekura_reactor::{Close, ConnId, ListenerId, PeerAddress};

impl DataPlane {
    /// A door opens or closes while the node runs.
    pub(super) fn door(&mut self, wish: DoorWish) {
        match wish {
            DoorWish::Open(path, door, speak) => {
                let (listener, deals) = (self.reactor.listen_at(door), self.shards.count() > 1);
                self.listeners.named.insert(path, listener);
                self.listeners.clients.push(ClientsListener { listener, speak, deals });
            }
            DoorWish::Close(path) => {
                let Some(listener) = self.listeners.named.remove(&path) else { return };
                self.listeners.clients.retain(|clients| clients.listener != listener);
                self.reactor.close_listener(listener);
            }
        }
    }

    /// Somebody has connected.
    pub(super) fn accepted(&mut self, listener: ListenerId, conn: ConnId, from: PeerAddress) {
        let clients = self.listeners.clients.iter().find(|clients| clients.listener == listener);
        if let Some(ClientsListener { speak, deals, .. }) = clients {
            let (speak, deals) = (Speak::clone(speak), *deals);
            if deals { self.deal(conn, speak) } else { self.client_accepted(conn, &speak) }
        } else if self.listeners.peers.contains(&listener) {
            self.peer_accepted(conn, from);
        } else {
            // The door was closed in the same turn.
            self.reactor.close(conn, Close::AtOnce);
        }
    }
}
