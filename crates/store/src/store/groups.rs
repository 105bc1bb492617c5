//! Placement groups: what each has prepared and committed, its notes, its epochs, its end.

use crate::effect::Completion;
use crate::jobs::Job;
use crate::log::Item;
use crate::log::format::EntryHead;
use crate::record::GroupState;
use crate::store::Store;
use azekura_base::{Epoch, PgId, Prepared, RequestId, Sequence, SessionId};
use bytes::Bytes;

impl Store {
    /// Queues a record that has no payload.
    pub(super) fn push(&mut self, token: u64, item: Item) {
        let id = self.engine.cx_mut().new_id();
        self.log.push(id, Some(token), item);
    }

    /// How far `pg` is.
    #[must_use]
    pub fn group(&self, pg: PgId) -> GroupState {
        self.engine.groups().get(pg).map(|group| group.state()).unwrap_or_default()
    }

    /// All groups that the store has seen, in order.
    pub fn groups(&self) -> impl Iterator<Item = (PgId, GroupState)> + '_ {
        self.engine.groups().iter().map(|(pg, group)| (pg, group.state()))
    }

    /// The prepared, uncommitted writes of `pg`, in order.
    pub fn prepared(&self, pg: PgId) -> impl Iterator<Item = Prepared> + '_ {
        self.engine.groups().get(pg).into_iter().flat_map(|group| group.uncommitted())
    }

    /// Who asked for the writes of `pg` that openings have found committed since [`Store::note`] was given: of each
    /// session those that lie less than [`crate::REPLAYED_REQUESTS_MAX`] below its highest.
    pub fn replayed_requests(&self, pg: PgId) -> impl Iterator<Item = (SessionId, RequestId)> + '_ {
        self.engine.groups().get(pg).into_iter().flat_map(|group| group.replayed_requests().iter())
    }

    /// Keeps `note`, of at most 1 KiB, for `pg` in place of the last one. [`Completion::Durable`] with `token` follows.
    ///
    /// # Panics
    /// When the note is longer.
    pub fn set_note(&mut self, token: u64, pg: PgId, note: Bytes) {
        assert!(note.len() <= EntryHead::NOTE_BYTES_MAX, "a note of {} bytes", note.len());
        if !self.cx().is_running() {
            return;
        }
        let version = self.engine.groups_mut().get_mut(pg).take_note(note.clone());
        let item = Item::Note { pg, version, note };
        self.push(token, item);
    }

    /// The note kept for `pg`; empty when there is none.
    #[must_use]
    pub fn note(&self, pg: PgId) -> Bytes {
        self.engine.groups().get(pg).map(|group| group.note().clone()).unwrap_or_default()
    }

    /// Starts `epoch` of `pg`, in which everything up to `committed` is committed and nothing after it exists. Prepared
    /// writes up to `committed` become visible, those after it are dropped for good. If `committed` is beyond what is
    /// prepared, the group's contents have come, or will come, as [`crate::Repair`]: then all prepared, uncommitted
    /// writes are dropped. [`Completion::Durable`] with `token` follows.
    ///
    /// # Panics
    /// When `epoch` or `committed` would go back.
    pub fn start_epoch(&mut self, token: u64, pg: PgId, epoch: Epoch, committed: Sequence) {
        if !self.cx().is_running() {
            return;
        }
        let jump = committed > self.engine.groups_mut().get_mut(pg).prepared_end();
        self.record_epoch(token, pg, epoch, committed, jump);
    }

    /// Starts `epoch` of `pg` on a copy that is to be brought up to date from another one: all its prepared,
    /// uncommitted writes are dropped, its commit point becomes `committed`, and what it lacks comes as
    /// [`crate::Repair`] and [`crate::Mark`]. [`GroupState::complete`] stays where it is until [`Store::set_complete`].
    /// [`Completion::Durable`] with `token` follows.
    ///
    /// # Panics
    /// When `epoch` or `committed` would go back.
    pub fn rejoin(&mut self, token: u64, pg: PgId, epoch: Epoch, committed: Sequence) {
        if self.cx().is_running() {
            self.record_epoch(token, pg, epoch, committed, true);
        }
    }

    fn record_epoch(&mut self, token: u64, pg: PgId, epoch: Epoch, committed: Sequence, jump: bool) {
        let begun = self.engine.begin_epoch(pg, epoch, committed, jump);
        // A copy that is brought up to date again and again while its device is full would queue ever more of them.
        if !begun.never_written.is_empty() {
            for token in self.log.forget(&begun.never_written) {
                self.engine.cx_mut().complete(Completion::Dropped { token });
            }
        }
        self.log.push(begun.id, Some(token), begun.item);
    }

    /// Says that `pg` holds all that it has committed: [`GroupState::complete`] follows the commit point from here on.
    /// [`Completion::Durable`] with `token` follows, not before all that was appended until now is durable.
    pub fn set_complete(&mut self, token: u64, pg: PgId) {
        if !self.cx().is_running() {
            return;
        }
        self.engine.groups_mut().get_mut(pg).is_complete();
        self.push(token, Item::Complete { pg });
    }

    /// Gives up everything that this device holds of `pg`. [`Completion::Durable`] with `token` follows at once,
    /// [`crate::Report::Forgotten`] when all of it is gone; until then nothing may be appended for the group, or read
    /// of it.
    pub fn forget_group(&mut self, token: u64, pg: PgId) {
        if self.cx().is_running() {
            self.engine.groups_mut().get_mut(pg).start_forgetting();
            self.push(token, Item::Job { job: Job::ForgetGroup(pg) });
        }
    }

    /// The group is being given up.
    #[must_use]
    pub fn is_forgetting(&self, pg: PgId) -> bool {
        self.engine.groups().get(pg).is_some_and(|group| group.is_forgetting())
    }
}
