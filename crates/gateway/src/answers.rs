//! What shards answer: a part is done, or is asked for again, there or elsewhere.

use crate::cut::Part;
use crate::gateway::{Ask, Gateway, Kind};
use crate::parts::PartId;
use crate::{MENDING_READS_MAX, reading};
use azekura_base::{BLOCK_SIZE, Body, Endpoint, Extent, IoStatus, LayerId, PgId, RequestId, Run, SessionId};
use azekura_wire::Message;
use bytes::Bytes;
use std::time::Duration;

/// An answer to a part of a read, or of a question what holds data.
pub(crate) enum Answer {
    Blocks(Part, Vec<Extent>),
    Runs(Part, Vec<Run>),
}

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
                        let Some(under) = self.parts.get(id).filter(|u| u.at == Some(from)) else { return };
                        // Such answers have not left memory since the store checked them.
                        if reading::is_valid(under.part, &extents, !self.trusted.contains(&from)) {
                            let part = under.part;
                            self.read_done(id, Ok(Answer::Blocks(part, extents)));
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
                        let Some(under) = self.parts.get(id).filter(|u| u.at == Some(from)) else { return };
                        let part = under.part;
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
        let under = self.parts.get(PartId::Write(pg, request)).filter(|_| session == self.session)?;
        match &under.ask {
            Ask::Write(Body::Data { bytes, .. }) if bytes.len().is_multiple_of(BLOCK_SIZE) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// The copy does not take the part: the primary may, or a later one, or this one when more copies are in sync.
    fn refused(&mut self, id: PartId, from: Endpoint) {
        let now = self.now;
        let wrote_at = match id {
            PartId::Write(pg, _) => self.parts.lane(pg).wrote_at,
            PartId::Read(_) => Duration::ZERO,
        };
        let Some(under) = self.parts.get_mut(id).filter(|under| under.at == Some(from)) else { return };
        under.given_back(now);
        // The refusal is the group's: if that has taken other writes since, it only has too many.
        under.waits_since = under.waits_since.max(wrote_at);
        let by_primary = self.groups.get(&under.pg).is_none_or(|group| group.primary == from);
        under.primary_only = !id.is_write() && !by_primary;
        self.parts.take_back(id);
        if self.gives_up(id) {
            return;
        }
        if by_primary {
            self.send_later(id);
        } else {
            self.send(id);
        }
    }

    /// The copy knows of another head than the request names, or a snapshot is being made: one of both does not know
    /// the latest. Asked again a little later, or as soon as this gateway knows more.
    fn stale(&mut self, id: PartId, from: Endpoint) {
        let now = self.now;
        let Some(under) = self.parts.get_mut(id).filter(|under| under.at == Some(from)) else { return };
        under.given_back(now);
        let known = self.by_id.get(&under.volume).map(|volume| volume.layer);
        let by_primary = self.groups.get(&under.pg).is_none_or(|group| group.primary == from);
        let knows_next = known != Some(under.layer); // This gateway has learnt of the next head meanwhile.
        if !knows_next {
            under.primary_only = !id.is_write() && !by_primary;
        }
        let at_once = knows_next || under.primary_only;
        self.parts.take_back(id);
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
        let under = self.parts.get(id)?;
        let current = self.by_id.get(&under.volume)?;
        (current.layer == under.layer && current.cut.is_none()).then_some(current.layer)
    }

    /// The copy could not read: another may.
    fn try_elsewhere(&mut self, id: PartId, from: Endpoint, status: IoStatus) {
        let Some(under) = self.parts.get_mut(id).filter(|under| under.at == Some(from)) else { return };
        under.tried.push(from);
        let group = self.groups.get(&under.pg);
        let mends = status == IoStatus::Io
            && under.tried.len() < MENDING_READS_MAX
            && group.is_some_and(|group| group.primary_reads);
        let copies = group.map_or(&[][..], |group| &group.copies);
        if !mends && (status == IoStatus::Fenced || copies.iter().all(|copy| under.tried.contains(copy))) {
            self.read_done(id, Err(status));
            return;
        }
        under.primary_only = mends;
        self.parts.take_back(id);
        if mends {
            self.send_later(id);
        } else {
            self.send(id);
        }
    }

    fn write_done(&mut self, id: PartId, from: Endpoint, failed: Option<IoStatus>) {
        let Some(pg) = self.parts.get(id).filter(|under| under.at == Some(from)).map(|under| under.pg) else { return };
        self.note_answer(id);
        let Some(under) = self.parts.remove(id) else { return };
        self.room.give(&under);
        self.start_backlog(pg);
        let Some(running) = self.ops.get_mut(&under.op) else { return };
        running.left -= 1;
        running.failed = running.failed.or(failed);
        self.finish_if_done(under.op);
    }

    fn read_done(&mut self, id: PartId, answer: Result<Answer, IoStatus>) {
        self.note_answer(id);
        let Some(under) = self.parts.remove(id) else { return };
        self.room.give(&under);
        let Some(running) = self.ops.get_mut(&under.op) else { return };
        running.left -= 1;
        match answer {
            Ok(answer) => {
                running.early.insert(under.index, answer);
                while let Some(answer) = running.early.remove(&running.next) {
                    running.next += 1;
                    match (&mut running.kind, answer) {
                        (Kind::Read(pieces), Answer::Blocks(part, extents)) => reading::trim(part, extents, pieces),
                        (Kind::Status(all), Answer::Runs(part, runs)) => add_runs(part, &runs, all),
                        _ => {}
                    }
                }
            }
            Err(status) => running.failed = running.failed.or(Some(status)),
        }
        self.finish_if_done(under.op);
    }
}

/// Puts a chunk's runs, as far as they lie in `part`, behind `all`.
fn add_runs(part: Part, runs: &[Run], all: &mut Vec<(u64, bool)>) {
    let (start, end) = (u64::from(part.offset), u64::from(part.offset) + u64::from(part.len));
    let mut at = 0;
    for run in runs {
        let run_end = at + u64::from(run.count) * BLOCK_SIZE as u64;
        let len = run_end.min(end).saturating_sub(at.max(start));
        at = run_end;
        if len == 0 {
            continue;
        }
        match all.last_mut() {
            Some((last, data)) if *data == run.data => *last += len,
            _ => all.push((len, run.data)),
        }
    }
}
