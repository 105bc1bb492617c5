//! Copies of one group, wired together by hand: their logs, the connections between them, and the configuration.
//!
//! Nothing happens by itself: messages wait in their connections, records wait for their disk, until a test says so.

#![allow(dead_code)]

mod log;
mod requests;

#[allow(unused_imports)] // Each test file uses its part of them.
pub use requests::{blocks, bytes, zeros};

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
    /// Reports of scrubs.
    pub scrubbed: Vec<ScrubReport>,
    /// What each of them has found.
    pub findings: Vec<Vec<Finding>>,
    /// Blocks that were said to be written anew.
    pub mended: BTreeSet<(DeviceId, BlockIndex)>,
    /// Blocks that no copy can give.
    pub told: Vec<Action>,
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
            scrubbed: Vec::new(),
            findings: Vec::new(),
            mended: BTreeSet::new(),
            told: Vec::new(),
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

    /// Every node dials every other.
    pub fn connect_all(&mut self) {
        let all: Vec<DeviceId> = self.copies.keys().copied().collect();
        for from in &all {
            all.iter().filter(|to| *to != from).for_each(|to| self.connect(*from, *to));
        }
    }

    /// `from` dials `to`; what was on its way on an older connection is lost.
    pub fn connect(&mut self, from: DeviceId, to: DeviceId) {
        self.disconnect(from, to);
        self.conns_made += 1;
        self.conns.insert((from, to), self.conns_made);
        self.copies.get_mut(&from).unwrap().group.peer_up(to);
        self.run(from);
    }

    pub fn disconnect(&mut self, from: DeviceId, to: DeviceId) {
        if let Some(conn) = self.conns.remove(&(from, to)) {
            self.requests.remove(&conn);
            self.answers.remove(&conn);
            self.copies.get_mut(&from).unwrap().group.peer_down(to);
            self.run(from);
        }
    }

    /// Carries out what a copy asks for.
    pub fn run(&mut self, me: DeviceId) {
        while let Some(action) = self.copies.get_mut(&me).unwrap().group.next_action() {
            self.perform(me, action);
        }
    }

    fn perform(&mut self, me: DeviceId, action: Action) {
        let copy = self.copies.get_mut(&me).unwrap();
        match action {
            Action::Append(write, life) => {
                let item = Item::Write(Box::new(write));
                copy.live.append(&item);
                copy.writing.push_back((item, life));
            }
            Action::StartEpoch { epoch, keep } => {
                let item = Item::Epoch { epoch, keep };
                copy.live.append(&item);
                copy.writing.push_back((item, 0));
            }
            Action::AppendRepair(repair) => {
                for BlockIndex(n) in repair.range.each() {
                    // It is in another place now.
                    self.refused.remove(&(me, n));
                    match repair.body {
                        Body::Lost { .. } => self.damaged.insert((me, n)),
                        _ => self.damaged.remove(&(me, n)),
                    };
                }
                assert_eq!(copy.live.committed, repair.commit, "a repair comes right behind what it contains");
                let item = Item::Repair(Box::new(repair));
                copy.live.append(&item);
                copy.writing.push_back((item, 0));
            }
            Action::LoadBlocks { id, range: at } => copy.loads.push_back((id, at.chunk, at.first.0, at.count)),
            Action::LoadChecksums { id, chunk, .. } => copy.lookups.push_back((id, chunk)),
            Action::ListChanges { id, device, after } => copy.listings.push_back((id, device, after)),
            Action::SetComplete => {
                copy.live.append(&Item::Complete);
                copy.writing.push_back((Item::Complete, 0));
            }
            Action::SaveNote(name) => {
                self.notes.push((me, name));
                if !self.notes_wait {
                    self.save_notes();
                }
            }
            Action::Commit(upto) => {
                assert!(upto <= copy.durable.end(), "invariant 1: committed before it is durable");
                assert!(upto >= copy.live.committed);
                let news = copy.live.writes.range(copy.live.committed.next()..).take_while(|(at, _)| **at <= upto);
                for (sequence, write) in news {
                    let id = (write.header.session, write.header.request);
                    let before = *self.history.entry(*sequence).or_insert(id);
                    assert_eq!(before, id, "{me} commits another write at {sequence}");
                }
                copy.live.commit(upto);
            }
            Action::LoadPrepared(sequence, epoch) => {
                assert!(sequence > copy.live.committed, "the store gives back only what is not applied yet");
                let body = copy.live.writes[&sequence].body.clone();
                copy.group.prepared_loaded(sequence, epoch, Some(body));
            }
            Action::LoadEdge { merge, block } => self.edges.push_back((me, merge, block.first, block.chunk)),
            Action::SendPrepare(to, prepare, _) => {
                self.prepares.push((to, prepare.header.sequence));
                if let Some(conn) = self.conns.get(&(me, to)) {
                    self.requests.entry(*conn).or_default().push_back(Message::Prepare(prepare));
                }
            }
            Action::Send(to, message) => {
                if let Message::Repair(repair) = &message {
                    self.repaired += u64::from(repair.range.count);
                }
                if let Some(conn) = self.conns.get(&(me, to)) {
                    self.requests.entry(*conn).or_default().push_back(message);
                }
            }
            Action::Answer(GATEWAY, Message::FenceDone(done)) => {
                self.fenced.insert(done.request, done.result);
            }
            Action::Answer(client, message) => {
                let conn = self.conns.iter().find(|((_, to), at)| *to == me && Client::Conn(**at) == client);
                let Some((_, conn)) = conn else { return };
                self.answers.entry(*conn).or_default().push_back(message);
            }
            Action::AnswerWrite(client, request, result) => {
                assert_eq!(client, GATEWAY);
                self.answered.insert(request, result);
            }
            Action::ServeRead(_, read) => self.read = Some(Ok(self.contents(me, read.range.chunk, read.range.first))),
            Action::Refuse(_, _, status) => self.read = Some(Err(status)),
            Action::Scrubbed(report, findings) => {
                self.scrubbed.push(report);
                self.findings.push(findings);
            }
            Action::Mended { device, range, .. } => drop(self.mended.insert((device, range.first))),
            action @ (Action::NoGoodCopy { .. } | Action::TooSlow(..)) => self.told.push(action),
            Action::ServeStatus(..) => {}
            Action::Propose(config) => self.proposals.push_back((me, config)),
        }
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

    /// Delivers the oldest request from one copy to another. False when there is none.
    pub fn deliver(&mut self, from: DeviceId, to: DeviceId) -> bool {
        let Some(conn) = self.conns.get(&(from, to)).copied() else { return false };
        let Some(message) = self.requests.get_mut(&conn).and_then(VecDeque::pop_front) else { return false };
        let group = &mut self.copies.get_mut(&to).unwrap().group;
        match message {
            Message::Prepare(prepare) => {
                group.prepare(Client::Conn(conn), prepare, false).expect("the primary keeps the order")
            }
            Message::Sync(sync) => group.sync(Client::Conn(conn), sync),
            Message::Learn(learn) => group.learn(Client::Conn(conn), learn).expect("the note is whole"),
            Message::Fetch(fetch) => group.fetch(Client::Conn(conn), fetch),
            Message::Compare(compare) => group.compare(Client::Conn(conn), compare),
            Message::HandOver(hand_over) => group.inherit(Client::Conn(conn), hand_over),
            Message::Repair(repair) => group.repair(Client::Conn(conn), repair).expect("the primary keeps the order"),
            other => panic!("{other:?}"),
        }
        group.flush_acks();
        self.run(to);
        true
    }

    /// Delivers the oldest answer to what `from` asked `to`. False when there is none.
    pub fn deliver_answer(&mut self, from: DeviceId, to: DeviceId) -> bool {
        let Some(conn) = self.conns.get(&(from, to)).copied() else { return false };
        let Some(message) = self.answers.get_mut(&conn).and_then(VecDeque::pop_front) else { return false };
        let group = &mut self.copies.get_mut(&from).unwrap().group;
        match message {
            Message::PrepareOk(ok) => group.prepare_ok(to, ok),
            Message::SyncOk(ok) => group.sync_ok(to, ok),
            Message::LearnOk(ok) => group.learn_ok(to, ok),
            Message::Leaving(leaving) => group.peer_leaving(to, leaving),
            Message::Damaged(damaged) => group.damaged(to, damaged),
            Message::Fetched(fetched) => group.fetched(to, fetched),
            Message::CompareOk(ok) => group.compare_ok(to, ok),
            Message::RepairOk(ok) => group.repair_ok(to, ok),
            other => panic!("{other:?}"),
        }
        self.run(from);
        true
    }

    /// The oldest record on its way to a copy's disk gets there. False when there is none.
    pub fn persist(&mut self, me: DeviceId) -> bool {
        if self.hanging.contains(&me) {
            return false;
        }
        let copy = self.copies.get_mut(&me).unwrap();
        let Some((item, life)) = copy.writing.pop_front() else { return false };
        copy.durable.put(&item);
        match item {
            Item::Write(write) => copy.group.appended(write.header.sequence, life),
            Item::Epoch { epoch, .. } => copy.group.epoch_started(epoch),
            Item::Repair(repair) => copy.group.repair_appended(repair.epoch, repair.id),
            Item::Complete => {}
        }
        copy.group.flush_acks();
        self.run(me);
        true
    }

    /// The oldest proposal is decided, and everybody is told who is not deaf. False when there is none.
    pub fn decide(&mut self) -> bool {
        let deaf = self.deaf.clone();
        self.decide_and_tell(|device| !deaf.contains(&device))
    }

    /// The same; `deaf` is told nothing, and what it proposes does not arrive.
    pub fn decide_without(&mut self, deaf: DeviceId) -> bool {
        self.proposals.retain(|(proposer, _)| *proposer != deaf);
        self.decide_and_tell(|device| device != deaf)
    }

    /// The oldest proposal is made, and so is a later change by somebody else; the proposer hears only that it was
    /// refused, since it asks again when the later change stands. False when there is none.
    pub fn decide_unheard(&mut self) -> bool {
        let Some((me, proposal)) = self.proposals.pop_front() else { return false };
        let version = proposal.version;
        assert_eq!(self.config.version + 1, version);
        self.config = proposal;
        self.config.version += 1;
        self.copies.get_mut(&me).unwrap().group.proposal_done(version, false);
        self.run(me);
        true
    }

    /// A checkpoint keeps the notes that wait for it.
    pub fn save_notes(&mut self) {
        for (me, name) in std::mem::take(&mut self.notes) {
            let group = &mut self.copies.get_mut(&me).unwrap().group;
            group.note_saved(name);
            self.run(me);
        }
    }

    /// The oldest proposal is made, and nobody hears of it yet. False when there is none.
    pub fn decide_in_silence(&mut self) -> bool {
        let Some((_, proposal)) = self.proposals.pop_front() else { return false };
        assert_eq!(self.config.version + 1, proposal.version);
        self.config = proposal;
        true
    }

    /// What a copy has proposed does not arrive.
    pub fn lose_proposals(&mut self, n: u32) {
        self.proposals.retain(|(proposer, _)| *proposer != device(n));
    }

    /// A copy reads the configuration.
    pub fn inform(&mut self, n: u32) {
        let config = self.config.clone();
        self.group(n).configure(config);
        self.run(device(n));
    }

    fn decide_and_tell(&mut self, hears: impl Fn(DeviceId) -> bool) -> bool {
        if self.store_away {
            return false;
        }
        let Some((me, proposal)) = self.proposals.pop_front() else { return false };
        let version = proposal.version;
        let accepted = self.config.version + 1 == version;
        if accepted {
            self.config = proposal;
        }
        self.copies.get_mut(&me).unwrap().group.proposal_done(version, accepted);
        self.run(me);
        for other in self.copies.keys().copied().filter(|device| hears(*device)).collect::<Vec<_>>() {
            let config = self.config.clone();
            self.copies.get_mut(&other).unwrap().group.configure(config);
            self.run(other);
        }
        true
    }

    /// Reads what a copy wants to read. False when there is nothing.
    pub fn load(&mut self, me: DeviceId) -> bool {
        if self.hanging.contains(&me) {
            return false;
        }
        let copy = self.copies.get_mut(&me).unwrap();
        if let Some((id, chunk, first, count)) = copy.loads.pop_front() {
            if chunk == ChunkIndex(0) && (first..first + count).any(|n| self.refused.contains(&(me, n))) {
                copy.group.blocks_loaded(id, Err(IoStatus::Io));
                self.run(me);
                return true;
            }
            let bad = (first..first + count).find(|n| self.damaged.contains(&(me, *n)));
            if let Some(bad) = bad.filter(|_| chunk == ChunkIndex(0)) {
                copy.group.found_damaged(LAYER, chunk, BlockIndex(bad));
                copy.group.blocks_loaded(id, Err(IoStatus::Io));
                self.run(me);
                return true;
            }
            self.blocks_read += u64::from(count);
            let blocks = (first..first + count).map(|n| copy.live.contents(chunk, n));
            let bytes = Bytes::from(blocks.collect::<Vec<_>>().concat());
            let extent = Extent::Data { checksums: block_checksums(&bytes).collect(), bytes };
            copy.group.blocks_loaded(id, Ok(vec![extent]));
        } else if let Some((id, chunk)) = copy.lookups.pop_front() {
            let taken = |n| copy.live.map.get(&(chunk, n)).filter(|block| !is_zero(block));
            let held = |n| copy.live.lost.get(&(chunk, n)).copied();
            let checksums = (0..CHUNK_BLOCKS as u16).map(|n| held(n).or(taken(n).map(|block| checksum(block))));
            let found = if self.unreadable_maps.contains(&me) { Err(IoStatus::Io) } else { Ok(checksums.collect()) };
            copy.group.checksums_loaded(id, found);
        } else if let Some((id, device, after)) = copy.listings.pop_front() {
            let changes = copy.live.changed.iter().filter(|(_, last)| **last > after);
            let changes = changes.map(|(chunk, _)| (LAYER, *chunk)).collect();
            copy.group.changes_listed(id, device, Some(changes));
        } else {
            return false;
        }
        self.run(me);
        true
    }

    /// Time passes for everybody, in small steps, with heartbeats; whatever can move moves.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            for me in self.copies.keys().copied().collect::<Vec<_>>() {
                let now = self.now;
                let group = &mut self.copies.get_mut(&me).unwrap().group;
                group.tick(now);
                group.allow_resync(true);
                self.run(me);
            }
            self.settle();
            self.beat();
            self.settle();
        }
    }

    /// Reads an edge that a merge waits for. False when there is none.
    pub fn load_edge(&mut self) -> bool {
        let Some((me, merge, block, chunk)) = self.edges.pop_front() else { return false };
        let contents = self.contents(me, chunk, block);
        self.copies.get_mut(&me).unwrap().group.edge_loaded(merge, block, Ok(contents));
        self.run(me);
        true
    }

    /// One step of everything, as long as anything moves.
    pub fn settle(&mut self) {
        let all: Vec<DeviceId> = self.copies.keys().copied().collect();
        for _ in 0..10_000 {
            let mut moved = self.decide() | self.load_edge();
            for from in &all {
                moved |= self.persist(*from) | self.load(*from);
                for to in &all {
                    moved |= self.deliver(*from, *to) | self.deliver_answer(*from, *to);
                }
            }
            if !moved {
                return;
            }
        }
        panic!("it does not settle");
    }

    /// Two exchanges of heartbeats: promises to the primaries, then leases to readers.
    pub fn beat(&mut self) {
        self.beat_once();
        self.beat_once();
    }

    fn beat_once(&mut self) {
        let now = self.now;
        for me in self.copies.keys().copied().collect::<Vec<_>>() {
            let group = &self.copies[&me].group;
            let (epoch, committed, low_watermark) = (group.epoch(), group.committed(), group.low_watermark());
            let followers: Vec<(DeviceId, bool)> = group.followers(now).collect();
            for (to, reads) in followers {
                if !self.conns.contains_key(&(me, to)) {
                    continue;
                }
                if reads {
                    self.copies.get_mut(&me).unwrap().group.heartbeat_sent(to, now);
                }
                let lease = if reads { now + LEASE } else { Duration::ZERO };
                if self.copies.get_mut(&to).unwrap().group.heartbeat(epoch, committed, low_watermark, lease, now) {
                    self.copies.get_mut(&me).unwrap().group.heartbeat_ok(to, now, false, now);
                }
                self.run(to);
                self.run(me);
            }
        }
    }

    /// A copy's device hangs, and that has been noticed; or it answers again.
    pub fn hang(&mut self, n: u32, hangs: bool) {
        if hangs {
            self.hanging.insert(device(n));
        } else {
            self.hanging.remove(&device(n));
        }
        self.group(n).set_hung(hangs);
        self.run(device(n));
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

    /// Cuts a copy's connections, both ways.
    pub fn isolate(&mut self, n: u32) {
        for other in self.others(device(n)) {
            self.disconnect(device(n), other);
            self.disconnect(other, device(n));
        }
    }

    /// Connects whatever is not connected.
    pub fn heal(&mut self) {
        let all: Vec<DeviceId> = self.copies.keys().copied().collect();
        for from in &all {
            for to in all.iter().filter(|to| *to != from) {
                if !self.conns.contains_key(&(*from, *to)) {
                    self.connect(*from, *to);
                }
            }
        }
    }

    /// The number of the copy that the configuration names primary.
    pub fn primary(&self) -> u32 {
        self.config.primary.0 - 1
    }

    /// Time passes, and nothing else happens than that everybody notices.
    pub fn tick_all(&mut self, time: Duration) {
        self.now += time;
        for me in self.copies.keys().copied().collect::<Vec<_>>() {
            let now = self.now;
            let group = &mut self.copies.get_mut(&me).unwrap().group;
            group.tick(now);
            group.allow_resync(true);
            self.run(me);
        }
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

    /// What is on a copy's disk.
    pub fn disk(&mut self, n: u32) -> Log {
        self.copy(n).durable.clone()
    }

    /// A copy's process starts again, and its disk has only what was there when `earlier` was.
    pub fn lose_the_end(&mut self, n: u32, earlier: Log) {
        let copy = self.copy(n);
        copy.writing.clear();
        copy.durable = earlier;
        self.restart(n, 0);
        self.reconnect(n);
    }

    pub fn reconnect(&mut self, n: u32) {
        for other in self.others(device(n)) {
            self.connect(device(n), other);
            self.connect(other, device(n));
        }
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
        let range = BlockRange::block(LAYER, ChunkIndex(0), BlockIndex(block));
        let (request, volume, attachment) = (RequestId(9), VOLUME, ATTACHMENT);
        let read = ReadRequest { request, pg: PG, volume, attachment, range };
        let now = self.now;
        self.read = None;
        self.group(n).read(GATEWAY, read, now);
        self.run(device(n));
        self.read.take().expect("a read is answered or refused at once").map(|bytes| bytes[0])
    }
}
