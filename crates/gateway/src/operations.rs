//! Requests of clients under way: which of their parts are still to come, and how they end.

use crate::ciphers::Cipher;
use crate::cut::Part;
use crate::reading;
use crate::request::{Op, Outcome, Piece};
use crate::statistics::VolumeStatistics;
use azekura_base::{BLOCK_SIZE, Extent, Generation, IoStatus, Run, Slab, VolumeId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A request's name in its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpId(u64);

impl OpId {
    /// No client's request.
    pub(crate) const NONE: OpId = OpId(u64::MAX);
}

/// An answer to a part of a read, or of a question what holds data.
pub(crate) enum Answer {
    Blocks(Part, Vec<Extent>),
    Runs(Part, Vec<Run>),
}

/// What kind of request it is, and what of its answer is there.
enum Kind {
    Write,
    Read(Vec<Piece>, Cipher),
    Status(Vec<(u64, bool)>),
}

struct PendingOp {
    token: u64,
    kind: Kind,
    volume: VolumeId,
    /// The attachment that the client asked under.
    attachment: Generation,
    bytes: u64,
    started: Duration,
    /// Parts not answered yet.
    left: u32,
    /// Parts of a read that were answered out of turn.
    early: BTreeMap<u32, Answer>,
    /// The next part of a read to be put behind the others.
    next: u32,
    failed: Option<IoStatus>,
}

impl PendingOp {
    /// Puts the answer to the next part behind the others.
    fn take(&mut self, answer: Answer) {
        self.next += 1;
        match (&mut self.kind, answer) {
            (Kind::Read(pieces, cipher), Answer::Blocks(part, extents)) => reading::trim(part, extents, cipher, pieces),
            (Kind::Status(all), Answer::Runs(part, runs)) => add_runs(part, &runs, all),
            _ => {}
        }
    }
}

/// All requests under way, and the counters of those that have ended.
#[derive(Default)]
pub(crate) struct Operations {
    running: Slab<PendingOp>,
    statistics: BTreeMap<VolumeId, VolumeStatistics>,
}

impl Operations {
    /// A request of `bytes` bytes begins. It has no parts yet.
    pub(crate) fn begin(
        &mut self,
        token: u64,
        (op, bytes): (&Op, u64),
        (volume, attachment): (VolumeId, Generation),
        cipher: &Cipher,
        now: Duration,
    ) -> OpId {
        let kind = match op {
            Op::Read { .. } => Kind::Read(Vec::new(), cipher.clone()),
            Op::Status { .. } => Kind::Status(Vec::new()),
            Op::Write { .. } | Op::CompareAndWrite { .. } | Op::Zero { .. } | Op::Flush => Kind::Write,
            Op::Trim { .. } => {
                let statistics = self.statistics.entry(volume).or_default();
                statistics.trims += 1;
                statistics.trimmed_bytes += bytes;
                Kind::Write
            }
        };
        let running = PendingOp {
            token,
            kind,
            volume,
            attachment,
            bytes,
            started: now,
            left: 0,
            early: BTreeMap::new(),
            next: 0,
            failed: None,
        };
        OpId(self.running.insert(running))
    }

    /// One more part of the request; its place among them.
    pub(crate) fn add_part(&mut self, op: OpId) -> Option<u32> {
        let running = self.running.get_mut(op.0)?;
        running.left += 1;
        Some(running.left - 1)
    }

    /// The request fails, once its parts are answered.
    pub(crate) fn fail(&mut self, op: OpId, why: IoStatus) {
        if let Some(running) = self.running.get_mut(op.0) {
            running.failed = Some(why);
        }
    }

    /// The request fails, and waits for no part any more.
    pub(crate) fn give_up(&mut self, op: OpId, why: IoStatus) {
        if let Some(running) = self.running.get_mut(op.0) {
            running.failed = Some(why);
            running.left = 0;
        }
    }

    /// A part of a write is done, or has failed.
    pub(crate) fn part_written(&mut self, op: OpId, failed: Option<IoStatus>) {
        if let Some(running) = self.running.get_mut(op.0) {
            running.left -= 1;
            running.failed = running.failed.or(failed);
        }
    }

    /// A part of a read, or of a question what holds data, is answered. What is in its turn is put behind the others.
    pub(crate) fn part_read(&mut self, op: OpId, index: u32, answer: Result<Answer, IoStatus>) {
        let Some(running) = self.running.get_mut(op.0) else { return };
        running.left -= 1;
        match answer {
            Ok(answer) if index == running.next => {
                running.take(answer);
                while let Some(answer) = running.early.remove(&running.next) {
                    running.take(answer);
                }
            }
            Ok(answer) => drop(running.early.insert(index, answer)),
            Err(status) => running.failed = running.failed.or(Some(status)),
        }
    }

    /// Takes the request out and counts it, if it waits for no part any more: its token, and how it ended.
    pub(crate) fn take_done(&mut self, op: OpId, now: Duration) -> Option<(u64, Outcome)> {
        if self.running.get(op.0)?.left > 0 {
            return None;
        }
        let running = self.running.remove(op.0)?;
        let took = now.saturating_sub(running.started);
        let statistics = self.statistics.entry(running.volume).or_default();
        // That something else was there is an answer.
        let failed = running.failed.is_some_and(|why| !matches!(why, IoStatus::Miscompare(_)));
        match running.kind {
            Kind::Read(..) => statistics.reads.note(running.bytes, took, failed),
            Kind::Write if running.bytes > 0 => statistics.writes.note(running.bytes, took, failed),
            _ => {}
        }
        let outcome = match (running.failed, running.kind) {
            (Some(status), _) => Outcome::Failed(status),
            (None, Kind::Write) => Outcome::Done,
            (None, Kind::Read(pieces, _)) => Outcome::Read(pieces),
            (None, Kind::Status(runs)) => Outcome::Status(runs),
        };
        Some((running.token, outcome))
    }

    /// The request of this token.
    pub(crate) fn of(&self, token: u64) -> Option<OpId> {
        self.running.iter().find(|(_, running)| running.token == token).map(|(id, _)| OpId(id))
    }

    /// The requests on volumes, under attachments, that `which` selects.
    pub(crate) fn on(&self, which: impl Fn(VolumeId, Generation) -> bool) -> BTreeSet<OpId> {
        let selected = |(_, running): &(u64, &PendingOp)| which(running.volume, running.attachment);
        self.running.iter().filter(selected).map(|(id, _)| OpId(id)).collect()
    }

    /// Requests under way.
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// Counters by volume.
    pub(crate) fn statistics(&self) -> &BTreeMap<VolumeId, VolumeStatistics> {
        &self.statistics
    }

    /// Forgets the counters of all volumes but those.
    pub(crate) fn keep_statistics(&mut self, of: impl Fn(VolumeId) -> bool) {
        self.statistics.retain(|id, _| of(*id));
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
