//! Heartbeats: one message to each peer that shares a group with this shard, for all groups that this shard is primary
//! of and the other has copies of; and to each peer that has something to answer, to know that the connection stands.

use azekura_base::Endpoint;
use std::collections::BTreeMap;
use std::time::Duration;

mod steps;

/// When heartbeats are due, and what peers said of their clocks.
#[derive(Debug)]
pub(crate) struct Beats {
    next: Duration,
    /// The stamp of each peer's last answer, by its clock, and when that arrived, by this shard's.
    stamps: BTreeMap<Endpoint, (u64, Duration)>,
    /// What this shard's clock showed up to here was perhaps long ago.
    void: Option<Duration>,
}

impl Beats {
    pub(crate) fn new(now: Duration) -> Beats {
        Beats { next: now, stamps: BTreeMap::new(), void: None }
    }

    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Nothing can be counted from this shard's stamps up to now any more.
    pub(crate) fn void_stamps(&mut self, now: Duration) {
        self.void = Some(now);
    }

    /// Leases may be counted from this shard's own `stamp`, which somebody has echoed.
    fn counts(&self, stamp: Duration, now: Duration) -> bool {
        stamp <= now && self.void.is_none_or(|void| stamp > void)
    }

    /// A new connection: what was known of the peer's clock may be from before its restart.
    pub(crate) fn forget(&mut self, peer: Endpoint) {
        self.stamps.remove(&peer);
    }
}
