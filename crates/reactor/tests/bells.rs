//! Bells: eventfds that another process writes to, or waits for.
#![allow(clippy::unwrap_used)]

use azekura_base::{Inbox, Outbox};
use azekura_reactor::{BellId, Event, Options, Reactor};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

type Loop = Reactor<(Inbox, Outbox)>;

fn reactors() -> [Loop; 2] {
    [false, true].map(|basic| Reactor::new(Options { basic, ..Options::default() }).unwrap())
}

/// The two ends of a bell: both are the same eventfd.
fn bell() -> (OwnedFd, OwnedFd) {
    let one = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let other = one.try_clone().unwrap();
    (one, other)
}

fn write(eventfd: impl AsFd) {
    assert_eq!(rustix::io::write(eventfd, &1u64.to_ne_bytes()).unwrap(), 8);
}

/// What has been written and not read; 0 for nothing.
fn read(eventfd: impl AsFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(eventfd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

/// The bells that have rung, of a wait that does not sleep.
fn heard(reactor: &mut Loop) -> Vec<BellId> {
    let mut events = Vec::new();
    reactor.wait(Some(Duration::ZERO), &mut events).unwrap();
    let bell = |event| match event {
        Event::Rung { bell } => bell,
        other => panic!("unexpected {other:?}"),
    };
    events.into_iter().map(bell).collect()
}

#[test]
fn who_writes_wakes_the_loop_and_is_heard_once_a_wait() {
    for mut reactor in reactors() {
        let [(here, there), (quiet, _kept)] = [bell(), bell()];
        let (rings, _other) = (reactor.watch_bell(here).unwrap(), reactor.watch_bell(quiet).unwrap());
        assert_eq!(heard(&mut reactor), []);
        let sleeper = there.try_clone().unwrap();
        let thread = std::thread::spawn(move || write(sleeper));
        let mut events = Vec::new();
        while events.is_empty() {
            reactor.wait(Some(Duration::from_secs(30)), &mut events).unwrap();
        }
        thread.join().unwrap();
        assert!(matches!(events[..], [Event::Rung { bell }] if bell == rings), "{events:?}");
        for _ in 0..3 {
            (0..5).for_each(|_| write(&there));
            assert_eq!(heard(&mut reactor), [rings]);
            assert_eq!(heard(&mut reactor), []);
        }
        assert_eq!(read(&there), 16, "nobody has read it");
        reactor.remove_bell(rings);
        write(&there);
        assert_eq!(heard(&mut reactor), [], "it was forgotten");
    }
}

#[test]
fn a_bell_is_rung_with_the_next_wait_however_often_that_was_asked_for() {
    for mut reactor in reactors() {
        let (here, there) = bell();
        let rung = reactor.add_bell(here).unwrap();
        for _ in 0..3 {
            (0..5).for_each(|_| reactor.ring_bell(rung));
            assert_eq!(read(&there), 0);
            (0..2).for_each(|_| drop(heard(&mut reactor)));
            assert_eq!(read(&there), 1);
        }
        reactor.ring_bell(rung);
        reactor.remove_bell(rung);
        reactor.ring_bell(rung);
        (0..2).for_each(|_| drop(heard(&mut reactor)));
        assert_eq!(read(&there), 0, "a bell that was removed");
    }
}

#[test]
fn a_client_that_lets_nobody_write_holds_up_no_loop() {
    for mut reactor in reactors() {
        let (here, there) = bell();
        let rung = reactor.add_bell(here).unwrap();
        // Full, and made to wait for room again.
        assert_eq!(rustix::io::write(&there, &(u64::MAX - 1).to_ne_bytes()).unwrap(), 8);
        rustix::io::ioctl_fionbio(&there, false).unwrap();
        for _ in 0..10 {
            reactor.ring_bell(rung);
            assert_eq!(heard(&mut reactor), []);
        }
        reactor.remove_bell(rung);
        drop(reactor);
    }
}

#[test]
fn other_files_are_no_bells() {
    for mut reactor in reactors() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        for other in [socket.into(), reader, file] {
            let again = other.try_clone().unwrap();
            assert!(reactor.watch_bell(other).is_err() && reactor.add_bell(again).is_err());
        }
    }
}

#[test]
fn a_bell_that_is_never_read_is_given_back() {
    for mut reactor in reactors() {
        let (here, there) = bell();
        let rung = reactor.add_bell(here).unwrap();
        // The other side lets whoever writes wait, and does not read.
        rustix::io::ioctl_fionbio(&there, false).unwrap();
        rustix::io::write(&there, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        reactor.ring_bell(rung);
        assert_eq!(heard(&mut reactor), []);
        reactor.remove_bell(rung);
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while reactor.bells() > 0 && std::time::Instant::now() < until {
            reactor.wait(Some(Duration::from_millis(10)), &mut Vec::new()).unwrap();
        }
        assert_eq!(reactor.bells(), 0, "the bell stays open");
    }
}
