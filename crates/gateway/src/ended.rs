//! Requests that end before all their parts are answered: their attachment has ended, their volume is gone, or they
//! have waited for too long.

use crate::gateway::{Gateway, Running};
use azekura_base::{Generation, IoStatus, PgId, VolumeId};
use std::collections::BTreeSet;

impl Gateway {
    /// Fails all requests under attachments that have ended. What was sent for them is refused where it arrives.
    pub fn end_attachments(&mut self, ended: impl Fn(VolumeId, Generation) -> bool) {
        self.end_requests(ended, IoStatus::Fenced);
    }

    pub(crate) fn end_requests(&mut self, ended: impl Fn(VolumeId, Generation) -> bool, why: IoStatus) {
        let over = |(_, running): &(&u64, &Running)| ended(running.volume, running.attachment);
        let over: BTreeSet<u64> = self.ops.iter().filter(over).map(|(id, _)| *id).collect();
        self.end_ops(over, why);
    }

    /// Answers these requests with an error. None of their parts is sent again.
    pub(crate) fn end_ops(&mut self, over: BTreeSet<u64>, why: IoStatus) {
        if over.is_empty() {
            return;
        }
        let (numbered, backlog) = self.parts.extract(|under| over.contains(&under.op));
        backlog.iter().for_each(|under| self.room.numbered(under.volume));
        numbered.iter().chain(&backlog).for_each(|under| self.room.give(under));
        for op in over {
            if let Some(running) = self.ops.get_mut(&op) {
                running.failed = Some(why);
                running.left = 0;
            }
            self.finish_if_done(op);
        }
        let lanes: Vec<PgId> = self.parts.lanes.keys().copied().collect();
        lanes.into_iter().for_each(|pg| self.start_backlog(pg));
    }
}
