use super::*;
use crate::attaching::Attaching;
use crate::exports::{Export, Opening};
use azekura_base::VolumeId;
use proptest::prelude::*;

const NAME: &str = "vol1";

/// An attachment, by volume and name.
type Name = (VolumeId, Generation);

fn which() -> VolumeUse {
    NAME.into()
}

const SHARDS: usize = 4;
const CLIENTS: u8 = 3;

/// What a shard says.
#[derive(Clone, Debug)]
enum Said {
    Wanted,
    ToWrite,
    Idle(Generation),
    Ended(Generation),
}

/// One shard: its own part of the rule, its clients, and what is on its way from and to it.
#[derive(Default)]
struct Place {
    attaching: Attaching<u8>,
    /// Clients that wait, and those that have opened the volume under an attachment.
    waiting: BTreeSet<u8>,
    open: BTreeMap<u8, Name>,
    requests: Vec<Name>,
    /// Clients that may write.
    writing: BTreeSet<u8>,
    /// The volume of the name as the shard knows it.
    known: u64,
    said: VecDeque<Said>,
    inbox: VecDeque<Errand>,
}

/// A process of several shards, and the volume's record.
struct Process {
    shards: Vec<Place>,
    holders: Holders,
    errands: VecDeque<Errand>,
    id: u64,
    generation: u64,
    /// This process's attachment, as the record has it.
    record: Option<Generation>,
    /// It is to write.
    writes: bool,
    /// Attachments that were given back, or are just being.
    left: BTreeSet<Name>,
}

#[derive(Clone, Debug)]
enum Step {
    Come(usize, u8),
    Go(usize, u8),
    Ask(usize, u8),
    Write(usize, u8),
    Answer(usize),
    /// What a shard has said is heard.
    Hear(usize),
    /// What a shard is told arrives.
    Tell(usize),
    /// The next thing with the record is done, or refused, or refused although it is done.
    Work(u8),
    /// The attachment is taken away.
    Force,
    /// The volume is deleted, and another one has its name.
    Replace,
    /// A shard learns what the configuration says.
    Learn(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let shard = || 0..SHARDS;
    let step = prop_oneof![
        3 => (shard(), 0..CLIENTS).prop_map(|(shard, client)| Step::Come(shard, client)),
        3 => (shard(), 0..CLIENTS).prop_map(|(shard, client)| Step::Go(shard, client)),
        2 => (shard(), 0..CLIENTS).prop_map(|(shard, client)| Step::Ask(shard, client)),
        2 => (shard(), 0..CLIENTS).prop_map(|(shard, client)| Step::Write(shard, client)),
        2 => shard().prop_map(Step::Answer),
        6 => shard().prop_map(Step::Hear),
        6 => shard().prop_map(Step::Tell),
        6 => (0u8..8).prop_map(Step::Work),
        1 => Just(Step::Force),
        1 => Just(Step::Replace),
        2 => shard().prop_map(Step::Learn),
    ];
    prop::collection::vec(step, 0..200)
}

impl Process {
    fn new() -> Process {
        Process {
            shards: (0..SHARDS).map(|_| Place { known: 1, ..Place::default() }).collect(),
            holders: Holders::default(),
            errands: VecDeque::new(),
            id: 1,
            generation: 0,
            record: None,
            writes: false,
            left: BTreeSet::new(),
        }
    }

    fn take_errands(&mut self) {
        while let Some(errand) = self.holders.next_errand() {
            match &errand {
                Errand::Tell(shard, ..) | Errand::TellLeft(shard, _) => {
                    self.shards[usize::from(shard.0)].inbox.push_back(errand);
                }
                Errand::GiveBack(name, attachment) => {
                    // Nobody may use it from here on.
                    let present = self.holders.volumes[name].attachment.expect("there is one");
                    assert_eq!(present.generation, *attachment);
                    self.left.insert((present.volume, present.generation));
                    self.check();
                    self.errands.push_back(errand);
                }
                Errand::Attach(..) | Errand::Linger(_) => self.errands.push_back(errand),
            }
        }
    }

