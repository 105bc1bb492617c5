//! How a group gets its next primary: one state machine, from the primary that is missed to the epoch that is open.
//!
//! ```text
//!    FOLLOWING: a secondary
//!        │   its primary is silent · its process has started · its primary has invited it       [claiming.rs,
//!        hand_over.rs]
//!        ▼
//!    CLAIMED: proposes the next epoch, and goes on as a secondary ── refused, or overtaken ──► FOLLOWING
//!        │   the configuration names this process
//!        [claiming.rs]
//!        ▼
//!    GATHERING: asks every copy how far it is (NewEpoch) ── a copy has more than this one ────────► proposes that copy
//!        │   enough copies are heard; the former primary has stopped, or this copy's promise to it has run out
//!        │   one change of the configuration makes the copies that have everything the in-sync set     [gathering.rs]
//!        │   (not under the rule `all`, where the in-sync set stays as it is unless a copy is silent)
//!        ▼
//!    CONFIRMED: the in-sync set is the one that the epoch begins with
//!        │   nobody serves beside this copy, neither a primary nor readers ([`Wait`]);
//!        │   everything prepared is durable on every in-sync copy, and is committed there              [opening.rs]
//!        ▼
//!    RECORDING: the epoch's record is on its way to every log (NewEpoch with `opens_at`)
//!        │   every in-sync copy has recorded the epoch                                                 [opening.rs]
//!        ▼
//!    OPEN: reads, writes and leases
//!        │   a primary of a later epoch says its first word, or the configuration names another    [step_down.rs]
//!        ▼
//!    FOLLOWING
//! ```
//!
//! Every state from CLAIMED on falls back to FOLLOWING when a later epoch is heard of, and a process that ends leaves
//! nothing behind but its records: the next process begins at FOLLOWING. docs/take-over.md has each arrow with its
//! message, its condition and its decision.
//!
//! CLAIMED is [`Claim`], held by the secondary; the states after it are a [`TakeOver`], held by its primary. What the
//! other copies do meanwhile (whom they follow, and when their votes wait) is `vote.rs`. `predecessor.rs` has the
//! primary before, `tail.rs` the writes of it that are still on their way; `answer.rs` what a copy's answer to a
//! NewEpoch means.

mod answer;
mod claim;
mod claiming;
mod gathering;
mod hand_over;
mod opening;
mod predecessor;
mod step_down;
mod tail;
#[cfg(test)]
mod tests;
mod vote;

use crate::action::Client;
use azekura_base::{DeviceId, Epoch, Sequence};
use azekura_wire::NewEpochOk;
pub(crate) use claim::Claim;
use predecessor::{LateAnswers, Predecessor};
use std::time::Duration;

/// How long a new primary waits for the end of what the one before it has sent.
const TAIL_WAIT: Duration = Duration::from_millis(300);

/// Where the take-over of a primary stands, with what belongs to that state only.
#[derive(Debug)]
enum Stage {
    /// The configuration names this epoch. All in-sync copies say how far they are, and are sent what they lack.
    ///
    /// Some of what is prepared may have been acknowledged in an earlier epoch, whose commit points are forgotten:
    /// until all of it is committed again, neither reads may be answered nor leases given. And only then is the epoch
    /// recorded: a crash in between finds the prepared writes as they are. In-sync copies never contradict each other
    /// here: what they have prepared are beginnings of one order, because no epoch opens before every in-sync copy has
    /// recorded that epoch (0007).
    Gathering {
        /// When the configuration named this process.
        since: Duration,
        late: LateAnswers,
    },
    /// A change of this primary's own stands: the in-sync set is the one that has everything as far as this primary has
    /// heard (0010, point 5).
    Confirmed { late: LateAnswers },
    /// Nothing is prepared; the epoch's record is on its way to every log.
    Recording {
        /// The last place of earlier epochs. All of them is committed.
        opens_at: Sequence,
    },
    /// Reads and writes are served.
    Open {
        /// As above: copies that come late are told where the epoch began.
        opens_at: Sequence,
    },
}

/// A primary's wish that another copy reigns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandingOver {
    to: DeviceId,
    until: Duration,
    invited: bool,
}

/// Whom a primary waits for before it commits anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A primary before this one may still serve, since this copy's promise to it has not run out.
    Predecessor,
    /// A copy that is in sync no more may still answer readers by itself.
    Readers,
}

/// How a primary takes over, from the moment that the configuration names its process.
#[derive(Debug)]
pub(crate) struct TakeOver {
    stage: Stage,
    predecessor: Predecessor,
    /// The last epoch of which it is known that nobody serves in it any more.
    ended: Epoch,
    /// Until when a copy outside the in-sync set may answer readers.
    readers_until: Duration,
}

