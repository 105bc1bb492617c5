//! Nothing waits for a connection that nobody makes: shards dial whom they need, and only them (docs/decisions/0031).

use crate::kernel::process::Life;
use crate::report::Invariant;
use crate::world::World;

impl World {
    /// A process has taken a turn: does it dial whom it waits for?
    pub(crate) fn check_links(&mut self, life: Life) {
        let vain = self.node_at(life.endpoint()).and_then(azekura_node::Node::waits_in_vain);
        vain.into_iter().for_each(|what| self.violate(Invariant::Liveness, format!("{life:?}: {what}")));
    }
}
