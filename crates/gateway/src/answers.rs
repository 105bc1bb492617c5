//! What nodes answer: a part is done, or is asked for again, there or elsewhere.

use crate::cut::Part;
use crate::gateway::{Ask, Gateway, Kind, bytes_held};
use crate::{COPIES_WAIT, MENDING_READS_MAX, RETRY_INTERVAL, reading};
use azekura_base::{BLOCK_SIZE, IoStatus, LayerId, NodeId, RequestId, SessionId};
use azekura_wire::{Message, Run, WriteBody};
use bytes::Bytes;
use std::time::Duration;

/// An answer to a part of a read, or of a question what holds data.
pub(crate) enum Answer {
    Blocks(Part, Vec<azekura_wire::Extent>),
    Runs(Part, Vec<Run>),
}

impl Gateway {
    /// An answer from `node`. Answers that nobody waits for are ignored.
    pub fn answer(&mut self, node: NodeId, message: Message, now: Duration) {
        self.now = now;
        match message {
            Message::WriteDone(done) => match done.result {
                Err(IoStatus::Redirect) => self.refused(done.request, true, node),
                Err(IoStatus::Stale) => self.stale(done.request, true, node),
                Err(IoStatus::ReadOnly) => self.too_few_copies(done.request, node),
                Err(status) => self.write_done(done.request, node, Some(status)),
                Ok(()) => self.write_done(done.request, node, None),
            },
            Message::ReadDone(done) => match done.result {
                Ok(extents) => {
                    let Some(under) = self.reads.get(&done.request).filter(|u| u.at == Some(node)) else { return };
                    // Answers from this very process have not left memory since the store checked them.
                    if reading::is_valid(under.part, &extents, node != self.me) {
                        let part = under.part;
                        self.read_done(done.request, Ok(Answer::Blocks(part, extents)));
                    } else {
                        self.try_elsewhere(done.request, node, IoStatus::Io);
                    }
                }
                Err(IoStatus::Redirect) => self.refused(done.request, false, node),
                Err(IoStatus::Stale) => self.stale(done.request, false, node),
                Err(status) => self.try_elsewhere(done.request, node, status),
            },
            Message::StatusDone(done) => match done.result {
                Ok(runs) => {
                    let Some(under) = self.reads.get(&done.request).filter(|u| u.at == Some(node)) else { return };
                    let part = under.part;
                    self.read_done(done.request, Ok(Answer::Runs(part, runs)));
                }
                Err(IoStatus::Redirect) => self.refused(done.request, false, node),
                Err(IoStatus::Stale) => self.stale(done.request, false, node),
                Err(status) => self.try_elsewhere(done.request, node, status),
            },
            _ => {}
        }
    }

    /// The blocks of an unanswered write, if it was sent as whole blocks.
    #[must_use]
    pub fn unanswered(&self, session: SessionId, request: RequestId) -> Option<Bytes> {
        let under = self.writes.get(&request).filter(|_| session == self.session)?;
        match &under.ask {
            Ask::Write(WriteBody::Data { bytes, .. }) if bytes.len().is_multiple_of(BLOCK_SIZE) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// The copy can't answer now: the primary can, or a later one.
    fn refused(&mut self, id: RequestId, is_write: bool, node: NodeId) {
        let parts = if is_write { &mut self.writes } else { &mut self.reads };
        let Some(under) = parts.get_mut(&id).filter(|under| under.at == Some(node)) else { return };
        under.at = None;
        self.idle_parts += 1;
        let by_primary = self.groups.get(&under.pg).is_none_or(|group| group.primary == node);
        if by_primary {
            under.primary_only = false;
            under.retry_at = self.now + RETRY_INTERVAL;
        } else {
            under.primary_only = !is_write;
            self.send(id, is_write);
        }
    }

    /// The copy knows of another head than the request names, or a snapshot is being made: one of both does not know the
    /// latest. Asked again a little later, or as soon as this gateway knows more.
    fn stale(&mut self, id: RequestId, is_write: bool, node: NodeId) {
        let parts = if is_write { &mut self.writes } else { &mut self.reads };
        let Some(under) = parts.get_mut(&id).filter(|under| under.at == Some(node)) else { return };
        let known = self.by_id.get(&under.volume).map(|volume| volume.layer);
        let by_primary = self.groups.get(&under.pg).is_none_or(|group| group.primary == node);
        under.at = None;
        self.idle_parts += 1;
        if known != Some(under.layer) {
            self.send(id, is_write); // This gateway has learnt of the next head meanwhile.
        } else if !is_write && !by_primary {
            under.primary_only = true;
            self.send(id, is_write);
        } else {
            under.primary_only = false;
            under.retry_at = self.now + RETRY_INTERVAL;
        }
    }

    /// The layer of a request that was refused as stale although it names the head that this gateway knows, and that takes
    /// writes.
    #[must_use]
    pub fn current_layer_refused(&self, answer: &Message) -> Option<LayerId> {
        let under = match answer {
            Message::WriteDone(done) if done.result == Err(IoStatus::Stale) => self.writes.get(&done.request)?,
            Message::ReadDone(done) if matches!(done.result, Err(IoStatus::Stale)) => self.reads.get(&done.request)?,
            _ => return None,
        };
        let current = self.by_id.get(&under.volume)?;
        (current.layer == under.layer && current.cut.is_none()).then_some(current.layer)
    }

    /// The group has too few copies for writing: the write waits for more, but not for ever.
    fn too_few_copies(&mut self, id: RequestId, node: NodeId) {
        let Some(under) = self.writes.get_mut(&id).filter(|under| under.at == Some(node)) else { return };
        if self.now >= *under.waits_since.get_or_insert(self.now) + COPIES_WAIT {
            self.write_done(id, node, Some(IoStatus::Io));
        } else {
            self.refused(id, true, node);
        }
    }

    /// The copy could not read: another may.
    fn try_elsewhere(&mut self, id: RequestId, node: NodeId, status: IoStatus) {
        let Some(under) = self.reads.get_mut(&id).filter(|under| under.at == Some(node)) else { return };
        under.tried.push(node);
        if status == IoStatus::Io
            && under.tried.len() < MENDING_READS_MAX
            && self.groups.get(&under.pg).is_some_and(|group| group.primary_reads)
        {
            under.at = None;
            under.primary_only = true;
            under.retry_at = self.now + RETRY_INTERVAL;
            self.idle_parts += 1;
            return;
        }
        let copies = self.groups.get(&under.pg).map_or(&[][..], |group| &group.copies);
        if status == IoStatus::Fenced || copies.iter().all(|copy| under.tried.contains(copy)) {
            self.read_done(id, Err(status));
            return;
        }
        under.at = None;
        under.primary_only = false;
        self.idle_parts += 1;
        self.send(id, false);
    }

    fn write_done(&mut self, id: RequestId, node: NodeId, failed: Option<IoStatus>) {
        if self.writes.get(&id).is_none_or(|under| under.at != Some(node)) {
            return;
        }
        let Some(under) = self.writes.remove(&id) else { return };
        self.in_flight_bytes -= bytes_held(&under.ask, under.part);
        self.start_backlog();
        let Some(running) = self.ops.get_mut(&under.op) else { return };
        running.left -= 1;
        running.failed = running.failed.or(failed);
        self.finish_if_done(under.op);
    }

    fn read_done(&mut self, id: RequestId, answer: Result<Answer, IoStatus>) {
        let Some(under) = self.reads.remove(&id) else { return };
        self.in_flight_bytes -= bytes_held(&under.ask, under.part);
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
