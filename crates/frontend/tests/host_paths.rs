//! Hosts that come through several nodes: one of these carries out what a host writes (decision 0048).
#![allow(clippy::unwrap_used)]

mod support;

use azekura_base::{Generation, VolumeId};
use azekura_frontend::{Admission, Attachment, Close, Effect, VolumeUse};
use std::sync::Arc;
use support::Rig;

const HOST: &str = "iqn.2026-01.example:a";

/// A front end that knows that hosts have paths.
fn rig() -> Rig {
    let mut rig = Rig::new(&["vol1"]);
    let admission = Admission { is_known: true, open: true, host_paths: true, ..Admission::default() };
    rig.front(|frontend, cx| frontend.admit_by(Arc::new(admission), cx));
    rig
}

fn of(host: &str) -> VolumeUse {
    VolumeUse { volume: "vol1".to_owned(), host: host.parse().ok() }
}

/// A client of a host that has opened the volume.
fn open(rig: &mut Rig, host: &str, attachment: u64, writes: bool) -> u32 {
    let conn = rig.connect();
    rig.say(conn, &format!("call {host}"));
    rig.say(conn, "open vol1");
    if rig.effects().contains(&Effect::Attach(of(host))) {
        rig.attached_for(&of(host), 1, attachment, writes);
    }
    assert!(rig.heard(conn).starts_with("opened vol1"));
    conn
}

fn may_write(rig: &mut Rig, attachment: u64) {
    let has = Attachment { volume: VolumeId(1), generation: Generation(attachment), writes: true };
    rig.front(|frontend, cx| frontend.may_write(&of(HOST), Ok(has), cx));
    rig.turn();
}

#[test]
fn the_first_write_waits_until_the_process_may_write_for_the_host() {
    let mut rig = rig();
    let (one, two) = (open(&mut rig, HOST, 7, false), open(&mut rig, HOST, 7, false));
    rig.say(one, "read 0 4096");
    assert_eq!(rig.volumes.asked.len(), 1, "reads need nothing more");
    rig.answer_all();
    rig.say(one, "write 0 hello");
    rig.say(two, "write 0 there");
    assert_eq!(rig.effects(), [Effect::AttachToWrite(of(HOST))], "it is asked once");
    assert!(rig.volumes.asked.is_empty());
    may_write(&mut rig, 7);
    assert_eq!(rig.volumes.asked.len(), 2);
    rig.answer_all();
    rig.say(one, "write 0 again");
    assert!(rig.effects().is_empty() && rig.volumes.asked.len() == 1, "from then on nobody is asked");
    rig.answer_all();
    let three = open(&mut rig, HOST, 7, true);
    rig.say(three, "write 0 third");
    assert_eq!(rig.volumes.asked.len(), 1, "also by who comes later");
}

#[test]
fn where_it_may_not_write_the_host_loses_a_path() {
    let mut rig = rig();
    let (reader, writer) = (open(&mut rig, HOST, 7, false), open(&mut rig, HOST, 7, false));
    rig.say(writer, "write 0 hello");
    assert_eq!(rig.effects(), [Effect::AttachToWrite(of(HOST))]);
    rig.front(|frontend, cx| frontend.may_write(&of(HOST), Err("no group".into()), cx));
    let effects = rig.effects();
    assert!(effects.contains(&Effect::Close(writer, Close::AtOnce)), "{effects:?}");
    assert!(!effects.contains(&Effect::Close(reader, Close::AtOnce)));
    rig.turn();
    assert!(rig.volumes.asked.is_empty(), "the write is not carried out");
    rig.gone(writer);
    // By another attachment nobody has asked.
    rig.say(reader, "write 0 hello");
    assert_eq!(rig.effects(), [Effect::AttachToWrite(of(HOST))]);
    may_write(&mut rig, 9);
    assert!(rig.effects().contains(&Effect::Close(reader, Close::AtOnce)) && rig.volumes.asked.is_empty());
}

#[test]
fn who_has_gone_meanwhile_writes_nothing() {
    let mut rig = rig();
    let (one, two) = (open(&mut rig, HOST, 7, false), open(&mut rig, HOST, 7, false));
    rig.say(one, "write 0 hello");
    assert_eq!(rig.effects(), [Effect::AttachToWrite(of(HOST))]);
    rig.gone(one);
    may_write(&mut rig, 7);
    assert!(rig.volumes.asked.is_empty());
    rig.say(two, "write 0 there");
    assert_eq!(rig.volumes.asked.len(), 1, "who has not asked may write, too");
    rig.answer_all();
    rig.gone(two);
    assert_eq!(rig.effects(), [Effect::GiveBack(of(HOST), Generation(7))]);
}

#[test]
fn a_host_that_writes_elsewhere_now_loses_its_connections_here_at_once() {
    let mut rig = rig();
    let one = open(&mut rig, HOST, 7, true);
    let other = open(&mut rig, "iqn.2026-01.example:b", 8, true);
    rig.say(one, "write 0 hello");
    assert_eq!(rig.volumes.asked.len(), 1);
    rig.volumes.ended.insert((VolumeId(1), Generation(7)));
    rig.frontend.attachments_ended();
    rig.turn();
    let effects = rig.effects();
    assert_eq!(effects[0], Effect::Ended(of(HOST), Generation(7)));
    assert!(effects.contains(&Effect::Close(one, Close::AtOnce)), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Close(conn, _) if *conn == other)));
}

#[test]
fn hosts_and_clients_without_a_name_have_the_volume_each_for_themselves() {
    let mut rig = rig();
    let one = open(&mut rig, HOST, 7, true);
    let plain = rig.connect();
    rig.say(plain, "open vol1");
    assert_eq!(rig.effects(), [Effect::Attach("vol1".into())]);
    rig.attached("vol1", 1, 8);
    rig.gone(one);
    assert_eq!(rig.effects(), [Effect::GiveBack(of(HOST), Generation(7))]);
    rig.gone(plain);
    assert_eq!(rig.effects(), [Effect::GiveBack("vol1".into(), Generation(8))]);
}

#[test]
fn as_long_as_some_node_knows_no_paths_a_host_is_like_any_client() {
    let mut rig = Rig::new(&["vol1"]);
    let admission = Admission { is_known: true, open: true, ..Admission::default() };
    rig.front(|frontend, cx| frontend.admit_by(Arc::new(admission), cx));
    let conn = rig.connect();
    rig.say(conn, &format!("call {HOST}"));
    rig.say(conn, "open vol1");
    assert_eq!(rig.effects(), [Effect::Attach("vol1".into())]);
}
