//! Copies of one group, wired together by hand: their logs, the connections between them, and the configuration.
//!
//! Nothing happens by itself: messages wait in their connections, records wait for their disk, until a test says so.

#![allow(dead_code)]

mod configuration;
mod disks;
mod log;
mod network;
mod requests;
mod time;

#[allow(unused_imports)] // Each test file uses its part of them.
pub use requests::{blocks, bytes, compared, zeros};

use azekura_base::*;
use azekura_replica::*;
use azekura_wire::{Fence, Message, ReadRequest, WriteRequest};
use bytes::Bytes;
use log::Item;
pub use log::Log;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub const PG: PgId = PgId(1);
pub const LAYER: LayerId = LayerId(1);
pub const SESSION: SessionId = SessionId(7);
pub const VOLUME: VolumeId = VolumeId(3);
/// The attachment that writes come from, unless a test says otherwise.
pub const ATTACHMENT: Generation = Generation(1);
/// The gateway, as groups name it.
pub const GATEWAY: Client = Client::Conn(1);

/// The n-th device; 0 is the primary.
pub fn device(n: u32) -> DeviceId {
    DeviceId(n + 1)
}

pub struct Copy {
    pub group: Group,
    /// On the disk.
    durable: Log,
    /// In memory: what the disk will hold when everything has got there, and what is committed.
    live: Log,
    writing: VecDeque<(Item, u32)>,
    /// Blocks that the group wants: id, chunk, first, count.
    loads: VecDeque<(u64, ChunkIndex, u16, u16)>,
    /// Chunks of which the group wants the checksums.
    lookups: VecDeque<(u64, ChunkIndex)>,
    /// Listings of changes that the group wants.
    listings: VecDeque<(u64, DeviceId, Sequence)>,
}

/// The copies, and everything between them.
pub struct Cluster {
    pub config: GroupConfig,
    pub copies: BTreeMap<DeviceId, Copy>,
    /// The connection that one copy's node dialled to another's.
    conns: BTreeMap<(DeviceId, DeviceId), u64>,
    conns_made: u64,
    requests: BTreeMap<u64, VecDeque<Message>>,
    answers: BTreeMap<u64, VecDeque<Message>>,
    proposals: VecDeque<(DeviceId, GroupConfig)>,
    /// Edges that merges wait for: device, merge, block, chunk.
    pub edges: VecDeque<(DeviceId, u64, BlockIndex, ChunkIndex)>,
    /// Answers to writes, by request.
    pub answered: BTreeMap<RequestId, Result<(), IoStatus>>,
    /// Answers to fences, by request.
    pub fenced: BTreeMap<RequestId, Result<(), IoStatus>>,
    /// What the last read gave.
    pub read: Option<Result<Bytes, IoStatus>>,
    /// Sequences that each secondary was sent.
    pub prepares: Vec<(DeviceId, Sequence)>,
    /// What was ever committed, anywhere, by place.
    pub history: BTreeMap<Sequence, (SessionId, RequestId)>,
    /// Blocks of chunk 0 that can't be read, by copy.
    pub damaged: BTreeSet<(DeviceId, u16)>,
    /// Blocks of chunk 0 that devices refuse to give, and say so.
    pub refused: BTreeSet<(DeviceId, u16)>,
    /// Copies whose map can't be read.
    pub unreadable_maps: BTreeSet<DeviceId>,
    /// Questions of scrubs are lost on their way.
    pub deaf_to_scrubs: bool,
    /// So many repairs are taken for none by who gets them: the layer is one that it does not have any more.
    pub gone_repairs: u32,
    /// Copies whose device can't read back what is prepared.
    pub unreadable_logs: BTreeSet<DeviceId>,
    /// Reports of scrubs.
    pub scrubbed: Vec<ScrubReport>,
    /// What each of them has found.
    pub findings: Vec<Vec<Finding>>,
    /// Blocks that were said to be written anew.
    pub mended: BTreeSet<(DeviceId, BlockIndex)>,
    /// Those of them that no scrub tells of.
    pub mended_for_readers: BTreeSet<(DeviceId, BlockIndex)>,
    /// Blocks that no copy can give.
    pub reported: Vec<Action>,
    /// Payload blocks that were sent as repairs.
    pub repaired: u64,
    /// Blocks that groups have read.
    pub blocks_read: u64,
    lives: u64,
    /// Notes that copies want kept, and whether they wait for [`Cluster::save_notes`].
    notes: Vec<(DeviceId, u64)>,
    pub notes_wait: bool,
    /// The configuration store does not answer.
    pub store_away: bool,
    /// Copies that hear of no decision.
    pub deaf: BTreeSet<DeviceId>,
    /// Devices that neither write nor read, nor fail.
    pub hanging: BTreeSet<DeviceId>,
    pub now: Duration,
}

