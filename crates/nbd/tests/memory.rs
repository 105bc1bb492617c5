//! The budget, with NBD sessions that draw from it as the node's do.

#![allow(clippy::unwrap_used)]

use azekura_base::VolumeId;
use azekura_frontend::{
    Export, Exports, Listing, MEMORY_SHARE_BYTES, MakeListing, Memory, MemoryLimits, Opening, STALL_PERIOD,
};
use azekura_nbd::{Event, RequestToken, Session};
use std::time::Duration;

const LIMITS: MemoryLimits = MemoryLimits { bytes_max: 72 << 20, share_bytes: MEMORY_SHARE_BYTES };
const NOW: Duration = Duration::from_secs(100);
const MIB: usize = 1 << 20;

struct One;

impl Exports for One {
    fn listing(&self, _: &'static str, make: &MakeListing<'_>) -> Listing {
        make(&mut [("vol1", "")].into_iter())
    }
    fn find(&self, _: &str) -> Option<Export> {
        Some(Export::new("vol1", VolumeId(1), 1 << 40))
    }
    fn open(&self, _: &str) -> Opening {
        Opening::Ready(Export::new("vol1", VolumeId(1), 1 << 40))
    }
}

/// A client, and its connection on the node.
struct Conn {
    session: Session,
    /// What the client has yet to send: the lengths of heads are small, payloads are zeros.
    head: Vec<u8>,
    payload: usize,
    requests: Vec<RequestToken>,
}

impl Conn {
    fn open() -> Conn {
        let mut session = Session::metered();
        let mut conn = Conn { session: Session::new(), head: Vec::new(), payload: 0, requests: Vec::new() };
        let hello = [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 1], &[0, 0, 0, 0]].concat();
        let mut fill = session.inbox_mut().take_fill();
        fill.buf[..hello.len()].copy_from_slice(&hello);
        session.inbox_mut().filled(fill, hello.len());
        assert!(matches!(session.poll(&One), Some(Event::Opened { .. })));
        drain(&mut session);
        conn.session = session;
        conn
    }

    /// The client sends a WRITE of `len` bytes, but for the last `missing`.
    fn write(&mut self, len: usize, missing: usize) {
        let head = [0x2560_9513u32.to_be_bytes(), [0, 0, 0, 1], [0; 4], [0; 4], [0; 4], [0; 4]].concat();
        self.head = [&head[..], &(len as u32).to_be_bytes()].concat();
        self.payload = len - missing;
    }

    /// The client sends a READ of `len` bytes.
    fn read(&mut self, len: usize) {
        let head = [0x2560_9513u32.to_be_bytes(), [0; 4], [0; 4], [0; 4], [0; 4], [0; 4]].concat();
        self.head = [&head[..], &(len as u32).to_be_bytes()].concat();
    }

    /// The node works off what the client sends, as far as it can.
    fn pump(&mut self, id: usize, memory: &mut Memory<usize>) {
        loop {
            match self.session.poll(&One) {
                Some(Event::Request { token, .. }) => {
                    memory.received(id, token.memory_bytes());
                    self.requests.push(token);
                }
                Some(event) => panic!("unexpected {event:?}"),
                None => match self.session.wants_room() {
                    Some(_) if memory.is_waiting(id) => return,
                    Some(bytes) if memory.take(id, bytes as usize, NOW) => self.session.give_room(),
                    Some(_) => return,
                    None if self.session.wants_bytes() && self.head.len() + self.payload > 0 => {
                        let mut fill = self.session.inbox_mut().take_fill();
                        let room = fill.buf.len() - fill.at;
                        let head = self.head.len().min(room);
                        fill.buf[fill.at..fill.at + head].copy_from_slice(&self.head[..head]);
                        self.head.drain(..head);
                        let payload = self.payload.min(room - head);
                        self.payload -= payload;
                        self.session.inbox_mut().filled(fill, head + payload);
                        memory.moved(id, head + payload);
                    }
                    None => return,
                },
            }
        }
    }

    fn answer(&mut self, id: usize, memory: &mut Memory<usize>) {
        for token in std::mem::take(&mut self.requests) {
            memory.answered(id, token.memory_bytes());
            self.session.reply_done(token);
        }
        drain(&mut self.session);
        memory.unsent(id, 0, NOW);
    }
}

fn drain(session: &mut Session) {
    while !session.outbox_mut().is_empty() {
        session.outbox_mut().take(&mut Vec::new(), 1000, usize::MAX);
    }
}

/// Lets those go on that have waited.
fn feed(conns: &mut [Conn], memory: &mut Memory<usize>) {
    while let Some(id) = memory.next(NOW) {
        conns[id].session.give_room();
        conns[id].pump(id, memory);
    }
}

