//! Bytes over real TCP and unix sockets.

#![allow(clippy::unwrap_used)]

use crate::support::{Echo, PATIENCE, Random, accept, during, exchange, localhost, reactor, serve, turn, until};
use azekura_reactor::{
    Close, CloseReason, Event, JUST_IN_TIME_BYTES, Options, PeerAddress, Reactor, SEND_LOW_WATER, SEND_NOW_MAX,
};
use bytes::Bytes;
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

fn echo_tcp(options: Options) {
    let mut reactor = Reactor::new(options).unwrap();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    let clients: Vec<_> = (0..3)
        .map(|seed| {
            thread::spawn(move || {
                let stream = TcpStream::connect(address).unwrap();
                exchange(stream.try_clone().unwrap(), stream, seed);
            })
        })
        .collect();
    serve(&mut reactor, 3);
    clients.into_iter().for_each(|client| client.join().unwrap());
}

#[test]
fn echo_over_tcp() {
    echo_tcp(Options::default());
}

#[test]
fn echo_over_tcp_as_on_an_old_kernel() {
    echo_tcp(Options { basic: true, ..Options::default() });
}

#[test]
fn echo_over_tcp_with_a_queue_of_one_entry_and_spinning() {
    echo_tcp(Options { entries: 1, spin: Duration::from_micros(50), ..Options::default() });
}

#[test]
fn echo_over_unix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut reactor = reactor();
    reactor.listen_unix(&path).unwrap();
    let client = {
        let path = path.clone();
        thread::spawn(move || {
            let stream = UnixStream::connect(path).unwrap();
            exchange(stream.try_clone().unwrap(), stream, 9);
        })
    };
    serve(&mut reactor, 1);
    client.join().unwrap();
    drop(reactor);
    assert!(!path.exists(), "the socket file was left behind");
}

#[test]
fn two_reactors_exchange_large_messages() {
    let mut server = reactor();
    let listener = server.listen_tcp(localhost()).unwrap();
    let address = server.local_address(listener).unwrap();
    let client = thread::spawn(move || {
        let mut reactor = reactor();
        let conn = reactor.connect_tcp(address).unwrap();
        assert!(reactor.install(conn, Echo::default()).is_ok());
        let mut random = Random(4);
        let sent: Vec<Bytes> = (0..8).map(|n| random.bytes((4 << 20) - n).into()).collect();
        let stream = reactor.stream(conn).unwrap();
        sent.iter().for_each(|message| stream.put(message.clone()));
        let mut got = Vec::new();
        let mut connected = false;
        while got.len() < sent.len() {
            for event in turn(&mut reactor) {
                match event {
                    Event::Connected { .. } => connected = true,
                    Event::Received { .. } => got.extend(std::iter::from_fn(|| reactor.stream(conn).unwrap().next())),
                    Event::Sent { .. } => {}
                    event => panic!("unexpected {event:?}"),
                }
                reactor.kick(conn);
            }
        }
        assert!(connected);
        assert!(got == sent, "the echo differs");
    });
    serve(&mut server, 1);
    client.join().unwrap();
}

/// More connections a turn than are sent to without the ring.
#[test]
fn many_connections_at_a_time() {
    const CONNECTIONS: usize = 8 * SEND_NOW_MAX;
    let mut server = reactor();
    let listener = server.listen_tcp(localhost()).unwrap();
    let address = server.local_address(listener).unwrap();
    let client = thread::spawn(move || {
        let mut reactor = reactor();
        let mut random = Random(6);
        let mut expected = std::collections::BTreeMap::new();
        for _ in 0..CONNECTIONS {
            let conn = reactor.connect_tcp(address).unwrap();
            let message = Bytes::from(random.bytes(5000));
            let mut echo = Echo::default();
            echo.put(message.clone());
            assert!(reactor.install(conn, echo).is_ok());
            expected.insert(conn, message);
        }
        while !expected.is_empty() {
            for event in turn(&mut reactor) {
                let Event::Received { conn } = event else { continue };
                let echo = reactor.stream(conn).unwrap();
                if let Some(message) = echo.next() {
                    assert!(message == expected[&conn], "another message came back");
                    if echo.messages < 50 {
                        let next = Bytes::from(random.bytes(5000));
                        echo.put(next.clone());
                        expected.insert(conn, next);
                    } else {
                        expected.remove(&conn);
                    }
                }
                reactor.kick(conn);
            }
        }
    });
    serve(&mut server, CONNECTIONS);
    client.join().unwrap();
}

