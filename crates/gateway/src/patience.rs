//! How long a request waits for a group that does not serve it, before its client gets an error (docs/decisions/0018).
//!
//! A part waits since it began, or since something new gave it another chance: a new primary, a new connection to the
//! primary, or that a copy had it and gave it back. Each part gets [`CHANCES_MAX`] of these, so that the error comes at
//! last where primaries come and go and none serves. A part that a copy has, or that the window has no room for, or a
//! write that its group refuses, may only be one of many: it waits since its group last answered anything of the kind.
//! What is refused for its volume's sake (a snapshot that does not end) has no such excuse.
//!
//! A request whose time is over is answered with an error, all of it, and no part of it is sent again. A part that was
//! sent before may still be applied. A later write to the same blocks comes after it: its `oldest` says that nobody
//! waits for the former any more, and whoever finds that one on its way, or parked, drops it.

use crate::gateway::{Gateway, Under};
use crate::parts::{Lane, PartId};
use azekura_base::{IoStatus, PgId};
use std::collections::BTreeSet;
use std::time::Duration;

/// Times that a part's wait starts anew.
pub(crate) const CHANCES_MAX: u8 = 3;
/// A part that was with a copy for so long was not refused when it arrived.
const TAKEN_AFTER: Duration = Duration::from_secs(1);
/// A volume is stuck when a part of it has waited for so long.
const STUCK_AFTER: Duration = Duration::from_secs(1);

impl Under {
    /// Something new: the wait starts anew.
    pub(crate) fn gets_chance(&mut self, now: Duration) {
        if self.chances < CHANCES_MAX && now > self.waits_since {
            self.chances += 1;
            self.waits_since = now;
        }
    }

    /// A copy that may have had the part for a while gives it back.
    pub(crate) fn given_back(&mut self, now: Duration) {
        if now >= self.sent_at + TAKEN_AFTER {
            self.gets_chance(now);
        }
    }

    /// Since when the part waits for a group that serves nobody, or not it.
    fn waits_since(&self, lane: Option<&Lane>) -> Duration {
        let answered = lane.map_or(Duration::ZERO, |l| if self.is_write() { l.wrote_at } else { l.read_at });
        let is_queued = self.at.is_some() || self.in_backlog;
        if is_queued { self.waits_since.max(answered) } else { self.waits_since }
    }
}

impl Gateway {
    /// The time that requests on the part's volume wait for a group; `None`: for ever.
    fn io_timeout(&self, under: &Under) -> Option<Duration> {
        self.by_id.get(&under.volume).and_then(|volume| volume.io_timeout)
    }

    /// The part was refused: true when it has waited for too long, and its request is answered now.
    pub(crate) fn gives_up(&mut self, id: PartId) -> bool {
        let Some(under) = self.parts.get(id) else { return true };
        let is_over = self.io_timeout(under).is_some_and(|bound| self.now >= under.waits_since + bound);
        if is_over {
            self.end_ops(BTreeSet::from([under.op]), IoStatus::Io);
        }
        is_over
    }

    /// Ends requests that have waited for too long, and notes which volumes are waiting.
    pub(crate) fn look_for_stuck(&mut self) {
        let now = self.now;
        let mut over = BTreeSet::new();
        let mut stuck = BTreeSet::new();
        let lanes = &self.parts.lanes;
        let backlog = lanes.values().flat_map(|lane| &lane.backlog);
        for under in self.parts.iter().map(|(_, under)| under).chain(backlog) {
            let since = under.waits_since(lanes.get(&under.pg));
            if now < since + STUCK_AFTER {
                continue;
            }
            stuck.insert(under.volume);
            if self.io_timeout(under).is_some_and(|bound| now >= since + bound) {
                over.insert(under.op);
            }
        }
        self.room.stuck = stuck;
        self.end_ops(over, IoStatus::Io);
    }

    /// These groups have other primaries than before, or are reached again: who waits for them gets another chance.
    pub(crate) fn new_chance(&mut self, at: impl Fn(PgId) -> bool) {
        let now = self.now;
        let numbered = self.parts.iter_mut().map(|(_, under)| under);
        numbered.filter(|under| at(under.pg)).for_each(|under| under.gets_chance(now));
        let lanes = self.parts.lanes.values_mut();
        lanes.flat_map(|l| &mut l.backlog).filter(|under| at(under.pg)).for_each(|under| under.gets_chance(now));
    }

    /// A copy answered a part with anything but a refusal.
    pub(crate) fn note_answer(&mut self, id: PartId) {
        let now = self.now;
        let Some(pg) = self.parts.get(id).map(|under| under.pg) else { return };
        let lane = self.parts.lane(pg);
        *(if id.is_write() { &mut lane.wrote_at } else { &mut lane.read_at }) = now;
    }
}
