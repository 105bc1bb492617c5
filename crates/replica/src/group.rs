//! The group itself: what both roles share, and how roles change.

use crate::action::Action;
use crate::background::Allowance;
use crate::completeness::Completeness;
use crate::config::GroupConfig;
use crate::epochs::Epochs;
use crate::flow::Window;
use crate::pending::{Pending, Tail};
use crate::primary::Primary;
use crate::secondary::Secondary;
use crate::sessions::Sessions;
use crate::sluggish::Yields;
use crate::state::GroupState;
use crate::takeover::Claim;
use azekura_base::{Body, DeviceId, Epoch, IoStatus, PgId, Prepared, RequestId, Sequence, SessionId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// After a pause of this length between two ticks, silence says more about this process than about others.
const STALL: Duration = Duration::from_millis(400);

/// What the store knows of a group after a start.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The epoch that this copy last entered.
    pub epoch: Epoch,
    /// Everything up to here is applied.
    pub committed: Sequence,
    /// The commit point was passed without the writes before it, and the log shows everything up to here only.
    pub incomplete: Option<Sequence>,
    /// Prepared writes, from `committed + 1` on, without gaps.
    pub tail: Vec<Prepared>,
    /// What [`Group::note`] gave at the checkpoint.
    pub note: Bytes,
    /// Writes committed since that checkpoint.
    pub committed_since: Vec<(SessionId, RequestId)>,
}

pub(crate) enum Role {
    Primary(Box<Primary>),
    Secondary(Box<Secondary>),
}

/// One copy of one placement group.
pub struct Group {
    pub(crate) pg: PgId,
    pub(crate) me: DeviceId,
    /// This process, among all that this copy has had.
    pub(crate) incarnation: u64,
    pub(crate) config: GroupConfig,
    /// A configuration of this copy whose outcome is not known yet.
    pub(crate) proposal: Option<GroupConfig>,
    /// What this copy has to know when that lets it reign: the first state of a take-over.
    pub(crate) claim: Option<Claim>,
    pub(crate) epochs: Epochs,
    /// Counts epoch records: an append of an earlier count that was not durable by then is void.
    pub(crate) log_life: u32,
    pub(crate) tail: Tail,
    /// Everything up to here is durable in this copy's log.
    pub(crate) durable: Sequence,
    pub(crate) completeness: Completeness,
    pub(crate) sessions: Sessions,
    pub(crate) role: Role,
    pub(crate) connected: BTreeSet<DeviceId>,
    /// What is on its way to the nodes of the other copies and need not be waited for.
    pub(crate) windows: BTreeMap<DeviceId, Window>,
    /// Copies whose process is about to end, and until when it should have ended: before, they are not brought up to
    /// date (0013).
    pub(crate) departed: BTreeMap<DeviceId, Duration>,
    /// This copy's device takes no more data.
    pub(crate) full: bool,
    /// The process is about to end: no promise is given any more.
    pub(crate) leaving: bool,
    /// This copy's device does not answer: no promise is given, and nobody is to wait for this copy.
    pub(crate) hung: bool,
    /// This copy's device is slow: until when nobody is to wait for this copy.
    pub(crate) yields: Yields,
    pub(crate) now: Duration,
    /// When [`Group::tick`] was last called.
    ticked: Duration,
    /// Every in-sync copy holds everything up to here, as far as this copy has heard.
    pub(crate) low_watermark: Sequence,
    /// Questions of primaries that this copy has begun to answer: their names, apart from those of a primary's own
    /// wishes.
    pub(crate) questions: u64,
    /// Notes that this copy has asked to be kept.
    pub(crate) notes: u64,
    pub(crate) allowance: Allowance,
    /// How long writes took to be answered, the latest of them.
    pub(crate) write_times: Vec<Duration>,
    pub(crate) actions: VecDeque<Action>,
}

