//! Messages to groups, and what groups ask for.

use crate::devices::PendingOp;
use crate::effect::{ConnKey, Effect, FoundBlock};
use crate::node::Node;
use azekura_base::{BLOCK_SIZE, BlockRange, Body, DeviceId, Endpoint, IoStatus, LayerId, PgId, RequestId};
use azekura_replica::{Action, Client, Finding, Flaw, Group, Mismatch};
use azekura_wire::{CompareOk, Message, Prepare, PrepareHeld, ReadDone, ReadRequest, Repair, StatusRequest, WriteDone};
use std::time::Duration;

type Key = (PgId, DeviceId);

impl Node {
    /// A request that came from the shard `from`.
    pub(crate) fn deliver(&mut self, from: Endpoint, client: Client, message: Message) {
        let done = match message {
            Message::Write(write) if self.view.dropped.contains_key(&write.layer) => {
                self.refuse_write(client, write.pg, write.request, IoStatus::Gone);
                None
            }
            Message::Write(write) if self.fences.refuse(write.volume, write.attachment) => {
                self.refuse_write(client, write.pg, write.request, IoStatus::Fenced);
                None
            }
            Message::Read(ReadRequest { request, volume, attachment, .. })
            | Message::Status(StatusRequest { request, volume, attachment, .. })
                if self.fences.refuse(volume, attachment) =>
            {
                self.refuse_read(client, request, IoStatus::Fenced);
                None
            }
            Message::Read(ReadRequest { request, volume, range: BlockRange { layer, .. }, .. })
            | Message::Status(StatusRequest { request, volume, layer, .. })
                if !self.heads.answers_reads(volume, layer) =>
            {
                self.refuse_read(client, request, IoStatus::Stale);
                None
            }
            Message::Write(write) => {
                let (pg, request) = (write.pg, write.request);
                let trusted = self.is_trusted(client);
                let current = self.heads.takes_writes(write.volume, write.layer);
                let key = self.primary_copy(write.pg);
                let done = key.and_then(|key| {
                    self.with_group(key, |group, _| {
                        if current {
                            group.write(client, write, trusted)
                        } else {
                            group.write_stale(client, write, trusted)
                        }
                    })
                });
                if done.is_none() {
                    self.refuse_write(client, pg, request, IoStatus::Redirect);
                }
                done
            }
            Message::Read(read) => {
                self.read_arrived(client, read);
                None
            }
            Message::Status(status) => {
                let key = self.any_copy(status.pg);
                if key.and_then(|key| self.with_group(key, |group, now| group.status(client, status, now))).is_none() {
                    self.refuse_read(client, status.request, IoStatus::Redirect);
                }
                None
            }
            Message::Prepare(prepare) => self.prepared(client, prepare, self.is_trusted(client)),
            Message::PrepareHeld(held) => self.prepared_held(client, held),
            Message::NewEpoch(news) => {
                let key = (news.pg, news.device);
                if self.with_group(key, |group, _| group.new_epoch(client, news)).is_none() {
                    self.early_new_epochs.insert(key, (client, news));
                }
                None
            }
            Message::Learn(learn) => {
                let key = (learn.pg, learn.device);
                // To a copy whose store is not open yet, the primary will say it again; what it asked before is void.
                let done = self.with_group(key, |group, _| group.learn(client, learn));
                if done.is_none() {
                    self.early_new_epochs.remove(&key);
                }
                done
            }
            Message::Compare(compare) if self.is_gone(compare.device, compare.layer) => {
                self.with_group((compare.pg, compare.device), |group, _| group.compare_gone(client, &compare));
                None
            }
            // Whoever waits for it begins anew, with what the configuration says by then.
            Message::Repair(repair) if self.is_gone(repair.device, repair.range.layer) => None,
            Message::Compare(compare) => {
                self.with_group((compare.pg, compare.device), |group, _| group.compare(client, compare));
                None
            }
            Message::Fetch(fetch) if self.is_gone(fetch.device, fetch.range.layer) => {
                self.with_group((fetch.pg, fetch.device), |group, _| group.fetch_gone(client, fetch));
                None
            }
            Message::Fetch(fetch) => {
                self.with_group((fetch.pg, fetch.device), |group, _| group.fetch(client, fetch));
                None
            }
            Message::HandOver(hand_over) => {
                let key = (hand_over.pg, hand_over.device);
                self.with_group(key, |group, _| group.inherit(client, hand_over));
                None
            }
            Message::Repair(repair) => {
                self.with_group((repair.pg, repair.device), |group, _| group.repair(client, repair))
            }
            Message::Heartbeat(heartbeat) => {
                self.heartbeat(client, &heartbeat);
                None
            }
            Message::Fence(fence) => {
                self.fenced(client, fence);
                None
            }
            Message::Freeze(freeze) => {
                self.frozen(client, freeze);
                None
            }
            Message::Layers(news) => {
                self.learn_layers(&news);
                None
            }
            // This node's answers to itself travel the same way.
            message if client == Client::Own => {
                self.answered(from, message);
                None
            }
            _ => Some(Err(Mismatch::Request)),
        };
        if let Some(Err(mismatch)) = done {
            self.mismatched(from, client, mismatch);
        }
    }

