//! Accepting without file descriptors. A program of its own, for it lowers the limit of the whole process.

#![allow(clippy::unwrap_used)]

mod support;

use azekura_reactor::Event;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    fs::File,
    net::{SocketAddr, TcpStream},
    time::Duration,
};
use support::{PATIENCE, reactor, until};

#[test]
fn accepting_goes_on_when_descriptors_are_to_be_had_again() {
    let mut reactor = reactor();
    let listener = reactor.listen_tcp(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = reactor.local_address(listener).unwrap();
    let first = TcpStream::connect(address).unwrap();
    let _second = TcpStream::connect(address).unwrap();
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limits }).unwrap();
    let hog: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!hog.is_empty());
    let mut turns = 0;
    let begin = std::time::Instant::now();
    while begin.elapsed() < Duration::from_millis(250) {
        let mut events = Vec::new();
        reactor.wait(Some(Duration::from_millis(250)), &mut events).unwrap();
        assert!(events.is_empty(), "{events:?}");
        turns += 1;
    }
    assert!(turns < 50, "{turns} turns in a quarter of a second: accepting spins");
    drop(hog);
    assert!(begin.elapsed() < PATIENCE);
    let peer = first.local_addr().unwrap();
    until(&mut reactor, |event| {
        matches!(event, Event::Accepted { peer: from, .. } if from.to_string() == peer.to_string()).then_some(())
    });
}
