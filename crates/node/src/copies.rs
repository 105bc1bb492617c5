//! The copies of groups on this node, and which of them have something to do.

use azekura_base::{DeviceId, PgId};
use azekura_replica::{Client, Group};
use azekura_wire::NewEpoch;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A copy's name.
pub(crate) type Key = (PgId, DeviceId);

/// A claim of one of this node's copies that stands in the configuration.
#[derive(Clone, Copy, Debug)]
struct Accepted {
    revision: u64,
    key: Key,
    version: u64,
}

/// All copies.
#[derive(Default)]
pub(crate) struct Copies {
    pub(crate) groups: BTreeMap<Key, Group>,
    /// Groups that may have something to do.
    pub(crate) awake: VecDeque<Key>,
    /// Groups that may owe their primary an acknowledgement at the end of the turn.
    pub(crate) owing: BTreeSet<Key>,
    /// Questions of primaries to copies whose store is not open yet.
    pub(crate) early_new_epochs: BTreeMap<Key, (Client, NewEpoch)>,
    /// Claims to reign that have been accepted in a revision that is not known here yet.
    accepted_claims: Vec<Accepted>,
}

impl Copies {
    /// Keeps for later that a claim was accepted in this revision.
    pub(crate) fn accept_later(&mut self, revision: u64, key: Key, version: u64) {
        self.accepted_claims.push(Accepted { revision, key, version });
    }

    /// Takes out the claims, and their versions, that were accepted up to this revision.
    pub(crate) fn take_accepted(&mut self, known: u64) -> Vec<(Key, u64)> {
        let due = self.accepted_claims.extract_if(.., |claim| claim.revision <= known);
        due.map(|claim| (claim.key, claim.version)).collect()
    }
}