    /// What came from the shard `from` contradicts the protocol.
    fn mismatched(&mut self, from: Endpoint, client: Client, mismatch: Mismatch) {
        match (client, mismatch) {
            (Client::Own, _) => {
                let what = format!("a request of this node to itself was refused: node {from}: {mismatch}");
                self.effects.push_back(Effect::Warn(what));
            }
            // A copy may hear late what was sent to it before it was left behind, when the write is long answered.
            (Client::Conn(conn), Mismatch::NotOurs) => {
                self.hang_up(ConnKey(conn));
                self.closed(ConnKey(conn));
            }
            (Client::Conn(conn), _) => self.refuse(ConnKey(conn), &format!("node {from}: {mismatch}")),
        }
    }

    /// A primary orders a write. `trusted` says that the blocks have not left this process since their checksums were
    /// compared.
    fn prepared(&mut self, client: Client, prepare: Prepare, trusted: bool) -> Option<Result<(), Mismatch>> {
        let key = (prepare.header.pg, prepare.device);
        self.owing.insert(key);
        self.with_group(key, |group, _| group.prepare(client, prepare, trusted))
    }

    /// A primary orders a write whose blocks are this node's gateway's.
    fn prepared_held(&mut self, client: Client, held: PrepareHeld) -> Option<Result<(), Mismatch>> {
        let PrepareHeld { device, oldest, header, checksums } = held;
        let bytes = self.gateway.unanswered(header.session, header.pg, header.request);
        if let Some(bytes) = bytes.filter(|bytes| bytes.len() == checksums.len() * BLOCK_SIZE) {
            let body = Body::Data { bytes, checksums };
            return self.prepared(client, Prepare { device, oldest, header, body }, true);
        }
        self.owing.insert((header.pg, device));
        self.with_group((header.pg, device), |group, _| group.refuse_reference(client, header.epoch))
    }

