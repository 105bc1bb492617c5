//! What groups remember of gateways is bounded by how many there are.

use crate::report::Invariant;
use crate::world::World;

impl World {
    /// When everything has come to rest, no copy remembers more gateways than the nodes that there are have.
    pub(crate) fn check_sessions(&mut self) {
        // A group keeps what an earlier process of a node wrote by each of its shards until a later one writes to it,
        // and the later one may have fewer.
        let most = usize::from(self.plan.shards.most());
        let living = self.configuration.view().nodes.len() * most;
        let too_many = self.nodes().flat_map(|node| node.groups()).find(|group| group.sessions > living);
        if let Some(group) = too_many {
            let (pg, device, count) = (group.pg, group.device, group.sessions);
            let what = format!("{pg:?} on {device:?} remembers {count} gateways, and there are {living}");
            self.violate(Invariant::Bounded, what);
        }
    }
}
