//! Connections of a shard that have a nexus, or want to: the shard's part of what [`Nexuses`](crate::Nexuses) says.
//!
//! | state | on | next |
//! |---|---|---|
//! | absent | wants a nexus | waits |
//! | waits | told to begin | has it |
//! | waits, has it | gone, with requests under way; without | leaving; over |
//! | leaving | the last of its requests is answered | over |

use std::collections::BTreeMap;

/// What comes of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The process is to be asked for this member.
    New(u64),
    /// It has been asked.
    Waits,
    /// The connection has its nexus.
    Has,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Members<K> {
    made: u64,
    /// Numbers, and whether they have begun.
    by_conn: BTreeMap<K, (u64, bool)>,
    conns: BTreeMap<u64, K>,
    /// Requests under way of those whose connection is gone.
    leaving: BTreeMap<u64, usize>,
    /// Sweeps that have not been answered.
    sweeps: BTreeMap<K, usize>,
}

impl<K> Default for Members<K> {
    fn default() -> Members<K> {
        Members {
            made: 0,
            by_conn: BTreeMap::new(),
            conns: BTreeMap::new(),
            leaving: BTreeMap::new(),
            sweeps: BTreeMap::new(),
        }
    }
}

impl<K: Copy + Ord> Members<K> {
    /// A connection wants a nexus.
    pub fn wanted(&mut self, conn: K) -> Wish {
        match self.by_conn.get(&conn) {
            Some((_, true)) => Wish::Has,
            Some((_, false)) => Wish::Waits,
            None => {
                self.made += 1;
                self.by_conn.insert(conn, (self.made, false));
                self.conns.insert(self.made, conn);
                Wish::New(self.made)
            }
        }
    }

    /// Whether a connection has its nexus.
    pub fn has(&self, conn: K) -> bool {
        self.by_conn.get(&conn).is_some_and(|(_, has)| *has)
    }

    /// The number of a connection that has a nexus or wants one.
    pub fn number(&self, conn: K) -> Option<u64> {
        self.by_conn.get(&conn).map(|(number, _)| *number)
    }

    /// The connection of a number; `None` when it is gone.
    pub fn conn(&self, number: u64) -> Option<K> {
        self.conns.get(&number).copied()
    }

    /// It has its nexus. The connection, unless it is gone.
    pub fn begins(&mut self, number: u64) -> Option<K> {
        let conn = self.conn(number)?;
        self.by_conn.insert(conn, (number, true));
        Some(conn)
    }

    /// A connection is gone, with so many requests under way. The number, if it is over.
    #[must_use]
    pub fn gone(&mut self, conn: K, requests: usize) -> Option<u64> {
        let (number, _) = self.by_conn.remove(&conn)?;
        self.conns.remove(&number);
        self.sweeps.remove(&conn);
        if requests > 0 {
            self.leaving.insert(number, requests);
        }
        (requests == 0).then_some(number)
    }

    /// Whether a member's connection is gone, and requests of it are under way.
    pub fn is_leaving(&self, number: u64) -> bool {
        self.leaving.contains_key(&number)
    }

    /// A request of one whose connection is gone is answered. True when it is over.
    #[must_use]
    pub fn answered(&mut self, number: u64) -> bool {
        let Some(requests) = self.leaving.get_mut(&number) else { return false };
        *requests -= 1;
        *requests == 0 && self.leaving.remove(&number).is_some()
    }

    /// A connection is told of a sweep.
    pub fn sweep(&mut self, conn: K) {
        *self.sweeps.entry(conn).or_default() += 1;
    }

    /// It has answered one. Its number.
    pub fn swept(&mut self, conn: K) -> Option<u64> {
        let left = self.sweeps.get_mut(&conn)?;
        *left -= 1;
        if *left == 0 {
            self.sweeps.remove(&conn);
        }
        self.number(conn)
    }

    /// Whether it owes an answer to one, which may be due whenever a request of it has ended.
    pub fn is_sweeping(&self, conn: K) -> bool {
        self.sweeps.contains_key(&conn)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.by_conn.is_empty() && self.conns.is_empty() && self.leaving.is_empty()
    }
}
