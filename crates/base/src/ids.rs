//! Identifiers and counters, each its own type, so that one can't be passed for another.

use std::fmt;

use crate::Endpoint;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $repr:ty, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $repr);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(/// A volume; never used again after deletion.
    VolumeId, u64, "vol");
id!(/// An immutable-or-head set of blocks; never used again after deletion.
    LayerId, u64, "layer");
id!(/// A 4 MiB piece of a volume, counted from its start.
    ChunkIndex, u32, "chunk");
id!(/// A 4 KiB block inside a chunk, 0..1024.
    BlockIndex, u16, "block");
id!(/// A placement group: the unit of replication.
    PgId, u32, "pg");
id!(/// The reign of one primary over a placement group.
    Epoch, u64, "e");
id!(/// The position of a write in its placement group's order; the first write has 1.
    Sequence, u64, "s");
id!(/// A machine that runs a node process.
    NodeId, u32, "n");
id!(/// One of the parts that a node's data plane is cut into, counted from 0. Each has devices and groups of its own.
    Shard, u8, "shard");
id!(/// One storage device of the cluster.
    DeviceId, u32, "d");
id!(/// One gateway's life, which ends with its process: its writes are applied at most once each.
    SessionId, u64, "session");
id!(/// One state of a volume's attachments: raised at every change. An attachment is named by the generation that it began
    /// in; 0 is nobody's.
    Generation, u64, "g");
id!(/// A data key of volumes: 64 random bits, no secret.
    KeyId, u64, "key");
id!(/// A write's number inside its session.
    RequestId, u64, "r");

impl Sequence {
    /// The position before the first write.
    pub const ZERO: Sequence = Sequence(0);

    /// The position that follows.
    #[must_use]
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

impl Epoch {
    /// Before the first epoch: nobody has reigned in it.
    pub const BEFORE_ALL: Epoch = Epoch(0);

    /// The epoch that follows.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// Bits of a session's number that name the process: the node's start.
const INCARNATION_BITS: u32 = 32;
/// Bits that name the node; those above them name its shard.
const NODE_BITS: u32 = 24;

impl SessionId {
    /// The session of one shard's gateway in a node's process. `incarnation` counts the node's starts, so the session
    /// of a later one of the same shard is greater.
    ///
    /// # Panics
    /// When `incarnation` is 2^32 or more, or the node's number 2^24 or more: a node does not start so often, and a
    /// cluster has not had so many nodes.
    #[must_use]
    pub fn new(endpoint: Endpoint, incarnation: u64) -> SessionId {
        let Endpoint { node, shard } = endpoint;
        assert!(incarnation >> INCARNATION_BITS == 0, "a node's starts fit into 32 bits");
        assert!(node.0 >> NODE_BITS == 0, "the nodes that a cluster has ever had fit into 24 bits");
        let endpoint = u64::from(shard.0) << NODE_BITS | u64::from(node.0);
        SessionId(endpoint << INCARNATION_BITS | incarnation)
    }

    /// The shard whose gateway it is.
    #[must_use]
    pub fn endpoint(self) -> Endpoint {
        let endpoint = (self.0 >> INCARNATION_BITS) as u32;
        let node = NodeId(endpoint & ((1 << NODE_BITS) - 1));
        Endpoint { node, shard: Shard((endpoint >> NODE_BITS) as u8) }
    }

    /// Which start of the node it is of.
    #[must_use]
    pub fn incarnation(self) -> u64 {
        self.0 & ((1 << INCARNATION_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sessions_of_first_shards_are_as_they_were_before_there_were_others() {
        assert_eq!(SessionId::new(Endpoint::first(NodeId(3)), 7), SessionId(3 << 32 | 7));
        assert_eq!(SessionId::new(Endpoint { node: NodeId(3), shard: Shard(2) }, 7), SessionId(2 << 56 | 3 << 32 | 7));
    }

    proptest! {
        #[test]
        fn a_session_says_whose_it_is(number in any::<u64>()) {
            let session = SessionId(number);
            prop_assert_eq!(SessionId::new(session.endpoint(), session.incarnation()), session);
        }
    }
}
