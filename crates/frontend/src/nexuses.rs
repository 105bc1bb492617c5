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
//! A client may sweep what it has opened: end what all other clients have asked for there. Each of the others is told,
//! says when nothing is left of what it had until then, and the client hears when all have, or are over.
//!
//! What a shard says is heard in order, and so is what it is told; between two shards there is no order. So a shard may
//! be told of a member that is over by then, and takes no notice.

use crate::parties::Parties;
use azekura_base::Shard;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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

/// What a shard says of one of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It wants this nexus, and has none.
    Wants {
        /// The nexus.
        nexus: Nexus,
        /// What it opens: the export's name.
        unit: Arc<str>,
    },
    /// It is to be the head of a party of its client's connections: those that follow it end with it.
    Leads {
        /// The party's name, which no other has, nor had a moment ago.
        party: Nexus,
        /// What is the same for all parties of the same client and export: it begins when those among them whose heads
        /// are gone are over.
        family: Nexus,
    },
    /// It is to follow the head of this party.
    Follows(Nexus),
    /// All that follow this one are to leave; [`Word::Swept`] with this number answers when they are over.
    Disbands(u64),
    /// It is gone, and nothing that it has asked for is under way any more.
    Over,
    /// Its client ends what others have asked for of the same export. The number is the protocol's own, and so is the
    /// reason.
    Sweeps(u64, u8),
    /// Nothing is left of what it had asked for before this sweep.
    Swept(u64),
}

/// What a shard is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The member has its nexus alone.
    Begin(Member),
    /// Another one has come: close the connection, and let nothing of it begin any more.
    End(Member),
    /// The party that it follows, or wants to, is not there any more: close the connection, and let nothing of it
    /// begin any more.
    Leave(Member),
    /// All that it has asked for is to end, for this reason: [`News::Swept`] with this number answers.
    Sweep(Member, u64, u8),
    /// What others had asked for when it began the sweep of this number has ended; or its party is disbanded.
    Swept(Member, u64),
}

impl Word {
    /// Whom it is for.
    #[must_use]
    pub fn member(&self) -> Member {
        match self {
            Word::Begin(member) | Word::End(member) | Word::Leave(member) => *member,
            Word::Sweep(member, ..) | Word::Swept(member, _) => *member,
        }
    }
}

#[derive(Debug)]
struct Place {
    member: Member,
    /// It was told to end.
    ends: bool,
}

/// What a member has, or wants.
#[derive(Debug)]
struct Name {
    nexus: Nexus,
    unit: Arc<str>,
}

#[derive(Debug)]
struct Sweep {
    by: Member,
    /// Its number there.
    token: u64,
    /// Those that have not answered.
    left: BTreeSet<Member>,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Nexuses {
    /// Those that have the nexus or wait for it, the latest one last; never empty.
    places: BTreeMap<Nexus, Vec<Place>>,
    names: BTreeMap<Member, Name>,
    sweeps: BTreeMap<u64, Sweep>,
    swept: u64,
    parties: Parties,
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
        self.places.is_empty() && self.names.is_empty() && self.sweeps.is_empty() && self.parties.is_empty()
    }

    /// A shard has said something of a connection.
    pub fn heard(&mut self, member: Member, news: News) {
        match news {
            News::Wants { nexus, unit } => self.wanted(member, nexus, unit),
            News::Leads { party, family } => self.parties.leads(member, party, family, &mut self.words),
            News::Follows(party) => self.parties.follows(member, party, &mut self.words),
            News::Disbands(token) => self.parties.disbands(member, token, &mut self.words),
            News::Over => {
                self.parties.over(member, &mut self.words);
                self.over(member);
            }
            News::Sweeps(token, why) => self.sweeps(member, token, why),
            News::Swept(sweep) => self.has_swept(member, sweep),
        }
    }

    fn wanted(&mut self, member: Member, nexus: Nexus, unit: Arc<str>) {
        if self.names.insert(member, Name { nexus: Arc::clone(&nexus), unit }).is_some() {
            return debug_assert!(false, "{member:?} comes twice");
        }
        let places = self.places.entry(nexus).or_default();
        for place in places.iter_mut().filter(|place| !place.ends) {
            place.ends = true;
            self.words.push_back(Word::End(place.member));
        }
        places.push(Place { member, ends: false });
        if places.len() == 1 {
            self.words.push_back(Word::Begin(member));
        }
    }

    fn sweeps(&mut self, by: Member, token: u64, why: u8) {
        let Some(unit) = self.names.get(&by).map(|name| Arc::clone(&name.unit)) else { return };
        let others = self.names.iter().filter(|(member, name)| **member != by && name.unit == unit);
        let left: BTreeSet<Member> = others.map(|(member, _)| *member).collect();
        if left.is_empty() {
            return self.words.push_back(Word::Swept(by, token));
        }
        self.swept += 1;
        self.words.extend(left.iter().map(|member| Word::Sweep(*member, self.swept, why)));
        self.sweeps.insert(self.swept, Sweep { by, token, left });
    }

    fn has_swept(&mut self, member: Member, number: u64) {
        if let Entry::Occupied(mut entry) = self.sweeps.entry(number) {
            let sweep = entry.get_mut();
            sweep.left.remove(&member);
            if sweep.left.is_empty() {
                self.words.push_back(Word::Swept(sweep.by, sweep.token));
                entry.remove();
            }
        }
    }

    fn over(&mut self, member: Member) {
        let Some(Name { nexus, .. }) = self.names.remove(&member) else { return };
        self.sweeps.retain(|_, sweep| sweep.by != member);
        let unanswered: Vec<u64> =
            self.sweeps.iter().filter(|(_, sweep)| sweep.left.contains(&member)).map(|(number, _)| *number).collect();
        unanswered.into_iter().for_each(|number| self.has_swept(member, number));
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
