//! Connections that this side closes.

#![allow(clippy::unwrap_used)]

use crate::support::{Random, accept, during, localhost, reactor, turn, until};
use azekura_reactor::{Close, CloseReason, Event, LINGER_MAX};
use bytes::Bytes;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn close_after_drain_sends_everything_first() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let mut peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    let conn = accept(&mut reactor, listener);
    let bytes = Bytes::from(Random(2).bytes(20 << 20));
    reactor.stream(conn).unwrap().outbox.put_payload(bytes.clone());
    reactor.close(conn, Close::AfterDrain);
    // Whoever closes it again wants nothing else.
    during(&mut reactor, Duration::from_millis(10));
    reactor.close(conn, Close::AfterDrain);
    let reader = thread::spawn(move || {
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        got
    });
    until(&mut reactor, |event| matches!(event, Event::Closed { reason: CloseReason::Local, .. }).then_some(()));
    during(&mut reactor, Duration::from_millis(10));
    assert_eq!(reactor.connections(), 0);
    assert!(reader.join().unwrap() == bytes, "what was sent before the close differs");
}

#[test]
fn a_last_answer_reaches_a_peer_whose_requests_are_not_read() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let mut peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    let conn = accept(&mut reactor, listener);
    let peer = thread::spawn(move || {
        peer.write_all(&vec![0; 16 << 20]).unwrap();
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).unwrap();
        answer
    });
    until(&mut reactor, |event| matches!(event, Event::Received { .. }).then_some(()));
    reactor.stream(conn).unwrap().outbox.put(b"refused");
    reactor.close(conn, Close::AfterDrain);
    assert!(matches!(turn(&mut reactor)[..], [Event::Closed { reason: CloseReason::Local, .. }]));
    assert_eq!(peer.join().unwrap(), b"refused");
}

#[test]
fn a_peer_may_write_until_it_closes_and_hears_nothing_more() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let mut peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    let conn = accept(&mut reactor, listener);
    // What was received and not read would have the socket's end tell the peer at once.
    peer.write_all(&vec![0; 1 << 20]).unwrap();
    reactor.stream(conn).unwrap().outbox.put(b"never sent");
    reactor.close(conn, Close::Lingering);
    reactor.close(conn, Close::Lingering);
    let peer = thread::spawn(move || {
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        // It knows that the other end is shut, and is not killed for what it still has to say.
        peer.write_all(&vec![0; 4 << 20]).unwrap();
        got
    });
    assert!(matches!(turn(&mut reactor)[..], [Event::Closed { reason: CloseReason::Local, .. }]));
    assert_eq!(peer.join().unwrap(), b"");
}

#[test]
fn a_peer_that_never_closes_is_left_after_a_while() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    for how in [Close::AfterDrain, Close::Lingering] {
        let peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
        let conn = accept(&mut reactor, listener);
        reactor.close(conn, how);
        let begin = Instant::now();
        assert!(matches!(turn(&mut reactor)[..], [Event::Closed { reason: CloseReason::Local, .. }]));
        assert!(begin.elapsed() >= LINGER_MAX - Duration::from_millis(10));
        drop(peer);
    }
}

#[test]
fn close_at_once_ends_everything_and_voids_the_id() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    let mut peer = TcpStream::connect(address).unwrap();
    let conn = accept(&mut reactor, listener);
    reactor.stream(conn).unwrap().outbox.put_payload(Bytes::from(vec![3; 32 << 20]));
    reactor.kick(conn);
    during(&mut reactor, Duration::from_millis(10));
    reactor.close(conn, Close::AtOnce);
    reactor.close(conn, Close::AtOnce);
    reactor.kick(conn);
    let events = turn(&mut reactor);
    assert!(matches!(events[..], [Event::Closed { reason: CloseReason::Local, .. }]), "{events:?}");
    during(&mut reactor, Duration::from_millis(10));
    assert_eq!(reactor.connections(), 0);
    let mut rest = Vec::new();
    let _ = peer.read_to_end(&mut rest);
    assert!(rest.len() < 32 << 20);
    let _second = TcpStream::connect(address).unwrap();
    let second = accept(&mut reactor, listener);
    assert_ne!(second, conn);
    assert!(reactor.stream(conn).is_none());
    assert!(reactor.stream(second).is_some());
}
