//! Who has opened what, and when volumes are attached and given back: with a second, tiny protocol, so that nothing of
//! it belongs to NBD.
#![allow(clippy::unwrap_used)]

use crate::support::{Rig, Volumes};
use azekura_base::{Generation, VolumeId};
use azekura_frontend::{Close, Effect, Frontend, HANDSHAKE_MAX};

#[test]
fn the_first_client_attaches_and_the_last_one_gives_back() {
    let mut rig = Rig::new(&["vol1"]);
    let one = rig.connect();
    rig.say(one, "open vol1");
    assert_eq!(rig.effects(), [Effect::Attach("vol1".into())]);
    let two = rig.connect();
    rig.say(two, "open vol1");
    assert!(rig.effects().is_empty(), "it is being attached already");
    assert_eq!(rig.heard(one) + &rig.heard(two), "", "nobody is told before it is");
    rig.attached("vol1", 1, 7);
    assert_eq!(rig.heard(one), rig.heard(two));
    let three = rig.open("vol1", 0);
    rig.gone(one);
    rig.gone(two);
    assert!(rig.effects().is_empty());
    rig.gone(three);
    assert_eq!(rig.effects(), [Effect::GiveBack("vol1".into(), Generation(7))]);
    rig.frontend.volume_given_back(&"vol1".into());
    rig.open("vol1", 8);
}

#[test]
fn a_volume_is_given_back_when_its_last_request_has_ended() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.say(conn, "write 0 hello");
    rig.gone(conn);
    assert!(matches!(rig.effects()[..], [Effect::Orphaned(_)]), "a write is under way, and nobody waits for it");
    rig.answer_all();
    assert_eq!(rig.effects(), [Effect::GiveBack("vol1".into(), Generation(7))]);
}

#[test]
fn who_comes_while_a_volume_is_given_back_waits_and_has_it_attached_again() {
    let mut rig = Rig::new(&["vol1"]);
    let first = rig.open("vol1", 7);
    rig.gone(first);
    assert_eq!(rig.effects(), [Effect::GiveBack("vol1".into(), Generation(7))]);
    let second = rig.connect();
    rig.say(second, "open vol1");
    assert!(rig.effects().is_empty());
    rig.frontend.volume_given_back(&"vol1".into());
    assert_eq!(rig.effects(), [Effect::Attach("vol1".into())]);
    rig.attached("vol1", 1, 8);
    assert!(rig.heard(second).starts_with("opened vol1"));
}

#[test]
fn a_refusal_is_told_and_the_next_wish_is_asked_anew() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.connect();
    rig.say(conn, "open vol1");
    rig.effects();
    rig.front(|frontend, cx| frontend.volume_attached(&"vol1".into(), Err("node n2 has it".into()), cx));
    assert_eq!(rig.heard(conn), "refused: node n2 has it\n");
    rig.say(conn, "open vol1");
    assert_eq!(rig.effects(), [Effect::Attach("vol1".into())]);
    rig.attached("vol1", 1, 9);
    assert!(rig.heard(conn).starts_with("opened vol1"));
}

#[test]
fn an_attachment_of_another_volume_of_the_name_is_not_taken() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.connect();
    rig.say(conn, "open vol1");
    rig.effects();
    rig.attached("vol1", 44, 7);
    assert_eq!(rig.effects(), [Effect::Attach("vol1".into())]);
    assert_eq!(rig.heard(conn), "");
    rig.attached("vol1", 1, 8);
    assert!(rig.heard(conn).starts_with("opened vol1"));
}

#[test]
fn snapshots_are_opened_by_anybody_and_attached_to_nobody() {
    let mut rig = Rig::new(&["vol1", "vol1@monday"]);
    let conn = rig.connect();
    rig.say(conn, "open vol1@monday\nread 0 4096");
    assert!(rig.effects().is_empty());
    let (name, attachment, _) = rig.volumes.asked.values().next().unwrap();
    assert_eq!((name.as_str(), *attachment), ("vol1@monday", Generation::default()));
    rig.gone(conn);
    rig.answer_all();
    assert!(matches!(rig.effects()[..], [Effect::Orphaned(_)]));
}

#[test]
fn what_is_not_known_is_looked_for_before_a_client_hears_that_it_is_not_there() {
    let mut rig = Rig::new(&["vol1"]);
    let (one, two) = (rig.connect(), rig.connect());
    rig.say(one, "open new");
    assert_eq!(rig.effects(), [Effect::ReadConfiguration]);
    rig.say(two, "open other");
    assert!(rig.effects().is_empty(), "the one who came later is looked for later");
    // The configuration had reached revision 5; this node knows it up to 1.
    rig.front(|frontend, cx| frontend.configuration_read(Some(5), cx));
    assert_eq!(rig.heard(one), "");
    rig.volumes.add("new", 2);
    rig.volumes.revision = 5;
    rig.front(azekura_frontend::Frontend::volumes_changed);
    assert_eq!(rig.effects(), [Effect::Attach("new".into()), Effect::ReadConfiguration]);
    rig.front(|frontend, cx| frontend.configuration_read(Some(5), cx));
    assert_eq!(rig.heard(two), "there is no such export\n");
    rig.attached("new", 2, 3);
    assert!(rig.heard(one).starts_with("opened new"));
}

