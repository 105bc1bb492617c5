//! What this node's devices are asked for, and what comes of it.

use super::{Checkpoints, Device};
use crate::copies::Key;
use crate::effect::{Breakdown, Effect};
use crate::errors::Errors;
use crate::hanging::Hanging;
use crate::node::Node;
use crate::pending::PendingOp;
use crate::reads::Reads;
use azekura_base::{
    BlockIndex, BlockRange, BlockSum, CHUNK_BLOCKS, ChunkIndex, DeviceId, Extent, IoStatus, LayerId, PgId, RequestId,
    Slab, Warning,
};
use azekura_replica::{Client, Group, Recovered};
use azekura_store::{ChunkDigest, Completion, Initialisation, IoId, MapError, OpenError, ReadError, Report, Store};
use azekura_wire::{Message, ReadDone, StatusDone};
use std::collections::BTreeSet;
use std::time::Duration;

impl Node {
    /// Takes a device in; its store has just been opened and asks for its first effects at the next poll.
    pub fn add_device(&mut self, id: DeviceId, store: Store) {
        let device = Device {
            store,
            open: false,
            full: false,
            pending: Slab::default(),
            dropping: BTreeSet::new(),
            merging: BTreeSet::new(),
            forgetting: BTreeSet::new(),
            checkpoints: Checkpoints::default(),
            errors: Errors::default(),
            reads: Reads::new(self.limits.reads),
            unknown_at: Duration::ZERO,
            hanging: Hanging::new(self.now),
            look_at: Duration::ZERO,
        };
        self.devices.insert(id, device);
        self.mesh.needs.shares_changed();
        self.tell_layers(id);
    }

    /// An effect of a store is done.
    pub fn store_done(&mut self, device: DeviceId, io: IoId, done: azekura_store::Done) {
        if let Some(device) = self.devices.get_mut(&device) {
            device.hanging.ended(io, &done, self.now);
            device.store.done(io, done);
        }
    }

    /// Segments from this one on are not initialised yet, see [`Store::segments_ready`].
    pub fn segments_ready(&mut self, device: DeviceId, segments: u32, others: Initialisation) {
        if let Some(device) = self.devices.get_mut(&device) {
            device.store.segments_ready(segments, others);
        }
    }

    /// Asks a store for something, if the device is there; `under` is what its completion means.
    pub(crate) fn with_store(&mut self, device: DeviceId, pending: PendingOp, ask: impl FnOnce(&mut Store, u64)) {
        if let Some(device) = self.devices.get_mut(&device) {
            let token = device.pending.insert(pending);
            ask(&mut device.store, token);
        }
    }

