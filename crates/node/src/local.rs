//! Connections inside the process: its shards hand each other messages by value. What comes on one has not left the
//! process's memory, so checksums of blocks that were compared before need not be compared again.
//!
//! Everything else is as on other connections: such a one is dialled, greets, is closed when its other end keeps silent
//! for too long, and dialled anew. So nothing that depends on connections is different between shards of one process.

use crate::effect::ConnKey;
use azekura_base::Endpoint;
use std::collections::BTreeSet;
use std::num::NonZeroU8;

mod steps;

/// What a shard knows of those beside it.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// How many shards the process has; `None`: they are reached as those of other nodes are.
    shards: Option<NonZeroU8>,
    /// Connections that are inside the process.
    conns: BTreeSet<ConnKey>,
}

impl Local {
    /// Whether there is such a shard in this process; `None` when it is reached over the network, if at all. The
    /// configuration may speak of an earlier process, which had more of them or fewer.
    pub(crate) fn is_sister(&self, me: Endpoint, peer: Endpoint) -> Option<bool> {
        let shards = self.shards.filter(|_| peer.node == me.node)?;
        Some(peer.shard.0 < shards.get())
    }

    /// A connection is inside the process.
    pub(crate) fn has(&self, conn: ConnKey) -> bool {
        self.conns.contains(&conn)
    }

    pub(crate) fn forget(&mut self, conn: ConnKey) {
        self.conns.remove(&conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Node;
    use crate::{Identity, RECONNECT_INTERVAL};
    use azekura_base::{NodeId, Shard};
    use azekura_replica::Client;
    use azekura_wire::{Hello, Message, VERSION};
    use std::time::Duration;

    #[test]
    fn what_comes_inside_the_process_is_trusted_until_the_connection_ends() {
        let me = Endpoint::first(NodeId(1));
        let sister = Endpoint { shard: Shard(1), ..me };
        let mut node = Node::new(Identity { cluster: 1, endpoint: me, incarnation: 3 }, Duration::ZERO);
        let [inside, outside] = [ConnKey(5), ConnKey(6)];
        node.accepted_local(inside);
        node.accepted(outside, None);
        let hello = Hello { version: VERSION, cluster: 1, from: sister, to: me, incarnation: 3, connection: 1 };
        node.received(inside, Message::Hello(hello));
        assert!(node.is_trusted(inside.into()) && node.is_trusted(Client::Own));
        assert!(!node.is_trusted(outside.into()), "whoever says there that it is of this node");
        // A later connection of the same shard takes the place of the first.
        node.advance(RECONNECT_INTERVAL);
        node.received(outside, Message::Hello(hello));
        assert!(!node.is_trusted(inside.into()) && !node.is_trusted(outside.into()));
        node.accepted_local(ConnKey(7));
        node.closed(ConnKey(7));
        assert!(!node.is_trusted(ConnKey(7).into()));
    }
}
