//! A process stands still, as one does that is stopped, swapped out or starved, and then gets everything at once.

use crate::events::{Event, Life};
use crate::world::World;
use azekura_base::NodeId;
use std::time::Duration;

impl World {
    pub(super) fn stall_a_node(&mut self) -> &'static str {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let random = &mut self.faults.random;
        let (node, time) = (*random.pick(&nodes), random.spread_millis(100, 5000));
        let until = self.now + time;
        self.trace.step(self.now, u64::from(node.0), || format!("{node:?} stands still for {time:?}"));
        if let Some(machine) = self.machines.get_mut(&node) {
            machine.stalled_until = until.max(machine.stalled_until);
        }
        "stalled process"
    }

    /// Until when a process stands still; `None` when it does not.
    pub(crate) fn stalled(&self, life: Life) -> Option<Duration> {
        let machine = self.machines.get(&life.node)?;
        Some(machine.stalled_until).filter(|until| self.now < *until)
    }

    /// What a process is told while it stands still, it hears afterwards. Gives back other events.
    pub(crate) fn put_off(&mut self, event: Event) -> Option<Event> {
        let Some(until) = event.told(&self.network).and_then(|life| self.stalled(life)) else { return Some(event) };
        if let Event::Turn(life) = event
            && let Some(machine) = self.machines.get_mut(&life.node)
            && machine.turn_at == Some(self.now)
        {
            machine.turn_at = Some(until);
        }
        self.queue.push(until, event);
        None
    }
}
