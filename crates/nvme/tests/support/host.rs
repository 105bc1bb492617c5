//! A host of a few lines, and a volume in memory behind its connections.

use super::bytes_of;
use azekura_base::{HostName, Inbox, IoStatus, LogicalBlock, NodeId, Outbox, VolumeId};
use azekura_frontend::{
    Admittance, Event, Export, Exports, Listing, MakeListing, Named, Opening, PathState, Portals, Protocol, Request,
    ReservationRequest, Reservations, StreamProtocol, Tag,
};
use azekura_gateway::{Outcome, Piece};
use azekura_nvme::command::admin::Admin;
use azekura_nvme::command::fabrics::{ConnectData, Fabrics};
use azekura_nvme::command::io::{Blocks, Flags, Io};
use azekura_nvme::command::{Command, Entry, Sgl};
use azekura_nvme::pdu::reader::{Reader, Received, Side};
use azekura_nvme::pdu::writer::put;
use azekura_nvme::pdu::*;
use azekura_nvme::properties::CC;
use azekura_nvme::{CHALLENGE_BYTES, Challenge, Completion, Connection, Controllers, Status};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

pub const VOLUME_BYTES: usize = 4 << 20;
pub const SUBSYSTEM: &str = "nqn.2026-01.io.azekura:vol1";
pub const HOST_ID: [u8; 16] = [9; 16];
pub const HOST: &str = "nqn.2000-01.example:me";
/// What is asked who has to prove something.
pub const CHALLENGE: Challenge = Challenge { bytes: [7; CHALLENGE_BYTES], sequence: 99 };
/// What Linux sets to enable a controller.
pub const ENABLE: u64 = 0x0046_0001;

/// One volume, `vol1`, and what may be said of it.
pub struct One {
    pub size: Cell<u64>,
    /// What it is counted in.
    pub block: Cell<LogicalBlock>,
    pub opening: RefCell<Option<Opening>>,
    /// Connections are let in beside others.
    pub has_nexus: Cell<bool>,
    pub is_read_only: Cell<bool>,
    /// How good a path to it this is, and where there are others.
    pub path: Cell<PathState>,
    pub portals: Portals,
    /// What is said of whoever comes.
    pub admittance: RefCell<Admittance>,
    /// Its reservations, if it can be reserved.
    pub reservations: RefCell<Option<Arc<Reservations>>>,
}

impl Exports for One {
    fn find(&self, name: &str) -> Option<Export> {
        let export = Export::new("vol1", VolumeId(7), self.size.get());
        let mut export = Export { path: self.path.get(), logical_block: self.block.get(), ..export };
        if self.is_read_only.get() {
            export.verbs = azekura_frontend::Verbs::READ_ONLY;
        }
        (name == "vol1").then_some(export)
    }

    fn open(&self, name: &str) -> Opening {
        let opening = self.opening.borrow().clone();
        opening.unwrap_or_else(|| self.find(name).map_or(Opening::Unknown, Opening::Ready))
    }

    fn admittance(&self, _: Option<&HostName>) -> Admittance {
        self.admittance.borrow().clone()
    }

    fn has_nexus(&self) -> bool {
        self.has_nexus.get()
    }

    fn portals(&self) -> &Portals {
        &self.portals
    }

    fn reservations(&self, export: VolumeId) -> Option<Arc<Reservations>> {
        self.reservations.borrow().clone().filter(|_| export == VolumeId(7))
    }

    fn listing(&self, _: &'static str, make: &MakeListing<'_>) -> Listing {
        let names: Vec<String> = (1..=100).map(|number| format!("vol{number}")).collect();
        make(&mut names.iter().map(|name| (name.as_str(), "")))
    }
}

impl One {
    pub fn new() -> One {
        One {
            size: Cell::new(VOLUME_BYTES as u64),
            block: Cell::new(LogicalBlock::default()),
            opening: RefCell::new(None),
            has_nexus: Cell::new(true),
            is_read_only: Cell::new(false),
            path: Cell::new(PathState::Optimized),
            portals: Portals::of(NodeId(1)),
            admittance: RefCell::new(Admittance::Granted(None)),
            reservations: RefCell::new(None),
        }
    }
}

