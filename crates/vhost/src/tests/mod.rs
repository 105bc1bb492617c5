//! A connection with a driver at its other end, whose memory is a `Vec`.
#![allow(clippy::unwrap_used)]

mod control;
mod migration;
mod properties;
mod requests;
mod restarts;

use crate::Connection;
use azekura_base::{SharedMemory, VolumeId};
use azekura_frontend::{
    Event, Export, Exports, Listing, MakeListing, Opening, Protocol, Request, Sharing, StreamProtocol, Tag, Wish,
};
use azekura_gateway::{Outcome, Piece};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Where the guest's memory is, as the guest and as its process has it.
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000;
const MEMORY_BYTES: usize = 64 << 10;
/// Places in it.
const DESCRIPTORS: usize = 0;
const AVAILABLE: usize = 0x1002;
const USED: usize = 0x2000;
const DATA: usize = 0x4000;
const ENTRIES: u16 = 8;
const SIZE: u64 = 1 << 20;
const CLUSTER: u128 = 0xabcd_0000;
/// The log has bits for the pages of the guest's memory, and of what is below.
const LOG_BYTES: usize = ((GUEST as usize + MEMORY_BYTES) / 4096 / 8).next_multiple_of(8);
const LOG: u32 = u32::MAX - 1;

#[derive(Clone)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Shared {
    fn new(len: usize) -> Shared {
        Shared(Rc::new(RefCell::new(vec![0; len])))
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.borrow()[at..at + N].try_into().unwrap()
    }

    fn short(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.get(at))
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl SharedMemory for Shared {
    fn read(&self, at: usize, into: &mut [u8]) -> Option<()> {
        into.copy_from_slice(self.0.borrow().get(at..at.checked_add(into.len())?)?);
        Some(())
    }

    fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        self.0.borrow_mut().get_mut(at..at.checked_add(from.len())?)?.copy_from_slice(from);
        Some(())
    }

    fn load(&self, at: usize) -> Option<u32> {
        let mut word = [0; 4];
        self.read(at, &mut word).filter(|()| at.is_multiple_of(4))?;
        Some(u32::from_ne_bytes(word))
    }

    fn store(&self, at: usize, number: u32) -> Option<()> {
        Some(()).filter(|()| at.is_multiple_of(4))?;
        self.write(at, &number.to_ne_bytes())
    }

    fn set_bits(&self, at: usize, bits: u32) -> Option<()> {
        self.store(at, self.load(at)? | bits)
    }
}

/// The only export. It is held by somebody else, or another client of the socket stands in the way.
struct Only(Export, bool, bool);

impl Exports for Only {
    fn find(&self, name: &str) -> Option<Export> {
        (name == self.0.name).then(|| self.0.clone())
    }

    fn open(&self, name: &str) -> Opening {
        match self.find(name) {
            Some(export) if self.1 && !export.is_read_only() => Opening::Later(export.name),
            Some(export) => Opening::Ready(export),
            None => Opening::Unknown,
        }
    }

    fn has_nexus(&self) -> bool {
        !self.2
    }

    fn listing(&self, _: &'static str, _: &MakeListing<'_>) -> Listing {
        None
    }
}

fn volume() -> Export {
    Export::new("v", VolumeId(7), SIZE)
}

fn message(request: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [request, 1 | 8, payload.len() as u32].into_iter().flat_map(u32::to_ne_bytes).collect();
    bytes.extend_from_slice(payload);
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().copied().flat_map(u32::to_ne_bytes).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().copied().flat_map(u64::to_ne_bytes).collect()
}

fn some_file() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

/// A client with a driver, and the front end that it has to do with.
struct Client {
    conn: Connection,
    exports: Only,
    memory: Shared,
    inflight: Shared,
    log: Shared,
    disk: Vec<u8>,
    /// Requests that have not been answered.
    asked: Vec<(Tag, Request)>,
    /// The queues for which the client was called, and how often memory was lent.
    called: Vec<u32>,
    lent: usize,
    /// What the connection has said of its volume, and to the client by its own socket.
    said: Vec<Event>,
    told: Vec<Vec<u8>>,
    ended: Option<String>,
    available: u16,
    seen: u16,
    /// Whether room is given at once.
    gives_room: bool,
}

