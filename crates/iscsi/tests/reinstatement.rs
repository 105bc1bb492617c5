//! Sessions that are reinstated (RFC 7143 section 6.3.5), on front ends of several shards: whatever the earlier session
//! is in the middle of, nothing of it is under way when the later one's login is answered, or comes after that.
#![allow(clippy::unwrap_used)]

use crate::support::{TARGET, command, data_out, login, text, write_10};
use azekura_base::{Generation, LayerId, Shard, VolumeId};
use azekura_frontend::{Client, ClientLimits, Clients, Context, Effect, Frontend, Member, News, Nexuses, Word};
use azekura_gateway::{Backend, Keyring, Op, Outcome, VolumeView};
use azekura_iscsi::Connection;
use azekura_iscsi::pdu::initiator::TASK_MANAGEMENT;
use azekura_iscsi::pdu::target::{LOGIN_RESPONSE, R2T, TASK_MANAGEMENT_RESPONSE};
use azekura_iscsi::pdu::{BHS_SIZE, Bhs};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

const SHARDS: usize = 3;
const SECTOR: usize = 512;
const ME: &str = "iqn.2000-01.example:me";
const YOU: &str = "iqn.2000-01.example:you";

/// Volumes that remember what is under way, with the session that has asked for it in the first byte.
struct Volumes {
    all: BTreeMap<String, Arc<VolumeView>>,
    keys: Keyring,
    asked: BTreeMap<u64, Op>,
}

impl Backend for Volumes {
    fn keys(&self) -> &Keyring {
        &self.keys
    }

    fn volumes(&self) -> &BTreeMap<String, Arc<VolumeView>> {
        &self.all
    }

    fn revision(&self) -> u64 {
        1
    }

    fn has_room(&self, _: &str) -> bool {
        self.asked.len() < 3
    }

    fn is_ended(&self, _: VolumeId, _: Generation) -> bool {
        false
    }

    fn submit(&mut self, token: u64, _: &str, _: Generation, op: Op) {
        self.asked.insert(token, op);
    }
}

#[derive(Default)]
struct Sockets(BTreeMap<u32, Client>);

impl Clients<u32> for Sockets {
    fn client(&mut self, conn: u32) -> Option<&mut Client> {
        self.0.get_mut(&conn)
    }

    fn unsent_bytes(&mut self, _: u32) -> usize {
        0
    }
}

/// A shard, and what is on its way from and to it.
struct Side {
    frontend: Frontend<u32>,
    sockets: Sockets,
    volumes: Volumes,
    said: VecDeque<(u64, News)>,
    inbox: VecDeque<Word>,
    closing: Vec<u32>,
}

/// An initiator's side of a connection.
struct Host {
    shard: usize,
    to_send: VecDeque<u8>,
    received: Vec<u8>,
    is_in: bool,
    cmd_sn: u32,
    /// Functions that were answered.
    functions: u32,
}

struct Process {
    sides: Vec<Side>,
    nexuses: Nexuses,
    hosts: BTreeMap<u32, Host>,
    made: u32,
    /// The session whose login was answered last.
    current: Option<u32>,
    /// All sessions are of one nexus.
    is_one: bool,
}

#[derive(Clone, Debug)]
enum Step {
    LogIn(usize),
    /// A write, with its data or without.
    Write(usize, u8, bool),
    Deliver(usize, usize),
    HangUp(usize),
    /// The sockets of a shard that are being closed are closed.
    Close(usize),
    Answer(usize, usize),
    Hear(usize),
    Tell(usize),
    /// All shards hear and tell one thing.
    Pass,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (shard, which) = (|| 0..SHARDS, || 0..3_usize);
    let bytes = prop_oneof![3 => Just(usize::MAX), 1 => 1..700_usize];
    let step = prop_oneof![
        2 => shard().prop_map(Step::LogIn),
        8 => Just(Step::Pass),
        6 => (which(), 0..4_u8, any::<bool>()).prop_map(|(host, block, whole)| Step::Write(host, block, whole)),
        10 => (which(), bytes).prop_map(|(host, bytes)| Step::Deliver(host, bytes)),
        1 => which().prop_map(Step::HangUp),
        6 => shard().prop_map(Step::Close),
        1 => (shard(), which()).prop_map(|(shard, which)| Step::Answer(shard, which)),
        2 => shard().prop_map(Step::Hear),
        2 => shard().prop_map(Step::Tell),
    ];
    proptest::collection::vec(step, 0..300)
}

