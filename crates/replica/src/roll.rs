//! Which nodes there are, and which there were.

use azekura_base::NodeId;
use std::collections::BTreeSet;

/// The numbers of nodes as the configuration has them at one moment: which have been given, and which of them still
/// have a record. Numbers are given in turn, each once, in the transaction that writes the record (decision 0023). So a
/// number that is given and has no record is that of a node that left for good, and a number that is not given yet is
/// that of a node which is to come, or which whoever reads this has not heard of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRoll {
    next: u64,
    recorded: BTreeSet<NodeId>,
}

impl NodeRoll {
    /// Numbers below `next` have been given; those in `recorded` have a record.
    #[must_use]
    pub fn new(next: u64, recorded: BTreeSet<NodeId>) -> NodeRoll {
        NodeRoll { next, recorded }
    }

    /// The node has left the cluster for good.
    #[must_use]
    pub fn is_gone(&self, node: NodeId) -> bool {
        u64::from(node.0) < self.next && !self.recorded.contains(&node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_known_yet_is_not_gone() {
        let roll = NodeRoll::new(5, [NodeId(1), NodeId(4)].into());
        assert!(roll.is_gone(NodeId(2)) && roll.is_gone(NodeId(3)));
        assert!([1, 4, 5, 6].into_iter().all(|node| !roll.is_gone(NodeId(node))));
        assert!(!NodeRoll::default().is_gone(NodeId(1)), "nothing is known of the configuration");
    }
}
