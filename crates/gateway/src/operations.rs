//! Requests of clients under way: which of their parts are still to come, and how they end.

use crate::ciphers::Cipher;
use crate::cut::Part;
use crate::parts::Wanted;
use crate::request::{Op, Outcome, Piece, Rekeyed};
use crate::statistics::VolumeStatistics;
use azekura_base::{BLOCK_SIZE, Extent, Generation, IoStatus, KeyGeneration, Run, Slab, VolumeId};
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
    /// What a client gets.
    Pieces(Vec<Piece>),
    /// What copies have.
    Blocks(Part, Vec<Extent>),
    Runs(Part, Vec<Run>),
}

/// What kind of request it is, and what of its answer is there.
enum Kind {
    Write,
    Read(Vec<Piece>),
    Status(Vec<(u64, bool)>),
    Rekey(Box<Rekey>),
}

/// Blocks that are to be encrypted under another key (`gateway/rekeying.rs`), and what came of them.
pub(crate) struct Rekey {
    pub(crate) cipher: Cipher,
    /// The generation that they are to have.
    pub(crate) to: KeyGeneration,
    /// How many more may be begun.
    pub(crate) most: u32,
    pub(crate) done: Rekeyed,
    /// The part of a client's write that waits for it; `None`: it was asked for.
    pub(crate) resumes: Option<Wanted>,
}

/// How a request ended.
pub(crate) enum Ended {
    /// The one with this token.
    Client(u64, Outcome),
    /// Blocks that are to be encrypted under another key: who asked for it by this token is told.
    Rekeyed(u64, Result<Rekeyed, IoStatus>),
    /// One that this part of a client's write waited for; and whether the part is to be sent again, encrypted under
    /// this generation of the key.
    Resumes(Wanted, Result<(Cipher, KeyGeneration), IoStatus>),
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
    /// Its client is gone.
    is_orphan: bool,
}

impl PendingOp {
    /// Puts the answer to the next part behind the others.
    fn take(&mut self, answer: Answer) {
        self.next += 1;
        match (&mut self.kind, answer) {
            (Kind::Read(pieces), Answer::Pieces(first)) if pieces.is_empty() => *pieces = first,
            (Kind::Read(pieces), Answer::Pieces(more)) => pieces.extend(more),
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
        now: Duration,
    ) -> OpId {
        let kind = match op {
            Op::Read { .. } => Kind::Read(Vec::new()),
            Op::Status { .. } => Kind::Status(Vec::new()),
            Op::Write { .. } | Op::CompareAndWrite { .. } | Op::Zero { .. } | Op::Flush => Kind::Write,
            Op::Trim { .. } => {
                let statistics = self.statistics.entry(volume).or_default();
                statistics.trims += 1;
                statistics.trimmed_bytes += bytes;
                Kind::Write
            }
        };
        self.insert(token, kind, (volume, attachment), bytes, now)
    }

    /// Blocks are to be encrypted under another key. There are no parts yet.
    pub(crate) fn begin_rekey(&mut self, token: u64, rekey: Rekey, of: (VolumeId, Generation), now: Duration) -> OpId {
        self.insert(token, Kind::Rekey(Box::new(rekey)), of, 0, now)
    }

    fn insert(
        &mut self,
        token: u64,
        kind: Kind,
        (volume, attachment): (VolumeId, Generation),
        bytes: u64,
        now: Duration,
    ) -> OpId {
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
            is_orphan: false,
        };
        OpId(self.running.insert(running))
    }

    /// What came so far of the blocks that are to be encrypted under another key; `None`: the request is another one.
    pub(crate) fn rekey_mut(&mut self, op: OpId) -> Option<&mut Rekey> {
        match &mut self.running.get_mut(op.0)?.kind {
            Kind::Rekey(rekey) => Some(rekey),
            _ => None,
        }
    }

    /// All work on blocks that are to be encrypted under another key.
    pub(crate) fn rekeys(&self) -> impl Iterator<Item = (VolumeId, &Rekey)> {
        self.running.iter().filter_map(|(_, running)| match &running.kind {
            Kind::Rekey(rekey) => Some((running.volume, &**rekey)),
            _ => None,
        })
    }

    /// The volume that a request is for.
    pub(crate) fn volume(&self, op: OpId) -> Option<VolumeId> {
        self.running.get(op.0).map(|running| running.volume)
    }

    /// The client of a request is gone.
    pub(crate) fn orphan(&mut self, op: OpId) {
        if let Some(running) = self.running.get_mut(op.0) {
            running.is_orphan = true;
        }
    }

    /// True while somebody waits for the request.
    pub(crate) fn is_awaited(&self, op: OpId) -> bool {
        self.running.get(op.0).is_some_and(|running| !running.is_orphan)
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

    /// Takes the request out and counts it, if it waits for no part any more: how it ended.
    pub(crate) fn take_done(&mut self, op: OpId, now: Duration) -> Option<Ended> {
        if self.running.get(op.0)?.left > 0 {
            return None;
        }
        let running = self.running.remove(op.0)?;
        let took = now.saturating_sub(running.started);
        let statistics = self.statistics.entry(running.volume).or_default();
        // That something else was there is an answer.
        let failed = running.failed.is_some_and(|why| !matches!(why, IoStatus::Miscompare(_)));
        match running.kind {
            Kind::Read(_) => statistics.reads.note(running.bytes, took, failed),
            Kind::Write if running.bytes > 0 => statistics.writes.note(running.bytes, took, failed),
            _ => {}
        }
        let outcome = match (running.failed, running.kind) {
            (failed, Kind::Rekey(rekey)) => {
                let Rekey { resumes, cipher, to, done, .. } = *rekey;
                return Some(match resumes {
                    Some(wanted) => Ended::Resumes(wanted, failed.map_or(Ok((cipher, to)), Err)),
                    None => Ended::Rekeyed(running.token, failed.map_or(Ok(done), Err)),
                });
            }
            (Some(status), _) => Outcome::Failed(status),
            (None, Kind::Write) => Outcome::Done,
            (None, Kind::Read(pieces)) => Outcome::Read(pieces),
            (None, Kind::Status(runs)) => Outcome::Status(runs),
        };
        Some(Ended::Client(running.token, outcome))
    }

    /// The request of this token.
    pub(crate) fn of(&self, token: u64) -> Option<OpId> {
        let is_clients = |running: &PendingOp| !matches!(running.kind, Kind::Rekey(_));
        self.running.iter().find(|(_, running)| running.token == token && is_clients(running)).map(|(id, _)| OpId(id))
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
            Some((last, data)) if *data == run.is_data() => *last += len,
            _ => all.push((len, run.is_data())),
        }
    }
}
