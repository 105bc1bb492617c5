//! What clients of the lost volume do in the world.

use super::{BLOCKS, BURST, LINES, LOST_AT, SERVED_WITHIN, timed_out};
use crate::cluster::front::Who;
use crate::cluster::records::LOST;
use crate::cue::Cue;
use crate::kernel::process::Life;
use crate::report::Invariant;
use crate::world::World;
use azekura_base::{BLOCK_SIZE, Endpoint, IoStatus};
use azekura_frontend::Request;
use azekura_gateway::Outcome;
use bytes::Bytes;

impl World {
    /// The node with the only copy goes, and comes back later.
    pub(crate) fn lose_the_class(&mut self) {
        let Some(node) = self.machines.keys().next_back().copied() else { return };
        let away = self.scene.lost.random.spread_millis(8000, 30_000);
        let at = LOST_AT.saturating_sub(self.now);
        self.away_at(self.now + at, node, away);
        self.cue_at(self.now, Cue::Lost);
    }

    /// Clients ask for more of what is lost.
    pub(crate) fn lost_turn(&mut self) {
        if !self.works() {
            return;
        }
        let pause = self.scene.lost.random.spread_millis(1, 50);
        self.cue_at(self.now + pause, Cue::Lost);
        let all = self.endpoints();
        let at = *self.scene.lost.random.pick(&all);
        self.look_for_room(at);
        if let Some((id, asked)) = self.scene.clients.oldest()
            && self.now > asked + SERVED_WITHIN
        {
            let what =
                format!("operation {id} waits since {asked:?}, though its groups were within reach all the time");
            self.violate(Invariant::Liveness, what);
        }
        for _ in 0..self.scene.lost.random.between(1, BURST) {
            let Some(life) = self.ready_life_for(at, LOST) else { return };
            let who = Who("lost", self.scene.lost.tokens % LINES);
            let Some(line) = self.line_to(life, who, LOST) else { return };
            self.scene.lost.tokens += 1;
            let (id, random) = (self.scene.lost.tokens, &mut self.scene.lost.random);
            let offset = random.below(BLOCKS) * BLOCK_SIZE as u64;
            let request = if random.chance(70) {
                Request::Write { offset, bytes: Bytes::from(vec![id as u8; BLOCK_SIZE]) }
            } else {
                Request::Read { offset, len: BLOCK_SIZE as u64 }
            };
            self.scene.lost.running.insert(id, (life, self.now));
            self.submit(line, id, request);
        }
    }

    /// A gateway that takes no requests of the volume that is not lost serves nobody.
    fn look_for_room(&mut self, at: Endpoint) {
        if self.node_at(at).is_none_or(|node| node.has_room(crate::cluster::records::VOLUME)) {
            self.scene.lost.full.remove(&at);
        } else if self.now > *self.scene.lost.full.entry(at).or_insert(self.now) + SERVED_WITHIN {
            self.violate(Invariant::Liveness, format!("{at:?} has no room for a volume whose groups all serve"));
        }
    }

    /// A gateway has answered a request on the lost volume.
    pub(crate) fn lost_answered(&mut self, id: u64, outcome: &Outcome) {
        let Some((life, asked)) = self.scene.lost.running.remove(&id) else {
            return self.violate(Invariant::Protocol, format!("operation {id} on {LOST} is answered twice"));
        };
        let waited = self.now.saturating_sub(asked);
        let Outcome::Failed(status) = outcome else { return };
        if *status == IoStatus::NoSpace {
            return; // The device is small.
        }
        self.report.timed_out += 1;
        if *status != IoStatus::Io || !timed_out(waited, self.scene.lost.io_timeout) {
            let what = format!("operation {id} on {LOST} at {life:?} failed after {waited:?}: {status}");
            self.violate(Invariant::Liveness, what);
        }
    }

    /// A request on the lost volume is not answered any more: its connection has ended.
    pub(crate) fn lost_unanswered(&mut self, id: u64) {
        self.scene.lost.running.remove(&id);
    }

    /// The gateways of a life are gone.
    pub(crate) fn lost_loses(&mut self, life: Life) {
        self.scene.lost.running.retain(|_, (at, _)| *at != life);
        self.scene.lost.full.remove(&life.endpoint());
    }
}
