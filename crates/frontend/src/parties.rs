//! Connections of a process's clients that belong together: a party has a head, and others that follow it. NVMe's
//! controllers are parties: the connection of the admin queue is the head, those of I/O queues follow.
//!
//! When the head is gone, those that follow are told to leave. The party is over when all of them are, which is when
//! nothing that they have asked for is under way any more. Parties of the same client and export are a family: no head
//! begins while a party of its family has lost its own and is not over. Those that stand do not mind each other: a
//! client may have several.
//!
//! | a party | on | next |
//! |---|---|---|
//! | absent | a head comes | it begins, or waits for those of its family that are ending |
//! | stands | one comes that follows | it begins |
//! | stands | its head disbands it | those that follow are told to leave; the head hears when all are over |
//! | stands | its head is over | it ends: those that follow are told to leave |
//! | ends, or is not there | one comes that follows | it is told to leave |
//! | ends | the last one that follows is over | absent; heads of its family that have waited begin |

use crate::nexuses::{Member, Nexus, Word};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
struct Party {
    family: Nexus,
    /// Absent when it is over.
    head: Option<Member>,
    has_begun: bool,
    /// Those that follow, and whether they were told to leave.
    followers: BTreeMap<Member, bool>,
    /// The head's numbers for what it waits for.
    disbands: Vec<u64>,
}

impl Party {
    fn is_ending(&self) -> bool {
        self.head.is_none()
    }
}

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Parties {
    parties: BTreeMap<Nexus, Party>,
    party_of: BTreeMap<Member, Nexus>,
    /// How many parties of a family are ending; never 0.
    ending: BTreeMap<Nexus, usize>,
    /// Heads that wait for these, in the order in which they came.
    waiting: BTreeMap<Nexus, Vec<Member>>,
}

impl Parties {
    pub fn is_empty(&self) -> bool {
        self.parties.is_empty() && self.party_of.is_empty() && self.ending.is_empty() && self.waiting.is_empty()
    }

    /// One comes that is to be the head of a party, whose name no other has.
    pub fn leads(&mut self, head: Member, party: Nexus, family: Nexus, words: &mut VecDeque<Word>) {
        if self.parties.contains_key(&party) || self.party_of.contains_key(&head) {
            return words.push_back(Word::Leave(head));
        }
        let has_begun = !self.ending.contains_key(&family);
        if has_begun {
            words.push_back(Word::Begin(head));
        } else {
            self.waiting.entry(Nexus::clone(&family)).or_default().push(head);
        }
        self.party_of.insert(head, Nexus::clone(&party));
        let (followers, disbands) = (BTreeMap::new(), Vec::new());
        self.parties.insert(party, Party { family, head: Some(head), has_begun, followers, disbands });
    }

    /// One comes that is to follow the head of a party.
    pub fn follows(&mut self, member: Member, party: Nexus, words: &mut VecDeque<Word>) {
        let may = |party: &Party| party.head.is_some() && party.has_begun && party.disbands.is_empty();
        match self.parties.get_mut(&party).filter(|party| may(party)) {
            Some(found) if !self.party_of.contains_key(&member) => {
                found.followers.insert(member, false);
                self.party_of.insert(member, party);
                words.push_back(Word::Begin(member));
            }
            _ => words.push_back(Word::Leave(member)),
        }
    }

    /// A head wants those that follow it to leave, and to hear when they are over.
    pub fn disbands(&mut self, head: Member, token: u64, words: &mut VecDeque<Word>) {
        let party = self.party_of.get(&head).and_then(|party| self.parties.get_mut(party));
        let Some(party) = party.filter(|party| party.head == Some(head)) else { return };
        if party.followers.is_empty() {
            return words.push_back(Word::Swept(head, token));
        }
        party.disbands.push(token);
        tell_to_leave(party, words);
    }

    /// A member is gone, and nothing that it has asked for is under way any more.
    pub fn over(&mut self, member: Member, words: &mut VecDeque<Word>) {
        let Some(name) = self.party_of.remove(&member) else { return };
        let Some(party) = self.parties.get_mut(&name) else { return };
        if party.head == Some(member) {
            (party.head, party.disbands) = (None, Vec::new());
            tell_to_leave(party, words);
            let family = Nexus::clone(&party.family);
            if let Some(waiting) = self.waiting.get_mut(&family) {
                waiting.retain(|other| *other != member);
                if waiting.is_empty() {
                    self.waiting.remove(&family);
                }
            }
            if party.followers.is_empty() {
                self.parties.remove(&name);
            } else {
                *self.ending.entry(family).or_default() += 1;
            }
            return;
        }
        party.followers.remove(&member);
        if !party.followers.is_empty() {
            return;
        }
        if let Some(head) = party.head {
            words.extend(party.disbands.drain(..).map(|token| Word::Swept(head, token)));
        }
        if party.is_ending()
            && let Some(party) = self.parties.remove(&name)
        {
            self.ended(&party.family, words);
        }
    }

    /// A party that was ending is over.
    fn ended(&mut self, family: &Nexus, words: &mut VecDeque<Word>) {
        if let Some(ending) = self.ending.get_mut(family) {
            *ending -= 1;
            if *ending > 0 {
                return;
            }
            self.ending.remove(family);
        }
        for head in self.waiting.remove(family).unwrap_or_default() {
            let party = self.party_of.get(&head).and_then(|party| self.parties.get_mut(party));
            party.into_iter().for_each(|party| party.has_begun = true);
            words.push_back(Word::Begin(head));
        }
    }
}

fn tell_to_leave(party: &mut Party, words: &mut VecDeque<Word>) {
    for (member, told) in &mut party.followers {
        if !std::mem::replace(told, true) {
            words.push_back(Word::Leave(*member));
        }
    }
}

#[cfg(test)]
#[path = "parties_tests.rs"]
mod tests;
