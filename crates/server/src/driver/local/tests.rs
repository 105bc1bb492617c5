//! Connections between shards of one process, without their shards.

#![allow(clippy::unwrap_used)]

use super::lane::UNDER_WAY_BYTES_MAX;
use super::*;
use azekura_base::{Extent, Inbox, LayerId, Outbox, RequestId, VolumeId, block_checksums};
use azekura_reactor::{Event, Options, Reactor};
use azekura_wire::{BODY_SIZE_MAX, Heartbeat, LAYERS_MAX, Layers, ReadDone};
use bytes::Bytes;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;
const THERE: azekura_base::Shard = azekura_base::Shard(1);

/// What one thread has.
struct Shard {
    reactor: Reactor<(Inbox, Outbox)>,
    local: LocalSide,
}

impl Shard {
    fn new() -> Shard {
        Shard { reactor: Reactor::new(Options::default()).unwrap(), local: LocalSide::default() }
    }

    /// Sleeps until it is woken.
    fn sleep(&mut self) {
        let begun = Instant::now();
        let mut events = Vec::new();
        while events.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "nobody wakes it");
            self.reactor.wait(Some(PATIENCE), &mut events).unwrap();
        }
        assert!(matches!(events[..], [Event::Woken]));
    }

    fn is_woken(&mut self) -> bool {
        let mut events = Vec::new();
        self.reactor.wait(Some(Duration::ZERO), &mut events).unwrap();
        !events.is_empty()
    }

    /// All that has come.
    fn hear(&mut self) -> Vec<Arrival> {
        self.local.look();
        std::iter::from_fn(|| self.local.next_arrival()).map(|(_, arrival)| arrival).collect()
    }

    /// Hands on what waits; gives what the node is told.
    fn flush(&mut self) -> Vec<usize> {
        let mut told = Vec::new();
        self.local.flush(|_, unsent| told.push(unsent));
        told
    }
}

/// Two shards that are joined, and the key of the connection at each.
fn joined() -> ((Shard, ConnKey), (Shard, ConnKey)) {
    let (mut one, mut other) = (Shard::new(), Shard::new());
    let (key, end) = one.local.connect(THERE, one.reactor.waker(), other.reactor.waker()).unwrap();
    let there = other.local.add(end);
    ((one, key), (other, there))
}

/// Blocks with a number.
fn blocks(number: u64, bytes: Bytes) -> Message {
    let checksums = block_checksums(&bytes).collect();
    Message::ReadDone(ReadDone { request: RequestId(number), result: Ok(vec![Extent::Data { bytes, checksums }]) })
}

fn heartbeat() -> Message {
    Message::Heartbeat(Heartbeat { stamp_us: 1, echo_us: None, groups: Vec::new() })
}

/// The number of what came, and its blocks.
fn opened(arrival: Arrival) -> (u64, Bytes) {
    match arrival {
        Arrival::Message(Message::ReadDone(ReadDone { request, result })) => match &result.unwrap()[..] {
            [Extent::Data { bytes, .. }] => (request.0, bytes.clone()),
            other => panic!("unexpected {other:?}"),
        },
        Arrival::Message(other) => panic!("unexpected {other:?}"),
        Arrival::Closed => panic!("it was closed"),
    }
}

#[test]
fn two_threads_hand_each_other_everything_in_order() {
    const COUNT: u64 = 5000;
    let (waker_sender, wakers) = mpsc::channel();
    let (end_sender, ends) = mpsc::channel();
    let echo = std::thread::spawn(move || {
        let mut shard = Shard::new();
        waker_sender.send(shard.reactor.waker()).unwrap();
        let key = shard.local.add(ends.recv().unwrap());
        let mut next = 0;
        while next < COUNT {
            shard.sleep();
            let mut bytes_at_once = 0;
            for arrival in shard.hear() {
                let (number, bytes) = opened(arrival);
                assert_eq!(number, next);
                next += 1;
                bytes_at_once += bytes.len();
                shard.local.send(key, blocks(number, bytes));
            }
            assert!(bytes_at_once as u64 <= UNDER_WAY_BYTES_MAX + MIB as u64, "{bytes_at_once} bytes were under way");
            shard.flush();
        }
        // Until the other thread has heard all and is gone.
        while !shard.hear().iter().any(|arrival| matches!(arrival, Arrival::Closed)) {
            shard.sleep();
            shard.flush();
        }
    });
    let mut shard = Shard::new();
    let (key, end) = shard.local.connect(THERE, shard.reactor.waker(), wakers.recv().unwrap()).unwrap();
    end_sender.send(end).unwrap();
    let bytes = |number: u64| Bytes::from(vec![number as u8; if number % 100 == 7 { MIB } else { 4096 }]);
    let sent: Vec<Bytes> = (0..COUNT).map(bytes).collect();
    let mut heard = 0;
    let mut hear = |shard: &mut Shard| {
        for (number, bytes) in shard.hear().into_iter().map(opened) {
            assert_eq!(number, heard);
            let original = &sent[heard as usize];
            assert!(bytes.as_ptr() == original.as_ptr() && bytes.len() == original.len(), "the blocks were copied");
            heard += 1;
        }
        heard
    };
    for number in 0..COUNT {
        shard.local.send(key, blocks(number, sent[number as usize].clone()));
        if number % 50 == 0 {
            shard.flush();
            hear(&mut shard);
        }
    }
    shard.flush();
    while hear(&mut shard) < COUNT {
        shard.sleep();
        shard.flush();
    }
    drop(shard);
    echo.join().unwrap();
}