/// A host's connection, and the volume.
pub struct Host {
    pub conn: Connection,
    pub one: Rc<One>,
    pub volume: Vec<u8>,
    /// Requests wait in `held` until they are let go.
    pub hold: bool,
    pub held: VecDeque<(Tag, Request)>,
    /// What was asked of reservations.
    pub asked: VecDeque<(Tag, ReservationRequest)>,
    /// HOSTID.
    pub host_id: [u8; 16],
    /// As whom it was let in.
    pub named: Option<Named>,
    /// Events but requests.
    pub events: Vec<Event>,
    /// Memory is given.
    pub has_room: bool,
    pub rooms: Vec<usize>,
    pub terms: Terms,
    reader: Reader,
    inbox: Inbox,
    id: u16,
    /// Bytes that one receive takes.
    pub piece: usize,
}

impl Host {
    /// A connection that has agreed on these digests.
    pub fn new(controllers: &Arc<Controllers>, digests: Digests) -> Host {
        let portal = Some("10.0.0.1:4420".parse().unwrap());
        let none = Terms { digests: Digests::default(), alignment: 0, capsule_data_max: 0, data_max: 0 };
        let mut host = Host {
            conn: Connection::new(256 << 10, portal, controllers, Some(CHALLENGE)),
            one: Rc::new(One::new()),
            volume: vec![0; VOLUME_BYTES],
            hold: false,
            held: VecDeque::new(),
            asked: VecDeque::new(),
            host_id: HOST_ID,
            named: None,
            events: Vec::new(),
            has_room: true,
            rooms: Vec::new(),
            terms: none,
            reader: Reader::new(Side::Host),
            inbox: Inbox::new(),
            id: 0,
            piece: usize::MAX,
        };
        let request = InitializeRequest { version: 0, alignment: 0, digests, r2t_max: 0 };
        host.send(&Pdu::InitializeRequest(request), &[]);
        let answers = host.received();
        let [Received { pdu: Pdu::InitializeResponse(answer), .. }] = answers[..] else { panic!("{answers:?}") };
        assert_eq!((answer.digests, answer.alignment), (digests, 0));
        host.reader.agree(answer.to_host(&request, u32::MAX));
        host.terms = answer.to_controller(&Offer::default());
        host
    }

    /// As an admin queue of a controller that is enabled.
    pub fn admin(controllers: &Arc<Controllers>) -> (Host, u16) {
        let mut host = Host::new(controllers, Digests::default());
        let id = host.connect(0, 31, 0xffff, 0, SUBSYSTEM).0.result as u16;
        host.enable();
        (host, id)
    }

    /// As an I/O queue of a controller.
    pub fn io(controllers: &Arc<Controllers>, controller: u16, queue: u16, digests: Digests) -> Host {
        let mut host = Host::new(controllers, digests);
        let (done, _) = host.connect(queue, 127, controller, 0, SUBSYSTEM);
        assert_eq!(done.status, Status::SUCCESS);
        host.events.clear();
        host
    }

    pub fn enable(&mut self) {
        let set = Command::Fabrics(Fabrics::PropertySet { offset: CC, is_long: false, value: ENABLE });
        assert_eq!(self.ask(&set, Vec::new(), 0).0.status, Status::SUCCESS);
    }

    pub fn set(&mut self, offset: u32, value: u64) -> Status {
        let set = Command::Fabrics(Fabrics::PropertySet { offset, is_long: false, value });
        self.ask(&set, Vec::new(), 0).0.status
    }

    pub fn get(&mut self, offset: u32) -> u64 {
        let get = Command::Fabrics(Fabrics::PropertyGet { offset, is_long: false });
        self.ask(&get, Vec::new(), 0).0.result
    }

    pub fn connect_entry(queue: u16, size: u16, attributes: u8) -> Command {
        Command::Fabrics(Fabrics::Connect { queue, size, attributes, keep_alive_ms: 5000 })
    }

    pub fn connect_data(controller: u16, subsystem: &str) -> ConnectData {
        ConnectData { host_id: HOST_ID, controller, subsystem: subsystem.to_owned(), host: HOST.to_owned() }
    }

    pub fn connect(
        &mut self,
        queue: u16,
        size: u16,
        controller: u16,
        attributes: u8,
        subsystem: &str,
    ) -> (Completion, Vec<u8>) {
        let data = ConnectData { host_id: self.host_id, ..Host::connect_data(controller, subsystem) }.bytes();
        self.ask(&Host::connect_entry(queue, size, attributes), data, 0)
    }