#[test]
fn connections_to_what_is_gone_are_closed_and_who_waits_for_its_name_goes_on_waiting() {
    let mut rig = Rig::new(&["vol1", "vol1@monday"]);
    let (reader, user) = (rig.connect(), rig.open("vol1", 7));
    rig.say(reader, "open vol1@monday");
    rig.volumes.all.remove("vol1@monday");
    rig.volumes.add("vol1", 50);
    rig.front(azekura_frontend::Frontend::volumes_changed);
    rig.turn();
    let closed = |conn| Effect::Close(conn, Close::AfterDrain);
    assert_eq!(rig.effects(), [closed(reader), closed(user), Effect::Ended("vol1".into(), Generation(7))]);
    [reader, user].into_iter().for_each(|conn| rig.gone(conn));
    let waiting = rig.connect();
    rig.say(waiting, "open vol1");
    assert_eq!(rig.effects(), [Effect::Attach("vol1".into())]);
    rig.volumes.add("vol1", 51);
    rig.front(azekura_frontend::Frontend::volumes_changed);
    rig.turn();
    assert!(rig.effects().is_empty());
    rig.attached("vol1", 50, 8);
    assert_eq!(rig.effects(), [Effect::Attach("vol1".into())], "for the one that has the name now");
    rig.attached("vol1", 51, 9);
    assert!(rig.heard(waiting).starts_with("opened vol1"));
}

#[test]
fn no_request_to_what_is_gone_reaches_what_has_its_name() {
    let mut rig = Rig::new(&["vol1"]);
    let before = rig.open("vol1", 7);
    let waiting = rig.open("vol1", 7);
    rig.volumes.stuck.insert("vol1".into());
    rig.say(waiting, "write 0 hello");
    rig.volumes = Volumes { revision: 2, ..Volumes::default() };
    rig.volumes.add("vol1", 2);
    rig.front(Frontend::volumes_changed);
    // These come with the news.
    rig.say(before, "write 0 hello");
    let after = rig.connect();
    rig.say(after, "open vol1");
    assert!(rig.volumes.asked.is_empty());
    let closed = |conn| Effect::Close(conn, Close::AfterDrain);
    let ended = Effect::Ended("vol1".into(), Generation(7));
    assert_eq!(rig.effects(), [closed(before), closed(waiting), ended, Effect::Attach("vol1".into())]);
    rig.attached("vol1", 2, 1);
    assert!(rig.heard(after).starts_with("opened vol1"));
}

#[test]
fn connections_of_an_attachment_that_has_ended_are_closed() {
    let mut rig = Rig::new(&["vol1", "vol2"]);
    let (one, two, other) = (rig.open("vol1", 7), rig.open("vol1", 7), rig.open("vol2", 8));
    rig.volumes.ended.insert((VolumeId(1), Generation(7)));
    rig.turn();
    assert!(rig.effects().is_empty(), "nobody has said that there is news");
    rig.frontend.attachments_ended();
    rig.turn();
    let effects = rig.effects();
    assert_eq!(effects[0], Effect::Ended("vol1".into(), Generation(7)));
    assert!(
        matches!(&effects[1], Effect::Warn(warning) if warning.volume.as_deref() == Some("vol1") && warning.text.contains("2 connections"))
    );
    assert_eq!(effects[2..], [one, two].map(|conn| Effect::Close(conn, Close::AfterDrain)));
    [one, two].into_iter().for_each(|conn| rig.gone(conn));
    assert!(rig.effects().is_empty(), "there is nothing left to give back");
    rig.gone(other);
    assert_eq!(rig.effects(), [Effect::GiveBack("vol2".into(), Generation(8))]);
}

#[test]
fn an_attachment_that_ended_before_it_was_told_of_is_not_used() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.connect();
    rig.say(conn, "open vol1");
    rig.effects();
    rig.volumes.ended.insert((VolumeId(1), Generation(7)));
    rig.frontend.attachments_ended();
    rig.turn();
    rig.attached("vol1", 1, 7);
    let effects = rig.effects();
    assert!(effects.contains(&Effect::Ended("vol1".into(), Generation(7))), "{effects:?}");
    assert!(effects.contains(&Effect::Close(conn, Close::AfterDrain)), "{effects:?}");
    rig.open("vol1", 8);
}

#[test]
fn who_says_nothing_is_closed_and_who_waits_for_this_node_is_not() {
    let mut rig = Rig::new(&["vol1"]);
    let (silent, waits) = (rig.connect(), rig.connect());
    rig.say(waits, "open vol1");
    rig.effects();
    rig.now += HANDSHAKE_MAX;
    let now = rig.now;
    rig.frontend.close_late(now);
    let effects = rig.effects();
    assert!(matches!(&effects[0], Effect::Warn(_)));
    assert_eq!(effects[1..], [Effect::Close(silent, Close::AtOnce)]);
}

#[test]
fn a_name_is_attached_once_at_a_time_and_what_nobody_wants_any_more_is_given_back() {
    let mut rig = Rig::new(&["vol1"]);
    let first = rig.connect();
    rig.say(first, "open vol1");
    assert_eq!(rig.effects(), [Effect::Attach("vol1".into())]);
    // The volume is deleted while it is being attached; another one has its name.
    rig.volumes.all.remove("vol1");
    rig.front(azekura_frontend::Frontend::volumes_changed);
    rig.turn();
    rig.gone(first);
    rig.effects();
    rig.volumes.add("vol1", 2);
    let second = rig.connect();
    rig.say(second, "open vol1");
    assert!(rig.effects().is_empty(), "the first answer has yet to come");
    rig.attached("vol1", 1, 7);
    assert_eq!(rig.effects(), [Effect::Attach("vol1".into())]);
    rig.volumes.all.remove("vol1");
    rig.front(azekura_frontend::Frontend::volumes_changed);
    rig.turn();
    rig.gone(second);
    rig.effects();
    rig.attached("vol1", 2, 8);
    assert_eq!(rig.effects(), [Effect::GiveBack("vol1".into(), Generation(8))]);
}
