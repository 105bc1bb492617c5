//! Reservations: what clients ask of them, and whom they bar.
#![allow(clippy::unwrap_used)]

mod support;

use azekura_base::{Generation, VolumeId};
use azekura_frontend::{Effect, ReservationAnswer, ReservationRequest, Reservations};
use azekura_model::{RegistrantName, ReservationCommand, ReservationKind, ReservationStatus, ReservationsRecord};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::Rig;

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
    let effects = rig.effects();
    let [Effect::Reserves(token, name, VolumeId(1), ReservationRequest::Read)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(&**name, "vol1");
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
    assert_eq!(rig.effects(), [Effect::GiveBack("vol1".to_owned(), Generation(7))]);
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
