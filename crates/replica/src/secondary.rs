//! The secondary's side: follow the primary's epoch, append what it orders, follow its commit point.

use crate::action::{Action, Client, Mismatch};
use crate::group::{Group, Role};
use crate::learner::Learner;
use crate::pending::Pending;
use azekura_base::{BlockRange, Body, Epoch, IoStatus, Sequence, WriteHeader};
use azekura_wire::{HandOver, LearnOk, Message, Prepare, PrepareOk, ReadRequest, StatusRequest, Sync};
use std::time::Duration;

/// State that only a secondary has.
pub(crate) struct Secondary {
    /// When this copy last heard the primary that it follows, or began to wait for one.
    pub(crate) heard: Duration,
    /// Until when this copy may answer reads by itself.
    pub(crate) lease_until: Duration,
    /// Something has become durable, and the primary has not been told.
    ack_owed: bool,
    /// The primary waits to hear how far this copy is.
    pub(crate) question: Option<Question>,
    /// The connection on which the primary opened its epoch: prepares from elsewhere are leftovers.
    pub(crate) primary: Option<Client>,
    pub(crate) learner: Learner,
    /// The primary was told that this copy is about to stop, or to be given up: the copy answers nobody, and promises
    /// nothing.
    pub(crate) told_leaving: bool,
    /// When the primary last ordered a write.
    pub(crate) ordered_at: Option<Duration>,
    /// The primary wants this copy to reign in its place.
    pub(crate) inheritance: Option<HandOver>,
    /// The question of a new primary, whose vote waits until the promise to the one before has run out (0010, point 3).
    pub(crate) deferred_vote: Option<(Client, Sync)>,
}

/// What the primary waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    /// Its [`Sync`].
    Sync(Sync),
    /// An [`azekura_wire::Learn`].
    Learn(LearnOk),
}

impl Secondary {
    /// A primary has asked how far this copy is, and the answer waits for the log.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.question, Some(Question::Sync(_)))
    }

    /// A copy that waits for a primary.
    pub(crate) fn new(now: Duration) -> Secondary {
        Secondary {
            heard: now,
            lease_until: Duration::ZERO,
            ack_owed: false,
            question: None,
            primary: None,
            learner: Learner::default(),
            told_leaving: false,
            ordered_at: None,
            inheritance: None,
            deferred_vote: None,
        }
    }

    pub(crate) fn has_lease(&self, now: Duration) -> bool {
        now < self.lease_until
    }

    pub(crate) fn owe_ack(&mut self) {
        self.ack_owed = true;
    }

    /// Listens to the primary on connection `from`, and to nobody else. A lease of the same epoch stays.
    pub(crate) fn follow(&mut self, from: Client, same_epoch: bool, now: Duration) {
        if !same_epoch {
            self.lease_until = Duration::ZERO;
        }
        self.heard = now.max(self.heard);
        self.primary = Some(from);
        self.ack_owed = false;
        self.question = None;
        self.learner = Learner::default();
        self.told_leaving = false;
        self.inheritance = None;
        self.deferred_vote = None;
    }
}

impl Group {
    /// True when a message of `epoch` on connection `from` is from the primary that this copy follows.
    pub(crate) fn is_from_primary(&self, from: Client, epoch: Epoch) -> bool {
        epoch == self.epochs.followed() && matches!(&self.role, Role::Secondary(s) if s.primary == Some(from))
    }

    /// The primary orders a write, on connection `from`. `trusted` says that the blocks have not left this process
    /// since their checksums were made.
    ///
    /// # Errors
    /// When it is damaged or out of order: the connection must be closed.
    pub fn prepare(&mut self, from: Client, prepare: Prepare, trusted: bool) -> Result<(), Mismatch> {
        let now = self.now;
        let Role::Secondary(secondary) = &mut self.role else { return self.inherit_write(from, prepare, trusted) };
        let syncing = secondary.is_asked();
        if prepare.header.epoch != self.epochs.followed() || secondary.primary != Some(from) || syncing {
            return Ok(()); // From before the vote of this copy, or from another connection: nobody waits for the answer.
        }
        let WriteHeader { sequence, commit, .. } = prepare.header;
        if sequence <= self.tail.end() {
            if sequence <= self.durable {
                secondary.owe_ack();
            }
            return Ok(());
        }
        if sequence != self.tail.end().next() {
            return Err(Mismatch::Gap { got: sequence, expected: self.tail.end().next() });
        }
        if !trusted && !prepare.body.is_undamaged() {
            return Err(Mismatch::Checksum);
        }
        secondary.ordered_at = Some(now);
        self.append_prepared(prepare, None);
        self.follow_commit(commit);
        Ok(())
    }

    /// Gives a write of another copy's its place in the tail and in the log. `body` is what to send on.
    pub(crate) fn append_prepared(&mut self, mut prepare: Prepare, body: Option<Body>) {
        // What is prepared before the epoch is recorded belongs to the tail of the epochs before it. And the log must
        // not say that something is committed before a repair that comes first.
        prepare.header.epoch = self.epochs.logged();
        prepare.header.commit = self.tail.committed();
        let (header, oldest) = (prepare.header, prepare.oldest);
        let (client, as_sent, ordered_at) = (None, false, self.now);
        self.tail.push(Pending { header, oldest, body, client, as_sent, ordered_at });
        self.actions.push_back(Action::Append(prepare.write(), self.log_life));
    }

