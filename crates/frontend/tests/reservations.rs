//! Reservations: what clients ask of them, and whom they bar.
#![allow(clippy::unwrap_used)]

use crate::support::Rig;
use azekura_base::{Generation, IoLimits, PgId, SessionId, VolumeId};
use azekura_frontend::{Effect, ReservationAnswer, ReservationRequest, Reservations};
use azekura_model::{RegistrantName, ReservationCommand, ReservationKind, ReservationStatus, ReservationsRecord};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The record of a volume after a host has reserved it.
fn reserved(kind: ReservationKind) -> ReservationsRecord {
    let host = RegistrantName::Nvme { host: 5 };
    let register = ReservationCommand::RegisterNew { new: 7 };
    let one = ReservationsRecord::none(VolumeId(1)).carry_out(&host, &register, 1).1.unwrap();
    one.carry_out(&host, &ReservationCommand::Reserve { key: 7, kind }, 2).1.unwrap()
}

fn know(rig: &mut Rig, of_one: Option<Reservations>) {
    let all: BTreeMap<_, _> = of_one.map(|now| (VolumeId(1), Arc::new(now))).into_iter().collect();
    rig.front(|frontend, cx| frontend.reservations_known(all, cx));
    rig.turn();
}

fn asked(rig: &mut Rig) -> u64 {
    let mut effects = rig.effects();
    effects.retain(|effect| !matches!(effect, Effect::Heeds(..)));
    let [Effect::Reserves(token, name, VolumeId(1), request)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((&**name, &**request), ("vol1", &ReservationRequest::Read));
    *token
}

#[test]
fn an_answer_goes_to_who_has_asked_and_after_what_it_is_of() {
    let mut rig = Rig::new(&["vol1", "vol2"]);
    let conn = rig.open("vol1", 7);
    know(&mut rig, None);
    rig.say(conn, "reservations");
    let token = asked(&mut rig);
    rig.say(conn, "read 0 9");
    rig.answer_all();
    assert_eq!(rig.heard(conn), "data 2 [Zero(9)]\n", "what comes behind it does not wait");
    know(&mut rig, Some(Reservations::of(reserved(ReservationKind::WriteExclusive))));
    let status = ReservationAnswer::Status(ReservationStatus::Conflict);
    rig.front(|frontend, cx| frontend.reserved(token, status, cx));
    assert_eq!(rig.heard(conn), "reserved 1 Status(Conflict), seen Some(2)\n");
    rig.front(|frontend, cx| frontend.reserved(token, ReservationAnswer::Later, cx));
    assert_eq!(rig.heard(conn), "", "an answer is told once");
}

#[test]
fn a_volume_is_not_given_back_while_a_command_may_be_carried_out() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.say(conn, "reservations");
    let token = asked(&mut rig);
    rig.gone(conn);
    assert_eq!(rig.effects(), []);
    rig.front(|frontend, cx| frontend.reserved(token, ReservationAnswer::Later, cx));
    assert_eq!(rig.effects(), [Effect::GiveBack("vol1".into(), Generation(7))]);
}

#[test]
fn who_has_no_name_may_do_what_is_left_to_others() {
    let mut rig = Rig::new(&["vol1", "vol2"]);
    let [conn, elsewhere] = [rig.open("vol1", 7), rig.open("vol2", 8)];
    let heeds = rig.connect_speaking(true);
    rig.say(heeds, "open vol1");
    rig.heard(heeds);
    let tries = |rig: &mut Rig, conn: u32| {
        rig.say(conn, "read 0 4\nwrite 0 abcd");
        rig.answer_all();
        let heard = rig.heard(conn);
        // Refusals come at once: by the number of the request, the read is the first.
        let mut lines: Vec<(&str, bool)> =
            heard.lines().map(|line| (line.split(' ').nth(1).unwrap(), !line.starts_with("failed"))).collect();
        lines.sort_by_key(|(number, _)| number.parse::<u64>().unwrap());
        lines.into_iter().map(|(_, goes)| goes).collect::<Vec<_>>()
    };
    assert_eq!(tries(&mut rig, conn), [true, true], "nothing is known of reservations");
    know(&mut rig, None);
    assert_eq!(tries(&mut rig, conn), [true, true], "there is none");
    know(&mut rig, Some(Reservations::of(reserved(ReservationKind::WriteExclusive))));
    assert_eq!(tries(&mut rig, conn), [true, false]);
    assert_eq!(tries(&mut rig, elsewhere), [true, true], "another volume");
    assert_eq!(tries(&mut rig, heeds), [true, true], "its protocol checks by itself");
    know(&mut rig, Some(Reservations::of(reserved(ReservationKind::ExclusiveAccess))));
    assert_eq!(tries(&mut rig, conn), [false, false]);
    know(&mut rig, Some(Reservations::closed()));
    assert_eq!(tries(&mut rig, conn), [false, false], "the record can't be read");
    know(&mut rig, None);
    assert_eq!(tries(&mut rig, conn), [true, true]);
}

#[test]
fn clients_see_what_is_known_last() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    for (number, now) in [
        (0, None),
        (2, Some(Reservations::of(reserved(ReservationKind::WriteExclusive)))),
        (0, Some(Reservations::closed())),
    ] {
        know(&mut rig, now);
        rig.say(conn, "reservations");
        let token = asked(&mut rig);
        rig.front(|frontend, cx| frontend.reserved(token, ReservationAnswer::Later, cx));
        assert!(rig.heard(conn).ends_with(&format!("seen Some({number})\n")));
    }
}