    /// No shard uses what the process has given back, or is told that it may.
    fn check(&self) {
        for shard in &self.shards {
            let used = shard.open.values().chain(&shard.requests);
            assert!(used.clone().all(|attachment| !self.left.contains(attachment)), "given back and used");
            let granted = shard.inbox.iter().filter_map(|errand| match errand {
                Errand::Tell(_, _, Ok(has)) => Some((has.volume, has.generation)),
                _ => None,
            });
            let stands = |name: Name| name.0.0 == self.id && self.record == Some(name.1);
            let may_write = |client: &u8| shard.open.get(client).is_none_or(|name| self.writes || !stands(*name));
            assert!(shard.writing.iter().all(may_write), "written without the process having it to write");
            assert!(granted.clone().all(|attachment| !self.left.contains(&attachment)), "given back and granted");
        }
    }

    fn look(&mut self, shard: usize, client: u8) {
        let place = &mut self.shards[shard];
        let export = Export::new(NAME, VolumeId(place.known), 1 << 30);
        match place.attaching.opening(client, None, export) {
            Opening::Ready(_) => {
                let (attachment, writes) = place.attaching.opened(client, &which()).expect("it is held");
                place.waiting.remove(&client);
                if writes {
                    place.writing.insert(client);
                }
                let known = self.record_of(shard, attachment);
                self.shards[shard].open.insert(client, known);
            }
            Opening::Later(_) => {
                place.waiting.insert(client);
                if place.attaching.want(client, &which(), VolumeId(place.known)) {
                    place.said.push_back(Said::Wanted);
                }
            }
            Opening::Refused(_) => {
                place.attaching.forget_refusal(client);
                place.waiting.remove(&client);
            }
            Opening::Unknown => unreachable!("there is always a volume of the name"),
        }
    }

    fn record_of(&self, shard: usize, attachment: Generation) -> Name {
        (VolumeId(self.shards[shard].known), attachment)
    }

    fn leave_if_unused(&mut self, shard: usize) {
        let place = &mut self.shards[shard];
        if let Some(attachment) = place.attaching.leave(&which()) {
            place.said.push_back(Said::Idle(attachment));
        }
    }

    fn go(&mut self, shard: usize, client: u8) {
        let place = &mut self.shards[shard];
        place.waiting.remove(&client);
        place.open.remove(&client);
        place.writing.remove(&client);
        if !place.attaching.gone(client).is_empty() {
            self.leave_if_unused(shard);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Come(shard, client) => {
                let place = &self.shards[shard];
                if !place.waiting.contains(&client) && !place.open.contains_key(&client) {
                    self.look(shard, client);
                }
            }
            Step::Go(shard, client) => self.go(shard, client),
            Step::Ask(shard, client) => {
                let place = &mut self.shards[shard];
                if let Some(attachment) = place.open.get(&client).copied() {
                    place.attaching.begin(&which(), attachment.1);
                    place.requests.push(attachment);
                }
            }
            Step::Write(shard, client) => {
                let place = &mut self.shards[shard];
                if place.open.contains_key(&client) && !place.writing.contains(&client) {
                    place.said.push_back(Said::ToWrite);
                    self.go(shard, client);
                }
            }
            Step::Answer(shard) => {
                if let Some((_, attachment)) = self.shards[shard].requests.pop() {
                    self.shards[shard].attaching.end(&which(), attachment);
                    self.leave_if_unused(shard);
                }
            }
            Step::Hear(shard) => {
                let from = Shard(shard as u8);
                match self.shards[shard].said.pop_front() {
                    Some(Said::Wanted) => self.holders.wanted(from, &which()),
                    Some(Said::ToWrite) => self.holders.wanted_to_write(&which()),
                    Some(Said::Idle(attachment)) => self.holders.idle(from, &which(), attachment),
                    Some(Said::Ended(attachment)) => self.holders.ended(from, &which(), attachment),
                    None => {}
                }
            }
            Step::Tell(shard) => self.tell(shard),
            Step::Work(how) => self.work(how),
            Step::Force => self.record = None,
            Step::Replace => {
                self.id += 1;
                (self.generation, self.record) = (0, None);
            }
            Step::Learn(shard) => self.learn(shard),
        }
        self.take_errands();
        self.check();
    }

