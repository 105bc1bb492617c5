//! The gateway: requests under way, and where their parts are.

use crate::STATUS_CHUNKS_MAX;
use crate::answers::Answer;
use crate::cut::{self, Part};
use crate::parts::Parts;
use crate::room::Room;
use crate::statistics::VolumeStatistics;
use crate::view::{GroupView, VolumeView};
use azekura_base::{Body, CHUNK_SIZE, Endpoint, Generation, IoStatus, LayerId, PgId, SessionId, VolumeId};
use azekura_wire::Message;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    /// Send to a shard, which may be this one.
    Send(Endpoint, Message),
    /// The request named by the token is done.
    Complete(u64, Outcome),
}

pub(crate) enum Kind {
    Write,
    Read(Vec<Piece>),
    Status(Vec<(u64, bool)>),
}

pub(crate) struct Running {
    pub(crate) token: u64,
    pub(crate) kind: Kind,
    pub(crate) volume: VolumeId,
    /// The attachment that the client asked under.
    pub(crate) attachment: Generation,
    pub(crate) bytes: u64,
    pub(crate) started: Duration,
    /// Parts not answered yet.
    pub(crate) left: u32,
    /// Parts of a read that were answered out of turn: (index, extents or runs).
    pub(crate) early: BTreeMap<u32, Answer>,
    /// The next part of a read to be put behind the others.
    pub(crate) next: u32,
    pub(crate) failed: Option<IoStatus>,
}

#[derive(Clone)]
pub(crate) enum Ask {
    Write(Body),
    Read,
    Status,
}

/// One part under way.
pub(crate) struct Under {
    pub(crate) op: u64,
    pub(crate) index: u32,
    pub(crate) part: Part,
    pub(crate) volume: VolumeId,
    pub(crate) attachment: Generation,
    pub(crate) layer: LayerId,
    pub(crate) pg: PgId,
    pub(crate) ask: Ask,
    /// Where it was sent; `None` while it waits to be sent.
    pub(crate) at: Option<Endpoint>,
    /// When it was sent last.
    pub(crate) sent_at: Duration,
    /// How often it was sent again for want of an answer.
    pub(crate) asked_again: u32,
    /// Not to be sent before.
    pub(crate) retry_at: Duration,
    /// Shards that could not read it.
    pub(crate) tried: Vec<Endpoint>,
    /// Shards that were asked to read it and have not answered, since the last time that this was said of all.
    pub(crate) silent: Vec<Endpoint>,
    /// Since when it waits, unless its group answers others.
    pub(crate) waits_since: Duration,
    /// How often that started anew.
    pub(crate) chances: u8,
    /// It has no number yet.
    pub(crate) in_backlog: bool,
    /// A secondary said that the primary must answer.
    pub(crate) primary_only: bool,
}

/// See the crate's description.
pub struct Gateway {
    pub(crate) me: Endpoint,
    pub(crate) session: SessionId,
    pub(crate) volumes: BTreeMap<String, Arc<VolumeView>>,
    pub(crate) by_id: BTreeMap<VolumeId, Arc<VolumeView>>,
    pub(crate) groups: BTreeMap<PgId, GroupView>,
    pub(crate) links: BTreeMap<Endpoint, bool>,
    /// This shard, and those that are reached without leaving the process: what they read, their stores have compared.
    pub(crate) trusted: BTreeSet<Endpoint>,
    pub(crate) ops: BTreeMap<u64, Running>,
    pub(crate) ops_started: u64,
    pub(crate) parts: Parts,
    pub(crate) room: Room,
    /// When parts that wait to be sent are tried next, if not before.
    pub(crate) next_retry: Duration,
    /// When it is looked next for parts that have waited for too long, or are without an answer.
    pub(crate) next_look: Duration,
    /// Parts that were sent again for want of an answer.
    pub(crate) asked_again: u64,
    pub(crate) statistics: BTreeMap<VolumeId, VolumeStatistics>,
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) now: Duration,
}