impl Client {
    fn connected(export: Export) -> Client {
        Client {
            conn: Connection::new(1 << 20, &export.name, CLUSTER),
            exports: Only(export, false, false),
            memory: Shared::new(MEMORY_BYTES),
            inflight: Shared::new(64 << 10),
            log: Shared::new(LOG_BYTES),
            disk: (0..SIZE).map(|at| (at / 512) as u8).collect(),
            asked: Vec::new(),
            called: Vec::new(),
            lent: 0,
            said: Vec::new(),
            told: Vec::new(),
            ended: None,
            available: 0,
            seen: 0,
            gives_room: true,
        }
    }

    /// With a ring that runs.
    fn started(features: u64) -> Client {
        let mut client = Client::connected(volume());
        client.start(features);
        client
    }

    fn start(&mut self, features: u64) {
        self.negotiate(features);
        self.share_memory();
        self.start_ring();
    }

    fn negotiate(&mut self, features: u64) {
        use crate::block::features::VERSION_1;
        use crate::message::features::{OFFERED, PROTOCOL_FEATURES};
        self.send(16, &longs(&[OFFERED]));
        self.send(2, &longs(&[features | VERSION_1 | PROTOCOL_FEATURES]));
    }

    fn share_memory(&mut self) {
        self.conn.descriptors().push_back(some_file());
        let mut table = words(&[1, 0]);
        table.extend(longs(&[GUEST, MEMORY_BYTES as u64, USER, 0]));
        self.send(5, &table);
    }

    fn start_ring(&mut self) {
        self.start_ring_logging(None);
    }

    /// The ring's used entries are logged as if they were at this address of the guest.
    fn start_ring_logging(&mut self, log: Option<u64>) {
        self.send(8, &words(&[0, ENTRIES.into()]));
        self.send(10, &words(&[0, self.seen.into()]));
        self.locate_ring(log);
        self.called.clear();
        for request in [13, 12] {
            self.conn.descriptors().push_back(some_file());
            self.send(request, &longs(&[0]));
        }
        // What it has not been told of may be used already.
        assert!(std::mem::take(&mut self.called).contains(&0));
        self.send(18, &words(&[0, 1]));
    }

    fn locate_ring(&mut self, log: Option<u64>) {
        let mut addresses = words(&[0, log.is_some().into()]);
        addresses.extend(longs(&[DESCRIPTORS, USED, AVAILABLE].map(|at| USER + at as u64)));
        addresses.extend(longs(&[log.unwrap_or(0)]));
        self.send(9, &addresses);
    }

    /// Sends bytes, and lets the connection work.
    fn send_bytes(&mut self, bytes: &[u8]) {
        self.poll();
        let mut left = bytes;
        while !left.is_empty() && self.ended.is_none() {
            assert!(self.conn.wants_bytes(), "it takes no more");
            let mut fill = self.conn.inbox_mut().take_fill();
            let count = left.len().min(fill.buf.len() - fill.at);
            fill.buf[fill.at..fill.at + count].copy_from_slice(&left[..count]);
            self.conn.inbox_mut().filled(fill, count);
            left = &left[count..];
            self.poll();
        }
    }

    fn send(&mut self, request: u32, payload: &[u8]) {
        self.send_bytes(&message(request, payload));
    }

    /// What the connection has answered.
    fn answers(&mut self) -> Vec<u8> {
        let mut pieces = Vec::new();
        self.conn.outbox_mut().take(&mut pieces, usize::MAX, usize::MAX);
        pieces.concat()
    }

    fn poll(&mut self) {
        loop {
            while let Some(event) = self.conn.poll(&self.exports) {
                match event {
                    Event::Request { tag, request, .. } => self.asked.push((tag, request)),
                    Event::Violation(what) => self.ended = Some(what),
                    Event::Swept(_) => {}
                    event @ (Event::Stays | Event::Opened { .. } | Event::Leaves) => self.said.push(event),
                    // The front end does not ask again before it has an answer.
                    event @ (Event::Wanted { .. } | Event::WantsNexus { .. }) => {
                        self.said.push(event);
                        break;
                    }
                    other => panic!("{other:?}"),
                }
            }
            let room = self.gives_room && self.conn.wants_room().is_some();
            if room {
                self.conn.give_room();
            }
            if !(self.grant() || room) {
                return;
            }
        }
    }

