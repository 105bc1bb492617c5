//! The data keys of the volumes are rotated all the time, by whichever node does that now: a new generation comes, is
//! written with, blocks get it, and the former ones go (docs/decisions/0038-encrypted-volumes.md). All volumes begin
//! with one key; some clones get one of their own.
//!
//! What comes next is what `azekura_plans::rotation` says; here is how it is found out what nodes have, and that some
//! do not answer. Who did it before may go on: two that pass through a volume do each other no harm.

mod steps;

use crate::kernel::process::Life;
use crate::kernel::random::Random;
use crate::plan::Plan;
use azekura_base::KeyId;
use std::time::Duration;

/// The key of all volumes at first. Those of clones have the numbers behind it.
pub(crate) const KEY: KeyId = KeyId(5);
/// When it begins.
pub(crate) const FIRST_AT: Duration = Duration::from_millis(400);
/// Of a hundred looks at a key that is not being rotated, after so many it is.
const BEGINS_PERCENT: u64 = 15;
/// The same while snapshots still need former generations, or volumes have blocks under them.
const BEGINS_AGAIN_PERCENT: u64 = 3;
/// Of a hundred questions, so many are not answered.
const SILENT_PERCENT: u64 = 8;
/// Of a hundred looks, after so many another node does it.
const ANOTHER_PERCENT: u64 = 4;

/// Of a hundred clones, so many get a key of their own.
const OWN_KEY_PERCENT: u64 = 50;

/// How far it is.
pub(crate) struct Rekeys {
    pub(crate) on: bool,
    random: Random,
    /// Who does it.
    rotator: Option<Life>,
    /// Generations that were made.
    made: u64,
}

impl Rekeys {
    pub(crate) fn new(plan: &Plan, random: Random) -> Rekeys {
        Rekeys { on: plan.rekeys, random, rotator: None, made: 0 }
    }
}
