//! Hosts that come through several nodes: one of these carries out what a host writes (decision 0048).
#![allow(clippy::unwrap_used)]

use crate::support::Rig;
use azekura_base::{Generation, VolumeId};
use azekura_frontend::{Admission, Close, Effect, VolumeUse};
use std::sync::Arc;

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

#[test]
fn a_write_where_the_host_reads_ends_the_path_and_is_not_carried_out() {
    let mut rig = rig();
    let (one, two) = (open(&mut rig, HOST, 7, false), open(&mut rig, HOST, 7, false));
    rig.say(one, "read 0 4096");
    assert_eq!(rig.volumes.asked.len(), 1, "reads need nothing more");
    rig.answer_all();
    rig.say(one, "write 0 hello\nread 0 4096");
    assert_eq!(rig.effects(), [Effect::AttachToWrite(of(HOST)), Effect::Close(one, Close::Lingering)]);
    rig.turn();
    assert!(rig.volumes.asked.is_empty());
    rig.gone(one);
    // The attachment is another one now: whoever had the former one comes again.
    rig.volumes.ended.insert((VolumeId(1), Generation(7)));
    rig.frontend.attachments_ended();
    rig.turn();
    let effects = rig.effects();
    assert!(effects.contains(&Effect::Ended(of(HOST), Generation(7))));
    assert!(effects.contains(&Effect::Close(two, Close::Lingering)), "{effects:?}");
    rig.gone(two);
    let again = open(&mut rig, HOST, 9, true);
    rig.say(again, "write 0 hello");
    assert!(rig.effects().is_empty() && rig.volumes.asked.len() == 1);
    rig.answer_all();
    rig.gone(again);
    assert_eq!(rig.effects(), [Effect::GiveBack(of(HOST), Generation(9))]);
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
    assert!(effects.contains(&Effect::Close(one, Close::Lingering)), "{effects:?}");
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

#[test]
fn before_the_configuration_is_known_a_host_has_paths() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.connect();
    rig.say(conn, &format!("call {HOST}"));
    rig.say(conn, "open vol1");
    assert_eq!(rig.effects(), [Effect::Attach(of(HOST))]);
}