impl Gateway {
    /// The gateway of the shard `me`. `session` must be one that no gateway has ever used.
    #[must_use]
    pub fn new(me: Endpoint, session: SessionId) -> Gateway {
        Gateway {
            me,
            session,
            volumes: BTreeMap::new(),
            by_id: BTreeMap::new(),
            groups: BTreeMap::new(),
            links: BTreeMap::from([(me, true)]),
            trusted: BTreeSet::from([me]),
            ops: BTreeMap::new(),
            ops_started: 0,
            parts: Parts::default(),
            room: Room::default(),
            next_retry: Duration::ZERO,
            next_look: Duration::ZERO,
            asked_again: 0,
            statistics: BTreeMap::new(),
            effects: VecDeque::new(),
            now: Duration::ZERO,
        }
    }

    /// The cluster changed: volumes by name, and where groups' copies are.
    pub fn configure(&mut self, volumes: BTreeMap<String, Arc<VolumeView>>, groups: BTreeMap<PgId, GroupView>) {
        self.volumes = volumes;
        let before = std::mem::replace(&mut self.groups, groups);
        self.by_id = self.volumes.values().map(|volume| (volume.id, volume.clone())).collect();
        let by_id = &self.by_id;
        self.statistics.retain(|id, _| by_id.contains_key(id));
        self.end_deleted();
        self.recall();
        let primary = |groups: &BTreeMap<PgId, GroupView>, pg| groups.get(&pg).map(|group: &GroupView| group.primary);
        let now: BTreeMap<PgId, Option<Endpoint>> =
            self.parts.lanes.keys().map(|pg| (*pg, primary(&self.groups, *pg))).collect();
        self.new_chance(|pg| now.get(&pg).is_some_and(|now| *now != primary(&before, pg)));
        self.resend(|_| true);
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

    /// Requests under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ops.len()
    }

    /// Parts of requests that were sent again because nobody had answered them for [`crate::ANSWER_WAIT`] or longer.
    #[must_use]
    pub fn asked_again(&self) -> u64 {
        self.asked_again
    }

    /// The next thing to do.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Takes the request of a client that has opened the volume under `attachment`; [`Effect::Complete`] with `token`
    /// will answer it.
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
                    let body =
                        if whole { Body::Zero } else { cut::data_body(part, Bytes::from(vec![0; part.len as usize])) };
                    self.start(id, &volume, part, Ask::Write(body));
                }
            }
            Op::Trim { offset, len } => {
                for (part, whole) in cut::chunks(offset, len).flat_map(cut::zeros) {
                    if whole {
                        self.start(id, &volume, part, Ask::Write(Body::Zero));
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
        let under = Under {
            op,
            index,
            part,
            volume: volume.id,
            attachment,
            layer: volume.layer,
            pg,
            at: None,
            sent_at: Duration::ZERO,
            asked_again: 0,
            retry_at: Duration::ZERO,
            tried: Vec::new(),
            silent: Vec::new(),
            waits_since: self.now,
            chances: 0,
            in_backlog: matches!(ask, Ask::Write(_)),
            ask,
            primary_only: false,
        };
        self.room.take(&under);
        let lane = self.parts.lane(pg);
        if under.is_write() {
            lane.backlog.push_back(under);
            self.start_backlog(pg);
        } else {
            let id = self.parts.add_read(under);
            self.send(id);
        }
    }

    /// Fails what was asked of volumes that are not there any more.
    fn end_deleted(&mut self) {
        let known = std::mem::take(&mut self.by_id);
        self.end_requests(|volume, _| !known.contains_key(&volume), IoStatus::Gone);
        self.by_id = known;
    }

    pub(crate) fn finish_if_done(&mut self, op: u64) {
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
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.ask, Ask::Write(_))
    }

    /// Memory that the part holds while it is under way.
    pub(crate) fn bytes_held(&self) -> usize {
        match &self.ask {
            Ask::Write(Body::Data { bytes, .. }) => bytes.len(),
            Ask::Read => self.part.len as usize,
            Ask::Write(Body::Zero | Body::Lost { .. }) | Ask::Status => 0,
        }
    }
}
