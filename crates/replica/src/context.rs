//! What both roles of a copy share.

use crate::action::{Action, Client};
use crate::background::Allowance;
use crate::completeness::Completeness;
use crate::condition::Condition;
use crate::config::GroupConfig;
use crate::epochs::Epochs;
use crate::links::Links;
use crate::pending::{Pending, Tail};
use crate::recovered::Recovered;
use crate::sessions::Sessions;
use azekura_base::{Body, DeviceId, Epoch, IoStatus, PgId, RequestId, Sequence, Write};
use azekura_wire::{FenceDone, Learn, Leaving, Message, NewEpochOk, Prepare};
use std::collections::VecDeque;
use std::time::Duration;

/// Most times of writes that are kept between two looks; more are not needed to know how long most took.
const TIMES_MAX: usize = 256;

/// What both roles of a copy share, and what stays when the role changes: the configuration, the place of the log, what
/// this copy has promised, and the queue of what it asks for.
///
/// The context is handed to each method of a role, so that a role borrows itself and the context apart. Nothing here
/// asks which role is played. The parts of the context keep their own rules ([`Epochs`], [`Tail`], [`Sessions`],
/// [`Links`], [`Condition`]).
pub(crate) struct GroupCx {
    pub(crate) pg: PgId,
    pub(crate) me: DeviceId,
    /// This process, among all that this copy has had.
    incarnation: u64,
    pub(crate) config: GroupConfig,
    /// A configuration of this copy whose outcome is not known yet.
    proposal: Option<GroupConfig>,
    pub(crate) epochs: Epochs,
    /// Counts epoch records: an append of an earlier count that was not durable by then is void.
    log_life: u32,
    pub(crate) tail: Tail,
    /// Everything up to here is durable in this copy's log.
    pub(crate) durable: Sequence,
    /// The last write that this copy has acknowledged to a gateway since the process began.
    acknowledged: Sequence,
    pub(crate) completeness: Completeness,
    pub(crate) sessions: Sessions,
    pub(crate) links: Links,
    pub(crate) condition: Condition,
    pub(crate) now: Duration,
    /// Every in-sync copy holds everything up to here, as far as this copy has heard.
    low_watermark: Sequence,
    /// This copy has committed writes that its group does not know of (0007), as far as this process has found.
    ahead: bool,
    /// Questions of primaries that this copy has begun to answer: their names, apart from those of a primary's own
    /// wishes.
    questions: u64,
    /// Notes that this copy has asked to be kept.
    notes: u64,
    pub(crate) allowance: Allowance,
    /// How long writes took to be answered, the latest of them.
    write_times: Vec<Duration>,
    actions: VecDeque<Action>,
}

impl GroupCx {
    /// What the store has found at time `now`.
    pub(crate) fn recovered(
        pg: PgId,
        me: DeviceId,
        incarnation: u64,
        config: GroupConfig,
        recovered: &Recovered,
        now: Duration,
    ) -> GroupCx {
        let mut sessions = Sessions::from_note(&recovered.note).unwrap_or_default();
        for (session, request) in &recovered.committed_since {
            sessions.committed(*session, *request, RequestId(0));
        }
        let mut tail = Tail::new(recovered.committed);
        for write in &recovered.tail {
            tail.push(Pending {
                header: write.header,
                oldest: RequestId(0),
                body: write.zero.then_some(Body::Zero),
                client: None,
                as_sent: false,
                ordered_at: now,
            });
        }
        GroupCx {
            pg,
            me,
            incarnation,
            proposal: None,
            epochs: Epochs::recovered(recovered.epoch, config.epoch, now),
            log_life: 0,
            durable: tail.end(),
            acknowledged: Sequence::ZERO,
            tail,
            completeness: Completeness::recovered(recovered.incomplete, recovered.unproven),
            sessions,
            links: Links::default(),
            condition: Condition::default(),
            now,
            low_watermark: Sequence::ZERO,
            ahead: false,
            questions: 0,
            notes: 0,
            allowance: Allowance::default(),
            write_times: Vec::new(),
            actions: VecDeque::new(),
            config,
        }
    }

