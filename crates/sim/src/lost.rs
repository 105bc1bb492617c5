//! A class that is lost for the middle of a run: its only copy is on a node that is away. Clients of another class,
//! none of whose copies are there, notice nothing (invariant 10), although those of the lost one go on asking through
//! the same gateways.

use crate::events::{Event, Life};
use crate::front::Who;
use crate::random::Random;
use crate::world::World;
use crate::{Invariant, Mode};
use azekura_base::{BLOCK_SIZE, IoStatus, NodeId};
use azekura_frontend::Request;
use azekura_gateway::Outcome;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// The lost class's volume.
pub(crate) const LOST: &str = "lost";
/// Requests on it are numbered from here.
pub(crate) const TOKENS: u64 = 1 << 48;
/// Operations of volumes whose groups are all reachable end within this time.
pub(crate) const SERVED_WITHIN: Duration = Duration::from_secs(5);
/// Requests that clients of the lost volume start at once: together more than a window.
const BURST: u64 = 24;
/// Blocks that they write.
const BLOCKS: u64 = 16;
/// When the node goes.
const LOST_AT: Duration = Duration::from_secs(2);

/// What is asked of the lost volume.
pub(crate) struct Lost {
    pub(crate) on: bool,
    /// How long requests on it wait.
    pub(crate) io_timeout: Option<Duration>,
    running: BTreeMap<u64, (Life, Duration)>,
    tokens: u64,
    /// Gateways without room for the other volume, and since when.
    full: BTreeMap<NodeId, Duration>,
    random: Random,
}

impl Lost {
    pub(crate) fn new(mode: Mode, mut random: Random) -> Lost {
        let io_timeout = random.chance(50).then(|| random.spread_millis(1000, 8000));
        Lost {
            on: mode == Mode::Lost,
            io_timeout,
            running: BTreeMap::new(),
            tokens: TOKENS,
            full: BTreeMap::new(),
            random,
        }
    }

    pub(crate) fn idle(&self) -> bool {
        self.running.is_empty()
    }
}

impl World {
    /// The node with the only copy goes, and comes back later.
    pub(crate) fn lose_the_class(&mut self) {
        let Some(node) = self.machines.keys().next_back().copied() else { return };
        let away = self.lost.random.spread_millis(8000, 30_000);
        let at = LOST_AT.saturating_sub(self.now);
        self.queue.push(self.now + at, Event::Away(node, away));
        self.queue.push(self.now, Event::Lost);
    }

    /// Clients ask for more of what is lost.
    pub(crate) fn lost_turn(&mut self) {
        if !self.working {
            return;
        }
        let pause = self.lost.random.spread_millis(1, 50);
        self.queue.push(self.now + pause, Event::Lost);
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let node = *self.lost.random.pick(&nodes);
        self.look_for_room(node);
        for _ in 0..self.lost.random.between(1, BURST) {
            let Some(life) = self.ready_life_for(node, LOST) else { return };
            let Some(line) = self.line_to(life, Who::Lost, LOST) else { return };
            self.lost.tokens += 1;
            let (id, random) = (self.lost.tokens, &mut self.lost.random);
            let offset = random.below(BLOCKS) * BLOCK_SIZE as u64;
            let request = if random.chance(70) {
                Request::Write { offset, bytes: Bytes::from(vec![id as u8; BLOCK_SIZE]) }
            } else {
                Request::Read { offset, len: BLOCK_SIZE as u64 }
            };
            self.lost.running.insert(id, (life, self.now));
            self.submit(line, id, request);
        }
    }

    /// A gateway that takes no requests of the volume that is not lost serves nobody.
    fn look_for_room(&mut self, node: NodeId) {
        let gateway = self.machines.get(&node).and_then(|machine| machine.node.as_ref());
        if gateway.is_none_or(|node| node.has_room(crate::world::VOLUME)) {
            self.lost.full.remove(&node);
        } else if self.now > *self.lost.full.entry(node).or_insert(self.now) + SERVED_WITHIN {
            self.violate(Invariant::Liveness, format!("{node:?} has no room for a volume whose groups all serve"));
        }
    }

    /// A gateway has answered a request on the lost volume.
    pub(crate) fn lost_answered(&mut self, id: u64, outcome: &Outcome) {
        let Some((life, asked)) = self.lost.running.remove(&id) else {
            return self.violate(Invariant::Protocol, format!("operation {id} on {LOST} is answered twice"));
        };
        let waited = self.now.saturating_sub(asked);
        let Outcome::Failed(status) = outcome else { return };
        if *status == IoStatus::NoSpace {
            return; // The device is small.
        }
        self.report.timed_out += 1;
        if *status != IoStatus::Io || !timed_out(waited, self.lost.io_timeout) {
            let what = format!("operation {id} on {LOST} at {life:?} failed after {waited:?}: {status}");
            self.violate(Invariant::Liveness, what);
        }
    }

    /// A request on the lost volume is not answered any more: its connection has ended.
    pub(crate) fn lost_unanswered(&mut self, id: u64) {
        self.lost.running.remove(&id);
    }

    /// The gateways of a life are gone.
    pub(crate) fn lost_loses(&mut self, life: Life) {
        self.lost.running.retain(|_, (at, _)| *at != life);
        self.lost.full.remove(&life.node);
    }
}

/// A request that waited for so long may have failed. A node's clock may be a little fast.
pub(crate) fn timed_out(waited: Duration, io_timeout: Option<Duration>) -> bool {
    io_timeout.is_some_and(|bound| waited >= bound.mul_f64(0.9))
}
