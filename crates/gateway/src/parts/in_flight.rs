//! One part under way: what is asked, where it is, and what it has met.

use super::copies_tried::CopiesTried;
use super::patience::Patience;
use crate::ciphers::Cipher;
use crate::cut::{self, Part};
use crate::operations::OpId;
use crate::view::GroupView;
use crate::{ANSWER_WAIT, READ_WAIT, RETRY_INTERVAL, RETRY_INTERVAL_MAX, reading};
use azekura_base::{
    Body, Endpoint, Generation, IoStatus, KeyGeneration, LayerId, PgId, RequestId, SessionId, VolumeId,
};
use azekura_cipher::UNIT_SIZE;
use azekura_wire::{Expected, Message, ReadRequest, StatusRequest, WriteRequest};
use bytes::Bytes;
use std::time::Duration;

/// A part that was with a copy for so long was not refused when it arrived (0018).
const TAKEN_AFTER: Duration = Duration::from_secs(1);
/// The wait for an answer is doubled so often at most.
const DOUBLINGS_MAX: u32 = 5;

/// What a part of a request asks of its group.
pub(crate) enum Ask {
    Write(Body),
    /// A write that is carried out where the part holds what is expected. What copies hold may be encrypted.
    CompareAndWrite {
        expected: Box<Expected>,
        body: Body,
        is_encrypted: bool,
    },
    /// A write that changes nothing: once it is committed, nothing that was given up before it is applied any more.
    Settle,
    Read,
    Status,
}

impl Ask {
    /// A compare-and-write of `part`, which lies in one block.
    pub(crate) fn compare_and_write(part: Part, expected: &Bytes, bytes: Bytes, cipher: &Cipher) -> Ask {
        Ask::CompareAndWrite {
            expected: Box::new(cut::expected(part, expected, cipher)),
            body: cut::encrypted(part, bytes, cipher),
            is_encrypted: matches!(cipher, Cipher::Encrypted(_)),
        }
    }

    /// The generation of the key that what is written is encrypted under.
    pub(crate) fn key(&self) -> Option<KeyGeneration> {
        match self {
            Ask::Write(Body::Data { checksums, .. })
            | Ask::CompareAndWrite { body: Body::Data { checksums, .. }, .. } => Some(checksums.key()),
            _ => None,
        }
    }

    fn is_write(&self) -> bool {
        matches!(self, Ask::Write(_) | Ask::CompareAndWrite { .. } | Ask::Settle)
    }
}

/// A part of a request, and whom it is for.
pub(crate) struct Wanted {
    pub(crate) op: OpId,
    /// Its place among the parts of its request.
    pub(crate) index: u32,
    pub(crate) part: Part,
    pub(crate) volume: VolumeId,
    pub(crate) attachment: Generation,
    /// The volume's head, as far as it was known when this was sent.
    pub(crate) layer: LayerId,
    pub(crate) pg: PgId,
    pub(crate) ask: Ask,
    /// What it was encrypted with; of a read, what was there when it was sent last.
    pub(crate) cipher: Cipher,
}

/// One part under way.
pub(crate) struct InFlight {
    wanted: Wanted,
    /// Where it was sent; `None` while it waits to be sent.
    at: Option<Endpoint>,
    /// It was sent to somebody.
    was_sent: bool,
    /// When it was sent last.
    sent_at: Duration,
    /// How often it was sent again for want of an answer.
    asked_again: u32,
    /// Not to be sent before.
    retry_at: Duration,
    asked: CopiesTried,
    patience: Patience,
    /// It has no number yet.
    in_backlog: bool,
    /// Nobody waits for its answer: its client is gone.
    is_orphan: bool,
}

impl InFlight {
    /// A part that nobody has been asked for yet. A write waits for its number.
    pub(crate) fn new(wanted: Wanted, now: Duration) -> InFlight {
        InFlight {
            in_backlog: wanted.ask.is_write(),
            wanted,
            at: None,
            was_sent: false,
            sent_at: Duration::ZERO,
            asked_again: 0,
            retry_at: Duration::ZERO,
            asked: CopiesTried::default(),
            patience: Patience::new(now),
            is_orphan: false,
        }
    }

