//! Which key the other end of a connection has, as the transport has proved. Whose key that may be, the records say
//! (docs/decisions/0037-who-may.md).

use crate::effect::ConnKey;
use azekura_base::PeerKey;
use std::collections::BTreeMap;

mod steps;

/// The keys that were proved, of connections that stand.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    keys: BTreeMap<ConnKey, PeerKey>,
    /// Who proves none is refused; else only who proves a wrong one.
    needed: bool,
}

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

    fn of(&self, conn: ConnKey) -> Option<PeerKey> {
        self.keys.get(&conn).copied()
    }
}

#[cfg(test)]
mod tests;
