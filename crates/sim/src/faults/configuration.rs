//! The configuration store is away for a while, for everybody or for one node.

use crate::world::World;
use azekura_base::NodeId;

impl World {
    pub(super) fn lose_configuration(&mut self) -> &'static str {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let random = &mut self.random;
        let until = self.now + random.spread_millis(50, 10_000);
        if random.chance(50) {
            nodes.into_iter().for_each(|node| self.configuration.lose(node, until));
            return "configuration store away";
        }
        let node = *random.pick(&nodes);
        self.configuration.lose(node, until);
        "configuration store away for one node"
    }
}
