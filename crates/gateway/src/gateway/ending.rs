//! Requests that end before all their parts are answered: their attachment has ended, their volume is gone, or they
//! have waited for too long (docs/decisions/0018).
//!
//! Such a request is answered with an error, all of it, and no part of it is sent again. A part that was sent before
//! may still be applied. A later write to the same blocks comes after it: its `oldest` says that nobody waits for the
//! former any more, and whoever finds that one on its way, or parked, drops it. Other shards of the process, which have
//! numbers of their own, wait with theirs (`settling.rs`).

use super::Gateway;
use crate::operations::OpId;
use crate::parts::{InFlight, PartId};
use azekura_base::{Generation, IoStatus, PgId, VolumeId};
use std::collections::BTreeSet;
use std::time::Duration;

/// A volume is stuck when a part of it has waited for so long (0018).
const STUCK_AFTER: Duration = Duration::from_secs(1);

impl Gateway {
    /// Fails all requests under attachments that have ended. What was sent for them is refused where it arrives.
    pub fn end_attachments(&mut self, ended: impl Fn(VolumeId, Generation) -> bool) {
        self.end_requests(self.operations.on(&ended), IoStatus::Fenced);
        self.forget_given_up(ended);
    }

    /// Fails what was asked of volumes that are not there any more.
    pub(super) fn end_deleted(&mut self) {
        let over = self.operations.on(|volume, _| self.directory.volume(volume).is_none());
        self.end_requests(over, IoStatus::Gone);
        let given_up = self.parts.given_up_volumes();
        let gone: BTreeSet<VolumeId> = given_up.into_iter().filter(|id| self.directory.volume(*id).is_none()).collect();
        self.forget_given_up(|volume, _| gone.contains(&volume));
    }

    /// The part was refused: true when it has waited for too long, and its request is answered now.
    pub(super) fn gives_up(&mut self, id: PartId) -> bool {
        let Some(in_flight) = self.parts.get(id) else { return true };
        let is_over = self.io_timeout(in_flight).is_some_and(|bound| self.now >= in_flight.waits_since() + bound);
        if is_over {
            self.end_requests(BTreeSet::from([in_flight.wanted().op]), IoStatus::Io);
        }
        is_over
    }

    /// Ends requests that have waited for too long, and notes which volumes are waiting.
    pub(super) fn look_for_stuck(&mut self) {
        let now = self.now;
        let mut over = BTreeSet::new();
        let mut stuck = BTreeSet::new();
        for (in_flight, since) in self.parts.waits().filter(|(_, since)| now >= *since + STUCK_AFTER) {
            stuck.insert(in_flight.wanted().volume);
            if self.io_timeout(in_flight).is_some_and(|bound| now >= since + bound) {
                over.insert(in_flight.wanted().op);
            }
        }
        self.room.set_stuck(stuck);
        self.end_requests(over, IoStatus::Io);
    }

    /// The time that requests on the part's volume wait for a group; `None`: for ever.
    fn io_timeout(&self, in_flight: &InFlight) -> Option<Duration> {
        if in_flight.is_to_settle() {
            return None;
        }
        self.directory.volume(in_flight.wanted().volume).and_then(|volume| volume.io_timeout)
    }

    /// Answers these requests with an error. None of their parts is sent again.
    fn end_requests(&mut self, over: BTreeSet<OpId>, why: IoStatus) {
        if over.is_empty() {
            return;
        }
        let (numbered, backlog) = self.parts.extract(|in_flight| over.contains(&in_flight.wanted().op));
        backlog.iter().for_each(|in_flight| self.room.numbered(in_flight.wanted().volume));
        let parts = numbered.iter().map(|(_, in_flight)| in_flight).chain(&backlog);
        parts.for_each(|in_flight| self.room.give(in_flight));
        if why == IoStatus::Io {
            self.gives_up_writes(&numbered);
        }
        for op in over {
            self.operations.give_up(op, why);
            self.complete_if_done(op);
        }
        let orphans = numbered.iter().map(|(_, in_flight)| in_flight).chain(&backlog).filter(|part| part.is_orphan());
        orphans.for_each(|part| self.note_settled(part.wanted().pg, part.wanted().volume));
        self.settle();
        let groups: Vec<PgId> = self.parts.groups().collect();
        groups.into_iter().for_each(|pg| self.start_backlog(pg));
    }
}
