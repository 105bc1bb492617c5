//! What the tests of the reactor share.
#![allow(dead_code, clippy::unwrap_used)]

use azekura_base::{Inbox, Outbox};
use azekura_reactor::{Close, ConnId, Event, ListenerId, Options, Reactor, Stream};
use bytes::Bytes;
use std::net::SocketAddr;
use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};

/// A test that waits longer than this has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Messages of a length (u32, little endian) and so many bytes, each sent back as it came.
#[derive(Default)]
pub struct Echo {
    pub inbox: Inbox,
    pub outbox: Outbox,
    len: Option<usize>,
    pub messages: usize,
}

impl Stream for Echo {
    fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

/// Any free port of this machine.
pub fn localhost() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Echo {
    /// The next message that has arrived whole.
    pub fn next(&mut self) -> Option<Bytes> {
        if self.len.is_none() {
            let len = u32::from_le_bytes(self.inbox.peek(4)?.try_into().unwrap());
            self.inbox.consume(4);
            self.len = Some(len as usize);
        }
        let payload = self.inbox.take_payload(self.len.unwrap())?;
        self.len = None;
        self.messages += 1;
        Some(payload)
    }

    pub fn put(&mut self, payload: Bytes) {
        self.outbox.put(&(payload.len() as u32).to_le_bytes());
        self.outbox.put_payload(payload);
    }

    pub fn echo(&mut self) {
        while let Some(payload) = self.next() {
            self.put(payload);
        }
    }
}

pub fn reactor() -> Reactor<Echo> {
    Reactor::new(Options::default()).unwrap()
}

/// Waits once, for at most [`PATIENCE`] and never in vain.
pub fn turn(reactor: &mut Reactor<Echo>) -> Vec<Event> {
    let begin = Instant::now();
    let mut events = Vec::new();
    while events.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "nothing happened for {PATIENCE:?}");
        reactor.wait(Some(PATIENCE), &mut events).unwrap();
    }
    events
}

/// Waits until `wanted` takes an event; all others up to the end of that turn are dropped.
pub fn until<T>(reactor: &mut Reactor<Echo>, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
    loop {
        if let Some(found) = turn(reactor).iter().find_map(&mut wanted) {
            return found;
        }
    }
}

/// Everything that happens within `time`.
pub fn during(reactor: &mut Reactor<Echo>, time: Duration) -> Vec<Event> {
    let end = Instant::now() + time;
    let mut events = Vec::new();
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        reactor.wait(Some(left), &mut events).unwrap();
    }
    events
}

/// Accepts one connection and gives it an [`Echo`].
pub fn accept(reactor: &mut Reactor<Echo>, from: ListenerId) -> ConnId {
    let conn = until(reactor, |event| match event {
        Event::Accepted { listener, conn, .. } if *listener == from => Some(*conn),
        _ => None,
    });
    assert!(reactor.install(conn, Echo::default()).is_ok());
    conn
}

/// Serves echoes until `count` connections have come and gone.
pub fn serve(reactor: &mut Reactor<Echo>, count: usize) {
    let mut closed = 0;
    while closed < count {
        for event in turn(reactor) {
            match event {
                Event::Accepted { conn, .. } => assert!(reactor.install(conn, Echo::default()).is_ok()),
                Event::Received { conn } => {
                    reactor.stream(conn).unwrap().echo();
                    reactor.kick(conn);
                }
                Event::Sent { conn } => reactor.kick(conn),
                Event::Closed { conn, .. } => {
                    reactor.close(conn, Close::AtOnce);
                    closed += 1;
                }
                event => panic!("unexpected {event:?}"),
            }
        }
    }
}

/// Pseudo-random numbers, the same in each run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut word = self.below(usize::MAX >> 33) as u64;
        (0..len)
            .map(|_| {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (word >> 56) as u8
            })
            .collect()
    }
}

/// Sends messages of many sizes in random cuts and checks that each comes back; then closes.
pub fn exchange(mut writer: impl Write + Send, mut reader: impl Read, seed: u64) {
    let mut random = Random(seed);
    let mut lens: Vec<usize> = (0..200).map(|_| random.below(3000)).collect();
    lens.extend([0, 1, 4096, 32 << 10, 256 << 10, (256 << 10) + 1, 4 << 20, 4 << 20, 5, 1 << 20]);
    let mut stream = Vec::new();
    for len in lens {
        stream.extend((len as u32).to_le_bytes());
        stream.extend(random.bytes(len));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rest = &stream[..];
            while !rest.is_empty() {
                let most = if random.below(2) == 0 { 100 } else { 300_000 };
                let (cut, after) = rest.split_at((1 + random.below(most)).min(rest.len()));
                writer.write_all(cut).unwrap();
                rest = after;
            }
        });
        let mut back = vec![0; stream.len()];
        reader.read_exact(&mut back).unwrap();
        assert!(back == stream, "the echo differs");
    });
}
