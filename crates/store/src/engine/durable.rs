//! What the records of a batch do once they are durable.

use crate::engine::Engine;
use crate::engine::op::Op;
use crate::groups::Place;
use crate::log::{DurableRecord, Move};
use crate::record::Repair;
use azekura_base::{PgId, Sequence};

impl Engine {
    /// A record is durable. When this was called for all of a batch, [`Engine::more_is_durable`] is to be called.
    pub fn record_is_durable(&mut self, record: DurableRecord) {
        match record {
            DurableRecord::Write { pg, sequence, id } => self.groups.get_mut(pg).write_is_durable(sequence, id),
            DurableRecord::Repair | DurableRecord::Note => {}
            DurableRecord::Relocate { moved, place, position } => self.relocate(moved, place, position),
            DurableRecord::WriteAgain { pg, sequence, id, place, count } => {
                let waits = self.groups.get_mut(pg).find(sequence).is_some_and(|p| p.id == id && !p.applied);
                if waits {
                    self.write_moved(pg, sequence, id, place);
                } else {
                    self.cx.segments_mut().unpin(place.segment, u32::from(count));
                }
            }
            DurableRecord::Epoch { id, pg, epoch, committed, incomplete } => {
                for pending in self.groups.epoch_has_begun(id) {
                    pending.unpin(self.cx.segments_mut());
                }
                self.groups.get_mut(pg).epoch_is_durable(epoch, committed, incomplete);
            }
            DurableRecord::Complete { pg } => self.groups.get_mut(pg).complete_is_durable(),
            DurableRecord::Job { job, segment } => self.begin_job(job, segment),
        }
    }

    /// Goes on with what waited for that.
    pub fn more_is_durable(&mut self) {
        self.cleaner.may_retry();
        self.run_blocked();
    }

    /// A repair that is in the log already, at log position `position`.
    pub fn add_repair(&mut self, repair: Repair, place: Place, position: u64) {
        let id = self.cx.new_id();
        let chunk = (repair.pg, repair.range.chunk);
        self.repairs.add(id, repair, Some((place, position)));
        self.cx.segments_mut().hold(place.segment);
        self.submit(chunk, Op::Repair { id });
    }

    /// The blocks of a write that was not applied are durably at `place` as well, and pinned there.
    pub fn write_moved(&mut self, pg: PgId, sequence: Sequence, id: u64, place: Place) {
        self.groups.write_moved(self.cx.segments_mut(), pg, sequence, id, place);
    }

    /// Blocks have durably been moved.
    pub fn relocate(&mut self, moved: Move, place: Place, position: u64) {
        self.submit_ahead((moved.pg, moved.range.chunk), position, Op::Relocate { moved, place, position });
    }
}
