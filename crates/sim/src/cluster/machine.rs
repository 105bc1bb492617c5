//! A machine: where a node's process runs, if one does.

use crate::cluster::front::Front;
use crate::kernel::process::{Clock, Life};
use crate::kernel::random::Random;
use azekura_base::NodeId;
use azekura_node::Node;
use std::time::Duration;

/// See the module's description.
pub(crate) struct Machine {
    /// The process.
    pub(crate) node: Option<Node>,
    /// Where its clients are.
    pub(crate) front: Front,
    /// What the process takes for the time.
    pub(crate) clock: Clock,
    incarnation: u64,
    /// The process does nothing until then.
    stalled_until: Duration,
    /// When the process takes its next turn.
    turn_at: Option<Duration>,
    random: Random,
}

impl Machine {
    /// A machine without a process.
    pub(crate) fn new(random: Random) -> Machine {
        Machine {
            node: None,
            front: Front::new(),
            clock: Clock::new(),
            incarnation: 0,
            stalled_until: Duration::ZERO,
            turn_at: None,
            random,
        }
    }

    /// The life of the process that runs here now, on the node `id`.
    pub(crate) fn life(&self, id: NodeId) -> Option<Life> {
        self.node.as_ref().map(|_| Life { node: id, incarnation: self.incarnation })
    }

    /// True when no other process has started since `life` did.
    pub(crate) fn is_latest(&self, life: Life) -> bool {
        self.incarnation == life.incarnation
    }

    /// A process is about to start, with another clock, which runs at a pace of its own where that is `skewed`. Gives
    /// its incarnation.
    pub(crate) fn boot(&mut self, skewed: bool) -> u64 {
        self.incarnation += 1;
        self.clock.restart(&mut self.random);
        self.turn_at = None;
        self.stalled_until = Duration::ZERO;
        if skewed {
            self.clock.draw_rate(&mut self.random);
        }
        self.incarnation
    }

    /// The process runs.
    pub(crate) fn run(&mut self, node: Node) {
        (self.node, self.front) = (Some(node), Front::new());
    }

    /// The process ends.
    pub(crate) fn halt(&mut self) {
        (self.node, self.turn_at) = (None, None);
    }

    /// How soon a process takes a turn that was told something.
    pub(crate) fn draw_turn(&mut self) -> Duration {
        self.random.micros(1, 20)
    }

    /// A turn is to be taken then. False when an earlier one is planned.
    pub(crate) fn plan_turn(&mut self, at: Duration) -> bool {
        let earlier = self.turn_at.is_none_or(|planned| at < planned);
        if earlier {
            self.turn_at = Some(at);
        }
        earlier
    }

    /// The turn that is planned for now is taken. False when none is.
    pub(crate) fn take_turn(&mut self, now: Duration) -> bool {
        self.turn_at.take_if(|planned| *planned == now).is_some()
    }

    /// The turn that was planned for now is taken then.
    pub(crate) fn put_off_turn(&mut self, now: Duration, until: Duration) {
        if self.turn_at == Some(now) {
            self.turn_at = Some(until);
        }
    }

    /// The process stands still until then at least. False when it did already.
    pub(crate) fn stall(&mut self, now: Duration, until: Duration) -> bool {
        let running = self.stalled_until <= now;
        self.stalled_until = until.max(self.stalled_until);
        running
    }

    /// Until when the process stands still; `None` when it does not.
    pub(crate) fn stalled(&self, now: Duration) -> Option<Duration> {
        Some(self.stalled_until).filter(|until| now < *until)
    }
}
