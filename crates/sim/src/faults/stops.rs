//! A node is stopped as planned: it hands over, takes leave, ends, and comes back.

use crate::events::{Event, Life};
use crate::world::World;
use azekura_base::NodeId;
use std::time::Duration;

/// Longest time for handing over, as the binary has it.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Pause between two looks whether that is done.
const STEP: Duration = Duration::from_millis(10);
/// From the last word to the end of the process.
const LAST_WORD: Duration = Duration::from_millis(1);

impl World {
    pub(super) fn stop_one(&mut self) -> &'static str {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let node = *self.faults.random.pick(&nodes);
        self.restart_as_planned(node);
        "planned stop"
    }

    /// A node stops, if it runs, and comes back.
    pub(crate) fn restart_as_planned(&mut self, node: NodeId) {
        if let Some(life) = self.life_of(node) {
            self.leave(life, self.now + PATIENCE);
        }
    }

    /// The process hands over what it can.
    pub(crate) fn leave(&mut self, life: Life, until: Duration) {
        let mut busy = 0;
        self.tell(life, |node| busy = node.leave());
        if busy > 0 && self.now < until {
            self.queue.push(self.now + STEP, Event::Leave(life, until));
        } else {
            self.queue.push(self.now + LAST_WORD, Event::Exit(life));
        }
    }

    /// The process ends, and another one starts on its node some time later.
    pub(crate) fn exit(&mut self, life: Life) {
        if self.life_of(life.node) == Some(life) {
            let time = self.faults.random.spread_millis(10, 10_000);
            self.crash_for(life.node, time);
        }
    }
}
