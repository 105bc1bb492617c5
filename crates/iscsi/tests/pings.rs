//! Initiators that say nothing.
#![allow(clippy::unwrap_used)]

use crate::support::{Peer, read_10};
use azekura_frontend::Protocol;
use azekura_iscsi::PING_PERIOD;
use azekura_iscsi::pdu::initiator::NOP_OUT;
use azekura_iscsi::pdu::target::NOP_IN;
use azekura_iscsi::pdu::{Bhs, NO_TAG};

/// A period is over; gives the ping's tag, where there is one, or `None` when the session is over.
fn look(peer: &mut Peer) -> Option<Vec<u32>> {
    let lives = peer.conn.was_heard();
    peer.go_on();
    let pings = peer.received();
    for ping in &pings {
        assert_eq!((ping.bhs.opcode(), ping.bhs.itt(), ping.bhs.0[1], ping.data.len()), (NOP_IN, NO_TAG, 0x80, 0));
    }
    lives.then(|| pings.iter().map(|ping| ping.bhs.u32(20)).collect())
}

#[test]
fn a_silent_initiator_is_asked_and_then_given_up() {
    let mut peer = Peer::logged_in(&[]);
    assert_eq!(peer.patience, Some(PING_PERIOD));
    assert_eq!(look(&mut peer), Some(vec![]), "it has just logged in");
    let tags = look(&mut peer).unwrap();
    assert_eq!(tags.len(), 1);
    // Its answer has no task and is immediate.
    let mut answer = Bhs::new(NOP_OUT | 0x40);
    answer.0[1] = 0x80;
    answer.put_u32(16, NO_TAG);
    answer.put_u32(20, tags[0]);
    assert!(peer.exchange(answer, &[]).is_empty());
    assert_eq!(look(&mut peer), Some(vec![]));
    assert_eq!(peer.read(&read_10(0, 1), 512).1, 0, "the numbers of commands and statuses are as before");
    assert_eq!(look(&mut peer), Some(vec![]));
    let asked: Vec<usize> = (0..2).map(|_| look(&mut peer).unwrap().len()).collect();
    assert_eq!(asked, [1, 1]);
    assert_eq!(look(&mut peer), None);
}

#[test]
fn who_has_not_been_listened_to_is_not_blamed() {
    let mut peer = Peer::logged_in(&[]);
    peer.has_room = false;
    // A command whose data waits for memory: nothing more is read.
    let write = crate::support::command(&crate::support::write_10(0, 1), 0, 512, true);
    let bhs = peer.command(&write);
    assert!(peer.exchange(bhs, &[1; 512]).is_empty());
    for _ in 0..5 {
        assert_eq!(look(&mut peer), Some(vec![]));
    }
    peer.has_room = true;
    peer.go_on();
    assert_eq!(peer.received().len(), 1);
}

#[test]
fn a_discovery_is_pinged_too() {
    let mut peer = Peer::new();
    let keys = [("InitiatorName", "iqn.2000-01.example:me"), ("SessionType", "Discovery")];
    let pdus = peer.exchange(crate::support::login(1, 3).bhs(), &crate::support::text(&keys));
    assert_eq!(pdus.len(), 1);
    assert_eq!(peer.patience, Some(PING_PERIOD));
}
