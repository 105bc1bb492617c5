//! A process stands still, as one does that is stopped, swapped out or starved, and then gets everything at once.

use crate::world::World;
use azekura_base::NodeId;
use std::time::Duration;

/// Of so many stalls in a hundred, one shard alone stands still.
const SHARD_PERCENT: u64 = 50;

impl World {
    pub(super) fn stall_a_node(&mut self) -> &'static str {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let random = &mut self.random;
        let (node, time) = (*random.pick(&nodes), random.spread_millis(100, 5000));
        let until = self.now + time;
        self.trace.step(self.now, u64::from(node.0), || format!("{node:?} stands still for {time:?}"));
        // As of a virtual machine that is paused: its clock does not know of it.
        let pauses = random.chance(40);
        let (now, life) = (self.now, self.process_on(node));
        if self.stall_a_shard(node, until) {
            return "stalled shard";
        }
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

    /// Where a process has several shards, one of them may stand still alone, as a thread does that waits for a
    /// processor. False when the whole process is to.
    fn stall_a_shard(&mut self, node: NodeId, until: Duration) -> bool {
        let lives = self.lives_on(node);
        if lives.len() < 2 || !self.random.chance(SHARD_PERCENT) {
            return false;
        }
        let life = *self.random.pick(&lives);
        self.trace.remark(self.now, || format!("only {life:?} does"));
        self.loop_of_mut(life).into_iter().for_each(|at| at.stall(until));
        true
    }
}
