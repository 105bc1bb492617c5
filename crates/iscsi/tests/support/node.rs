//! A node of one shard with the real front end, volumes in memory, and hosts that log in to targets.
#![allow(dead_code, clippy::unwrap_used)]

use super::{collect, login, text};
use azekura_base::{Bounds, Generation, GrantId, HostName, Inbox, LayerId, LogicalBlock, Role, Shard, VolumeId};
use azekura_frontend::{
    Admission, Attachment, Client, ClientLimits, Clients, Context, Effect, Frontend, HostProof, HostRight, Member,
    Nexuses, Reservations, Right, Targets, VolumeUse,
};
use azekura_gateway::{Backend, Keyring, Op, Outcome, Piece, VolumeView};
use azekura_iscsi::Connection;
use azekura_iscsi::pdu::initiator::{ScsiCommand, TASK_MANAGEMENT};
use azekura_iscsi::pdu::reader::{Pdu, Reader};
use azekura_iscsi::pdu::target::{self, DATA_IN, R2T, SCSI_RESPONSE};
use azekura_iscsi::pdu::{Bhs, Digests};
use azekura_model::ReservationsRecord;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub const BYTES: usize = 1 << 20;
/// Connections from here on have no sockets.
const BRANCHES: u32 = 1000;

/// Volumes in memory, which answer when they are told to.
#[derive(Default)]
pub struct Disks {
    views: BTreeMap<String, Arc<VolumeView>>,
    pub bytes: BTreeMap<String, Vec<u8>>,
    keys: Keyring,
    pub ended: BTreeSet<(VolumeId, Generation)>,
    /// What has no answer yet.
    pub asked: BTreeMap<u64, (String, Generation, Op)>,
    /// Volumes that take nothing now.
    pub stuck: BTreeSet<String>,
}

impl Backend for Disks {
    fn keys(&self) -> &Keyring {
        &self.keys
    }

    fn volumes(&self) -> &BTreeMap<String, Arc<VolumeView>> {
        &self.views
    }

    fn revision(&self) -> u64 {
        1
    }

    fn has_room(&self, volume: &str) -> bool {
        !self.stuck.contains(volume)
    }

    fn is_ended(&self, volume: VolumeId, attachment: Generation) -> bool {
        self.ended.contains(&(volume, attachment))
    }

    fn submit(&mut self, token: u64, volume: &str, attachment: Generation, op: Op) {
        self.asked.insert(token, (volume.to_owned(), attachment, op));
    }
}

impl Disks {
    fn perform(&mut self, volume: &str, op: Op) -> Outcome {
        let Some(held) = self.bytes.get_mut(volume) else {
            return Outcome::Failed(azekura_base::IoStatus::Gone);
        };
        let at = |offset: u64, len: usize| offset as usize..offset as usize + len;
        match op {
            Op::Read { offset, len } => {
                Outcome::Read(vec![Piece::Data(Bytes::copy_from_slice(&held[at(offset, len as usize)]))])
            }
            Op::Write { offset, bytes } => {
                held[at(offset, bytes.len())].copy_from_slice(&bytes);
                Outcome::Done
            }
            Op::Zero { offset, len } => {
                held[at(offset, len as usize)].fill(0);
                Outcome::Done
            }
            other => panic!("{other:?} is not asked for"),
        }
    }
}

#[derive(Default)]
struct Sockets(BTreeMap<u32, Client>, u32);

impl Clients<u32> for Sockets {
    fn client(&mut self, conn: u32) -> Option<&mut Client> {
        self.0.get_mut(&conn)
    }

    fn branch(&mut self, _: u32, client: Client) -> Option<u32> {
        self.1 += 1;
        self.0.insert(BRANCHES + self.1, client);
        Some(BRANCHES + self.1)
    }

    fn unsent_bytes(&mut self, _: u32) -> usize {
        0
    }
}

