//! Invariant 3, as seen from outside of time: at no instant can two copies of a group answer as primary.

use crate::kernel::process::Life;
use crate::report::Invariant;
use crate::world::World;
use azekura_base::PgId;

impl World {
    /// A process may have begun to serve: is it alone?
    pub(crate) fn check_serving(&mut self, life: Life) {
        let serving: Vec<PgId> = self.serving(life).collect();
        if serving.is_empty() {
            return;
        }
        for other in self.lives().into_iter().filter(|other| other.endpoint() != life.endpoint()) {
            let both = self.serving(other).find(|pg| serving.contains(pg));
            if let Some(pg) = both {
                self.violate(Invariant::OnePrimary, format!("{life:?} and {other:?} both serve {pg:?}"));
                return;
            }
        }
    }

    /// The groups that a process would answer as primary now.
    fn serving(&self, life: Life) -> impl Iterator<Item = PgId> {
        // One that stands still with its clock answers nobody, whatever that clock shows.
        let machine = self.machines.get(&life.node).filter(|machine| !machine.clock.is_paused());
        let clock = machine.map(|machine| machine.clock.shows(self.now)).unwrap_or_default();
        let at = machine.and_then(|machine| machine.at(life.shard));
        at.map(|at| &at.node).into_iter().flat_map(move |node| node.serving(clock))
    }
}
