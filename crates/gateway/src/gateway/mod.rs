//! The gateway: takes requests, cuts them into parts, and sees to it that each part is answered.
//!
//! - [`answers`]: what comes back of a part.
//! - [`peers`]: whom it needs a connection to.
//! - [`sending`]: where it is sent, and when again.
//! - [`ending`]: requests that end before all of their parts are answered.
//! - [`settling`]: writes that were given up and may still be applied.
//! - [`rekeying`]: blocks that are encrypted under another key.

mod answers;
mod ending;
mod peers;
mod rekeying;
mod sending;
mod settling;

use crate::STATUS_CHUNKS_MAX;
use crate::ciphers::Cipher;
use crate::cut::{self, Part};
use crate::directory::Directory;
use crate::operations::{Ended, OpId, Operations};
use crate::parts::{Ask, InFlight, Parts, Wanted};
use crate::request::{Op, Outcome, Rekeyed};
use crate::room::Room;
use crate::statistics::VolumeStatistics;
use crate::unsettled::Unsettled;
use crate::uses::Uses;
use crate::view::{GroupView, VolumeView};
use azekura_base::{Body, CHUNK_SIZE, Endpoint, Generation, IoStatus, PgId, SessionId, VolumeId};
use azekura_cipher::Keyring;
use azekura_wire::Message;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What the gateway asks of its surroundings.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send to a shard, which may be this one.
    Send(Endpoint, Message),
    /// The request named by the token is done.
    Complete(u64, Outcome),
    /// What [`Gateway::rekey`] was asked for by this token is done, or has failed.
    Rekeyed(u64, Result<Rekeyed, IoStatus>),
}

/// The gateway of one shard: from requests on volumes to answers, by way of the shards that hold them; sans-IO.
///
/// # How it is driven
///
/// Its owner tells it of the cluster ([`Gateway::configure`]) and of connections ([`Gateway::link_up`],
/// [`Gateway::link_down`]), gives it requests ([`Gateway::submit`]) while their volumes have room
/// ([`Gateway::has_room`]), hands on what shards answer ([`Gateway::answer`]), says which attachments have ended
/// ([`Gateway::end_attachments`]), and lets time pass ([`Gateway::tick`]): with every heartbeat, and by
/// [`Gateway::next_tick`]. After each of these it performs what [`Gateway::next_effect`] gives, until there is nothing.
/// Every request gets one [`Effect::Complete`].
///
/// # States
///
/// A request is cut into parts, and is done when its last part is answered, or fails before and takes its parts with
/// it. A part is in one of these states:
///
/// ```text
///   write ──► queued ──► waiting      its group's window has room: it gets its number
///   read  ─────────────► waiting
///   waiting ──► sent                  the copy that it is for is connected
///   sent ──► waiting                  refused, stale, unreadable there, silent, connection broken, copy replaced
///   sent ──► answered                 done, read, or failed with an error that is no refusal
///   queued, waiting, sent ──► given up    its time is over, its attachment has ended, its volume is gone
///   queued ──► held ──► queued        writes before it were given up and are not settled: by this gateway or another
/// ```
///
/// A write goes to its group's primary, and keeps its number however often it is sent. A read goes to the nearest copy
/// that has neither failed to read it nor kept silent, or to the primary where a secondary says so.
///
/// # What it costs
///
/// A checksum of what is written, and of what is read unless it comes from a shard of this process that is reached
/// without a connection. Payloads are not copied, but for those of encrypted volumes, whose copy is the cipher's; only
/// the edges of zeros that are no whole blocks are made anew. A request has a place in one slab, a part of a read one
/// in another; a part of a write is found by group and number. What is under way is bounded by
/// [`crate::IN_FLIGHT_BYTES_MAX`] and the little that each volume has for itself. All parts are looked at when the
/// configuration or a connection changes, twice a second, and every [`crate::RETRY_INTERVAL`] while parts wait.
pub struct Gateway {
    session: SessionId,
    directory: Directory,
    operations: Operations,
    parts: Parts,
    room: Room,
    uses: Uses,
    keys: Arc<Keyring>,
    /// What all gateways of the process have given up.
    unsettled: Arc<Unsettled>,
    /// When parts that wait to be sent are tried next, if not before.
    next_retry: Duration,
    /// When it is looked next for parts that have waited for too long, or are without an answer.
    next_look: Duration,
    /// Parts that were sent again for want of an answer.
    asked_again: u64,
    effects: VecDeque<Effect>,
    now: Duration,
}

