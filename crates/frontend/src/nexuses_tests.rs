use super::*;
use crate::members::{Members, Wish};
use proptest::prelude::*;
use std::collections::BTreeSet;

const SHARDS: usize = 3;
const NEXUSES: usize = 2;

/// What a shard says.
enum Said {
    Wanted(Member, Nexus),
    Over(Member),
}

/// One connection.
struct Conn {
    nexus: Nexus,
    begun: bool,
    requests: usize,
    is_closing: bool,
}

/// One shard: its own part of the rule, its connections, and what is on its way from and to it.
#[derive(Default)]
struct Side {
    members: Members<u64>,
    conns: BTreeMap<u64, Conn>,
    /// Requests of connections that are gone: the nexus, and the members' numbers.
    left: Vec<(Nexus, u64)>,
    said: VecDeque<Said>,
    inbox: VecDeque<Word>,
}

struct Process {
    sides: Vec<Side>,
    nexuses: Nexuses,
    conns: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Come(usize, usize),
    /// The client of a connection hangs up, or one that is being closed is closed.
    Go(usize, usize),
    Ask(usize, usize),
    Answer(usize, usize),
    Hear(usize),
    Tell(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let shard = || 0..SHARDS;
    let step = prop_oneof![
        3 => (shard(), 0..NEXUSES).prop_map(|(shard, nexus)| Step::Come(shard, nexus)),
        2 => (shard(), 0..8_usize).prop_map(|(shard, which)| Step::Go(shard, which)),
        4 => (shard(), 0..8_usize).prop_map(|(shard, which)| Step::Ask(shard, which)),
        3 => (shard(), 0..8_usize).prop_map(|(shard, which)| Step::Answer(shard, which)),
        6 => shard().prop_map(Step::Hear),
        6 => shard().prop_map(Step::Tell),
    ];
    prop::collection::vec(step, 0..300)
}

fn nexus(which: usize) -> Nexus {
    format!("nexus {which}").into()
}

fn wants(nexus: &Nexus) -> News {
    News::Wants { nexus: Arc::clone(nexus), unit: "vol1".into() }
}

impl Process {
    fn new() -> Process {
        let sides = (0..SHARDS).map(|_| Side::default()).collect();
        Process { sides, nexuses: Nexuses::default(), conns: 0 }
    }

    fn come(&mut self, shard: usize, nexus: Nexus) {
        self.conns += 1;
        let (conn, side) = (self.conns, &mut self.sides[shard]);
        let came = Conn { nexus: Arc::clone(&nexus), begun: false, requests: 0, is_closing: false };
        side.conns.insert(conn, came);
        let Wish::New(number) = side.members.wanted(conn) else { panic!("it has just come") };
        assert!(matches!(side.members.wanted(conn), Wish::Waits), "it asks once");
        side.said.push_back(Said::Wanted(Member { shard: Shard(shard as u8), number }, nexus));
    }

    fn go(&mut self, shard: usize, conn: u64) {
        let side = &mut self.sides[shard];
        let gone = side.conns.remove(&conn).expect("it is there");
        let number = side.members.number(conn).expect("it has wanted a nexus");
        side.left.extend((0..gone.requests).map(|_| (Arc::clone(&gone.nexus), number)));
        if let Some(number) = side.members.gone(conn, gone.requests) {
            side.said.push_back(Said::Over(Member { shard: Shard(shard as u8), number }));
        }
    }

    fn answer(&mut self, shard: usize, which: usize) {
        let side = &mut self.sides[shard];
        if side.left.is_empty() {
            return;
        }
        let (_, number) = side.left.remove(which % side.left.len());
        if side.members.answered(number) {
            side.said.push_back(Said::Over(Member { shard: Shard(shard as u8), number }));
        }
    }

