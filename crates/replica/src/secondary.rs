//! The secondary's side: follow the primary's epoch, append what it orders, follow its commit point.

use crate::action::{Action, Client};
use crate::context::GroupCx;
use crate::state::GroupState;
use azekura_base::Epoch;
use azekura_wire::{HandOver, LearnOk, Message, NewEpoch};
use std::time::Duration;

mod answers;
mod follow;
mod learn;
pub(crate) mod learner;
mod leave;

use crate::takeover::Claim;
use learner::Learner;

/// A copy that follows a primary, or waits for one: what only a secondary knows and has under way.
///
/// # How it is driven
/// As a [`crate::primary::Primary`]: the context is handed in, messages come by `on_...`, and
/// [`Secondary::watch_primary`] does what is due at a tick.
///
/// # Its states
/// ```text
///              a NewEpoch that is accepted (takeover/vote.rs)
///    WAITING ─────────────────────────────────────────────► ASKED: answers when what it says is durable
///     ▲  ▲                                                     │
///     │  │ nothing heard for GRACE: claims (takeover/)         ▼
///     │  └──────────────────────────────────────────────── FOLLOWING: appends, commits, promises
///     │                                                        │ Learn (learn.rs)
///     └──────────────────────────────────────────────────── LEARNING: as FOLLOWING, and gets repairs
/// ```
/// A NewEpoch or Learn of a later epoch, or one on a new connection, is accepted in every state and begins anew. A copy
/// takes leave (`leave.rs`) in any of them: it follows on, and promises nothing.
///
/// # Costs
/// A write: one place in the tail and one append; the answer to the primary is one for all that a turn has made
/// durable.
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
    pub(crate) leave_announced: bool,
    /// When the primary last ordered a write.
    pub(crate) ordered_at: Option<Duration>,
    /// The primary wants this copy to reign in its place.
    pub(crate) inheritance: Option<HandOver>,
    /// The question of a new primary, whose vote waits until the promise to the one before has run out (0010, point 3).
    pub(crate) deferred_vote: Option<(Client, NewEpoch)>,
    /// What this copy has to know when its claim lets it reign: the first state of a take-over.
    pub(crate) claim: Option<Claim>,
}

/// What the primary waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    /// Its [`NewEpoch`].
    NewEpoch(NewEpoch),
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
            leave_announced: false,
            ordered_at: None,
            inheritance: None,
            deferred_vote: None,
            claim: None,
        }
    }

    /// A copy that was primary, and ordered a write last at `ordered_at`.
    pub(crate) fn after(ordered_at: Option<Duration>, now: Duration) -> Secondary {
        Secondary { ordered_at, ..Secondary::new(now) }
    }

    /// When the primary last ordered a write.
    pub(crate) fn ordered_at(&self) -> Option<Duration> {
        self.ordered_at
    }

    /// The clock may have stood still, or the device does not answer: no reader is answered.
    pub(crate) fn void_lease(&mut self) {
        self.lease_until = Duration::ZERO;
    }

    /// The copy has proposed to reign, and has not heard whether it may.
    pub(crate) fn is_claiming(&self) -> bool {
        self.claim.is_some()
    }

    /// The group's condition at time `now`.
    pub(crate) fn state(&self, cx: &GroupCx, now: Duration) -> GroupState {
        let follows = || !cx.config.has_readers() && self.primary.is_some() && cx.epochs.is_bound(now);
        if !cx.is_in_sync() {
            GroupState::OutOfSync
        } else if cx.completeness.is_unproven() {
            GroupState::Unproven
        } else if self.has_lease(now) || follows() {
            GroupState::Following
        } else if self.is_claiming() {
            GroupState::Opening
        } else {
            GroupState::WithoutPrimary
        }
    }

    /// The copy follows a primary, and its log has the record of that one's epoch: all that was committed before.
    pub(crate) fn has_entered(&self, cx: &GroupCx) -> bool {
        self.primary.is_some() && cx.epochs.recorded() == cx.epochs.followed()
    }

    /// Something that was appended is durable.
    pub(crate) fn on_appended(&mut self, cx: &mut GroupCx) {
        self.owe_ack();
        self.run_repairs(cx);
        self.answer_primary(cx);
    }

    /// A primary has asked how far this copy is, and the answer waits for the log.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.question, Some(Question::NewEpoch(_)))
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
        self.leave_announced = false;
        self.inheritance = None;
        self.deferred_vote = None;
    }

    /// True when a message of `epoch` on connection `from` is from the primary that this copy follows.
    pub(crate) fn is_from_primary(&self, cx: &GroupCx, from: Client, epoch: Epoch) -> bool {
        epoch == cx.epochs.followed() && self.primary == Some(from)
    }

    pub(crate) fn send_to_primary(&mut self, cx: &mut GroupCx, message: Message) {
        if let Some(primary) = self.primary {
            cx.act(Action::Answer(primary, message));
        }
    }
}