    /// An answer that came from the shard `from`.
    pub(crate) fn answered(&mut self, from: Endpoint, message: Message) {
        match message {
            Message::WriteDone(_) | Message::ReadDone(_) | Message::StatusDone(_) => {
                if let Some(layer) = self.gateway.current_layer_refused(&message) {
                    // It does not know the layer yet, or not that it takes writes again.
                    self.announce(from, layer);
                }
                let now = self.now;
                self.gateway.answer(from, message, now);
            }
            Message::PrepareOk(ok) => {
                self.tell_primary(ok.pg, ok.device, from, |group| group.prepare_ok(ok.device, ok))
            }
            Message::NewEpochOk(ok) => {
                self.tell_primary(ok.pg, ok.device, from, |group| group.new_epoch_ok(ok.device, ok));
                self.beats_soon();
            }
            Message::Leaving(leaving) => {
                self.tell_primary(leaving.pg, leaving.device, from, |group| group.peer_leaving(leaving.device, leaving))
            }
            Message::Damaged(damaged) => {
                self.tell_primary(damaged.pg, damaged.device, from, |group| group.damaged(damaged.device, damaged))
            }
            Message::Fetched(fetched) => {
                self.tell_primary(fetched.pg, fetched.device, from, |group| group.fetched(fetched.device, fetched))
            }
            Message::LearnOk(ok) => self.tell_primary(ok.pg, ok.device, from, |group| group.learn_ok(ok.device, ok)),
            Message::CompareOk(ok) => {
                self.tell_primary(ok.pg, ok.device, from, |group| group.compare_ok(ok.device, ok))
            }
            Message::RepairOk(ok) => self.tell_primary(ok.pg, ok.device, from, |group| group.repair_ok(ok.device, ok)),
            Message::HeartbeatOk(ok) => self.heartbeat_ok(from, &ok),
            Message::FenceDone(done) => self.fence_answered(&done),
            _ => {}
        }
    }

    /// Tells the copy here that acts as primary what the copy on `device` of the shard `from` says. It knows before the
    /// view does that it is one.
    fn tell_primary(&mut self, pg: PgId, device: DeviceId, from: Endpoint, tell: impl FnOnce(&mut Group)) {
        if self.view.devices.get(&device) != Some(&from) {
            return;
        }
        let copies = (pg, DeviceId(0))..=(pg, DeviceId(u32::MAX));
        let acting = self.groups.range(copies).find(|(_, group)| group.acts_as_primary()).map(|(key, _)| *key);
        acting.and_then(|key| self.with_group(key, |group, _| tell(group)));
    }

    /// The copy on this node that is, or should become, the group's primary.
    pub(crate) fn primary_copy(&self, pg: PgId) -> Option<Key> {
        let primary = self.view.groups.get(&pg)?.primary;
        Some((pg, primary)).filter(|key| self.groups.contains_key(key))
    }

    /// A copy on this node: the primary if it is here, else one that is in sync.
    pub(crate) fn any_copy(&self, pg: PgId) -> Option<Key> {
        self.primary_copy(pg).or_else(|| {
            let in_sync = &self.view.groups.get(&pg)?.in_sync;
            in_sync.iter().map(|device| (pg, *device)).find(|key| self.groups.contains_key(key))
        })
    }

    pub(crate) fn with_group<T>(&mut self, key: Key, f: impl FnOnce(&mut Group, Duration) -> T) -> Option<T> {
        let group = self.groups.get_mut(&key)?;
        self.awake.push_back(key);
        group.advance(self.now);
        Some(f(group, self.now))
    }

    /// Carries out what groups ask for.
    pub(crate) fn run_groups(&mut self) {
        while let Some(key) = self.awake.pop_front() {
            while let Some(action) = self.groups.get_mut(&key).and_then(Group::next_action) {
                self.perform(key, action);
            }
        }
    }