#[test]
fn thousands_of_pieces_arrive_in_order() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let mut peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    let conn = accept(&mut reactor, listener);
    let bytes = Bytes::from(Random(1).bytes(5000 * 600));
    for at in (0..bytes.len()).step_by(600) {
        reactor.stream(conn).unwrap().outbox.put_payload(bytes.slice(at..at + 600));
    }
    reactor.kick(conn);
    let reader = thread::spawn(move || {
        let mut got = vec![0; 5000 * 600];
        peer.read_exact(&mut got).unwrap();
        got
    });
    while !reader.is_finished() {
        reactor.wait(Some(Duration::from_millis(10)), &mut Vec::new()).unwrap();
    }
    assert!(reader.join().unwrap() == bytes, "the pieces differ");
}

#[test]
fn a_half_closed_peer_counts_as_closed() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let mut peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    let conn = accept(&mut reactor, listener);
    peer.write_all(&[1, 0, 0, 0, 77]).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    until(&mut reactor, |event| matches!(event, Event::Received { .. }).then_some(()));
    assert_eq!(reactor.stream(conn).unwrap().next().unwrap(), Bytes::from_static(&[77]));
    reactor.kick(conn);
    until(&mut reactor, |event| matches!(event, Event::Closed { reason: CloseReason::Eof, .. }).then_some(()));
    assert!(reactor.stream(conn).is_some(), "the stream went before its last event was handled");
    assert!(during(&mut reactor, Duration::from_millis(20)).is_empty());
    assert!(reactor.stream(conn).is_none());
    assert_eq!(reactor.connections(), 0);
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn a_reset_connection_is_an_error() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    accept(&mut reactor, listener);
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    let error = until(&mut reactor, |event| match event {
        Event::Closed { reason: CloseReason::Error(error), .. } => Some(error.kind()),
        _ => None,
    });
    assert_eq!(error, std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_peer_that_goes_while_much_is_being_sent_ends_the_connection_once() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let mut peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    let conn = accept(&mut reactor, listener);
    reactor.stream(conn).unwrap().outbox.put_payload(Bytes::from(vec![1; 64 << 20]));
    reactor.kick(conn);
    assert!(!during(&mut reactor, Duration::from_millis(20)).iter().any(|event| matches!(event, Event::Sent { .. })));
    peer.read_exact(&mut [0; 1000]).unwrap();
    drop(peer);
    until(&mut reactor, |event| matches!(event, Event::Closed { .. }).then_some(()));
    let events = during(&mut reactor, Duration::from_millis(20));
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(reactor.connections(), 0);
}

#[test]
fn a_refused_connection_is_reported() {
    let mut reactor = reactor();
    let address = TcpListener::bind(localhost()).unwrap().local_addr().unwrap();
    let conn = reactor.connect_tcp(address).unwrap();
    assert!(reactor.install(conn, Echo::default()).is_ok());
    let kind = until(&mut reactor, |event| match event {
        Event::ConnectFailed { conn: failed, error } if *failed == conn => Some(error.kind()),
        _ => None,
    });
    assert_eq!(kind, std::io::ErrorKind::ConnectionRefused);
    let folder = tempfile::tempdir().unwrap();
    reactor.connect_unix(&folder.path().join("nobody")).unwrap();
    let kind = until(&mut reactor, |event| match event {
        Event::ConnectFailed { error, .. } => Some(error.kind()),
        _ => None,
    });
    assert_eq!(kind, std::io::ErrorKind::NotFound);
    during(&mut reactor, Duration::from_millis(10));
    assert_eq!(reactor.connections(), 0);
}

