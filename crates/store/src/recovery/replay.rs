//! What one record of the log does at replay: the same as when it was first written, found out from the log alone.

use crate::checkpoint::PendingRow;
use crate::cx::log_position;
use crate::effect::OpenError;
use crate::format::{EntryView, Kind};
use crate::groups::{Pending, Place};
use crate::jobs::Job;
use crate::log::Move;
use crate::ops::Op;
use crate::record::Copy;
use crate::segments::Link;
use crate::store::Store;
use azekura_base::{Body, Epoch, LayerId, PgId, Prepared, Sequence};
use bytes::Bytes;

impl Store {
    /// Replays an entry whose payload, if it has one, starts at `address`.
    pub(crate) fn replay_entry(
        &mut self,
        link: Link,
        sequence: u64,
        index: usize,
        address: u32,
        entry: &EntryView<'_>,
    ) -> Result<(), OpenError> {
        let address = if entry.kind.has_payload() { address } else { 0 };
        let place = Place { log: sequence, address, segment: link.segment, generation: link.generation };
        let position = log_position(sequence, index);
        self.cx.log_mut().set_replayed(position);
        match entry.kind {
            Kind::Write | Kind::WriteZero => self.replay_write(place, entry)?,
            Kind::WriteAgain => self.replay_write_again(place, entry),
            Kind::Copy | Kind::CopyZero | Kind::CopyLost | Kind::Mark => self.replay_copy(place, position, entry),
            Kind::Complete => self.groups.get_mut(entry.pg()).incomplete = None,
            Kind::Relocate => {
                self.commit_replayed(entry.pg(), Sequence(entry.head.commit));
                let Some(old) =
                    u32::try_from(entry.head.session).ok().filter(|a| self.cx.segments().locate(*a).is_some())
                else {
                    return Err(OpenError::Damaged(format!("batch {sequence} moves a block from nowhere")));
                };
                self.cx.segments_mut().hold(place.segment);
                let moved = Move {
                    pg: entry.pg(),
                    range: entry.range(),
                    old,
                    bytes: Bytes::new(),
                    checksums: entry.checksums().collect(),
                };
                self.relocate(moved, place, position);
            }
            Kind::Epoch => self.replay_epoch(entry),
            Kind::Note => {
                let group = self.groups.get_mut(entry.pg());
                if entry.head.sequence > group.note_version {
                    group.note_version = entry.head.sequence;
                    group.note = Bytes::copy_from_slice(entry.note());
                }
            }
            Kind::DropLayer => self.replay_job(Job::DropLayer(entry.layer()), place),
            Kind::MergeLayer => {
                let into = LayerId(entry.head.session);
                self.replay_job(Job::MergeLayer { layer: entry.layer(), into }, place);
            }
            Kind::ForgetGroup => self.replay_job(Job::ForgetGroup(entry.pg()), place),
        }
        Ok(())
    }

    fn replay_job(&mut self, job: Job, place: Place) {
        self.cx.segments_mut().hold(place.segment);
        self.begin_job(job, place.segment);
    }

    /// Takes up a write that the checkpoint has kept.
    pub(crate) fn restore_pending(&mut self, pg: PgId, row: PendingRow) {
        // A row that points outside of the device is dropped here; the checkpoint is checksummed, so it can't be one
        // that this program has written.
        let Some(segment) =
            self.cx.segments().locate(row.address).map(|(segment, _)| segment).or(row.info.zero.then_some(0))
        else {
            return;
        };
        let place = Place { log: row.log, address: row.address, segment, generation: row.generation };
        let id = self.cx.new_id();
        let group = self.groups.get_mut(pg);
        let write = &row.info.header;
        if !group.replayed {
            group.replayed = true;
            group.committed = Sequence(write.sequence.0.saturating_sub(1));
        }
        group.prepared_end = write.sequence;
        group.durable_end = write.sequence;
        group.epoch = group.epoch.max(write.epoch);
        let (checksums, info, origin, count) = (row.checksums, row.info, row.generation, write.range.count);
        group.pending.push_back(Pending {
            info,
            id,
            checksums,
            place: Some(place),
            origin,
            bytes: None,
            applied: false,
        });
        place.pin(self.cx.segments_mut(), count);
    }

    fn pending_of(&mut self, place: Place, entry: &EntryView<'_>) -> Pending {
        let zero = !entry.kind.has_payload();
        Pending {
            info: Prepared { header: entry.write(), zero, durable: true },
            id: self.cx.new_id(),
            checksums: (!zero).then(|| entry.checksums().collect()),
            place: Some(place),
            origin: place.generation,
            bytes: None,
            applied: false,
        }
    }