impl Group {
    /// The copy on device `me`, as the store found it at time `now`; follows `config` from here on. `incarnation` is
    /// one that no earlier process of this copy had, and not 0.
    #[must_use]
    pub fn new(
        pg: PgId,
        me: DeviceId,
        incarnation: u64,
        config: GroupConfig,
        recovered: Recovered,
        now: Duration,
    ) -> Group {
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
        let mut group = Group {
            pg,
            me,
            incarnation,
            proposal: None,
            claim: None,
            epochs: Epochs::recovered(recovered.epoch, config.epoch, now),
            log_life: 0,
            durable: tail.end(),
            tail,
            completeness: Completeness::recovered(recovered.incomplete),
            sessions,
            role: Role::Secondary(Box::new(Secondary::new(now))),
            connected: BTreeSet::new(),
            windows: BTreeMap::new(),
            departed: BTreeMap::new(),
            full: false,
            leaving: false,
            hung: false,
            yields: Yields::default(),
            now,
            ticked: now,
            low_watermark: Sequence::ZERO,
            questions: 0,
            notes: 0,
            allowance: Allowance::default(),
            write_times: Vec::new(),
            actions: VecDeque::new(),
            config,
        };
        if group.config.primary == group.me {
            group.claim(false);
        }
        group
    }

    /// The group's name.
    #[must_use]
    pub fn id(&self) -> PgId {
        self.pg
    }

    /// The device that holds this copy.
    #[must_use]
    pub fn device(&self) -> DeviceId {
        self.me
    }

