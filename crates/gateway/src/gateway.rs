//! The gateway: requests under way, and where their parts are.

use crate::cut::{self, Part};
use crate::reading;
use crate::statistics::VolumeStatistics;
use crate::view::{GroupView, VolumeView};
use crate::{
    COPIES_WAIT, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_READS_MAX, MENDING_READS_MAX, PARTS_PER_OP_MAX, RETRY_INTERVAL,
    STATUS_CHUNKS_MAX, WRITE_WINDOW,
};
use azekura_base::{
    BLOCK_SIZE, CHUNK_SIZE, Generation, IoStatus, LayerId, NodeId, PgId, RequestId, SessionId, VolumeId,
};
use azekura_wire::{Message, ReadRequest, Run, StatusRequest, WriteBody, WriteRequest};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What a client asks of a volume. Offsets and lengths are bytes, of any alignment.
#[derive(Clone, Debug)]
pub enum Op {
    /// Read `len` bytes.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Write bytes; durable when answered.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Make bytes read as zeros; whole blocks give their space back.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Give whole blocks' space back; the edges may stay as they are.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Make everything answered before durable: it is already.
    Flush,
    /// Which bytes hold data? The answer may cover less than was asked for.
    Status {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

/// A piece of what was read, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These bytes.
    Data(Bytes),
    /// This many zeros.
    Zero(usize),
}

/// How an [`Op`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A write, zero, trim or flush is done.
    Done,
    /// What was read.
    Read(Vec<Piece>),
    /// Runs of bytes, in order: (length, holds data).
    Status(Vec<(u64, bool)>),
    /// It was not, or not wholly, done.
    Failed(IoStatus),
}

/// What the gateway asks of its surroundings.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send to a node, which may be this one.
    Send(NodeId, Message),
    /// The request named by the token is done.
    Complete(u64, Outcome),
}

enum Kind {
    Write,
    Read(Vec<Piece>),
    Status(Vec<(u64, bool)>),
}

pub(crate) struct Running {
    pub(crate) token: u64,
    kind: Kind,
    pub(crate) volume: VolumeId,
    /// The attachment that the client asked under.
    pub(crate) attachment: Generation,
    bytes: u64,
    started: Duration,
    /// Parts not answered yet.
    left: u32,
    /// Parts of a read that were answered out of turn: (index, extents or runs).
    early: BTreeMap<u32, Answer>,
    /// The next part of a read to be put behind the others.
    next: u32,
    failed: Option<IoStatus>,
}

enum Answer {
    Blocks(Part, Vec<azekura_wire::Extent>),
    Runs(Part, Vec<Run>),
}

#[derive(Clone)]
enum Ask {
    Write(WriteBody),
    Read,
    Status,
}

/// One part under way.
pub(crate) struct Under {
    pub(crate) op: u64,
    index: u32,
    part: Part,
    volume: VolumeId,
    attachment: Generation,
    layer: LayerId,
    pg: PgId,
    ask: Ask,
    /// Where it was sent; `None` while it waits to be sent.
    pub(crate) at: Option<NodeId>,
    /// Not to be sent before.
    retry_at: Duration,
    /// Nodes that could not read it.
    tried: Vec<NodeId>,
    /// Since when too few copies are in sync.
    waits_since: Option<Duration>,
    /// A secondary said that the primary must answer.
    primary_only: bool,
}

/// See the crate's description.
pub struct Gateway {
    me: NodeId,
    session: SessionId,
    volumes: BTreeMap<String, Arc<VolumeView>>,
    by_id: BTreeMap<VolumeId, Arc<VolumeView>>,
    groups: BTreeMap<PgId, GroupView>,
    links: BTreeMap<NodeId, bool>,
    pub(crate) ops: BTreeMap<u64, Running>,
    ops_started: u64,
    pub(crate) writes: BTreeMap<RequestId, Under>,
    pub(crate) reads: BTreeMap<RequestId, Under>,
    /// Numbers given; writes and reads are numbered apart.
    last_write: u64,
    last_read: u64,
    pub(crate) in_flight_bytes: usize,
    /// Parts of writes that the window of numbers has no room for yet: those of long trims.
    pub(crate) backlog: VecDeque<Under>,
    /// Parts that wait to be sent, so that a tick need not look at all.
    pub(crate) idle_parts: usize,
    statistics: BTreeMap<VolumeId, VolumeStatistics>,
    pub(crate) effects: VecDeque<Effect>,
    now: Duration,
}