#[test]
fn nothing_is_received_while_reading_is_paused() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let mut peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    let conn = accept(&mut reactor, listener);
    reactor.pause_reading(conn);
    reactor.kick(conn);
    peer.write_all(&[1, 0, 0, 0, 7]).unwrap();
    assert!(during(&mut reactor, Duration::from_millis(50)).is_empty());
    // The other direction is not held up.
    reactor.stream(conn).unwrap().outbox.put(&[9]);
    reactor.kick(conn);
    assert!(during(&mut reactor, Duration::from_millis(10)).is_empty());
    peer.read_exact(&mut [0]).unwrap();
}

#[test]
fn reading_goes_on_after_a_pause() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let mut peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    let conn = accept(&mut reactor, listener);
    peer.write_all(&[1, 0, 0, 0, 1]).unwrap();
    until(&mut reactor, |event| matches!(event, Event::Received { .. }).then_some(()));
    assert!(reactor.stream(conn).unwrap().next().is_some());
    reactor.pause_reading(conn);
    reactor.kick(conn);
    peer.write_all(&[1, 0, 0, 0, 2]).unwrap();
    assert!(during(&mut reactor, Duration::from_millis(50)).is_empty());
    reactor.resume_reading(conn);
    until(&mut reactor, |event| matches!(event, Event::Received { .. }).then_some(()));
    assert_eq!(reactor.stream(conn).unwrap().next().unwrap()[0], 2);
}

#[test]
fn nothing_more_is_received_before_a_kick() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let mut peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    let conn = accept(&mut reactor, listener);
    peer.write_all(&[1]).unwrap();
    until(&mut reactor, |event| matches!(event, Event::Received { .. }).then_some(()));
    peer.write_all(&[2]).unwrap();
    assert!(during(&mut reactor, Duration::from_millis(30)).is_empty());
    assert_eq!(reactor.stream(conn).unwrap().inbox.available(), [1]);
    reactor.kick(conn);
    until(&mut reactor, |event| matches!(event, Event::Received { .. }).then_some(()));
    assert_eq!(reactor.stream(conn).unwrap().inbox.available(), [1, 2]);
}

#[test]
fn a_full_outbox_reports_that_it_has_room_again() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let mut peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    let conn = accept(&mut reactor, listener);
    let total = 40 << 20;
    for _ in 0..40 {
        reactor.stream(conn).unwrap().outbox.put_payload(Bytes::from(vec![3; 1 << 20]));
    }
    reactor.kick(conn);
    let reader = thread::spawn(move || {
        let mut got = vec![0; total];
        peer.read_exact(&mut got).unwrap();
        got.iter().all(|byte| *byte == 3)
    });
    until(&mut reactor, |event| matches!(event, Event::Sent { .. }).then_some(()));
    assert!(reactor.stream(conn).unwrap().outbox.len() < SEND_LOW_WATER);
    while !reactor.stream(conn).unwrap().outbox.is_empty() {
        turn(&mut reactor);
    }
    assert!(reader.join().unwrap());
}

