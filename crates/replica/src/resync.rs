//! Bringing a copy that was away up to date, as the primary does it.
//!
//! From the start the copy is sent every new write as any secondary is; nothing waits for its answers, but for new
//! writes when too much is on its way to it (`flow.rs`). Meanwhile the primary goes through the chunks that were
//! changed while the copy was away. It compares each with the copy by digests and sends the blocks that differ. A block
//! is read while no write to it is under way and new ones are held back, and sent before them on the same connection,
//! so the copy applies the repair in the right place of the order without a place of its own. Both take from what the
//! group may do in the background (`background.rs`). A layer comes before those that lie on it, which inherit what is
//! sent for it: a chunk of a layer is compared when nothing of the same chunk is under way for another. When all chunks
//! are done, writes wait for the copy too, and the configuration is asked to name it in sync.
//!
//! A chunk of which the primary can't read a block is compared by the checksums in both maps, which takes no reading:
//! only blocks that differ have to be given. One that differs and that no copy in sync can give is lost: the copy is
//! told so and fails reads of it, too, until somebody writes it, or a scrub finds a copy that can give it after all. A
//! block that this copy's device refuses may be there again in a moment: it counts as damaged only after a while.

use crate::action::Action;
use crate::digest;
use crate::group::{Group, Role};
use crate::peer::{Peer, Standing};
use crate::primary::{Primary, REIGN_SHIFT};
use azekura_base::{
    AckRule, BLOCK_SIZE, BlockIndex, BlockRange, Body, CHUNK_BLOCKS, CHUNK_SIZE, Checksum, ChunkIndex, DeviceId, Epoch,
    Extent, IoStatus, LayerId, Sequence, UNKNOWN_CHECKSUM, checksum,
};
use azekura_wire::{Compare, CompareOk, DIGEST_SPAN_BLOCKS, Learn, LearnOk, Message, RepairOk};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Repairs of one group under way at once.
const REPAIRS_MAX: usize = 4;
/// Most blocks of one repair: writes to them wait while they are read.
const REPAIR_BLOCKS_MAX: u16 = 32;
/// Chunks of one group being compared at once.
const COMPARES_MAX: usize = 2;
/// Repairs that are found and wait; no further chunk is compared above it.
const FOUND_MAX: usize = 256;
/// A copy that answers nothing for so long starts anew.
const PATIENCE: Duration = Duration::from_secs(5);
/// A copy that does not begin is asked again after this time.
const FIRST_WORD: Duration = Duration::from_secs(1);
/// A copy that has committed more than its primary is asked again after this time.
const AHEAD_AGAIN: Duration = Duration::from_secs(10);
/// What could not be read is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// A block that the device refuses to read counts as damaged after this time.
const REFUSED_FOR: Duration = Duration::from_secs(600);
/// Such blocks that are remembered.
const REFUSED_MAX: usize = 1024;
/// A copy is in reach of the others when it lacks at most so many writes.
const BEHIND_MAX: u64 = 256;

/// How far a copy has been brought up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResyncProgress {
    /// Chunks that were changed while it was away.
    pub chunks: u64,
    /// Of those, the ones that are compared and sent.
    pub chunks_done: u64,
    /// Payload bytes sent.
    pub bytes: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// The copy was asked to start.
    Asked,
    /// The changed chunks are being listed.
    Listing,
    /// Chunks are compared and repaired.
    Copying,
}

/// One copy that is being brought up to date.
#[derive(Debug)]
pub(crate) struct Resync {
    phase: Phase,
    base: Sequence,
    /// Names the listing of changes.
    listing: u64,
    /// The copy has kept which writes it need not apply again.
    noted: bool,
    /// It had nothing to begin with.
    is_new: bool,
    todo: VecDeque<(LayerId, ChunkIndex)>,
    /// Chunks of layers that inherit what was sent, and may have been written since the changes were listed.
    heirs: BTreeSet<(ChunkIndex, LayerId)>,
    /// Chunks that are being read or compared, and the digests of this copy's blocks once read.
    comparing: BTreeMap<u64, Comparison>,
    /// Chunks of which not even the map can be read here, and those that come behind such a chunk, or behind a withheld
    /// block: they are tried again.
    unreadable: Vec<(LayerId, ChunkIndex)>,
    /// Blocks that differ and are damaged here: they are tried again.
    withheld: Vec<BlockRange>,
    try_at: Duration,
    /// Repairs of one block that are only to leave word of a change: any block of the chunk will do.
    marks: BTreeSet<(LayerId, ChunkIndex, BlockIndex)>,
    /// Blocks that differ.
    found: VecDeque<BlockRange>,
    /// Repairs under way.
    repairing: BTreeMap<u64, BlockRange>,
    progress: ResyncProgress,
}

