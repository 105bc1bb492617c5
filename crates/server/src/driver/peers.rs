//! Connections with other nodes: by which key the node knows each, which are being dialled, and how they are sealed.

use azekura_base::{Endpoint, Shard};
use azekura_node::{ConnKey, UNGREETED_MAX};
use azekura_reactor::ConnId;
use azekura_transport::Credentials;
use floods::Floods;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub(super) mod conn;
pub(super) mod floods;
mod steps;
#[cfg(test)]
mod tests;

/// The node is told of so many bytes that wait to be sent to another shard.
pub(super) const UNSENT_REPORT_BYTES: usize = 4 << 20;

/// What a shard has of its connections with others.
pub(super) struct PeerSide {
    conns: HashMap<ConnKey, ConnId>,
    dialled: HashMap<ConnId, Dialled>,
    last_key: u64,
    credentials: Credentials,
    pub(super) floods: Floods,
    /// Connections that were handed over to a shard hold a reference until that has taken them in.
    handed: BTreeMap<Shard, Arc<()>>,
}

/// A shard that is being dialled.
pub(super) struct Dialled {
    pub(super) to: Endpoint,
    pub(super) tls: bool,
}

impl PeerSide {
    /// Nobody is connected; the node's key is in these.
    pub(super) fn new(credentials: Credentials) -> PeerSide {
        PeerSide {
            conns: HashMap::new(),
            dialled: HashMap::new(),
            last_key: 0,
            credentials,
            floods: Floods::default(),
            handed: BTreeMap::new(),
        }
    }

    /// A connection stands. Gives the key that the node knows it by, which no other gets.
    fn add(&mut self, conn: ConnId) -> ConnKey {
        self.last_key += 1;
        let key = ConnKey(self.last_key);
        self.conns.insert(key, conn);
        key
    }

    /// A place among the connections that wait for a shard to take them in. There is none when so many wait that the
    /// shard stands still; whoever has dialled comes again.
    fn place(&mut self, shard: Shard) -> Option<Arc<()>> {
        let waiting = self.handed.entry(shard).or_default();
        (Arc::strong_count(waiting) <= UNGREETED_MAX).then(|| Arc::clone(waiting))
    }

    pub(super) fn conn(&self, key: ConnKey) -> Option<ConnId> {
        self.conns.get(&key).copied()
    }

    /// The node has nothing to do with the connection any more.
    pub(super) fn remove(&mut self, key: ConnKey) -> Option<ConnId> {
        self.conns.remove(&key)
    }

    /// A shard is being dialled.
    pub(super) fn dials(&mut self, conn: ConnId, to: Endpoint, tls: bool) {
        self.dialled.insert(conn, Dialled { to, tls });
    }

    /// It is known how a dial went. Gives the shard that was dialled; `None` when the connection was not dialled, or
    /// when that was known before.
    pub(super) fn dial_ended(&mut self, conn: ConnId) -> Option<Dialled> {
        self.dialled.remove(&conn)
    }
}
