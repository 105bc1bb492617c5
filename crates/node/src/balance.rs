//! What is decided over all groups of a shard: when they look for silent copies, how many bring copies up to date at
//! once, and which hand over to the shard that writes to them.

use crate::effect::ScrubWish;
use crate::rekeying::Rekeying;
use crate::throttle::Throttle;
use azekura_base::{DeviceId, PgId};
use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::time::Duration;

mod nearness;
mod steps;

/// Groups of a node that bring copies up to date at once: its shards have equal parts, and each at least one (0008,
/// point 1).
const RESYNCS_MAX: usize = 4;
/// Groups of a node that are scrubbed at once, likewise.
const SCRUBS_MAX: usize = 2;
/// How often writers are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// When what is due.
#[derive(Debug)]
pub(crate) struct Balance {
    next: Duration,
    count_at: Duration,
    /// Groups that were handed over, and until when they stay.
    settled_until: BTreeMap<PgId, Duration>,
    /// Groups that wait for their scrub.
    to_scrub: BTreeMap<PgId, ScrubWish>,
    scrubbing: BTreeMap<PgId, ScrubWish>,
    /// Groups with work in the background, as of the last tick.
    background: Vec<(PgId, DeviceId)>,
    throttle: Throttle,
    grant_at: Duration,
    resyncs_max: usize,
    scrubs_max: usize,
    /// Volumes whose blocks get another key.
    pub(crate) rekeying: Rekeying,
}

impl Balance {
    pub(crate) fn new(now: Duration) -> Balance {
        Balance {
            next: now,
            count_at: now + COUNT_INTERVAL,
            settled_until: BTreeMap::new(),
            to_scrub: BTreeMap::new(),
            scrubbing: BTreeMap::new(),
            background: Vec::new(),
            throttle: Throttle::new(now),
            grant_at: now,
            resyncs_max: RESYNCS_MAX,
            scrubs_max: SCRUBS_MAX,
            rekeying: Rekeying::default(),
        }
    }

    /// This is for one of so many shards of a node.
    pub(crate) fn set_shards(&mut self, shards: NonZeroU8) {
        let share = |all: usize| (all / usize::from(shards.get())).max(1);
        (self.resyncs_max, self.scrubs_max) = (share(RESYNCS_MAX), share(SCRUBS_MAX));
        self.throttle.set_shards(shards);
    }

    pub(crate) fn next(&self) -> Duration {
        if self.background.is_empty() { self.next } else { self.next.min(self.grant_at) }
    }

    /// A client's request was answered after this time.
    pub(crate) fn answered(&mut self, time: Duration) {
        self.throttle.answered(time);
    }

    /// A scrub has ended: what was wished.
    pub(crate) fn scrub_ended(&mut self, pg: PgId) -> Option<ScrubWish> {
        self.scrubbing.remove(&pg)
    }
}
