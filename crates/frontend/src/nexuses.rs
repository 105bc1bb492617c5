//! Who of a process's clients goes on under a name that another one has had before: a nexus (SAM-5 section 3.1.53,
//! "I_T nexus") is what a client's port is to a target, and there is one at a time.
//!
//! A client that comes with the name of a nexus that stands ends it. The later one begins when nothing of the earlier
//! one is left: no connection, and no request that could still change something. Which shards of the process they are
//! on makes no difference. Only beginnings and ends go through here, so that requests need no word from another shard.
//!
//! | members of a nexus, in the order in which they came | on | next |
//! |---|---|---|
//! | none | one comes | it begins |
//! | some | one comes | it is the last, and waits; those before it are told to end, once each |
//! | some | one is over, and the last one is left | that begins, unless it has, or was told to end |
//! | one | it is over | none |
//!
//! What a shard says is heard in order, and so is what it is told; between two shards there is no order. So a shard may
//! be told of a member that is over by then, and takes no notice.

use azekura_base::Shard;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The name of a nexus, with the client's and the target's in it, as its protocol makes it. No two protocols have the
/// same.
pub type Nexus = Arc<str>;

/// A connection that has a nexus, or wants to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The shard that serves it.
    pub shard: Shard,
    /// Its number there, never another's.
    pub number: u64,
}

/// What a shard is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The member has its nexus alone.
    Begin(Member),
    /// Another one has come: close the connection, and let nothing of it begin any more.
    End(Member),
}

#[derive(Debug)]
struct Place {
    member: Member,
    /// It was told to end.
    ends: bool,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Nexuses {
    /// Those that have the nexus or wait for it, the latest one last; never empty.
    places: BTreeMap<Nexus, Vec<Place>>,
    names: BTreeMap<Member, Nexus>,
    words: VecDeque<Word>,
}

impl Nexuses {
    /// The next thing to tell.
    pub fn next_word(&mut self) -> Option<Word> {
        self.words.pop_front()
    }

    /// True when nobody has a nexus or wants one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.names.is_empty()
    }

    /// A connection wants a nexus, and has none.
    pub fn wanted(&mut self, member: Member, nexus: &Nexus) {
        if self.names.insert(member, Arc::clone(nexus)).is_some() {
            return debug_assert!(false, "{member:?} comes twice");
        }
        let places = self.places.entry(Arc::clone(nexus)).or_default();
        for place in places.iter_mut().filter(|place| !place.ends) {
            place.ends = true;
            self.words.push_back(Word::End(place.member));
        }
        places.push(Place { member, ends: false });
        if places.len() == 1 {
            self.words.push_back(Word::Begin(member));
        }
    }

    /// A connection is gone, and nothing that it has asked for is under way any more.
    pub fn over(&mut self, member: Member) {
        let Some(nexus) = self.names.remove(&member) else { return };
        let Entry::Occupied(mut places) = self.places.entry(nexus) else { return };
        places.get_mut().retain(|place| place.member != member);
        match places.get()[..] {
            [] => drop(places.remove()),
            // Those before it are gone. It has not begun: whoever has is told to end when another one comes, and so the
            // last one has waited for one that was there before it.
            [Place { member, ends: false }] => self.words.push_back(Word::Begin(member)),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "nexuses_tests.rs"]
mod tests;
