//! Keys are changed, taken away, and lied about.
//!
//! A change is as docs/decisions/0037 has it: the next key is added, used when all processes know it, and then the last
//! one is removed. Nobody has anything to complain about then. A node whose key is taken away is shut out, until it is
//! put back. And somebody says that he is a node that he is not, with a key that nobody has or with another node's.

use crate::kernel::random::Random;
use azekura_base::{NodeId, PeerKey};
use std::collections::{BTreeMap, BTreeSet};

mod steps;

/// Of so many runs in a hundred, keys are changed only.
const CHANGES_ONLY_PERCENT: u64 = 30;

/// How far the change of a node's key is.
#[derive(Clone, Copy)]
enum Change {
    /// The next key is in the record since this revision.
    Added(PeerKey, u64),
    /// It is in the node's folder, and this was there before.
    Put(PeerKey),
}

/// What is under way.
pub(crate) struct Keys {
    random: Random,
    changes_only: bool,
    changes: BTreeMap<NodeId, Change>,
    taken: BTreeSet<NodeId>,
    /// Keys that were made.
    made: u32,
    /// Something else has happened than changes: nodes complain by right.
    pub(crate) is_wrong: bool,
}

impl Keys {
    pub(crate) fn new(mut random: Random) -> Keys {
        let changes_only = random.chance(CHANGES_ONLY_PERCENT);
        let (changes, taken) = (BTreeMap::new(), BTreeSet::new());
        Keys { random, changes_only, changes, taken, made: 0, is_wrong: false }
    }

    /// Its key is neither being changed nor away.
    fn is_at_rest(&self, node: NodeId) -> bool {
        !self.changes.contains_key(&node) && !self.taken.contains(&node)
    }
}
