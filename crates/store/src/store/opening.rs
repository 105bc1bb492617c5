//! Opening: what the scan of the log has found is replayed, the leaves that it needs are waited for, and a new
//! incarnation is saved.

use crate::checkpoint::Root;
use crate::effect::{DeviceError, OpenError};
use crate::recovery::{Found, Recovery, Replay};
use crate::store::Store;
use bytes::Bytes;

impl Store {
    /// Restores what the checkpoint knows, and begins to read the log.
    pub(super) fn start_opening(&mut self, root: Root) {
        let theirs = root.identity;
        self.replay().restore(root);
        let cx = self.engine.cx_mut();
        if let Some(problem) = cx.options().problem() {
            cx.fail_open(OpenError::Options(problem));
        } else if theirs != *cx.identity() {
            cx.fail_open(OpenError::Identity("the map belongs to another device or cluster".into()));
        } else if let Some(recovery) = &mut self.recovery {
            recovery.start(cx);
        }
    }

    fn replay(&mut self) -> Replay<'_> {
        Replay { engine: &mut self.engine, log: &mut self.log }
    }

    /// The scan, while it goes on.
    fn recovery(&mut self) -> Option<&mut Recovery> {
        self.recovery.as_deref_mut().filter(|_| self.engine.cx().is_recovering())
    }

    /// A read that the scan asked for has ended.
    pub(super) fn recovery_read(&mut self, result: Result<Bytes, DeviceError>) {
        let is_recovering = self.cx().is_recovering();
        let Some(recovery) = self.recovery.as_deref_mut().filter(|_| is_recovering) else { return };
        let found = recovery.on_read(self.engine.cx_mut(), result);
        self.has_found(found);
    }

    fn has_found(&mut self, found: Result<Found, OpenError>) {
        let replayed = match found {
            Ok(Found::Nothing) => return,
            Ok(Found::Segment(link, summary)) => self.replay().segment(link, &summary),
            Ok(Found::Tail(first, tail)) => self.replay().tail(first, &tail),
            Err(error) => Err(error),
        };
        match replayed {
            Ok(()) => self.replay_goes_on(),
            Err(error) => self.engine.cx_mut().fail_open(error),
        }
    }

    /// Goes on with the next segment once the leaves of the last are settled and memory allows.
    pub(super) fn replay_goes_on(&mut self) {
        if self.cx().is_recovering() {
            self.engine.settle();
        }
        let idle = self.engine.has_settled() && !self.checkpointer.is_saving();
        let leaves_max = self.cx().options().checkpoint_leaves_max;
        let full = self.engine.map().dirty_bytes() > self.cx().options().leaf_cache_bytes_max / 2;
        let is_recovering = self.cx().is_recovering();
        let Some(recovery) = self.recovery.as_deref_mut().filter(|_| is_recovering) else { return };
        if !idle || !recovery.waits_for_leaves() {
            return;
        }
        if recovery.has_ended() {
            return match recovery.flush(self.engine.cx_mut()) {
                Ok(true) => {}
                Ok(false) => self.save_incarnation(),
                Err(error) => self.engine.cx_mut().fail_open(error),
            };
        }
        if full {
            return self.checkpointer.begin(self.engine.sources(), leaves_max, |_| None);
        }
        let found = recovery.go_on(self.engine.cx_mut());
        self.has_found(Ok(found));
    }

    /// What was read is on stable storage: what is handed out from here on can't be lost.
    pub(super) fn recovery_flushed(&mut self, result: Result<(), DeviceError>) {
        match result {
            Ok(()) => self.save_incarnation(),
            Err(error) => self.engine.cx_mut().fail_open(OpenError::Device(error)),
        }
    }

    fn save_incarnation(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.begin_incarnation(self.engine.cx_mut());
        }
        self.checkpointer.begin(self.engine.sources(), 0, |_| None);
    }

    /// A checkpoint has been saved.
    pub(super) fn opening_checkpointed(&mut self) {
        match self.recovery() {
            Some(recovery) if recovery.waits_for_checkpoint() => {
                self.recovery = None;
                self.engine.cx_mut().start_running();
                self.engine.run_jobs();
            }
            Some(_) => self.replay_goes_on(),
            None => {}
        }
    }
}