impl Cluster {
    /// `count` new copies, connected, settled.
    pub fn new(count: u32) -> Cluster {
        Cluster::with_rule(count, AckRule::All, &[])
    }

    /// The same with an ack rule and the copies' sites.
    pub fn with_rule(count: u32, ack: AckRule, sites: &[&str]) -> Cluster {
        let in_sync: BTreeSet<DeviceId> = (0..count).map(device).collect();
        let sites = in_sync.iter().zip(sites).map(|(device, site)| (*device, (*site).into())).collect();
        let config = GroupConfig { ack, sites, ..GroupConfig::new(device(0), in_sync.clone()) };
        let mut cluster = Cluster {
            config: config.clone(),
            copies: BTreeMap::new(),
            conns: BTreeMap::new(),
            conns_made: 10,
            requests: BTreeMap::new(),
            answers: BTreeMap::new(),
            proposals: VecDeque::new(),
            edges: VecDeque::new(),
            answered: BTreeMap::new(),
            fenced: BTreeMap::new(),
            read: None,
            prepares: Vec::new(),
            history: BTreeMap::new(),
            damaged: BTreeSet::new(),
            refused: BTreeSet::new(),
            unreadable_maps: BTreeSet::new(),
            deaf_to_scrubs: false,
            gone_repairs: 0,
            unreadable_logs: BTreeSet::new(),
            scrubbed: Vec::new(),
            findings: Vec::new(),
            mended: BTreeSet::new(),
            mended_for_readers: BTreeSet::new(),
            reported: Vec::new(),
            repaired: 0,
            blocks_read: 0,
            notes: Vec::new(),
            notes_wait: false,
            store_away: false,
            deaf: BTreeSet::new(),
            hanging: BTreeSet::new(),
            lives: 0,
            now: Duration::from_secs(10),
        };
        for me in in_sync {
            cluster.add(me);
        }
        cluster.connect_all();
        cluster.settle();
        cluster.beat();
        assert_eq!(cluster.state(0), GroupState::Active);
        cluster
    }

    /// A new, empty copy that is connected to nobody.
    pub fn add(&mut self, me: DeviceId) {
        self.lives += 1;
        let group = Group::new(PG, me, self.lives, self.config.clone(), Recovered::default(), self.now);
        let copy = Copy {
            group,
            durable: Log::default(),
            live: Log::default(),
            writing: VecDeque::new(),
            loads: VecDeque::new(),
            lookups: VecDeque::new(),
            listings: VecDeque::new(),
        };
        self.copies.insert(me, copy);
        self.run(me);
    }

    pub fn copy(&mut self, n: u32) -> &mut Copy {
        self.copies.get_mut(&device(n)).unwrap()
    }

    pub fn group(&mut self, n: u32) -> &mut Group {
        &mut self.copy(n).group
    }

    pub fn state(&self, n: u32) -> GroupState {
        self.copies[&device(n)].group.state(self.now)
    }

    pub fn committed(&self, n: u32) -> u64 {
        self.copies[&device(n)].group.committed().0
    }

    fn others(&self, me: DeviceId) -> Vec<DeviceId> {
        self.copies.keys().filter(|other| **other != me).copied().collect()
    }

    /// Tells a copy that the attachments of the volume before `generation` have ended.
    pub fn fence(&mut self, n: u32, request: u64, generation: u64) {
        let fence = Fence {
            request: RequestId(request),
            pg: PG,
            volume: VOLUME,
            generation: Generation(generation),
            attachments: vec![Generation(generation)],
        };
        self.group(n).fence(GATEWAY, &fence);
        self.run(device(n));
    }

    /// A block as a copy has committed it.
    pub fn contents(&self, me: DeviceId, chunk: ChunkIndex, block: BlockIndex) -> Bytes {
        self.copies[&me].live.contents(chunk, block.0)
    }

    /// The generation of the key that a copy's write is encrypted under.
    pub fn key_of(&self, n: u32, sequence: Sequence) -> Option<KeyGeneration> {
        match &self.copies[&device(n)].live.writes[&sequence].body {
            Body::Data { checksums, .. } => Some(checksums.key()),
            _ => None,
        }
    }