impl Gateway {
    /// The gateway of the shard `me`. `session` must be one that no gateway has ever used.
    #[must_use]
    pub fn new(me: Endpoint, session: SessionId) -> Gateway {
        Gateway {
            session,
            directory: Directory::new(me),
            operations: Operations::default(),
            parts: Parts::default(),
            room: Room::default(),
            uses: Uses::default(),
            keys: Arc::default(),
            unsettled: Arc::default(),
            next_retry: Duration::ZERO,
            next_look: Duration::ZERO,
            asked_again: 0,
            effects: VecDeque::new(),
            now: Duration::ZERO,
        }
    }

    /// The register of the process whose shard this is: before the first request.
    pub fn share(&mut self, unsettled: Arc<Unsettled>) {
        self.unsettled = unsettled;
    }

    /// The register of the process.
    #[must_use]
    pub fn unsettled(&self) -> &Arc<Unsettled> {
        &self.unsettled
    }

    /// The cluster changed: volumes by name, and where groups' copies are.
    pub fn configure(&mut self, volumes: BTreeMap<String, Arc<VolumeView>>, groups: BTreeMap<PgId, GroupView>) {
        let before = self.directory.configure(volumes, groups);
        self.operations.keep_statistics(|id| self.directory.volume(id).is_some());
        self.end_deleted();
        self.recall();
        let primary_before = |pg| before.get(&pg).map(|group| group.primary);
        self.parts.another_chance(self.now, |pg| self.directory.primary(pg) != primary_before(pg));
        self.resend(|_| true);
    }

    /// The keys of encrypted volumes that the node has from now on. What is under way goes on with those that it had.
    pub fn set_keys(&mut self, keys: Arc<Keyring>) {
        self.keys = keys;
    }

    /// The keys of encrypted volumes that the node has, or why not.
    #[must_use]
    pub fn keys(&self) -> &Keyring {
        &self.keys
    }

    /// The volumes by name.
    #[must_use]
    pub fn volumes(&self) -> &BTreeMap<String, Arc<VolumeView>> {
        self.directory.volumes()
    }

    /// Counters by volume.
    #[must_use]
    pub fn statistics(&self) -> &BTreeMap<VolumeId, VolumeStatistics> {
        self.operations.statistics()
    }