    fn step(&mut self, step: &Step) {
        let nth = |side: &Side, which: usize| side.conns.keys().nth(which).copied();
        match *step {
            Step::Come(shard, which) => self.come(shard, nexus(which)),
            Step::Go(shard, which) => {
                if let Some(conn) = nth(&self.sides[shard], which) {
                    self.go(shard, conn);
                }
            }
            Step::Ask(shard, which) => {
                let conn = nth(&self.sides[shard], which).and_then(|conn| self.sides[shard].conns.get_mut(&conn));
                if let Some(conn) = conn.filter(|conn| conn.begun && !conn.is_closing) {
                    conn.requests += 1;
                }
            }
            Step::Answer(shard, which) => self.answer(shard, which),
            Step::Hear(shard) => match self.sides[shard].said.pop_front() {
                Some(Said::Wanted(member, nexus)) => self.nexuses.heard(member, wants(&nexus)),
                Some(Said::Over(member)) => self.nexuses.heard(member, News::Over),
                None => {}
            },
            Step::Tell(shard) => self.tell(shard),
        }
        while let Some(word) = self.nexuses.next_word() {
            self.sides[usize::from(word.member().shard.0)].inbox.push_back(word);
        }
        self.check();
    }

    fn tell(&mut self, shard: usize) {
        let side = &mut self.sides[shard];
        match side.inbox.pop_front() {
            Some(Word::Begin(member)) => {
                if let Some(conn) = side.members.begins(member.number) {
                    side.conns.get_mut(&conn).expect("it is there").begun = true;
                }
            }
            Some(Word::End(member)) => {
                if let Some(conn) = side.members.conn(member.number) {
                    side.conns.get_mut(&conn).expect("it is there").is_closing = true;
                }
            }
            Some(Word::Leave(_) | Word::Sweep(..) | Word::Swept(..)) | None => {}
        }
    }

    /// Whoever has a nexus has it alone: nothing of another one can change anything.
    fn check(&self) {
        for which in 0..NEXUSES {
            let nexus = nexus(which);
            let conns = self.sides.iter().flat_map(|side| side.conns.values());
            let has = conns.filter(|conn| conn.nexus == nexus && conn.begun).count();
            let left: BTreeSet<(usize, u64)> = (0..SHARDS)
                .flat_map(|shard| self.sides[shard].left.iter().map(move |left| (shard, left)))
                .filter(|(_, left)| left.0 == nexus)
                .map(|(shard, left)| (shard, left.1))
                .collect();
            assert!(has + left.len() <= 1, "{has} have {nexus}, and requests of {left:?} are under way");
        }
    }

