//! Placement groups: epoch, commit point, and the writes that are not applied to the map yet.

use crate::record::GroupState;
use crate::requests::Requests;
use crate::segments::Segments;
use azekura_base::{Checksums, Epoch, LayerId, PgId, Prepared, Sequence};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

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

/// The start of an epoch that is not durable yet: a crash would bring back what it drops.
#[derive(Debug)]
struct EpochWaiting {
    pg: PgId,
    /// The log generation when it was started: what it drops and was not in the log then, comes after this.
    generation: u64,
    dropped: Vec<Pending>,
}

/// All groups of a device.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<PgId, Group>,
    /// Starts of epochs that are not durable yet, by the names of their records.
    epochs_waiting: BTreeMap<u64, EpochWaiting>,
}

impl Groups {
    pub fn get(&self, pg: PgId) -> Option<&Group> {
        self.groups.get(&pg)
    }

    pub fn get_mut(&mut self, pg: PgId) -> &mut Group {
        self.groups.entry(pg).or_default()
    }

    pub fn remove(&mut self, pg: PgId) {
        self.groups.remove(&pg);
    }

    /// The blocks of a write that was not applied are durably at `place` as well, and pinned there.
    pub fn write_moved(&mut self, segments: &mut Segments, pg: PgId, sequence: Sequence, id: u64, place: Place) {
        let pending = self.get_mut(pg).find(sequence).filter(|p| p.id == id && !p.applied);
        let (not_needed, count) = match pending {
            Some(pending) => (pending.place.replace(place), pending.info.header.range.count),
            None => return,
        };
        if let Some(old) = not_needed {
            segments.unpin(old.segment, u32::from(count));
        }
    }

    /// The record `id` of an epoch waits to become durable.
    pub fn epoch_begins(&mut self, id: u64, pg: PgId, generation: u64, dropped: Vec<Pending>) {
        self.epochs_waiting.insert(id, EpochWaiting { pg, generation, dropped });
    }

    /// It is durable. Gives the writes that it drops for good.
    pub fn epoch_has_begun(&mut self, id: u64) -> Vec<Pending> {
        self.epochs_waiting.remove(&id).map(|waiting| waiting.dropped).unwrap_or_default()
    }

    /// The record of an epoch waits to become durable.
    pub fn epoch_waits(&self) -> bool {
        !self.epochs_waiting.is_empty()
    }

    /// The log generation in which the oldest of those epochs began whose records are not durable.
    pub fn oldest_epoch_waiting(&self) -> Option<u64> {
        self.epochs_waiting.values().map(|waiting| waiting.generation).min()
    }

    /// The writes of a group that epochs have dropped whose records are not durable: a crash would bring them back.
    pub fn dropped(&self, pg: PgId) -> impl Iterator<Item = &Pending> {
        self.epochs_waiting.values().filter(move |waiting| waiting.pg == pg).flat_map(|waiting| &waiting.dropped)
    }

    /// An epoch that is not durable yet has dropped a write to `layer`: after a crash it may be there again, and be
    /// committed.
    pub fn may_come_back(&self, layer: LayerId) -> bool {
        self.epochs_waiting.values().flat_map(|waiting| &waiting.dropped).any(|p| p.info.header.range.layer == layer)
    }

    /// A write to `layer` is not applied yet.
    pub fn waits_to_write(&self, layer: LayerId) -> bool {
        self.groups.values().flat_map(|group| &group.pending).any(|p| p.info.header.range.layer == layer && !p.applied)
    }

    pub fn iter(&self) -> impl Iterator<Item = (PgId, &Group)> {
        self.groups.iter().map(|(pg, group)| (*pg, group))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (PgId, &mut Group)> {
        self.groups.iter_mut().map(|(pg, group)| (*pg, group))
    }
}
