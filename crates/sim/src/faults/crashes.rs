//! Nodes lose power and come back.

use crate::world::World;
use azekura_base::NodeId;

impl World {
    /// One node.
    pub(super) fn crash_one(&mut self) -> &'static str {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let node = *self.random.pick(&nodes);
        self.crash_and_return(node);
        "crash of a node"
    }

    /// All nodes at the same moment.
    pub(super) fn crash_all(&mut self) -> &'static str {
        self.crash_everything();
        "crash of all nodes"
    }

    pub(crate) fn crash_everything(&mut self) {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.crash_and_return(node));
    }

    /// One node, for longer than anybody waits for it.
    pub(super) fn send_one_away(&mut self) -> &'static str {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let node = *self.random.pick(&nodes);
        let time = self.random.spread_millis(2000, 40_000);
        self.crash_for(node, time);
        "node away"
    }

    pub(super) fn crash_and_return(&mut self, node: NodeId) {
        let time = self.random.spread_millis(1, 1000);
        self.crash_for(node, time);
    }
}
