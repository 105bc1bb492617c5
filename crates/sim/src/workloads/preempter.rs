//! Two hosts share the volume by a reservation, and put each other out of it all the time.

mod steps;

use crate::kernel::random::Random;
use crate::kernel::time::Stamp;
use std::collections::{BTreeMap, BTreeSet};

/// Draws who puts whom out and when, and knows what that means for what they had written.
pub(crate) struct Preempter {
    random: Random,
    /// Operations, and whose they are.
    hosts: BTreeMap<u64, usize>,
    /// By when what an operation writes must have happened.
    latest: BTreeMap<u64, Stamp>,
    /// Operations that had been let in, and were not answered, when it was confirmed that nothing of them is under way.
    drained: BTreeSet<u64>,
}

impl Preempter {
    pub(crate) fn new(random: Random) -> Preempter {
        Preempter { random, hosts: BTreeMap::new(), latest: BTreeMap::new(), drained: BTreeSet::new() }
    }

    /// An operation of a host begins.
    pub(crate) fn begins(&mut self, operation: u64, host: usize) {
        self.hosts.insert(operation, host);
    }

    /// By when an operation has happened, or never.
    pub(crate) fn latest(&self, operation: u64) -> Option<Stamp> {
        self.latest.get(&operation).copied()
    }

    /// An operation was refused because its host may not write: it never happens.
    pub(crate) fn is_barred(&mut self, operation: u64) {
        self.latest.insert(operation, 0);
    }
}