    /// The configuration that this copy knows.
    #[must_use]
    pub fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// The epoch that this copy has entered: on a primary, the one that it reigns in.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        match &self.role {
            Role::Primary(primary) => primary.epoch(),
            Role::Secondary(_) => self.epochs.recorded(),
        }
    }

    /// Everything up to here is committed.
    #[must_use]
    pub fn committed(&self) -> Sequence {
        self.tail.committed()
    }

    /// The last prepared place.
    #[must_use]
    pub fn prepared(&self) -> Sequence {
        self.tail.end()
    }

    /// True while this copy is primary and has opened its epoch.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        matches!(&self.role, Role::Primary(primary) if primary.is_open())
    }

    /// True while this copy is, or gathers what it needs to be, primary of an epoch that the configuration names.
    #[must_use]
    pub fn acts_as_primary(&self) -> bool {
        matches!(&self.role, Role::Primary(_))
    }

    /// True while this copy answers readers as primary.
    #[must_use]
    pub fn is_serving(&self, now: Duration) -> bool {
        self.may_serve(now)
    }

    /// What this copy knows and has under way as primary; `None` while it is a secondary.
    pub(crate) fn primary(&self) -> Option<&Primary> {
        match &self.role {
            Role::Primary(primary) => Some(primary),
            Role::Secondary(_) => None,
        }
    }

    /// As [`Group::primary`], to be changed.
    pub(crate) fn primary_mut(&mut self) -> Option<&mut Primary> {
        match &mut self.role {
            Role::Primary(primary) => Some(primary),
            Role::Secondary(_) => None,
        }
    }

    /// The group's condition at time `now`.
    #[must_use]
    pub fn state(&self, now: Duration) -> GroupState {
        match &self.role {
            Role::Primary(primary) if primary.is_open() && !self.config.is_writable() => GroupState::ReadOnly,
            Role::Primary(primary) => match primary.state() {
                GroupState::WaitingForCopy(device) => self.state_without(device, now),
                state => state,
            },
            Role::Secondary(_) if !self.config.in_sync.contains(&self.me) => GroupState::OutOfSync,
            Role::Secondary(secondary) if secondary.has_lease(now) => GroupState::Following,
            Role::Secondary(secondary)
                if !self.config.has_readers() && secondary.primary.is_some() && self.epochs.is_bound(now) =>
            {
                GroupState::Following
            }
            Role::Secondary(_) if self.claim.is_some() => GroupState::Opening,
            Role::Secondary(_) => GroupState::WithoutPrimary,
        }
    }

    /// Bytes for the store to keep with a checkpoint: they come back as [`Recovered::note`].
    #[must_use]
    pub fn note(&self) -> Bytes {
        self.sessions.to_note()
    }

    /// The next thing to do, in order.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// [`Action::StartEpoch`] is durable.
    pub fn epoch_started(&mut self, epoch: Epoch) {
        self.epochs.is_durable(epoch);
        match &self.role {
            Role::Primary(_) => self.try_open(),
            Role::Secondary(_) => self.answer_primary(),
        }
    }

    /// Records an epoch. Prepared writes after `keep` are void.
    pub(crate) fn start_epoch(&mut self, epoch: Epoch, keep: Sequence) {
        self.log_life += 1;
        self.epochs.record(epoch);
        self.actions.push_back(Action::StartEpoch { epoch, keep });
    }

    /// It is `now`: to be called before the group is told of anything.
    pub fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    /// Time passes: to be called every [`crate::TICK`] or so. Silent copies are left behind, a silent primary is
    /// replaced.
    pub fn tick(&mut self, now: Duration) {
        let stalled = now.saturating_sub(self.ticked) > STALL;
        self.advance(now);
        self.ticked = self.now;
        self.give_way();
        match &self.role {
            Role::Primary(_) => self.watch_copies(stalled),
            Role::Secondary(_) => self.watch_primary(stalled),
        }
    }

    /// The connection to the node that has `device` is up, and what was sent before is gone.
    pub fn peer_up(&mut self, device: DeviceId) {
        self.connected.insert(device);
        self.departed.remove(&device);
        if let Role::Primary(primary) = &mut self.role {
            primary.forget_peer(device);
            // Another process, perhaps.
            primary.peers.entry(device).and_modify(|peer| peer.leaving = false);
        }
        self.give_up_questions();
        self.greet(device);
    }

    /// The connection to the node that has `device` is gone.
    pub fn peer_down(&mut self, device: DeviceId) {
        self.connected.remove(&device);
        self.departed.remove(&device);
        if let Role::Primary(primary) = &mut self.role {
            primary.forget_peer(device);
        }
        self.give_up_questions();
        self.retry_waiting();
        self.try_commit();
    }

    /// This copy's device does, or does not, take more data.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Everything appended up to `sequence` is durable on this copy's device; `life` is what came with
    /// [`Action::Append`].
    pub fn appended(&mut self, sequence: Sequence, life: u32) {
        // A newer epoch may have cut the write off while it was on its way to the device.
        if life != self.log_life || sequence <= self.durable || sequence > self.tail.end() {
            return;
        }
        self.durable = sequence;
        match &mut self.role {
            Role::Primary(primary) => {
                primary.pace.acked(sequence, self.now);
                self.try_commit();
            }
            Role::Secondary(secondary) => {
                secondary.owe_ack();
                self.run_repairs();
                self.answer_primary();
            }
        }
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
                self.actions.push_back(Action::AnswerWrite(client, write.header.request, answer));
            }
        }
        self.count_laggards(upto);
        // The map first: an answered write must be readable.
        let answers = self.actions.iter().rev().take_while(|a| matches!(a, Action::AnswerWrite(..))).count();
        let at = self.actions.len() - answers;
        self.actions.insert(at, Action::Commit(upto));
    }

    /// The clock may have stood still (decision 0022), so nothing is known of the time that has passed since the leases
    /// of this copy began: they are over, as primary and for readers.
    pub fn void_leases(&mut self) {
        match &mut self.role {
            Role::Primary(primary) => {
                primary.peers.values_mut().for_each(|peer| peer.lease_until = Duration::ZERO);
            }
            Role::Secondary(secondary) => secondary.lease_until = Duration::ZERO,
        }
    }
}
