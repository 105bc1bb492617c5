//! An initiator of a few lines, and a volume in memory behind the connection.
#![allow(dead_code, clippy::unwrap_used)]

pub mod node;

use azekura_base::{HostName, Inbox, IoStatus, LogicalBlock, NodeId, VolumeId};
use azekura_frontend::{
    Admittance, Event, Export, Exports, Listing, MakeListing, Named, Opening, PathState, Portals, Protocol, Request,
    ReservationRequest, Reservations, StreamProtocol, Tag,
};
use azekura_gateway::{Outcome, Piece};
use azekura_iscsi::login::text::put;
use azekura_iscsi::pdu::initiator::{DATA_OUT, LoginRequest, ScsiCommand};
use azekura_iscsi::pdu::reader::{Pdu, Reader};
use azekura_iscsi::pdu::target::{self, R2T};
use azekura_iscsi::pdu::{Bhs, Digests, NO_TAG};
use azekura_iscsi::{Challenge, Connection};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// What initiators are asked that have to prove something.
pub const CHALLENGE: Challenge = Challenge { identifier: 77, bytes: [0xc5; 32] };
pub const VOLUME_BYTES: usize = 4 << 20;
pub const TARGET: &str = "iqn.2026-01.io.azekura:vol1";

/// One volume, `vol1`.
pub struct One;

impl Exports for One {
    fn find(&self, name: &str) -> Option<Export> {
        (name == "vol1").then(|| Export::new("vol1", VolumeId(7), VOLUME_BYTES as u64))
    }

    fn listing(&self, _: &'static str, make: &MakeListing<'_>) -> Listing {
        let names: Vec<String> = (1..=100).map(|number| format!("vol{number}")).collect();
        make(&mut names.iter().map(|name| (name.as_str(), "")))
    }
}

/// As [`One`], but it is not known for a while, or attached later, or refused.
pub struct Late(pub Opening);

impl Exports for Late {
    fn find(&self, name: &str) -> Option<Export> {
        One.find(name)
    }

    fn may_come(&self, _: &str) -> bool {
        true
    }

    fn open(&self, _: &str) -> Opening {
        self.0.clone()
    }

    fn listing(&self, protocol: &'static str, make: &MakeListing<'_>) -> Listing {
        One.listing(protocol, make)
    }
}

/// As [`One`], with this said of whoever comes.
pub struct Gate(pub Admittance);

impl Exports for Gate {
    fn find(&self, name: &str) -> Option<Export> {
        One.find(name)
    }

    fn admittance(&self, _: Option<&HostName>) -> Admittance {
        self.0.clone()
    }

    fn listing(&self, protocol: &'static str, make: &MakeListing<'_>) -> Listing {
        One.listing(protocol, make)
    }
}

/// As [`One`] of these blocks, with these reservations, at one of these portals.
struct Reserved(Option<Arc<Reservations>>, Portals, PathState, LogicalBlock);

impl Exports for Reserved {
    fn find(&self, name: &str) -> Option<Export> {
        One.find(name).map(|export| Export { path: self.2, logical_block: self.3, ..export })
    }

    fn portals(&self) -> &Portals {
        &self.1
    }

    fn reservations(&self, export: VolumeId) -> Option<Arc<Reservations>> {
        self.0.clone().filter(|_| export == VolumeId(7))
    }

    fn listing(&self, protocol: &'static str, make: &MakeListing<'_>) -> Listing {
        One.listing(protocol, make)
    }
}

/// What a login says. `None` leaves a key out.
pub fn text(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut text = Vec::new();
    pairs.iter().for_each(|(key, value)| put(&mut text, key, value));
    text
}

pub fn login(csg: u8, nsg: u8) -> LoginRequest {
    LoginRequest {
        transit: true,
        goes_on: false,
        csg,
        nsg,
        version_min: 0,
        isid: [0x80, 1, 2, 3, 0, 0],
        tsih: 0,
        itt: 1,
        cmd_sn: 10,
        exp_stat_sn: 0,
    }
}

