//! Persistent reservations between sessions of one volume: their commands, whom they bar, and what is told.
#![allow(clippy::unwrap_used)]

use crate::support::{Peer, collect, command, login, read_10, write_10};
use azekura_base::VolumeId;
use azekura_frontend::{Protocol, ReservationAnswer, ReservationRequest, Reservations};
use azekura_iscsi::pdu::initiator::{LoginRequest, ScsiCommand};
use azekura_iscsi::pdu::reader::Pdu;
use azekura_model::{RESERVATION_CHANGES_KEPT, RegistrantName, ReservationCommand, ReservationsRecord};
use std::sync::Arc;

const GOOD: u8 = 0;
const CHECK: u8 = 2;
const BUSY: u8 = 8;
const CONFLICT: u8 = 0x18;
const TEST_UNIT_READY: [u8; 6] = [0; 6];
/// Write exclusive, registrants only.
const KIND: u8 = 5;
const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const PREEMPT_AND_ABORT: u8 = 5;

/// Two sessions, of two ports of one initiator, and the record of their volume.
struct Two {
    peers: [Peer; 2],
    record: ReservationsRecord,
    commands: u64,
}

fn out(action: u8, key: u64, other: u64) -> ([u8; 10], Vec<u8>) {
    let cdb = [0x5f, action, KIND, 0, 0, 0, 0, 0, 24, 0];
    (cdb, [&key.to_be_bytes()[..], &other.to_be_bytes(), &[0; 8]].concat())
}

impl Two {
    fn new() -> Two {
        let record = ReservationsRecord::none(VolumeId(7));
        let offered = Arc::new(Reservations::of(record.clone()));
        let peers = [1, 2].map(|port| {
            let mut peer = Peer::new();
            peer.reservations = Some(Arc::clone(&offered));
            peer.log_in(LoginRequest { isid: [0x80, 0, 0, 0, 0, port], ..login(1, 3) }, &[])
        });
        Two { peers, record, commands: 0 }
    }

    /// Both are told of the record as it is now.
    fn tell(&mut self) {
        let now = Arc::new(Reservations::of(self.record.clone()));
        for peer in &mut self.peers {
            peer.reservations = Some(Arc::clone(&now));
            peer.go_on();
        }
    }

    /// Sends a command, which is carried out and answered when both know the record.
    fn send(&mut self, who: usize, cdb: &[u8], room: u32, data: &[u8]) -> (Vec<u8>, u8, Vec<u8>) {
        let bhs = self.peers[who].command(&command(cdb, room, data.len() as u32, true));
        let mut pdus: Vec<Pdu> = self.peers[who].exchange(bhs, data);
        while let Some((tag, request)) = self.peers[who].asked.pop_front() {
            let answer = match request {
                ReservationRequest::Read => ReservationAnswer::Record(Box::new(self.record.clone())),
                ReservationRequest::Change { from, command } => {
                    self.commands += 1;
                    let (outcome, next) = self.record.carry_out(&from, &command, self.commands);
                    self.record = next.unwrap_or_else(|| self.record.clone());
                    ReservationAnswer::Status(outcome.status)
                }
            };
            self.tell();
            self.peers[who].conn.reserved(tag, answer);
            self.peers[who].go_on();
            pdus.extend(self.peers[who].received());
        }
        collect(&pdus)
    }

    /// The status of a PERSISTENT RESERVE OUT.
    fn out(&mut self, who: usize, action: u8, key: u64, other: u64) -> u8 {
        let (cdb, list) = out(action, key, other);
        self.send(who, &cdb, 0, &list).1
    }

    fn write(&mut self, who: usize) -> (u8, Vec<u8>) {
        let (_, status, sense) = self.send(who, &write_10(0, 1), 0, &[1; 512]);
        (status, sense)
    }

    /// The unit attention that a session has, if it has one.
    fn attention(&mut self, who: usize) -> Option<(u8, u8, u8)> {
        let (_, status, sense) = self.send(who, &TEST_UNIT_READY, 0, &[]);
        (status == CHECK).then(|| (sense[2], sense[12], sense[13]))
    }

