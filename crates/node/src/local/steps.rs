//! Shards of the process join each other.

use crate::effect::{ConnKey, Effect};
use crate::node::Node;
use azekura_base::Endpoint;
use azekura_replica::Client;
use std::num::NonZeroU8;

impl Node {
    /// The process has so many shards, which are reached without the network ([`Effect::ConnectLocal`]): before the
    /// first turn.
    pub fn join(&mut self, shards: NonZeroU8) {
        self.mesh.links.local.shards = Some(shards);
    }

    /// A shard of the same process has joined this one.
    pub fn accepted_local(&mut self, conn: ConnKey) {
        self.mesh.links.local.conns.insert(conn);
        self.accepted(conn, None);
    }

    /// A shard of the same process is joined.
    pub fn connected_local(&mut self, peer: Endpoint, conn: ConnKey) {
        self.mesh.links.local.conns.insert(conn);
        self.connected(peer, conn, None);
    }

    /// Closes a connection.
    pub(crate) fn hang_up(&mut self, conn: ConnKey) {
        self.mesh.links.local.forget(conn);
        self.mesh.links.proofs.forget(conn);
        self.effects.push_back(Effect::Close(conn));
    }

    /// What comes from there has not left this process since its checksums were made or compared.
    pub(crate) fn is_trusted(&self, client: Client) -> bool {
        match client {
            Client::Own => true,
            Client::Conn(conn) => self.mesh.links.local.has(ConnKey(conn)),
        }
    }
}
