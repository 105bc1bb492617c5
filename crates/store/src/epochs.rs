//! Epochs of a group: what was prepared and is not kept is dropped for good.

use crate::effect::Completion;
use crate::groups::Pending;
use crate::log::Item;
use crate::store::Store;
use azekura_base::{Epoch, PgId, Sequence};
use std::collections::BTreeSet;

impl Store {
    /// Starts `epoch` of `pg`, in which everything up to `committed` is committed and nothing after it exists. Prepared
    /// writes up to `committed` become visible, those after it are dropped for good. If `committed` is beyond what is
    /// prepared, the group's contents have come, or will come, as [`Record::Copy`]: then all prepared, uncommitted
    /// writes are dropped. [`Completion::Durable`] with `token` follows.
    ///
    /// # Panics
    /// When `epoch` or `committed` would go back.
    pub fn start_epoch(&mut self, token: u64, pg: PgId, epoch: Epoch, committed: Sequence) {
        if !self.cx.is_running() {
            return;
        }
        let jump = committed > self.groups.get_mut(pg).prepared_end;
        self.record_epoch(token, pg, epoch, committed, jump);
    }

    /// Starts `epoch` of `pg` on a copy that is to be brought up to date from another one: all its prepared,
    /// uncommitted writes are dropped, its commit point becomes `committed`, and what it lacks comes as
    /// [`Record::Copy`] and [`Record::Mark`]. [`GroupState::complete`] stays where it is until [`Store::set_complete`].
    /// [`Completion::Durable`] with `token` follows.
    ///
    /// # Panics
    /// When `epoch` or `committed` would go back.
    pub fn rejoin(&mut self, token: u64, pg: PgId, epoch: Epoch, committed: Sequence) {
        if self.cx.is_running() {
            self.record_epoch(token, pg, epoch, committed, true);
        }
    }

    /// Says that `pg` holds all that it has committed: [`GroupState::complete`] follows the commit point from here on.
    /// [`Completion::Durable`] with `token` follows, not before all that was appended until now is durable.
    pub fn set_complete(&mut self, token: u64, pg: PgId) {
        if !self.cx.is_running() {
            return;
        }
        self.groups.get_mut(pg).incomplete = None;
        let id = self.cx.new_id();
        self.log.push(id, Some(token), Item::Complete { pg });
    }

    fn record_epoch(&mut self, token: u64, pg: PgId, epoch: Epoch, committed: Sequence, jump: bool) {
        let group = self.groups.get_mut(pg);
        assert!(!group.forgetting, "an epoch of group {pg}, which is being forgotten");
        assert!(epoch >= group.epoch, "epoch {epoch} of group {pg} after {}", group.epoch);
        assert!(committed >= group.committed, "group {pg} can't go back from {} to {committed}", group.committed);
        let committed_before = group.committed;
        if jump {
            group.incomplete.get_or_insert(committed_before);
        }
        let incomplete = group.incomplete;
        let dropped = self.enter_epoch(pg, epoch, committed, jump).into_iter();
        let (dropped, waiting): (Vec<_>, Vec<_>) = dropped.partition(|pending| pending.place.is_some());
        self.forget_queued(&waiting);
        let id = self.cx.new_id();
        let generation = self.cx.log().generation();
        self.groups.epoch_begins(id, pg, generation, dropped);
        let item = Item::Epoch { pg, epoch, committed_before, committed, jump, incomplete };
        self.log.push(id, Some(token), item);
    }

    /// With `jump`, `committed` is beyond what is prepared. Gives the writes that are dropped; they still pin their
    /// segments.
    pub(crate) fn enter_epoch(&mut self, pg: PgId, epoch: Epoch, committed: Sequence, jump: bool) -> Vec<Pending> {
        let group = self.groups.get_mut(pg);
        group.epoch = group.epoch.max(epoch);
        let keep = if jump { group.committed } else { committed };
        self.commit_upto(pg, keep);
        let group = self.groups.get_mut(pg);
        let kept = group.pending.partition_point(|p| p.info.header.sequence <= keep);
        let dropped = group.pending.split_off(kept).into();
        group.committed = committed;
        group.prepared_end = committed;
        group.durable_end = group.durable_end.min(keep);
        dropped
    }

    /// Takes dropped writes out of the queue that no batch has taken: a copy that is brought up to date again and again
    /// while its device is full would queue ever more of them.
    fn forget_queued(&mut self, dropped: &[Pending]) {
        if dropped.is_empty() {
            return;
        }
        let dropped: BTreeSet<u64> = dropped.iter().map(|pending| pending.id).collect();
        for token in self.log.forget(&dropped) {
            self.cx.complete(Completion::Dropped { token });
        }
    }
}
