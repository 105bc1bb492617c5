//! What shards answer: a part is done, or is asked for again, there or elsewhere.

use super::Gateway;
use crate::operations::Answer;
use crate::parts::{Ask, PartId};
use crate::{MENDING_READS_MAX, reading};
use azekura_base::{BLOCK_SIZE, Body, Endpoint, IoStatus, LayerId, PgId, RequestId, SessionId};
use azekura_wire::Message;
use bytes::Bytes;
use std::time::Duration;

impl Gateway {
    /// An answer of the shard `from`. Answers that nobody waits for are ignored.
    pub fn answer(&mut self, from: Endpoint, message: Message, now: Duration) {
        self.now = now;
        match message {
            Message::WriteDone(done) => {
                let id = PartId::Write(done.pg, done.request);
                match done.result {
                    Err(IoStatus::Redirect | IoStatus::ReadOnly) => self.refused(id, from),
                    Err(IoStatus::Stale) => self.stale(id, from),
                    Err(status) => self.write_done(id, from, Some(status)),
                    Ok(()) => self.write_done(id, from, None),
                }
            }
            Message::ReadDone(done) => {
                let id = PartId::Read(done.request);
                match done.result {
                    Ok(extents) => {
                        let Some(part) = self.parts.held_by(from, id).map(|in_flight| in_flight.wanted().part) else {
                            return;
                        };
                        // Such answers have not left memory since the store checked them.
                        if reading::is_valid(part, &extents, !self.directory.trusts(from)) {
                            match self.decrypted(id, extents) {
                                Some(answer) => self.read_done(id, Ok(answer)),
                                None => self.wait_for_key(id, from),
                            }
                        } else {
                            self.try_elsewhere(id, from, IoStatus::Io);
                        }
                    }
                    Err(status) => self.not_read(id, from, status),
                }
            }
            Message::StatusDone(done) => {
                let id = PartId::Read(done.request);
                match done.result {
                    Ok(runs) => {
                        let Some(part) = self.parts.held_by(from, id).map(|in_flight| in_flight.wanted().part) else {
                            return;
                        };
                        self.read_done(id, Ok(Answer::Runs(part, runs)));
                    }
                    Err(status) => self.not_read(id, from, status),
                }
            }
            _ => {}
        }
    }

    fn not_read(&mut self, id: PartId, from: Endpoint, status: IoStatus) {
        match status {
            IoStatus::Redirect => self.refused(id, from),
            IoStatus::Stale => self.stale(id, from),
            status => self.try_elsewhere(id, from, status),
        }
    }