impl TakeOver {
    /// The configuration names this process at `now`, as it has claimed. The process follows the former primary on
    /// connection `following`, and its promises go until `promised_until`.
    fn new(claim: &Claim, following: Option<Client>, promised_until: Duration, now: Duration) -> TakeOver {
        TakeOver {
            stage: Stage::Gathering { since: now, late: LateAnswers::new() },
            predecessor: Predecessor::new(claim, following, promised_until),
            ended: claim.ended,
            readers_until: Duration::ZERO,
        }
    }

    /// What was prepared before this epoch is being gathered, and the in-sync set may still change by that.
    pub(crate) fn is_gathering(&self) -> bool {
        matches!(self.stage, Stage::Gathering { .. })
    }

    /// The epoch is open: reads, writes and leases.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open { .. })
    }

    /// The last place of earlier epochs; `None` while that place may still change, and this epoch must not be recorded.
    pub(crate) fn opens_at(&self) -> Option<Sequence> {
        match self.stage {
            Stage::Gathering { .. } | Stage::Confirmed { .. } => None,
            Stage::Recording { opens_at } | Stage::Open { opens_at } => Some(opens_at),
        }
    }

    /// A change of the configuration stands that this primary has proposed.
    pub(crate) fn confirm(&mut self) {
        if let Stage::Gathering { late, .. } = &mut self.stage {
            self.stage = Stage::Confirmed { late: std::mem::take(late) };
        }
    }

    /// Everything prepared before, up to `opens_at`, is committed: the epoch is being recorded.
    fn record(&mut self, opens_at: Sequence) {
        assert!(self.opens_at().is_none(), "an epoch is recorded once");
        self.stage = Stage::Recording { opens_at };
    }

    /// The epoch is recorded on every in-sync copy. False when it is not being recorded.
    fn open(&mut self) -> bool {
        let Stage::Recording { opens_at } = self.stage else { return false };
        self.stage = Stage::Open { opens_at };
        true
    }

    /// Who may still serve beside this primary, so that it must not commit anything (0013, point 2; 0007).
    pub(crate) fn waits(&self, now: Duration) -> Option<Wait> {
        if self.waits_for_predecessor(now) {
            Some(Wait::Predecessor)
        } else {
            (now < self.readers_until).then_some(Wait::Readers)
        }
    }

    fn waits_for_predecessor(&self, now: Duration) -> bool {
        now < self.predecessor.until()
    }

    /// A copy that is in sync no more may answer readers by itself until then.
    pub(crate) fn wait_for_readers(&mut self, until: Duration) {
        self.readers_until = self.readers_until.max(until);
    }

    /// The take-over has gathered for less than `patience`.
    fn has_just_begun(&self, patience: Duration, now: Duration) -> bool {
        matches!(self.stage, Stage::Gathering { since, .. } if now < since + patience)
    }

    /// The former primary has invited this copy, and what it had sent may still arrive.
    fn tail_may_come(&self, now: Duration) -> bool {
        self.predecessor.has_invited() && self.has_just_begun(TAIL_WAIT, now)
    }

    /// The copy on `device` has more than this one. True when that may still come here by itself: the answer waits.
    fn put_off(&mut self, device: DeviceId, ok: NewEpochOk, now: Duration) -> bool {
        let waits = self.tail_may_come(now);
        if let Stage::Gathering { late, .. } = &mut self.stage
            && waits
        {
            late.insert(device, ok);
        }
        waits
    }

    /// Takes out the answers of copies that had more, once this copy has everything up to `end` and they no more than
    /// that, or when nothing more may come by itself.
    fn take_due_answers(&mut self, end: Sequence, now: Duration) -> LateAnswers {
        let waits = self.tail_may_come(now);
        let (Stage::Gathering { late, .. } | Stage::Confirmed { late }) = &mut self.stage else {
            return LateAnswers::new(); // Every copy in sync has said since that it is level.
        };
        let (due, rest) = std::mem::take(late).into_iter().partition(|(_, ok)| !waits || ok.prepared <= end);
        *late = rest;
        due
    }

    /// The connection to a copy is gone, or new: what it has said before does not count.
    pub(crate) fn forget_answer(&mut self, device: DeviceId) {
        if let Stage::Gathering { late, .. } | Stage::Confirmed { late } = &mut self.stage {
            late.remove(&device);
        }
    }

    /// The device of the former primary, if that one has said nothing although no promise binds this copy any more.
    pub(crate) fn unheard_predecessor(&self, now: Duration) -> Option<DeviceId> {
        self.predecessor.is_unheard(now).then(|| self.predecessor.device())
    }
}