    /// Starts what the configuration asks of an open device.
    pub(crate) fn follow_view(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id).filter(|device| device.open) else { return };
        let due =
            self.directory.view.dropped.iter().filter(|(_, devices)| devices.contains(&id)).map(|(layer, _)| *layer);
        let due: Vec<LayerId> = due.filter(|layer| device.dropping.insert(*layer)).collect();
        for layer in due {
            self.with_store(id, PendingOp::Drop { layer }, |store, token| store.drop_layer(token, layer));
        }
        let new: Vec<PgId> = self
            .directory
            .view
            .groups
            .iter()
            .filter(|(pg, config)| config.needs(id) && !self.copies.groups.contains_key(&(**pg, id)))
            .map(|(pg, _)| *pg)
            .collect();
        new.into_iter().for_each(|pg| self.add_group(pg, id));
        self.leave_groups(id);
        self.merge_layers(id);
    }

    /// Ends copies that the configuration does not want on an open device any more, and gives up what they hold.
    fn leave_groups(&mut self, id: DeviceId) {
        let keys = self.copies.groups.keys().filter(|(_, device)| *device == id);
        let unwanted =
            keys.filter(|(pg, _)| self.directory.view.groups.get(pg).is_some_and(|config| !config.needs(id)));
        let unwanted: Vec<PgId> = unwanted.map(|(pg, _)| *pg).collect();
        for pg in unwanted {
            self.wake(pg, id, Group::close);
            self.run_groups();
            self.copies.groups.remove(&(pg, id));
        }
        let Some(device) = self.devices.get_mut(&id) else { return };
        let left = |pg: &PgId| {
            self.directory.view.groups.get(pg).is_some_and(|config| config.leaving.contains(&id) && !config.needs(id))
        };
        device.forgetting.retain(left);
        let due: Vec<PgId> = self
            .directory
            .view
            .groups
            .keys()
            .filter(|pg| left(pg) && !device.forgetting.contains(pg))
            .copied()
            .collect();
        for pg in due {
            let Some(device) = self.devices.get_mut(&id) else { return };
            device.forgetting.insert(pg);
            // After a restart, the store goes on by itself with what it had begun.
            if !device.store.is_forgetting(pg) {
                self.with_store(id, PendingOp::Forget, |store, token| store.forget_group(token, pg));
            }
        }
    }

    /// Starts a copy of a group on an open device.
    fn add_group(&mut self, pg: PgId, id: DeviceId) {
        let (Some(device), Some(config)) = (self.devices.get(&id), self.directory.view.groups.get(&pg)) else { return };
        if device.store.is_forgetting(pg) {
            return; // What is here of an earlier copy must be gone first; nobody waits for this one yet.
        }
        let mut group = self.new_copy(pg, id, config.clone(), recovered(&device.store, pg));
        group.set_full(device.full);
        group.set_hung(device.hanging.hangs());
        group.set_out(device.hanging.is_out());
        let mut reachable: BTreeSet<_> = self.mesh.links.up_peers().collect();
        reachable.insert(self.identity.endpoint);
        for (peer, at) in &self.directory.view.devices {
            if reachable.contains(at) && *peer != id {
                group.share_window(*peer, self.mesh.links.window(*at));
                group.peer_up(*peer);
            }
        }
        if let Some((client, news)) = self.copies.early_new_epochs.remove(&(pg, id)) {
            group.new_epoch(client, news);
        }
        self.copies.groups.insert((pg, id), group);
        self.copies.awake.push_back((pg, id));
    }

    /// Hands the store's collected records and its effects to the event loop.
    pub(crate) fn run_store(&mut self, id: DeviceId) {
        // To open, a store has to know the tree of layers.
        let Some(device) = self.devices.get_mut(&id).filter(|_| self.directory.revision > 0) else { return };
        if device.open {
            device.store.pump();
        }
        while let Some(effect) = device.store.next_effect() {
            device.hanging.asked(&effect, self.now);
            self.effects.push_back(Effect::Store(id, effect));
        }
    }

    /// Passes on what a store has completed.
    pub(crate) fn run_completions(&mut self, id: DeviceId) {
        while let Some(completion) = self.devices.get_mut(&id).and_then(|device| device.store.next_completion()) {
            self.completed(id, completion);
        }
        while let Some(report) = self.devices.get_mut(&id).and_then(|device| device.store.next_report()) {
            match report {
                Report::LayerGone { layer } => {
                    let merging = self.devices.get_mut(&id).is_some_and(|device| device.merging.contains(&layer));
                    if merging {
                        self.effects.push_back(Effect::LayerMerged(id, layer));
                    }
                }
                Report::Forgotten { pg } => {
                    self.effects.push_back(Effect::CopyForgotten(id, pg));
                    // The group may want a new copy here already. Where the device has lost what it wrote last, it
                    // forgets once more what the configuration takes for long gone, and nothing else brings this up.
                    self.follow_view(id);
                }
                Report::NotSaved { error } => {
                    let way_out = match error {
                        MapError::Full(_) => "; make room in the device's folder",
                        MapError::Refused(_) | MapError::Failed(_) => "",
                    };
                    self.warn(Warning::new(format!("device {id}: {error}; it is tried again{way_out}")).device(id));
                }
                Report::LeafDamaged { key, what } => {
                    let place = self.directory.view.place_of(key.layer, key.chunk, BlockIndex(0));
                    let text = format!("device {id}: {what}; the chunk at {place} is brought level from another copy");
                    self.warn(place.named_in(Warning::new(text).device(id)));
                    self.devices.entry(id).and_modify(|device| device.unknown_at = Duration::ZERO);
                }
                Report::RowsLost { what, .. } => {
                    let news = self.devices.get_mut(&id).is_some_and(|device| !device.errors.is_failing());
                    self.effects.extend(news.then_some(Effect::DeviceFailing(id, what)));
                }
                Report::Digest { token, result } => self.digest_done(id, token, result),
                Report::Differences { token, result } => self.compared(id, token, result),
                Report::Measured { token, result } => self.measured(id, token, result),
                _ => {}
            }
        }
    }

    fn completed(&mut self, id: DeviceId, completion: Completion) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        match completion {
            Completion::Recovered(Ok(())) => {
                device.open = true;
                self.effects.push_back(Effect::DeviceOpen(id, Ok(())));
                self.follow_view(id);
            }
            Completion::Recovered(Err(error)) => {
                // Whatever is wrong with the options or the version, another program may know how to read it.
                let for_good =
                    matches!(error, OpenError::NotFormatted | OpenError::Identity(_) | OpenError::Damaged(_));
                self.give_up(id, Breakdown { reason: error.to_string(), for_good });
            }
            Completion::Failed(failure) => {
                self.give_up(id, Breakdown { reason: failure.to_string(), for_good: false });
            }
            Completion::Checkpointed => {
                for (pg, name) in device.checkpoints.saved() {
                    self.wake(pg, id, |group| group.note_saved(name));
                }
            }
            Completion::Modified { token, result } => {
                if let Some(PendingOp::Changes { pg, copy, id: listing }) = device.pending.remove(token) {
                    if let Err(error) = &result {
                        self.warn(Warning::new(format!("device {id}: {error}")).device(id));
                    }
                    let chunks = |list: Vec<_>| list.into_iter().map(|(layer, chunk, _)| (layer, chunk));
                    let changes = result.ok().map(|list| self.compared_chunks(chunks(list)));
                    self.wake(pg, id, |group| group.changes_listed(listing, copy, changes));
                }
            }
            Completion::Durable { token } => match device.pending.remove(token) {
                Some(PendingOp::Append { pg, sequence, life }) => {
                    self.copies.owing.insert((pg, id));
                    self.wake(pg, id, |group| group.appended(sequence, life));
                }
                Some(PendingOp::Repair { pg, epoch, id: repair }) => {
                    self.wake(pg, id, |group| group.repair_appended(epoch, repair));
                }
                Some(PendingOp::Epoch { pg, epoch }) => self.wake(pg, id, |group| group.epoch_started(epoch)),
                Some(PendingOp::Drop { layer }) => self.effects.push_back(Effect::LayerDropped(id, layer)),
                _ => {}
            },
            Completion::Dropped { token } => drop(device.pending.remove(token)),
            Completion::Prepared { token, result } => {
                if let Some(PendingOp::Prepared { pg, sequence, epoch }) = device.pending.remove(token) {
                    self.wake(pg, id, |group| group.prepared_loaded(sequence, epoch, result.ok()));
                }
            }
            Completion::Read { token, result } => {
                let pending = device.pending.remove(token);
                if let Err(error) = &result {
                    let too_many = device.errors.count(pending.as_ref().and_then(PendingOp::chunk), error);
                    self.warn_of_read(id, pending.as_ref().and_then(PendingOp::chunk), error);
                    self.effects.extend(too_many.map(|why| Effect::DeviceFailing(id, why)));
                    self.found_damaged(id, pending.as_ref(), error);
                }
                self.read_done(id, pending, result);
            }
            Completion::Status { token, result } => {
                if let Some(PendingOp::Status { client, request }) = device.pending.remove(token) {
                    let result = result.map_err(|_| IoStatus::Io);
                    self.answer_later(client, Message::StatusDone(StatusDone { request, result }));
                }
            }
        }
    }

    /// Tells of an error of a read, with the place that it is at.
    fn warn_of_read(&mut self, device: DeviceId, chunk: Option<(LayerId, ChunkIndex)>, error: &ReadError) {
        let bad = match *error {
            ReadError::Checksum { block } => Some((block, "the block fails its checksum")),
            // Decision 0014: clients get an error, and people hear which block the group has given up.
            ReadError::Lost { block } => Some((block, "the block is lost: no copy could give it")),
            _ => None,
        };
        let warning = match chunk.zip(bad) {
            Some(((layer, chunk), (block, what))) => {
                let place = self.directory.view.place_of(layer, chunk, block);
                place.named_in(Warning::new(format!("device {device}: {place}: {what}")))
            }
            None => Warning::new(format!("device {device}: {error}")),
        };
        self.warn(warning.device(device));
    }

    /// A read has met a damaged block: its group writes it anew from a good copy.
    fn found_damaged(&mut self, id: DeviceId, pending: Option<&PendingOp>, error: &ReadError) {
        let (pg, layer, chunk) = match pending {
            Some(PendingOp::Read { pg, range, .. }) => (*pg, range.layer, range.chunk),
            Some(PendingOp::Blocks { pg, layer, chunk, .. }) => (*pg, *layer, *chunk),
            _ => return,
        };
        let (first, count) = match error {
            ReadError::Checksum { block } | ReadError::Lost { block } => (*block, 1),
            ReadError::Unknown { first, count } => (*first, *count),
            ReadError::Device(_) | ReadError::Map(_) | ReadError::NotPrepared => return,
        };
        let range = BlockRange { layer, chunk, first, count };
        self.wake(pg, id, |group| group.found_unknown(range));
    }

    fn read_done(&mut self, id: DeviceId, pending: Option<PendingOp>, result: Result<Vec<Extent>, ReadError>) {
        match pending {
            Some(PendingOp::Blocks { pg, id: blocks, .. }) => {
                let contents = result.map_err(|_| IoStatus::Io);
                self.wake(pg, id, |group| group.blocks_loaded(blocks, contents));
            }
            Some(PendingOp::Read { pg, range, client, request, at }) => {
                self.devices.get_mut(&id).into_iter().for_each(|device| device.reads.ended(range.count));
                self.balance.answered(self.now.saturating_sub(at));
                match result {
                    Ok(extents) => {
                        self.answer_later(client, Message::ReadDone(ReadDone { request, result: Ok(extents) }));
                    }
                    Err(error) => self.not_read((pg, id), client, request, range, &error),
                }
            }
            Some(PendingOp::Void { blocks }) => {
                self.devices.get_mut(&id).into_iter().for_each(|device| device.reads.ended(blocks));
            }
            Some(PendingOp::Edge { pg, merge, block }) => {
                let contents = result.map(first_block).map_err(|_| IoStatus::Io);
                self.wake(pg, id, |group| group.edge_loaded(merge, block, contents));
            }
            _ => {}
        }
    }

    /// The store can't give what a client reads: another copy may.
    fn not_read(&mut self, key: Key, client: Client, request: RequestId, range: BlockRange, error: &ReadError) {
        let (pg, device) = key;
        // Decision 0014: what the group has given up is an error, whatever else a copy may have.
        let given_up = matches!(error, ReadError::Lost { .. });
        if given_up || !self.copies.groups.contains_key(&key) {
            return self.refuse_read(client, request, IoStatus::Io);
        }
        self.wake(pg, device, |group| group.read_failed(client, request, range));
    }

    fn digest_done(&mut self, id: DeviceId, token: u64, result: Result<ChunkDigest, ReadError>) {
        let pending = self.devices.get_mut(&id).and_then(|device| device.pending.remove(token));
        let Some(PendingOp::Checksums { pg, id: wish }) = pending else { return };
        if let Err(error) = &result {
            self.warn(Warning::new(format!("device {id}: {error}")).device(id));
        }
        let checksums = result.map(|digest| by_block(&digest)).map_err(|_| IoStatus::Io);
        self.wake(pg, id, |group| group.checksums_loaded(wish, checksums));
    }

    pub(crate) fn wake(&mut self, pg: PgId, device: DeviceId, f: impl FnOnce(&mut Group)) {
        if let Some(group) = self.copies.groups.get_mut(&(pg, device)) {
            group.advance(self.now);
            f(group);
            self.copies.awake.push_back((pg, device));
        }
    }

    /// The store has stopped: its copies are out of service until the process is started again.
    pub(crate) fn give_up(&mut self, id: DeviceId, why: Breakdown) {
        self.effects.push_back(Effect::DeviceOpen(id, Err(why)));
        let keys: Vec<_> = self.copies.groups.keys().filter(|(_, device)| *device == id).copied().collect();
        for key in keys {
            self.wake(key.0, key.1, Group::close);
            self.run_groups();
            self.copies.groups.remove(&key);
        }
        let Some(device) = self.devices.remove(&id) else { return };
        // Who waits for a read is sent to ask again: nothing comes from this store any more, and the group's next copy
        // may be on this very node.
        for (client, request) in device.reads.into_waiting() {
            self.refuse_read(client, request, IoStatus::Redirect);
        }
        for pending in device.pending.into_values() {
            match pending {
                PendingOp::Read { client, request, .. } => {
                    let refusal = ReadDone { request, result: Err(IoStatus::Redirect) };
                    self.answer_later(client, Message::ReadDone(refusal));
                }
                PendingOp::Status { client, request } => {
                    let refusal = StatusDone { request, result: Err(IoStatus::Redirect) };
                    self.answer_later(client, Message::StatusDone(refusal));
                }
                pending => self.no_answer(&pending),
            }
        }
    }
}

/// The checksum and the key of each block of a chunk that takes space.
fn by_block(digest: &ChunkDigest) -> Vec<Option<BlockSum>> {
    let mut blocks = Vec::with_capacity(CHUNK_BLOCKS);
    for run in &digest.runs {
        match &run.checksums {
            Some(checksums) => blocks.extend(checksums.each().map(Some)),
            None => blocks.extend(std::iter::repeat_n(None, usize::from(run.count))),
        }
    }
    blocks
}

/// The contents of a read of one block.
fn first_block(extents: Vec<Extent>) -> Extent {
    extents.into_iter().next().unwrap_or(Extent::Zero { count: 1 })
}

fn recovered(store: &Store, pg: PgId) -> Recovered {
    let state = store.group(pg);
    Recovered {
        epoch: state.epoch,
        committed: state.committed,
        incomplete: (state.complete < state.committed).then_some(state.complete),
        unproven: state.unproven,
        tail: store.prepared(pg).collect(),
        note: store.note(pg),
        committed_since: store.replayed_requests(pg).collect(),
    }
}
