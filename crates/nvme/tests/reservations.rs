//! Reservations between hosts of one volume: their commands, and whom they bar.
#![allow(clippy::unwrap_used)]

use crate::support::host::*;
use crate::support::hosts::*;
use azekura_base::VolumeId;
use azekura_frontend::{Protocol, ReservationAnswer, Reservations};
use azekura_model::{RegistrantName, ReservationCommand, ReservationKind, ReservationsRecord};
use azekura_nvme::command::io::{Flags, Io, Range};
use azekura_nvme::command::reservation::{Acquire, Register, Release, Reservation, keys};
use azekura_nvme::pdu::Pdu;
use azekura_nvme::pdu::reader::Received;
use azekura_nvme::{Command, Status};
use std::sync::Arc;

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[test]
fn who_is_not_registered_does_not_write() {
    let mut hosts = Hosts::two();
    assert_eq!([hosts.write(0), hosts.write(1)], [OK; 2]);
    assert_eq!(hosts.send(0, &acquire(Acquire::Acquire, KIND), 0xa, 0), CONFLICT, "without a registration");
    assert_eq!(hosts.send(0, &register(Register::Register, false), 0, 0xa), OK);
    assert_eq!(hosts.send(0, &register(Register::Register, false), 0, 0xa), OK, "again with the same key");
    assert_eq!(hosts.send(0, &register(Register::Register, false), 0, 0xc), CONFLICT, "with another one");
    assert_eq!(hosts.send(0, &acquire(Acquire::Acquire, KIND), 0xa, 0), OK);
    assert_eq!([hosts.write(0), hosts.write(1)], [OK, CONFLICT]);
    assert_eq!(hosts.read(1), OK);
    assert_eq!(hosts.send(1, &register(Register::Register, false), 0, 0xb), OK);
    assert_eq!(hosts.write(1), OK);
    let release = |kind| own(Reservation::Release(Release::Release(kind)));
    assert_eq!(hosts.send(1, &release(KIND), 0xb, 0), OK, "who does not hold it releases nothing");
    assert_eq!(hosts.send(0, &release(ReservationKind::WriteExclusive), 0xa, 0), Status::INVALID_FIELD);
    assert_eq!(hosts.send(0, &release(KIND), 0xd, 0), CONFLICT);
    assert_eq!(hosts.send(0, &release(KIND), 0xa, 0), OK);
    assert_eq!(hosts.send(0, &own(Reservation::Release(Release::Clear)), 0xa, 0), OK);
    assert!(hosts.record.registrants.is_empty() && hosts.record.reservation.is_none());
}

#[test]
fn all_commands_are_barred_as_the_table_says() {
    let mut hosts = Hosts::two();
    assert_eq!(hosts.send(0, &register(Register::Register, false), 0, 0xa), OK);
    let ranges = Range { first: 0, count: 1 }.bytes().to_vec();
    let dsm = |deallocates| Command::Io(Io::DatasetManagement { namespace: 1, ranges: 1, deallocates });
    let all = [
        (Command::Io(Io::Flush { namespace: u32::MAX }), vec![], 0, false),
        (write(0, 512), vec![1; 512], 0, false),
        (Command::Io(Io::WriteZeroes(blocks(0, 512), Flags::default())), vec![], 0, false),
        (dsm(true), ranges.clone(), 0, false),
        (dsm(false), ranges, 0, false),
        (read(0, 512), vec![], 512, true),
        (Command::Io(Io::Verify(blocks(0, 512), Flags::default())), vec![], 0, true),
    ];
    for (kind, may_read) in [(ReservationKind::WriteExclusive, true), (ReservationKind::ExclusiveAccess, false)] {
        assert_eq!(hosts.send(0, &acquire(Acquire::Acquire, kind), 0xa, 0), OK);
        for (command, data, room, is_read) in &all {
            for (who, goes) in [(0, true), (1, may_read && *is_read)] {
                let expected = if goes { OK } else { CONFLICT };
                assert_eq!(hosts.queues[who].ask(command, data.clone(), *room).0.status, expected, "{command:?} {who}");
            }
        }
        assert_eq!(hosts.report(1, 64).0, OK);
        assert_eq!(hosts.send(0, &own(Reservation::Release(Release::Release(kind))), 0xa, 0), OK);
    }
    assert!(hosts.queues.iter().all(|host| host.rooms.is_empty()), "all memory has become requests");
}