    /// Everything that is on its way arrives, what is to be closed is, and requests are answered.
    fn settle(&mut self) {
        for _ in 0..1000 {
            for shard in 0..SHARDS {
                self.step(&Step::Hear(shard));
                self.step(&Step::Tell(shard));
                self.step(&Step::Answer(shard, 0));
                let side = &self.sides[shard];
                let closing: Vec<u64> =
                    side.conns.iter().filter(|(_, conn)| conn.is_closing).map(|(conn, _)| *conn).collect();
                closing.into_iter().for_each(|conn| self.go(shard, conn));
            }
            let quiet = |side: &Side| side.said.is_empty() && side.inbox.is_empty() && side.left.is_empty();
            if self.sides.iter().all(quiet) {
                return;
            }
        }
        panic!("it does not come to an end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// A nexus is one connection's at a time, whatever the earlier one is in the middle of; and the one whose wish was
    /// heard last of those that are still there has it in the end.
    #[test]
    fn a_nexus_is_one_connections_at_a_time(steps in steps()) {
        let mut process = Process::new();
        steps.iter().for_each(|step| process.step(step));
        process.settle();
        for which in 0..NEXUSES {
            let conns = process.sides.iter().flat_map(|side| side.conns.values());
            let all: Vec<bool> = conns.filter(|conn| conn.nexus == nexus(which)).map(|conn| conn.begun).collect();
            prop_assert!(all.len() <= 1, "{} were not told to end", all.len() - 1);
            prop_assert!(all.iter().all(|begun| *begun), "it waits for ever");
        }
        for shard in 0..SHARDS {
            let conns: Vec<u64> = process.sides[shard].conns.keys().copied().collect();
            conns.into_iter().for_each(|conn| process.go(shard, conn));
        }
        process.settle();
        prop_assert!(process.nexuses.is_empty());
        prop_assert!(process.sides.iter().all(|side| side.members.is_empty()));
    }
}

fn member(shard: u8, number: u64) -> Member {
    Member { shard: Shard(shard), number }
}

fn words(nexuses: &mut Nexuses) -> Vec<Word> {
    std::iter::from_fn(|| nexuses.next_word()).collect()
}

#[test]
fn the_later_one_begins_when_the_earlier_one_is_over() {
    let (mut nexuses, mine) = (Nexuses::default(), nexus(0));
    let [first, second] = [member(0, 1), member(3, 1)];
    nexuses.heard(first, wants(&mine));
    assert_eq!(words(&mut nexuses), [Word::Begin(first)]);
    nexuses.heard(second, wants(&mine));
    assert_eq!(words(&mut nexuses), [Word::End(first)]);
    nexuses.heard(member(1, 7), wants(&nexus(1)));
    assert_eq!(words(&mut nexuses), [Word::Begin(member(1, 7))], "another nexus does not wait");
    nexuses.heard(first, News::Over);
    assert_eq!(words(&mut nexuses), [Word::Begin(second)]);
}

#[test]
fn of_several_that_come_the_last_one_begins() {
    let (mut nexuses, mine) = (Nexuses::default(), nexus(0));
    let [first, second, third] = [member(0, 1), member(1, 1), member(0, 2)];
    [first, second, third].iter().for_each(|member| nexuses.heard(*member, wants(&mine)));
    assert_eq!(words(&mut nexuses), [Word::Begin(first), Word::End(first), Word::End(second)]);
    nexuses.heard(second, News::Over);
    assert!(words(&mut nexuses).is_empty(), "the first one is not over");
    nexuses.heard(first, News::Over);
    assert_eq!(words(&mut nexuses), [Word::Begin(third)]);
    nexuses.heard(third, News::Over);
    assert!(nexuses.is_empty() && words(&mut nexuses).is_empty());
}

#[test]
fn who_was_told_to_end_does_not_begin_again() {
    let (mut nexuses, mine) = (Nexuses::default(), nexus(0));
    let [first, second, third] = [member(0, 1), member(1, 1), member(2, 1)];
    nexuses.heard(first, wants(&mine));
    nexuses.heard(second, wants(&mine));
    nexuses.heard(second, News::Over);
    assert_eq!(words(&mut nexuses), [Word::Begin(first), Word::End(first)], "the second one has given up");
    nexuses.heard(third, wants(&mine));
    assert!(words(&mut nexuses).is_empty(), "told once");
    nexuses.heard(first, News::Over);
    assert_eq!(words(&mut nexuses), [Word::Begin(third)]);
}

#[test]
fn a_sweep_has_ended_when_all_others_of_the_export_have_answered_or_are_over() {
    let mut nexuses = Nexuses::default();
    let [by, beside, gone, elsewhere] = [member(0, 1), member(1, 1), member(1, 2), member(2, 1)];
    for (number, one) in [by, beside, gone].into_iter().enumerate() {
        nexuses.heard(one, wants(&nexus(number)));
    }
    nexuses.heard(elsewhere, News::Wants { nexus: nexus(7), unit: "vol2".into() });
    words(&mut nexuses);
    nexuses.heard(by, News::Sweeps(44, 9));
    assert_eq!(words(&mut nexuses), [Word::Sweep(beside, 1, 9), Word::Sweep(gone, 1, 9)]);
    nexuses.heard(beside, News::Swept(1));
    nexuses.heard(beside, News::Swept(1));
    assert!(words(&mut nexuses).is_empty());
    nexuses.heard(gone, News::Over);
    assert_eq!(words(&mut nexuses), [Word::Swept(by, 44)]);
    nexuses.heard(elsewhere, News::Sweeps(1, 9));
    assert_eq!(words(&mut nexuses), [Word::Swept(elsewhere, 1)], "there is nobody else");
    nexuses.heard(by, News::Sweeps(45, 9));
    nexuses.heard(by, News::Over);
    words(&mut nexuses);
    nexuses.heard(beside, News::Swept(2));
    assert!(words(&mut nexuses).is_empty(), "nobody waits for it");
    [beside, elsewhere].into_iter().for_each(|one| nexuses.heard(one, News::Over));
    assert!(nexuses.is_empty());
}