impl Gateway {
    /// A gateway on node `me`. `session` must be one that no gateway has ever used.
    #[must_use]
    pub fn new(me: NodeId, session: SessionId) -> Gateway {
        Gateway {
            me,
            session,
            volumes: BTreeMap::new(),
            by_id: BTreeMap::new(),
            groups: BTreeMap::new(),
            links: BTreeMap::from([(me, true)]),
            ops: BTreeMap::new(),
            ops_started: 0,
            writes: BTreeMap::new(),
            reads: BTreeMap::new(),
            last_write: 0,
            last_read: 0,
            in_flight_bytes: 0,
            backlog: VecDeque::new(),
            idle_parts: 0,
            statistics: BTreeMap::new(),
            effects: VecDeque::new(),
            now: Duration::ZERO,
        }
    }

    /// The cluster changed: volumes by name, and where groups' copies are.
    pub fn configure(&mut self, volumes: BTreeMap<String, Arc<VolumeView>>, groups: BTreeMap<PgId, GroupView>) {
        self.volumes = volumes;
        self.groups = groups;
        self.by_id = self.volumes.values().map(|volume| (volume.id, volume.clone())).collect();
        let by_id = &self.by_id;
        self.statistics.retain(|id, _| by_id.contains_key(id));
        self.end_deleted();
        self.recall();
        self.resend(|_| true);
    }

    /// Takes back what is with a copy that is not asked any more: a primary that was replaced may never answer. The new
    /// one knows a write that it has already by its number.
    fn recall(&mut self) {
        for under in self.writes.values_mut() {
            let primary = self.groups.get(&under.pg).map(|group| group.primary);
            if under.at.is_some() && under.at != primary {
                under.at = None;
                self.idle_parts += 1;
            }
        }
        for under in self.reads.values_mut() {
            let copies = self.groups.get(&under.pg).map_or(&[][..], |group| &group.copies);
            if under.at.is_some_and(|node| !copies.contains(&node)) {
                under.at = None;
                under.primary_only = false;
                self.idle_parts += 1;
            }
        }
    }

    /// The volumes by name.
    #[must_use]
    pub fn volumes(&self) -> &BTreeMap<String, Arc<VolumeView>> {
        &self.volumes
    }

    /// Counters by volume.
    #[must_use]
    pub fn statistics(&self) -> &BTreeMap<VolumeId, VolumeStatistics> {
        &self.statistics
    }