#[test]
fn what_is_registered_is_reported() {
    let mut hosts = Hosts::reserved(KIND);
    let iscsi = RegistrantName::Iscsi { initiator: "iqn.a:b".to_owned(), isid: 1, portal_group: 1 };
    hosts.record = hosts.record.carry_out(&iscsi, &ReservationCommand::RegisterIgnoringKey { new: 0xc }, 99).1.unwrap();
    let (status, all) = hosts.report(1, 4096);
    assert_eq!((status, all.len(), all[4], number(&all, 5, 2), all[9]), (OK, 4096, 3, 3, 1));
    let of = |at: usize| (number(&all, at, 2), all[at + 2], number(&all, at + 8, 8));
    assert_eq!([of(64), of(128), of(192)], [(0xffff, 0, 0xc), (0xffff, 1, 0xa), (0xffff, 0, 0xb)]);
    assert_eq!((&all[144..160], &all[208..224]), (&[1; 16][..], &[2; 16][..]));
    assert!(all[256..].iter().all(|byte| *byte == 0));
    for len in [4, 24, 64, 100, 192] {
        assert_eq!(hosts.report(1, len), (OK, all[..len as usize].to_vec()), "as much as there is room for");
    }
    let plain = own(Reservation::Report { len: 64, is_extended: false });
    assert_eq!(hosts.queues[0].ask(&plain, vec![], 64).0.status, Status::HOST_ID_FORMAT, "identifiers of 64 bits");
    assert_eq!(hosts.queues[0].ask(&report(64), vec![], 68).0.status, Status::SGL_LENGTH_INVALID);
    assert_eq!(hosts.queues[0].ask(&report(4 << 32), vec![], 4096).0.status, Status::INVALID_FIELD);
    assert_eq!(hosts.queues[0].ask(&report(64), vec![0; 64], 0).0.status, Status::SGL_TYPE_INVALID);
}

#[test]
fn keys_are_replaced_and_ignored() {
    let mut hosts = Hosts::reserved(KIND);
    let (replace, replace_any) = (register(Register::Replace, false), register(Register::Replace, true));
    assert_eq!(hosts.send(0, &replace, 0xd, 0xe), CONFLICT);
    assert_eq!(hosts.send(0, &replace, 0xa, 0xe), OK);
    assert_eq!(hosts.send(0, &replace_any, 0xd, 0xa), OK);
    assert_eq!(hosts.send(0, &replace_any, 0xd, 0), Status::INVALID_FIELD);
    assert_eq!(hosts.send(1, &register(Register::Unregister, false), 0xd, 0), CONFLICT);
    assert_eq!(hosts.send(1, &register(Register::Unregister, true), 0xd, 0), OK);
    assert_eq!(hosts.send(1, &replace, 0xb, 0xb), CONFLICT, "who is not registered has no key");
    assert_eq!(hosts.send(1, &replace_any, 0, 0xb), OK);
    let persists = |persists| {
        own(Reservation::Register { action: Register::Replace, ignores_key: true, persists: Some(persists) })
    };
    assert_eq!(hosts.send(1, &persists(true), 0, 0xb), OK);
    assert_eq!(hosts.send(1, &persists(false), 0, 0xb), OK, "it stays as it is");
    assert_eq!(hosts.report(1, 64).1[9], 1);
}

#[test]
fn the_keys_may_come_when_they_are_asked_for() {
    let mut hosts = Hosts::two();
    let queue = &mut hosts.queues[0];
    let id = queue.command(&register(Register::Register, false), &[], 16);
    let asked = queue.received();
    let [Received { pdu: Pdu::ReadyToTransfer(r2t), .. }] = asked[..] else { panic!("{asked:?}") };
    queue.transfer(&r2t, &keys(0, 0xa), 16);
    hosts.carry_out(0);
    assert_eq!(hosts.queues[0].completed(id).0.status, OK);
    assert_eq!(hosts.record.registrants.len(), 1);
    let short = hosts.queues[0].ask(&register(Register::Register, false), vec![0; 15], 0).0.status;
    assert_eq!(short, Status::SGL_LENGTH_INVALID);
    let long = hosts.queues[0].ask(&register(Register::Register, false), vec![0; 4097], 0).0.status;
    assert_eq!(long, Status::SGL_LENGTH_INVALID);
    let release = own(Reservation::Release(Release::Clear));
    let id = hosts.queues[0].command(&release, &0xa_u64.to_le_bytes(), 0);
    hosts.carry_out(0);
    assert_eq!(hosts.queues[0].completed(id).0.status, OK, "one key is enough");
    assert!(hosts.record.registrants.is_empty());
}

#[test]
fn a_preempted_host_is_barred_and_its_commands_end() {
    let mut hosts = Hosts::reserved(KIND);
    let victim = &mut hosts.queues[1];
    victim.hold = true;
    let begun = victim.command(&write(0, 512), &[9; 512], 0);
    let reading = victim.command(&read(0, 512), &[], 512);
    victim.has_room = false;
    let waits = victim.command(&write(8, 512), &[9; 512], 0);
    let wants_data = victim.command(&write(16, 64 << 10), &[], 64 << 10);
    assert!(victim.received().is_empty());
    assert_eq!(hosts.send(0, &acquire(Acquire::PreemptAndAbort, KIND), 0xa, 0xb), OK);
    let victim = &mut hosts.queues[1];
    assert!(victim.received().is_empty(), "what is with the front end is waited for");
    victim.let_go();
    victim.has_room = true;
    victim.run();
    let mut ended: Vec<(u16, Status)> = victim.completions().iter().map(|done| (done.command, done.status)).collect();
    ended.sort_unstable_by_key(|(command, _)| *command);
    let expected = [begun, reading, waits, wants_data].map(|id| (id, Status::ABORTED_BY_PREEMPTION));
    assert_eq!(ended, expected);
    assert!(victim.volume[8 * 512..].iter().all(|byte| *byte == 0), "nothing more was given out");
    victim.hold = false;
    assert_eq!([hosts.write(1), hosts.write(0)], [CONFLICT, OK]);
    assert!(hosts.queues.iter().all(|host| host.rooms.is_empty()), "all memory has become requests");
}

