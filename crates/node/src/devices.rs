//! The stores of this node's devices: what is under way in them, and what comes of it.

use crate::effect::{Breakdown, Effect};
use crate::hanging::Hanging;
use crate::node::Node;
use crate::reads::Reads;
use crate::{DAMAGED_BLOCKS_MAX, REFUSED_READS_MAX};
use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, CHUNK_BLOCKS, Checksum, ChunkIndex, DeviceId, Epoch, Extent, IoStatus, LayerId,
    PageBuf, PgId, RequestId, Sequence, Slab,
};
use azekura_replica::{Client, Group, Recovered};
use azekura_store::{ChunkDigest, Completion, IoId, MapError, OpenError, ReadError, Report, Store};
use azekura_wire::{Message, ReadDone, StatusDone};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

/// A device and its store.
pub(crate) struct Device {
    pub(crate) store: Store,
    pub(crate) open: bool,
    /// The store takes no more data.
    pub(crate) full: bool,
    pub(crate) pending: Slab<PendingOp>,
    /// Layers whose dropping has been started.
    dropping: BTreeSet<LayerId>,
    /// Layers whose merging has been started.
    pub(crate) merging: BTreeSet<LayerId>,
    /// Groups whose copy is being given up, or is, and the configuration does not know it yet.
    forgetting: BTreeSet<PgId>,
    /// A checkpoint is being saved.
    pub(crate) checkpointing: bool,
    /// Notes that groups want kept: those for the next checkpoint, and those in the present one.
    pub(crate) notes_wanted: Vec<(PgId, u64)>,
    pub(crate) notes_saving: Vec<(PgId, u64)>,
    pub(crate) errors: Errors,
    pub(crate) reads: Reads,
    /// When it next names what it knows nothing of.
    pub(crate) unknown_at: Duration,
    pub(crate) hanging: Hanging,
    /// When the condition of the device is looked at next.
    pub(crate) look_at: Duration,
}

/// Errors of a device since the process started.
#[derive(Default)]
pub(crate) struct Errors {
    /// Blocks that have failed their checksum.
    damaged: BTreeSet<(LayerId, ChunkIndex, BlockIndex)>,
    refused_reads: u32,
    /// They are more than a sound device has, and that has been told.
    too_many: bool,
}

impl Errors {
    /// One error that is too many by itself. True when there was too much already.
    pub(crate) fn is_failing(&mut self) -> bool {
        std::mem::replace(&mut self.too_many, true)
    }

    /// Counts an error of a read in this chunk. What to tell when that makes them too many.
    fn count(&mut self, place: Option<(LayerId, ChunkIndex)>, error: &ReadError) -> Option<String> {
        match (error, place) {
            (ReadError::Checksum { block }, Some((layer, chunk))) if !self.too_many => {
                self.damaged.insert((layer, chunk, *block));
            }
            // One damaged leaf of the map is one error.
            (ReadError::Unknown { .. }, Some((layer, chunk))) if !self.too_many => {
                self.damaged.insert((layer, chunk, BlockIndex(0)));
            }
            (ReadError::Device(_), _) => self.refused_reads += 1,
            _ => {}
        }
        let (damaged, refused) = (self.damaged.len(), self.refused_reads);
        if self.too_many || damaged < DAMAGED_BLOCKS_MAX && refused < REFUSED_READS_MAX {
            return None;
        }
        self.too_many = true;
        Some(format!("{damaged} blocks have failed their checksum and {refused} reads were refused; the last: {error}"))
    }
}

/// Something that a store was asked for.
pub(crate) enum PendingOp {
    Append {
        pg: PgId,
        sequence: Sequence,
        life: u32,
    },
    Repair {
        pg: PgId,
        epoch: Epoch,
        id: Option<std::num::NonZeroU64>,
    },
    Changes {
        pg: PgId,
        copy: DeviceId,
        id: u64,
    },
    Blocks {
        pg: PgId,
        layer: LayerId,
        chunk: ChunkIndex,
        id: u64,
    },
    Checksums {
        pg: PgId,
        id: u64,
    },
    Epoch {
        pg: PgId,
        epoch: Epoch,
    },
    Prepared {
        pg: PgId,
        sequence: Sequence,
        epoch: Epoch,
    },
    Edge {
        pg: PgId,
        merge: u64,
        block: BlockIndex,
    },
    Read {
        pg: PgId,
        layer: LayerId,
        chunk: ChunkIndex,
        client: Client,
        request: RequestId,
        at: Duration,
        blocks: u16,
    },
    Status {
        client: Client,
        request: RequestId,
    },
    Drop {
        layer: LayerId,
    },
    Compare {
        asker: u64,
        from: LayerId,
        to: LayerId,
    },
    Measure {
        asker: u64,
    },
    /// A read whose client was sent to another copy meanwhile.
    Void {
        blocks: u16,
    },
    Merge,
    Forget,
    Complete,
}

