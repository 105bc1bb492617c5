//! The model as the checker sees it: bounds, rules that can be broken on purpose, steps, properties.

use crate::quorum::AckRule;
use crate::run::Run;
use crate::serving::may_serve;
use crate::state::{Broken, COPIES, PLACES, Set, Stage, State, copies_of};
use crate::symmetry::representative;
use stateright::{Model, Property};

/// How much may happen. What would go beyond is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The highest epoch that is claimed; the first is 1.
    pub epochs: u8,
    /// The highest version of the configuration; the first is 1.
    pub versions: u8,
    /// Writes, at most two: a log has no more places.
    pub writes: u8,
    /// Processes that end.
    pub restarts: u8,
}

/// The rules that keep the group safe, each of which a test can take away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A `NewEpoch` or `Learn` of an epoch below the one of the configuration that the copy has read is not followed
    /// (0010, point 3).
    pub believes_its_configuration: bool,
    /// A new primary commits nothing before its own promise has run out, or its predecessor has stopped (0013, point
    /// 2).
    pub waits_out_its_promise: bool,
    /// A copy that is bound follows nobody else, where writes do not wait for all copies (0010, point 3).
    pub copies_wait_out_their_promise: bool,
    /// So does one that has claimed the group itself, and has not recorded its epoch.
    pub claimants_wait_too: bool,
    /// A process that starts takes itself for bound, because it does not know what was promised (0013, point 3).
    pub starts_bound: bool,
    /// A new primary hears so many copies that no acknowledged write is overlooked (0010, point 4).
    pub hears_enough: bool,
    /// What was gathered is committed only after the configuration names who has it (0010, point 5).
    pub confirms: bool,
    /// A copy is proposed as in sync only when everything committed is durable there.
    pub joiners_are_level: bool,
    /// A promise counts only for the reign whose heartbeat it answers.
    pub promises_name_their_epoch: bool,
}

impl Rules {
    /// Everything as it is to be.
    pub const ALL: Rules = Rules {
        believes_its_configuration: true,
        waits_out_its_promise: true,
        copies_wait_out_their_promise: true,
        starts_bound: true,
        hears_enough: true,
        claimants_wait_too: true,
        confirms: true,
        joiners_are_level: true,
        promises_name_their_epoch: true,
    };
}

/// The membership protocol of one group under one ack rule.
#[derive(Clone, Debug)]
pub struct Membership {
    /// When a write is acknowledged.
    pub ack: AckRule,
    /// How much may happen.
    pub bounds: Bounds,
    /// The rules that hold.
    pub rules: Rules,
    /// States that differ only in the numbers of copies are one. Not for reading a counter-example: its steps would
    /// name copies by numbers that change on the way.
    pub symmetric: bool,
}

/// One step. Each names the functions of `crates/replica` that it stands for where it is done (`src/run.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A primary orders a write.
    Order(usize),
    /// (primary, copy): the copy appends the next write.
    Prepare(usize, usize),
    /// (primary, copy): the primary hears what is durable there.
    Acknowledge(usize, usize),
    /// (primary, copy): the copy hears what is committed.
    Heartbeat(usize, usize),
    /// A new primary's own promise to the one before runs out.
    WaitOut(usize),
    /// The copy proposes itself as primary.
    Claim(usize),
    /// (primary, copy): the primary invites the copy, which proposes itself.
    HandOver(usize, usize),
    /// The store executes the copy's proposal.
    Execute(usize),
    /// The store executes the proposal of a process that has ended.
    ExecuteOrphan,
    /// The copy hears what has become of its proposal.
    Hear(usize),
    /// The copy reads the configuration.
    Configure(usize),
    /// (primary, copy): the copy takes the primary's `NewEpoch` up.
    Ask(usize, usize),
    /// (primary, copy): the primary hears the answer.
    Answer(usize, usize),
    /// The end of the former primary's tail reaches the new one.
    InheritWrite(usize),
    /// A new primary has heard enough copies.
    Gather(usize),
    /// The record of the primary's own epoch is durable.
    Record(usize),
    /// The primary proposes this in-sync set.
    Change(usize, Set),
    /// (primary, copy): the copy begins to learn.
    Learn(usize, usize),
    /// (primary, copy): the copy has everything.
    Learnt(usize, usize),
    /// A process ends and another begins.
    Restart {
        /// Whose.
        copy: usize,
        /// What it had proposed may be executed later.
        late: bool,
        /// Its log does not show what was committed since the epoch began.
        forgetful: bool,
        /// What it had ordered and not committed was not durable.
        cut: bool,
    },
}