impl Resync {
    fn new(base: Sequence) -> Resync {
        Resync {
            phase: Phase::Asked,
            base,
            listing: 0,
            noted: false,
            is_new: false,
            todo: VecDeque::new(),
            heirs: BTreeSet::new(),
            comparing: BTreeMap::new(),
            unreadable: Vec::new(),
            withheld: Vec::new(),
            try_at: Duration::ZERO,
            marks: BTreeSet::new(),
            found: VecDeque::new(),
            repairing: BTreeMap::new(),
            progress: ResyncProgress::default(),
        }
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Copying
            && self.noted
            && self.todo.is_empty()
            && self.heirs.is_empty()
            && self.unreadable.is_empty()
            && self.withheld.is_empty()
            && self.comparing.is_empty()
            && self.found.is_empty()
            && self.repairing.is_empty()
    }

    /// Something of this chunk is under way for another layer.
    fn is_busy(&self, layer: LayerId, chunk: ChunkIndex) -> bool {
        let other = |blocks: &BlockRange| blocks.chunk == chunk && blocks.layer != layer;
        self.comparing.values().any(|comparison| comparison.chunk == chunk && comparison.layer != layer)
            || self.found.iter().chain(self.repairing.values()).any(other)
    }

    /// Something of this chunk is to be tried again for a layer that this one may lie on.
    fn is_put_off(&self, layer: LayerId, chunk: ChunkIndex) -> bool {
        let withheld = self.withheld.iter().map(|blocks| (blocks.layer, blocks.chunk));
        self.unreadable.iter().copied().chain(withheld).any(|(below, of)| of == chunk && below < layer)
    }

    /// The next chunk to be compared, and whether it is one of an heir's.
    fn next_chunk(&mut self) -> Option<(LayerId, ChunkIndex, bool)> {
        while let Some((layer, chunk)) = self.todo.front().copied() {
            if self.is_busy(layer, chunk) {
                return None;
            }
            self.todo.pop_front();
            if self.is_put_off(layer, chunk) {
                // It would inherit what is sent later for the other layer, also where it has zeros of its own.
                self.unreadable.push((layer, chunk));
                continue;
            }
            self.heirs.remove(&(chunk, layer));
            return Some((layer, chunk, false));
        }
        let free = self.heirs.iter().find(|(chunk, layer)| !self.is_busy(*layer, *chunk)).copied();
        let (chunk, layer) = free?;
        self.heirs.remove(&(chunk, layer));
        Some((layer, chunk, true))
    }
}

/// A chunk that is being compared.
#[derive(Debug)]
struct Comparison {
    layer: LayerId,
    chunk: ChunkIndex,
    /// It is not known to have changed.
    heir: bool,
    /// The digests of this copy's blocks, once read.
    digests: Option<Vec<u64>>,
}

impl Resync {
    /// Sends a block only for word of a change.
    fn mark(&mut self, layer: LayerId, chunk: ChunkIndex, first: BlockIndex) {
        self.marks.insert((layer, chunk, first));
        self.found.push_back(BlockRange { layer, chunk, first, count: 1 });
    }

    /// Blocks that are to be repaired can't be read here. Alone, most of them can.
    fn withhold(&mut self, blocks: BlockRange) {
        let BlockRange { layer, chunk, first, count } = blocks;
        if count > 1 {
            let alone = |n| BlockRange { first: BlockIndex(first.0 + n), count: 1, ..blocks };
            self.found.extend((0..count).map(alone));
        } else if !self.marks.remove(&(layer, chunk, first)) {
            self.withheld.push(blocks);
        } else if usize::from(first.0) + 1 < CHUNK_BLOCKS {
            self.mark(layer, chunk, BlockIndex(first.0 + 1));
        }
    }
}