impl Device {
    /// What a token of the store's means.
    pub(crate) fn take_pending(&mut self, token: u64) -> Option<PendingOp> {
        self.pending.remove(token)
    }
}

impl PendingOp {
    /// The chunk that is read.
    fn chunk(&self) -> Option<(LayerId, ChunkIndex)> {
        match self {
            PendingOp::Read { layer, chunk, .. } | PendingOp::Blocks { layer, chunk, .. } => Some((*layer, *chunk)),
            _ => None,
        }
    }
}

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
            checkpointing: false,
            notes_wanted: Vec::new(),
            notes_saving: Vec::new(),
            errors: Errors::default(),
            reads: Reads::new(self.read_limits),
            unknown_at: Duration::ZERO,
            hanging: Hanging::new(self.now),
            look_at: Duration::ZERO,
        };
        self.devices.insert(id, device);
        self.tell_layers(id);
    }

    /// An effect of a store is done.
    pub fn store_done(&mut self, device: DeviceId, io: IoId, done: azekura_store::Done) {
        if let Some(device) = self.devices.get_mut(&device) {
            device.hanging.ended(io, &done, self.now);
            device.store.done(io, done);
        }
    }

    /// Segments from this one on are not initialised yet.
    pub fn segments_ready(&mut self, device: DeviceId, segments: u32) {
        if let Some(device) = self.devices.get_mut(&device) {
            device.store.segments_ready(segments);
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
        let due = self.view.dropped.iter().filter(|(_, devices)| devices.contains(&id)).map(|(layer, _)| *layer);
        let due: Vec<LayerId> = due.filter(|layer| device.dropping.insert(*layer)).collect();
        for layer in due {
            self.with_store(id, PendingOp::Drop { layer }, |store, token| store.drop_layer(token, layer));
        }
        let new: Vec<PgId> = self
            .view
            .groups
            .iter()
            .filter(|(pg, config)| config.needs(id) && !self.groups.contains_key(&(**pg, id)))
            .map(|(pg, _)| *pg)
            .collect();
        new.into_iter().for_each(|pg| self.add_group(pg, id));
        self.leave_groups(id);
        self.merge_layers(id);
    }

    /// Ends copies that the configuration does not want on an open device any more, and gives up what they hold.
    fn leave_groups(&mut self, id: DeviceId) {
        let keys = self.groups.keys().filter(|(_, device)| *device == id);
        let unwanted = keys.filter(|(pg, _)| self.view.groups.get(pg).is_some_and(|config| !config.needs(id)));
        let unwanted: Vec<PgId> = unwanted.map(|(pg, _)| *pg).collect();
        for pg in unwanted {
            self.wake(pg, id, Group::close);
            self.run_groups();
            self.groups.remove(&(pg, id));
        }
        let Some(device) = self.devices.get_mut(&id) else { return };
        let left = |pg: &PgId| {
            self.view.groups.get(pg).is_some_and(|config| config.leaving.contains(&id) && !config.needs(id))
        };
        device.forgetting.retain(left);
        let due: Vec<PgId> =
            self.view.groups.keys().filter(|pg| left(pg) && !device.forgetting.contains(pg)).copied().collect();
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
        let (Some(device), Some(config)) = (self.devices.get(&id), self.view.groups.get(&pg)) else { return };
        if device.store.is_forgetting(pg) {
            return; // What is here of an earlier copy must be gone first; nobody waits for this one yet.
        }
        let mut group = self.new_copy(pg, id, config.clone(), recovered(&device.store, pg));
        group.set_full(device.full);
        group.set_hung(device.hanging.hangs());
        let mut reachable: BTreeSet<_> = self.links.up_peers().collect();
        reachable.insert(self.identity.endpoint);
        for (peer, at) in &self.view.devices {
            if reachable.contains(at) && *peer != id {
                group.share_window(*peer, self.links.window(*at));
                group.peer_up(*peer);
            }
        }
        if let Some((client, news)) = self.early_new_epochs.remove(&(pg, id)) {
            group.new_epoch(client, news);
        }
        self.groups.insert((pg, id), group);
        self.awake.push_back((pg, id));
    }

    /// Hands the store's collected records and its effects to the event loop.
    pub(crate) fn run_store(&mut self, id: DeviceId) {
        // To open, a store has to know the tree of layers.
        let Some(device) = self.devices.get_mut(&id).filter(|_| self.revision > 0) else { return };
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
                Report::Forgotten { pg } => self.effects.push_back(Effect::CopyForgotten(id, pg)),
                Report::NotSaved { error } => {
                    let way_out = match error {
                        MapError::Full(_) => "; make room in the device's folder",
                        MapError::Refused(_) | MapError::Failed(_) => "",
                    };
                    self.effects.push_back(Effect::Warn(format!("device {id}: {error}; it is tried again{way_out}")));
                }
                Report::LeafDamaged { key, what } => {
                    let place = self.view.place_of(key.layer, key.chunk, BlockIndex(0));
                    let text = format!("device {id}: {what}; the chunk at {place} is brought level from another copy");
                    self.effects.push_back(Effect::Warn(text));
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
                device.checkpointing = false;
                for (pg, name) in std::mem::take(&mut device.notes_saving) {
                    self.wake(pg, id, |group| group.note_saved(name));
                }
            }
            Completion::Modified { token, result } => {
                if let Some(PendingOp::Changes { pg, copy, id: listing }) = device.pending.remove(token) {
                    if let Err(error) = &result {
                        self.effects.push_back(Effect::Warn(format!("device {id}: {error}")));
                    }
                    let chunks = |list: Vec<_>| list.into_iter().map(|(layer, chunk, _)| (layer, chunk));
                    let changes = result.ok().map(|list| self.compared_chunks(chunks(list)));
                    self.wake(pg, id, |group| group.changes_listed(listing, copy, changes));
                }
            }
            Completion::Durable { token } => match device.pending.remove(token) {
                Some(PendingOp::Append { pg, sequence, life }) => {
                    self.owing.insert((pg, id));
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
                    let what = self.text_of(pending.as_ref().and_then(PendingOp::chunk), error);
                    self.effects.push_back(Effect::Warn(format!("device {id}: {what}")));
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

    /// An error of a read, with its place: also of a block that the group has given up (decision 0014).
    fn text_of(&self, chunk: Option<(LayerId, ChunkIndex)>, error: &ReadError) -> String {
        match (chunk, error) {
            (Some((layer, chunk)), ReadError::Checksum { block }) => {
                format!("{}: the block fails its checksum", self.view.place_of(layer, chunk, *block))
            }
            (Some((layer, chunk)), ReadError::Lost { block }) => {
                format!("{}: the block is lost: no copy could give it", self.view.place_of(layer, chunk, *block))
            }
            _ => error.to_string(),
        }
    }

    /// A read has met a damaged block: its group writes it anew from a good copy.
    fn found_damaged(&mut self, id: DeviceId, pending: Option<&PendingOp>, error: &ReadError) {
        let Some(PendingOp::Read { pg, layer, chunk, .. } | PendingOp::Blocks { pg, layer, chunk, .. }) = pending
        else {
            return;
        };
        let (first, count) = match error {
            ReadError::Checksum { block } | ReadError::Lost { block } => (*block, 1),
            ReadError::Unknown { first, count } => (*first, *count),
            ReadError::Device(_) | ReadError::Map(_) | ReadError::NotPrepared => return,
        };
        let range = BlockRange { layer: *layer, chunk: *chunk, first, count };
        self.wake(*pg, id, |group| group.found_unknown(range));
    }

    fn read_done(&mut self, id: DeviceId, pending: Option<PendingOp>, result: Result<Vec<Extent>, ReadError>) {
        match pending {
            Some(PendingOp::Blocks { pg, id: blocks, .. }) => {
                let contents = result.map_err(|_| IoStatus::Io);
                self.wake(pg, id, |group| group.blocks_loaded(blocks, contents));
            }
            Some(PendingOp::Read { client, request, at, blocks, .. }) => {
                self.devices.get_mut(&id).into_iter().for_each(|device| device.reads.ended(blocks));
                self.balance.answered(self.now.saturating_sub(at));
                let result = result.map_err(|_| IoStatus::Io);
                self.answer_later(client, Message::ReadDone(ReadDone { request, result }));
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

    fn digest_done(&mut self, id: DeviceId, token: u64, result: Result<ChunkDigest, ReadError>) {
        let pending = self.devices.get_mut(&id).and_then(|device| device.pending.remove(token));
        let Some(PendingOp::Checksums { pg, id: wish }) = pending else { return };
        if let Err(error) = &result {
            self.effects.push_back(Effect::Warn(format!("device {id}: {error}")));
        }
        let checksums = result.map(|digest| by_block(&digest)).map_err(|_| IoStatus::Io);
        self.wake(pg, id, |group| group.checksums_loaded(wish, checksums));
    }

    pub(crate) fn wake(&mut self, pg: PgId, device: DeviceId, f: impl FnOnce(&mut Group)) {
        if let Some(group) = self.groups.get_mut(&(pg, device)) {
            group.advance(self.now);
            f(group);
            self.awake.push_back((pg, device));
        }
    }

    /// The store has stopped: its copies are out of service until the process is started again.
    pub(crate) fn give_up(&mut self, id: DeviceId, why: Breakdown) {
        self.effects.push_back(Effect::DeviceOpen(id, Err(why)));
        let keys: Vec<_> = self.groups.keys().filter(|(_, device)| *device == id).copied().collect();
        for key in keys {
            self.wake(key.0, key.1, Group::close);
            self.run_groups();
            self.groups.remove(&key);
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

/// The checksum of each block of a chunk that takes space.
fn by_block(digest: &ChunkDigest) -> Vec<Option<Checksum>> {
    let mut blocks = Vec::with_capacity(CHUNK_BLOCKS);
    for run in &digest.runs {
        match &run.checksums {
            Some(checksums) => blocks.extend(checksums.iter().copied().map(Some)),
            None => blocks.extend(std::iter::repeat_n(None, usize::from(run.count))),
        }
    }
    blocks
}

/// The contents of a read of one block.
fn first_block(extents: Vec<Extent>) -> Bytes {
    match extents.into_iter().next() {
        Some(Extent::Data { bytes, .. }) => bytes,
        Some(Extent::Zero { .. }) | None => PageBuf::zeroed(BLOCK_SIZE).freeze(),
    }
}

fn recovered(store: &Store, pg: PgId) -> Recovered {
    let state = store.group(pg);
    Recovered {
        epoch: state.epoch,
        committed: state.committed,
        incomplete: (state.complete < state.committed).then_some(state.complete),
        tail: store.prepared(pg).collect(),
        note: store.note(pg),
        committed_since: store.replayed_requests(pg).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_store::DeviceError;

    #[test]
    fn many_damaged_blocks_are_too_many_and_one_that_is_read_often_is_not() {
        let mut errors = Errors::default();
        let at =
            |block: usize| (Some((LayerId(1), ChunkIndex(2))), ReadError::Checksum { block: BlockIndex(block as u16) });
        for _ in 0..10 * DAMAGED_BLOCKS_MAX {
            let (place, error) = at(7);
            assert_eq!(errors.count(place, &error), None);
        }
        let reasons: Vec<String> = (100..100 + DAMAGED_BLOCKS_MAX)
            .filter_map(|block| {
                let (place, error) = at(block);
                errors.count(place, &error)
            })
            .collect();
        assert_eq!(reasons.len(), 1, "the device is given up once");
        assert!(reasons[0].starts_with("256 blocks have failed their checksum and 0 reads"), "{}", reasons[0]);
    }

    #[test]
    fn reads_that_the_device_refuses_are_counted_wherever_they_are() {
        let mut errors = Errors::default();
        let refused = ReadError::Device(DeviceError("Input/output error".into()));
        for _ in 1..REFUSED_READS_MAX {
            assert_eq!(errors.count(None, &refused), None);
        }
        assert_eq!(errors.count(None, &ReadError::NotPrepared), None);
        assert!(errors.count(None, &refused).is_some_and(|why| why.contains("Input/output error")));
        assert_eq!(errors.count(None, &refused), None);
    }
}