/// An acknowledged write is on the copies that its rule names, and in the order of every later epoch that opens.
pub const KEPT: &str = "invariant 1: an acknowledged write is kept";
/// No two copies serve at once, and who serves has every acknowledged write.
pub const ONE_SERVES: &str = "invariant 3: one primary serves, and has everything";
/// No two processes reign in one epoch.
pub const ONE_REIGNS: &str = "invariant 3: one process commits in an epoch";
/// A copy is named in sync only when it holds everything that was acknowledged.
pub const RETURNS_WHOLE: &str = "invariant 4: a copy returns with everything";

impl Membership {
    /// All rules hold.
    #[must_use]
    pub fn new(ack: AckRule, bounds: Bounds) -> Membership {
        assert!(bounds.writes as usize <= PLACES, "a log of the model has {PLACES} places");
        assert!(bounds.epochs < 8, "epochs are counted in a byte of bits");
        Membership { ack, bounds, rules: Rules::ALL, symmetric: true }
    }

    fn is_kept(&self, state: &State) -> bool {
        let witness = &state.witness;
        if matches!(witness.broken, Some(Broken::TooFewCopies | Broken::TwoNames)) {
            return false;
        }
        let has = |copy: usize, place: usize| {
            let log = &state.nodes[copy].log;
            (place < log.len as usize) && log.writes[place] == witness.committed.writes[place]
        };
        let mut places = 0..witness.committed.len as usize;
        places.all(|place| {
            let opened_with = (0..COPIES).all(|copy| match &state.nodes[copy].reign {
                Some(reign) if reign.is_open() && reign.epoch >= witness.in_epoch[place] => has(copy, place),
                _ => true,
            });
            let everywhere = self.ack != AckRule::All || copies_of(state.store.in_sync).all(|copy| has(copy, place));
            opened_with && everywhere
        })
    }

    fn one_serves(&self, state: &State) -> bool {
        let mut serving = (0..COPIES).filter(|copy| may_serve(self.ack, state, *copy));
        let first = serving.next();
        let witness = &state.witness.committed;
        let whole = first.is_none_or(|copy| {
            let node = &state.nodes[copy];
            node.committed >= witness.len && node.log.agrees(witness, witness.len)
        });
        whole && serving.next().is_none()
    }
}

impl Model for Membership {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.orphan.is_some() {
            actions.push(Action::ExecuteOrphan);
        }
        for (copy, node) in state.nodes.iter().enumerate() {
            actions.extend([Action::Claim(copy), Action::Configure(copy)]);
            if node.proposal.is_some() {
                actions.extend([Action::Execute(copy), Action::Hear(copy)]);
            }
            if state.witness.restarts < self.bounds.restarts {
                for choice in 0..8 {
                    let (late, forgetful, cut) = (choice & 1 != 0, choice & 2 != 0, choice & 4 != 0);
                    actions.push(Action::Restart { copy, late, forgetful, cut });
                }
            }
            let Some(reign) = &node.reign else { continue };
            match reign.stage {
                Stage::Gathering | Stage::Confirmed => {
                    actions.extend([Action::InheritWrite(copy), Action::Gather(copy), Action::WaitOut(copy)])
                }
                Stage::Recording => actions.push(Action::Record(copy)),
                Stage::Open => actions.push(Action::Order(copy)),
            }
            for other in (0..COPIES).filter(|other| *other != copy) {
                actions.extend([Action::Ask(copy, other), Action::Answer(copy, other)]);
                actions.extend([Action::Prepare(copy, other), Action::Acknowledge(copy, other)]);
                actions.push(Action::Heartbeat(copy, other));
                if reign.is_open() {
                    actions.extend([Action::Learn(copy, other), Action::Learnt(copy, other)]);
                    actions.push(Action::HandOver(copy, other));
                }
            }
            let own = 1 << copy;
            actions.extend((0..1 << COPIES).filter(|set| set & own != 0).map(|set| Action::Change(copy, set)));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut run = Run { model: self, s: *state };
        run.step(action)?;
        if run.s == *state {
            return None;
        }
        Some(if self.symmetric { representative(self.ack, &run.s) } else { run.s })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, Membership::is_kept),
            Property::always(ONE_SERVES, Membership::one_serves),
            Property::always(ONE_REIGNS, |_, state: &State| state.witness.broken != Some(Broken::TwoReigns)),
            Property::always(RETURNS_WHOLE, |_, state: &State| state.witness.broken != Some(Broken::JoinedWithout)),
        ]
    }
}
