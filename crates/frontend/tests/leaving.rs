//! Clients that stop using a volume, and stay connected.
#![allow(clippy::unwrap_used)]

use crate::support::Rig;
use azekura_base::{Generation, Shard};
use azekura_frontend::{Effect, Member, Nexuses};

fn member(number: u64) -> Member {
    Member { shard: Shard(0), number }
}

#[test]
fn who_leaves_gives_the_volume_back_and_may_come_again() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.say(conn, "write 0 x");
    rig.answer_all();
    rig.effects();
    rig.say(conn, "leave");
    assert_eq!(rig.effects(), [Effect::GiveBack("vol1".into(), Generation(7))]);
    assert!(rig.frontend.opened().is_empty());
    // It comes again before the volume is given back, and then waits for it.
    rig.heard(conn);
    rig.say(conn, "open vol1");
    assert!(rig.effects().is_empty());
    rig.front(|frontend, _| frontend.volume_given_back(&"vol1".into()));
    assert_eq!(rig.effects(), [Effect::Attach("vol1".into())]);
    rig.attached("vol1", 1, 8);
    assert!(rig.heard(conn).contains("opened vol1"));
    rig.say(conn, "write 0 y");
    assert!(rig.volumes.asked.values().all(|(_, attachment, _)| *attachment == Generation(8)));
    rig.answer_all();
    rig.effects();
    rig.gone(conn);
    assert_eq!(rig.effects(), [Effect::GiveBack("vol1".into(), Generation(8))]);
}

#[test]
fn a_volume_stays_while_another_client_uses_it() {
    let mut rig = Rig::new(&["vol1"]);
    let (first, second) = (rig.open("vol1", 7), rig.open("vol1", 7));
    rig.say(first, "leave");
    assert!(rig.effects().is_empty());
    assert_eq!(rig.frontend.opened().len(), 1);
    rig.say(second, "leave");
    assert_eq!(rig.effects(), [Effect::GiveBack("vol1".into(), Generation(7))]);
}

#[test]
fn who_leaves_has_its_nexus_no_more() {
    let mut rig = Rig::new(&["vol1"]);
    let mut nexuses = Nexuses::default();
    // What is said is heard, and answered, until nothing goes on. True when anybody was told to end.
    let mut pass = |rig: &mut Rig| {
        let mut ends = false;
        loop {
            let effects = rig.effects();
            for effect in &effects {
                match effect {
                    Effect::Nexus(number, news) => nexuses.heard(member(*number), news.clone()),
                    Effect::Attach(which) => rig.attached(&which.volume, 1, 7),
                    Effect::GiveBack(which, _) => rig.front(|frontend, _| frontend.volume_given_back(which)),
                    Effect::Close(..) => ends = true,
                    _ => {}
                }
            }
            while let Some(word) = nexuses.next_word() {
                rig.front(|frontend, cx| frontend.told(word, cx));
            }
            if effects.is_empty() {
                return ends;
            }
        }
    };
    let (first, second) = (rig.connect(), rig.connect());
    rig.say(first, "take me vol1");
    assert!(!pass(&mut rig) && rig.heard(first).contains("opened"));
    rig.say(first, "leave");
    pass(&mut rig);
    // Another one comes, and does not end the first, which is not in its way.
    rig.say(second, "take me vol1");
    assert!(!pass(&mut rig) && rig.heard(second).contains("opened"));
    // The first comes again: now it is the later one.
    rig.say(first, "take me vol1");
    assert!(pass(&mut rig));
    rig.gone(second);
    pass(&mut rig);
    assert!(rig.heard(first).contains("opened"));
    rig.gone(first);
    pass(&mut rig);
}

#[test]
#[should_panic(expected = "requests are left")]
fn nobody_leaves_with_requests_under_way() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.say(conn, "write 0 x\nleave");
}