    /// Bytes under way.
    #[must_use]
    pub fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// Requests under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ops.len()
    }

    /// True while one more request may be submitted; else clients must wait.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_flight_bytes < IN_FLIGHT_BYTES_MAX
            && self.reads.len() < IN_FLIGHT_READS_MAX
            && self.backlog.is_empty()
            && self.last_write - self.oldest_write().0 + PARTS_PER_OP_MAX < WRITE_WINDOW
    }

    fn oldest_write(&self) -> RequestId {
        self.writes
            .first_key_value()
            .map_or(RequestId(self.last_write + 1), |(id, _)| *id)
            .min(RequestId(self.last_write))
    }

    /// The next thing to do.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Takes the request of a client that has opened the volume under `attachment`; [`Effect::Complete`] with `token` will
    /// answer it.
    pub fn submit(&mut self, token: u64, volume: &str, attachment: Generation, op: Op, now: Duration) {
        self.now = now;
        let Some(volume) = self.volumes.get(volume).cloned() else {
            self.effects.push_back(Effect::Complete(token, Outcome::Failed(IoStatus::Gone)));
            return;
        };
        let (offset, len, writes) = match &op {
            Op::Read { offset, len } | Op::Status { offset, len } => (*offset, *len, false),
            Op::Zero { offset, len } | Op::Trim { offset, len } => (*offset, *len, true),
            Op::Write { offset, bytes } => (*offset, bytes.len() as u64, true),
            Op::Flush => (0, 0, false),
        };
        let refusal = if offset.checked_add(len).is_none_or(|end| end > volume.size) {
            Some(IoStatus::Invalid)
        } else if writes && volume.read_only {
            Some(IoStatus::ReadOnly)
        } else {
            None
        };
        if let Some(status) = refusal {
            self.effects.push_back(Effect::Complete(token, Outcome::Failed(status)));
            return;
        }
        self.ops_started += 1;
        let id = self.ops_started;
        let kind = match &op {
            Op::Read { .. } => Kind::Read(Vec::new()),
            Op::Status { .. } => Kind::Status(Vec::new()),
            _ => Kind::Write,
        };
        self.ops.insert(
            id,
            Running {
                token,
                kind,
                volume: volume.id,
                attachment,
                bytes: len,
                started: now,
                left: 0,
                early: BTreeMap::new(),
                next: 0,
                failed: None,
            },
        );
        match op {
            Op::Flush => {}
            Op::Read { offset, len } => {
                cut::chunks(offset, len).for_each(|part| self.start(id, &volume, part, Ask::Read));
            }
            Op::Status { offset, len } => {
                let len = len.min(STATUS_CHUNKS_MAX * CHUNK_SIZE as u64 - offset % CHUNK_SIZE as u64);
                cut::chunks(offset, len).for_each(|part| self.start(id, &volume, part, Ask::Status));
            }
            Op::Write { offset, bytes } => {
                let mut at = 0;
                for part in cut::chunks(offset, bytes.len() as u64) {
                    let body = cut::data_body(part, bytes.slice(at..at + part.len as usize));
                    at += part.len as usize;
                    self.start(id, &volume, part, Ask::Write(body));
                }
            }
            Op::Zero { offset, len } => {
                for (part, whole) in cut::chunks(offset, len).flat_map(cut::zeros) {
                    let body = if whole {
                        WriteBody::Zero
                    } else {
                        cut::data_body(part, Bytes::from(vec![0; part.len as usize]))
                    };
                    self.start(id, &volume, part, Ask::Write(body));
                }
            }
            Op::Trim { offset, len } => {
                for (part, whole) in cut::chunks(offset, len).flat_map(cut::zeros) {
                    if whole {
                        self.start(id, &volume, part, Ask::Write(WriteBody::Zero));
                    }
                }
            }
        }
        self.finish_if_done(id);
    }

    fn start(&mut self, op: u64, volume: &VolumeView, part: Part, ask: Ask) {
        let Some(running) = self.ops.get_mut(&op) else { return };
        let Some(pg) = volume.group_of(part.chunk) else {
            running.failed = Some(IoStatus::Gone);
            return;
        };
        let index = running.left;
        let attachment = running.attachment;
        running.left += 1;
        self.in_flight_bytes += bytes_held(&ask, part);
        let under = Under {
            op,
            index,
            part,
            volume: volume.id,
            attachment,
            layer: volume.layer,
            pg,
            ask,
            at: None,
            retry_at: Duration::ZERO,
            tried: Vec::new(),
            waits_since: None,
            primary_only: false,
        };
        if matches!(under.ask, Ask::Write(_)) {
            self.backlog.push_back(under);
            self.start_backlog();
        } else {
            self.idle_parts += 1;
            self.last_read += 1;
            self.reads.insert(RequestId(self.last_read), under);
            self.send(RequestId(self.last_read), false);
        }
    }

    /// Numbers and sends as many writes as the window allows.
    pub(crate) fn start_backlog(&mut self) {
        while self.last_write - self.oldest_write().0 + 1 < WRITE_WINDOW {
            let Some(under) = self.backlog.pop_front() else { return };
            self.idle_parts += 1;
            self.last_write += 1;
            self.writes.insert(RequestId(self.last_write), under);
            self.send(RequestId(self.last_write), true);
        }
    }

    /// Sends a part that waits, if there is where to.
    fn send(&mut self, id: RequestId, is_write: bool) {
        let oldest = self.oldest_write();
        let parts = if is_write { &mut self.writes } else { &mut self.reads };
        let Some(under) = parts.get_mut(&id) else { return };
        if under.at.is_some() || self.now < under.retry_at {
            return;
        }
        let Some(current) = self.by_id.get(&under.volume) else { return };
        if is_write && current.cut.is_some() {
            return; // A snapshot is being made: no copy would take it.
        }
        // Where it was refused as stale, it has no place; where it has one, it is known by its number.
        under.layer = current.layer;
        let Some(group) = self.groups.get(&under.pg) else { return };
        let up = |node: &NodeId| self.links.get(node).copied().unwrap_or(false);
        let target = if is_write || under.primary_only {
            Some(group.primary)
        } else {
            let usable = |node: &&NodeId| up(node) && !under.tried.contains(node);
            group
                .copies
                .iter()
                .find(|node| **node == self.me && usable(node))
                .or_else(|| Some(&group.primary).filter(usable))
                .or_else(|| group.copies.iter().find(usable))
                // None could read it, and one has refused since: it may be another device by now.
                .or_else(|| Some(&group.primary).filter(|_| group.copies.iter().all(|c| under.tried.contains(c))))
                .copied()
        };
        let Some(target) = target.filter(up) else { return };
        under.at = Some(target);
        self.idle_parts -= 1;
        let Under { volume, attachment, layer, pg, part, .. } = *under;
        let chunk = part.chunk;
        let (first, count) = reading::blocks(part);
        let message = match &under.ask {
            Ask::Read => Message::Read(ReadRequest { request: id, pg, volume, attachment, layer, chunk, first, count }),
            Ask::Status => Message::Status(StatusRequest { request: id, pg, volume, attachment, layer, chunk }),
            Ask::Write(body) => Message::Write(WriteRequest {
                session: self.session,
                request: id,
                oldest,
                pg,
                volume,
                attachment,
                layer,
                chunk,
                offset: part.offset,
                len: part.len,
                body: body.clone(),
            }),
        };
        self.effects.push_back(Effect::Send(target, message));
    }

    /// Sends, in their order, the waiting parts that `which` selects.
    fn resend(&mut self, which: impl Fn(&Under) -> bool) {
        for is_write in [true, false] {
            let parts = if is_write { &mut self.writes } else { &mut self.reads };
            let mut waiting = Vec::new();
            for (id, under) in parts.iter_mut().filter(|(_, u)| u.at.is_none() && which(u)) {
                under.retry_at = Duration::ZERO;
                waiting.push(*id);
            }
            waiting.into_iter().for_each(|id| self.send(id, is_write));
        }
    }

    /// The connection to `node` is up; what was sent on an earlier one is void.
    pub fn link_up(&mut self, node: NodeId) {
        self.links.insert(node, true);
        self.resend(|_| true);
    }

    /// The connection to `node` is gone: what it has not answered is sent again, to it or to another copy.
    pub fn link_down(&mut self, node: NodeId) {
        self.links.insert(node, false);
        for under in self.writes.values_mut().chain(self.reads.values_mut()) {
            if under.at == Some(node) {
                under.at = None;
                under.primary_only = false;
                self.idle_parts += 1;
            }
        }
        self.resend(|_| true);
    }

    /// Time passes: sends again what was refused a while ago.
    pub fn tick(&mut self, now: Duration) {
        self.now = now;
        if self.idle_parts > 0 {
            self.resend(|under| under.retry_at <= now);
        }
    }

    /// When [`Gateway::tick`] has something to do, if it has.
    #[must_use]
    pub fn next_tick(&self) -> Option<Duration> {
        (self.idle_parts > 0).then(|| self.now + RETRY_INTERVAL)
    }

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

    /// Fails what was asked of volumes that are not there any more.
    fn end_deleted(&mut self) {
        let known = std::mem::take(&mut self.by_id);
        self.end_requests(|volume, _| !known.contains_key(&volume), IoStatus::Gone);
        self.by_id = known;
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

    fn finish_if_done(&mut self, op: u64) {
        if self.ops.get(&op).is_none_or(|running| running.left > 0) {
            return;
        }
        let Some(running) = self.ops.remove(&op) else { return };
        let took = self.now.saturating_sub(running.started);
        let statistics = self.statistics.entry(running.volume).or_default();
        let failed = running.failed.is_some();
        match running.kind {
            Kind::Read(_) => statistics.reads.note(running.bytes, took, failed),
            Kind::Write if running.bytes > 0 => statistics.writes.note(running.bytes, took, failed),
            _ => {}
        }
        let outcome = match (running.failed, running.kind) {
            (Some(status), _) => Outcome::Failed(status),
            (None, Kind::Write) => Outcome::Done,
            (None, Kind::Read(pieces)) => Outcome::Read(pieces),
            (None, Kind::Status(runs)) => Outcome::Status(runs),
        };
        self.effects.push_back(Effect::Complete(running.token, outcome));
    }
}

