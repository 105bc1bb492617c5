//! What a copy asks for is carried out: records get to its disk, blocks are read.

use super::log::{Item, Log};
use super::{Cluster, GATEWAY, LAYER, device};
use azekura_base::*;
use azekura_replica::*;
use azekura_wire::{Message, ReadRequest};
use bytes::Bytes;

fn bytes_of(extents: Vec<Extent>) -> Bytes {
    let one = extents.into_iter().map(|extent| match extent {
        Extent::Data { bytes, .. } => bytes,
        Extent::Zero { count } => vec![0; usize::from(count) * BLOCK_SIZE].into(),
    });
    one.collect::<Vec<_>>().concat().into()
}

impl Cluster {
    /// Carries out what a copy asks for.
    pub fn run(&mut self, me: DeviceId) {
        while let Some(action) = self.copies.get_mut(&me).unwrap().group.next_action() {
            self.perform(me, action);
        }
    }

    pub(super) fn perform(&mut self, me: DeviceId, action: Action) {
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
            Action::LoadPrepared(sequence, epoch) => self.load_prepared(me, sequence, epoch),
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
            Action::ServeRead(client, read) => self.serve(me, client, read),
            Action::AnswerRead(_, _, extents) => self.read = Some(Ok(bytes_of(extents))),
            Action::Refuse(_, _, status) => self.read = Some(Err(status)),
            Action::Scrubbed(report, findings) => {
                self.scrubbed.push(report);
                self.findings.push(findings);
            }
            Action::Mended { device, range, scrubbing } => self.note_mended((device, range.first), scrubbing),
            action @ (Action::NoGoodCopy { .. } | Action::TooSlow(..)) => self.reported.push(action),
            Action::ServeStatus(..) => {}
            Action::Propose(config) => self.proposals.push_back((me, config)),
        }
    }

    fn load_prepared(&mut self, me: DeviceId, sequence: Sequence, epoch: Epoch) {
        let readable = !self.unreadable_logs.contains(&me);
        let copy = self.copies.get_mut(&me).unwrap();
        assert!(sequence > copy.live.committed, "the store gives back only what is not applied yet");
        let body = readable.then(|| copy.live.writes[&sequence].body.clone());
        copy.group.prepared_loaded(sequence, epoch, body);
    }

    fn serve(&mut self, me: DeviceId, client: Client, read: ReadRequest) {
        let ReadRequest { request, range, .. } = read;
        let is_refused = (range.first.0..range.first.0 + range.count).any(|n| self.refused.contains(&(me, n)));
        if is_refused && range.chunk == ChunkIndex(0) {
            self.copies.get_mut(&me).unwrap().group.read_failed(client, request, range);
            self.run(me);
        } else {
            self.read = Some(Ok(self.contents(me, range.chunk, range.first)));
        }
    }

    fn note_mended(&mut self, place: (DeviceId, BlockIndex), scrubbing: bool) {
        self.mended.insert(place);
        self.mended_for_readers.extend((!scrubbing).then_some(place));
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
            let checksums = (0..CHUNK_BLOCKS as u16)
                .map(|n| held(n).or(taken(n).map(|block| checksum(block))))
                .map(|sum| sum.map(BlockSum::from));
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

    /// Reads an edge that a merge waits for. False when there is none.
    pub fn load_edge(&mut self) -> bool {
        let Some((me, merge, block, chunk)) = self.edges.pop_front() else { return false };
        let contents = Body::data(self.contents(me, chunk, block));
        let Body::Data { bytes, checksums } = contents else { unreachable!() };
        let contents = Extent::Data { bytes, checksums };
        self.copies.get_mut(&me).unwrap().group.edge_loaded(merge, block, Ok(contents));
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

    /// A copy's device, which hangs, is out of service for that; or no longer.
    pub fn take_out(&mut self, n: u32, out: bool) {
        self.group(n).set_out(out);
        self.run(device(n));
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
}