    /// What is asked, and for whom.
    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    pub(crate) fn is_write(&self) -> bool {
        self.wanted.ask.is_write()
    }

    /// It is there for what was given up before it, and for no client.
    pub(crate) fn is_to_settle(&self) -> bool {
        matches!(self.wanted.ask, Ask::Settle)
    }

    /// Memory that the part holds while it is under way.
    pub(crate) fn bytes_held(&self) -> usize {
        match &self.wanted.ask {
            Ask::Write(Body::Data { bytes, .. }) => bytes.len(),
            Ask::CompareAndWrite { expected, .. } => 2 * expected.bytes.len(),
            Ask::Read => self.wanted.part.len as usize,
            Ask::Write(Body::Zero | Body::Lost { .. }) | Ask::Settle | Ask::Status => 0,
        }
    }

    /// Who has it; `None` while it waits to be sent.
    pub(crate) fn at(&self) -> Option<Endpoint> {
        self.at
    }

    /// True when nobody waits for its answer any more.
    pub(crate) fn is_orphan(&self) -> bool {
        self.is_orphan
    }

    /// Its client is gone.
    pub(super) fn set_orphan(&mut self) {
        self.is_orphan = true;
    }

    /// True when somebody has it, or had it, who may still do what it asks.
    pub(crate) fn was_sent(&self) -> bool {
        self.was_sent
    }

    /// True when it waits to be sent, and may be.
    pub(crate) fn may_go(&self, now: Duration) -> bool {
        self.at.is_none() && now >= self.retry_at
    }

