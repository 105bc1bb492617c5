//! Listening sockets and their limits.

#![allow(clippy::unwrap_used)]

use crate::support::{Echo, during, localhost, reactor, until};
use azekura_reactor::{Event, Options, PeerAddress, Reactor};
use std::{
    io::{self, Read},
    net::TcpStream,
    os::unix::net::{UnixListener, UnixStream},
    thread,
    time::Duration,
};

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    let error = reactor.listen_tcp(address).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn a_socket_file_is_replaced_only_when_nobody_listens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut reactor = reactor();
    let other = UnixListener::bind(&path).unwrap();
    assert_eq!(reactor.listen_unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(other);
    let listener = reactor.listen_unix(&path).unwrap();
    let _peer = UnixStream::connect(&path).unwrap();
    let peer = until(&mut reactor, |event| match event {
        Event::Accepted { peer, .. } => Some(*peer),
        _ => None,
    });
    assert_eq!(peer, PeerAddress::Unix);
    reactor.close_listener(listener);
    during(&mut reactor, Duration::from_millis(20));
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert_eq!(reactor.listen_unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    assert!(path.exists(), "somebody's file was removed");
}

#[test]
fn somebody_who_listens_and_accepts_nobody_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _other = UnixListener::bind(&path).unwrap();
    // Those that wait to be accepted are as many as there may be: another one would wait for its place.
    let connect = || {
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.connect(&socket2::SockAddr::unix(&path).unwrap()).map(|()| socket)
    };
    let waiting: Vec<_> = std::iter::from_fn(|| connect().ok()).take(100_000).collect();
    assert!(waiting.len() < 100_000);
    assert_eq!(reactor().listen_unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    assert!(path.exists());
}

#[test]
fn a_closed_listener_accepts_nobody() {
    for basic in [false, true] {
        let mut reactor = Reactor::<Echo>::new(Options { basic, ..Options::default() }).unwrap();
        let listener = reactor.listen_tcp(localhost()).unwrap();
        let address = reactor.local_address(listener).unwrap();
        reactor.close_listener(listener);
        reactor.close_listener(listener);
        during(&mut reactor, Duration::from_millis(10));
        assert!(TcpStream::connect(address).is_err());
        assert_eq!(reactor.local_address(listener), None);
        reactor.listen_tcp(address).unwrap();
    }
}

#[test]
fn connections_over_the_limit_are_closed() {
    let mut reactor = Reactor::<Echo>::new(Options { connections_max: 1, ..Options::default() }).unwrap();
    let listener = reactor.listen_tcp(localhost()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    let _first = TcpStream::connect(address).unwrap();
    let mut second = TcpStream::connect(address).unwrap();
    let closed = thread::spawn(move || second.read(&mut [0]).unwrap() == 0);
    let mut events = Vec::new();
    while !closed.is_finished() {
        reactor.wait(Some(Duration::from_millis(10)), &mut events).unwrap();
    }
    assert!(closed.join().unwrap());
    assert!(matches!(events[..], [Event::Accepted { .. }]), "{events:?}");
    assert!(reactor.connect_tcp(address).is_err());
}