    /// Both are registered, with 0xa and 0xb, and the first one holds it.
    fn reserved() -> Two {
        let mut two = Two::new();
        assert_eq!(two.out(0, REGISTER, 0, 0xa), GOOD);
        assert_eq!(two.out(1, REGISTER, 0, 0xb), GOOD);
        assert_eq!(two.out(0, RESERVE, 0xa, 0), GOOD);
        two
    }
}

#[test]
fn who_is_not_registered_does_not_write() {
    let mut two = Two::new();
    assert_eq!([two.write(0).0, two.write(1).0], [GOOD; 2]);
    assert_eq!(two.out(0, RESERVE, 0xa, 0), CONFLICT, "without a registration");
    assert_eq!(two.out(0, REGISTER, 0, 0xa), GOOD);
    assert_eq!(two.out(0, RESERVE, 0xa, 0), GOOD);
    assert_eq!((two.write(0).0, two.write(1).0), (GOOD, CONFLICT));
    assert_eq!(two.send(1, &read_10(0, 1), 512, &[]).1, GOOD);
    assert_eq!(two.attention(1), None, "it can be asked how it is");
    assert_eq!(two.out(1, REGISTER, 0, 0xb), GOOD);
    assert_eq!(two.write(1).0, GOOD);
    assert_eq!(two.out(1, RELEASE, 0xb, 0), GOOD, "who does not hold it releases nothing");
    assert_eq!(two.out(0, RELEASE, 0xa, 0), GOOD);
    assert_eq!(two.attention(1), Some((6, 0x2a, 4)), "RESERVATIONS RELEASED");
    assert_eq!(two.attention(1), None, "once");
    assert_eq!(two.attention(0), None, "who did it knows");
}

#[test]
fn what_is_registered_is_told() {
    let mut two = Two::reserved();
    let (keys, status, _) = two.send(1, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 255, 0], 255, &[]);
    assert_eq!((status, keys.len(), keys[3], keys[15], keys[23]), (GOOD, 24, 2, 0xa, 0xb));
    let cut = two.send(1, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 10, 0], 255, &[]).0;
    assert_eq!(cut, keys[..10], "as much as there is room for");
    let (held, ..) = two.send(1, &[0x5e, 1, 0, 0, 0, 0, 0, 0, 255, 0], 255, &[]);
    assert_eq!((held.len(), held[15], held[21]), (24, 0xa, KIND));
    let (can, ..) = two.send(1, &[0x5e, 2, 0, 0, 0, 0, 0, 0, 255, 0], 255, &[]);
    assert_eq!(can.len(), 8);
    let (full, ..) = two.send(1, &[0x5e, 3, 0, 0, 0, 0, 0, 0, 255, 0], 255, &[]);
    assert_eq!((full[8 + 7], full[8 + 12], full[8 + 13]), (0xa, 1, KIND));
    assert!(full[32..].starts_with(b"\x45\0\0\x28iqn.2000-01.example:me,i,0x800000000001\0"));
}

#[test]
fn a_preempted_session_is_told_and_barred_and_its_commands_end() {
    let mut two = Two::reserved();
    two.peers[1].hold = true;
    let write = two.peers[1].command(&command(&write_10(0, 1), 0, 512, true));
    assert!(two.peers[1].exchange(write, &[9; 512]).is_empty());
    assert_eq!(two.out(0, PREEMPT_AND_ABORT, 0xa, 0xb), GOOD);
    two.peers[1].hold = false;
    two.peers[1].let_go();
    let pdus = two.peers[1].received();
    assert_eq!((pdus.len(), pdus[0].bhs.0[3]), (1, 0x40), "TASK ABORTED");
    let (status, sense) = two.write(1);
    assert_eq!((status, sense[2], sense[12], sense[13]), (CHECK, 6, 0x2a, 5), "REGISTRATIONS PREEMPTED");
    assert_eq!(two.write(1).0, CONFLICT);
    assert_eq!(two.write(0).0, GOOD);
}