    /// A prepared write refers to blocks that this node's gateway does not hold (any more).
    ///
    /// # Errors
    /// When it is from the primary that this copy follows: the connection must be closed. A former primary's may be
    /// late.
    pub fn refuse_reference(&mut self, from: Client, epoch: Epoch) -> Result<(), Mismatch> {
        if self.is_from_primary(from, epoch) { Err(Mismatch::NotOurs) } else { Ok(()) }
    }

    /// The primary has committed up to `told`.
    pub(crate) fn follow_commit(&mut self, told: Sequence) {
        let Role::Secondary(secondary) = &self.role else { return };
        let repaired = secondary.learner.commit_limit().unwrap_or(told);
        self.commit(told.min(repaired).min(self.durable));
    }

    /// Tells the primary what has become durable, once for everything since the last call: to be called when the
    /// surroundings have handled a batch of completions.
    pub fn flush_acks(&mut self) {
        let Role::Secondary(secondary) = &mut self.role else { return };
        if std::mem::take(&mut secondary.ack_owed) {
            let epoch = self.epochs.followed();
            let ok = PrepareOk { pg: self.pg, device: self.me, epoch, sequence: self.durable, full: self.full };
            self.send_to_primary(Message::PrepareOk(ok));
        }
    }

    /// The primary of `epoch` is alive at time `now` and has committed up to `commit`; every in-sync copy holds
    /// everything up to `low_watermark`. Reads may be answered here until `lease_until`. False when this copy does not
    /// follow that epoch, or has not recorded it, or takes leave: then the primary gets no promise (0013, 0021).
    pub fn heartbeat(
        &mut self,
        epoch: Epoch,
        commit: Sequence,
        low_watermark: Sequence,
        lease_until: Duration,
        now: Duration,
    ) -> bool {
        let (hung, keeps_out) = (self.hung, self.keeps_out());
        let Role::Secondary(secondary) = &mut self.role else { return false };
        if epoch != self.epochs.followed() || secondary.deferred_vote.is_some() {
            return false;
        }
        // The primary is alive, whether or not it may count on this copy: a copy that has taken leave does not take
        // over.
        secondary.heard = secondary.heard.max(now);
        if self.leaving || keeps_out || secondary.told_leaving {
            return false;
        }
        // A copy must not answer reads while it waits for the epoch's record, or has not said how far it is.
        if !self.epochs.may_promise(epoch) || secondary.question.is_some() {
            return false;
        }
        if !hung {
            secondary.lease_until = secondary.lease_until.max(lease_until);
        }
        self.epochs.promise(now);
        self.low_watermark = self.low_watermark.max(low_watermark);
        self.completeness.counts();
        self.follow_completeness();
        self.follow_commit(commit);
        true
    }

    /// A gateway reads. Answered here if this copy may; else the gateway is sent to the primary.
    pub fn read(&mut self, client: Client, read: ReadRequest, now: Duration) {
        let action = if self.may_answer(&read.range, now) {
            Action::ServeRead(client, read)
        } else {
            Action::Refuse(client, read.request, IoStatus::Redirect)
        };
        self.actions.push_back(action);
    }

    /// A gateway asks for a chunk's block status; as [`Group::read`].
    pub fn status(&mut self, client: Client, status: StatusRequest, now: Duration) {
        let action = if self.may_answer(&BlockRange::chunk(status.layer, status.chunk), now) {
            Action::ServeStatus(client, status)
        } else {
            Action::Refuse(client, status.request, IoStatus::Redirect)
        };
        self.actions.push_back(action);
    }

    /// Somebody asks what whole layers hold: whether this copy may say. Only the primary may, while no other primary
    /// can exist, whatever the ack rule: others may lack what is in their tail.
    pub fn may_tell_of_layers(&mut self, now: Duration) -> bool {
        let serving = self.may_serve(now);
        if let Some(primary) = self.primary_mut() {
            primary.clients_wait |= !serving;
        }
        serving
    }

    /// Invariant 2, 0004. The primary answers from its committed state while no other primary can exist. A secondary
    /// answers while it has a lease and knows of no uncommitted write to these blocks. For an acknowledged write is
    /// prepared here: it is committed here too, or it is in the tail, perhaps under the name of a layer below, which
    /// was the head when the write was ordered.
    fn may_answer(&mut self, blocks: &BlockRange, now: Duration) -> bool {
        let serving = self.may_serve(now);
        match &mut self.role {
            Role::Primary(primary) => {
                let may = serving;
                primary.clients_wait |= !may;
                may
            }
            Role::Secondary(secondary) => secondary.has_lease(now) && !self.tail.may_show_in(blocks),
        }
    }

    pub(crate) fn send_to_primary(&mut self, message: Message) {
        if let Role::Secondary(secondary) = &self.role
            && let Some(primary) = secondary.primary
        {
            self.actions.push_back(Action::Answer(primary, message));
        }
    }
}
