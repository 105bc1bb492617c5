//! The group itself: what both roles share, and how roles change.

use crate::action::Action;
use crate::pending::{Blocks, Pending, Tail};
use crate::primary::Primary;
use crate::secondary::Secondary;
use crate::sessions::Sessions;
use azekura_base::{BlockIndex, ChunkIndex, DeviceId, Epoch, IoStatus, LayerId, PgId, RequestId, Sequence, SessionId};
use azekura_wire::Body;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// A group's configuration, as the cluster agrees on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// Raised at every change.
    pub epoch: Epoch,
    /// The copy that orders writes.
    pub primary: DeviceId,
    /// The copies that hold every acknowledged write; contains the primary.
    pub in_sync: BTreeSet<DeviceId>,
}

/// A prepared write that the store found in its log.
#[derive(Clone, Copy, Debug)]
pub struct RecoveredWrite {
    /// Its place.
    pub sequence: Sequence,
    /// Who asked for it.
    pub session: SessionId,
    /// Its number in that session.
    pub request: RequestId,
    /// The layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkIndex,
    /// First block.
    pub first: BlockIndex,
    /// Number of blocks.
    pub count: u16,
    /// True when it holds no data.
    pub zero: bool,
}

/// What the store knows of a group after a start.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The epoch that this copy last entered.
    pub epoch: Epoch,
    /// Everything up to here is applied.
    pub committed: Sequence,
    /// Prepared writes, from `committed + 1` on, without gaps.
    pub tail: Vec<RecoveredWrite>,
    /// What [`Group::note`] gave at the checkpoint.
    pub note: Bytes,
    /// Writes committed since that checkpoint.
    pub committed_since: Vec<(SessionId, RequestId)>,
}

/// A group's condition on this copy, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// Primary, with every in-sync copy following.
    Active,
    /// Primary, waiting for an in-sync copy to answer.
    WaitingForCopy(DeviceId),
    /// Primary, but a copy has lost writes and must be rebuilt.
    CopyLost(DeviceId),
    /// Primary by configuration, opening its epoch.
    Opening,
    /// Secondary with a lease.
    Following,
    /// Secondary that does not hear its primary.
    WithoutPrimary,
    /// Not in the group's in-sync set.
    OutOfSync,
}

pub(crate) enum Role {
    Primary(Primary),
    Secondary(Secondary),
}

/// One copy of one placement group.
pub struct Group {
    pub(crate) pg: PgId,
    pub(crate) me: DeviceId,
    pub(crate) config: GroupConfig,
    /// The epoch that this copy has entered.
    pub(crate) epoch: Epoch,
    pub(crate) tail: Tail,
    /// Everything up to here is durable in this copy's log.
    pub(crate) durable: Sequence,
    pub(crate) sessions: Sessions,
    pub(crate) role: Role,
    pub(crate) connected: BTreeSet<DeviceId>,
    /// This copy's device takes no more data.
    pub(crate) full: bool,
    pub(crate) actions: VecDeque<Action>,
}