fn view() -> VolumeView {
    VolumeView {
        id: VolumeId(7),
        name: "vol1".to_owned(),
        size: 4 << 20,
        logical_block: azekura_base::LogicalBlock::Bytes512,
        layer: LayerId(1),
        cut: None,
        read_only: false,
        io_timeout: None,
        groups: Arc::from([]),
        group_offset: 0,
        key: None,
        limits: None,
    }
}

/// The bytes of a PDU.
fn pdu(mut bhs: Bhs, data: &[u8]) -> Vec<u8> {
    bhs.set_data_bytes(data.len());
    [&bhs.0[..], data, &[0; 3][..data.len().wrapping_neg() % 4]].concat()
}

impl Process {
    fn new() -> Process {
        let side = || Side {
            frontend: Frontend::new(ClientLimits::default()),
            sockets: Sockets::default(),
            volumes: Volumes {
                all: [("vol1".to_owned(), Arc::new(view()))].into(),
                keys: Keyring::new(),
                asked: BTreeMap::new(),
            },
            said: VecDeque::new(),
            inbox: VecDeque::new(),
            closing: Vec::new(),
        };
        let sides = (0..SHARDS).map(|_| side()).collect();
        Process { sides, nexuses: Nexuses::default(), hosts: BTreeMap::new(), made: 0, current: None, is_one: true }
    }

