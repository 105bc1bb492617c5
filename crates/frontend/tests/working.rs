//! Requests that take several steps at the gateway.
#![allow(clippy::unwrap_used)]

use crate::support::Rig;
use azekura_base::{IoLimits, IoStatus};
use azekura_frontend::Effect;
use azekura_gateway::{Op, Outcome, Piece};
use bytes::Bytes;
use std::time::Duration;

/// What is asked of the gateway now, by token.
fn asked(rig: &Rig) -> Vec<(u64, Op)> {
    rig.volumes
        .asked
        .iter()
        .map(|(token, (_, attachment, op))| {
            assert_eq!(attachment.0, 7);
            (*token, op.clone())
        })
        .collect()
}

/// The gateway answers the only thing that is asked, which this says.
fn answer(rig: &mut Rig, outcome: Outcome) -> String {
    let (token, op) = asked(rig).pop().unwrap();
    rig.volumes.asked.remove(&token);
    rig.front(|frontend, cx| frontend.complete(token, outcome, cx));
    rig.turn();
    format!("{op:?}")
}

fn told(op: Op) -> String {
    format!("{op:?}")
}

fn data(text: &'static str) -> Outcome {
    Outcome::Read(vec![Piece::Data(Bytes::from_static(text.as_bytes()))])
}

#[test]
fn a_copy_is_a_read_and_then_a_write_and_has_one_answer() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.say(conn, "copy 0 100 5");
    assert_eq!(answer(&mut rig, data("hello")), told(Op::Read { offset: 0, len: 5 }));
    assert_eq!(rig.heard(conn), "");
    let bytes = Bytes::from_static(b"hello");
    assert_eq!(answer(&mut rig, Outcome::Done), told(Op::Write { offset: 100, bytes }));
    assert_eq!((rig.heard(conn).as_str(), asked(&rig).len()), ("ok 1\n", 0));
    rig.say(conn, "copy 0 100 5");
    answer(&mut rig, Outcome::Read(vec![Piece::Zero(5)]));
    assert_eq!(answer(&mut rig, Outcome::Failed(IoStatus::NoSpace)), told(Op::Zero { offset: 100, len: 5 }));
    assert_eq!(rig.heard(conn), format!("failed 2 {}\n", IoStatus::NoSpace));
}

#[test]
fn what_follows_a_step_waits_for_no_other_event() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.say(conn, "copy 0 100 5\nwait\ncopy 5 105 5");
    let (token, _) = asked(&rig).pop().unwrap();
    rig.volumes.asked.remove(&token);
    rig.front(|frontend, cx| frontend.complete(token, data("hello"), cx));
    assert!(rig.front(azekura_frontend::Frontend::admit), "the gateway has a write, and has to work");
    assert!(!rig.front(azekura_frontend::Frontend::admit));
    assert!(answer(&mut rig, Outcome::Done).starts_with("Write"));
    assert_eq!(rig.heard(conn), "ok 1\n");
    assert_eq!(answer(&mut rig, data("world")), told(Op::Read { offset: 5, len: 5 }), "the next one has come");
}

#[test]
fn bits_are_set_by_comparing_until_nobody_was_faster() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.say(conn, "or 8 ~~~~");
    for (held, outcome) in [("aaaa", Outcome::Failed(IoStatus::Miscompare(0))), ("@@@@", Outcome::Done)] {
        assert_eq!(answer(&mut rig, data(held)), told(Op::Read { offset: 8, len: 4 }));
        let (expected, bytes) = (Bytes::from_static(held.as_bytes()), held.bytes().map(|byte| byte | b'~').collect());
        assert_eq!(answer(&mut rig, outcome), told(Op::CompareAndWrite { offset: 8, expected, bytes }));
    }
    assert_eq!(rig.heard(conn), "ok 1\n");
    rig.say(conn, "or 8 ~~~~");
    answer(&mut rig, data("~~~~"));
    assert_eq!((rig.heard(conn).as_str(), asked(&rig).len()), ("ok 2\n", 0), "nothing changes");
}

#[test]
fn a_client_that_is_gone_has_nothing_more_written() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.say(conn, "copy 0 100 5");
    let (token, _) = asked(&rig).pop().unwrap();
    rig.gone(conn);
    assert_eq!(rig.effects(), [Effect::Orphaned(token)], "the volume is in use as long as the read is under way");
    answer(&mut rig, data("hello"));
    assert_eq!(asked(&rig).len(), 0);
    assert!(matches!(rig.effects()[..], [Effect::GiveBack(..)]));
}

#[test]
fn both_steps_count_for_the_limits_of_a_volume() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.limit("vol1", Some(IoLimits { iops: Some(10), ..IoLimits::default() }));
    rig.say(conn, "copy 0 100 5");
    answer(&mut rig, data("hello"));
    answer(&mut rig, Outcome::Done);
    rig.say(conn, "read 0 5");
    assert_eq!(asked(&rig).len(), 0, "it waits for what the copy has used");
    rig.now += Duration::from_millis(150);
    rig.turn();
    assert_eq!(asked(&rig).len(), 1);
}
