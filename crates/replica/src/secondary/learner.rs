//! What is under way on a copy that is brought up to date, or whose blocks are repaired.

use azekura_base::Sequence;
use azekura_wire::{Compare, Fetch, LearnOk, Repair};
use std::collections::{BTreeMap, VecDeque};

/// Repairs and comparisons under way.
#[derive(Default)]
pub(crate) struct Learner {
    /// Repairs that wait until what comes before them is durable.
    pub(super) repairs: VecDeque<Repair>,
    /// Chunks that are being read, by the question's name.
    pub(super) compares: BTreeMap<u64, Compare>,
    /// Names the note that says which writes this copy need not apply again: the copy joins only when its device keeps
    /// the note.
    pub(super) note: u64,
    pub(super) note_saved: bool,
    /// The answer to the primary, to be sent again when the note is kept.
    pub(super) learnt: Option<LearnOk>,
    /// Blocks that are being read for the primary, by the question's name.
    pub(crate) fetches: BTreeMap<u64, Fetch>,
}

impl Learner {
    /// Nothing behind the next repair may be committed before it.
    pub(crate) fn commit_limit(&self) -> Option<Sequence> {
        self.repairs.front().map(|repair| repair.commit)
    }
}
