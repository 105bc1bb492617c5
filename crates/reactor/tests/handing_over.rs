//! Connections that one reactor accepts and another one serves.

#![allow(clippy::unwrap_used)]

use crate::support::{Echo, accept, during, localhost, reactor, turn, until};
use azekura_reactor::{Close, ConnId, Event, Options, Reactor};
use bytes::Bytes;
use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    thread,
    time::Duration,
};

fn ask(stream: &mut (impl Read + Write), payload: &[u8]) {
    stream.write_all(&(payload.len() as u32).to_le_bytes()).unwrap();
    stream.write_all(payload).unwrap();
}

fn answer(stream: &mut impl Read, payload: &[u8]) {
    let mut answer = vec![0; 4 + payload.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[4..], payload);
}

fn received(reactor: &mut Reactor<Echo>, conn: ConnId) {
    until(reactor, |event| matches!(event, Event::Received { conn: at } if *at == conn).then_some(()));
}

/// Answers what comes on `conn` until the peer has closed it.
fn serve(reactor: &mut Reactor<Echo>, conn: ConnId) {
    loop {
        for event in turn(reactor) {
            match event {
                Event::Received { conn: at } => {
                    assert_eq!(at, conn);
                    reactor.stream(conn).unwrap().echo();
                    reactor.kick(conn);
                }
                Event::Sent { conn: at } => reactor.kick(at),
                Event::Closed { conn: at, .. } => {
                    assert_eq!(at, conn);
                    return;
                }
                event => panic!("unexpected {event:?}"),
            }
        }
    }
}

#[test]
fn a_connection_is_handed_over_with_what_it_has_said() {
    let mut first = reactor();
    let listener = first.listen_tcp(localhost()).unwrap();
    let mut client = TcpStream::connect(first.local_address(listener).unwrap()).unwrap();
    let conn = accept(&mut first, listener);
    ask(&mut client, b"for the second");
    received(&mut first, conn);
    let hello: Bytes = first.stream(conn).unwrap().next().unwrap();
    // It may have been listed for the next wait.
    first.kick(conn);
    let released = first.release(conn).unwrap();
    assert!(first.stream(conn).is_none() && first.release(conn).is_none());
    first.kick(conn);
    first.close(conn, Close::AtOnce);
    let second = thread::spawn(move || {
        let mut second = reactor();
        let conn = second.adopt(released).unwrap();
        let mut stream = Echo::default();
        stream.put(hello);
        assert!(second.install(conn, stream).is_ok());
        serve(&mut second, conn);
    });
    answer(&mut client, b"for the second");
    for number in 0..10_u8 {
        ask(&mut client, &[number; 100_000]);
        answer(&mut client, &[number; 100_000]);
    }
    drop(client);
    second.join().unwrap();
    assert!(during(&mut first, Duration::from_millis(20)).is_empty(), "it has left");
    assert_eq!(first.connections(), 0);
    // Its place is another one's.
    let mut client = TcpStream::connect(first.local_address(listener).unwrap()).unwrap();
    let next = accept(&mut first, listener);
    ask(&mut client, b"again");
    received(&mut first, next);
}

#[test]
fn a_connection_is_handed_over_before_it_has_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let (mut first, mut second) = (reactor(), reactor());
    first.listen_unix(&path).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    ask(&mut client, b"early");
    let conn = until(&mut first, |event| match event {
        Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    });
    let released = first.release(conn).unwrap();
    let conn = second.adopt(released).unwrap();
    assert!(second.install(conn, Echo::default()).is_ok());
    let client = thread::spawn(move || answer(&mut client, b"early"));
    serve(&mut second, conn);
    client.join().unwrap();
}

#[test]
fn what_the_kernel_works_on_stays() {
    let mut first = reactor();
    let listener = first.listen_tcp(localhost()).unwrap();
    let client = TcpStream::connect(first.local_address(listener).unwrap()).unwrap();
    let conn = accept(&mut first, listener);
    during(&mut first, Duration::from_millis(20));
    assert!(first.release(conn).is_none(), "a receive is under way");
    drop(client);
    until(&mut first, |event| matches!(event, Event::Closed { .. }).then_some(()));
    assert!(first.release(conn).is_none(), "it has ended");
}

#[test]
fn there_is_room_for_so_many() {
    let mut first = reactor();
    let mut second = Reactor::<Echo>::new(Options { connections_max: 0, ..Options::default() }).unwrap();
    let listener = first.listen_tcp(localhost()).unwrap();
    let mut client = TcpStream::connect(first.local_address(listener).unwrap()).unwrap();
    let conn = until(&mut first, |event| match event {
        Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    });
    assert!(second.adopt(first.release(conn).unwrap()).is_none());
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "it is closed");
}

#[test]
fn listeners_share_a_port() {
    let (mut first, mut second) = (reactor(), reactor());
    let listener = first.listen_tcp_shared(localhost()).unwrap();
    let address = first.local_address(listener).unwrap();
    second.listen_tcp_shared(address).unwrap();
    assert!(second.listen_tcp(address).is_err(), "this one does not share");
    let clients: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
    let accepted = |reactor: &mut Reactor<Echo>| {
        let events = during(reactor, Duration::from_millis(50));
        let conns = events.iter().filter_map(|event| match event {
            Event::Accepted { conn, .. } => Some(*conn),
            _ => None,
        });
        conns.collect::<BTreeSet<ConnId>>().len()
    };
    let (one, two) = (accepted(&mut first), accepted(&mut second));
    assert_eq!(one + two, clients.len());
    assert!(one > 0 && two > 0, "{one} and {two}");
}
