//! Clients that come again on another connection: what is left of the earlier one ends first.
#![allow(clippy::unwrap_used)]

use crate::support::Rig;
use azekura_base::{Generation, Shard};
use azekura_frontend::{Close, Effect, Member, Nexuses};

fn member(number: u64) -> Member {
    Member { shard: Shard(0), number }
}

/// A front end, and what it asks of the process about nexuses.
struct Process {
    rig: Rig,
    nexuses: Nexuses,
    /// Effects of other kinds.
    others: Vec<Effect<u32>>,
}

impl Process {
    fn new() -> Process {
        Process { rig: Rig::new(&["vol1"]), nexuses: Nexuses::default(), others: Vec::new() }
    }

    /// What the front end says is heard, and it is told what follows, until nothing goes on.
    fn pass(&mut self) {
        loop {
            let effects = self.rig.effects();
            let mut goes_on = !effects.is_empty();
            for effect in effects {
                match effect {
                    Effect::Nexus(number, news) => self.nexuses.heard(member(number), news),
                    Effect::Attach(which) => self.rig.attached(&which.volume, 1, 7),
                    other => self.others.push(other),
                }
            }
            while let Some(word) = self.nexuses.next_word() {
                goes_on = true;
                self.rig.front(|frontend, cx| frontend.told(word, cx));
                self.rig.turn();
            }
            if !goes_on {
                return;
            }
        }
    }

    fn take(&mut self) -> u32 {
        let conn = self.rig.connect();
        self.rig.say(conn, "take me vol1");
        self.pass();
        conn
    }

    fn has_opened(&mut self, conn: u32) -> bool {
        self.rig.heard(conn).contains("opened vol1")
    }

    /// The connections that were to be closed at once.
    fn closed(&mut self) -> Vec<u32> {
        let close = |effect: Effect<u32>| match effect {
            Effect::Close(conn, Close::AtOnce) => Some(conn),
            _ => None,
        };
        std::mem::take(&mut self.others).into_iter().filter_map(close).collect()
    }
}

#[test]
fn the_later_connection_waits_until_the_earlier_ones_writes_have_ended() {
    let mut process = Process::new();
    let first = process.take();
    assert!(process.has_opened(first));
    process.rig.say(first, "write 0 old\nwrite 4096 old");
    assert_eq!(process.rig.volumes.asked.len(), 2);
    let second = process.take();
    assert_eq!(process.closed(), [first]);
    assert!(!process.has_opened(second), "the earlier connection stands");
    process.rig.gone(first);
    process.pass();
    assert!(!process.has_opened(second), "its writes are under way");
    process.rig.answer_all();
    process.pass();
    assert!(process.has_opened(second));
    process.rig.say(second, "write 0 new");
    assert_eq!(process.rig.volumes.asked.len(), 1);
    let orphans = [Effect::Orphaned(0), Effect::Orphaned(1)];
    assert_eq!(process.others, orphans, "the volume was not given back in between");
}

#[test]
fn nothing_of_an_ended_connection_begins() {
    let mut process = Process::new();
    let first = process.take();
    // One write waits for its turn, another one behind it.
    process.rig.volumes.stuck.insert("vol1".into());
    process.rig.say(first, "write 0 old\nwrite 4096 old");
    let second = process.take();
    process.rig.volumes.stuck.clear();
    process.rig.turn();
    process.rig.say(first, "write 8192 old");
    assert!(process.rig.volumes.asked.is_empty(), "{:?}", process.rig.volumes.asked);
    process.rig.gone(first);
    process.pass();
    assert!(process.has_opened(second));
    process.rig.turn();
    assert!(process.rig.volumes.asked.is_empty(), "{:?}", process.rig.volumes.asked);
}

#[test]
fn what_an_ended_connection_sends_before_it_is_closed_is_not_looked_at() {
    let mut process = Process::new();
    let first = process.take();
    let second = process.take();
    process.rig.say(first, "write 0 old");
    assert!(process.rig.volumes.asked.is_empty(), "{:?}", process.rig.volumes.asked);
    process.rig.gone(first);
    process.pass();
    assert!(process.has_opened(second));
}

#[test]
fn who_comes_again_and_again_is_the_last_one() {
    let mut process = Process::new();
    let first = process.take();
    process.rig.say(first, "write 0 old");
    let (second, third) = (process.take(), process.take());
    assert_eq!(process.closed(), [first, second]);
    for conn in [first, second] {
        process.rig.gone(conn);
    }
    process.pass();
    assert!(!process.has_opened(third));
    process.rig.answer_all();
    process.pass();
    assert!(process.has_opened(third));
    process.rig.gone(third);
    process.pass();
    assert!(process.nexuses.is_empty());
    assert!(process.others.contains(&Effect::GiveBack("vol1".into(), Generation(7))));
}

#[test]
fn who_gives_up_waiting_is_forgotten() {
    let mut process = Process::new();
    let first = process.take();
    process.rig.say(first, "write 0 old");
    let second = process.take();
    process.rig.gone(second);
    process.rig.gone(first);
    process.pass();
    process.rig.answer_all();
    process.pass();
    assert!(process.nexuses.is_empty());
    let third = process.take();
    assert!(process.rig.heard(third).is_empty(), "the volume is being given back");
    process.rig.frontend.volume_given_back(&"vol1".into());
    process.pass();
    assert!(process.has_opened(third));
}

#[test]
fn two_names_do_not_wait_for_each_other() {
    let mut process = Process::new();
    let first = process.take();
    process.rig.say(first, "write 0 old");
    let other = process.rig.connect();
    process.rig.say(other, "take you vol1");
    process.pass();
    assert!(process.has_opened(other) && process.closed().is_empty());
}