impl Group {
    /// The copy on device `me`, as the store found it; follows `config` from here on.
    #[must_use]
    pub fn new(pg: PgId, me: DeviceId, config: GroupConfig, recovered: Recovered) -> Group {
        let mut sessions = Sessions::from_note(&recovered.note).unwrap_or_default();
        for (session, request) in &recovered.committed_since {
            sessions.committed(*session, *request, RequestId(0));
        }
        let mut tail = Tail::new(recovered.committed);
        for write in &recovered.tail {
            let RecoveredWrite { sequence, session, request, layer, chunk, first, count, zero } = *write;
            tail.push(Pending {
                sequence,
                session,
                request,
                oldest: RequestId(0),
                blocks: Blocks { layer, chunk, first, count },
                body: zero.then_some(Body::Zero),
                client: None,
                as_sent: false,
            });
        }
        let mut group = Group {
            pg,
            me,
            epoch: recovered.epoch,
            durable: tail.end(),
            tail,
            sessions,
            role: Role::Secondary(Secondary::default()),
            connected: BTreeSet::new(),
            full: false,
            actions: VecDeque::new(),
            config,
        };
        group.follow_config();
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
            Role::Primary(primary) if !primary.is_proposed() => primary.epoch(),
            _ => self.epoch,
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

    /// The group's condition at time `now`.
    #[must_use]
    pub fn state(&self, now: Duration) -> GroupState {
        match &self.role {
            Role::Primary(primary) => primary.state(),
            Role::Secondary(_) if !self.config.in_sync.contains(&self.me) => GroupState::OutOfSync,
            Role::Secondary(secondary) if secondary.has_lease(now) => GroupState::Following,
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

    /// The cluster's configuration of this group changed, or was read again.
    pub fn configure(&mut self, config: GroupConfig) {
        if config.epoch < self.config.epoch || config == self.config {
            return;
        }
        self.config = config;
        self.follow_config();
    }

    fn follow_config(&mut self) {
        let primary_here = self.config.primary == self.me;
        match &mut self.role {
            Role::Primary(primary) if primary_here && primary.epoch() >= self.config.epoch => {}
            // Either primary since a moment ago, or the primary of an epoch that somebody else has ended.
            _ if primary_here => self.propose(),
            Role::Primary(_) => self.step_down(),
            Role::Secondary(_) => {}
        }
    }

    /// Claims the next epoch: a process that starts must not go on in an epoch whose promises it has forgotten.
    pub(crate) fn propose(&mut self) {
        self.drop_clients();
        let epoch = self.config.epoch.max(self.epoch).next();
        let proposal = GroupConfig { epoch, ..self.config.clone() };
        self.role = Role::Primary(Primary::new(epoch, self.me, &proposal.in_sync));
        self.actions.push_back(Action::Propose(proposal));
    }

    /// The outcome of [`Action::Propose`]: true when the proposed configuration now stands. When false, the
    /// configuration that stands instead comes by [`Group::configure`] and the proposal is made anew if it still
    /// names this copy.
    pub fn proposal_done(&mut self, epoch: Epoch, accepted: bool) {
        let Role::Primary(primary) = &mut self.role else { return };
        if primary.epoch() != epoch || !primary.is_proposed() {
            return;
        }
        if accepted {
            self.config.epoch = epoch;
            self.reconcile();
        } else {
            self.propose();
        }
    }

    /// [`Action::StartEpoch`] is durable.
    pub fn epoch_started(&mut self, epoch: Epoch) {
        if epoch <= self.epoch {
            return;
        }
        self.epoch = epoch;
        match &mut self.role {
            Role::Primary(primary) if primary.epoch() == epoch => self.open(),
            Role::Primary(_) => {}
            Role::Secondary(_) => self.answer_sync(),
        }
    }

    pub(crate) fn step_down(&mut self) {
        self.drop_clients();
        self.role = Role::Secondary(Secondary::default());
    }

    /// The copy is given up, because its device has failed: whoever waits here is sent to ask again.
    pub fn close(&mut self) {
        self.step_down();
    }

    /// Sends everybody who waits here to ask again.
    fn drop_clients(&mut self) {
        let mut waiting = Vec::new();
        if let Role::Primary(primary) = &mut self.role {
            waiting = primary.drain_clients();
        }
        for sequence in self.tail.committed().0 + 1..=self.tail.end().0 {
            if let Some(write) = self.tail.get_mut(Sequence(sequence))
                && let Some(client) = write.client.take()
            {
                waiting.push((client, write.request));
            }
        }
        for (client, request) in waiting {
            self.actions.push_back(Action::AnswerWrite(client, request, Err(IoStatus::Redirect)));
        }
    }

    /// The connection to the node that has `device` is up, and what was sent before is gone.
    pub fn peer_up(&mut self, device: DeviceId) {
        self.connected.insert(device);
        if let Role::Primary(primary) = &mut self.role {
            primary.forget_peer(device);
        }
        self.greet(device);
    }

    /// The connection to the node that has `device` is gone.
    pub fn peer_down(&mut self, device: DeviceId) {
        self.connected.remove(&device);
        if let Role::Primary(primary) = &mut self.role {
            primary.forget_peer(device);
        }
    }

    /// This copy's device does, or does not, take more data.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Everything appended up to `sequence` in `epoch` is durable on this copy's device.
    pub fn appended(&mut self, sequence: Sequence) {
        // A write that was cut off by a newer epoch while it was on its way to the device is of no interest.
        if sequence <= self.durable || sequence > self.tail.end() {
            return;
        }
        self.durable = sequence;
        match &mut self.role {
            Role::Primary(_) => self.try_commit(),
            Role::Secondary(secondary) => secondary.owe_ack(),
        }
    }

    /// Applies everything up to `upto`, which every copy that must hold it holds.
    pub(crate) fn commit(&mut self, upto: Sequence) {
        if upto <= self.tail.committed() {
            return;
        }
        assert!(upto <= self.durable, "invariant 1: only what is durable here is committed here");
        while self.tail.committed() < upto {
            let Some(write) = self.tail.commit_next() else { break };
            self.sessions.committed(write.session, write.request, write.oldest);
            if let Some(client) = write.client {
                self.actions.push_back(Action::AnswerWrite(client, write.request, Ok(())));
            }
        }
        // The map first: an answered write must be readable.
        let answers = self.actions.iter().rev().take_while(|a| matches!(a, Action::AnswerWrite(..))).count();
        let at = self.actions.len() - answers;
        self.actions.insert(at, Action::Commit(upto));
    }
}
