//! A node is stopped as planned: it hands over, takes leave, ends, and comes back.

use crate::world::World;
use azekura_base::NodeId;

impl World {
    pub(super) fn stop_one(&mut self) -> &'static str {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let node = *self.random.pick(&nodes);
        self.restart_as_planned(node);
        "planned stop"
    }
}
