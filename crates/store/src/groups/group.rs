//! One placement group: epoch, commit point, and the writes that are not applied to the map yet.

use crate::groups::requests::Requests;
use crate::record::{Copy, GroupState};
use crate::segments::Segments;
use azekura_base::{Body, Checksums, Epoch, Prepared, Sequence, Write};
use bytes::Bytes;
use std::collections::VecDeque;

/// Where a record is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The batch's log sequence.
    pub log: u64,
    /// Block address of the first payload block; 0 when there is none.
    pub address: u32,
    pub segment: u32,
    pub generation: u64,
}

impl Place {
    /// Blocks of a write that is not applied yet are here.
    pub fn pin(self, segments: &mut Segments, count: u16) {
        if self.address != 0 {
            segments.pin(self.segment, u32::from(count));
        }
    }

    /// The write is applied, or dropped for good.
    pub fn unpin(self, segments: &mut Segments, count: u16) {
        if self.address != 0 {
            segments.unpin(self.segment, u32::from(count));
        }
    }
}

/// A write that is not applied yet: prepared, or committed and waiting for its leaf or for the device.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub info: Prepared,
    /// Names this append, so that a dropped write is not taken for a later one with the same sequence.
    pub id: u64,
    pub checksums: Option<Checksums>,
    /// Absent until the record is in a batch.
    pub place: Option<Place>,
    /// The log generation of the record itself, which may have been moved since; 0 until it is in a batch.
    pub origin: u64,
    /// The payload, until it is durable.
    pub bytes: Option<Bytes>,
    pub applied: bool,
}

impl Pending {
    /// The write is dropped for good.
    pub fn unpin(&self, segments: &mut Segments) {
        if let Some(place) = self.place {
            place.unpin(segments, self.info.header.range.count);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Group {
    pub epoch: Epoch,
    /// The last epoch whose start is durable.
    pub epoch_durable: Epoch,
    pub committed: Sequence,
    /// The log durably holds the group's writes up to here.
    pub durable_end: Sequence,
    pub prepared_end: Sequence,
    /// Complete up to here only; `None`: up to the commit point.
    pub incomplete: Option<Sequence>,
    /// As of what is durable.
    pub incomplete_durable: Option<Sequence>,
    /// All of it is to be given up: nothing may be appended any more.
    pub forgetting: bool,
    /// The record that says so is durable: nothing is done to the group's leaves any more but to remove them. Until
    /// then a crash may bring the group back, with all that it had committed.
    pub forgotten: bool,
    /// Ordered by sequence, without gaps except across a jump of the commit point.
    pub pending: VecDeque<Pending>,
    pub note: Bytes,
    pub note_version: u64,
    /// The commit point when each copy was appended that is not in a batch yet. Nothing that goes into the log before
    /// such a copy may say more than that is committed: replay would take the commit for the earlier of the two.
    pub copies_waiting: VecDeque<Sequence>,
    /// Replay has seen a write or an epoch of the group.
    pub replayed: bool,
    /// Who asked for the writes that replay has committed since the note was given.
    pub replayed_requests: Requests,
    /// The commit point of the last checkpoint, until replay has ended.
    pub committed_saved: Sequence,
}

impl Group {
    pub fn state(&self) -> GroupState {
        GroupState {
            epoch: self.epoch,
            committed: self.committed,
            prepared_end: self.prepared_end,
            complete: self.incomplete.unwrap_or(self.committed),
        }
    }

    /// A write is appended: it is the next, and of this epoch.
    ///
    /// # Panics
    /// When it is not.
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
            place: None,
            origin: 0,
            bytes,
            applied: false,
        });
    }

    /// A copy is appended.
    ///
    /// # Panics
    /// When it is ahead of the group.
    pub fn prepare_copy(&mut self, copy: &Copy) {
        assert!(!self.forgetting, "a copy for group {}, which is being forgotten", copy.pg);
        let committed = self.committed;
        assert!(committed >= copy.sequence, "a copy at {} is ahead of {committed}", copy.sequence);
        self.copies_waiting.push_back(committed);
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
        // A later epoch may have begun since: it keeps all that this one has committed.
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

    /// Keeps a note, which names all that was committed until now.
    pub fn take_note(&mut self, note: Bytes) {
        self.note = note;
        self.note_version += 1;
        self.replayed_requests.clear();
    }

    pub fn index(&self, sequence: Sequence) -> Option<usize> {
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
        self.pending.get(self.index(sequence)?)?.place
    }

    pub fn find(&mut self, sequence: Sequence) -> Option<&mut Pending> {
        let index = self.index(sequence)?;
        self.pending.get_mut(index)
    }

    /// Forgets applied writes at the front.
    pub fn trim(&mut self) {
        while self.pending.front().is_some_and(|p| p.applied) {
            self.pending.pop_front();
        }
    }

    /// The commit point that a record may tell which goes into the log now, ahead of all that waits.
    pub fn committed_ahead(&self) -> Sequence {
        let before = self.copies_waiting.front().copied();
        self.committed_durable().min(before.unwrap_or(self.committed))
    }

    /// The commit point that a checkpoint may save: nothing that the log could still lose.
    pub fn committed_durable(&self) -> Sequence {
        self.committed.min(self.durable_end)
    }
}