    /// Asks the surroundings to do something, behind all that they were asked before.
    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// As [`GroupCx::act`], for each of them.
    pub(crate) fn act_all(&mut self, actions: impl IntoIterator<Item = Action>) {
        self.actions.extend(actions);
    }

    /// The next thing to do, in order.
    pub(crate) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A configuration of this copy whose outcome is not known yet.
    pub(crate) fn proposal(&self) -> Option<&GroupConfig> {
        self.proposal.as_ref()
    }

    /// As [`GroupCx::proposal`]: true when there is one.
    pub(crate) fn is_proposing(&self) -> bool {
        self.proposal.is_some()
    }

    /// The outcome of the proposal of this version is known.
    pub(crate) fn take_proposal(&mut self, version: u64) -> Option<GroupConfig> {
        self.proposal.take_if(|proposal| proposal.version == version)
    }

    /// The configuration names this very process primary.
    pub(crate) fn is_named_primary(&self) -> bool {
        self.config.primary == self.me && self.config.primary_incarnation == Some(self.incarnation)
    }

    /// The configuration names this copy in sync.
    pub(crate) fn is_in_sync(&self) -> bool {
        self.config.in_sync.contains(&self.me)
    }

    /// A primary would bring this copy up to `base`. True when this copy has committed writes that its group does not
    /// know of, or has found that before.
    pub(crate) fn is_ahead_of(&mut self, base: Sequence) -> bool {
        self.ahead |= base < self.tail.committed();
        self.ahead
    }

    /// Another configuration stands.
    pub(crate) fn adopt(&mut self, config: GroupConfig) {
        self.config = config;
        self.epochs.configure(self.config.epoch);
        // What a copy in sync holds is what the group has.
        self.ahead &= !self.is_in_sync();
    }

    /// This copy's configuration with the next version and `epoch`, and this process as primary.
    pub(crate) fn claimed(&self, epoch: Epoch) -> GroupConfig {
        let mut config = self.config.next();
        config.epoch = epoch;
        config.primary = self.me;
        config.primary_incarnation = Some(self.incarnation);
        config
    }

    /// Everything appended up to `sequence` is durable here, if the append was of this `life` of the log. False when
    /// that is no news.
    pub(crate) fn appended(&mut self, sequence: Sequence, life: u32) -> bool {
        // A newer epoch may have cut the write off while it was on its way to the device.
        if life != self.log_life || sequence <= self.durable || sequence > self.tail.end() {
            return false;
        }
        self.durable = sequence;
        true
    }

    /// Has the log keep a write that has its place.
    pub(crate) fn append(&mut self, write: Write) {
        self.actions.push_back(Action::Append(write, self.log_life));
    }

    /// Asks for a checkpoint that keeps the note, and names it.
    pub(crate) fn save_note(&mut self) -> u64 {
        self.notes += 1;
        self.act(Action::SaveNote(self.notes));
        self.notes
    }

    /// A primary wants to bring this copy up to date. While this device hangs, and for some time after it was slow, the
    /// primary is to try again later; false at other times.
    pub(crate) fn refuse_to_learn(&mut self, from: Client, learn: &Learn) -> bool {
        let refuses = self.condition.keeps_away(self.now);
        if refuses {
            let leaving = Leaving { pg: self.pg, device: self.me, epoch: learn.epoch };
            self.act(Action::Answer(from, Message::Leaving(leaving)));
        }
        refuses
    }

