//! What groups ask for: of other copies, of clients, of their store, and to tell people.

use crate::copies::Key;
use crate::effect::{Effect, FoundBlock, ScrubSeen, ScrubWish};
use crate::node::Node;
use crate::pending::PendingOp;
use azekura_base::{BlockRange, Body, DeviceId, Endpoint, LayerId, PgId, Sequence, Warning};
use azekura_replica::{Action, Client, Finding, Flaw, Group};
use azekura_wire::{CompareOk, Message, Prepare, PrepareHeld, ReadDone, ReadRequest, Repair, StatusRequest, WriteDone};

impl Node {
    /// Carries out what groups ask for.
    pub(crate) fn run_groups(&mut self) {
        while let Some(key) = self.copies.awake.pop_front() {
            while let Some(action) = self.copies.groups.get_mut(&key).and_then(Group::next_action) {
                self.perform(key, action);
            }
        }
    }

    fn perform(&mut self, key: Key, action: Action) {
        let (pg, device) = key;
        match action {
            Action::Send(to, message) => self.send_to_copy(key, to, message),
            Action::SendPrepare(to, prepare, holder) => self.send_prepare(to, prepare, holder),
            Action::Answer(client, message) => self.answer_later(client, message),
            Action::AnswerWrite(client, request, result) => {
                self.answer_later(client, Message::WriteDone(WriteDone { pg, request, result }));
            }
            // Reads and status requests are numbered together, so either answer finds its question.
            Action::Refuse(client, request, status) => self.refuse_read(client, request, status),
            Action::Propose(config) => self.effects.push_back(Effect::Propose(pg, device, config)),
            Action::Append(write, life) => {
                let pending = PendingOp::Append { pg, sequence: write.header.sequence, life };
                self.with_store(device, pending, |store, token| store.append(token, write));
                // What comes next must not be let in as well, if this was the last that there is room for.
                self.note_fullness(device);
            }
            Action::Commit(upto) => self.commit_on(device, pg, upto),
            Action::StartEpoch { epoch, keep } => {
                let pending = PendingOp::Epoch { pg, epoch };
                self.with_store(device, pending, |store, token| store.start_epoch(token, pg, epoch, keep));
            }
            Action::AppendRepair(repair) => self.append_repair(key, repair),
            Action::ListChanges { id, device: copy, after } => {
                self.directory.layers.listing(pg, copy, self.directory.revision);
                let pending = PendingOp::Changes { pg, copy, id };
                self.with_store(device, pending, |store, token| store.modified_since(token, pg, after));
            }
            Action::SaveNote(name) => self.save_note(device, pg, name),
            Action::SetComplete => {
                self.with_store(device, PendingOp::Complete, |store, token| store.set_complete(token, pg));
            }
            Action::LoadBlocks { id, range } => {
                let pending = PendingOp::Blocks { pg, id, layer: range.layer, chunk: range.chunk };
                self.with_store(device, pending, |store, token| store.read(token, pg, range));
            }
            Action::LoadChecksums { id, layer, chunk } => {
                let pending = PendingOp::Checksums { pg, id };
                self.with_store(device, pending, |store, token| store.digest(token, pg, layer, chunk));
            }
            Action::LoadPrepared(sequence, epoch) => {
                let pending = PendingOp::Prepared { pg, sequence, epoch };
                self.with_store(device, pending, |store, token| store.read_prepared(token, pg, sequence));
            }
            Action::LoadEdge { merge, block } => {
                let pending = PendingOp::Edge { pg, merge, block: block.first };
                self.with_store(device, pending, |store, token| store.read(token, pg, block));
            }
            Action::ServeRead(client, read) => self.serve_read(key, client, read),
            Action::AnswerRead(client, request, extents) => {
                self.answer_later(client, Message::ReadDone(ReadDone { request, result: Ok(extents) }));
            }
            Action::ServeStatus(client, StatusRequest { request, layer, chunk, .. }) => {
                let pending = PendingOp::Status { client, request };
                self.with_store(device, pending, |store, token| store.status(token, pg, layer, chunk));
            }
            Action::Scrubbed(report, findings) => {
                // One that nobody knows of any more was not begun for anybody.
                let wish = self.balance.scrub_ended(pg);
                let unseen = ScrubSeen::default();
                let wish = wish.unwrap_or(ScrubWish { kind: report.kind, deep: unseen, light: unseen });
                let found = findings.iter().map(|finding| self.found_block(finding)).collect();
                self.effects.push_back(Effect::Scrubbed(pg, wish, report, found));
            }
            Action::Mended { device, range, scrubbing } => self.tell_mended(pg, device, range, scrubbing),
            Action::NoGoodCopy { range, scrubbing } => self.tell_lost(key, range, scrubbing),
            Action::TooSlow(device, time) => self.report_slow(device, time),
        }
    }