    fn perform(&mut self, key: Key, action: Action) {
        let (pg, device) = key;
        match action {
            // What this copy has of the layer may be another's by now: nobody is to have the same.
            Action::Send(to, Message::Compare(compare)) if self.is_gone(device, compare.layer) => {
                let (epoch, id) = (compare.epoch, compare.id);
                let ok = CompareOk { pg, device: to, epoch, id, differing: Vec::new(), unreadable: false, gone: true };
                self.with_group(key, |group, _| group.compare_ok(to, ok));
            }
            Action::Send(to, Message::Repair(repair)) if self.is_gone(device, repair.range.layer) => {
                self.with_group(key, |group, _| group.source_gone(to));
            }
            Action::Send(to, message) => {
                if let Some(peer) = self.view.devices.get(&to).copied() {
                    if let Some(layer) = layer_of(&message) {
                        self.announce(peer, layer);
                    }
                    if let Message::Repair(repair) = &message {
                        let (layer, chunk) = (repair.range.layer, repair.range.chunk);
                        let descendants = self.layers.descendants(&self.heads, pg, to, layer);
                        self.groups
                            .get_mut(&key)
                            .into_iter()
                            .for_each(|group| group.compare_descendants(to, chunk, descendants.clone()));
                    }
                    self.send_to(peer, message);
                }
            }
            Action::SendPrepare(to, prepare, holder) => {
                let Some(peer) = self.view.devices.get(&to).copied() else { return };
                self.announce(peer, prepare.header.range.layer);
                let holder = holder.and_then(|client| self.peer_of(client));
                let message = match prepare {
                    Prepare { device, oldest, header, body: Body::Data { checksums, .. } } if holder == Some(peer) => {
                        Message::PrepareHeld(PrepareHeld { device, oldest, header, checksums })
                    }
                    prepare => Message::Prepare(prepare),
                };
                self.send_to(peer, message);
            }
            Action::Answer(client, message) => self.answer_later(client, message),
            Action::AnswerWrite(client, request, result) => {
                let done = WriteDone { pg, request, result };
                self.answer_later(client, Message::WriteDone(done));
            }
            Action::Refuse(client, request, status) => {
                // Reads and status requests are numbered together, so either answer finds its question.
                self.refuse_read(client, request, status);
            }
            Action::Propose(config) => self.effects.push_back(Effect::Propose(pg, device, config)),
            Action::Append(write, life) => {
                let pending = PendingOp::Append { pg, sequence: write.header.sequence, life };
                self.with_store(device, pending, |store, token| store.append(token, write));
                // What comes next must not be let in as well, if this was the last that there is room for.
                self.note_fullness(device);
            }
            Action::Commit(upto) => {
                if let Some(device) = self.devices.get_mut(&device) {
                    device.store.commit(pg, upto);
                }
            }
            Action::StartEpoch { epoch, keep } => {
                self.with_store(device, PendingOp::Epoch { pg, epoch }, |store, token| {
                    store.start_epoch(token, pg, epoch, keep);
                });
            }
            // Nobody waits for the mending of a block; what is given for a layer that ends would come too late.
            Action::AppendRepair(repair) if repair.id.is_none() && self.is_gone(device, repair.range.layer) => {}
            Action::AppendRepair(repair) => {
                let pending = PendingOp::Repair { pg, epoch: repair.epoch, id: repair.id };
                self.with_store(device, pending, |store, token| store.append(token, record_of(repair)));
            }
            Action::ListChanges { id, device: copy, after } => {
                self.layers.listing(pg, copy, self.revision);
                self.with_store(device, PendingOp::Changes { pg, copy, id }, |store, token| {
                    store.modified_since(token, pg, after);
                });
            }
            Action::Scrubbed(report, findings) => {
                self.balance.scrub_ended(pg);
                let found = findings.iter().map(|finding| self.found_block(finding)).collect();
                self.effects.push_back(Effect::Scrubbed(pg, report, found));
            }
            Action::SaveNote(name) => {
                if let Some(device) = self.devices.get_mut(&device) {
                    device.notes_wanted.push((pg, name));
                }
            }
            Action::SetComplete => {
                self.with_store(device, PendingOp::Complete, |store, token| store.set_complete(token, pg));
            }
            Action::Mended { device, range, scrubbing } => {
                let place = self.view.place_of(range.layer, range.chunk, range.first);
                let blocks = if range.count == 1 { "a block".to_owned() } else { format!("{} blocks", range.count) };
                let what = format!("group {pg}: {place}: {blocks} of the copy on device {device} written anew");
                let found = FoundBlock { place, device, flaw: Flaw::Damaged, mended: true };
                self.tell_bad_block(pg, found, what, scrubbing);
            }
            Action::NoGoodCopy { range, scrubbing } => {
                let (place, count) = (self.view.place_of(range.layer, range.chunk, range.first), range.count);
                let what = format!("group {pg}: {place}: no copy of these {count} blocks is good; reads of them fail");
                let found = FoundBlock { place, device, flaw: Flaw::Damaged, mended: false };
                self.tell_bad_block(pg, found, what, scrubbing);
            }
            Action::TooSlow(device, time) => self.report_slow(device, time),
            Action::LoadBlocks { id, range } => {
                let pending = PendingOp::Blocks { pg, id, layer: range.layer, chunk: range.chunk };
                self.with_store(device, pending, |store, token| store.read(token, pg, range));
            }
            Action::LoadChecksums { id, layer, chunk } => {
                self.with_store(device, PendingOp::Checksums { pg, id }, |store, token| {
                    store.digest(token, pg, layer, chunk);
                });
            }
            Action::LoadPrepared(sequence, epoch) => {
                self.with_store(device, PendingOp::Prepared { pg, sequence, epoch }, |store, token| {
                    store.read_prepared(token, pg, sequence);
                });
            }
            Action::LoadEdge { merge, block } => {
                let pending = PendingOp::Edge { pg, merge, block: block.first };
                self.with_store(device, pending, |store, token| store.read(token, pg, block));
            }
            Action::ServeRead(client, read) => {
                let BlockRange { layer, chunk, count: blocks, .. } = read.range;
                let (request, at) = (read.request, self.now);
                let pending = PendingOp::Read { pg, layer, chunk, client, request, at, blocks };
                self.devices.get_mut(&device).into_iter().for_each(|device| device.reads.started(blocks));
                self.with_store(device, pending, |store, token| store.read(token, pg, read.range));
            }
            Action::ServeStatus(client, status) => {
                let pending = PendingOp::Status { client, request: status.request };
                self.with_store(device, pending, |store, token| {
                    store.status(token, pg, status.layer, status.chunk);
                });
            }
        }
    }