/// See the module's description.
pub struct Node {
    frontend: Frontend<u32>,
    sockets: Sockets,
    pub disks: Disks,
    nexuses: Nexuses,
    conns: u32,
    attached: u64,
    /// Volumes that others have, and those that hosts have here to be read.
    pub refused: BTreeSet<String>,
    pub reads_only: BTreeSet<String>,
    /// Volumes that are attached when it is said so.
    pub slow: BTreeSet<String>,
    waiting: Vec<VolumeUse>,
    /// The attachment of each volume.
    pub attachments: BTreeMap<String, Generation>,
    pub to_write: Vec<String>,
    pub closed: BTreeSet<u32>,
    /// What they were sent last.
    last: BTreeMap<u32, Vec<u8>>,
    /// What is asked of volumes is answered at once.
    pub answers: bool,
    /// Changes of reservations that are heeded.
    pub heeded: Vec<u64>,
}

impl Node {
    /// With these volumes, and this target.
    pub fn new(volumes: &[&str], units: &[(u16, &str)]) -> Node {
        let mut node = Node {
            frontend: Frontend::new(ClientLimits::default()),
            sockets: Sockets::default(),
            disks: Disks::default(),
            nexuses: Nexuses::default(),
            conns: 0,
            attached: 0,
            refused: BTreeSet::new(),
            reads_only: BTreeSet::new(),
            slow: BTreeSet::new(),
            waiting: Vec::new(),
            attachments: BTreeMap::new(),
            to_write: Vec::new(),
            closed: BTreeSet::new(),
            last: BTreeMap::new(),
            answers: true,
            heeded: Vec::new(),
        };
        for (name, id) in volumes.iter().zip(1..) {
            let view = VolumeView {
                id: VolumeId(id),
                name: (*name).to_owned(),
                size: BYTES as u64,
                logical_block: LogicalBlock::Bytes512,
                layer: LayerId(id),
                cut: None,
                read_only: false,
                io_timeout: None,
                groups: Arc::from([]),
                group_offset: 0,
                key: None,
                limits: None,
            };
            node.disks.views.insert((*name).to_owned(), Arc::new(view));
            node.disks.bytes.insert((*name).to_owned(), vec![id as u8; BYTES]);
        }
        node.admit(true, &[]);
        node.set_units(units);
        node
    }

    /// Hosts may open these volumes alone; `open`: everybody may all.
    pub fn admit(&mut self, open: bool, rights: &[(&str, &[&str])]) {
        let right = |(host, volumes): &(&str, &[&str])| {
            let volumes = Some(volumes.iter().map(|name| (*name).to_owned()).collect());
            let right = Right { name: (*host).to_owned(), role: Role::User, bounds: Bounds::All, volumes };
            let host: HostName = host.parse().unwrap();
            (host, HostRight { grant: GrantId(1), proof: HostProof::Name, right })
        };
        let hosts = rights.iter().map(right).collect();
        let admission =
            Admission { is_known: true, open, host_paths: true, compares: true, hosts, ..Admission::default() };
        self.front(|frontend, cx| frontend.admit_by(Arc::new(admission), cx));
        self.turn();
    }

    /// The target `t` has these units from now on.
    pub fn set_units(&mut self, units: &[(u16, &str)]) {
        let mut targets = Targets::default();
        targets.add("t", units.iter().map(|(number, volume)| (*number, (*volume).to_owned())).collect());
        self.front(|frontend, cx| frontend.set_targets(Arc::new(targets), cx));
        self.turn();
    }

    /// The first volume has these reservations from now on.
    pub fn set_reservations(&mut self, record: ReservationsRecord) {
        let all = BTreeMap::from([(VolumeId(1), Arc::new(Reservations::of(record)))]);
        self.front(|frontend, cx| frontend.reservations_known(all, cx));
        self.turn();
    }

    pub fn delete(&mut self, volume: &str) {
        self.disks.views.remove(volume);
        self.disks.bytes.remove(volume);
        self.front(Frontend::volumes_changed);
        self.turn();
    }

