//! What is durable: the records of a batch do what they are there for.

use crate::effect::{Completion, IoId};
use crate::log::{Landing, Sealing};
use crate::store::Store;

impl Store {
    /// Seals waiting records into batches, as many as may be in flight.
    pub(crate) fn seal_batches(&mut self) {
        let Store { cx, groups, copies, cleaner, jobs, cache, checkpointer, log, .. } = self;
        let is_saving = checkpointer.is_saving();
        log.seal_batches(&mut Sealing { cx, groups, copies, cleaner, jobs, cache, is_saving });
    }

    /// A batch write ended. Batches become durable in order.
    pub(crate) fn batch_written(&mut self, io: IoId) {
        self.log.on_written(io);
        let mut advanced = false;
        while let Some(landings) = self.log.next_durable(&mut self.cx) {
            advanced = true;
            for (token, landing) in landings {
                self.land(landing);
                if let Some(token) = token {
                    self.cx.complete(Completion::Durable { token });
                }
            }
        }
        if advanced {
            self.cleaner.may_retry();
            self.run_blocked();
        }
    }

    fn land(&mut self, landing: Landing) {
        match landing {
            Landing::Write { pg, sequence, id } => {
                let group = self.groups.get_mut(pg);
                if let Some(pending) = group.find(sequence).filter(|p| p.id == id) {
                    pending.bytes = None;
                    pending.info.durable = true;
                    group.durable_end = sequence;
                }
            }
            Landing::Copy | Landing::Note => {}
            Landing::Relocate { moved, place, position } => self.relocate(moved, place, position),
            Landing::WriteAgain { pg, sequence, id, place, count } => {
                let waits = self.groups.get_mut(pg).find(sequence).is_some_and(|p| p.id == id && !p.applied);
                if waits {
                    self.groups.write_moved(self.cx.segments_mut(), pg, sequence, id, place);
                } else {
                    self.cx.segments_mut().unpin(place.segment, u32::from(count));
                }
            }
            Landing::Epoch { id, pg, epoch, committed, incomplete } => {
                for pending in self.groups.epoch_has_begun(id) {
                    pending.unpin(self.cx.segments_mut());
                }
                let group = self.groups.get_mut(pg);
                group.epoch_durable = group.epoch_durable.max(epoch);
                group.incomplete_durable = incomplete;
                // A later epoch may have begun since: it keeps all that this one has committed.
                group.durable_end = group.durable_end.max(committed);
            }
            Landing::Complete { pg } => self.groups.get_mut(pg).incomplete_durable = None,
            Landing::Job { job, segment } => self.begin_job(job, segment),
        }
    }
}
