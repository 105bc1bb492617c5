//! Leases: names for "these keys live as long as somebody says so every `ttl` seconds".
//!
//! Deadlines are kept in memory only. After a restart every lease starts with its full time again, because nobody could
//! renew it while the server was away.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Longest time to live, in seconds (etcd's limit).
pub const TTL_MAX: i64 = 9_000_000_000;

/// One lease.
#[derive(Debug)]
pub struct Lease {
    /// Time to live that was granted, in seconds.
    pub ttl: i64,
    /// When it ends, unless renewed.
    pub deadline: Instant,
    /// The keys that end with it.
    pub keys: BTreeSet<Vec<u8>>,
}

/// All leases, by id.
#[derive(Debug, Default)]
pub struct Leases {
    leases: BTreeMap<i64, Lease>,
}

fn deadline(now: Instant, ttl: i64) -> Instant {
    // The cap (about 285 years) keeps the addition inside what `Instant` can hold.
    now + Duration::from_secs(ttl.clamp(0, TTL_MAX) as u64)
}

impl Leases {
    /// Adds or replaces a lease that ends `ttl` seconds after `now`.
    pub fn insert(&mut self, id: i64, ttl: i64, now: Instant) {
        self.leases.insert(id, Lease { ttl, deadline: deadline(now, ttl), keys: BTreeSet::new() });
    }

    /// Removes a lease and returns it.
    pub fn remove(&mut self, id: i64) -> Option<Lease> {
        self.leases.remove(&id)
    }

    /// The lease with this id.
    #[must_use]
    pub fn get(&self, id: i64) -> Option<&Lease> {
        self.leases.get(&id)
    }

    /// Every id, ascending.
    pub fn ids(&self) -> impl Iterator<Item = i64> + '_ {
        self.leases.keys().copied()
    }

    /// Restarts a lease's time; returns its time to live in seconds, or `None` when it is gone.
    pub fn renew(&mut self, id: i64, now: Instant) -> Option<i64> {
        let lease = self.leases.get_mut(&id)?;
        lease.deadline = deadline(now, lease.ttl);
        Some(lease.ttl)
    }

    /// Gives every lease more time, after a pause in which nobody could renew.
    pub fn extend_all(&mut self, by: Duration) {
        for lease in self.leases.values_mut() {
            lease.deadline += by;
        }
    }

    /// Moves a key from one lease to another; 0 is none.
    pub fn move_key(&mut self, key: &[u8], from: i64, to: i64) {
        if from == to {
            return;
        }
        if let Some(lease) = self.leases.get_mut(&from) {
            lease.keys.remove(key);
        }
        if let Some(lease) = self.leases.get_mut(&to) {
            lease.keys.insert(key.to_vec());
        }
    }

    /// The leases whose time is over.
    #[must_use]
    pub fn expired(&self, now: Instant) -> Vec<i64> {
        self.leases.iter().filter(|(_, lease)| lease.deadline <= now).map(|(id, _)| *id).collect()
    }
}