/// A repair whose blocks are being read.
#[derive(Debug)]
struct Reading {
    device: DeviceId,
    blocks: BlockRange,
}

/// All repairs whose blocks are being read: no write to these blocks is ordered.
#[derive(Debug)]
pub(crate) struct Repairs {
    reading: BTreeMap<u64, Reading>,
    /// Those of them that can't be read, and of which the checksums are being looked up.
    losing: BTreeSet<u64>,
    /// Single blocks that can't be read, and since when.
    refused: BTreeMap<BlockRange, Duration>,
    named: u64,
}

impl Repairs {
    /// Names are never used again, also not in a later reign: a late answer finds its own question, or none.
    pub(crate) fn new(epoch: Epoch) -> Repairs {
        Repairs {
            reading: BTreeMap::new(),
            losing: BTreeSet::new(),
            refused: BTreeMap::new(),
            named: epoch.0 << REIGN_SHIFT,
        }
    }

    fn is_refused_for_long(&mut self, blocks: &BlockRange, now: Duration) -> bool {
        if blocks.count > 1 || self.refused.len() >= REFUSED_MAX && !self.refused.contains_key(blocks) {
            return false;
        }
        let since = *self.refused.entry(*blocks).or_insert(now);
        now.saturating_sub(since) >= REFUSED_FOR
    }

    pub(crate) fn hold(&self, blocks: &BlockRange) -> bool {
        self.reading.values().any(|reading| reading.blocks.overlaps(blocks))
    }

    pub(crate) fn name(&mut self) -> u64 {
        self.named += 1;
        self.named
    }
}

impl Primary {
    /// What was under way for a copy that learns is of no use any more.
    pub(crate) fn forget_learner(&mut self, device: DeviceId) {
        self.peers.remove(&device);
        self.repairs.reading.retain(|_, reading| reading.device != device);
    }

    fn resync(&mut self, device: DeviceId) -> Option<(&mut Resync, &mut Duration)> {
        match self.peers.get_mut(&device)? {
            Peer { standing: Standing::Learning(resync), heard, .. } => Some((resync, heard)),
            _ => None,
        }
    }
}

