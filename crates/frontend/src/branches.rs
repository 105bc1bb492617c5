//! Which connections are branches, and of which trunks.

use crate::branch::BranchEnd;
use std::collections::BTreeMap;

/// A branch.
#[derive(Debug)]
struct Twig<K> {
    /// Absent when that is gone.
    trunk: Option<K>,
    number: u32,
    end: BranchEnd,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Branches<K> {
    all: BTreeMap<K, Twig<K>>,
    /// By the number that the trunk has given them.
    by_number: BTreeMap<(K, u32), K>,
    /// Those that are gone with requests under way, by the numbers of their nexuses' members.
    leaving: BTreeMap<u64, (Option<K>, BranchEnd)>,
    /// What goes on although it may not.
    #[cfg(feature = "sabotage")]
    kept: BTreeMap<(K, u32), Vec<crate::branch::Ask>>,
}

impl<K> Default for Branches<K> {
    fn default() -> Branches<K> {
        Branches {
            all: BTreeMap::new(),
            by_number: BTreeMap::new(),
            leaving: BTreeMap::new(),
            #[cfg(feature = "sabotage")]
            kept: BTreeMap::new(),
        }
    }
}

impl<K: Copy + Ord> Branches<K> {
    /// A connection is the branch of this number of a trunk from now on.
    pub fn add(&mut self, conn: K, trunk: K, number: u32, end: BranchEnd) {
        self.all.insert(conn, Twig { trunk: Some(trunk), number, end });
        self.by_number.insert((trunk, number), conn);
    }

    /// The connection of the branch of this number.
    pub fn of(&self, trunk: K, number: u32) -> Option<K> {
        self.by_number.get(&(trunk, number)).copied()
    }

    /// All branches of a connection.
    pub fn all_of(&self, trunk: K) -> Vec<K> {
        self.by_number.range((trunk, 0)..=(trunk, u32::MAX)).map(|(_, conn)| *conn).collect()
    }

    /// Whether a connection is a branch.
    pub fn has(&self, conn: K) -> bool {
        self.all.contains_key(&conn)
    }

    /// The trunk of a branch; `None`: it is none, or its trunk is gone.
    pub fn trunk_of(&self, conn: K) -> Option<K> {
        self.all.get(&conn)?.trunk
    }

    /// A trunk is gone. Its branches are to be closed.
    pub fn trunk_gone(&mut self, trunk: K) -> Vec<K> {
        let branches = self.all_of(trunk);
        for conn in &branches {
            self.all.get_mut(conn).into_iter().for_each(|twig| twig.trunk = None);
        }
        self.by_number.retain(|(of, _), _| *of != trunk);
        self.leaving.values_mut().for_each(|(of, _)| *of = of.filter(|of| *of != trunk));
        branches
    }

    /// A branch is gone; `member`: there are requests of it under way, and this is whose they are. Gives its trunk.
    pub fn gone(&mut self, conn: K, member: Option<u64>) -> Option<K> {
        let Twig { trunk, number, end } = self.all.remove(&conn)?;
        if let Some(trunk) = trunk
            && self.of(trunk, number) == Some(conn)
        {
            self.by_number.remove(&(trunk, number));
        }
        match member {
            Some(member) => drop(self.leaving.insert(member, (trunk, end))),
            None => end.lost(),
        }
        trunk
    }

    /// Nothing of a member is under way any more. Gives the trunk of the branch that it was, if it was one.
    pub fn over(&mut self, member: u64) -> Option<K> {
        let (trunk, end) = self.leaving.remove(&member)?;
        end.lost();
        trunk
    }

    /// A branch is open, and takes writes: those that had been asked of the former one come first.
    #[cfg(feature = "sabotage")]
    pub fn go_on(&mut self, conn: K) {
        if let Some(Twig { trunk: Some(trunk), number, end }) = self.all.get(&conn) {
            end.goes_on_with(self.kept.remove(&(*trunk, *number)).unwrap_or_default());
        }
    }

    /// It is answered, and so does not go on.
    #[cfg(feature = "sabotage")]
    pub fn forget(&mut self, conn: K, answered: crate::protocol::Tag) {
        if let Some(Twig { trunk: Some(trunk), number, .. }) = self.all.get(&conn)
            && let Some(kept) = self.kept.get_mut(&(*trunk, *number))
        {
            kept.retain(|ask| !matches!(ask, crate::branch::Ask::Request { tag, .. } if *tag == answered));
        }
    }

    /// What was asked of a branch that is closed is to be asked of the next one of its number.
    #[cfg(feature = "sabotage")]
    pub fn keep(&mut self, conn: K, ask: crate::branch::Ask) {
        if let Some(Twig { trunk: Some(trunk), number, .. }) = self.all.get(&conn) {
            self.kept.entry((*trunk, *number)).or_default().push(ask);
        }
    }
}