#[test]
fn a_thousand_payloads_that_never_end_stay_within_the_budget_and_others_go_on() {
    let mut memory = Memory::new(LIMITS);
    let mut conns: Vec<Conn> = (0..1000).map(|_| Conn::open()).collect();
    for (id, conn) in conns.iter_mut().enumerate() {
        conn.write(32 * MIB, 1);
        conn.pump(id, &mut memory);
    }
    assert!(memory.used_bytes() <= LIMITS.bytes_max, "{} bytes", memory.used_bytes());
    let held: usize = conns.iter_mut().map(|conn| conn.session.inbox_mut().memory_bytes()).sum();
    assert!(held <= LIMITS.bytes_max + 1000 * 8192, "{held} bytes are held");
    // A normal client has its own share, and the other half of the budget.
    let normal = conns.len();
    conns.push(Conn::open());
    for len in [4096, 60 << 10, 512 << 10, MIB - 4096] {
        for _ in 0..100 {
            conns[normal].write(len, 0);
            conns[normal].pump(normal, &mut memory);
            assert_eq!(conns[normal].requests.len(), 1, "a write of {len} bytes waits");
            conns[normal].answer(normal, &mut memory);
        }
    }
    // A large one waits, for so long as others hold what they do nothing with.
    conns[normal].write(8 * MIB, 0);
    conns[normal].pump(normal, &mut memory);
    assert!(conns[normal].requests.is_empty() && memory.is_waiting(normal));
    let mut now = NOW;
    while conns[normal].requests.is_empty() {
        now = memory.next_look().expect("somebody waits").max(now);
        let stalled = memory.stalled(now);
        assert!(!stalled.is_empty() && !stalled.contains(&normal), "{stalled:?} at {now:?}");
        stalled.into_iter().for_each(|id| memory.gone(id));
        while let Some(id) = memory.next(now) {
            if id == normal {
                conns[id].session.give_room();
                conns[id].pump(id, &mut memory);
            }
        }
        assert!(memory.used_bytes() <= LIMITS.bytes_max + MEMORY_SHARE_BYTES);
    }
    assert!(now >= NOW + STALL_PERIOD);
}

#[test]
fn answers_that_nobody_reads_are_bounded_too() {
    let mut memory = Memory::new(LIMITS);
    let mut conns: Vec<Conn> = (0..300).map(|_| Conn::open()).collect();
    let mut answered = 0;
    for _ in 0..20 {
        for (id, conn) in conns.iter_mut().enumerate() {
            if memory.is_waiting(id) {
                continue;
            }
            conn.read(MIB - 4096);
            conn.pump(id, &mut memory);
            for token in std::mem::take(&mut conn.requests) {
                answered += token.memory_bytes();
                memory.answered(id, token.memory_bytes());
                drop(token);
                // The client takes nothing of it.
                memory.unsent(id, MIB - 4096, NOW);
            }
        }
    }
    assert!(memory.used_bytes() <= LIMITS.bytes_max, "{} bytes", memory.used_bytes());
    assert!(answered > LIMITS.bytes_max / 4, "{answered} bytes were answered");
    assert!(memory.has_waiting());
    // One of them reads what it has asked for: the next one's turn.
    memory.unsent(0, 0, NOW);
    assert!(memory.next(NOW).is_some());
}

#[test]
fn what_is_given_back_goes_to_whoever_waits_longest() {
    let mut memory = Memory::new(LIMITS);
    let mut conns: Vec<Conn> = (0..40).map(|_| Conn::open()).collect();
    for (id, conn) in conns.iter_mut().enumerate() {
        conn.write(MIB, 0);
        conn.pump(id, &mut memory);
    }
    let waiting: Vec<usize> = (0..40).filter(|id| memory.is_waiting(*id)).collect();
    assert_eq!(waiting, (35..40).collect::<Vec<_>>(), "with their answers, 35 requests of 1 MiB fit into 36 MiB");
    for next in waiting {
        conns[next - 35].answer(next - 35, &mut memory);
        feed(&mut conns, &mut memory);
        assert!(!memory.is_waiting(next) && (next + 1..40).all(|later| memory.is_waiting(later)));
    }
    for (id, conn) in conns.iter_mut().enumerate() {
        conn.answer(id, &mut memory);
    }
    assert_eq!(memory.used_bytes(), 0);
}

#[test]
fn who_makes_progress_or_waits_for_the_node_is_not_stalled() {
    let mut memory = Memory::new(LIMITS);
    assert!(memory.take(1, 30 * MIB, NOW) && !memory.take(2, 30 * MIB, NOW));
    let late = NOW + 3 * STALL_PERIOD;
    memory.moved(1, 10 * MIB);
    assert!(memory.stalled(NOW + STALL_PERIOD).is_empty());
    // Now it is carried out: that may take long, and is not the client's fault.
    memory.received(1, 30 * MIB);
    assert!(memory.stalled(late).is_empty());
    memory.answered(1, 30 * MIB);
    memory.unsent(1, 30 * MIB, late);
    assert!(memory.stalled(late).is_empty());
    assert_eq!(memory.stalled(late + STALL_PERIOD), [1]);
    memory.gone(1);
    assert_eq!(memory.next(late), Some(2));
}