impl Group {
    /// Copies that could be brought up to date now, or are.
    pub fn learners(&self) -> impl Iterator<Item = DeviceId> + '_ {
        let open = self.is_primary();
        let out = move |device: &&DeviceId| open && **device != self.me && !self.config.in_sync.contains(device);
        let departs = |device: &DeviceId| self.departed.get(device).is_some_and(|until| self.now < *until);
        let there =
            move |device: &&DeviceId| self.connected.contains(device) && !departs(device) && !self.is_put_off(**device);
        self.config.members.iter().filter(out).filter(there).copied()
    }

    /// How far the copies are that are being brought up to date.
    pub fn resyncs(&self) -> impl Iterator<Item = (DeviceId, ResyncProgress)> + '_ {
        let peers = match &self.role {
            Role::Primary(primary) => Some(&primary.peers),
            Role::Secondary(_) => None,
        };
        peers.into_iter().flatten().filter_map(|(device, peer)| match &peer.standing {
            Standing::Learning(resync) => Some((*device, resync.progress)),
            _ => None,
        })
    }

    /// Allows, or forbids, to start bringing copies up to date. What has been started goes on.
    pub fn allow_resync(&mut self, allowed: bool) {
        if let Role::Primary(primary) = &mut self.role {
            primary.may_resync = allowed;
        }
    }

    /// Starts with copies that can be reached, and gives up those that have fallen silent.
    pub(crate) fn watch_learners(&mut self) {
        let (now, committed) = (self.now, self.tail.committed());
        let learners: Vec<DeviceId> = self.learners().collect();
        let Role::Primary(primary) = &mut self.role else { return };
        let failed = |peer: &Peer| {
            let waits = match &peer.standing {
                Standing::Learning(resync) => {
                    resync.phase == Phase::Asked
                        || !resync.repairing.is_empty()
                        || resync.comparing.values().any(|comparison| comparison.digests.is_some())
                        || peer.acked < peer.sent
                }
                _ => false,
            };
            let asked = matches!(&peer.standing, Standing::Learning(resync) if resync.phase == Phase::Asked);
            let patience = if asked { FIRST_WORD } else { PATIENCE };
            waits && now >= peer.heard + patience || !peer.counts() && peer.sent < committed
        };
        let failed: Vec<DeviceId> = primary.peers.iter().filter(|(_, p)| failed(p)).map(|(d, _)| *d).collect();
        failed.into_iter().for_each(|device| primary.forget_learner(device));
        primary.watch_shares(now);
        for peer in primary.peers.values_mut() {
            if let Standing::Learning(resync) = &mut peer.standing
                && now >= resync.try_at
            {
                resync.try_at = now + TRY_AGAIN;
                resync.todo.extend(resync.unreadable.drain(..));
                resync.found.extend(resync.withheld.drain(..));
            }
        }
        if primary.may_resync {
            learners.into_iter().for_each(|device| self.start_resync(device));
        }
        self.run_resyncs();
    }

    fn start_resync(&mut self, device: DeviceId) {
        let (now, base, end) = (self.now, self.tail.committed(), self.tail.end());
        let since = self.config.away.get(&device).copied().unwrap_or(Sequence::ZERO).min(base);
        let backlog = self.backlog(device);
        let Role::Primary(primary) = &mut self.role else { return };
        if primary.peers.contains_key(&device) {
            return;
        }
        primary.has_learners = true;
        primary.peers.insert(device, Peer { backlog, ..Peer::learning(Resync::new(base), base, end, now) });
        let note = self.sessions.to_note();
        let note_checksum = checksum(&note);
        let learn = Learn { pg: self.pg, device, epoch: primary.epoch(), since, base, note_checksum, note };
        self.actions.push_back(Action::Send(device, Message::Learn(learn)));
        self.pump(device);
    }

    /// A copy has begun; when it says so again, it has also kept which writes it need not apply again.
    pub fn learn_ok(&mut self, device: DeviceId, ok: LearnOk) {
        let now = self.now;
        let Role::Primary(primary) = &mut self.role else { return };
        let id = primary.repairs.name();
        let Some(resync) = self.heard_learner(device, ok.epoch, now) else { return };
        let asked = resync.phase == Phase::Asked;
        if asked && ok.base > resync.base {
            return self.leave_alone(device);
        }
        if asked && resync.base == ok.base {
            resync.phase = Phase::Listing;
            resync.is_new = ok.complete == Sequence::ZERO;
            resync.listing = id;
            self.actions.push_back(Action::ListChanges { id, device, after: ok.complete });
        } else if resync.base == ok.base {
            resync.noted = true;
            self.run_resyncs();
        }
    }

    /// The copy on `device` has committed more than this one. What it holds beyond may be all that is left of that.
    fn leave_alone(&mut self, device: DeviceId) {
        let again = self.now + AHEAD_AGAIN;
        if let Role::Primary(primary) = &mut self.role {
            primary.forget_learner(device);
            primary.ahead.insert(device, again);
        }
    }

    /// The outcome of [`Action::ListChanges`]; `None` when the device could not tell.
    pub fn changes_listed(&mut self, id: u64, device: DeviceId, changes: Option<Vec<(LayerId, ChunkIndex)>>) {
        if device == self.me {
            self.scrub_listed(id, changes);
            return;
        }
        let Role::Primary(primary) = &mut self.role else { return };
        let Some((resync, _)) = primary.resync(device).filter(|(resync, _)| resync.listing == id) else { return };
        let Some(changes) = changes else {
            primary.forget_learner(device);
            return;
        };
        if resync.phase == Phase::Listing {
            resync.phase = Phase::Copying;
            resync.progress.chunks = changes.len() as u64;
            resync.todo = changes.into();
        }
        self.run_resyncs();
    }

    /// Does the next steps for every copy that learns.
    pub(crate) fn run_resyncs(&mut self) {
        let Role::Primary(primary) = &self.role else { return };
        let learning = primary.peers.iter().filter(|(_, peer)| !peer.counts());
        let learners: Vec<DeviceId> = learning.map(|(device, _)| *device).collect();
        learners.into_iter().for_each(|device| self.run_resync(device));
    }

    fn run_resync(&mut self, device: DeviceId) {
        let (committed, end, now) = (self.tail.committed(), self.tail.end(), self.now);
        let Role::Primary(primary) = &mut self.role else { return };
        let keeps_up = self.config.ack != AckRule::All || primary.keeps_up(device, now);
        let Primary { peers, repairs, merges, mending, .. } = &mut **primary;
        let Some(peer) = peers.get_mut(&device) else { return };
        let Standing::Learning(resync) = &mut peer.standing else { return };
        // A repair comes behind everything that is in its contents.
        let mut blocked = VecDeque::new();
        while resync.repairing.len() < REPAIRS_MAX
            && peer.sent >= committed
            && self.allowance.is_open()
            && peer.share.has_room_for_repair(&peer.backlog, resync.repairing.len())
        {
            let Some(blocks) = resync.found.pop_front() else { break };
            if self.tail.touches(&blocks) || merges.touches(&blocks) || repairs.hold(&blocks) || mending.hold(&blocks) {
                blocked.push_back(blocks);
                continue;
            }
            let id = repairs.name();
            repairs.reading.insert(id, Reading { device, blocks });
            resync.repairing.insert(id, blocks);
            self.allowance.take(usize::from(blocks.count) * BLOCK_SIZE);
            self.actions.push_back(Action::LoadBlocks { id, range: blocks });
        }
        resync.found.append(&mut blocked);
        while resync.comparing.len() < COMPARES_MAX && resync.found.len() < FOUND_MAX && self.allowance.is_open() {
            let Some((layer, chunk, heir)) = resync.next_chunk() else { break };
            self.allowance.take(CHUNK_SIZE);
            let id = repairs.name();
            resync.comparing.insert(id, Comparison { layer, chunk, heir, digests: None });
            self.actions.push_back(Action::LoadBlocks { id, range: BlockRange::chunk(layer, chunk) });
        }
        let in_reach = end.0 - peer.acked.0 <= BEHIND_MAX || peer.share.has_room(&peer.backlog);
        if resync.is_done() && in_reach && keeps_up {
            peer.standing = Standing::Joining;
            (peer.heard, peer.moved) = (now, now);
        }
    }

    /// The outcome of [`Action::LoadBlocks`].
    pub fn blocks_loaded(&mut self, id: u64, contents: Result<Vec<Extent>, IoStatus>) {
        if matches!(self.role, Role::Secondary(_)) {
            self.question_loaded(id, contents);
            return;
        }
        let Some(contents) = self.mend_loaded(id, contents) else { return };
        let Some(contents) = self.scrub_loaded(id, contents) else { return };
        let Role::Primary(primary) = &mut self.role else { return };
        if let Some(Reading { device, blocks }) = primary.repairs.reading.remove(&id) {
            self.send_repair(device, id, blocks, contents);
            self.retry_waiting();
        } else {
            self.send_compare(id, contents);
        }
        self.run_resyncs();
    }

    fn send_repair(&mut self, device: DeviceId, id: u64, blocks: BlockRange, contents: Result<Vec<Extent>, IoStatus>) {
        let now = self.now;
        let Role::Primary(primary) = &mut self.role else { return };
        let hopeless = primary.mending.is_hopeless(&blocks, now);
        if contents.is_ok() {
            primary.repairs.refused.retain(|refused, _| !refused.overlaps(&blocks));
        }
        let Some((resync, heard)) = primary.resync(device) else { return };
        let Ok(extents) = contents else {
            resync.repairing.remove(&id);
            let is_mark = resync.marks.contains(&(blocks.layer, blocks.chunk, blocks.first));
            if is_mark || !hopeless {
                resync.withhold(blocks);
                if !is_mark && primary.repairs.is_refused_for_long(&blocks, now) {
                    // Another copy may have it; if none has, it is lost.
                    self.mend(self.me, blocks);
                }
                return;
            }
            // The copy gets the checksum of what it should have. Until that is known no write to the block is ordered.
            resync.repairing.insert(id, blocks);
            primary.repairs.reading.insert(id, Reading { device, blocks });
            primary.repairs.losing.insert(id);
            let BlockRange { layer, chunk, .. } = blocks;
            self.actions.push_back(Action::LoadChecksums { id, layer, chunk });
            return;
        };
        *heard = self.now;
        resync.marks.remove(&(blocks.layer, blocks.chunk, blocks.first));
        for extent in &extents {
            if let Extent::Data { bytes, .. } = extent {
                resync.progress.bytes += bytes.len() as u64;
            }
        }
        if let Some(peer) = primary.peers.get_mut(&device) {
            peer.backlog.repair_sent(id, &extents);
        }
        self.send_repairs(device, NonZeroU64::new(id), blocks, extents);
    }

    /// The checksums are here of a chunk with a block that no copy in sync can give. False when this was not asked for
    /// that.
    pub(crate) fn send_lost(&mut self, id: u64, checksums: &Result<Vec<Option<Checksum>>, IoStatus>) -> bool {
        let now = self.now;
        let Role::Primary(primary) = &mut self.role else { return false };
        if !primary.repairs.losing.remove(&id) {
            return false;
        }
        let Some(Reading { device, blocks }) = primary.repairs.reading.remove(&id) else { return true };
        if let Some((resync, heard)) = primary.resync(device) {
            *heard = now;
            let sum = checksums.as_ref().ok().and_then(|sums| sums.get(usize::from(blocks.first.0)).copied());
            match sum {
                // Nobody knows what it should be. What a copy had before may be the last that there is of it; a new one
                // has nothing to give up, and the rest of the group must not wait for this.
                Some(Some(sum)) if sum == UNKNOWN_CHECKSUM && !resync.is_new => {
                    resync.repairing.remove(&id);
                    resync.withhold(blocks);
                }
                Some(Some(sum)) => {
                    self.send_body(device, NonZeroU64::new(id), blocks, Body::Lost { checksums: sum.into() })
                }
                Some(None) => self.send_body(device, NonZeroU64::new(id), blocks, Body::Zero),
                None => {
                    resync.repairing.remove(&id);
                    resync.withhold(blocks);
                }
            }
        }
        self.retry_waiting();
        true
    }

    fn send_compare(&mut self, id: u64, contents: Result<Vec<Extent>, IoStatus>) {
        let Role::Primary(primary) = &mut self.role else { return };
        let epoch = primary.epoch();
        let asks = |peer: &Peer| matches!(&peer.standing, Standing::Learning(r) if r.comparing.contains_key(&id));
        let Some(device) = primary.peers.iter().find(|(_, peer)| asks(peer)).map(|(device, _)| *device) else { return };
        let Some((resync, heard)) = primary.resync(device) else { return };
        let Some(comparison) = resync.comparing.get_mut(&id) else { return };
        let (layer, chunk) = (comparison.layer, comparison.chunk);
        let Ok(extents) = contents else {
            self.allowance.settle_chunk(&[]);
            self.actions.push_back(Action::LoadChecksums { id, layer, chunk });
            return;
        };
        *heard = self.now;
        self.allowance.settle_chunk(&extents);
        let blocks = digest::blocks(&extents);
        let spans = digest::spans(&blocks);
        comparison.digests = Some(blocks);
        let compare = Compare { pg: self.pg, device, epoch, id, layer, chunk, light: false, spans };
        self.actions.push_back(Action::Send(device, Message::Compare(compare)));
    }

    /// The checksums of a chunk that can't be read are looked up.
    pub(crate) fn send_light_compare(&mut self, id: u64, digests: Result<Vec<u64>, IoStatus>) {
        let Role::Primary(primary) = &mut self.role else { return };
        let epoch = primary.epoch();
        let asks = |peer: &Peer| matches!(&peer.standing, Standing::Learning(r) if r.comparing.contains_key(&id));
        let Some(device) = primary.peers.iter().find(|(_, peer)| asks(peer)).map(|(device, _)| *device) else { return };
        let Some((resync, heard)) = primary.resync(device) else { return };
        let Ok(blocks) = digests else {
            if let Some(Comparison { layer, chunk, .. }) = resync.comparing.remove(&id) {
                resync.unreadable.push((layer, chunk));
            }
            return;
        };
        let Some(comparison) = resync.comparing.get_mut(&id) else { return };
        *heard = self.now;
        let spans = digest::spans(&blocks);
        comparison.digests = Some(blocks);
        let (layer, chunk) = (comparison.layer, comparison.chunk);
        let compare = Compare { pg: self.pg, device, epoch, id, layer, chunk, light: true, spans };
        self.actions.push_back(Action::Send(device, Message::Compare(compare)));
    }

    /// A copy says what differs in a chunk.
    pub fn compare_ok(&mut self, device: DeviceId, ok: CompareOk) {
        let now = self.now;
        if self.scrub_compared(device, &ok) {
            return;
        }
        let Some(resync) = self.heard_learner(device, ok.epoch, now) else { return };
        let Some(Comparison { layer, chunk, heir, digests: Some(own) }) = resync.comparing.remove(&ok.id) else {
            return;
        };
        if ok.gone {
            // The list of changes was made by an older configuration than the copy knows: it is made anew.
            if let Role::Primary(primary) = &mut self.role {
                primary.forget_learner(device);
            }
            return;
        }
        resync.progress.chunks_done += u64::from(!heir);
        if ok.differing.is_empty() && !heir {
            // The copy must know of the change all the same: it may be the source of another resync one day. Zeros say
            // so without taking space.
            let first = own.iter().position(|digest| *digest == 0).unwrap_or(0);
            resync.mark(layer, chunk, BlockIndex(first as u16));
        }
        for span in ok.differing {
            let at = usize::from(span.index) * DIGEST_SPAN_BLOCKS;
            let differs = |n: usize| span.blocks.get(n) != own.get(at + n);
            let mut n = 0;
            while n < DIGEST_SPAN_BLOCKS {
                let run = (n..DIGEST_SPAN_BLOCKS).take_while(|n| differs(*n)).count();
                if run > 0 {
                    let (first, count) = (BlockIndex((at + n) as u16), run as u16);
                    resync.found.push_back(BlockRange { layer, chunk, first, count });
                }
                n += run + 1;
            }
        }
        self.run_resyncs();
    }

    /// What is being sent to a copy of a chunk is inherited by these layers, to which writes may have been ordered
    /// since the changes were listed. A write that made zeros looks there like what was never written, and inherits
    /// what it must not: they are compared, too.
    pub fn compare_heirs(&mut self, device: DeviceId, chunk: ChunkIndex, layers: impl IntoIterator<Item = LayerId>) {
        let Role::Primary(primary) = &mut self.role else { return };
        if let Some((resync, _)) = primary.resync(device) {
            resync.heirs.extend(layers.into_iter().map(|layer| (chunk, layer)));
        }
    }

    /// A repair can't be sent to the copy on `device`: this copy's blocks of the layer are another layer's, or about to
    /// be. What is to be compared is listed anew.
    pub fn source_gone(&mut self, device: DeviceId) {
        let Role::Primary(primary) = &mut self.role else { return };
        if primary.resync(device).is_some() {
            primary.forget_learner(device);
        }
    }

    /// A repair is durable.
    pub fn repair_ok(&mut self, device: DeviceId, ok: RepairOk) {
        let now = self.now;
        if let Some(resync) = self.heard_learner(device, ok.epoch, now)
            && let Some(id) = ok.id
        {
            resync.repairing.remove(&id.get());
            self.repair_arrived(device, id.get());
        }
        self.run_resyncs();
    }

    fn heard_learner(&mut self, device: DeviceId, epoch: Epoch, now: Duration) -> Option<&mut Resync> {
        let Role::Primary(primary) = &mut self.role else { return None };
        if primary.epoch() != epoch {
            return None;
        }
        let (resync, heard) = primary.resync(device)?;
        *heard = now;
        Some(resync)
    }
}

const _: () = assert!(DIGEST_SPAN_BLOCKS <= REPAIR_BLOCKS_MAX as usize);