    fn tell(&mut self, shard: usize) {
        let place = &mut self.shards[shard];
        match place.inbox.pop_front() {
            Some(Errand::Tell(_, _, outcome)) => {
                if let Ok(has) = outcome {
                    // The process has the configuration of an attachment before it is told of it.
                    let known = place.known.max(has.volume.0);
                    if known > place.known {
                        self.learn(shard);
                    }
                }
                let place = &mut self.shards[shard];
                let attached = place.attaching.attached(&which(), outcome);
                if attached.again {
                    place.said.push_back(Said::Wanted);
                }
                if let Some(unwanted) = attached.unwanted {
                    place.said.push_back(Said::Idle(unwanted));
                }
                attached.waiting.into_iter().for_each(|client| self.look(shard, client));
                self.leave_if_unused(shard);
            }
            Some(Errand::TellLeft(..)) => {
                let wanted = place.attaching.given_back(&which()).then_some(Said::Wanted);
                place.said.extend(wanted);
            }
            _ => {}
        }
    }

    fn work(&mut self, how: u8) {
        match self.errands.pop_front() {
            Some(Errand::Attach(_, to_write)) => {
                let mut attach = || {
                    if to_write && !self.writes {
                        self.record = None;
                    }
                    let standing = self.record.unwrap_or_else(|| {
                        self.generation += 1;
                        self.writes = how > 4;
                        Generation(self.generation)
                    });
                    self.record = Some(standing);
                    self.writes |= to_write;
                    Attachment { volume: VolumeId(self.id), generation: standing, writes: self.writes }
                };
                let refusal = |attached| Refusal { why: "no".into(), attached };
                let outcome = match how {
                    0 => Err(refusal(None)),
                    1 => Err(refusal(Some(attach()))),
                    _ => Ok(attach()),
                };
                self.holders.attached(&which(), outcome);
            }
            Some(Errand::Linger(_)) => self.holders.has_lingered(&which()),
            Some(Errand::GiveBack(_, attachment)) => {
                self.record = self.record.filter(|standing| *standing != attachment);
                // An attachment takes its name from a generation, and giving back makes one.
                self.generation += 1;
                self.holders.given_back(&which());
            }
            _ => {}
        }
    }

    fn learn(&mut self, shard: usize) {
        let (id, record, latest) = (self.id, self.record, self.generation);
        let place = &mut self.shards[shard];
        place.known = id;
        let is_over = |volume: VolumeId, attachment: Generation| {
            volume.0 == id && attachment.0 <= latest && record != Some(attachment)
        };
        let deleted = place.attaching.take_deleted(|_, volume| volume.0 != id);
        let ended = place.attaching.take_ended(is_over);
        let taken: Vec<_> = deleted.into_iter().chain(ended).collect();
        for (_, attachment, users) in taken {
            let place = &mut self.shards[shard];
            place.said.extend(attachment.map(Said::Ended));
            for client in users {
                let place = &mut self.shards[shard];
                // Those that have opened it are closed, the others look again.
                place.writing.remove(&client);
                if place.open.remove(&client).is_none() {
                    self.look(shard, client);
                }
            }
        }
        // Requests of what has ended are answered.
        let place = &mut self.shards[shard];
        place.requests.retain(|(volume, attachment)| volume.0 == id && record == Some(*attachment));
    }

