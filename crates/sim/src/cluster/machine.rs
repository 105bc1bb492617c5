//! A machine: where a node's process runs, if one does.

use crate::cluster::front::Front;
use crate::kernel::process::{Clock, Life};
use crate::kernel::random::Random;
use azekura_base::{NodeId, Shard};
use azekura_frontend::{Budgets, Nexuses};
use azekura_node::Node;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

/// Of so many starts in a hundred, the number of shards is drawn anew.
const CHANGES_PERCENT: u64 = 40;

/// One shard of the process that runs, with its event loop and its own clients.
pub(crate) struct EventLoop {
    pub(crate) node: Node,
    /// Where its clients are.
    pub(crate) front: Front,
    /// It alone does nothing until then.
    stalled_until: Duration,
    /// When it takes its next turn.
    turn_at: Option<Duration>,
}

impl EventLoop {
    fn new(node: Node, budgets: Arc<Budgets>) -> EventLoop {
        let front = Front::new(node.gateway().unsettled().clone(), budgets);
        EventLoop { node, front, stalled_until: Duration::ZERO, turn_at: None }
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

    /// It alone stands still until then at least.
    pub(crate) fn stall(&mut self, until: Duration) {
        self.stalled_until = until.max(self.stalled_until);
    }
}

/// Draws the numbers of shards of a machine that comes later, apart from all else.
pub(crate) fn shards_of_later(node: NodeId) -> Random {
    Random::new(u64::from(node.0) ^ 0x6c61_7465)
}

/// See the module's description.
pub(crate) struct Machine {
    /// The shards of the process; none while none runs.
    loops: Vec<EventLoop>,
    /// Whose sessions the process serves, on whichever shard.
    pub(crate) nexuses: Nexuses,
    /// How many the process has, or its last one had.
    pub(crate) shards: NonZeroU8,
    /// What the process takes for the time.
    pub(crate) clock: Clock,
    incarnation: u64,
    /// The process does nothing until then.
    stalled_until: Duration,
    random: Random,
    /// Draws how many shards a process has.
    shards_random: Random,
}

impl Machine {
    /// A machine without a process.
    pub(crate) fn new(random: Random, shards_random: Random) -> Machine {
        Machine {
            loops: Vec::new(),
            nexuses: Nexuses::default(),
            shards: NonZeroU8::MIN,
            clock: Clock::new(),
            incarnation: 0,
            stalled_until: Duration::ZERO,
            random,
            shards_random,
        }
    }

    /// A process runs here.
    pub(crate) fn runs(&self) -> bool {
        !self.loops.is_empty()
    }

    /// How many shards the next process has: often as many as the one before.
    pub(crate) fn draw_shards(&mut self, most: NonZeroU8) -> NonZeroU8 {
        let is_new = self.incarnation == 0;
        if is_new || self.shards_random.chance(CHANGES_PERCENT) {
            NonZeroU8::MIN.saturating_add(self.shards_random.below(u64::from(most.get())) as u8)
        } else {
            self.shards
        }
    }

    /// The shards of the process that runs here now.
    pub(crate) fn loops(&self) -> impl Iterator<Item = &EventLoop> {
        self.loops.iter()
    }

    /// A shard of the process that runs here now.
    pub(crate) fn at(&self, shard: Shard) -> Option<&EventLoop> {
        self.loops.get(usize::from(shard.0))
    }

    /// The same, to change it.
    pub(crate) fn at_mut(&mut self, shard: Shard) -> Option<&mut EventLoop> {
        self.loops.get_mut(usize::from(shard.0))
    }

    /// The life of a shard of the process that runs here now, on the node `id`.
    pub(crate) fn life(&self, id: NodeId, shard: Shard) -> Option<Life> {
        self.at(shard).map(|_| Life { node: id, incarnation: self.incarnation, shard })
    }

    /// The lives of all its shards.
    pub(crate) fn lives(&self, node: NodeId) -> impl Iterator<Item = Life> {
        let incarnation = self.incarnation;
        (0..self.loops.len() as u8).map(move |shard| Life { node, incarnation, shard: Shard(shard) })
    }

    /// True when no other process has started since `life` did.
    pub(crate) fn is_latest(&self, life: Life) -> bool {
        self.incarnation == life.incarnation
    }

    /// What the machine itself counts the next process as, as the product does in `node.json`.
    pub(crate) fn next_incarnation(&self) -> u64 {
        self.incarnation + 1
    }

    /// A process is about to start, of this incarnation, with another clock, which runs at a pace of its own where that
    /// is `skewed`.
    pub(crate) fn boot(&mut self, incarnation: u64, skewed: bool) {
        self.incarnation = incarnation;
        self.clock.restart(&mut self.random);
        self.stalled_until = Duration::ZERO;
        if skewed {
            self.clock.draw_rate(&mut self.random);
        }
    }

    /// The process runs.
    pub(crate) fn run(&mut self, nodes: Vec<Node>) {
        self.nexuses = Nexuses::default();
        let budgets = Arc::default();
        self.loops = nodes.into_iter().map(|node| EventLoop::new(node, Arc::clone(&budgets))).collect();
    }

    /// The process ends.
    pub(crate) fn halt(&mut self) {
        self.loops.clear();
    }

    /// How soon a process takes a turn that was told something.
    pub(crate) fn draw_turn(&mut self) -> Duration {
        self.random.micros(1, 20)
    }

    /// The process stands still until then at least. False when it did already.
    pub(crate) fn stall(&mut self, now: Duration, until: Duration) -> bool {
        let running = self.stalled_until <= now;
        self.stalled_until = until.max(self.stalled_until);
        running
    }

    /// Until when a shard of the process stands still, alone or with all others; `None` when it does not.
    pub(crate) fn stalled(&self, shard: Shard, now: Duration) -> Option<Duration> {
        let alone = self.at(shard).map(|at| at.stalled_until).unwrap_or_default();
        Some(alone.max(self.stalled_until)).filter(|until| now < *until)
    }
}
