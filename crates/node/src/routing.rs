//! Messages to groups, and answers to those who have asked.

use crate::copies::Key;
use crate::effect::ConnKey;
use crate::node::Node;
use azekura_base::{
    BLOCK_SIZE, Body, DeviceId, Endpoint, Generation, IoStatus, LayerId, PgId, RequestId, VolumeId, Warning,
};
use azekura_replica::{Client, Group, Mismatch};
use azekura_wire::{
    Compare, Fetch, Learn, Message, NewEpoch, Prepare, PrepareHeld, ReadDone, ReadRequest, Repair, StatusRequest,
    WriteDone, WriteRequest,
};
use std::time::Duration;

/// What a group says of a message that it was given; `None` when no group was.
type Answer = Option<Result<(), Mismatch>>;

impl Node {
    /// A request that came from the shard `from`.
    pub(crate) fn deliver(&mut self, from: Endpoint, client: Client, message: Message) {
        let done = match message {
            Message::Write(write) => self.write_arrived(client, write),
            Message::Prepare(prepare) => self.prepared(client, prepare, self.is_trusted(client)),
            Message::PrepareHeld(held) => self.prepared_held(client, held),
            Message::Learn(learn) => self.learn_arrived(client, learn),
            Message::Repair(repair) => self.repair_arrived(client, repair),
            Message::Read(read) => {
                self.read_asked(client, read);
                None
            }
            Message::Status(status) => {
                self.status_asked(client, status);
                None
            }
            Message::NewEpoch(news) => {
                self.new_epoch_arrived(client, news);
                None
            }
            Message::Compare(compare) => {
                self.compare_asked(client, compare);
                None
            }
            Message::Fetch(fetch) => {
                self.fetch_asked(client, fetch);
                None
            }
            Message::HandOver(hand_over) => {
                let key = (hand_over.pg, hand_over.device);
                self.with_group(key, |group, _| group.inherit(client, hand_over));
                None
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

    /// A write arrives at a copy that may be its group's primary.
    fn write_arrived(&mut self, client: Client, write: WriteRequest) -> Answer {
        let (pg, request) = (write.pg, write.request);
        if self.directory.view.dropped.contains_key(&write.layer) {
            self.refuse_write(client, pg, request, IoStatus::Gone);
            return None;
        }
        if self.directory.fences.refuse(write.volume, write.attachment) {
            self.refuse_write(client, pg, request, IoStatus::Fenced);
            return None;
        }
        let trusted = self.is_trusted(client);
        let current = self.directory.heads.takes_writes(write.volume, write.layer);
        let done = self.primary_copy(pg).and_then(|key| {
            self.with_group(key, |group, _| {
                if current { group.write(client, write, trusted) } else { group.write_stale(client, write, trusted) }
            })
        });
        if done.is_none() {
            self.refuse_write(client, pg, request, IoStatus::Redirect);
        }
        done
    }

    /// Refuses what a reader asks whose attachment has ended, or who knows of another head than this node. True when
    /// that is so.
    fn refuses_reader(
        &mut self,
        client: Client,
        request: RequestId,
        (volume, attachment): (VolumeId, Generation),
        layer: LayerId,
    ) -> bool {
        let status = if self.directory.fences.refuse(volume, attachment) {
            IoStatus::Fenced
        } else if !self.directory.heads.answers_reads(volume, layer) {
            IoStatus::Stale
        } else {
            return false;
        };
        self.refuse_read(client, request, status);
        true
    }

    fn read_asked(&mut self, client: Client, read: ReadRequest) {
        if !self.refuses_reader(client, read.request, (read.volume, read.attachment), read.range.layer) {
            self.read_arrived(client, read);
        }
    }

    fn status_asked(&mut self, client: Client, status: StatusRequest) {
        let request = status.request;
        if self.refuses_reader(client, request, (status.volume, status.attachment), status.layer) {
            return;
        }
        let key = self.any_copy(status.pg);
        if key.and_then(|key| self.with_group(key, |group, now| group.status(client, status, now))).is_none() {
            self.refuse_read(client, request, IoStatus::Redirect);
        }
    }

    fn new_epoch_arrived(&mut self, client: Client, news: NewEpoch) {
        let key = (news.pg, news.device);
        if self.with_group(key, |group, _| group.new_epoch(client, news)).is_none() {
            self.copies.early_new_epochs.insert(key, (client, news));
        }
    }

    fn learn_arrived(&mut self, client: Client, learn: Learn) -> Answer {
        let key = (learn.pg, learn.device);
        // To a copy whose store is not open yet, the primary will say it again; what it asked before is void.
        let done = self.with_group(key, |group, _| group.learn(client, learn));
        if done.is_none() {
            self.copies.early_new_epochs.remove(&key);
        }
        done
    }

    fn compare_asked(&mut self, client: Client, compare: Compare) {
        let key = (compare.pg, compare.device);
        if self.is_gone(compare.device, compare.layer) {
            self.with_group(key, |group, _| group.compare_gone(client, &compare));
        } else {
            self.with_group(key, |group, _| group.compare(client, compare));
        }
    }

    fn fetch_asked(&mut self, client: Client, fetch: Fetch) {
        let key = (fetch.pg, fetch.device);
        if self.is_gone(fetch.device, fetch.range.layer) {
            self.with_group(key, |group, _| group.fetch_gone(client, fetch));
        } else {
            self.with_group(key, |group, _| group.fetch(client, fetch));
        }
    }

    fn repair_arrived(&mut self, client: Client, repair: Repair) -> Answer {
        // Whoever waits for it begins anew, with what the configuration says by then.
        if self.is_gone(repair.device, repair.range.layer) {
            return None;
        }
        self.with_group((repair.pg, repair.device), |group, _| group.repair(client, repair))
    }

    /// What came from the shard `from` contradicts the protocol.
    fn mismatched(&mut self, from: Endpoint, client: Client, mismatch: Mismatch) {
        match (client, mismatch) {
            (Client::Own, _) => {
                let what = format!("a request of this node to itself was refused: node {from}: {mismatch}");
                self.warn(Warning::new(what));
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
    fn prepared(&mut self, client: Client, prepare: Prepare, trusted: bool) -> Answer {
        let key = (prepare.header.pg, prepare.device);
        self.copies.owing.insert(key);
        self.with_group(key, |group, _| group.prepare(client, prepare, trusted))
    }

    /// A primary orders a write whose blocks are this node's gateway's.
    fn prepared_held(&mut self, client: Client, held: PrepareHeld) -> Answer {
        let PrepareHeld { device, oldest, header, checksums } = held;
        let bytes = self.gateway.unanswered(header.session, header.pg, header.request);
        if let Some(bytes) = bytes.filter(|bytes| bytes.len() == checksums.len() * BLOCK_SIZE) {
            let body = Body::Data { bytes, checksums };
            return self.prepared(client, Prepare { device, oldest, header, body }, true);
        }
        self.copies.owing.insert((header.pg, device));
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
        if self.directory.view.devices.get(&device) != Some(&from) {
            return;
        }
        let copies = (pg, DeviceId(0))..=(pg, DeviceId(u32::MAX));
        let acting = self.copies.groups.range(copies).find(|(_, group)| group.acts_as_primary()).map(|(key, _)| *key);
        acting.and_then(|key| self.with_group(key, |group, _| tell(group)));
    }

    /// The copy on this node that is, or should become, the group's primary.
    pub(crate) fn primary_copy(&self, pg: PgId) -> Option<Key> {
        let primary = self.directory.view.groups.get(&pg)?.primary;
        Some((pg, primary)).filter(|key| self.copies.groups.contains_key(key))
    }

    /// A copy on this node: the primary if it is here, else one that is in sync.
    pub(crate) fn any_copy(&self, pg: PgId) -> Option<Key> {
        self.primary_copy(pg).or_else(|| {
            let in_sync = &self.directory.view.groups.get(&pg)?.in_sync;
            in_sync.iter().map(|device| (pg, *device)).find(|key| self.copies.groups.contains_key(key))
        })
    }

    pub(crate) fn with_group<T>(&mut self, key: Key, f: impl FnOnce(&mut Group, Duration) -> T) -> Option<T> {
        let group = self.copies.groups.get_mut(&key)?;
        self.copies.awake.push_back(key);
        group.advance(self.now);
        Some(f(group, self.now))
    }

    /// Answers a client; this node's own gateway is told in the same turn.
    pub(crate) fn answer_later(&mut self, client: Client, message: Message) {
        match client {
            Client::Own => self.mesh.to_self.push_back(message),
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
