//! A process stands still, as one does that is stopped, swapped out or starved, and then gets everything at once.

use crate::world::World;
use azekura_base::NodeId;

impl World {
    pub(super) fn stall_a_node(&mut self) -> &'static str {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let random = &mut self.random;
        let (node, time) = (*random.pick(&nodes), random.spread_millis(100, 5000));
        let until = self.now + time;
        self.trace.step(self.now, u64::from(node.0), || format!("{node:?} stands still for {time:?}"));
        // As of a virtual machine that is paused: its clock does not know of it.
        let pauses = random.chance(40);
        let (now, life) = (self.now, self.life_of(node));
        if let Some(machine) = self.machines.get_mut(&node) {
            let running = machine.stall(now, until);
            if let Some(life) = life.filter(|_| pauses && running) {
                machine.clock.stop(now);
                self.resume_at(until, life);
                return "process that is paused with its clock";
            }
        }
        "stalled process"
    }
}