    /// A front end does something, and then all that follows in its shard.
    fn front(&mut self, shard: usize, act: impl FnOnce(&mut Frontend<u32>, &mut Context<'_, u32>)) {
        let Side { frontend, sockets, volumes, said, closing, .. } = &mut self.sides[shard];
        let mut cx = Context { clients: sockets, backend: volumes, now: Duration::from_secs(1) };
        act(frontend, &mut cx);
        loop {
            while frontend.admit(&mut cx) {}
            match frontend.next_effect() {
                None => break,
                Some(Effect::Attach(name)) => {
                    frontend.volume_attached(&name, Ok((VolumeId(7), Generation(1)).into()), &mut cx);
                }
                Some(Effect::GiveBack(name, _)) => frontend.volume_given_back(&name),
                Some(Effect::Nexus(number, news)) => said.push_back((number, news)),
                Some(Effect::Close(conn, _)) => closing.push(conn),
                Some(_) => {}
            }
        }
        self.read(shard);
    }

    /// What was sent to the hosts of a shard arrives.
    fn read(&mut self, shard: usize) {
        for (conn, host) in self.hosts.iter_mut().filter(|(_, host)| host.shard == shard) {
            let Some(client) = self.sides[shard].sockets.0.get_mut(conn) else { continue };
            let mut pieces = Vec::new();
            client.protocol().outbox_mut().take(&mut pieces, usize::MAX, usize::MAX);
            host.received.extend(pieces.concat());
            while host.received.len() >= BHS_SIZE {
                let mut bhs = Bhs::new(0);
                bhs.0.copy_from_slice(&host.received[..BHS_SIZE]);
                let end = BHS_SIZE + bhs.data_bytes().next_multiple_of(4);
                if host.received.len() < end {
                    break;
                }
                host.received.drain(..end);
                match bhs.opcode() {
                    LOGIN_RESPONSE => {
                        assert_eq!(bhs.u16(36), 0, "the login was refused");
                        host.is_in = true;
                        self.current = Some(*conn);
                    }
                    R2T => {
                        let data_out = data_out(bhs.itt(), bhs.u32(20), 0, 0, true);
                        host.to_send.extend(pdu(data_out, &vec![*conn as u8; SECTOR]));
                    }
                    TASK_MANAGEMENT_RESPONSE => host.functions += 1,
                    _ => {}
                }
            }
        }
    }

    fn log_in(&mut self, shard: usize, name: &str) {
        self.made += 1;
        let conn = self.made;
        let keys = text(&[("InitiatorName", name), ("TargetName", TARGET)]);
        let to_send = VecDeque::from(pdu(login(1, 3).bhs(), &keys));
        self.hosts.insert(conn, Host { shard, to_send, received: Vec::new(), is_in: false, cmd_sn: 10, functions: 0 });
        let client = Client::new(Box::new(Connection::new(256 << 10, Some(([10, 0, 0, 1], 3260).into()), None)));
        self.sides[shard].sockets.0.insert(conn, client);
        assert!(self.sides[shard].frontend.connect(conn, Duration::from_secs(1)));
    }

    fn write(&mut self, conn: u32, block: u8, whole: bool) {
        let host = self.hosts.get_mut(&conn).unwrap();
        if !host.is_in {
            return;
        }
        let mut write = command(&write_10(u32::from(block), 1), 0, SECTOR as u32, true);
        write.itt = host.cmd_sn;
        let bhs = write.bhs(host.cmd_sn, 0);
        host.cmd_sn += 1;
        let data = vec![conn as u8; if whole { SECTOR } else { 0 }];
        host.to_send.extend(pdu(bhs, &data));
    }

    fn deliver(&mut self, conn: u32, most: usize) {
        let host = self.hosts.get_mut(&conn).unwrap();
        let (shard, mut left) = (host.shard, most);
        loop {
            let (Some(client), Some(host)) = (self.sides[shard].sockets.0.get_mut(&conn), self.hosts.get_mut(&conn))
            else {
                return;
            };
            if host.to_send.is_empty() || left == 0 || !client.wants_bytes() {
                return;
            }
            let inbox = client.protocol().inbox_mut();
            let mut fill = inbox.take_fill();
            let count = host.to_send.len().min(left).min(fill.buf.len() - fill.at);
            let bytes: Vec<u8> = host.to_send.drain(..count).collect();
            fill.buf[fill.at..fill.at + count].copy_from_slice(&bytes);
            inbox.filled(fill, count);
            left -= count;
            self.front(shard, |frontend, cx| frontend.pump(conn, cx));
        }
    }

    fn gone(&mut self, conn: u32) {
        let Some(host) = self.hosts.remove(&conn) else { return };
        self.sides[host.shard].sockets.0.remove(&conn);
        self.front(host.shard, |frontend, _| frontend.gone(conn));
    }

    fn answer(&mut self, shard: usize, which: usize) {
        let asked = &mut self.sides[shard].volumes.asked;
        let Some(token) = asked.keys().nth(which % asked.len().max(1)).copied() else { return };
        asked.remove(&token);
        self.front(shard, |frontend, cx| frontend.complete(token, Outcome::Done, cx));
    }

    fn step(&mut self, step: &Step) {
        let host = |process: &Process, which: usize| process.hosts.keys().rev().nth(which).copied();
        match *step {
            Step::LogIn(shard) => {
                self.log_in(shard, ME);
                self.deliver(self.made, usize::MAX);
            }
            Step::Write(which, block, whole) => {
                host(self, which).into_iter().for_each(|conn| self.write(conn, block, whole))
            }
            Step::Deliver(which, bytes) => host(self, which).into_iter().for_each(|conn| self.deliver(conn, bytes)),
            Step::HangUp(which) => host(self, which).into_iter().for_each(|conn| self.gone(conn)),
            Step::Close(shard) => {
                std::mem::take(&mut self.sides[shard].closing).into_iter().for_each(|conn| self.gone(conn));
            }
            Step::Answer(shard, which) => self.answer(shard, which),
            Step::Hear(shard) => {
                if let Some((number, news)) = self.sides[shard].said.pop_front() {
                    self.nexuses.heard(Member { shard: Shard(shard as u8), number }, news);
                }
                while let Some(word) = self.nexuses.next_word() {
                    self.sides[usize::from(word.member().shard.0)].inbox.push_back(word);
                }
            }
            Step::Pass => {
                for shard in 0..SHARDS {
                    self.step(&Step::Hear(shard));
                    self.step(&Step::Tell(shard));
                }
            }
            Step::Tell(shard) => {
                if let Some(word) = self.sides[shard].inbox.pop_front() {
                    self.front(shard, |frontend, cx| frontend.told(word, cx));
                }
            }
        }
        self.check();
    }

    /// Only the session whose login was answered last has something under way.
    fn check(&self) {
        if !self.is_one {
            return;
        }
        for op in self.sides.iter().flat_map(|side| side.volumes.asked.values()) {
            let Op::Write { bytes, .. } = op else { panic!("{op:?} was not asked for") };
            let current = self.current.map(|conn| conn as u8);
            assert_eq!(Some(bytes[0]), current, "a write of an earlier session is under way");
        }
        let others = self.hosts.iter().filter(|(conn, host)| host.is_in && Some(**conn) != self.current);
        assert_eq!(others.count(), 0, "the earlier session's connection stands");
    }

    /// Everything arrives, but that nobody hangs up.
    fn settle(&mut self) {
        for _ in 0..400 {
            for shard in 0..SHARDS {
                [Step::Hear(shard), Step::Tell(shard), Step::Close(shard), Step::Answer(shard, 0)]
                    .iter()
                    .for_each(|step| self.step(step));
            }
            (0..self.hosts.len()).for_each(|which| self.step(&Step::Deliver(which, usize::MAX)));
        }
    }
}

proptest! {
    #[test]
    fn a_session_is_reinstated_at_any_moment_of_the_earlier_ones_life(steps in steps()) {
        let mut process = Process::new();
        steps.iter().for_each(|step| process.step(step));
        process.settle();
        prop_assert!(process.hosts.len() <= 1, "{} connections stand", process.hosts.len());
        prop_assert!(process.hosts.values().all(|host| host.is_in), "it waits for ever");
        let hosts: Vec<u32> = process.hosts.keys().copied().collect();
        hosts.into_iter().for_each(|conn| process.gone(conn));
        process.settle();
        prop_assert!(process.nexuses.is_empty());
    }
}

#[test]
fn a_reset_reaches_sessions_on_other_shards_and_waits_for_their_writes() {
    let mut process = Process { is_one: false, ..Process::new() };
    let pass = |process: &mut Process| {
        for _ in 0..10 {
            (0..SHARDS)
                .for_each(|shard| [Step::Hear(shard), Step::Tell(shard)].iter().for_each(|step| process.step(step)));
            (0..process.hosts.len()).for_each(|which| process.step(&Step::Deliver(which, usize::MAX)));
        }
    };
    for (shard, name) in [(0, ME), (1, YOU), (2, "iqn.2000-01.example:third")] {
        process.log_in(shard, name);
        process.deliver(process.made, usize::MAX);
    }
    pass(&mut process);
    assert!(process.hosts.values().all(|host| host.is_in));
    process.write(2, 0, true);
    process.write(3, 1, true);
    pass(&mut process);
    let mut reset = Bhs::new(TASK_MANAGEMENT | 0x40);
    reset.0[1] = 0x85;
    process.hosts.get_mut(&1).unwrap().to_send.extend(pdu(reset, &[]));
    pass(&mut process);
    let functions = |process: &Process| process.hosts[&1].functions;
    assert_eq!(functions(&process), 0, "writes are under way");
    process.step(&Step::Answer(1, 0));
    pass(&mut process);
    assert_eq!(functions(&process), 0, "one is under way");
    // The other one is that of a host whose connection breaks.
    process.gone(3);
    pass(&mut process);
    assert_eq!(functions(&process), 0, "it still is");
    process.step(&Step::Answer(2, 0));
    pass(&mut process);
    assert_eq!(functions(&process), 1);
}