    /// Everything that is on its way arrives.
    fn settle(&mut self) {
        for _ in 0..1000 {
            (0..SHARDS).for_each(|shard| self.step(&Step::Hear(shard)));
            (0..SHARDS).for_each(|shard| self.step(&Step::Tell(shard)));
            self.step(&Step::Work(7));
            // Last: a shard may have been told of what had ended by then.
            (0..SHARDS).for_each(|shard| self.step(&Step::Learn(shard)));
            let quiet = |place: &Place| place.said.is_empty() && place.inbox.is_empty();
            if self.errands.is_empty() && self.shards.iter().all(quiet) {
                return;
            }
        }
        panic!("it does not come to an end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Nothing is used that was given back; who waits gets an answer; what nobody uses is given back.
    #[test]
    fn attachments_are_held_exactly_while_some_shard_uses_them(steps in steps()) {
        let mut process = Process::new();
        steps.iter().for_each(|step| process.step(step));
        process.settle();
        prop_assert!(process.shards.iter().all(|place| place.waiting.is_empty()), "somebody waits for ever");
        let used = process.shards.iter().any(|place| !place.open.is_empty() || !place.requests.is_empty());
        prop_assert!(used || process.record.is_none(), "nobody uses it, and it was not given back");
        prop_assert_eq!(used, !process.holders.is_empty());
        for shard in 0..SHARDS {
            (0..CLIENTS).for_each(|client| process.step(&Step::Go(shard, client)));
            while !process.shards[shard].requests.is_empty() {
                process.step(&Step::Answer(shard));
            }
        }
        process.settle();
        prop_assert_eq!(process.record, None);
        prop_assert!(process.holders.is_empty());
        prop_assert!(process.shards.iter().all(|place| place.attaching.is_empty()));
    }
}

fn attachment(generation: u64) -> Attachment {
    (VolumeId(1), Generation(generation)).into()
}

fn errands(holders: &mut Holders) -> Vec<Errand> {
    std::iter::from_fn(|| holders.next_errand()).collect()
}

#[test]
fn the_last_shard_gives_back() {
    let mut holders = Holders::default();
    let [one, two] = [Shard(0), Shard(1)];
    let tell = |shard, generation| Errand::Tell(shard, NAME.into(), Ok(attachment(generation)));
    holders.wanted(one, &which());
    holders.wanted(two, &which());
    assert_eq!(errands(&mut holders), [Errand::Attach(NAME.into(), false)], "once for both");
    holders.attached(&which(), Ok(attachment(7)));
    assert_eq!(errands(&mut holders), [tell(one, 7), tell(two, 7)]);
    holders.idle(one, &which(), Generation(7));
    assert_eq!(errands(&mut holders), [Errand::TellLeft(one, which())]);
    holders.idle(two, &which(), Generation(7));
    let given_back = Errand::GiveBack(NAME.into(), Generation(7));
    assert_eq!(errands(&mut holders), [Errand::TellLeft(two, which()), given_back]);
    holders.wanted(one, &which());
    assert!(errands(&mut holders).is_empty(), "one thing at a time");
    holders.given_back(&which());
    assert_eq!(errands(&mut holders), [Errand::Attach(NAME.into(), false)]);
    holders.attached(&which(), Ok(attachment(9)));
    assert_eq!(errands(&mut holders), [tell(one, 9)]);
}

#[test]
fn who_is_refused_takes_nothing_from_those_that_hold() {
    let mut holders = Holders::default();
    holders.wanted(Shard(0), &which());
    holders.attached(&which(), Ok(attachment(7)));
    holders.wanted(Shard(1), &which());
    errands(&mut holders);
    let refusal = Refusal { why: "too late".into(), attached: Some(attachment(7)) };
    holders.attached(&which(), Err(refusal));
    let refusal = Errand::Tell(Shard(1), NAME.into(), Err("too late".into()));
    assert_eq!(errands(&mut holders), [refusal], "the first shard goes on");
    holders.idle(Shard(0), &which(), Generation(7));
    assert!(errands(&mut holders).contains(&Errand::GiveBack(NAME.into(), Generation(7))));
}

#[test]
fn what_has_ended_is_not_given_back() {
    let mut holders = Holders::default();
    holders.wanted(Shard(0), &which());
    holders.attached(&which(), Ok(attachment(7)));
    errands(&mut holders);
    holders.ended(Shard(0), &which(), Generation(7));
    assert!(errands(&mut holders).is_empty() && holders.is_empty());
}

#[test]
fn what_is_attached_to_write_lingers_until_the_host_comes_again() {
    let (mut holders, one) = (Holders::default(), Shard(0));
    let reads = Attachment { writes: false, ..attachment(7) };
    holders.wanted(one, &which());
    holders.attached(&which(), Ok(reads));
    assert_eq!(errands(&mut holders), [Errand::Attach(which(), false), Errand::Tell(one, which(), Ok(reads))]);
    holders.wanted_to_write(&which());
    holders.wanted_to_write(&which());
    assert_eq!(errands(&mut holders), [Errand::Attach(which(), true)]);
    holders.attached(&which(), Ok(attachment(9)));
    assert_eq!(errands(&mut holders), [Errand::Linger(which()), Errand::Attach(which(), true)], "asked since then");
    holders.attached(&which(), Ok(attachment(9)));
    holders.ended(one, &which(), Generation(7));
    assert_eq!(errands(&mut holders), [Errand::Linger(which())], "nobody holds it, and it stays");
    holders.has_lingered(&which());
    holders.wanted(one, &which());
    holders.attached(&which(), Ok(attachment(9)));
    let told = Errand::Tell(one, which(), Ok(attachment(9)));
    assert_eq!(errands(&mut holders), [Errand::Attach(which(), false), told]);
    holders.has_lingered(&which());
    assert!(errands(&mut holders).is_empty());
    holders.idle(one, &which(), Generation(9));
    assert!(errands(&mut holders).contains(&Errand::GiveBack(which(), Generation(9))));
}