/// An initiator, the connection, and the volume.
pub struct Peer {
    pub conn: Connection,
    pub volume: Vec<u8>,
    /// Requests wait in `held` until they are let go.
    pub hold: bool,
    pub held: VecDeque<(Tag, Request)>,
    /// As whom it was let in.
    pub named: Option<Named>,
    /// Events but requests.
    pub events: Vec<Event>,
    /// What other sessions are to be told, if there are any.
    pub sweeps: Vec<(u64, u8)>,
    pub has_others: bool,
    /// The volume's reservations, if it can be reserved, and what was asked of them.
    pub reservations: Option<Arc<Reservations>>,
    pub asked: VecDeque<(Tag, ReservationRequest)>,
    /// Where it is seen, and how good a path that is.
    pub portals: Portals,
    pub path: PathState,
    /// What it is counted in.
    pub block: LogicalBlock,
    /// How often it is to be heard of.
    pub patience: Option<std::time::Duration>,
    /// Memory is given.
    pub has_room: bool,
    /// Memory that was given and has not come to be a request.
    pub rooms: Vec<usize>,
    reader: Reader,
    inbox: Inbox,
    pub digests: Digests,
    pub cmd_sn: u32,
    /// Bytes that one receive takes.
    pub piece: usize,
}

impl Peer {
    pub fn new() -> Peer {
        Peer {
            conn: Connection::new(256 << 10, Some(([10, 0, 0, 1], 3260).into()), Some(CHALLENGE)),
            volume: vec![0; VOLUME_BYTES],
            hold: false,
            held: VecDeque::new(),
            named: None,
            events: Vec::new(),
            sweeps: Vec::new(),
            has_others: false,
            reservations: None,
            asked: VecDeque::new(),
            portals: Portals::of(NodeId(1)),
            path: PathState::Optimized,
            block: LogicalBlock::default(),
            patience: None,
            has_room: true,
            rooms: Vec::new(),
            reader: Reader::default(),
            inbox: Inbox::new(),
            digests: Digests::default(),
            cmd_sn: 10,
            piece: usize::MAX,
        }
    }

    /// In the full feature phase, with further keys.
    pub fn logged_in(keys: &[(&str, &str)]) -> Peer {
        Peer::new().log_in(login(1, 3), keys)
    }

    /// The same, by another login request.
    pub fn log_in(self, request: LoginRequest, keys: &[(&str, &str)]) -> Peer {
        let mut peer = self;
        let all = [&[("InitiatorName", "iqn.2000-01.example:me"), ("TargetName", TARGET)], keys].concat();
        let pdus = peer.exchange(request.bhs(), &text(&all));
        assert_eq!((pdus.len(), pdus[0].bhs.u16(36)), (1, 0), "{pdus:?}");
        assert_eq!(peer.events.pop(), Some(Event::Opened { name: "vol1".to_owned() }));
        let answer = String::from_utf8_lossy(&pdus[0].data).into_owned();
        peer.digests.header = answer.contains("HeaderDigest=CRC32C");
        peer.digests.data = answer.contains("DataDigest=CRC32C");
        peer.reader.digests = peer.digests;
        peer
    }

    /// Sends a PDU, lets the connection do what it can, and gives what it has answered.
    pub fn exchange(&mut self, bhs: Bhs, data: &[u8]) -> Vec<Pdu> {
        self.send(bhs, data);
        self.go_on();
        self.received()
    }

    /// Polls until nothing goes on, as the volume is now.
    pub fn go_on(&mut self) {
        self.run(&Reserved(self.reservations.clone(), self.portals.clone(), self.path, self.block));
    }

    pub fn send(&mut self, bhs: Bhs, data: &[u8]) {
        let mut out = azekura_base::Outbox::new();
        target::put(&mut out, self.digests, bhs, &[Bytes::copy_from_slice(data)]);
        let mut pieces = Vec::new();
        out.take(&mut pieces, usize::MAX, usize::MAX);
        self.send_bytes(&pieces.concat());
    }