    /// A block of a copy changes on its disk, checksum and all: what no checksum can tell.
    pub fn corrupt(&mut self, n: u32, block: u16) {
        let at = (ChunkIndex(0), block);
        self.copy(n).live.map.insert(at, Bytes::from(vec![0xee; BLOCK_SIZE]));
    }

    /// A copy has lost the last update of a block: its map shows what was there before, nothing.
    pub fn lose(&mut self, n: u32, block: u16) {
        let lost = self.copy(n).live.map.remove(&(ChunkIndex(0), block));
        assert!(lost.is_some(), "there is nothing to lose");
    }

    /// A copy does not know any more what a block was.
    pub fn know_nothing(&mut self, n: u32, block: u16) {
        self.copy(n).live.lost.insert((ChunkIndex(0), block), UNKNOWN_CHECKSUM);
        self.damaged.insert((device(n), block));
    }

    /// The committed contents of a whole copy; blocks of zeros are left out.
    pub fn map(&self, n: u32) -> BTreeMap<(ChunkIndex, u16), u8> {
        let log = &self.copies[&device(n)].live;
        log.map.iter().filter(|(_, block)| block[0] != 0).map(|(at, block)| (*at, block[0])).collect()
    }

    /// The order of a copy: which request is at which place.
    pub fn order(&self, n: u32) -> Vec<RequestId> {
        let log = &self.copies[&device(n)].live;
        log.writes.range(..=log.committed).map(|(_, write)| write.header.request).collect()
    }

    /// A copy's process ends; its disk stays.
    pub fn kill(&mut self, n: u32) -> Copy {
        self.isolate(n);
        self.proposals.retain(|(proposer, _)| *proposer != device(n));
        self.edges.retain(|(edge, ..)| *edge != device(n));
        self.copies.remove(&device(n)).unwrap()
    }

    /// A killed copy starts again, with what its disk has.
    pub fn revive(&mut self, n: u32, copy: Copy) {
        self.copies.insert(device(n), copy);
        self.restart(n, 0);
        self.reconnect(n);
    }

    /// The number of the copy that the configuration names primary.
    pub fn primary(&self) -> u32 {
        self.config.primary.0 - 1
    }

    /// A copy's process ends and starts again; the first `kept` records on their way to its disk had got there.
    pub fn restart(&mut self, n: u32, kept: usize) {
        let me = device(n);
        for other in self.others(me) {
            self.disconnect(me, other);
            self.disconnect(other, me);
        }
        self.proposals.retain(|(proposer, _)| *proposer != me);
        self.edges.retain(|(device, ..)| *device != me);
        self.hanging.remove(&me);
        let config = self.config.clone();
        self.lives += 1;
        let copy = self.copies.get_mut(&me).unwrap();
        let writing = std::mem::take(&mut copy.writing);
        writing.iter().take(kept).for_each(|(item, _)| copy.durable.put(item));
        copy.live = copy.durable.clone();
        copy.loads.clear();
        copy.lookups.clear();
        copy.listings.clear();
        copy.group = Group::new(PG, me, self.lives, config, copy.durable.recovered(), self.now);
        self.run(me);
    }

    /// A gateway writes to the primary.
    pub fn write(&mut self, request: WriteRequest) -> Result<(), Mismatch> {
        let primary = self.config.primary.0 - 1;
        let result = self.group(primary).write(GATEWAY, request, false);
        self.run(self.config.primary);
        result
    }

    /// A gateway writes to a copy that it takes for the primary.
    pub fn write_to(&mut self, n: u32, request: WriteRequest) {
        self.group(n).write(GATEWAY, request, false).unwrap();
        self.run(device(n));
    }

    /// A gateway reads a block from a copy: what it gets at once.
    pub fn read(&mut self, n: u32, block: u16) -> Result<u8, IoStatus> {
        self.ask(n, block);
        self.answer().expect("a read is answered or refused at once")
    }

    /// A gateway asks a copy for a block.
    pub fn ask(&mut self, n: u32, block: u16) {
        let range = BlockRange::block(LAYER, ChunkIndex(0), BlockIndex(block));
        let (request, volume, attachment) = (RequestId(9), VOLUME, ATTACHMENT);
        let read = ReadRequest { request, pg: PG, volume, attachment, range };
        let now = self.now;
        self.read = None;
        self.group(n).read(GATEWAY, read, now);
        self.run(device(n));
    }

    /// What the last read gave, once it has been answered.
    pub fn answer(&mut self) -> Option<Result<u8, IoStatus>> {
        self.read.take().map(|answer| answer.map(|bytes| bytes[0]))
    }
}
