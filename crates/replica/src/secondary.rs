//! The secondary's side: follow the primary's epoch, append what it orders, follow its commit point.

use crate::action::{Action, Client, Mismatch};
use crate::group::{Group, Role};
use crate::learner::Learner;
use crate::pending::{Blocks, Pending};
use crate::quorum::AckRule;
use azekura_base::{BlockIndex, CHUNK_BLOCKS, Epoch, IoStatus, Sequence, block_checksums};
use azekura_wire::{Body, HandOver, LearnOk, Message, Prepare, PrepareOk, ReadRequest, StatusRequest, Sync, SyncOk};
use std::time::Duration;

/// State that only a secondary has.
pub(crate) struct Secondary {
    /// When it last heard the primary that it follows, or began to wait for one.
    pub(crate) heard: Duration,
    /// Until when this copy may answer reads by itself.
    pub(crate) lease_until: Duration,
    /// The primary is owed word of what is durable.
    ack_owed: bool,
    /// The primary waits to hear how far this copy is.
    pub(crate) question: Option<Question>,
    /// The connection on which the primary opened its epoch: prepares from elsewhere are leftovers.
    pub(crate) primary: Option<Client>,
    pub(crate) learner: Learner,
    /// The primary was told that this copy is about to stop, or to be given up: it answers nobody, and promises nothing.
    pub(crate) told_leaving: bool,
    /// When the primary last ordered a write.
    pub(crate) ordered_at: Option<Duration>,
    /// The primary wants this copy to reign in its place.
    pub(crate) inheritance: Option<HandOver>,
    /// A new primary that waits until the promise to the one before has run out.
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
    /// Becomes, or stays, a secondary of the primary of `epoch`. False when that is a primary of the past. One that this
    /// copy has proposed to replace is followed until that has come about.
    pub(crate) fn listen_to(&mut self, from: Client, epoch: Epoch) -> bool {
        let reigns = match &self.role {
            Role::Primary(primary) => Some(primary.epoch()),
            Role::Secondary(_) => None,
        };
        let least = self.epochs.least_acceptable(reigns);
        if epoch < least {
            if let Role::Secondary(secondary) = &mut self.role
                && epoch == self.epochs.followed()
                && secondary.primary == Some(from)
            {
                // It began anew, and what it sends from here on follows on what this copy has refused.
                secondary.primary = None;
            }
            let open = false;
            let (pg, device, epoch, full) = (self.pg, self.me, least, self.full);
            let (recorded, committed) = (self.epochs.recorded(), Sequence::ZERO);
            let refusal = SyncOk { pg, device, epoch, prepared: Sequence::ZERO, open, full, recorded, committed };
            self.actions.push_back(Action::Answer(from, Message::SyncOk(refusal)));
            return false;
        }
        if matches!(self.role, Role::Primary(_)) {
            self.step_down();
        }
        let now = self.now;
        let same_epoch = epoch == self.epochs.followed();
        self.epochs.follow(epoch);
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.follow(from, same_epoch, now);
        }
        true
    }

    /// The primary of an epoch asks, on connection `from`, how far this copy is.
    pub fn sync(&mut self, from: Client, sync: Sync) {
        if let Role::Primary(primary) = &self.role
            && sync.epoch >= self.epochs.least_acceptable(Some(primary.epoch()))
        {
            // What this copy promised while its own claim was on its way still holds.
            self.step_down();
        }
        let recorded = self.epochs.recorded();
        let bound = sync.epoch > recorded && sync.ended != recorded && self.epochs.is_bound(self.now);
        if let Role::Secondary(secondary) = &mut self.role
            && self.config.ack != AckRule::All
            && bound
            && sync.epoch > self.epochs.followed()
        {
            // The primary before may count on this copy for a while; it gets no new promise.
            secondary.deferred_vote = Some((from, sync));
            secondary.heard = self.now;
            return;
        }
        if recorded == sync.epoch && self.is_from_primary(from, sync.epoch) && self.config.ack != AckRule::All {
            // Asked twice. What is on its way here may be committed already, and is not sent again.
            self.stay();
            return self.report_position(sync.epoch);
        }
        if !self.listen_to(from, sync.epoch) {
            return;
        }
        self.epochs.has_ended(sync.ended);
        // Before the answer, which waits for the device.
        self.give_way();
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.question = Some(Question::Sync(sync));
        }
        self.answer_primary();
    }

    /// Follows the new primary that has been waiting, when the promise to the one before has run out.
    pub(crate) fn cast_deferred_vote(&mut self) {
        if self.epochs.is_bound(self.now) {
            return;
        }
        if let Role::Secondary(secondary) = &mut self.role
            && let Some((from, sync)) = secondary.deferred_vote.take()
        {
            self.sync(from, sync);
        }
    }

    /// Answers the primary's question once what the answer speaks of is in the log.
    pub(crate) fn answer_primary(&mut self) {
        let Role::Secondary(secondary) = &self.role else { return };
        let Some(question) = secondary.question else { return };
        // Where this copy begins to learn is known; writes behind that may come as fast as they become durable, or faster.
        let unknown = matches!(question, Question::Sync(_)) && self.durable < self.tail.end();
        if self.epochs.is_recording() || unknown {
            return;
        }
        let following = self.epochs.followed();
        match question {
            Question::Learn(_) => {}
            Question::Sync(sync) => {
                if self.enter_epoch(sync) {
                    return;
                }
            }
        }
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.question = None;
        }
        match question {
            Question::Sync(_) => self.report_position(following),
            Question::Learn(ok) => {
                self.send_to_primary(Message::LearnOk(ok));
                self.begun(ok);
            }
        }
    }

    /// Commits what the primary knows to be committed and records its epoch, if that is open. True when the record is on its
    /// way: the question is answered behind it.
    fn enter_epoch(&mut self, sync: Sync) -> bool {
        let recorded = self.epochs.recorded();
        let enters = sync.opens_at.filter(|_| recorded < sync.epoch);
        if enters.is_some_and(|begin| self.tail.end() > begin) {
            // What it has prepared beyond was decided otherwise. That is not for this copy to forget: the primary leaves it behind.
            return false;
        }
        // What the primary calls committed was durable on every in-sync copy: this one has it too, unless it has lost its
        // data. Under other rules that holds for copies whose order is the primary's.
        if self.config.ack == AckRule::All || sync.opens_at.is_some() || sync.recorded == recorded {
            self.commit(sync.committed.min(self.durable));
        }
        if enters.is_some() {
            // All that was prepared in earlier epochs is committed; there is nothing else.
            let keep = self.tail.committed();
            drop(self.tail.truncate(keep));
            self.durable = keep;
            self.low_watermark = self.low_watermark.max(keep);
            self.start_epoch(sync.epoch, keep);
        }
        enters.is_some()
    }

    /// Says how far this copy is.
    fn report_position(&mut self, following: Epoch) {
        let (recorded, mut prepared, committed) = (self.epochs.recorded(), self.durable, self.tail.committed());
        if self.completeness.is_doubtful() {
            prepared = Sequence::ZERO;
        }
        let (pg, device, open, full) = (self.pg, self.me, recorded == following, self.full);
        let ok = SyncOk { pg, device, epoch: following, prepared, open, full, recorded, committed };
        self.send_to_primary(Message::SyncOk(ok));
    }

    /// True when a message of `epoch` on connection `from` is from the primary that this copy follows.
    pub(crate) fn is_from_primary(&self, from: Client, epoch: Epoch) -> bool {
        epoch == self.epochs.followed() && matches!(&self.role, Role::Secondary(s) if s.primary == Some(from))
    }

    /// The primary orders a write, on connection `from`. `trusted` says that the blocks have not left this process since
    /// their checksums were made.
    ///
    /// # Errors
    /// When it is damaged or out of order: the connection must be closed.
    pub fn prepare(&mut self, from: Client, prepare: Prepare, trusted: bool) -> Result<(), Mismatch> {
        let now = self.now;
        let Role::Secondary(secondary) = &mut self.role else { return self.inherit_write(from, prepare, trusted) };
        let syncing = matches!(secondary.question, Some(Question::Sync(_)));
        if prepare.epoch != self.epochs.followed() || secondary.primary != Some(from) || syncing {
            return Ok(()); // From before what this copy has agreed to since: nobody waits for the answer.
        }
        if prepare.sequence <= self.tail.end() {
            if prepare.sequence <= self.durable {
                secondary.owe_ack();
            }
            return Ok(());
        }
        if prepare.sequence != self.tail.end().next() {
            return Err(Mismatch::Gap { got: prepare.sequence, expected: self.tail.end().next() });
        }
        if !trusted && !is_undamaged(&prepare) {
            return Err(Mismatch::Checksum);
        }
        secondary.ordered_at = Some(now);
        let told = prepare.commit;
        self.append_prepared(prepare, None);
        self.follow_commit(told);
        Ok(())
    }

    /// Gives a write of another copy's its place in the tail and in the log. `body` is what to send on.
    pub(crate) fn append_prepared(&mut self, mut prepare: Prepare, body: Option<Body>) {
        let Prepare { sequence, session, request, oldest, layer, chunk, first, count, .. } = prepare;
        let blocks = Blocks { layer, chunk, first, count };
        let (client, as_sent, ordered_at) = (None, false, self.now);
        self.tail.push(Pending { sequence, session, request, oldest, blocks, body, client, as_sent, ordered_at });
        // What is prepared before the epoch is recorded belongs to the tail of the epochs before it. And the log must
        // not say that something is committed before a repair that comes first.
        prepare.epoch = self.epochs.logged();
        prepare.commit = self.tail.committed();
        self.actions.push_back(Action::Append(prepare, self.log_life));
    }

    /// A prepared write refers to blocks that this node's gateway does not hold (any more).
    ///
    /// # Errors
    /// When it is from the primary that this copy follows: the connection must be closed. A former primary's may be late.
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

    /// The primary of `epoch` is alive at time `now` and has committed up to `commit`; every in-sync copy holds everything
    /// up to `low_watermark`. Reads may be answered here until
    /// `lease_until`. False when this copy does not follow that epoch, or has not recorded it: then the primary gets
    /// no promise.
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
        // It is alive, whether or not it may count on this copy: who has taken leave does not take over from it.
        secondary.heard = secondary.heard.max(now);
        if self.leaving || keeps_out || secondary.told_leaving {
            return false;
        }
        // While it waits for the epoch's record or has lost its place, a copy must not answer reads.
        if !self.epochs.may_promise(epoch) || secondary.question.is_some() {
            return false;
        }
        if !hung {
            secondary.lease_until = secondary.lease_until.max(lease_until);
        }
        self.epochs.promise(now);
        self.low_watermark = self.low_watermark.max(low_watermark);
        self.follow_commit(commit);
        true
    }

    /// A gateway reads. Answered here if this copy may; else the gateway is sent to the primary.
    pub fn read(&mut self, client: Client, read: ReadRequest, now: Duration) {
        let blocks = Blocks { layer: read.layer, chunk: read.chunk, first: read.first, count: read.count };
        let action = if self.may_answer(&blocks, now) {
            Action::ServeRead(client, read)
        } else {
            Action::Refuse(client, read.request, IoStatus::Redirect)
        };
        self.actions.push_back(action);
    }

    /// A gateway asks for a chunk's block status; as [`Group::read`].
    pub fn status(&mut self, client: Client, status: StatusRequest, now: Duration) {
        let StatusRequest { layer, chunk, .. } = status;
        let blocks = Blocks { layer, chunk, first: BlockIndex(0), count: CHUNK_BLOCKS as u16 };
        let action = if self.may_answer(&blocks, now) {
            Action::ServeStatus(client, status)
        } else {
            Action::Refuse(client, status.request, IoStatus::Redirect)
        };
        self.actions.push_back(action);
    }

    /// Somebody asks what whole layers hold: whether this copy may say. Only the primary may, while no other primary can exist,
    /// whatever the ack rule: others may lack what is in their tail.
    pub fn may_tell_of_layers(&mut self, now: Duration) -> bool {
        let serving = self.may_serve(now);
        let Role::Primary(primary) = &mut self.role else { return false };
        primary.clients_wait |= !serving;
        serving
    }

    /// Invariant 2. The primary answers from its committed state while no other primary can exist. A secondary
    /// answers while it has a lease and knows of no uncommitted write to these blocks: an acknowledged write is
    /// prepared here, so either it is committed here too, or it is in the tail: perhaps under the name of a layer below, which
    /// was the head when it was written.
    fn may_answer(&mut self, blocks: &Blocks, now: Duration) -> bool {
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

/// The blocks of a prepared write are as they were sent.
pub(crate) fn is_undamaged(prepare: &Prepare) -> bool {
    match &prepare.body {
        Body::Data { bytes, checksums } => block_checksums(bytes).eq(checksums.iter().copied()),
        _ => true,
    }
}
