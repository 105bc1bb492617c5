//! One placement group: its epoch, its commit point, and the writes that are not applied to the map yet.

mod replayed;

use crate::checkpoint::GroupRow;
use crate::groups::pending::{Pending, Place};
use crate::groups::requests::Requests;
use crate::record::{GroupState, Repair};
use azekura_base::{Body, Epoch, PgId, Prepared, RequestId, Sequence, SessionId, Write};
use bytes::Bytes;
use std::collections::VecDeque;

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Group {
    epoch: Epoch,
    /// The last epoch whose start is durable.
    epoch_durable: Epoch,
    committed: Sequence,
    /// The log durably holds the group's writes up to here.
    durable_end: Sequence,
    prepared_end: Sequence,
    /// Complete up to here only; `None`: up to the commit point.
    incomplete: Option<Sequence>,
    /// As of what is durable.
    incomplete_durable: Option<Sequence>,
    /// The copy is of a map that was made from the log alone, and has not been compared with another one since.
    unproven: bool,
    /// All of it is to be given up: nothing may be appended any more.
    forgetting: bool,
    /// The record that says so is durable: nothing is done to the group's leaves any more but to remove them. Until
    /// then a crash may bring the group back, with all that it had committed.
    forgotten: bool,
    /// Ordered by sequence, without gaps except across a jump of the commit point.
    pending: VecDeque<Pending>,
    note: Bytes,
    note_version: u64,
    /// The commit point when each repair was appended that is not in a batch yet. Nothing that goes into the log before
    /// such a repair may say more than that is committed: replay would take the commit for the earlier of the two.
    repairs_waiting: VecDeque<Sequence>,
    /// Replay has seen a write or an epoch of the group.
    replayed: bool,
    /// Who asked for the writes that replay has committed since the note was given.
    replayed_requests: Requests,
    /// The commit point of the last checkpoint, until replay has ended.
    committed_saved: Sequence,
}

impl Group {
    pub fn state(&self) -> GroupState {
        GroupState {
            epoch: self.epoch,
            committed: self.committed,
            prepared_end: self.prepared_end,
            complete: self.incomplete.unwrap_or(self.committed),
            unproven: self.unproven,
        }
    }

    /// Everything up to here is committed.
    pub fn committed(&self) -> Sequence {
        self.committed
    }

    /// The last write that was prepared.
    pub fn prepared_end(&self) -> Sequence {
        self.prepared_end
    }

    /// All of it is to be given up: nothing may be appended any more.
    pub fn is_forgetting(&self) -> bool {
        self.forgetting
    }

    /// The record that says so is durable: nothing is done to the group's leaves any more but to remove them.
    pub fn is_forgotten(&self) -> bool {
        self.forgotten
    }