#[test]
fn of_a_long_command_no_more_is_sent_when_it_is_barred() {
    let mut two = Two::new();
    two.peers[1].hold = true;
    // VERIFY of two pieces of 1 MiB.
    let mut verify = read_10(0, 4096);
    verify[0] = 0x2f;
    two.peers[1].has_room = false;
    let bhs = two.peers[1].command(&command(&verify, 0, 0, true));
    assert!(two.peers[1].exchange(bhs, &[]).is_empty());
    let zero = command(&[0x93, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0], 0, 0, true);
    let zero = two.peers[1].command(&ScsiCommand { itt: 78, ..zero });
    assert!(two.peers[1].exchange(zero, &[]).is_empty(), "it waits for memory");
    assert_eq!(two.out(0, REGISTER, 0, 0xa), GOOD);
    assert_eq!(two.out(0, RESERVE, 0xa, 0), GOOD);
    two.peers[1].has_room = true;
    two.peers[1].go_on();
    let pdus = two.peers[1].received();
    assert_eq!(pdus.len(), 1, "reading goes on");
    assert_eq!(pdus[0].bhs.0[3], CONFLICT);
    assert_eq!(two.peers[1].held.len(), 2, "nothing was written");
}

#[test]
fn who_has_missed_changes_hears_that_he_was_preempted() {
    let mut two = Two::reserved();
    let (other, kind) = (RegistrantName::Nvme { host: 5 }, azekura_model::ReservationKind::WriteExclusive);
    let mut commands = vec![
        ReservationCommand::RegisterNew { new: 0xc },
        ReservationCommand::Preempt { key: 0xc, victim: 0xb, kind, abort: false },
    ];
    commands.extend((0..=RESERVATION_CHANGES_KEPT).map(|_| ReservationCommand::RegisterIgnoringKey { new: 0xc }));
    for (id, command) in commands.iter().enumerate() {
        two.record = two.record.carry_out(&other, command, 1000 + id as u64).1.unwrap();
    }
    two.tell();
    assert_eq!([two.attention(0), two.attention(1)], [None, Some((6, 0x2a, 5))]);
}

#[test]
fn what_can_not_be_found_out_is_no_good() {
    let mut two = Two::reserved();
    let mut answered = |answer: ReservationAnswer| {
        let (cdb, list) = out(RELEASE, 0xa, 0);
        let bhs = two.peers[0].command(&command(&cdb, 0, 24, true));
        assert!(two.peers[0].exchange(bhs, &list).is_empty());
        let (tag, _) = two.peers[0].asked.pop_front().unwrap();
        two.peers[0].conn.reserved(tag, answer);
        two.peers[0].go_on();
        collect(&two.peers[0].received()).1
    };
    assert_eq!([ReservationAnswer::Later, ReservationAnswer::Failed].map(&mut answered), [BUSY, CHECK]);
    for peer in &mut two.peers {
        peer.reservations = Some(Arc::new(Reservations::closed()));
        peer.go_on();
    }
    assert_eq!([two.write(0).0, two.write(1).0], [CONFLICT; 2], "the record can't be read");
    assert_eq!(two.send(0, &read_10(0, 1), 512, &[]).1, CONFLICT);
}

#[test]
fn commands_are_refused_before_anybody_is_asked() {
    let mut two = Two::new();
    for (action, bytes, expected) in [(9, 24, 0x24), (RESERVE, 23, 0x1a), (0x1f, 24, 0x24)] {
        let (mut cdb, list) = out(action, 0, 0xa);
        cdb[8] = bytes;
        let (_, status, sense) = two.send(0, &cdb, 0, &list);
        assert_eq!((status, sense[2], sense[12]), (CHECK, 5, expected), "{action} {bytes}");
    }
    let (cdb, mut list) = out(REGISTER, 0, 0xa);
    list[20] = 8;
    let (_, status, sense) = two.send(0, &cdb, 0, &list);
    assert_eq!((status, sense[2], sense[12]), (CHECK, 5, 0x26), "SPEC_I_PT");
    assert_eq!(two.send(0, &[0x5e, 4, 0, 0, 0, 0, 0, 0, 8, 0], 8, &[]).1, CHECK);
    assert_eq!(two.commands, 0);
}

#[test]
fn opcodes_are_reported_where_they_are_there() {
    let asks = [0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0];
    let of = |data: &[u8]| data[4..].chunks(8).filter(|one| matches!(one[0], 0x5e | 0x5f)).count();
    let mut without = Peer::logged_in(&[]);
    assert_eq!(of(&without.read(&asks, 1024).0), 0);
    let mut two = Two::new();
    two.peers[0].go_on();
    assert_eq!(of(&two.peers[0].read(&asks, 1024).0), 12);
}
