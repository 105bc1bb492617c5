//! A record as it is written (docs/formats/log.md), and what it changes by getting its place: prepared writes and
//! repairs know it from here on, and the segment counts what must not be lost in it.

use crate::cx::{StoreCx, log_position};
use crate::groups::{Groups, Place, Written};
use crate::jobs::Job;
use crate::log::format::{EntryHead, Kind};
use crate::log::queue::{DurableRecord, Item, Move, Queued};
use crate::map::Repairs;
use crate::record::{Repair, stored};
use azekura_base::{Body, Checksums, KeyGeneration, Prepared, Write, WriteHeader};
use bytes::Bytes;

/// Encodes the records of one batch.
pub(super) struct Encoder<'a> {
    pub cx: &'a mut StoreCx,
    pub groups: &'a mut Groups,
    pub repairs: &'a mut Repairs,
    /// The entries so far.
    pub entries: Vec<u8>,
    /// The payloads so far.
    pub pieces: Vec<Bytes>,
}

impl Encoder<'_> {
    /// Encodes one record, gives it its place, and says what it does when durable. `index` counts the batch's records.
    pub fn add(&mut self, queued: Queued, place: Place, index: usize) -> DurableRecord {
        let id = queued.id;
        match queued.item {
            Item::Write(write) => self.write(write, id, place),
            Item::Repair(repair) => self.repair(repair, id, place, index),
            Item::Relocate(moved) => self.relocation(moved, place, index),
            Item::Moved { moved, address } => self.moved(moved, Place { payload: Some(address), ..place }, index),
            Item::WriteAgain { info, id, bytes, checksums } => {
                self.pieces.push(bytes);
                self.write_again(&info, id, &checksums, place)
            }
            Item::Epoch { pg, epoch, committed_before, committed, jump, incomplete } => {
                let mut head = EntryHead::new(Kind::Epoch);
                head.count = u16::from(jump);
                head.pg = pg.0;
                head.epoch = epoch.0;
                head.sequence = committed_before.0;
                head.commit = committed.0;
                self.head(&head);
                DurableRecord::Epoch { id, pg, epoch, committed, incomplete }
            }
            Item::Complete { pg } => {
                let mut head = EntryHead::new(Kind::Complete);
                head.pg = pg.0;
                self.head(&head);
                DurableRecord::Complete { pg }
            }
            Item::Note { pg, version, note } => {
                let mut head = EntryHead::new(Kind::Note);
                head.pg = pg.0;
                head.sequence = version;
                head.note_bytes = note.len() as u16;
                self.head(&head);
                self.entries.extend_from_slice(&note);
                self.entries.resize(self.entries.len().next_multiple_of(4), 0);
                DurableRecord::Note
            }
            Item::Job { job } => self.job(job, place),
        }
    }

    fn write(&mut self, write: Write, id: u64, place: Place) -> DurableRecord {
        let kind = if matches!(write.body, Body::Zero) { Kind::WriteZero } else { Kind::Write };
        let header = &write.header;
        self.head(&EntryHead::of_write(kind, header).under(key_of(&write.body)));
        self.body(write.body);
        let pending = self.groups.get_mut(header.pg).find(header.sequence).filter(|p| p.id == id);
        if let Some(pending) = pending {
            pending.written = Some(Written::at(place));
            place.pin(self.cx.segments_mut(), header.range.count);
        }
        DurableRecord::Write { pg: header.pg, sequence: header.sequence, id }
    }

    fn repair(&mut self, repair: Repair, id: u64, place: Place, index: usize) -> DurableRecord {
        let kind = match repair.body {
            // A repair of no blocks is a mark.
            Body::Zero if repair.range.count == 0 => Kind::Mark,
            Body::Zero => Kind::RepairZero,
            Body::Data { .. } => Kind::Repair,
            Body::Lost { .. } => Kind::RepairLost,
        };
        let mut head = EntryHead::of_range(kind, repair.pg, &repair.range).under(key_of(&repair.body));
        (head.sequence, head.commit) = (repair.sequence.0, repair.sequence.0);
        let lost = match &repair.body {
            Body::Lost { checksums } => Some(checksums.clone()),
            _ => None,
        };
        self.head(&head);
        // In the place of what is lost there are zeros, whose checksums come first.
        let Body::Data { bytes, checksums } = stored(repair.body) else {
            return self.repair_placed(repair.pg, id, place, index);
        };
        self.checksums(&checksums);
        lost.into_iter().for_each(|checksums| self.checksums(&checksums));
        self.pieces.push(bytes);
        self.repair_placed(repair.pg, id, place, index)
    }

    fn repair_placed(&mut self, pg: azekura_base::PgId, id: u64, place: Place, index: usize) -> DurableRecord {
        self.groups.get_mut(pg).repair_placed();
        self.repairs.place(id, place, log_position(place.log, index));
        self.cx.segments_mut().hold(place.segment);
        DurableRecord::Repair
    }

    fn relocation(&mut self, moved: Move, place: Place, index: usize) -> DurableRecord {
        self.head(&EntryHead { commit: self.commit_of(&moved), ..moved.head(Kind::Relocate) });
        self.checksums(&moved.checksums);
        self.pieces.push(moved.bytes.clone());
        self.move_placed(moved, place, index)
    }

    /// Encodes where blocks are that have a segment of their own: `place` has their address, and the record's segment.
    fn moved(&mut self, moved: Move, place: Place, index: usize) -> DurableRecord {
        let mut head = moved.head(Kind::Moved);
        (head.commit, head.request) = (self.commit_of(&moved), u64::from(place.address()));
        self.head(&head);
        self.move_placed(moved, place, index)
    }

    fn commit_of(&self, moved: &Move) -> u64 {
        self.groups.get(moved.pg).map_or(0, |group| group.committed_ahead().0)
    }

    fn move_placed(&mut self, moved: Move, place: Place, index: usize) -> DurableRecord {
        self.cx.segments_mut().hold(place.segment);
        DurableRecord::Relocate { moved, place, position: log_position(place.log, index) }
    }

    /// Encodes a prepared write whose blocks are moved. If it has been committed or dropped meanwhile, the entry has
    /// the sequence 0, and nothing comes of it.
    fn write_again(&mut self, info: &Prepared, id: u64, checksums: &Checksums, place: Place) -> DurableRecord {
        let (pg, sequence, count) = (info.header.pg, info.header.sequence, info.header.range.count);
        let group = self.groups.get_mut(pg);
        let (commit, committed) = (group.committed_ahead(), group.committed());
        let mut head =
            EntryHead::of_write(Kind::WriteAgain, &WriteHeader { commit, ..info.header }).under(checksums.key());
        let stands = group.find(sequence).is_some_and(|p| p.id == id && sequence > committed);
        if !stands {
            head.sequence = 0;
        }
        self.head(&head);
        self.checksums(checksums);
        if !stands {
            return DurableRecord::Note;
        }
        place.pin(self.cx.segments_mut(), count);
        DurableRecord::WriteAgain { pg, sequence, id, place, count }
    }

    fn job(&mut self, job: Job, place: Place) -> DurableRecord {
        let mut head = EntryHead::new(match job {
            Job::DropLayer(_) => Kind::DropLayer,
            Job::MergeLayer { .. } => Kind::MergeLayer,
            Job::ForgetGroup(_) => Kind::ForgetGroup,
        });
        match job {
            Job::DropLayer(layer) => head.layer = layer.0,
            Job::MergeLayer { layer, into } => (head.layer, head.session) = (layer.0, into.0),
            Job::ForgetGroup(pg) => head.pg = pg.0,
        }
        self.head(&head);
        self.cx.segments_mut().hold(place.segment);
        DurableRecord::Job { job, segment: place.segment }
    }

    fn head(&mut self, head: &EntryHead) {
        head.write_to(&mut self.entries);
    }

    fn body(&mut self, body: Body) {
        if let Body::Data { bytes, checksums } = body {
            self.checksums(&checksums);
            self.pieces.push(bytes);
        }
    }

    fn checksums(&mut self, checksums: &Checksums) {
        for sum in checksums.iter() {
            self.entries.extend_from_slice(&sum.0.to_le_bytes());
        }
    }
}

/// The generation of the key that a body is encrypted under.
fn key_of(body: &Body) -> KeyGeneration {
    match body {
        Body::Data { checksums, .. } | Body::Lost { checksums } => checksums.key(),
        Body::Zero => KeyGeneration::FIRST,
    }
}