    /// Gives the times that writes have taken here since the last call.
    pub(crate) fn drain_write_times(&mut self) -> impl Iterator<Item = Duration> + '_ {
        self.write_times.drain(..)
    }

    /// Asks the configuration store for a change: the next version, if what stands is still what this copy knows.
    pub(crate) fn propose(&mut self, config: GroupConfig) {
        self.proposal = Some(config.clone());
        self.actions.push_back(Action::Propose(config));
    }

    /// Applies everything up to `upto`, which every copy holds that must. While fewer copies are in sync than the class
    /// demands, a write is not done by that: its gateway asks again until the write is on as many copies (0007).
    pub(crate) fn commit(&mut self, upto: Sequence) {
        if upto <= self.tail.committed() {
            return;
        }
        let answer = if self.config.is_writable() { Ok(()) } else { Err(IoStatus::ReadOnly) };
        assert!(upto <= self.durable, "invariant 1: only what is durable here is committed here");
        while self.tail.committed() < upto {
            let Some(write) = self.tail.commit_next() else { break };
            self.sessions.committed(write.header.session, write.header.request, write.oldest);
            if let Some(client) = write.client {
                self.note_write_time(write.ordered_at);
                if answer.is_ok() {
                    self.acknowledged = write.header.sequence;
                }
                self.actions.push_back(Action::AnswerWrite(client, write.header.request, answer));
            }
        }
        // The map first: an answered write must be readable.
        let answers = self.actions.iter().rev().take_while(|a| matches!(a, Action::AnswerWrite(..))).count();
        let at = self.actions.len() - answers;
        self.actions.insert(at, Action::Commit(upto));
    }

    /// Everything that is committed counts as acknowledged: a gateway asks again for a write of which only that is
    /// known.
    pub(crate) fn acknowledge_past(&mut self) {
        self.acknowledged = self.tail.committed();
    }

    /// The last write that this copy has acknowledged to a gateway since the process began.
    pub(crate) fn acknowledged(&self) -> Sequence {
        self.acknowledged
    }

    /// Records an epoch. Prepared writes after `keep` are void.
    pub(crate) fn start_epoch(&mut self, epoch: Epoch, keep: Sequence) {
        self.log_life += 1;
        self.epochs.record(epoch);
        self.actions.push_back(Action::StartEpoch { epoch, keep });
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

    /// The configuration has changed, or the primary counts on this copy: a copy that has learnt and is in sync has
    /// everything.
    pub(crate) fn follow_completeness(&mut self) {
        if self.completeness.has_learnt() && self.is_in_sync() {
            self.be_complete();
        }
    }

    /// Notes in the log that nothing is missing.
    pub(crate) fn be_complete(&mut self) {
        if self.completeness.complete() {
            self.act(Action::SetComplete);
        }
    }

    /// Every in-sync copy holds everything up to here, as far as this copy has heard.
    pub(crate) fn low_watermark(&self) -> Sequence {
        self.low_watermark
    }

    /// Every in-sync copy holds everything up to `place`.
    pub(crate) fn raise_low_watermark(&mut self, place: Sequence) {
        self.low_watermark = self.low_watermark.max(place);
    }

    /// Nobody is to wait for this copy. Where too few would stay in sync for writing, all wait for the device instead,
    /// until that is out of service (0021).
    pub(crate) fn keeps_out(&self) -> bool {
        let (in_sync, now) = (self.config.in_sync.len(), self.now);
        if !self.config.in_sync.contains(&self.me) {
            return self.condition.keeps_away(now);
        }
        let enough_stay = in_sync > self.config.copies_min as usize;
        self.condition.gives_way(in_sync, now) && (enough_stay || self.condition.is_out())
    }

    /// This copy may claim the group. An unproven one may not: whoever claims leaves others behind (0061).
    pub(crate) fn may_claim(&self) -> bool {
        self.condition.may_claim() && !self.completeness.is_unproven()
    }

    /// A name for what is read to answer a primary: two primaries may use the same name for their questions.
    pub(crate) fn next_question(&mut self) -> u64 {
        self.questions += 1;
        1 << 63 | self.questions
    }

    /// A write of a client is answered.
    pub(crate) fn note_write_time(&mut self, ordered_at: Duration) {
        if self.write_times.len() < TIMES_MAX {
            self.write_times.push(self.now.saturating_sub(ordered_at));
        }
    }

    /// Tells a primary of the past from which epoch on this copy follows anybody.
    pub(crate) fn send_refusal(&mut self, from: Client, least: Epoch) {
        let (pg, device, full, recorded) = (self.pg, self.me, self.condition.is_full(), self.epochs.recorded());
        let (prepared, committed, open) = (Sequence::ZERO, Sequence::ZERO, false);
        let refusal = NewEpochOk { pg, device, epoch: least, prepared, open, full, recorded, committed };
        self.actions.push_back(Action::Answer(from, Message::NewEpochOk(refusal)));
    }

    pub(crate) fn send_fence_done(&mut self, client: Client, request: RequestId, result: Result<(), IoStatus>) {
        self.actions.push_back(Action::Answer(client, Message::FenceDone(FenceDone { request, result })));
    }
}
