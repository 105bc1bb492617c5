//! Who speaks to whom inside the cluster.

use crate::{NodeId, Shard};
use std::fmt;

/// One end of the links between nodes: a shard of a node. Links, leases and the routing of requests are between
/// endpoints; what fails together, holds attachments and has a record is the node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The node.
    pub node: NodeId,
    /// Which of its shards.
    pub shard: Shard,
}

impl Endpoint {
    /// The first shard of a node: the only one, where a node has one.
    #[must_use]
    pub const fn first(node: NodeId) -> Endpoint {
        Endpoint { node, shard: Shard(0) }
    }
}

/// The node alone for its first shard (`3`), else both (`3.1`).
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { node, shard } = self;
        match shard {
            Shard(0) => write!(f, "{node}"),
            shard => write!(f, "{node}.{shard}"),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_shard_reads_as_the_node_alone() {
        let second = Endpoint { node: NodeId(3), shard: Shard(1) };
        assert_eq!(format!("{} {second}", Endpoint::first(NodeId(3))), "3 3.1");
        assert_eq!(format!("{:?} {second:?}", Endpoint::first(NodeId(3))), "n3 n3.1");
    }

    #[test]
    fn endpoints_of_a_node_stand_together_in_order() {
        let of = |node, shard| Endpoint { node: NodeId(node), shard: Shard(shard) };
        let mut all = [of(2, 0), of(1, 1), of(2, 255), of(1, 0)];
        all.sort();
        assert_eq!(all, [of(1, 0), of(1, 1), of(2, 0), of(2, 255)]);
    }
}