/// Whoever takes a reservation of all registrants goes on with what it has under way.
#[test]
fn a_host_does_not_end_its_own_commands() {
    let mut hosts = Hosts::reserved(ReservationKind::ExclusiveAccessAllRegistrants);
    let ids = [0, 1].map(|who| {
        hosts.queues[who].hold = true;
        hosts.queues[who].command(&write(0, 512), &[9; 512], 0)
    });
    assert_eq!(hosts.send(0, &acquire(Acquire::PreemptAndAbort, KIND), 0xa, 0), OK);
    for (who, expected) in [(0, OK), (1, Status::ABORTED_BY_PREEMPTION)] {
        hosts.queues[who].let_go();
        assert_eq!(hosts.queues[who].completed(ids[who]).0.status, expected);
    }
}

#[test]
fn of_a_long_command_no_more_is_sent_when_it_is_barred() {
    let mut hosts = Hosts::two();
    let victim = &mut hosts.queues[1];
    victim.hold = true;
    victim.has_room = false;
    let verify = victim.command(&Command::Io(Io::Verify(blocks(0, 2 << 20), Flags::default())), &[], 0);
    let zero = victim.command(&Command::Io(Io::WriteZeroes(blocks(0, 4096), Flags::default())), &[], 0);
    assert_eq!(hosts.send(0, &register(Register::Register, false), 0, 0xa), OK);
    assert_eq!(hosts.send(0, &acquire(Acquire::Acquire, KIND), 0xa, 0), OK);
    let victim = &mut hosts.queues[1];
    victim.has_room = true;
    victim.run();
    let done = victim.completions();
    assert_eq!(done.iter().map(|one| (one.command, one.status)).collect::<Vec<_>>(), [(zero, CONFLICT)]);
    assert_eq!(victim.held.len(), 2, "reading goes on");
    victim.let_go();
    assert_eq!(victim.completed(verify).0.status, OK);
}

#[test]
fn a_host_is_one_registrant_whatever_controllers_it_has() {
    let mut hosts = Hosts::with(&[[1; 16], [1; 16], [2; 16]]);
    assert_eq!(hosts.send(0, &register(Register::Register, false), 0, 0xa), OK);
    assert_eq!(hosts.send(1, &acquire(Acquire::Acquire, ReservationKind::ExclusiveAccess), 0xa, 0), OK);
    assert_eq!([hosts.write(0), hosts.write(1), hosts.write(2)], [OK, OK, CONFLICT]);
    assert_eq!((hosts.read(2), hosts.record.registrants.len()), (CONFLICT, 1));
}

#[test]
fn a_host_without_an_identifier_registers_nothing() {
    let mut hosts = Hosts::with(&[[0; 16], [1; 16]]);
    assert_eq!(hosts.send(0, &register(Register::Register, false), 0, 0xa), Status::SEQUENCE_ERROR);
    assert_eq!((hosts.commands, hosts.report(0, 64).0, hosts.write(0)), (0, OK, OK));
    assert_eq!(hosts.send(1, &register(Register::Register, false), 0, 0xa), OK);
    assert_eq!(hosts.send(1, &acquire(Acquire::Acquire, KIND), 0xa, 0), OK);
    assert_eq!(hosts.write(0), CONFLICT);
}

#[test]
fn what_can_not_be_found_out_is_no_success() {
    let mut hosts = Hosts::reserved(KIND);
    let mut answered = |answer: ReservationAnswer| {
        let queue = &mut hosts.queues[0];
        let id = queue.command(&own(Reservation::Release(Release::Release(KIND))), &keys(0xa, 0), 0);
        assert!(queue.received().is_empty());
        let (tag, _) = queue.asked.pop_front().unwrap();
        queue.conn.reserved(tag, answer);
        queue.run();
        queue.completed(id).0.status
    };
    let record = ReservationAnswer::Record(Box::new(ReservationsRecord::none(VolumeId(7))));
    let answers = [ReservationAnswer::Later, ReservationAnswer::Failed, record].map(&mut answered);
    assert_eq!(answers, [Status::INTERRUPTED, Status::INTERNAL_ERROR, Status::INTERNAL_ERROR]);
    for host in &mut hosts.queues {
        host.one.reservations.replace(Some(Arc::new(Reservations::closed())));
        host.run();
    }
    assert_eq!([hosts.write(0), hosts.read(0), hosts.write(1)], [CONFLICT; 3], "the record can't be read");
}