    /// Writes that are not applied, or not trimmed yet, in order.
    pub fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter()
    }

    /// No write waits to be applied.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    pub fn note(&self) -> &Bytes {
        &self.note
    }

    /// Who asked for the writes that replay has committed since the note was given.
    pub fn replayed_requests(&self) -> &Requests {
        &self.replayed_requests
    }

    /// The commit point as far as it is known: at replay, the checkpoint's may be ahead.
    pub fn known_committed(&self) -> Sequence {
        self.committed.max(self.committed_saved)
    }

    /// The group as a checkpoint saves it, but for its pending writes.
    pub fn row(&self, pg: PgId) -> GroupRow {
        GroupRow {
            pg,
            epoch: self.epoch_durable,
            committed: self.committed_durable().max(self.committed_saved),
            complete: self.incomplete_durable,
            unproven: self.unproven,
            note_version: self.note_version,
            note: self.note.clone(),
            pending: Vec::new(),
            requests: self.replayed_requests.clone(),
        }
    }

    /// Commits up to `upto`, and gives the commit point before.
    pub fn advance(&mut self, upto: Sequence) -> Sequence {
        let before = self.committed;
        self.committed = before.max(upto);
        before
    }

    /// Names a write that replay commits.
    pub fn name_request(&mut self, session: SessionId, request: RequestId) {
        self.replayed_requests.committed(session, request);
    }

    /// An epoch is to begin; with `jump`, what the group lacks comes later. Gives the commit point until now, and up to
    /// where the group is complete.
    ///
    /// # Panics
    /// When `epoch` or `committed` would go back.
    pub fn check_epoch(
        &mut self,
        pg: PgId,
        epoch: Epoch,
        committed: Sequence,
        jump: bool,
    ) -> (Sequence, Option<Sequence>) {
        assert!(!self.forgetting, "an epoch of group {pg}, which is being forgotten");
        assert!(epoch >= self.epoch, "epoch {epoch} of group {pg} after {}", self.epoch);
        assert!(committed >= self.committed, "group {pg} can't go back from {} to {committed}", self.committed);
        if jump {
            self.incomplete.get_or_insert(self.committed);
        }
        (self.committed, self.incomplete)
    }

    /// The epoch begins. Gives up to where what is prepared is kept.
    pub fn enter_epoch(&mut self, epoch: Epoch, committed: Sequence, jump: bool) -> Sequence {
        self.epoch = self.epoch.max(epoch);
        if jump { self.committed } else { committed }
    }

    /// The group holds all that it has committed.
    pub fn is_complete(&mut self) {
        self.incomplete = None;
    }

    /// The record that says that the copy is complete is durable.
    pub fn complete_is_durable(&mut self) {
        self.incomplete_durable = None;
        self.unproven = false;
    }

    /// The group is to be given up.
    pub fn start_forgetting(&mut self) {
        self.forgetting = true;
    }

    /// The record that gives the group up is durable. Gives what the group had not committed.
    pub fn forget(&mut self) -> Vec<Pending> {
        (self.forgetting, self.forgotten) = (true, true);
        self.drop_after(self.committed, self.committed)
    }

    /// A repair that was appended is in a batch.
    pub fn repair_placed(&mut self) {
        self.repairs_waiting.pop_front();
    }

    /// A write is appended: the next one, and of this epoch.
    ///
    /// # Panics
    /// When the write is not.
    pub fn prepare(&mut self, id: u64, write: &Write) {
        let header = write.header;
        assert_eq!(header.sequence, self.prepared_end.next(), "writes of group {} out of order", header.pg);
        assert!(!self.forgetting, "a write of group {}, which is being forgotten", header.pg);
        assert_eq!(header.epoch, self.epoch, "a write of group {} in an epoch that was not started", header.pg);
        assert!(header.commit < header.sequence, "a write can't be committed before it is sent");
        let (checksums, bytes) = match &write.body {
            Body::Data { bytes, checksums } => (Some(checksums.clone()), Some(bytes.clone())),
            Body::Zero => (None, None),
            Body::Lost { .. } => panic!("a write of group {} of what is lost", header.pg),
        };
        self.prepared_end = header.sequence;
        self.pending.push_back(Pending {
            info: Prepared { header, zero: bytes.is_none(), durable: false },
            id,
            checksums,
            written: None,
            bytes,
            applied: false,
        });
    }

    /// A repair is appended.
    ///
    /// # Panics
    /// When it is ahead of the group.
    pub fn prepare_repair(&mut self, repair: &Repair) {
        assert!(!self.forgetting, "a repair for group {}, which is being forgotten", repair.pg);
        let committed = self.committed;
        assert!(committed >= repair.sequence, "a repair at {} is ahead of {committed}", repair.sequence);
        self.repairs_waiting.push_back(committed);
    }

    /// The prepared, uncommitted writes, in order.
    pub fn uncommitted(&self) -> impl Iterator<Item = Prepared> + '_ {
        let start = self.pending.partition_point(|p| p.info.header.sequence <= self.committed);
        self.pending.range(start..).map(|p| p.info)
    }

    /// The append `id` of a write is durable.
    pub fn write_is_durable(&mut self, sequence: Sequence, id: u64) {
        if let Some(pending) = self.find(sequence).filter(|p| p.id == id) {
            pending.bytes = None;
            pending.info.durable = true;
            self.durable_end = sequence;
        }
    }

    /// The start of an epoch is durable.
    pub fn epoch_is_durable(&mut self, epoch: Epoch, committed: Sequence, incomplete: Option<Sequence>) {
        self.epoch_durable = self.epoch_durable.max(epoch);
        self.incomplete_durable = incomplete;
        // A later epoch may have begun since: the later one keeps all that this one has committed.
        self.durable_end = self.durable_end.max(committed);
    }

    /// Drops the writes after `keep`, and gives them; the commit point is `committed` now.
    pub fn drop_after(&mut self, keep: Sequence, committed: Sequence) -> Vec<Pending> {
        let kept = self.pending.partition_point(|p| p.info.header.sequence <= keep);
        let dropped = self.pending.split_off(kept).into();
        self.committed = committed;
        self.prepared_end = committed;
        self.durable_end = self.durable_end.min(keep);
        dropped
    }

    /// A write was applied, or passed over: nothing of it is needed any more.
    pub fn applied(&mut self, sequence: Sequence) {
        if let Some(pending) = self.find(sequence) {
            pending.applied = true;
            pending.bytes = None;
        }
        self.trim();
    }

    /// Keeps a note, which names all that was committed until now. Gives its version.
    pub fn take_note(&mut self, note: Bytes) -> u64 {
        self.note = note;
        self.note_version += 1;
        self.replayed_requests.clear();
        self.note_version
    }

    fn index(&self, sequence: Sequence) -> Option<usize> {
        let front = self.pending.front()?.info.header.sequence;
        let guess = usize::try_from(sequence.0.checked_sub(front.0)?).ok()?;
        if self.pending.get(guess).is_some_and(|p| p.info.header.sequence == sequence) {
            return Some(guess);
        }
        let index = self.pending.partition_point(|p| p.info.header.sequence < sequence);
        self.pending.get(index).is_some_and(|p| p.info.header.sequence == sequence).then_some(index)
    }

    /// The first write with a sequence above `sequence`.
    pub fn first_after(&self, sequence: Sequence) -> Option<&Pending> {
        let index = match self.index(sequence) {
            Some(index) => index + 1,
            None => self.pending.partition_point(|p| p.info.header.sequence <= sequence),
        };
        self.pending.get(index)
    }

    /// Where the blocks of a write are, once it is in a batch.
    pub fn place(&self, sequence: Sequence) -> Option<Place> {
        Some(self.pending.get(self.index(sequence)?)?.written?.place)
    }

    pub fn find(&mut self, sequence: Sequence) -> Option<&mut Pending> {
        let index = self.index(sequence)?;
        self.pending.get_mut(index)
    }

    /// Forgets applied writes at the front.
    fn trim(&mut self) {
        while self.pending.front().is_some_and(|p| p.applied) {
            self.pending.pop_front();
        }
    }

    /// The commit point that a record may tell which goes into the log now, ahead of all that waits.
    pub fn committed_ahead(&self) -> Sequence {
        let before = self.repairs_waiting.front().copied();
        self.committed_durable().min(before.unwrap_or(self.committed))
    }

    /// The commit point that a checkpoint may save: nothing that the log could still lose.
    pub fn committed_durable(&self) -> Sequence {
        self.committed.min(self.durable_end)
    }
}
