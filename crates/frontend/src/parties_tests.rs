//! Parties, in any order of what happens.

use super::*;
use azekura_base::Shard;
use proptest::prelude::*;
use std::collections::BTreeSet;

const FAMILIES: usize = 2;

fn member(number: u64) -> Member {
    Member { shard: Shard(number as u8 % 3), number }
}

fn name(what: &str, number: u64) -> Nexus {
    format!("{what}{number}").into()
}

#[derive(Clone, Debug)]
enum Step {
    Lead(usize),
    Follow(usize),
    Disband(usize),
    /// Of a connection that is told to leave, or ends by itself, nothing is left any more.
    Over(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0..FAMILIES).prop_map(Step::Lead),
        4 => any::<usize>().prop_map(Step::Follow),
        1 => any::<usize>().prop_map(Step::Disband),
        3 => any::<usize>().prop_map(Step::Over),
    ];
    proptest::collection::vec(step, 0..60)
}

/// What a shard knows of a connection.
#[derive(Debug)]
struct Side {
    party: u64,
    family: Option<usize>,
    begun: bool,
    told: bool,
}

#[derive(Default)]
struct Process {
    parties: Parties,
    sides: BTreeMap<u64, Side>,
    made: u64,
    /// Heads that wait for their party to be disbanded, and those that followed them then.
    disbanding: Vec<(u64, u64, BTreeSet<u64>)>,
}

impl Process {
    fn pick(&self, at: usize, which: impl Fn(&Side) -> bool) -> Option<u64> {
        let all: Vec<u64> = self.sides.iter().filter(|(_, side)| which(side)).map(|(number, _)| *number).collect();
        (!all.is_empty()).then(|| all[at % all.len()])
    }

    fn step(&mut self, step: &Step) {
        let mut words = VecDeque::new();
        self.made += 1;
        let number = self.made;
        match step {
            Step::Lead(family) => {
                let side = Side { party: number, family: Some(*family), begun: false, told: false };
                self.sides.insert(number, side);
                let (party, family) = (name("party", number), name("family", *family as u64));
                self.parties.leads(member(number), party, family, &mut words);
            }
            Step::Follow(at) => {
                let Some(party) = self.pick(*at, |side| side.family.is_some()) else { return };
                self.sides.insert(number, Side { party, family: None, begun: false, told: false });
                self.parties.follows(member(number), name("party", party), &mut words);
            }
            Step::Disband(at) => {
                let Some(head) = self.pick(*at, |side| side.family.is_some() && side.begun) else { return };
                let follow = |(_, side): &(&u64, &Side)| side.family.is_none() && side.party == head && side.begun;
                let left = self.sides.iter().filter(follow).map(|(number, _)| *number).collect();
                self.disbanding.push((head, number, left));
                self.parties.disbands(member(head), number, &mut words);
            }
            Step::Over(at) => {
                let Some(gone) = self.pick(*at, |_| true) else { return };
                self.sides.remove(&gone);
                self.disbanding.retain(|(head, ..)| *head != gone);
                for (.., left) in &mut self.disbanding {
                    left.remove(&gone);
                }
                self.parties.over(member(gone), &mut words);
            }
        }
        words.into_iter().for_each(|word| self.hear(word));
        self.check();
    }

    fn hear(&mut self, word: Word) {
        let number = word.member().number;
        match word {
            Word::Begin(_) => {
                let side = self.sides.get_mut(&number).expect("it is there");
                assert!(!std::mem::replace(&mut side.begun, true), "once");
            }
            Word::Leave(_) => {
                let side = self.sides.get_mut(&number).expect("it is there");
                assert!(!std::mem::replace(&mut side.told, true), "once");
            }
            Word::Swept(_, token) => {
                let at = self.disbanding.iter().position(|(head, own, _)| (*head, *own) == (number, token));
                let (.., left) = self.disbanding.remove(at.expect("it was asked for"));
                assert!(left.is_empty(), "{left:?} are not over");
            }
            other => panic!("{other:?}"),
        }
    }

    fn check(&self) {
        let head_is_gone = |side: &Side| !self.sides.contains_key(&side.party);
        for side in self.sides.values().filter(|side| side.family.is_none()) {
            assert!(side.told || side.begun, "every one that follows has its answer");
            assert!(side.told || !head_is_gone(side), "it follows nobody, and was not told");
        }
        assert!(self.disbanding.iter().all(|(.., left)| !left.is_empty()), "all are over, and the head was not told");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever happens: who follows is told when its head is gone, heads hear when all have left, and nothing is left
    /// in the end.
    #[test]
    fn parties_end_with_their_heads(steps in steps()) {
        let mut process = Process::default();
        steps.iter().for_each(|step| process.step(step));
        while !process.sides.is_empty() {
            process.step(&Step::Over(0));
        }
        prop_assert!(process.parties.is_empty(), "{:?}", process.parties);
        prop_assert!(process.disbanding.is_empty());
    }
}

#[test]
fn a_head_waits_for_what_is_left_of_its_family() {
    let (mut parties, mut words) = (Parties::default(), VecDeque::new());
    let [first, io, second, other, third] = [1, 2, 3, 4, 5].map(member);
    let (mine, theirs) = (name("family", 1), name("family", 2));
    parties.leads(first, name("party", 1), Nexus::clone(&mine), &mut words);
    parties.follows(io, name("party", 1), &mut words);
    parties.leads(second, name("party", 2), Nexus::clone(&mine), &mut words);
    assert_eq!(words, [Word::Begin(first), Word::Begin(io), Word::Begin(second)], "parties that stand do not wait");
    words.clear();
    parties.over(first, &mut words);
    parties.leads(third, name("party", 3), Nexus::clone(&mine), &mut words);
    parties.leads(other, name("party", 4), theirs, &mut words);
    assert_eq!(words, [Word::Leave(io), Word::Begin(other)], "what was asked for on it is under way");
    words.clear();
    parties.follows(member(6), name("party", 3), &mut words);
    assert_eq!(words, [Word::Leave(member(6))], "its head has not begun");
    words.clear();
    parties.over(io, &mut words);
    assert_eq!(words, [Word::Begin(third)]);
}
