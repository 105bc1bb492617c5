//! What controllers tell of reservations: that there are any, notifications and their events, and the features of both.
#![allow(clippy::unwrap_used)]

use crate::support::host::*;
use crate::support::hosts::*;
use azekura_base::VolumeId;
use azekura_frontend::Reservations;
use azekura_model::{
    RESERVATION_CHANGES_KEPT, RegistrantName, ReservationCommand, ReservationKind, ReservationsRecord,
};
use azekura_nvme::command::admin::Admin;
use azekura_nvme::command::reservation::{Acquire, Register, Release, Reservation};
use azekura_nvme::pdu::{Digests, Pdu};
use azekura_nvme::{Command, Controllers, Status, identify, log as page};
use std::sync::Arc;

const MASK: u8 = 0x82;
const PERSISTENCE: u8 = 0x83;

#[test]
fn notifications_come_with_an_event_and_are_read_one_by_one() {
    let mut hosts = Hosts::reserved(KIND);
    let event = hosts.admins[1].command(&Command::Admin(Admin::AsynchronousEvent), &[], 0);
    assert!(hosts.admins[1].received().is_empty(), "nothing has happened");
    assert_eq!(hosts.notification(1), (0, 0, 0));
    let change = acquire(Acquire::Preempt, ReservationKind::WriteExclusive);
    assert_eq!(hosts.send(0, &change, 0xa, 0xa), OK, "it is of another kind then");
    let done = hosts.admins[1].completed(event).0;
    assert_eq!((done.status, done.result), (OK, 0x0080_0006));
    let again = hosts.admins[1].command(&Command::Admin(Admin::AsynchronousEvent), &[], 0);
    assert_eq!(hosts.send(0, &acquire(Acquire::Preempt, KIND), 0xa, 0xb), OK);
    assert!(hosts.admins[1].received().is_empty(), "one event until the log is read");
    let retained = Command::Admin(Admin::GetLogPage {
        namespace: 1,
        page: page::RESERVATIONS,
        specific: 0,
        retains_event: true,
        len: 64,
        offset: 0,
    });
    assert_eq!(hosts.admins[1].ask(&retained, vec![], 64).1[8..16], [2, 1, 0, 0, 1, 0, 0, 0]);
    // The event that there is another page comes behind the page.
    let id = hosts.admins[1].command(&log(page::RESERVATIONS, 64, 0), &[], 64);
    let (mut data, mut ended) = (Vec::new(), Vec::new());
    for received in hosts.admins[1].received() {
        match received.pdu {
            Pdu::ControllerData(_) => data = received.data.to_vec(),
            Pdu::Response(entry) => ended.push(u16::from_le_bytes([entry[12], entry[13]])),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((data[8], data[9], data[0], ended), (2, 1, 1, vec![id, again]));
    assert_eq!(hosts.notification(1), (1, 0, 2), "its registration is gone");
    assert_eq!(hosts.notification(1), (0, 0, 0));
    assert_eq!(hosts.notification(0), (0, 0, 0), "who did it knows");
    assert_eq!(hosts.send(1, &register(Register::Register, false), 0, 0xb), OK);
    assert_eq!(hosts.send(0, &own(Reservation::Release(Release::Clear)), 0xa, 0), OK);
    assert_eq!(hosts.notification(1).0, 3);
}

#[test]
fn who_has_missed_changes_hears_that_he_was_preempted() {
    let mut hosts = Hosts::reserved(KIND);
    let other = RegistrantName::Nvme { host: 5 };
    let mut commands = vec![
        ReservationCommand::RegisterNew { new: 0xc },
        ReservationCommand::Preempt { key: 0xc, victim: 0xb, kind: KIND, abort: true },
    ];
    commands.extend((0..=RESERVATION_CHANGES_KEPT).map(|_| ReservationCommand::RegisterIgnoringKey { new: 0xc }));
    for (id, command) in commands.iter().enumerate() {
        hosts.record = hosts.record.carry_out(&other, command, 1000 + id as u64).1.unwrap();
    }
    hosts.tell();
    assert_eq!([hosts.notification(0).0, hosts.notification(1).0], [0, 1]);
}

#[test]
fn features_of_reservations() {
    let mut hosts = Hosts::reserved(KIND);
    let set =
        |feature, namespace, value| Command::Admin(Admin::SetFeatures { namespace, feature, saves: false, value });
    let get = |feature, namespace, select| Command::Admin(Admin::GetFeatures { namespace, feature, select, value: 0 });
    let mut ask = |command: Command| {
        let done = hosts.admins[1].ask(&command, vec![], 0).0;
        (done.status, done.result)
    };
    assert_eq!(ask(get(MASK, 1, 0)), (OK, 0));
    assert_eq!([ask(set(MASK, 1, 0xff)), ask(get(MASK, 1, 0))], [(OK, 0), (OK, 0xe)]);
    assert_eq!([ask(get(MASK, 1, 1)), ask(get(MASK, 1, 3))], [(OK, 0), (OK, 6)]);
    assert_eq!([ask(set(MASK, u32::MAX, 2)), ask(get(MASK, 1, 0))], [(OK, 0), (OK, 2)]);
    assert_eq!([ask(get(PERSISTENCE, 1, 0)), ask(get(PERSISTENCE, 1, 3))], [(OK, 1), (OK, 2)]);
    assert_eq!(ask(set(PERSISTENCE, 1, 1)), (OK, 0));
    assert_eq!(ask(set(PERSISTENCE, 1, 0)).0, Status::NOT_CHANGEABLE);
    for feature in [MASK, PERSISTENCE] {
        assert_eq!(ask(set(feature, 2, 1)).0, Status::INVALID_NAMESPACE);
        assert_eq!(ask(get(feature, u32::MAX, 0)).0, Status::INVALID_NAMESPACE);
        assert_eq!(ask(get(feature, 1, 4)).0, Status::INVALID_FIELD);
    }
    assert_eq!(hosts.send(0, &acquire(Acquire::Preempt, KIND), 0xa, 0xb), OK);
    assert_eq!(hosts.notification(1), (0, 0, 0), "lost registrations are masked");
}

#[test]
fn reservations_are_offered_where_they_are_there() {
    let says = |admin: &mut Host| {
        let controller = admin.ask(&identify(identify::CONTROLLER, 0), vec![], 4096).1;
        let namespace = admin.ask(&identify(identify::NAMESPACE, 1), vec![], 4096).1;
        let independent = admin.ask(&identify(identify::INDEPENDENT_NAMESPACE, 1), vec![], 4096).1;
        let effects = admin.ask(&log(page::EFFECTS, 4096, 0), vec![], 4096).1;
        let pages = admin.ask(&log(page::SUPPORTED, 1024, 0), vec![], 1024).1;
        let commands = [0x0d, 0x0e, 0x11, 0x15].map(|opcode| effects[1024 + opcode * 4]);
        let has_log = admin.ask(&log(page::RESERVATIONS, 64, 0), vec![], 64).0.status == OK;
        ((controller[520] >> 5 & 1, namespace[31], independent[2]), commands, (pages[0x80 * 4], has_log))
    };
    let nothing = ((0, 0, 0), [0; 4], (0, false));
    let all = ((1, 0xff, 0xff), [1; 4], (1, true));
    let controllers = Arc::new(Controllers::new(1));
    let (mut admin, id) = Host::admin(&controllers);
    let mut io = Host::io(&controllers, id, 1, Digests::default());
    assert_eq!(says(&mut admin), nothing);
    for command in [report(64), register(Register::Register, false)] {
        assert_eq!(io.ask(&command, vec![], 64).0.status, Status::INVALID_OPCODE);
    }
    let get = Command::Admin(Admin::GetFeatures { namespace: 1, feature: MASK, select: 0, value: 0 });
    assert_eq!(admin.ask(&get, vec![], 0).0.status, Status::INVALID_FIELD);
    assert_eq!(says(&mut Hosts::two().admins[0]), all);
    // Once the last node has come to know reservations, hosts are told to look again.
    let events = Command::Admin(Admin::SetFeatures { namespace: 0, feature: 0x0b, saves: false, value: 1 << 8 });
    assert_eq!(admin.ask(&events, vec![], 0).0.status, OK);
    let event = admin.command(&Command::Admin(Admin::AsynchronousEvent), &[], 0);
    admin.one.reservations.replace(Some(Arc::new(Reservations::of(ReservationsRecord::none(VolumeId(7))))));
    admin.run();
    assert_eq!(admin.completed(event).0.result, 0x0004_0002);
    assert_eq!(says(&mut admin), all);
    // What nobody can write needs none.
    admin.one.is_read_only.set(true);
    let mut snapshot = Host::new(&controllers, Digests::default());
    snapshot.one.is_read_only.set(true);
    snapshot.one.reservations.replace(Some(Arc::new(Reservations::closed())));
    let controller = snapshot.connect(0, 31, 0xffff, 0, SUBSYSTEM).0.result as u16;
    snapshot.enable();
    assert_eq!(says(&mut snapshot), nothing);
    let mut io = Host::new(&controllers, Digests::default());
    io.one = std::rc::Rc::clone(&snapshot.one);
    assert_eq!(io.connect(1, 31, controller, 0, SUBSYSTEM).0.status, OK);
    assert_eq!(io.ask(&read(0, 512), vec![], 512).0.status, OK);
}

#[test]
fn a_reset_forgets_what_was_to_be_told() {
    let mut hosts = Hosts::reserved(KIND);
    let masks = Command::Admin(Admin::SetFeatures { namespace: 1, feature: MASK, saves: false, value: 8 });
    assert_eq!(hosts.admins[1].ask(&masks, vec![], 0).0.status, OK);
    assert_eq!(hosts.send(0, &acquire(Acquire::Preempt, KIND), 0xa, 0xb), OK);
    assert_eq!(hosts.admins[1].set(azekura_nvme::properties::CC, 0), OK);
    hosts.admins[1].run();
    hosts.admins[1].enable();
    assert_eq!(hosts.notification(1), (0, 0, 0));
    let get = Command::Admin(Admin::GetFeatures { namespace: 1, feature: MASK, select: 0, value: 0 });
    assert_eq!(hosts.admins[1].ask(&get, vec![], 0).0.result, 0);
}
