//! What the records of the log do at replay: the same as when they were first written, found out from the log alone.

use crate::checkpoint::{PendingRow, Root};
use crate::cx::log_position;
use crate::effect::OpenError;
use crate::engine::Engine;
use crate::groups::{Pending, Place, Written};
use crate::jobs::Job;
use crate::log::format::{Entries, EntryView, Kind, Summary, SummaryBuilder};
use crate::log::{LogWriter, Move};
use crate::record::Repair;
use crate::recovery::chain::Tail;
use crate::segments::Link;
use azekura_base::{Body, Checksums, Epoch, LayerId, PgId, Prepared, Sequence};
use bytes::Bytes;

/// Replays into the engine, and takes up the log where it ends.
pub(crate) struct Replay<'a> {
    pub engine: &'a mut Engine,
    pub log: &'a mut LogWriter,
}

impl Replay<'_> {
    /// Takes up what the checkpoint knows of groups and jobs.
    pub fn restore(&mut self, root: Root) {
        for mut row in root.groups {
            let (pg, pending) = (row.pg, std::mem::take(&mut row.pending));
            self.engine.groups_mut().get_mut(pg).restore(row);
            for row in pending {
                self.restore_pending(pg, row);
            }
        }
        for job in root.jobs {
            if let Job::ForgetGroup(pg) = job {
                self.engine.groups_mut().get_mut(pg).restore_forgotten();
            }
        }
    }

    /// Replays a segment from its summary.
    ///
    /// # Errors
    /// When a record can't be where it is.
    pub fn segment(&mut self, link: Link, summary: &Summary) -> Result<(), OpenError> {
        self.engine.cx_mut().segments_mut().reopen(link);
        for (sequence, (frame, entries)) in (link.first_sequence..).zip(summary.frames()) {
            self.batch(link, sequence, frame.block + frame.header_blocks, entries)?;
        }
        self.engine.cx_mut().log_mut().set_durable(summary.header.sequence);
        self.engine.run_blocked();
        self.engine.cx_mut().segments_mut().seal(link.segment);
        Ok(())
    }

    /// Replays the last batches, and takes up the log where they end.
    ///
    /// # Errors
    /// When a record can't be where it is.
    pub fn tail(&mut self, first: Link, tail: &[Tail]) -> Result<(), OpenError> {
        let (mut link, mut block, mut entered) = (first, 0, false);
        let mut summary = SummaryBuilder::default();
        for batch in tail {
            if !entered {
                self.engine.cx_mut().segments_mut().reopen(link);
                entered = true;
            }
            let header = &batch.header;
            let payload = header.block + header.header_blocks;
            if let Some(next) = batch.next {
                self.engine.cx_mut().log_mut().set_durable(header.sequence);
                self.engine.cx_mut().segments_mut().seal(link.segment);
                (link, block, entered) = (next, 0, false);
                summary = SummaryBuilder::default();
            } else {
                block = header.block + header.blocks();
                summary.push(header, &batch.entries);
                self.batch(link, header.sequence, payload, &batch.entries)?;
            }
        }
        if !entered {
            self.engine.cx_mut().segments_mut().reopen(link);
        }
        let last = tail.last().map(|batch| batch.header);
        self.log.take_up(self.engine.cx_mut(), link, block, summary, last.as_ref());
        self.engine.run_blocked();
        self.commit_saved();
        Ok(())
    }

    /// What the checkpoint knew to be committed is so, also where the log does not say it.
    fn commit_saved(&mut self) {
        let groups: Vec<PgId> = self.engine.groups().iter().map(|(pg, _)| pg).collect();
        for pg in groups {
            let (upto, passed_over) = self.engine.groups_mut().get_mut(pg).replay_has_ended();
            self.commit_replayed(pg, upto);
            let group = self.engine.groups_mut().get_mut(pg);
            if let Some(committed) = passed_over {
                group.passed_over(committed);
            }
            group.replayed_is_durable();
        }
    }

    /// Replays the entries of one batch, whose payload starts at block `payload` of the segment.
    fn batch(&mut self, link: Link, sequence: u64, payload: u32, entries: &[u8]) -> Result<(), OpenError> {
        self.engine.cx_mut().log_mut().set_durable(sequence - 1);
        let mut address = self.engine.cx().segments().address(link.segment, payload);
        for (index, entry) in Entries::new(entries).enumerate() {
            self.replay_entry(link, sequence, index, address, &entry)?;
            address += entry.payload_blocks();
        }
        self.engine.cx_mut().log_mut().set_durable(sequence);
        self.engine.run_blocked();
        Ok(())
    }

    /// Replays an entry whose payload, if it has one, starts at `address`.
    fn replay_entry(
        &mut self,
        link: Link,
        sequence: u64,
        index: usize,
        address: u32,
        entry: &EntryView<'_>,
    ) -> Result<(), OpenError> {
        let payload = entry.kind.has_payload().then_some(address);
        let place = Place { log: sequence, payload, segment: link.segment, generation: link.generation };
        let position = log_position(sequence, index);
        self.engine.cx_mut().log_mut().set_replayed(position);
        match entry.kind {
            Kind::Write | Kind::WriteZero => self.replay_write(place, entry)?,
            Kind::WriteAgain => self.replay_write_again(place, entry),
            Kind::Repair | Kind::RepairZero | Kind::RepairLost | Kind::Mark => {
                self.replay_repair(place, position, entry)
            }
            Kind::Complete => self.engine.groups_mut().get_mut(entry.pg()).is_complete(),
            Kind::Relocate | Kind::Moved => self.replay_move(place, position, entry)?,
            Kind::Relocated => {
                let what = format!("batch {} has a record of a segment of moved blocks", place.log);
                return Err(OpenError::Damaged(what));
            }
            Kind::Epoch => self.replay_epoch(entry),
            Kind::Note => {
                self.engine.groups_mut().get_mut(entry.pg()).replay_note(entry.head.sequence, entry.note());
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

    fn replay_move(&mut self, place: Place, position: u64, entry: &EntryView<'_>) -> Result<(), OpenError> {
        let (sequence, blocks) = (place.log, u32::from(entry.head.count));
        self.commit_replayed(entry.pg(), Sequence(entry.head.commit));
        let segments = self.engine.cx_mut().segments_mut();
        let in_a_segment = |address: u64| {
            let address = u32::try_from(address).ok()?;
            let (segment, block) = segments.locate(address)?;
            Some((address, segment, block))
        };
        let Some((old, ..)) = in_a_segment(entry.head.session) else {
            return Err(OpenError::Damaged(format!("batch {sequence} moves a block from nowhere")));
        };
        let mut place = place;
        if entry.kind == Kind::Moved {
            let Some((address, segment, block)) = in_a_segment(entry.head.request) else {
                return Err(OpenError::Damaged(format!("batch {sequence} moves a block to nowhere")));
            };
            if block + blocks > segments.segment_blocks() || !segments.adopt(segment, place.generation) {
                let what = format!("batch {sequence} moves blocks to segment {segment}, which is not for moved blocks");
                return Err(OpenError::Damaged(what));
            }
            place.payload = Some(address);
            segments.pin(segment, blocks);
        }
        segments.hold(place.segment);
        let (range, checksums) = (entry.range(), entry.checksums().collect());
        let moved = Move { pg: entry.pg(), range, old, bytes: Bytes::new(), checksums };
        self.engine.relocate(moved, place, position);
        Ok(())
    }

    fn replay_job(&mut self, job: Job, place: Place) {
        self.engine.cx_mut().segments_mut().hold(place.segment);
        self.engine.begin_job(job, place.segment);
    }

    /// Takes up a write that the checkpoint has kept.
    fn restore_pending(&mut self, pg: PgId, row: PendingRow) {
        // A row that points outside of the device is dropped here; the checkpoint is checksummed, so it can't be one
        // that this program has written.
        let segments = self.engine.cx().segments();
        let segment = match row.address {
            Some(address) => segments.locate(address).map(|(segment, _)| segment),
            // Nothing of it is in any segment.
            None => Some(0),
        };
        let Some(segment) = segment else { return };
        let place = Place { log: row.log, payload: row.address, segment, generation: row.generation };
        let id = self.engine.cx_mut().new_id();
        let count = row.info.header.range.count;
        self.engine.groups_mut().get_mut(pg).restore_write(Pending {
            info: row.info,
            id,
            checksums: row.checksums,
            written: Some(Written::at(place)),
            bytes: None,
            applied: false,
        });
        place.pin(self.engine.cx_mut().segments_mut(), count);
    }

    fn pending_of(&mut self, place: Place, entry: &EntryView<'_>) -> Pending {
        let zero = !entry.kind.has_payload();
        Pending {
            info: Prepared { header: entry.write(), zero, durable: true },
            id: self.engine.cx_mut().new_id(),
            checksums: (!zero).then(|| entry.checksums().collect::<Checksums>().under(entry.key())),
            written: Some(Written::at(place)),
            bytes: None,
            applied: false,
        }
    }

    fn replay_write(&mut self, place: Place, entry: &EntryView<'_>) -> Result<(), OpenError> {
        let (pg, sequence) = (entry.pg(), Sequence(entry.head.sequence));
        // The end of the group dropped what was not committed, perhaps with only a part of it in the replayed log; and
        // what was committed does not matter any more.
        if self.engine.groups().get(pg).is_some_and(|group| group.is_forgotten()) {
            return Ok(());
        }
        let pending = self.pending_of(place, entry);
        if let Err(last) = self.engine.groups_mut().get_mut(pg).replay_write(pending) {
            return Err(OpenError::Damaged(format!(
                "batch {} holds write {sequence} of group {pg} after write {last}",
                place.log
            )));
        }
        place.pin(self.engine.cx_mut().segments_mut(), entry.head.count);
        self.commit_replayed(pg, Sequence(entry.head.commit));
        Ok(())
    }

    /// The blocks of a prepared write were moved. If the write is not there it was applied or dropped before.
    fn replay_write_again(&mut self, place: Place, entry: &EntryView<'_>) {
        let (pg, sequence) = (entry.pg(), Sequence(entry.head.sequence));
        self.commit_replayed(pg, Sequence(entry.head.commit));
        // Sequence 0 names no write: it had been committed or dropped by the time of the record.
        let id = self
            .engine
            .groups_mut()
            .get_mut(pg)
            .find(sequence)
            .filter(|p| p.info.header.epoch.0 == entry.head.epoch)
            .map(|p| p.id);
        if let Some(id) = id {
            place.pin(self.engine.cx_mut().segments_mut(), entry.head.count);
            self.engine.write_moved(pg, sequence, id, place);
        }
    }

    fn replay_repair(&mut self, place: Place, position: u64, entry: &EntryView<'_>) {
        self.commit_replayed(entry.pg(), Sequence(entry.head.commit));
        let body = match entry.kind {
            Kind::RepairZero | Kind::Mark => Body::Zero,
            Kind::RepairLost => Body::Lost { checksums: entry.lost_checksums().collect() }.under(entry.key()),
            _ => Body::Data { bytes: Bytes::new(), checksums: entry.checksums().collect() }.under(entry.key()),
        };
        let repair = Repair { pg: entry.pg(), sequence: Sequence(entry.head.sequence), range: entry.range(), body };
        self.engine.add_repair(repair, place, position);
    }

    fn replay_epoch(&mut self, entry: &EntryView<'_>) {
        let pg = entry.pg();
        self.commit_replayed(pg, Sequence(entry.head.sequence));
        if entry.head.count != 0 {
            self.engine.groups_mut().get_mut(pg).replay_jump(Sequence(entry.head.sequence));
        }
        let dropped = {
            let (epoch, committed) = (Epoch(entry.head.epoch), Sequence(entry.head.commit));
            self.engine.enter_epoch(pg, epoch, committed, entry.head.count != 0)
        };
        dropped.iter().for_each(|pending| pending.unpin(self.engine.cx_mut().segments_mut()));
        self.engine.groups_mut().get_mut(pg).replayed_epoch();
    }

    /// Commits as far as the log has the writes.
    fn commit_replayed(&mut self, pg: PgId, upto: Sequence) {
        let group = self.engine.groups_mut().get_mut(pg);
        let upto = upto.min(group.prepared_end());
        if upto > group.committed() {
            self.engine.commit_upto(pg, upto);
        }
    }
}
