//! The ends of effects: each goes to the part that asked for it.

use crate::cx::Io;
use crate::effect::{Completion, Done, Failure, IoId, MapError};
use crate::report::Report;
use crate::store::Store;

impl Store {
    pub(super) fn ended(&mut self, io: IoId, what: Io, done: Done) {
        match (what, done) {
            (Io::Batch, Done::Written(Ok(()))) => {
                if !self.cx().has_failed() {
                    self.batch_written(io);
                    self.seal_batches();
                }
            }
            (Io::Moves, Done::Written(Ok(()))) => {
                if !self.cx().has_failed() {
                    self.engine.moves_written(io);
                    self.seal_batches();
                }
            }
            (Io::Batch | Io::Moves, Done::Written(Err(error))) => self.engine.cx_mut().fail(Failure::Device(error)),
            (Io::Fetch(fetch), Done::Read(result)) => {
                if self.engine.fetched(fetch, result) {
                    self.seal_batches();
                }
            }
            (Io::Leaves(keys), Done::Leaves(result)) => {
                self.engine.leaves_loaded(&keys, result);
                self.replay_goes_on();
            }
            (Io::Checkpoint, Done::Checkpointed(result)) => {
                self.checkpoint_saved(result);
                self.seal_batches();
            }
            (Io::Recovery, Done::Read(result)) => self.recovery_read(result),
            (Io::Recovery, Done::Flushed(result)) => self.recovery_flushed(result),
            (Io::Job(job), Done::Layer(result)) => self.engine.job_listed(job, result),
            (Io::Job(job), Done::Modified(result)) => {
                let keys = result.map(|listed| listed.into_iter().map(|(key, _)| key).collect());
                self.engine.job_listed(job, keys);
            }
            (Io::Measure(token), Done::Layer(result)) => self.engine.measure_listed(token, result),
            (Io::Comparison(token), Done::Modified(result)) => self.engine.differences_listed(token, result),
            (Io::Changed(query), Done::Modified(result)) => self.engine.changed_listed(&query, result),
            (Io::MergedOwners(victim), Done::MergedOwners(result)) => {
                self.engine.merged_owners_listed(victim, result);
                self.seal_batches();
            }
            (Io::Totals(pg), Done::Totals(result)) => {
                if let Ok(Some(what)) = result {
                    self.engine.cx_mut().report(Report::RowsLost { pg, what });
                }
            }
            (Io::Clean, Done::Read(result)) => {
                self.engine.cleaner_has_read(io, result);
                self.seal_batches();
            }
            (what, done) => panic!("{what:?} can't end with {done:?}"),
        }
    }

    /// A batch write ended. Batches become durable in order.
    fn batch_written(&mut self, io: IoId) {
        self.log.on_written(io);
        let mut advanced = false;
        while let Some(records) = self.log.next_durable(self.engine.cx_mut()) {
            advanced = true;
            for (token, record) in records {
                self.engine.record_is_durable(record);
                if let Some(token) = token {
                    self.engine.cx_mut().complete(Completion::Durable { token });
                }
            }
        }
        if advanced {
            self.engine.more_is_durable();
        }
    }

    /// The saved map has, or has not, done the transaction.
    fn checkpoint_saved(&mut self, result: Result<(), MapError>) {
        let Some(saved) = self.checkpointer.on_saved(self.engine.cx_mut(), result) else { return };
        self.engine.checkpointed(&saved);
        if self.cx().is_running() {
            self.engine.cx_mut().complete(Completion::Checkpointed);
        }
        self.opening_checkpointed();
    }
}