    fn front<T>(&mut self, act: impl FnOnce(&mut Frontend<u32>, &mut Context<'_, u32>) -> T) -> T {
        let now = Duration::from_secs(1);
        let mut cx = Context { clients: &mut self.sockets, backend: &mut self.disks, now };
        act(&mut self.frontend, &mut cx)
    }

    /// Does all that can be done.
    pub fn turn(&mut self) {
        loop {
            let mut idle = !self.front(Frontend::admit);
            self.front(Frontend::settle);
            while let Some(effect) = self.frontend.next_effect() {
                idle &= matches!(effect, Effect::Touched(_));
                self.perform(effect);
            }
            if self.answers && !self.disks.asked.is_empty() {
                self.answer();
                idle = false;
            }
            if idle {
                return;
            }
        }
    }

    /// Volumes answer what they were asked.
    pub fn answer(&mut self) {
        while let Some((token, (volume, attachment, op))) = self.disks.asked.pop_first() {
            let id = self.disks.views.get(&volume).map(|view| view.id);
            let outcome = match id.is_some_and(|id| self.disks.ended.contains(&(id, attachment))) {
                true => Outcome::Failed(azekura_base::IoStatus::Fenced),
                false => self.disks.perform(&volume, op),
            };
            self.front(|frontend, cx| frontend.complete(token, outcome, cx));
        }
    }

    fn perform(&mut self, effect: Effect<u32>) {
        match effect {
            Effect::Close(conn, _) if conn > BRANCHES => {
                let client = self.sockets.0.remove(&conn);
                self.front(|frontend, cx| frontend.branch_gone(conn, client, cx));
            }
            Effect::Close(conn, _) => {
                let last = self.take(conn);
                self.last.insert(conn, last);
                self.closed.insert(conn);
                self.sockets.0.remove(&conn);
                self.frontend.gone(conn);
            }
            Effect::Attach(which) if self.slow.contains(&which.volume) => self.waiting.push(which),
            Effect::Attach(which) => self.attach(&which),
            Effect::AttachToWrite(which) => self.to_write.push(which.volume),
            Effect::GiveBack(which, _) => self.frontend.volume_given_back(&which),
            Effect::Nexus(number, news) => {
                self.nexuses.heard(Member { shard: Shard(0), number }, news);
                while let Some(word) = self.nexuses.next_word() {
                    self.front(|frontend, cx| frontend.told(word, cx));
                }
            }
            Effect::ReadConfiguration => self.front(|frontend, cx| frontend.configuration_read(Some(1), cx)),
            Effect::Heeds(_, number) => self.heeded.push(number),
            Effect::Touched(_) | Effect::Orphaned(_) | Effect::Warn(_) | Effect::Ended(..) => {}
            other => panic!("{other:?} is not asked for"),
        }
    }

    fn attach(&mut self, which: &VolumeUse) {
        self.attached += 1;
        let volume = self.disks.views[&which.volume].id;
        let (generation, writes) = (Generation(self.attached), !self.reads_only.contains(&which.volume));
        let outcome = match self.refused.contains(&which.volume) {
            true => Err("another node has it".to_owned()),
            false => {
                self.attachments.insert(which.volume.clone(), generation);
                Ok(Attachment { volume, generation, writes })
            }
        };
        self.front(|frontend, cx| frontend.volume_attached(which, outcome, cx));
    }

    /// What has waited to be attached is.
    pub fn attach_all(&mut self) {
        self.slow.clear();
        for which in std::mem::take(&mut self.waiting) {
            self.attach(&which);
        }
        self.turn();
    }

    /// The attachment of a volume has ended: another node has it.
    pub fn ends(&mut self, volume: &str) {
        let attachment = self.attachments.remove(volume).unwrap();
        self.disks.ended.insert((self.disks.views[volume].id, attachment));
        self.frontend.attachments_ended();
        self.turn();
    }

    fn connect(&mut self) -> u32 {
        self.conns += 1;
        assert!(self.frontend.connect(self.conns, Duration::from_secs(1)));
        let portal = Some(([10, 0, 0, 1], 3260).into());
        let connection = Connection::new(256 << 10, portal, None);
        self.sockets.0.insert(self.conns, Client::host(Box::new(connection)));
        self.conns
    }

    fn send(&mut self, conn: u32, bhs: Bhs, data: &[u8]) {
        let mut out = azekura_base::Outbox::new();
        target::put(&mut out, Digests::default(), bhs, &[Bytes::copy_from_slice(data)]);
        let mut pieces = Vec::new();
        out.take(&mut pieces, usize::MAX, usize::MAX);
        for piece in pieces.concat().chunks(3000) {
            let Some(client) = self.sockets.0.get_mut(&conn) else { return };
            let inbox = client.protocol().inbox_mut();
            let mut fill = inbox.take_fill();
            let count = piece.len().min(fill.buf.len() - fill.at);
            assert_eq!(count, piece.len(), "there is room");
            fill.buf[fill.at..fill.at + count].copy_from_slice(piece);
            inbox.filled(fill, count);
            self.front(|frontend, cx| frontend.pump(conn, cx));
        }
        self.turn();
    }

    fn take(&mut self, conn: u32) -> Vec<u8> {
        let Some(client) = self.sockets.0.get_mut(&conn) else { return self.last.remove(&conn).unwrap_or_default() };
        let mut pieces = Vec::new();
        client.protocol().outbox_mut().take(&mut pieces, usize::MAX, usize::MAX);
        pieces.concat()
    }
}

/// A session of a host.
pub struct Host {
    pub conn: u32,
    reader: Reader,
    inbox: Inbox,
    cmd_sn: u32,
    /// The number of the next status.
    pub exp_stat_sn: u32,
    itt: u32,
}

/// How a command ended: its data, its status, and sense key and code.
pub type Answer = (Vec<u8>, u8, Option<(u8, u8, u8)>);

pub const GOOD: u8 = 0;
pub const CHECK: u8 = 2;
pub const BUSY: u8 = 8;
pub const FULL: u8 = 0x28;

impl Host {
    /// A host that has logged in.
    pub fn log_in(node: &mut Node, initiator: &str, target: &str) -> Host {
        let (host, status) = Host::try_log_in(node, initiator, target);
        assert_eq!(status, Some(0));
        host
    }