    /// True when the connection is to be polled.
    fn grant(&mut self) -> bool {
        let mut told = false;
        while let Some(wish) = self.conn.next_wish() {
            match wish {
                Wish::Map { region, .. } => {
                    let memory = match region {
                        u32::MAX => &self.inflight,
                        LOG => &self.log,
                        _ => &self.memory,
                    };
                    self.conn.mapped(region, Ok(Box::new(memory.clone())));
                    told = true;
                }
                Wish::Ring { queue } => self.called.push(queue),
                Wish::Lend { bytes, .. } => {
                    self.conn.outbox_mut().put(&bytes);
                    self.lent += 1;
                }
                Wish::Poll => told = true,
                Wish::Tell { bytes, .. } => self.told.push(bytes),
                Wish::Reach { .. } | Wish::Hear { .. } | Wish::Keep { .. } | Wish::Forget { .. } => {}
            }
        }
        told
    }

    fn descriptor(&self, index: u16, at: u64, bytes: u32, flags: u16, next: u16) {
        self.descriptor_at(DESCRIPTORS + usize::from(index) * 16, at, bytes, flags, next);
    }

    fn descriptor_at(&self, place: usize, at: u64, bytes: u32, flags: u16, next: u16) {
        self.memory.put(place, &at.to_le_bytes());
        self.memory.put(place + 8, &bytes.to_le_bytes());
        self.memory.put(place + 12, &flags.to_le_bytes());
        self.memory.put(place + 14, &next.to_le_bytes());
    }

    fn header(&self, at: usize, kind: u32, sector: u64) {
        self.memory.put(at, &kind.to_le_bytes());
        self.memory.put(at + 8, &sector.to_le_bytes());
    }

    /// A request of three descriptors from `head` on: its header, data that the device reads or writes, and its status.
    fn request(&mut self, head: u16, kind: u32, sector: u64, data: (usize, u32), is_in: bool) {
        let at = DATA + usize::from(head) * 64;
        self.header(at, kind, sector);
        self.memory.put(at + 16, &[0xff]);
        let guest = |at: usize| GUEST + at as u64;
        self.descriptor(head, guest(at), 16, 1, head + 1);
        self.descriptor(head + 1, guest(data.0), data.1, if is_in { 3 } else { 1 }, head + 2);
        self.descriptor(head + 2, guest(at + 16), 1, 2, 0);
        self.make_available(head);
    }

    fn make_available(&mut self, head: u16) {
        self.memory.put(AVAILABLE + 4 + 2 * usize::from(self.available % ENTRIES), &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.memory.put(AVAILABLE + 2, &self.available.to_le_bytes());
    }

    fn kick(&mut self) {
        self.conn.rung(0);
        self.poll();
    }

    fn status(&self, head: u16) -> u8 {
        self.memory.get::<1>(DATA + usize::from(head) * 64 + 16)[0]
    }

    /// Heads that were used since the last look, and the bytes written.
    fn used(&mut self) -> Vec<(u32, u32)> {
        let mut used = Vec::new();
        while self.memory.short(USED + 2) != self.seen {
            let at = USED + 4 + 8 * usize::from(self.seen % ENTRIES);
            let [head, written] = [at, at + 4].map(|at| u32::from_le_bytes(self.memory.get(at)));
            used.push((head, written));
            self.seen = self.seen.wrapping_add(1);
        }
        used
    }

    fn perform(&mut self, request: &Request) -> Outcome {
        let range = |offset: u64, len: u64| offset as usize..(offset + len) as usize;
        match request {
            Request::Read { offset, len } => {
                let data = self.disk[range(*offset, *len)].to_vec();
                let (first, second) = data.split_at(data.len() / 2);
                let zeros = second.iter().all(|byte| *byte == 0);
                let tail = if zeros { Piece::Zero(second.len()) } else { Piece::Data(second.to_vec().into()) };
                Outcome::Read(vec![Piece::Data(first.to_vec().into()), tail])
            }
            Request::Write { offset, bytes } => {
                self.disk[range(*offset, bytes.len() as u64)].copy_from_slice(bytes);
                Outcome::Done
            }
            Request::Zero { offset, len } | Request::Trim { offset, len } => {
                self.disk[range(*offset, *len)].fill(0);
                Outcome::Done
            }
            _ => Outcome::Done,
        }
    }

    /// Answers one of the requests that wait.
    fn answer(&mut self, index: usize) {
        let (tag, request) = self.asked.remove(index);
        let outcome = self.perform(&request);
        self.conn.reply(tag, outcome);
        self.poll();
    }

    fn answer_all(&mut self) {
        while !self.asked.is_empty() {
            self.answer(0);
        }
    }
}