    /// True when it may be sent again by now.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.retry_at <= now
    }

    /// Since when it waits, whatever its group answers others.
    pub(crate) fn waits_since(&self) -> Duration {
        self.patience.since()
    }

    /// Since when it waits for a group that serves nobody, or not it. `answered` is when the group last answered
    /// something of the kind.
    pub(super) fn unserved_since(&self, answered: Duration) -> Duration {
        let is_queued = self.at.is_some() || self.in_backlog;
        if is_queued { self.waits_since().max(answered) } else { self.waits_since() }
    }

    /// The request for it, as it is sent.
    pub(crate) fn message(&self, number: RequestId, session: SessionId, oldest: RequestId) -> Message {
        let Wanted { volume, attachment, layer, pg, part, .. } = self.wanted;
        let (request, chunk) = (number, part.chunk);
        match &self.wanted.ask {
            Ask::Read => {
                let range = reading::blocks(layer, part);
                Message::Read(ReadRequest { request, pg, volume, attachment, range })
            }
            Ask::Status => Message::Status(StatusRequest { request, pg, volume, attachment, layer, chunk }),
            Ask::Write(_) | Ask::CompareAndWrite { .. } | Ask::Settle => Message::Write(WriteRequest {
                session,
                request,
                oldest,
                pg,
                volume,
                attachment,
                layer,
                chunk,
                offset: part.offset,
                len: part.len,
                expected: self.expected(),
                body: self.body(),
            }),
        }
    }

    fn body(&self) -> Body {
        match &self.wanted.ask {
            Ask::Write(body) | Ask::CompareAndWrite { body, .. } => body.clone(),
            _ => Body::Zero,
        }
    }

    fn expected(&self) -> Option<Box<Expected>> {
        if let Ask::CompareAndWrite { expected, .. } = &self.wanted.ask { Some(expected.clone()) } else { None }
    }

    /// It is sent while these keys are there.
    pub(crate) fn set_cipher(&mut self, cipher: Cipher) {
        self.wanted.cipher = cipher;
    }

    /// The part, to be sent anew as another one.
    pub(crate) fn into_wanted(self) -> Wanted {
        self.wanted
    }

    /// What its client is told. Of what is encrypted only the unit that differs is known.
    pub(crate) fn told(&self, status: IoStatus) -> IoStatus {
        match (&self.wanted.ask, status) {
            (Ask::CompareAndWrite { is_encrypted: true, .. }, IoStatus::Miscompare(at)) => {
                IoStatus::Miscompare(at / UNIT_SIZE as u16 * UNIT_SIZE as u16)
            }
            _ => status,
        }
    }

    /// True when none of these copies could read it.
    pub(crate) fn all_unable(&self, copies: &[Endpoint]) -> bool {
        self.asked.all_unable(copies)
    }

    /// True when it has been without an answer for too long: it is to be sent again, a read to a copy that has not been
    /// asked and is `up`, if there is one.
    pub(super) fn is_overdue(&self, now: Duration, group: Option<&GroupView>, up: impl Fn(Endpoint) -> bool) -> bool {
        let Some(peer) = self.at else { return false };
        let is_other = |other: &Endpoint| *other != peer && self.asked.is_new(*other) && up(*other);
        let wait = if !self.is_write() && group.is_some_and(|group| group.copies.iter().any(is_other)) {
            READ_WAIT
        } else {
            ANSWER_WAIT * 2u32.pow(self.asked_again.min(DOUBLINGS_MAX))
        };
        now >= self.sent_at + wait
    }

    /// It got a number: it waits in the backlog no longer.
    pub(super) fn numbered(&mut self) {
        self.in_backlog = false;
    }

    /// `to` has it now.
    pub(super) fn sent(&mut self, to: Endpoint, now: Duration) {
        self.at = Some(to);
        self.was_sent = true;
        self.sent_at = now;
    }

    /// Nobody has it any more. Gives who had it.
    pub(super) fn taken_back(&mut self) -> Option<Endpoint> {
        self.at.take()
    }

    /// Nobody has it any more: a copy gives it back, or is not asked for it any more. If that may have had it for a
    /// while, this is another chance.
    pub(super) fn given_back(&mut self, now: Duration) {
        self.at = None;
        if now >= self.sent_at + TAKEN_AFTER {
            self.patience.another_chance(now);
        }
    }

    /// Nobody has it any more: who had it does not answer.
    pub(super) fn unanswered(&mut self) {
        let Some(peer) = self.at.take() else { return };
        self.asked_again += 1;
        if !self.is_write() {
            self.asked.is_silent(peer);
        }
    }

    /// The shard that it goes to, of those that are `up`.
    pub(crate) fn target(
        &mut self,
        group: &GroupView,
        me: Endpoint,
        up: impl Fn(Endpoint) -> bool,
    ) -> Option<Endpoint> {
        if self.is_write() { Some(group.primary).filter(|peer| up(*peer)) } else { self.asked.next(group, me, up) }
    }

    /// The volume's head is this one now. Where the part was refused as stale, it has no place; where it has one, it is
    /// known by its number.
    pub(crate) fn follow_head(&mut self, layer: LayerId) {
        self.wanted.layer = layer;
    }

    /// A copy could not read it. Gives how often that was so of any.
    pub(crate) fn is_unable(&mut self, peer: Endpoint) -> usize {
        self.asked.is_unable(peer)
    }

    /// Only the primary is asked for it, or any copy. A write goes to the primary in any case.
    pub(crate) fn ask_primary_only(&mut self, primary_only: bool) {
        self.asked.set_primary_only(primary_only && !self.is_write());
    }

    /// Something new: its wait starts anew.
    pub(crate) fn another_chance(&mut self, now: Duration) {
        self.patience.another_chance(now);
    }

    /// The group answered others then: this is one of many.
    pub(crate) fn waits_behind(&mut self, answered: Duration) {
        self.patience.is_one_of_many(answered);
    }

    /// It is to be sent again a little later; the later, the longer it has waited, so that what waits for minutes does
    /// not fill the links. Gives when.
    pub(crate) fn send_later(&mut self, now: Duration) -> Duration {
        let pause = (now.saturating_sub(self.waits_since()) / 16).clamp(RETRY_INTERVAL, RETRY_INTERVAL_MAX);
        self.retry_at = now + pause;
        self.retry_at
    }

    /// It may be sent at once.
    pub(crate) fn send_now(&mut self) {
        self.retry_at = Duration::ZERO;
    }
}
