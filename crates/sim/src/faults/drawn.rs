//! What draws faults, and what of them is under way.

use crate::checks::slowness::SlowCopies;
use crate::faults::guests::Guests;
use crate::faults::keys::Keys;
use crate::kernel::random::Random;
use crate::workloads::rekeys::Rekeys;
use azekura_base::{DeviceId, NodeId, PgId};
use std::collections::BTreeSet;
use std::time::Duration;

/// Draws the faults that are made for one interleaving; the others are drawn as all that happens to the cluster.
pub(crate) struct Faults {
    pub(super) directed: Random,
    /// Draws how long it takes to initialise a part of a log.
    pub(super) initialising: Random,
    pub(super) watched: Option<Watched>,
    /// The device whose blocks decay, in that mode.
    pub(super) decaying: DeviceId,
    pub(crate) guests: Guests,
    pub(crate) keys: Keys,
    /// The rotations of the data key: no fault, but all that it meets is.
    pub(crate) rekeys: Rekeys,
    /// For how long groups have waited for copies on slow devices.
    pub(crate) slow_copies: SlowCopies,
    pub(crate) last_scrub: LastScrub,
    /// None happens any more, although clients go on.
    pub(crate) over: bool,
}

impl Faults {
    pub(crate) fn new(
        [directed, initialising, keys, last_scrub]: [Random; 4],
        decaying: DeviceId,
        guests: Guests,
        rekeys: Rekeys,
    ) -> Faults {
        Faults {
            directed,
            initialising,
            watched: None,
            decaying,
            guests,
            keys: Keys::new(keys),
            rekeys,
            slow_copies: SlowCopies::default(),
            last_scrub: LastScrub { random: last_scrub, left: BTreeSet::new(), done: false },
            over: false,
        }
    }
}

/// A group in which a vote is to be forgotten. Clients ask for nothing until it is: a successor that lacks what another
/// copy has would give way to that one.
pub(super) struct Watched {
    pub(super) pg: PgId,
    pub(super) former: NodeId,
    pub(super) successor: NodeId,
    pub(super) until: Duration,
}

/// The scrub of everything when everything rests, where blocks decay.
pub(crate) struct LastScrub {
    /// Draws how its connections break.
    pub(crate) random: Random,
    /// Groups that are to be scrubbed.
    pub(crate) left: BTreeSet<PgId>,
    /// It has ended: no block of a copy is damaged.
    pub(crate) done: bool,
}