impl Under {
    pub(crate) fn bytes_held(&self) -> usize {
        bytes_held(&self.ask, self.part)
    }
}

/// Memory that a part holds while it is under way.
fn bytes_held(ask: &Ask, part: Part) -> usize {
    match ask {
        Ask::Write(WriteBody::Data { bytes, .. }) => bytes.len(),
        Ask::Read => part.len as usize,
        Ask::Write(WriteBody::Zero) | Ask::Status => 0,
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

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::ChunkIndex;
    use azekura_wire::{ReadDone, WriteDone};

    const HOME: NodeId = NodeId(1);
    const FAR: NodeId = NodeId(2);
    /// The attachment that clients ask under.
    const HELD: Generation = Generation(4);

    fn gateway() -> Gateway {
        let mut gateway = Gateway::new(HOME, SessionId(9));
        let volume = VolumeView {
            id: VolumeId(1),
            name: "v".into(),
            size: 8 << 30,
            layer: LayerId(1),
            cut: None,
            read_only: false,
            groups: [PgId(0), PgId(1)].into(),
            group_offset: 1,
        };
        let group = |primary, copies: &[NodeId]| GroupView { primary, copies: copies.to_vec(), primary_reads: false };
        let groups = BTreeMap::from([(PgId(0), group(FAR, &[HOME, FAR])), (PgId(1), group(FAR, &[FAR]))]);
        gateway.configure(BTreeMap::from([("v".into(), Arc::new(volume))]), groups);
        gateway
    }

    fn effects(gateway: &mut Gateway) -> Vec<Effect> {
        std::iter::from_fn(|| gateway.next_effect()).collect()
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_write_waits_for_its_link_and_is_sent_again_with_its_number() {
        let mut gateway = gateway();
        gateway.submit(7, "v", HELD, Op::Write { offset: 0, bytes: Bytes::from(vec![1; 4096]) }, at(0));
        assert!(effects(&mut gateway).is_empty(), "there is no link");
        gateway.link_up(FAR);
        let [Effect::Send(FAR, Message::Write(first))] = &effects(&mut gateway)[..] else { panic!() };
        assert_eq!((first.pg, first.chunk), (PgId(1), ChunkIndex(0)));
        gateway.link_down(FAR);
        gateway.link_up(FAR);
        let [Effect::Send(FAR, Message::Write(again))] = &effects(&mut gateway)[..] else { panic!() };
        assert_eq!(first, again);
        let done = Message::WriteDone(WriteDone { request: first.request, result: Ok(()) });
        gateway.answer(FAR, done.clone(), at(1));
        assert!(matches!(effects(&mut gateway)[..], [Effect::Complete(7, Outcome::Done)]));
        gateway.answer(FAR, done, at(2));
        assert!(effects(&mut gateway).is_empty(), "answered once");
        assert_eq!(gateway.in_flight_bytes(), 0);
    }

    #[test]
    fn a_read_starts_at_home_and_follows_to_the_primary() {
        let mut gateway = gateway();
        gateway.link_up(FAR);
        gateway.submit(7, "v", HELD, Op::Read { offset: 4 << 20, len: 100 }, at(0));
        let [Effect::Send(HOME, Message::Read(read))] = &effects(&mut gateway)[..] else { panic!() };
        let refusal = |request| Message::ReadDone(ReadDone { request, result: Err(IoStatus::Redirect) });
        gateway.answer(HOME, refusal(read.request), at(1));
        assert!(matches!(effects(&mut gateway)[..], [Effect::Send(FAR, Message::Read(_))]));
        gateway.answer(FAR, refusal(read.request), at(1));
        assert!(effects(&mut gateway).is_empty(), "the primary's refusal is not answered at once");
        gateway.tick(at(1) + RETRY_INTERVAL);
        assert!(matches!(effects(&mut gateway)[..], [Effect::Send(HOME, Message::Read(_))]));
        let extents = vec![azekura_wire::Extent::Zero { count: 1 }];
        gateway.answer(HOME, Message::ReadDone(ReadDone { request: read.request, result: Ok(extents) }), at(20));
        let [Effect::Complete(7, Outcome::Read(pieces))] = &effects(&mut gateway)[..] else { panic!() };
        assert_eq!(pieces[..], [Piece::Zero(100)]);
    }

    #[test]
    fn a_bad_copy_is_passed_over_and_the_last_one_decides() {
        let mut gateway = gateway();
        gateway.link_up(FAR);
        gateway.submit(7, "v", HELD, Op::Read { offset: 4 << 20, len: 4096 }, at(0));
        let [Effect::Send(HOME, Message::Read(read))] = &effects(&mut gateway)[..] else { panic!() };
        let bad = |request| Message::ReadDone(ReadDone { request, result: Err(IoStatus::Io) });
        gateway.answer(HOME, bad(read.request), at(1));
        assert!(matches!(effects(&mut gateway)[..], [Effect::Send(FAR, Message::Read(_))]));
        gateway.answer(FAR, bad(read.request), at(1));
        assert!(matches!(effects(&mut gateway)[..], [Effect::Complete(7, Outcome::Failed(IoStatus::Io))]));
    }

    #[test]
    fn a_node_that_could_not_read_is_asked_again_when_it_is_the_last_one_and_has_refused_since() {
        let mut gateway = gateway();
        gateway.link_up(FAR);
        gateway.submit(7, "v", HELD, Op::Read { offset: 4 << 20, len: 4096 }, at(0));
        let [Effect::Send(HOME, Message::Read(read))] = &effects(&mut gateway)[..] else { panic!() };
        let answer = |result| Message::ReadDone(ReadDone { request: read.request, result: Err(result) });
        gateway.answer(HOME, answer(IoStatus::Io), at(1));
        assert!(matches!(effects(&mut gateway)[..], [Effect::Send(FAR, Message::Read(_))]));
        // The group goes on with a single copy, on another device of the first node, which does not reign yet.
        let group = GroupView { primary: HOME, copies: vec![HOME], primary_reads: false };
        let volumes = gateway.volumes().clone();
        gateway.configure(volumes, BTreeMap::from([(PgId(0), group)]));
        assert!(matches!(effects(&mut gateway)[..], [Effect::Send(HOME, Message::Read(_))]));
        gateway.answer(HOME, answer(IoStatus::Redirect), at(3));
        assert!(effects(&mut gateway).is_empty());
        gateway.tick(at(3) + RETRY_INTERVAL);
        assert!(matches!(effects(&mut gateway)[..], [Effect::Send(HOME, Message::Read(_))]));
    }

    #[test]
    fn a_long_trim_keeps_to_the_window() {
        let mut gateway = gateway();
        gateway.link_up(FAR);
        gateway.submit(7, "v", HELD, Op::Trim { offset: 1, len: (8 << 30) - 1 }, at(0));
        let mut done = Vec::new();
        let mut sent = 0;
        while done.is_empty() {
            assert!(sent > 0 || !gateway.has_room());
            let batch = effects(&mut gateway);
            assert!(!batch.is_empty(), "stuck after {sent}");
            for effect in batch {
                match effect {
                    Effect::Send(FAR, Message::Write(write)) => {
                        sent += 1;
                        assert!(write.request.0 - write.oldest.0 < WRITE_WINDOW);
                        let done = WriteDone { request: write.request, result: Ok(()) };
                        gateway.answer(FAR, Message::WriteDone(done), at(1));
                    }
                    Effect::Complete(token, outcome) => done.push((token, outcome)),
                    Effect::Send(..) => panic!("a write belongs to the primary"),
                }
            }
        }
        assert_eq!(done, [(7, Outcome::Done)]);
        assert_eq!(sent, 2048);
        assert!(gateway.has_room());
    }

    #[test]
    fn what_an_ended_attachment_has_asked_for_fails_at_once() {
        let mut gateway = gateway();
        gateway.link_up(FAR);
        let write = |len| Op::Write { offset: 0, bytes: Bytes::from(vec![1; len]) };
        gateway.submit(1, "v", HELD, write(4096), at(0));
        gateway.submit(2, "v", HELD, Op::Trim { offset: 0, len: 8 << 30 }, at(0));
        gateway.submit(3, "v", HELD, Op::Read { offset: 0, len: 4096 }, at(0));
        gateway.submit(4, "v", Generation(5), write(8192), at(0));
        drop(effects(&mut gateway));
        gateway.end_attachments(|volume, attachment| volume == VolumeId(1) && attachment == HELD);
        let mut ended = Vec::new();
        let mut sent = Vec::new();
        for effect in effects(&mut gateway) {
            match effect {
                Effect::Complete(token, outcome) => ended.push((token, outcome)),
                Effect::Send(_, Message::Write(write)) => sent.push(write.attachment),
                Effect::Send(..) => panic!(),
            }
        }
        let fenced = |token| (token, Outcome::Failed(IoStatus::Fenced));
        assert_eq!(ended, [fenced(1), fenced(2), fenced(3)]);
        assert_eq!(sent, [Generation(5)], "what waited for room behind the trim goes on");
        assert_eq!((gateway.in_flight(), gateway.in_flight_bytes()), (1, 8192));
        gateway.link_down(FAR);
        gateway.link_up(FAR);
        assert_eq!(effects(&mut gateway).len(), 1, "only that is sent again");
    }

    #[test]
    fn a_primary_that_knows_better_ends_a_request() {
        let mut gateway = gateway();
        gateway.link_up(FAR);
        gateway.submit(7, "v", HELD, Op::Read { offset: 4 << 20, len: 4096 }, at(0));
        let [Effect::Send(HOME, Message::Read(read))] = &effects(&mut gateway)[..] else { panic!() };
        assert_eq!((read.volume, read.attachment), (VolumeId(1), HELD));
        let fenced = ReadDone { request: read.request, result: Err(IoStatus::Fenced) };
        gateway.answer(HOME, Message::ReadDone(fenced), at(1));
        assert!(matches!(effects(&mut gateway)[..], [Effect::Complete(7, Outcome::Failed(IoStatus::Fenced))]));
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let mut gateway = gateway();
        for op in [Op::Read { offset: 8 << 30, len: 1 }, Op::Zero { offset: u64::MAX, len: 2 }] {
            gateway.submit(1, "v", HELD, op, at(0));
            let [Effect::Complete(1, Outcome::Failed(IoStatus::Invalid))] = &effects(&mut gateway)[..] else {
                panic!()
            };
        }
        gateway.submit(1, "w", HELD, Op::Flush, at(0));
        assert!(matches!(effects(&mut gateway)[..], [Effect::Complete(1, Outcome::Failed(IoStatus::Gone))]));
    }
}
