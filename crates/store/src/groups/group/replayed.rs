//! What replay finds out of a group.

use crate::checkpoint::GroupRow;
use crate::groups::group::Group;
use crate::groups::pending::Pending;
use azekura_base::Sequence;
use bytes::Bytes;

impl Group {
    /// Takes up what the checkpoint knows, but for pending writes.
    pub fn restore(&mut self, row: GroupRow) {
        (self.epoch, self.epoch_durable) = (row.epoch, row.epoch);
        self.committed_saved = row.committed;
        (self.incomplete, self.unproven) = (row.complete, row.unproven);
        self.note = row.note;
        self.note_version = row.note_version;
        self.replayed_requests = row.requests;
    }

    /// Takes up a write that the checkpoint has kept.
    pub fn restore_write(&mut self, pending: Pending) {
        let sequence = pending.info.header.sequence;
        if !self.replayed {
            self.replayed = true;
            self.committed = Sequence(sequence.0.saturating_sub(1));
        }
        self.add_replayed(pending);
    }

    fn add_replayed(&mut self, pending: Pending) {
        let header = &pending.info.header;
        self.prepared_end = header.sequence;
        self.durable_end = header.sequence;
        self.epoch = self.epoch.max(header.epoch);
        self.pending.push_back(pending);
    }

    /// The group was being given up when the checkpoint was saved.
    pub fn restore_forgotten(&mut self) {
        (self.forgetting, self.forgotten) = (true, true);
    }

    /// A write is in the log.
    ///
    /// # Errors
    /// The write that it would follow, which can't be.
    pub fn replay_write(&mut self, pending: Pending) -> Result<(), Sequence> {
        let header = &pending.info.header;
        let sequence = header.sequence;
        if !self.replayed {
            // What came before the replayed part of the log was applied or dropped.
            self.replayed = true;
            self.committed = Sequence(sequence.0.saturating_sub(1));
            self.prepared_end = self.committed;
        }
        // A gap is what a jump of the commit point left, before the replayed part of the log, or what a later epoch has
        // dropped: then the record that starts that epoch comes further on, and drops this write too.
        let dropped = header.epoch < self.epoch_durable;
        let jumped = sequence > self.prepared_end && (dropped || self.committed_saved.next() >= sequence);
        if sequence != self.prepared_end.next() && !jumped {
            return Err(self.prepared_end);
        }
        self.add_replayed(pending);
        Ok(())
    }

    /// A note is in the log.
    pub fn replay_note(&mut self, version: u64, note: &[u8]) {
        if version > self.note_version {
            self.note_version = version;
            self.note = Bytes::copy_from_slice(note);
        }
    }

    /// An epoch that begins with a jump from `committed_before` is in the log.
    pub fn replay_jump(&mut self, committed_before: Sequence) {
        self.incomplete.get_or_insert(committed_before);
    }

    /// An epoch that is in the log has begun.
    pub fn replayed_epoch(&mut self) {
        self.replayed = true;
        self.durable_end = self.prepared_end;
        self.epoch_durable = self.epoch;
    }

    /// All of the log has been replayed. Gives up to where the group's writes are to be committed, and whether the
    /// checkpoint knew of more than there are: [`Group::passed_over`] is to be called then.
    pub fn replay_has_ended(&mut self) -> (Sequence, Option<Sequence>) {
        let saved = std::mem::take(&mut self.committed_saved);
        if saved >= self.prepared_end {
            self.prepared_end = saved;
            let end = self.pending.back().map_or(Sequence::ZERO, |p| p.info.header.sequence);
            (end, Some(saved))
        } else {
            (saved, None)
        }
    }

    /// What is committed up to here is in the map, or will come from another copy.
    pub fn passed_over(&mut self, committed: Sequence) {
        self.committed = self.committed.max(committed);
    }

    /// What was replayed is durable.
    pub fn replayed_is_durable(&mut self) {
        self.durable_end = self.prepared_end;
        self.epoch_durable = self.epoch;
        self.incomplete_durable = self.incomplete;
        self.unproven &= self.incomplete.is_some();
    }
}