    /// Sends a PDU, and lets the connection do what it can.
    pub fn send(&mut self, pdu: &Pdu, data: &[u8]) {
        let mut out = Outbox::new();
        let data = if data.is_empty() { Vec::new() } else { vec![Bytes::copy_from_slice(data)] };
        put(&mut out, &self.terms, pdu, &data);
        self.send_bytes(&bytes_of(&mut out));
    }

    /// Bytes that could not be sent, because the connection takes none.
    pub fn send_bytes(&mut self, mut bytes: &[u8]) -> usize {
        while !bytes.is_empty() {
            self.run();
            if !self.conn.wants_bytes() {
                return bytes.len();
            }
            let mut fill = self.conn.inbox_mut().take_fill();
            let count = bytes.len().min(self.piece).min(fill.buf.len() - fill.at);
            fill.buf[fill.at..fill.at + count].copy_from_slice(&bytes[..count]);
            self.conn.inbox_mut().filled(fill, count);
            bytes = &bytes[count..];
        }
        self.run();
        0
    }

    pub fn next_id(&mut self) -> u16 {
        self.id += 1;
        self.id
    }

    /// Sends a command with data in its capsule, or with room for so many bytes.
    pub fn command(&mut self, command: &Command, data: &[u8], room: u32) -> u16 {
        let id = self.next_id();
        let sgl = match data.len() {
            0 => Sgl::Transport { len: room },
            len => Sgl::InCapsule { offset: 0, len: len as u32 },
        };
        self.send(&Pdu::Command(command.entry(id, &sgl).0), data);
        id
    }

    /// A command, its completion, and what was read.
    pub fn ask(&mut self, command: &Command, data: Vec<u8>, room: u32) -> (Completion, Vec<u8>) {
        let id = self.command(command, &data, room);
        self.completed(id)
    }

    /// The completion of a command, and its data.
    pub fn completed(&mut self, id: u16) -> (Completion, Vec<u8>) {
        let (mut data, pdus) = (Vec::new(), self.received());
        for received in &pdus {
            assert!(received.is_intact);
            match received.pdu {
                Pdu::ControllerData(header) => {
                    assert_eq!((header.command, header.offset as usize), (id, data.len()));
                    data.extend_from_slice(&received.data);
                    if header.is_success {
                        let (queue_head, queue) = (0, 0);
                        let done = Completion { result: 0, queue_head, queue, command: id, status: Status::SUCCESS };
                        return (done, data);
                    }
                }
                Pdu::Response(entry) => {
                    let done = Completion::of(&entry);
                    assert_eq!(done.command, id);
                    return (done, data);
                }
                _ => panic!("{received:?}"),
            }
        }
        panic!("it is not completed: {pdus:?}, {:?}", self.events)
    }

    pub fn completions(&mut self) -> Vec<Completion> {
        let completion = |received: Received| match received.pdu {
            Pdu::Response(entry) => Some(Completion::of(&entry)),
            _ => None,
        };
        self.received().into_iter().filter_map(completion).collect()
    }

    /// Polls until nothing goes on.
    pub fn run(&mut self) {
        let one = Rc::clone(&self.one);
        loop {
            match self.conn.poll(&*one) {
                Some(Event::Request { tag, memory_bytes, request }) => {
                    let room = self.rooms.iter().position(|room| *room == memory_bytes);
                    self.rooms.remove(room.expect("memory is asked for first"));
                    if self.hold && request != Request::Flush {
                        self.held.push_back((tag, request));
                    } else {
                        self.perform(tag, request);
                    }
                }
                Some(Event::Reserves { tag, memory_bytes, request }) => {
                    let room = self.rooms.iter().position(|room| *room == memory_bytes);
                    self.rooms.remove(room.expect("memory is asked for first"));
                    self.asked.push_back((tag, *request));
                }
                Some(event @ (Event::Wanted { .. } | Event::Missing { .. })) => {
                    self.events.push(event);
                    return;
                }
                Some(Event::Leads { .. } | Event::Follows { .. }) if one.has_nexus.get() => {}
                Some(event @ (Event::Leads { .. } | Event::Follows { .. })) => {
                    self.events.push(event);
                    return;
                }
                Some(Event::Disbands(token)) if !self.hold => self.conn.swept(token),
                Some(Event::Named(named)) => assert_eq!(self.named.replace(named), None, "it is told once"),
                Some(event) => self.events.push(event),
                None => match self.conn.wants_room() {
                    Some(bytes) if self.has_room => {
                        self.rooms.push(bytes);
                        self.conn.give_room();
                    }
                    _ => return,
                },
            }
        }
    }