#[test]
fn what_is_under_way_is_bounded_and_the_rest_waits_and_is_told_of() {
    let ((mut one, key), (mut other, _)) = joined();
    let message = |number| blocks(number, Bytes::from(vec![7; MIB]));
    (0..20).for_each(|number| one.local.send(key, message(number)));
    assert!(!other.is_woken(), "a shard is woken at the end of a turn");
    let told = one.flush();
    assert!(told.len() == 1 && told[0] > 15 * MIB, "{told:?}");
    assert!(other.is_woken());
    // There is no room, so nobody is woken for nothing.
    one.flush();
    assert!(!other.is_woken() && !one.is_woken());
    one.local.send(key, heartbeat());
    let mut heard: Vec<u64> = other.hear().into_iter().map(|arrival| opened(arrival).0).collect();
    assert_eq!(heard, [0, 1, 2, 3]);
    assert!(one.is_woken(), "there is room again");
    let mut left = vec![16];
    while left.last().is_some_and(|waiting| *waiting > 0) {
        left.extend(one.flush().into_iter().map(|bytes| bytes / MIB));
        let mut arrivals = other.hear();
        if heard.len() == 4 {
            let first = arrivals.remove(0);
            assert!(matches!(first, Arrival::Message(Message::Heartbeat(_))), "a heartbeat waits behind data");
        }
        heard.extend(arrivals.into_iter().map(|arrival| opened(arrival).0));
    }
    assert_eq!(left, [16, 12, 8, 4, 0]);
    assert_eq!(heard, (0..20).collect::<Vec<u64>>());
    // Little is not told of.
    one.local.send(key, message(20));
    assert!(one.flush().is_empty());
}

#[test]
fn what_has_no_blocks_is_bounded_by_what_its_lists_take() {
    let ((mut one, key), (mut other, _)) = joined();
    let heads = (0..LAYERS_MAX as u64).map(|number| (VolumeId(number), LayerId(number))).collect();
    let long = Message::Layers(Layers { revision: 1, heads, parents: Vec::new() });
    (0..1000).for_each(|_| one.local.send(key, long.clone()));
    one.flush();
    let bytes = other.hear().len() * LAYERS_MAX * size_of::<(VolumeId, LayerId)>();
    assert!(bytes as u64 <= UNDER_WAY_BYTES_MAX + BODY_SIZE_MAX as u64, "{bytes} bytes were under way");
}

#[test]
fn who_is_left_hears_of_it_behind_the_last_message() {
    let ((mut one, key), (mut other, there)) = joined();
    let small = |number| blocks(number, Bytes::from_static(&[1; 4096]));
    one.local.send(key, small(1));
    one.flush();
    one.local.send(key, small(2));
    // As a socket that is closed at once: what has not been handed on is lost.
    one.local.close(key);
    one.flush();
    other.sleep();
    let heard = other.hear();
    assert!(matches!(heard[..], [Arrival::Message(_), Arrival::Closed]));
    other.local.send(there, small(3));
    assert!(other.flush().is_empty() && other.hear().is_empty(), "the connection is gone");
    // A shard that ends, and one that ended before it was joined.
    let ((mut one, _), (other, _)) = joined();
    drop(other);
    one.sleep();
    assert!(matches!(one.hear()[..], [Arrival::Closed]));
    let gone = Shard::new();
    let (_, end) = one.local.connect(THERE, one.reactor.waker(), gone.reactor.waker()).unwrap();
    drop(end);
    one.sleep();
    assert!(matches!(one.hear()[..], [Arrival::Closed]));
}

#[test]
fn keys_are_never_used_twice_and_tell_where_a_connection_is() {
    let ((mut one, first), (other, _)) = joined();
    one.local.close(first);
    let (second, _end) = one.local.connect(THERE, one.reactor.waker(), other.reactor.waker()).unwrap();
    assert!(first != second && LocalSide::has(first) && LocalSide::has(second));
    assert!(!LocalSide::has(ConnKey(1)));
}