    /// The blocks of an unanswered write, if it was sent as whole blocks.
    #[must_use]
    pub fn unanswered(&self, session: SessionId, pg: PgId, request: RequestId) -> Option<Bytes> {
        let in_flight = self.parts.get(PartId::Write(pg, request)).filter(|_| session == self.session)?;
        match &in_flight.wanted().ask {
            Ask::Write(Body::Data { bytes, .. }) if bytes.len().is_multiple_of(BLOCK_SIZE) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// The copy does not take the part: the primary may, or a later one, or this one when more copies are in sync.
    fn refused(&mut self, id: PartId, from: Endpoint) {
        let wrote_at = self.parts.wrote_at(id);
        let Some(mut part) = self.parts.held_by(from, id) else { return };
        let by_primary = self.directory.primary(part.wanted().pg).is_none_or(|primary| primary == from);
        part.given_back(self.now);
        // The refusal is the group's: if that has taken other writes since, it only has too many.
        part.waits_behind(wrote_at);
        part.ask_primary_only(!by_primary);
        self.send_again(id, !by_primary);
    }

    /// The copy knows of another head than the request names, or a snapshot is being made: one of both does not know
    /// the latest. Asked again a little later, or as soon as this gateway knows more.
    fn stale(&mut self, id: PartId, from: Endpoint) {
        let Some(mut part) = self.parts.held_by(from, id) else { return };
        let known = self.directory.volume(part.wanted().volume).map(|volume| volume.layer);
        let by_primary = self.directory.primary(part.wanted().pg).is_none_or(|primary| primary == from);
        let knows_next = known != Some(part.wanted().layer); // This gateway has learnt of the next head meanwhile.
        part.given_back(self.now);
        if !knows_next {
            part.ask_primary_only(!by_primary);
        }
        self.send_again(id, knows_next || !(by_primary || id.is_write()));
    }

    /// A part that was refused is sent again, at once or a little later, unless it has waited for too long.
    fn send_again(&mut self, id: PartId, at_once: bool) {
        if self.gives_up(id) {
            return;
        }
        if at_once {
            self.send(id);
        } else {
            self.send_later(id);
        }
    }

    /// The layer of a request that was refused as stale although it names the head that this gateway knows, and that
    /// takes writes.
    #[must_use]
    pub fn current_layer_refused(&self, answer: &Message) -> Option<LayerId> {
        let id = match answer {
            Message::WriteDone(done) if done.result == Err(IoStatus::Stale) => PartId::Write(done.pg, done.request),
            Message::ReadDone(done) if matches!(done.result, Err(IoStatus::Stale)) => PartId::Read(done.request),
            _ => return None,
        };
        let wanted = self.parts.get(id)?.wanted();
        let current = self.directory.volume(wanted.volume)?;
        (current.layer == wanted.layer && current.cut.is_none()).then_some(current.layer)
    }

    /// The copy could not read: another may.
    fn try_elsewhere(&mut self, id: PartId, from: Endpoint, status: IoStatus) {
        let Some(mut part) = self.parts.held_by(from, id) else { return };
        let times = part.is_unable(from);
        let group = self.directory.group(part.wanted().pg);
        let mends =
            status == IoStatus::Io && times < MENDING_READS_MAX && group.is_some_and(|group| group.primary_reads);
        let copies = group.map_or(&[][..], |group| &group.copies);
        if !mends && (status == IoStatus::Fenced || part.all_unable(copies)) {
            self.read_done(id, Err(status));
            return;
        }
        part.taken_back();
        part.ask_primary_only(mends);
        if mends {
            self.send_later(id);
        } else {
            self.send(id);
        }
    }

    fn write_done(&mut self, id: PartId, from: Endpoint, failed: Option<IoStatus>) {
        if self.parts.get(id).is_none_or(|in_flight| in_flight.at() != Some(from)) {
            return;
        }
        let Some(in_flight) = self.parts.answered(id, self.now) else { return };
        self.room.give(&in_flight);
        if in_flight.is_to_settle() {
            self.has_settled(id, &in_flight, failed.is_none());
        }
        if in_flight.is_orphan() {
            self.note_settled(in_flight.wanted().pg, in_flight.wanted().volume);
        }
        self.release_held();
        self.start_backlog(in_flight.wanted().pg);
        if self.operations.rekey_mut(in_flight.wanted().op).is_some() {
            return self.block_moved(in_flight.wanted().op, failed);
        }
        if failed == Some(IoStatus::OtherKey) && !in_flight.is_orphan() {
            return self.move_edges(in_flight.into_wanted());
        }
        self.operations.part_written(in_flight.wanted().op, failed.map(|status| in_flight.told(status)));
        self.complete_if_done(in_flight.wanted().op);
    }

    fn read_done(&mut self, id: PartId, answer: Result<Answer, IoStatus>) {
        let Some(in_flight) = self.parts.answered(id, self.now) else { return };
        self.room.give(&in_flight);
        if self.operations.rekey_mut(in_flight.wanted().op).is_some() {
            return self.found_to_move(in_flight.wanted().op, in_flight.wanted().attachment, answer);
        }
        self.operations.part_read(in_flight.wanted().op, in_flight.wanted().index, answer);
        self.complete_if_done(in_flight.wanted().op);
    }
}
