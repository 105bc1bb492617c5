//! Task management that reaches other sessions of the logical unit, and the unit attentions that follow (SAM-5 sections
//! 5.14 and 7).
#![allow(clippy::unwrap_used)]

use crate::support::{One, Peer, command, read_10, write_10};
use azekura_frontend::{Event, Protocol};
use azekura_iscsi::pdu::Bhs;
use azekura_iscsi::pdu::initiator::TASK_MANAGEMENT;
use azekura_iscsi::pdu::target::{SCSI_RESPONSE, TASK_MANAGEMENT_RESPONSE};

const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;
const TASK_ABORTED: u8 = 0x40;
const REQUEST_SENSE: [u8; 6] = [0x03, 0, 0, 0, 18, 0];

fn function(function: u8) -> Bhs {
    let mut bhs = Bhs::new(TASK_MANAGEMENT | 0x40);
    bhs.0[1] = 0x80 | function;
    bhs.put_u32(16, 900);
    bhs
}

/// One that ends what others do, and another one.
fn two() -> [Peer; 2] {
    let [mut one, other] = [Peer::logged_in(&[]), Peer::logged_in(&[])];
    one.has_others = true;
    [one, other]
}

/// Sends a function, and tells the other session. Nothing is answered before that is.
fn send(one: &mut Peer, other: &mut Peer, what: u8) -> u64 {
    assert!(one.exchange(function(what), &[]).is_empty(), "the other session has not been heard");
    let (token, why) = one.sweeps.pop().expect("others are told");
    other.conn.sweep(7, why);
    other.run(&One);
    token
}

/// The other session has answered: so is the function.
fn is_answered(one: &mut Peer, token: u64) {
    one.conn.swept(token);
    one.run(&One);
    let pdus = one.received();
    assert_eq!(pdus.len(), 1);
    assert_eq!((pdus[0].bhs.opcode(), pdus[0].bhs.itt(), pdus[0].bhs.0[2]), (TASK_MANAGEMENT_RESPONSE, 900, 0));
}

fn attention(sense: &[u8]) -> (u8, u8, u8) {
    (sense[2], sense[12], sense[13])
}

#[test]
fn a_function_is_answered_when_no_other_session_has_a_task_that_can_land() {
    for (what, says) in
        [(CLEAR_TASK_SET, None), (LOGICAL_UNIT_RESET, Some((6, 0x29, 3))), (TARGET_WARM_RESET, Some((6, 0x29, 3)))]
    {
        let [mut one, mut other] = two();
        other.hold = true;
        let write = other.command(&command(&write_10(0, 1), 0, 512, true));
        assert!(other.exchange(write, &[1; 512]).is_empty());
        let token = send(&mut one, &mut other, what);
        assert!(other.events.is_empty(), "the write may still land");
        other.let_go();
        assert_eq!(other.events.pop(), Some(Event::Swept(7)));
        let pdus = other.received();
        assert_eq!((pdus.len(), pdus[0].bhs.opcode(), pdus[0].bhs.0[3]), (1, SCSI_RESPONSE, TASK_ABORTED));
        is_answered(&mut one, token);
        other.hold = false;
        if let Some(says) = says {
            let (_, status, sense) = other.read(&read_10(0, 1), 512);
            assert_eq!((status, attention(&sense)), (2, says), "{what}");
        }
        assert_eq!(other.read(&read_10(0, 1), 512).1, 0, "once");
    }
}

#[test]
fn request_sense_says_what_is_pending_and_takes_it_away() {
    let [mut one, mut other] = two();
    let token = send(&mut one, &mut other, LOGICAL_UNIT_RESET);
    assert_eq!(other.events.pop(), Some(Event::Swept(7)), "it has nothing to end");
    is_answered(&mut one, token);
    let mut short = REQUEST_SENSE;
    short[1] = 1;
    let (sense, status, _) = other.read(&short, 8);
    assert_eq!((status, &sense[..4]), (0, &[0x72, 6, 0x29, 3][..]), "in descriptors where they are asked for");
    let (sense, status, _) = other.read(&REQUEST_SENSE, 18);
    assert_eq!((status, attention(&sense)), (0, (0, 0, 0)), "once");
    assert_eq!(other.read(&read_10(0, 1), 512).1, 0);
}