#[test]
fn what_is_urgent_passes_what_waits() {
    const PIECE: usize = 10_000;
    const PIECES: usize = 5000;
    let listener = TcpListener::bind(localhost()).unwrap();
    let mut reactor = reactor();
    let conn = reactor.connect_tcp(listener.local_addr().unwrap()).unwrap();
    until(&mut reactor, |event| matches!(event, Event::Connected { .. }).then_some(()));
    let (mut peer, _) = listener.accept().unwrap();
    assert!(reactor.install(conn, Echo::default()).is_ok());
    reactor.send_just_in_time(conn);
    let outbox = &mut reactor.stream(conn).unwrap().outbox;
    let piece = Bytes::from(vec![0u8; PIECE]);
    for _ in 0..PIECES {
        outbox.put_payload(piece.clone());
        outbox.end_frame();
    }
    reactor.kick(conn);
    // The kernel has taken what it takes: the peer does not read.
    let mut unsent = usize::MAX;
    while std::mem::replace(&mut unsent, reactor.unsent_bytes(conn)) != reactor.unsent_bytes(conn) {
        during(&mut reactor, Duration::from_millis(300));
    }
    reactor.stream(conn).unwrap().outbox.put_urgent(&[1]);
    reactor.kick(conn);
    let reader = thread::spawn(move || {
        let mut bytes = vec![0; PIECES * PIECE + 1];
        peer.read_exact(&mut bytes).unwrap();
        bytes.iter().position(|byte| *byte == 1).unwrap()
    });
    let begin = Instant::now();
    while reactor.unsent_bytes(conn) > 0 {
        during(&mut reactor, Duration::from_millis(10));
        assert!(begin.elapsed() < PATIENCE, "it does not go on");
    }
    let (at, taken) = (reader.join().unwrap(), PIECES * PIECE - unsent);
    assert!(unsent > 10 << 20, "too little waits: {unsent}");
    // What had been handed to the kernel, or was about to be, and the way to the next border.
    let most = taken + JUST_IN_TIME_BYTES + (64 << 10) + 2 * PIECE;
    assert!(at <= most, "it is behind {at} bytes, where the kernel had taken {taken}");
}

#[test]
fn a_connection_that_was_never_installed_can_be_closed() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let mut peer = TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    let (conn, from) = until(&mut reactor, |event| match event {
        Event::Accepted { conn, peer, .. } => Some((*conn, *peer)),
        _ => None,
    });
    assert_eq!(from, PeerAddress::Tcp(peer.local_addr().unwrap()));
    reactor.close(conn, Close::AfterDrain);
    assert!(matches!(turn(&mut reactor)[..], [Event::Closed { reason: CloseReason::Local, .. }]));
    assert!(reactor.install(conn, Echo::default()).is_err());
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_connect_under_way_can_be_closed() {
    let mut reactor = reactor();
    // A listener whose queue is full answers nobody.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&localhost().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let _first = TcpStream::connect(address).unwrap();
    let conn = reactor.connect_tcp(address).unwrap();
    assert!(during(&mut reactor, Duration::from_millis(20)).is_empty());
    reactor.close(conn, Close::AtOnce);
    assert!(matches!(turn(&mut reactor)[..], [Event::Closed { reason: CloseReason::Local, .. }]));
    during(&mut reactor, Duration::from_millis(20));
    assert_eq!(reactor.connections(), 0);
}

#[test]
fn dropping_a_reactor_with_everything_in_flight_is_safe() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    let peers: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut conns = Vec::new();
    while conns.len() < peers.len() {
        conns.extend(turn(&mut reactor).iter().map(|event| match event {
            Event::Accepted { conn, .. } => *conn,
            event => panic!("unexpected {event:?}"),
        }));
    }
    for conn in conns {
        assert!(reactor.install(conn, Echo::default()).is_ok());
        reactor.stream(conn).unwrap().outbox.put_payload(Bytes::from(vec![3; 8 << 20]));
        reactor.kick(conn);
    }
    let folder = tempfile::tempdir().unwrap();
    let options = azekura_reactor::DeviceOptions { create: true, size: Some(64 << 20) };
    let device = reactor.open_device(&folder.path().join("device"), options).unwrap();
    reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
    for n in 0..300 {
        reactor.write(device, n << 12, vec![azekura_base::PageBuf::zeroed(4096).freeze()], true, n);
    }
    reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
    reactor.read(device, 0, 1 << 20, 0);
    drop(reactor);
    for mut peer in peers {
        let mut rest = Vec::new();
        let _ = peer.read_to_end(&mut rest);
    }
}