/// The record of a volume by which a host has lost its rights, and others wait until all heed that.
fn preempted() -> ReservationsRecord {
    let host = RegistrantName::Nvme { host: 6 };
    let kind = ReservationKind::WriteExclusive;
    let two = reserved(kind).carry_out(&host, &ReservationCommand::RegisterNew { new: 8 }, 3).1.unwrap();
    let preempt = ReservationCommand::Preempt { key: 8, victim: 7, kind, abort: false };
    let record = two.carry_out(&host, &preempt, 4).1.unwrap();
    assert_eq!((record.number, record.fence_due), (4, Some(4)));
    record
}

fn heeds(number: u64) -> Vec<Effect<u32>> {
    vec![Effect::Heeds(VolumeId(1), number)]
}

#[test]
fn a_change_is_heeded_when_no_write_from_before_is_under_way() {
    let mut rig = Rig::new(&["vol1", "vol2"]);
    let conn = rig.open("vol1", 7);
    let elsewhere = rig.open("vol2", 8);
    let heeding = rig.connect_speaking(true);
    rig.say(heeding, "open vol1");
    know(&mut rig, None);
    rig.effects();
    rig.say(conn, "write 0 aaaa\nread 0 4");
    rig.say(elsewhere, "write 0 bbbb");
    know(&mut rig, Some(Reservations::of(preempted())));
    assert_eq!(rig.effects(), [], "a write of before is under way");
    // What comes now is by the rights of now: nobody waits for it, nor for reads, nor for other volumes.
    rig.say(heeding, "write 0 cccc");
    let first = *rig.volumes.asked.iter().find(|(_, (name, ..))| name == "vol1").unwrap().0;
    rig.volumes.asked.remove(&first);
    rig.front(|frontend, cx| frontend.complete(first, azekura_gateway::Outcome::Done, cx));
    rig.turn();
    assert_eq!(rig.volumes.asked.len(), 3);
    assert_eq!(rig.effects(), heeds(4));
    know(&mut rig, Some(Reservations::of(preempted())));
    assert_eq!(rig.effects(), [], "once");
}

#[test]
fn writes_that_wait_for_their_turn_and_those_of_clients_that_are_gone_are_waited_for() {
    let mut rig = Rig::new(&["vol1"]);
    let [conn, gone] = [rig.open("vol1", 7), rig.connect()];
    rig.say(gone, "open vol1");
    know(&mut rig, None);
    rig.say(gone, "write 0 aaaa");
    rig.volumes.stuck.insert("vol1".to_owned());
    rig.say(conn, "write 0 bbbb");
    rig.gone(gone);
    rig.effects();
    know(&mut rig, Some(Reservations::of(preempted())));
    assert_eq!((rig.effects(), rig.volumes.asked.len()), (vec![], 1));
    rig.answer_all();
    assert_eq!(rig.effects(), [], "the other one has not had its turn");
    rig.volumes.stuck.clear();
    rig.turn();
    assert_eq!((rig.effects(), rig.volumes.asked.len()), (vec![], 1));
    rig.answer_all();
    assert_eq!(rig.effects(), heeds(4));
}

#[test]
fn a_write_that_others_wait_for_is_not_held_up_by_limits() {
    let mut rig = Rig::new(&["vol1"]);
    let conns: Vec<u32> = (0..3).map(|_| rig.connect_speaking(true)).collect();
    conns.iter().for_each(|conn| rig.say(*conn, "open vol1"));
    rig.attached("vol1", 1, 7);
    rig.limit("vol1", Some(IoLimits { iops: Some(1), bytes_per_second: None, burst_seconds: 0 }));
    know(&mut rig, None);
    rig.effects();
    for conn in &conns {
        rig.say(*conn, "write 0 aaaa\nwrite 0 bbbb\nwrite 0 cccc");
    }
    assert_eq!(rig.volumes.asked.len(), 1, "one is let in, and the others wait for a second each");
    know(&mut rig, Some(Reservations::of(preempted())));
    assert_eq!(rig.volumes.asked.len(), 4, "one of each was asked for before, and those behind it wait");
    rig.answer_all();
    assert_eq!(rig.effects(), heeds(4));
    assert_eq!(rig.volumes.asked.len(), 0);
}

#[test]
fn what_is_not_used_is_heeded_at_once_and_each_fence_once() {
    let mut rig = Rig::new(&["vol1"]);
    know(&mut rig, Some(Reservations::of(reserved(ReservationKind::WriteExclusive))));
    assert_eq!(rig.effects(), heeds(2));
    know(&mut rig, Some(Reservations::of(preempted())));
    assert_eq!(rig.effects(), heeds(4));
    let done = preempted().fenced(4).unwrap();
    know(&mut rig, Some(Reservations::of(done.clone())));
    assert_eq!(rig.effects(), [], "nobody waits any more");
    let host = RegistrantName::Nvme { host: 6 };
    let release = ReservationCommand::Release { key: 8, kind: ReservationKind::WriteExclusive };
    let free = done.carry_out(&host, &release, 5).1.unwrap();
    know(&mut rig, Some(Reservations::of(free)));
    assert_eq!(rig.effects(), heeds(5), "whoever may write again is not refused any more");
}

#[test]
fn what_was_given_up_is_waited_for() {
    let mut rig = Rig::new(&["vol1"]);
    let unsettled = Arc::new(azekura_gateway::Unsettled::default());
    rig.frontend.share(Arc::clone(&unsettled), Arc::default());
    unsettled.given_up(VolumeId(1), PgId(1), SessionId(1));
    know(&mut rig, Some(Reservations::of(preempted())));
    assert_eq!(rig.effects(), []);
    unsettled.settled(VolumeId(1), PgId(1), SessionId(1));
    rig.turn();
    assert_eq!(rig.effects(), heeds(4));
}
