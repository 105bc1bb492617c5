//! A process stands still, as one does that is stopped, swapped out or starved, and then gets everything at once.

use crate::events::{Event, Life};
use crate::plan::Lie;
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
        // As of a virtual machine that is paused: its clock does not know of it.
        let pauses = random.chance(40);
        let (now, life) = (self.now, self.life_of(node));
        if let Some(machine) = self.machines.get_mut(&node) {
            let running = machine.stalled_until <= now;
            machine.stalled_until = until.max(machine.stalled_until);
            if let Some(life) = life.filter(|_| pauses && running) {
                machine.stop_clock(now);
                self.queue.push(until, Event::Resume(life, now));
                return "process that is paused with its clock";
            }
        }
        "stalled process"
    }

    /// A process goes on whose clock has stood still since then, and so does its clock. Its driver sees by another
    /// clock that something is wrong.
    pub(crate) fn resume(&mut self, life: Life, since: Duration) {
        let now = self.now;
        let machine = self.machines.get_mut(&life.node);
        if machine.is_some_and(|machine| machine.start_clock(since, now)) && self.plan.lie != Some(Lie::UnnoticedPause)
        {
            self.tell(life, azekura_node::Node::void_leases);
        }
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