    /// The same; how its login was answered, if it was.
    pub fn try_log_in(node: &mut Node, initiator: &str, target: &str) -> (Host, Option<u16>) {
        let conn = node.connect();
        let (reader, inbox) = (Reader::default(), Inbox::new());
        let mut host = Host { conn, reader, inbox, cmd_sn: 10, exp_stat_sn: 0, itt: 100 };
        node.send(conn, login(1, 3).bhs(), &text(&[("InitiatorName", initiator), ("TargetName", target)]));
        let pdus = host.received(node);
        (host, pdus.first().map(|pdu| pdu.bhs.u16(36)))
    }

    /// All that was sent to it.
    pub fn received(&mut self, node: &mut Node) -> Vec<Pdu> {
        let bytes = node.take(self.conn);
        let (mut rest, mut pdus) = (&bytes[..], Vec::new());
        loop {
            while let Some(pdu) = self.reader.next(&mut self.inbox, usize::MAX).unwrap() {
                let has_status = pdu.bhs.opcode() != R2T && (pdu.bhs.opcode() != DATA_IN || pdu.bhs.0[1] & 1 != 0);
                if has_status {
                    self.exp_stat_sn = pdu.bhs.u32(24).wrapping_add(1);
                }
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

    /// Sends a command with its data, which had so many statuses acknowledged. Gives its tag.
    pub fn send_as_of(
        &mut self,
        node: &mut Node,
        exp_stat_sn: u32,
        lun: u16,
        cdb: &[u8],
        room: u32,
        data: (&[u8], usize),
    ) -> u32 {
        let (mut padded, mut address) = ([0; 16], [0; 8]);
        padded[..cdb.len()].copy_from_slice(cdb);
        address[..2].copy_from_slice(&lun.to_be_bytes());
        self.itt += 1;
        let (write_bytes, itt) = (data.0.len() as u32, self.itt);
        let command = ScsiCommand { is_final: true, read_bytes: room, write_bytes, lun: address, itt, cdb: padded };
        let bhs = command.bhs(self.cmd_sn, exp_stat_sn);
        self.cmd_sn += 1;
        node.send(self.conn, bhs, &data.0[..data.1]);
        itt
    }

    /// Sends a command that reads at most `room` bytes. Gives its tag.
    pub fn send(&mut self, node: &mut Node, lun: u16, cdb: &[u8], room: u32) -> u32 {
        self.send_as_of(node, self.exp_stat_sn, lun, cdb, room, (&[], 0))
    }

    /// A command that reads at most `room` bytes, and its answer.
    pub fn read(&mut self, node: &mut Node, lun: u16, cdb: &[u8], room: u32) -> Answer {
        self.send(node, lun, cdb, room);
        let pdus = self.received(node);
        answer(&pdus)
    }

    /// A command that writes `data`, all of which comes with it.
    pub fn write(&mut self, node: &mut Node, lun: u16, cdb: &[u8], data: &[u8]) -> Answer {
        self.send_as_of(node, self.exp_stat_sn, lun, cdb, 0, (data, data.len()));
        let pdus = self.received(node);
        answer(&pdus)
    }

    /// Writes until the unit takes it, as hosts do.
    pub fn write_at_last(&mut self, node: &mut Node, lun: u16, cdb: &[u8], data: &[u8]) {
        for _ in 0..5 {
            match self.write(node, lun, cdb, data) {
                (_, GOOD, _) => return,
                (_, status, sense) => assert!(status == BUSY || sense.unwrap().0 == 6, "{status} {sense:?}"),
            }
        }
        panic!("it is not taken");
    }

    /// A function of task management; how it is answered, if it is.
    pub fn function(&mut self, node: &mut Node, function: u8, lun: u16, itt: u32) -> Option<u8> {
        let mut bhs = Bhs::new(TASK_MANAGEMENT | 0x40);
        bhs.0[1] = 0x80 | function;
        let mut address = [0; 8];
        address[..2].copy_from_slice(&lun.to_be_bytes());
        bhs.put(8, &address);
        self.itt += 1;
        bhs.put_u32(16, self.itt);
        bhs.put_u32(20, itt);
        bhs.put_u32(24, self.cmd_sn);
        bhs.put_u32(28, self.exp_stat_sn);
        node.send(self.conn, bhs, &[]);
        self.functions(node).first().copied()
    }

    /// Answers to functions that have come.
    pub fn functions(&mut self, node: &mut Node) -> Vec<u8> {
        let pdus = self.received(node);
        let done = pdus.iter().filter(|pdu| pdu.bhs.opcode() == target::TASK_MANAGEMENT_RESPONSE);
        done.map(|pdu| pdu.bhs.0[2]).collect()
    }
}

/// The answer to one command.
pub fn answer(pdus: &[Pdu]) -> Answer {
    let (data, status, sense) = collect(pdus);
    let sense = (sense.len() > 13).then(|| (sense[2] & 0xf, sense[12], sense[13]));
    (data, status, sense)
}

/// Answers to several, by tag.
pub fn answers(pdus: Vec<Pdu>) -> BTreeMap<u32, Answer> {
    let mut by_tag: BTreeMap<u32, Vec<Pdu>> = BTreeMap::new();
    for pdu in pdus {
        assert!([DATA_IN, SCSI_RESPONSE].contains(&pdu.bhs.opcode()), "{pdu:?}");
        by_tag.entry(pdu.bhs.itt()).or_default().push(pdu);
    }
    by_tag.into_iter().map(|(itt, pdus)| (itt, answer(&pdus))).collect()
}