    fn replay_write(&mut self, place: Place, entry: &EntryView<'_>) -> Result<(), OpenError> {
        let (pg, sequence) = (entry.pg(), Sequence(entry.head.sequence));
        // The end of the group dropped what was not committed, perhaps with only a part of it in the replayed log; and
        // what was committed does not matter any more.
        if self.groups.get(pg).is_some_and(|group| group.forgotten) {
            return Ok(());
        }
        let pending = self.pending_of(place, entry);
        let group = self.groups.get_mut(pg);
        if !group.replayed {
            // What came before the replayed part of the log was applied or dropped.
            group.replayed = true;
            group.committed = Sequence(sequence.0.saturating_sub(1));
            group.prepared_end = group.committed;
        }
        // A gap is what a jump of the commit point left, before the replayed part of the log, or what a later epoch has
        // dropped: then the record that starts that epoch comes further on, and drops this write too.
        let dropped = Epoch(entry.head.epoch) < group.epoch_durable;
        let jumped = sequence > group.prepared_end && (dropped || group.committed_saved.next() >= sequence);
        if sequence != group.prepared_end.next() && !jumped {
            return Err(OpenError::Damaged(format!(
                "batch {} holds write {sequence} of group {pg} after write {}",
                place.log, group.prepared_end
            )));
        }
        group.prepared_end = sequence;
        group.durable_end = sequence;
        group.epoch = group.epoch.max(pending.info.header.epoch);
        group.pending.push_back(pending);
        place.pin(self.cx.segments_mut(), entry.head.count);
        self.commit_replayed(pg, Sequence(entry.head.commit));
        Ok(())
    }

    /// The blocks of a prepared write were moved. If the write is not there it was applied or dropped before.
    fn replay_write_again(&mut self, place: Place, entry: &EntryView<'_>) {
        let (pg, sequence) = (entry.pg(), Sequence(entry.head.sequence));
        self.commit_replayed(pg, Sequence(entry.head.commit));
        // Sequence 0 names no write: it had been committed or dropped by the time of the record.
        let id =
            self.groups.get_mut(pg).find(sequence).filter(|p| p.info.header.epoch.0 == entry.head.epoch).map(|p| p.id);
        if let Some(id) = id {
            place.pin(self.cx.segments_mut(), entry.head.count);
            self.groups.write_moved(self.cx.segments_mut(), pg, sequence, id, place);
        }
    }

    fn replay_copy(&mut self, place: Place, position: u64, entry: &EntryView<'_>) {
        self.commit_replayed(entry.pg(), Sequence(entry.head.commit));
        let body = match entry.kind {
            Kind::CopyZero | Kind::Mark => Body::Zero,
            Kind::CopyLost => Body::Lost { checksums: entry.lost_checksums().collect() },
            _ => Body::Data { bytes: Bytes::new(), checksums: entry.checksums().collect() },
        };
        let copy = Copy { pg: entry.pg(), sequence: Sequence(entry.head.sequence), range: entry.range(), body };
        let id = self.cx.new_id();
        let chunk = (copy.pg, copy.range.chunk);
        self.copies.add(id, copy, Some((place, position)));
        self.cx.segments_mut().hold(place.segment);
        self.submit(chunk, Op::Copy { id });
    }

    fn replay_epoch(&mut self, entry: &EntryView<'_>) {
        let pg = entry.pg();
        self.commit_replayed(pg, Sequence(entry.head.sequence));
        if entry.head.count != 0 {
            self.groups.get_mut(pg).incomplete.get_or_insert(Sequence(entry.head.sequence));
        }
        let dropped = {
            let (epoch, committed) = (Epoch(entry.head.epoch), Sequence(entry.head.commit));
            self.enter_epoch(pg, epoch, committed, entry.head.count != 0)
        };
        dropped.iter().for_each(|pending| pending.unpin(self.cx.segments_mut()));
        let group = self.groups.get_mut(pg);
        group.replayed = true;
        group.durable_end = group.prepared_end;
        group.epoch_durable = group.epoch;
    }

    /// Commits as far as the log has the writes.
    pub(crate) fn commit_replayed(&mut self, pg: PgId, upto: Sequence) {
        let group = self.groups.get_mut(pg);
        let upto = upto.min(group.prepared_end);
        if upto > group.committed {
            self.commit_upto(pg, upto);
        }
    }
}