    /// Sends a message of the copy `key` to the copy on the device `to`.
    fn send_to_copy(&mut self, key: Key, to: DeviceId, message: Message) {
        let (pg, device) = key;
        match message {
            // What this copy has of the layer may be another's by now: nobody is to have the same.
            Message::Compare(compare) if self.is_gone(device, compare.layer) => {
                let (epoch, id) = (compare.epoch, compare.id);
                let ok = CompareOk { pg, device: to, epoch, id, differing: Vec::new(), unreadable: false, gone: true };
                self.with_group(key, |group, _| group.compare_ok(to, ok));
            }
            Message::Repair(repair) if self.is_gone(device, repair.range.layer) => {
                self.with_group(key, |group, _| group.source_gone(to));
            }
            message => {
                let Some(peer) = self.directory.view.devices.get(&to).copied() else { return };
                if let Some(layer) = layer_of(&message) {
                    self.announce(peer, layer);
                }
                if let Message::Repair(repair) = &message {
                    let (layer, chunk) = (repair.range.layer, repair.range.chunk);
                    let descendants = self.directory.layers.descendants(&self.directory.heads, pg, to, layer);
                    if let Some(group) = self.copies.groups.get_mut(&key) {
                        group.compare_descendants(to, chunk, descendants);
                    }
                }
                self.send_to(peer, message);
            }
        }
    }

    /// Sends an order to the copy on the device `to`; without its blocks, when the shard has these from its own client.
    fn send_prepare(&mut self, to: DeviceId, prepare: Prepare, holder: Option<Client>) {
        let Some(peer) = self.directory.view.devices.get(&to).copied() else { return };
        self.announce(peer, prepare.header.range.layer);
        let holder: Option<Endpoint> = holder.and_then(|client| self.peer_of(client));
        let message = match prepare {
            Prepare { device, oldest, header, body: Body::Data { checksums, .. } } if holder == Some(peer) => {
                Message::PrepareHeld(PrepareHeld { device, oldest, header, checksums })
            }
            prepare => Message::Prepare(prepare),
        };
        self.send_to(peer, message);
    }

    fn commit_on(&mut self, device: DeviceId, pg: PgId, upto: Sequence) {
        if let Some(device) = self.devices.get_mut(&device) {
            device.store.commit(pg, upto);
        }
    }

    fn save_note(&mut self, device: DeviceId, pg: PgId, name: u64) {
        if let Some(device) = self.devices.get_mut(&device) {
            device.checkpoints.wants_note(pg, name);
        }
    }

    fn append_repair(&mut self, (pg, device): Key, repair: Repair) {
        // Nobody waits for the mending of a block; what is given for a layer that ends would come too late.
        if repair.id.is_none() && self.is_gone(device, repair.range.layer) {
            return;
        }
        let pending = PendingOp::Repair { pg, epoch: repair.epoch, id: repair.id };
        self.with_store(device, pending, |store, token| store.append(token, record_of(repair)));
    }

    fn serve_read(&mut self, (pg, device): Key, client: Client, read: ReadRequest) {
        let ReadRequest { request, range, .. } = read;
        let pending = PendingOp::Read { pg, range, client, request, at: self.now };
        self.devices.get_mut(&device).into_iter().for_each(|device| device.reads.started(range.count));
        self.with_store(device, pending, |store, token| store.serve_read(token, pg, range));
    }

    /// A bad block, for people.
    fn found_block(&self, finding: &Finding) -> FoundBlock {
        let Finding { device, layer, chunk, block, flaw, mended } = *finding;
        FoundBlock { place: self.directory.view.place_of(layer, chunk, block), device, flaw, mended }
    }

    /// Tells people of blocks that were bad. A scrub that is under way names them at its end.
    fn tell_bad_block(&mut self, pg: PgId, found: FoundBlock, what: String, scrubbing: bool) {
        self.warn(found.place.named_in(Warning::new(what).group(pg).device(found.device)));
        self.effects.extend((!scrubbing).then_some(Effect::Found(pg, found)));
    }

    fn tell_mended(&mut self, pg: PgId, device: DeviceId, range: BlockRange, scrubbing: bool) {
        let place = self.directory.view.place_of(range.layer, range.chunk, range.first);
        let blocks = if range.count == 1 { "a block".to_owned() } else { format!("{} blocks", range.count) };
        let what = format!("group {pg}: {place}: {blocks} of the copy on device {device} written anew");
        let found = FoundBlock { place, device, flaw: Flaw::Damaged, mended: true };
        self.tell_bad_block(pg, found, what, scrubbing);
    }

    fn tell_lost(&mut self, (pg, device): Key, range: BlockRange, scrubbing: bool) {
        let (place, count) = (self.directory.view.place_of(range.layer, range.chunk, range.first), range.count);
        let what = format!("group {pg}: {place}: no copy of these {count} blocks is good; reads of them fail");
        let found = FoundBlock { place, device, flaw: Flaw::Damaged, mended: false };
        self.tell_bad_block(pg, found, what, scrubbing);
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
