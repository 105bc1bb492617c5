//! Which key the other end of a connection has, as the transport has proved. Whose key that may be, the records say
//! (docs/decisions/0037-who-may.md).

use crate::effect::ConnKey;
use azekura_base::{Endpoint, PeerKey};
use std::collections::BTreeMap;
use std::time::Duration;

mod steps;

/// The keys that were proved, of connections that stand.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    keys: BTreeMap<ConnKey, PeerKey>,
    /// Who proves none is refused; else only who proves a wrong one. As the view says, or before the first one the
    /// process.
    needed: bool,
    /// Since when peers have come with keys that nobody here knows.
    strangers: BTreeMap<Endpoint, Duration>,
}

/// A node that has just joined or changed its key may greet before its record is read here: it comes again.
const STRANGER_PATIENCE: Duration = Duration::from_secs(2);
/// So many are remembered.
const STRANGERS_MAX: usize = 64;

impl Proofs {
    /// The other end of a new connection has this key.
    pub(super) fn note(&mut self, conn: ConnKey, key: Option<PeerKey>) {
        if let Some(key) = key {
            self.keys.insert(conn, key);
        }
    }

    pub(crate) fn forget(&mut self, conn: ConnKey) {
        self.keys.remove(&conn);
    }

    /// A peer comes with a key that nobody here knows. True when it has done so for long.
    fn is_strange(&mut self, peer: Endpoint, now: Duration) -> bool {
        if self.strangers.len() >= STRANGERS_MAX && !self.strangers.contains_key(&peer) {
            self.strangers.clear();
        }
        now >= *self.strangers.entry(peer).or_insert(now) + STRANGER_PATIENCE
    }

    /// A peer is known.
    pub(super) fn met(&mut self, peer: Endpoint) {
        self.strangers.remove(&peer);
    }

    fn of(&self, conn: ConnKey) -> Option<PeerKey> {
        self.keys.get(&conn).copied()
    }
}

#[cfg(test)]
mod tests;