    /// A bad block, for people.
    fn found_block(&self, finding: &Finding) -> FoundBlock {
        let Finding { device, layer, chunk, block, flaw, mended } = *finding;
        FoundBlock { place: self.view.place_of(layer, chunk, block), device, flaw, mended }
    }

    /// Tells people of blocks that were bad. A scrub that is under way names them at its end.
    fn tell_bad_block(&mut self, pg: PgId, found: FoundBlock, what: String, scrubbing: bool) {
        self.effects.push_back(Effect::Warn(what));
        self.effects.extend((!scrubbing).then_some(Effect::Found(pg, found)));
    }

    /// Answers a client; this node's own gateway is told in the same turn.
    pub(crate) fn answer_later(&mut self, client: Client, message: Message) {
        match client {
            Client::Own => self.local.push_back(message),
            Client::Conn(_) => self.answer(client, message),
        }
    }

    fn refuse_write(&mut self, client: Client, pg: PgId, request: RequestId, status: IoStatus) {
        self.answer_later(client, Message::WriteDone(WriteDone { pg, request, result: Err(status) }));
    }

    pub(crate) fn refuse_read(&mut self, client: Client, request: RequestId, status: IoStatus) {
        self.answer_later(client, Message::ReadDone(ReadDone { request, result: Err(status) }));
    }
}

/// The layer that a message to a copy names.
fn layer_of(message: &Message) -> Option<LayerId> {
    match message {
        Message::Repair(repair) => Some(repair.range.layer),
        Message::Compare(compare) => Some(compare.layer),
        Message::Fetch(fetch) => Some(fetch.range.layer),
        _ => None,
    }
}

/// What a repair puts into the log.
fn record_of(repair: Repair) -> azekura_store::Repair {
    azekura_store::Repair { pg: repair.pg, sequence: repair.commit, range: repair.range, body: repair.body }
}