    /// Requests under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.operations.len()
    }

    /// Bytes under way.
    #[must_use]
    pub fn in_flight_bytes(&self) -> usize {
        self.room.bytes()
    }

    /// Parts of requests that were sent again because nobody had answered them for [`crate::ANSWER_WAIT`] or longer.
    #[must_use]
    pub fn asked_again(&self) -> u64 {
        self.asked_again
    }

    /// True while one more request on this volume may be submitted; else its clients must wait. A volume that is not
    /// there has room: the request is refused.
    #[must_use]
    pub fn has_room(&self, volume: &str) -> bool {
        self.directory.volumes().get(volume).is_none_or(|volume| self.room.has_room(volume.id))
    }

    /// The next thing to do.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Takes the request of a client that has opened the volume under `attachment`; [`Effect::Complete`] with `token`
    /// will answer it.
    pub fn submit(&mut self, token: u64, volume: &str, attachment: Generation, op: Op, now: Duration) {
        self.now = now;
        let Some(volume) = self.directory.volumes().get(volume).cloned() else {
            self.effects.push_back(Effect::Complete(token, Outcome::Failed(IoStatus::Gone)));
            return;
        };
        let (offset, len, writes) = match &op {
            Op::Read { offset, len } | Op::Status { offset, len } => (*offset, *len, false),
            Op::Zero { offset, len } | Op::Trim { offset, len } => (*offset, *len, true),
            Op::Write { offset, bytes } | Op::CompareAndWrite { offset, bytes, .. } => {
                (*offset, bytes.len() as u64, true)
            }
            Op::Flush => (0, 0, false),
        };
        let refused = |status| Effect::Complete(token, Outcome::Failed(status));
        let moves_bytes = !matches!(op, Op::Trim { .. } | Op::Status { .. } | Op::Flush);
        // What moves no bytes needs no key. Whoever has opened the volume had the key.
        let cipher = if moves_bytes { Cipher::of(&volume, &self.keys) } else { Some(Cipher::Plain) };
        let Some(cipher) = cipher else { return self.effects.push_back(refused(IoStatus::Io)) };
        let is_outside = offset.checked_add(len).is_none_or(|end| end > volume.size);
        if is_outside || !cipher.allows(offset, len) || !cut::may_compare(&op) {
            return self.effects.push_back(refused(IoStatus::Invalid));
        }
        if writes && volume.read_only {
            return self.effects.push_back(refused(IoStatus::ReadOnly));
        }
        self.uses.note(volume.id, now);
        let id = self.operations.begin(token, (&op, len), (volume.id, attachment), now);
        let mut start = |part, ask| self.start(id, (volume.as_ref(), attachment), part, ask, &cipher);
        match op {
            Op::Flush => {}
            Op::Read { offset, len } => cut::chunks(offset, len).for_each(|part| start(part, Ask::Read)),
            Op::Status { offset, len } => {
                let len = len.min(STATUS_CHUNKS_MAX * CHUNK_SIZE as u64 - offset % CHUNK_SIZE as u64);
                cut::chunks(offset, len).for_each(|part| start(part, Ask::Status));
            }
            Op::Write { offset, bytes } => {
                let mut at = 0;
                for part in cut::chunks(offset, bytes.len() as u64) {
                    let body = cut::data_body(part, bytes.slice(at..at + part.len as usize), &cipher);
                    at += part.len as usize;
                    start(part, Ask::Write(body));
                }
            }
            Op::CompareAndWrite { offset, expected, bytes } => {
                // It lies in one block: there is one part.
                cut::chunks(offset, len)
                    .for_each(|part| start(part, Ask::compare_and_write(part, &expected, bytes.clone(), &cipher)));
            }
            Op::Zero { offset, len } => {
                for (part, whole) in cut::chunks(offset, len).flat_map(cut::zeros) {
                    let body = if whole { Body::Zero } else { cipher.seal_zeros(part) };
                    start(part, Ask::Write(body));
                }
            }
            Op::Trim { offset, len } => {
                let parts = cut::chunks(offset, len).flat_map(cut::zeros);
                parts.filter(|(_, whole)| *whole).for_each(|(part, _)| start(part, Ask::Write(Body::Zero)));
            }
        }
        self.complete_if_done(id);
    }

    fn start(
        &mut self,
        op: OpId,
        (volume, attachment): (&VolumeView, Generation),
        part: Part,
        ask: Ask,
        cipher: &Cipher,
    ) {
        let Some(pg) = volume.group_of(part.chunk) else {
            self.operations.fail(op, IoStatus::Gone);
            return;
        };
        let Some(index) = self.operations.add_part(op) else { return };
        let cipher = cipher.clone();
        self.add(Wanted { op, index, part, volume: volume.id, attachment, layer: volume.layer, pg, ask, cipher });
    }

    /// A part is under way from now on.
    fn add(&mut self, wanted: Wanted) {
        let pg = wanted.pg;
        let in_flight = InFlight::new(wanted, self.now);
        self.room.take(&in_flight);
        if in_flight.is_write() {
            self.parts.add_write(in_flight);
            self.start_backlog(pg);
        } else {
            let id = self.parts.add_read(in_flight);
            self.send(id);
        }
    }

    /// Answers the request, if it waits for no part any more.
    fn complete_if_done(&mut self, op: OpId) {
        match self.operations.take_done(op, self.now) {
            Some(Ended::Client(token, outcome)) => self.effects.push_back(Effect::Complete(token, outcome)),
            Some(Ended::Rekeyed(token, result)) => self.effects.push_back(Effect::Rekeyed(token, result)),
            Some(Ended::Resumes(wanted, moved)) => self.resume(wanted, moved),
            None => {}
        }
    }
}