#[test]
fn who_had_no_task_is_not_told_that_tasks_were_cleared() {
    let [mut one, mut other] = two();
    let token = send(&mut one, &mut other, CLEAR_TASK_SET);
    assert_eq!(other.events.pop(), Some(Event::Swept(7)));
    is_answered(&mut one, token);
    assert_eq!(other.read(&read_10(0, 1), 512).1, 0);
    assert_eq!(one.read(&read_10(0, 1), 512).1, 0);
}

#[test]
fn several_attentions_are_told_one_after_the_other_and_a_reset_instead_of_those_before() {
    let [mut one, mut other] = two();
    other.hold = true;
    let clear = |one: &mut Peer, other: &mut Peer| {
        let write = other.command(&command(&write_10(0, 1), 0, 512, true));
        assert!(other.exchange(write, &[1; 512]).is_empty());
        let token = send(one, other, CLEAR_TASK_SET);
        other.let_go();
        assert_eq!(other.received().len(), 1);
        is_answered(one, token);
    };
    clear(&mut one, &mut other);
    let token = send(&mut one, &mut other, LOGICAL_UNIT_RESET);
    is_answered(&mut one, token);
    assert_eq!(attention(&other.read(&read_10(0, 1), 512).2), (6, 0x29, 3));
    other.hold = false;
    assert_eq!(other.read(&read_10(0, 1), 512).1, 0);
}

#[test]
fn a_cold_reset_ends_all_sessions() {
    let [mut one, mut other] = two();
    other.hold = true;
    let write = other.command(&command(&write_10(0, 1), 0, 512, true));
    assert!(other.exchange(write, &[1; 512]).is_empty());
    let token = send(&mut one, &mut other, TARGET_COLD_RESET);
    assert!(other.events.is_empty());
    other.let_go();
    assert_eq!(other.events, [Event::Swept(7), Event::Closed]);
    is_answered(&mut one, token);
    assert_eq!(one.events, [Event::Closed]);
}

#[test]
fn who_does_not_take_its_answers_holds_up_nobody() {
    let [mut one, mut other] = two();
    // More answers than are sent without being taken.
    let mut nop = Bhs::new(0x40);
    nop.0[1] = 0x80;
    for _ in 0..2000 {
        nop.put_u32(16, 5);
        nop.put_u32(20, u32::MAX);
        other.send(nop, &[7; 256]);
    }
    let token = send(&mut one, &mut other, LOGICAL_UNIT_RESET);
    assert_eq!(other.events.pop(), Some(Event::Swept(7)));
    is_answered(&mut one, token);
}

#[test]
fn who_is_logging_in_has_nothing_to_end() {
    let mut one = Peer::logged_in(&[]);
    one.has_others = true;
    let mut other = Peer::new();
    let token = send(&mut one, &mut other, LOGICAL_UNIT_RESET);
    assert_eq!(other.events.pop(), Some(Event::Swept(7)));
    is_answered(&mut one, token);
}

/// An initiator asks twice: the first answer says as much as the second, and neither comes before the write can't land
/// any more.
#[test]
fn a_task_that_is_aborted_twice_is_waited_for_twice() {
    let mut peer = Peer::logged_in(&[]);
    peer.hold = true;
    let write = peer.command(&command(&write_10(0, 1), 0, 512, true));
    assert!(peer.exchange(write, &[1; 512]).is_empty());
    let mut abort = function(1);
    abort.put_u32(20, write.itt());
    abort.put_u32(24, peer.cmd_sn);
    abort.put_u32(32, write.cmd_sn());
    for tag in [900, 901] {
        abort.put_u32(16, tag);
        assert!(peer.exchange(abort, &[]).is_empty(), "the write may still land");
    }
    peer.let_go();
    let pdus = peer.received();
    let answers: Vec<_> = pdus.iter().map(|pdu| (pdu.bhs.opcode(), pdu.bhs.itt(), pdu.bhs.0[2])).collect();
    assert_eq!(answers, [900, 901].map(|tag| (TASK_MANAGEMENT_RESPONSE, tag, 0)));
    abort.put_u32(16, 902);
    assert_eq!(peer.exchange(abort, &[])[0].bhs.0[2], 1, "there is no such task");
}
