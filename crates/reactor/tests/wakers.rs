//! Waking a reactor from other threads.

#![allow(clippy::unwrap_used)]

use crate::support::{PATIENCE, during, reactor, turn};
use azekura_reactor::Event;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

#[test]
fn another_thread_wakes_a_sleeper() {
    let mut reactor = reactor();
    let waker = reactor.waker();
    for _ in 0..3 {
        let waker = waker.clone();
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        assert!(matches!(turn(&mut reactor)[..], [Event::Woken]));
        thread.join().unwrap();
    }
    assert!(during(&mut reactor, Duration::from_millis(20)).is_empty(), "woken without a reason");
}

#[test]
fn a_wake_up_before_the_wait_is_not_lost() {
    let mut reactor = reactor();
    reactor.waker().wake();
    reactor.waker().wake();
    assert!(matches!(turn(&mut reactor)[..], [Event::Woken]));
    assert!(during(&mut reactor, Duration::from_millis(20)).is_empty());
}

/// The sum that the threads announce is reached without any wait running into its timeout.
#[test]
fn no_wake_up_is_lost_among_many() {
    let mut reactor = reactor();
    let count = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (waker, count) = (reactor.waker(), count.clone());
            thread::spawn(move || {
                for n in 0..20_000 {
                    count.fetch_add(1, Relaxed);
                    waker.wake();
                    if n % 64 == 0 {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let begin = Instant::now();
    while count.load(Relaxed) < 60_000 {
        turn(&mut reactor);
        assert!(begin.elapsed() < PATIENCE);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_waker_may_outlive_its_reactor() {
    let waker = reactor().waker();
    waker.wake();
}

#[test]
fn a_wait_ends_with_its_timeout() {
    let mut reactor = reactor();
    let begin = Instant::now();
    let mut events = Vec::new();
    reactor.wait(Some(Duration::from_millis(30)), &mut events).unwrap();
    assert!(events.is_empty());
    assert!(begin.elapsed() >= Duration::from_millis(29));
}