    /// A PDU is there to be read; nobody has looked at it.
    pub fn queue(&mut self, bhs: Bhs, data: &[u8]) {
        let mut out = azekura_base::Outbox::new();
        target::put(&mut out, self.digests, bhs, &[Bytes::copy_from_slice(data)]);
        let mut pieces = Vec::new();
        out.take(&mut pieces, usize::MAX, usize::MAX);
        let bytes = pieces.concat();
        let mut fill = self.conn.inbox_mut().take_fill();
        fill.buf[fill.at..fill.at + bytes.len()].copy_from_slice(&bytes);
        self.conn.inbox_mut().filled(fill, bytes.len());
    }

    pub fn send_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.go_on();
            if !self.conn.wants_bytes() {
                return;
            }
            let mut fill = self.conn.inbox_mut().take_fill();
            let count = bytes.len().min(self.piece).min(fill.buf.len() - fill.at);
            fill.buf[fill.at..fill.at + count].copy_from_slice(&bytes[..count]);
            self.conn.inbox_mut().filled(fill, count);
            bytes = &bytes[count..];
        }
        self.go_on();
    }

    /// Polls until nothing goes on.
    pub fn run(&mut self, exports: &dyn Exports) {
        loop {
            match self.conn.poll(exports) {
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
                Some(Event::Sweeps(token, why)) if self.has_others => self.sweeps.push((token, why)),
                Some(Event::Sweeps(token, _)) => self.conn.swept(token),
                Some(event @ (Event::Wanted { .. } | Event::Missing { .. })) => {
                    self.events.push(event);
                    return;
                }
                Some(Event::Patience(period)) => self.patience = period,
                Some(Event::Named(named)) => assert_eq!(self.named.replace(named), None, "it is told once"),
                Some(event) => self.events.push(event),
                None => match self.conn.wants_room() {
                    Some(bytes) if self.has_room => {
                        self.rooms.push(bytes);
                        self.conn.give_room();
                    }
                    Some(_) if self.conn.room_is_late() => {}
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
            Request::Copy { from, to, len } => {
                self.volume.copy_within(at(from, len), to as usize);
                Outcome::Done
            }
            // Its session has one volume.
            Request::CopyFrom { .. } => Outcome::Failed(IoStatus::Gone),
            Request::Or { offset, bytes } => {
                let held = &mut self.volume[at(offset, bytes.len() as u64)];
                held.iter_mut().zip(&bytes).for_each(|(held, bits)| *held |= bits);
                Outcome::Done
            }
            Request::Zero { offset, len } => {
                self.volume[at(offset, len)].fill(0);
                Outcome::Done
            }
            Request::Extents { offset, len } => {
                let is_data = |block: &[u8]| block.iter().any(|byte| *byte != 0);
                let blocks = self.volume[at(offset, len)].chunks(4096);
                Outcome::Status(blocks.map(|block| (block.len() as u64, is_data(block))).collect())
            }
            Request::Flush | Request::Cache { .. } | Request::Trim { .. } => Outcome::Done,
        };
        self.conn.reply(tag, outcome);
    }

    /// Answers what is held.
    pub fn let_go(&mut self) {
        while let Some((tag, request)) = self.held.pop_front() {
            self.perform(tag, request);
        }
        self.go_on();
    }

    /// What was sent by the connection.
    pub fn received(&mut self) -> Vec<Pdu> {
        let mut pieces = Vec::new();
        self.conn.outbox_mut().take(&mut pieces, usize::MAX, usize::MAX);
        let bytes = pieces.concat();
        let (mut rest, mut pdus) = (&bytes[..], Vec::new());
        loop {
            while let Some(pdu) = self.reader.next(&mut self.inbox, usize::MAX).unwrap() {
                pdus.push(pdu);
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

    /// The header of a command, with the next number.
    pub fn command(&mut self, command: &ScsiCommand) -> Bhs {
        let bhs = command.bhs(self.cmd_sn, 0);
        self.cmd_sn += 1;
        bhs
    }

    /// A command that reads at most `room` bytes: its data, and its status with the sense data.
    pub fn read(&mut self, cdb: &[u8], room: u32) -> (Vec<u8>, u8, Vec<u8>) {
        let bhs = self.command(&command(cdb, room, 0, true));
        let pdus = self.exchange(bhs, &[]);
        collect(&pdus)
    }

    /// A command that sends `data`, `immediate` bytes of it with the command, and the rest as it is asked for.
    pub fn write(&mut self, cdb: &[u8], data: &[u8], immediate: usize, segment: usize) -> (u8, Vec<u8>) {
        let bhs = self.command(&command(cdb, 0, data.len() as u32, true));
        let mut pdus = self.exchange(bhs, &data[..immediate]);
        while let Some(r2t) = pdus.iter().find(|pdu| pdu.bhs.opcode() == R2T) {
            let (tag, start, len) = (r2t.bhs.u32(20), r2t.bhs.u32(40) as usize, r2t.bhs.u32(44) as usize);
            let itt = r2t.bhs.itt();
            pdus = self.data_out(itt, tag, start, &data[start..start + len], segment);
        }
        let (_, status, sense) = collect(&pdus);
        (status, sense)
    }

    /// A sequence of Data-Out.
    pub fn data_out(&mut self, itt: u32, tag: u32, start: usize, data: &[u8], segment: usize) -> Vec<Pdu> {
        let (mut at, mut data_sn) = (0, 0);
        let mut pdus = Vec::new();
        while at < data.len() {
            let len = segment.min(data.len() - at);
            let bhs = data_out(itt, tag, data_sn, start + at, at + len == data.len());
            pdus.extend(self.exchange(bhs, &data[at..at + len]));
            at += len;
            data_sn += 1;
        }
        pdus
    }
}

pub fn data_out(itt: u32, tag: u32, data_sn: u32, offset: usize, is_final: bool) -> Bhs {
    let mut bhs = Bhs::new(DATA_OUT);
    bhs.0[1] = u8::from(is_final) << 7;
    bhs.put_u32(16, itt);
    bhs.put_u32(20, tag);
    bhs.put_u32(36, data_sn);
    bhs.put_u32(40, offset as u32);
    bhs
}

pub fn command(cdb: &[u8], read_bytes: u32, write_bytes: u32, is_final: bool) -> ScsiCommand {
    let mut padded = [0; 16];
    padded[..cdb.len()].copy_from_slice(cdb);
    ScsiCommand { is_final, read_bytes, write_bytes, lun: [0; 8], itt: 77, cdb: padded }
}

/// The data of an answer, its status, and its sense data.
pub fn collect(pdus: &[Pdu]) -> (Vec<u8>, u8, Vec<u8>) {
    let (mut data, mut sense) = (Vec::new(), Vec::new());
    for pdu in pdus {
        match pdu.bhs.opcode() {
            target::DATA_IN => {
                assert_eq!(pdu.bhs.u32(40) as usize, data.len(), "data comes in order");
                data.extend_from_slice(&pdu.data);
            }
            target::SCSI_RESPONSE => sense = pdu.data.get(2..).unwrap_or_default().to_vec(),
            other => panic!("{other:#x} is no answer to a command"),
        }
    }
    let last = pdus.last().expect("there is an answer");
    let has_status = last.bhs.opcode() == target::SCSI_RESPONSE || last.bhs.0[1] & 1 != 0;
    assert!(has_status && last.bhs.u32(20) == if last.bhs.opcode() == target::DATA_IN { NO_TAG } else { 0 });
    (data, last.bhs.0[3], sense)
}

pub fn read_10(first: u32, count: u16) -> [u8; 10] {
    let (lba, len) = (first.to_be_bytes(), count.to_be_bytes());
    [0x28, 0, lba[0], lba[1], lba[2], lba[3], 0, len[0], len[1], 0]
}

pub fn write_10(first: u32, count: u16) -> [u8; 10] {
    let mut cdb = read_10(first, count);
    cdb[0] = 0x2a;
    cdb
}