    pub fn perform(&mut self, tag: Tag, request: Request) {
        let at = |offset: u64, len: u64| offset as usize..(offset + len) as usize;
        let outcome = match request {
            Request::Read { offset, len } => {
                let bytes = Bytes::copy_from_slice(&self.volume[at(offset, len)]);
                let half = bytes.len() / 2;
                Outcome::Read(vec![Piece::Data(bytes.slice(..half)), Piece::Data(bytes.slice(half..))])
            }
            Request::Write { offset, bytes } => {
                self.volume[at(offset, bytes.len() as u64)].copy_from_slice(&bytes);
                Outcome::Done
            }
            Request::CompareAndWrite { offset, expected, bytes } => {
                let held = &mut self.volume[at(offset, bytes.len() as u64)];
                match held.iter().zip(&expected).position(|(held, expected)| held != expected) {
                    Some(at) => Outcome::Failed(IoStatus::Miscompare(at as u16)),
                    None => {
                        held.copy_from_slice(&bytes);
                        Outcome::Done
                    }
                }
            }
            Request::Zero { offset, len } => {
                self.volume[at(offset, len)].fill(0);
                Outcome::Done
            }
            _ => Outcome::Done,
        };
        self.conn.reply(tag, outcome);
    }

    /// Answers what is held.
    pub fn let_go(&mut self) {
        while let Some((tag, request)) = self.held.pop_front() {
            self.perform(tag, request);
        }
        self.run();
    }

    /// What was sent by the connection.
    pub fn received(&mut self) -> Vec<Received> {
        let bytes = bytes_of(self.conn.outbox_mut());
        let (mut rest, mut pdus) = (&bytes[..], Vec::new());
        loop {
            while let Some(received) = self.reader.next(&mut self.inbox).unwrap() {
                let begins = matches!(received.pdu, Pdu::InitializeResponse(_));
                pdus.push(received);
                if begins {
                    return pdus;
                }
            }
            if rest.is_empty() {
                return pdus;
            }
            let mut fill = self.inbox.take_fill();
            let count = rest.len().min(fill.buf.len() - fill.at);
            fill.buf[fill.at..fill.at + count].copy_from_slice(&rest[..count]);
            self.inbox.filled(fill, count);
            rest = &rest[count..];
        }
    }

    /// Answers an R2T, in PDUs of so many bytes; `data` is all of the command's.
    pub fn transfer(&mut self, r2t: &ReadyToTransfer, data: &[u8], step: usize) {
        let (begin, end) = (r2t.offset as usize, (r2t.offset + r2t.len) as usize);
        let mut at = begin;
        while at < end {
            let len = step.min(end - at);
            let header = DataHeader {
                command: r2t.command,
                transfer: r2t.transfer,
                offset: at as u32,
                len: len as u32,
                is_last: at + len == end,
                is_success: false,
            };
            self.send(&Pdu::HostData(header), &data[at..at + len]);
            at += len;
        }
    }

    /// A write whose data is asked for.
    pub fn write(&mut self, first: u64, data: &[u8], step: usize) -> Completion {
        let id = self.command(&write(first, data.len()), &[], data.len() as u32);
        let asked = self.received();
        let [Received { pdu: Pdu::ReadyToTransfer(r2t), .. }] = asked[..] else { panic!("{asked:?}") };
        self.transfer(&r2t, data, step);
        self.completed(id).0
    }
}

pub fn blocks(first: u64, len: usize) -> Blocks {
    Blocks { namespace: 1, first, count: (len / 512) as u32 }
}

pub fn write(first: u64, len: usize) -> Command {
    Command::Io(Io::Write(blocks(first, len), Flags::default()))
}

pub fn read(first: u64, len: usize) -> Command {
    Command::Io(Io::Read(blocks(first, len), Flags::default()))
}

pub fn identify(structure: u8, namespace: u32) -> Command {
    Command::Admin(Admin::Identify { namespace, structure, controller: 0, command_set: 0 })
}

pub fn log(page: u8, len: u64, offset: u64) -> Command {
    Command::Admin(Admin::GetLogPage { namespace: 0, page, specific: 0, retains_event: false, len, offset })
}

/// An entry of any bytes.
pub fn entry(bytes: &[u8; 64]) -> Entry {
    Entry(*bytes)
}
