//! Identifiers and counters, each its own type, so that one can't be passed for another.

use std::fmt;

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
id!(/// One gateway process's life: its writes are applied at most once each.
    SessionId, u64, "session");
id!(/// One state of a volume's attachments: raised at every change. An attachment is named by the generation that it began
    /// in; 0 is nobody's.
    Generation, u64, "g");
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
    /// The epoch that follows.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl SessionId {
    /// The session of a node's process. `incarnation` counts the node's starts, so a later one of the same node is
    /// greater.
    ///
    /// # Panics
    /// When `incarnation` is 2^32 or more: a node does not start so often.
    #[must_use]
    pub fn new(node: NodeId, incarnation: u64) -> SessionId {
        let incarnation = u32::try_from(incarnation);
        assert!(incarnation.is_ok(), "a node's starts fit into 32 bits");
        SessionId(u64::from(node.0) << 32 | u64::from(incarnation.unwrap_or_default()))
    }

    /// The node whose process it is.
    #[must_use]
    pub fn node(self) -> NodeId {
        NodeId((self.0 >> 32) as u32)
    }
}
