//! One copy that is being brought up to date: what is left to do, and what is under way.

use crate::limits::REIGN_SHIFT;
use azekura_base::{BlockIndex, BlockRange, CHUNK_BLOCKS, ChunkIndex, DeviceId, Epoch, LayerId, Sequence};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// A block that the device refuses to read counts as damaged after this time (decision 0014).
const REFUSED_FOR: Duration = Duration::from_secs(600);

/// A block that nobody has tried to read for so long may have been readable meanwhile: the device has not refused it
/// since.
const REFUSED_ANEW: Duration = Duration::from_secs(60);

/// Such blocks that are remembered.
const REFUSED_MAX: usize = 1024;

/// Blocks that writes have been under way to for so long are read next: further writes to them wait.
const RESERVE_AFTER: Duration = Duration::from_secs(1);

/// What could not be read is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(5);

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
    /// When the copy was last asked for something of this, or has answered. What it says of writes is no answer.
    answered: Duration,
    /// Names the listing of changes.
    listing: u64,
    /// The copy has kept which writes it need not apply again.
    noted: bool,
    /// The copy had nothing to begin with.
    is_new: bool,
    todo: VecDeque<(LayerId, ChunkIndex)>,
    /// Chunks of layers that inherit what was sent, and may have been written since the changes were listed.
    descendants: BTreeSet<(ChunkIndex, LayerId)>,
    /// Chunks that are being read or compared, and the digests of this copy's blocks once read.
    pub(super) comparing: BTreeMap<u64, Comparison>,
    /// Chunks of which not even the map can be read here, and those that come behind such a chunk, or behind a withheld
    /// block: they are tried again.
    unreadable: Vec<(LayerId, ChunkIndex)>,
    /// Blocks that differ and are damaged here: they are tried again.
    withheld: Vec<BlockRange>,
    try_at: Duration,
    /// Repairs of one block that are only to leave word of a change: any block of the chunk will do.
    marks: BTreeSet<(LayerId, ChunkIndex, BlockIndex)>,
    /// Blocks that differ.
    pub(super) found: VecDeque<BlockRange>,
    /// Of those, some that could not be read yet because writes to them were under way, and since when.
    blocked: Option<(BlockRange, Duration)>,
    /// No write to these blocks is ordered until they have been read.
    reserved: Option<BlockRange>,
    /// Repairs under way.
    pub(super) repairing: BTreeMap<u64, BlockRange>,
    progress: ResyncProgress,
}

impl Resync {
    pub(super) fn new(base: Sequence) -> Resync {
        Resync {
            phase: Phase::Asked,
            base,
            answered: Duration::ZERO,
            listing: 0,
            noted: false,
            is_new: false,
            todo: VecDeque::new(),
            descendants: BTreeSet::new(),
            comparing: BTreeMap::new(),
            unreadable: Vec::new(),
            withheld: Vec::new(),
            try_at: Duration::ZERO,
            marks: BTreeSet::new(),
            found: VecDeque::new(),
            blocked: None,
            reserved: None,
            repairing: BTreeMap::new(),
            progress: ResyncProgress::default(),
        }
    }

    /// The copy has not begun yet.
    pub(super) fn is_asked(&self) -> bool {
        self.phase == Phase::Asked
    }

    /// The copy is asked for something, or has answered.
    pub(super) fn note_answer(&mut self, now: Duration) {
        self.answered = self.answered.max(now);
    }

    /// The copy owes answers, and has given none for `patience`. A repair may be dropped on a connection that stays: by
    /// a node to which the layer is one that goes.
    pub(super) fn is_unanswered(&self, patience: Duration, now: Duration) -> bool {
        let asked = self.comparing.values().any(|comparison| comparison.digests.is_some());
        (self.is_asked() || asked || !self.repairing.is_empty()) && now >= self.answered + patience
    }

    /// Up to where the copy is brought; what is ordered later it is sent as a secondary.
    pub(super) fn base(&self) -> Sequence {
        self.base
    }

    /// The copy had nothing to begin with.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Names the listing of changes.
    pub(super) fn listing(&self) -> u64 {
        self.listing
    }

    pub(super) fn progress(&self) -> ResyncProgress {
        self.progress
    }

    /// The copy begins with everything up to `complete`; what changed since then is listed under this name.
    pub(super) fn begin(&mut self, complete: Sequence, listing: u64) {
        self.phase = Phase::Listing;
        self.is_new = complete == Sequence::ZERO;
        self.listing = listing;
    }

    /// The copy has kept which writes it need not apply again.
    pub(super) fn note_kept(&mut self) {
        self.noted = true;
    }

    /// The changed chunks are these, if nobody has said so before.
    pub(super) fn listed(&mut self, changes: Vec<(LayerId, ChunkIndex)>) {
        if self.phase == Phase::Listing {
            self.phase = Phase::Copying;
            self.progress.chunks = changes.len() as u64;
            self.todo = changes.into();
        }
    }

    /// These layers inherit what is sent of a chunk, and may have been written since the changes were listed.
    pub(super) fn compare_too(&mut self, chunk: ChunkIndex, layers: impl IntoIterator<Item = LayerId>) {
        self.descendants.extend(layers.into_iter().map(|layer| (chunk, layer)));
    }

    /// Time has passed: what could not be read is tried again, now and then.
    pub(super) fn try_again(&mut self, now: Duration) {
        if now >= self.try_at {
            self.try_at = now + TRY_AGAIN;
            self.todo.extend(self.unreadable.drain(..));
            self.found.extend(self.withheld.drain(..));
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Copying
            && self.noted
            && self.todo.is_empty()
            && self.descendants.is_empty()
            && self.unreadable.is_empty()
            && self.withheld.is_empty()
            && self.comparing.is_empty()
            && self.found.is_empty()
            && self.repairing.is_empty()
    }

    /// Something of this chunk is under way for another layer.
    pub(super) fn is_busy(&self, layer: LayerId, chunk: ChunkIndex) -> bool {
        let other = |blocks: &BlockRange| blocks.chunk == chunk && blocks.layer != layer;
        self.comparing.values().any(|comparison| comparison.chunk == chunk && comparison.layer != layer)
            || self.found.iter().chain(self.repairing.values()).any(other)
    }

    /// Something of this chunk is to be tried again for a layer that this one may lie on.
    fn is_put_off(&self, layer: LayerId, chunk: ChunkIndex) -> bool {
        let withheld = self.withheld.iter().map(|blocks| (blocks.layer, blocks.chunk));
        self.unreadable.iter().copied().chain(withheld).any(|(below, of)| of == chunk && below < layer)
    }

    /// These could not be read yet, because writes to them are under way: they wait with the others. If that goes on,
    /// the first of them is reserved.
    pub(super) fn put_back(&mut self, mut blocked: VecDeque<BlockRange>, now: Duration) {
        let first = blocked.front().map(|blocks| (*blocks, now));
        self.found.append(&mut blocked);
        self.blocked = self.blocked.filter(|(blocks, _)| self.found.contains(blocks)).or(first);
        let for_long = self.blocked.filter(|(_, since)| now >= *since + RESERVE_AFTER);
        self.reserved = for_long.map(|(blocks, _)| blocks);
    }

    /// No write to these blocks may be ordered now.
    pub(crate) fn reserves(&self, blocks: &BlockRange) -> bool {
        self.reserved.is_some_and(|reserved| reserved.overlaps(blocks))
    }

    /// The next chunk to be compared, and whether it is one of a descendant's.
    pub(super) fn next_chunk(&mut self) -> Option<(LayerId, ChunkIndex, bool)> {
        while let Some((layer, chunk)) = self.todo.front().copied() {
            if self.is_busy(layer, chunk) {
                return None;
            }
            self.todo.pop_front();
            if self.is_put_off(layer, chunk) {
                // The chunk would inherit what is sent later for the other layer, also where it has zeros of its own.
                self.unreadable.push((layer, chunk));
                continue;
            }
            self.descendants.remove(&(chunk, layer));
            return Some((layer, chunk, false));
        }
        let free = self.descendants.iter().find(|(chunk, layer)| !self.is_busy(*layer, *chunk)).copied();
        let (chunk, layer) = free?;
        self.descendants.remove(&(chunk, layer));
        Some((layer, chunk, true))
    }

    /// Sends a block only for word of a change.
    pub(super) fn mark(&mut self, layer: LayerId, chunk: ChunkIndex, first: BlockIndex) {
        self.marks.insert((layer, chunk, first));
        self.found.push_back(BlockRange { layer, chunk, first, count: 1 });
    }

    /// The block is sent only for word of a change.
    pub(super) fn is_mark(&self, blocks: &BlockRange) -> bool {
        self.marks.contains(&(blocks.layer, blocks.chunk, blocks.first))
    }

    /// Not even the map of this chunk can be read here.
    pub(super) fn put_off(&mut self, layer: LayerId, chunk: ChunkIndex) {
        self.unreadable.push((layer, chunk));
    }

    /// A chunk has been compared.
    pub(super) fn compared(&mut self, of_descendant: bool) {
        self.progress.chunks_done += u64::from(!of_descendant);
    }

    /// Blocks are sent, with so many bytes in them.
    pub(super) fn sent(&mut self, blocks: &BlockRange, bytes: u64) {
        self.marks.remove(&(blocks.layer, blocks.chunk, blocks.first));
        self.progress.bytes += bytes;
    }

    /// Blocks that are to be repaired can't be read here. Alone, most of them can.
    pub(super) fn withhold(&mut self, blocks: BlockRange) {
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

/// A chunk that is being compared.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) layer: LayerId,
    pub(super) chunk: ChunkIndex,
    /// The chunk is not known to have changed.
    pub(super) of_descendant: bool,
    /// The digests of this copy's blocks, once read.
    pub(super) digests: Option<Vec<u64>>,
}

/// A repair whose blocks are being read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) device: DeviceId,
    pub(super) blocks: BlockRange,
}

/// All repairs whose blocks are being read: no write to these blocks is ordered.
#[derive(Debug)]
pub(crate) struct Repairs {
    pub(super) reading: BTreeMap<u64, Reading>,
    /// Blocks among them that can't be read, and of which the checksums are being looked up.
    pub(super) losing: BTreeSet<u64>,
    /// Single blocks that can't be read: since when, and when they were last tried.
    pub(super) refused: BTreeMap<BlockRange, (Duration, Duration)>,
    pub(super) named: u64,
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

    pub(super) fn is_refused_for_long(&mut self, blocks: &BlockRange, now: Duration) -> bool {
        self.refused.retain(|_, (_, tried)| now.saturating_sub(*tried) < REFUSED_ANEW);
        if blocks.count > 1 || self.refused.len() >= REFUSED_MAX && !self.refused.contains_key(blocks) {
            return false;
        }
        let (since, tried) = self.refused.entry(*blocks).or_insert((now, now));
        *tried = now;
        now.saturating_sub(*since) >= REFUSED_FOR
    }

    /// Nothing is read for the copy on `device` any more.
    pub(crate) fn forget(&mut self, device: DeviceId) {
        self.reading.retain(|_, reading| reading.device != device);
    }

    pub(crate) fn hold(&self, blocks: &BlockRange) -> bool {
        self.reading.values().any(|reading| reading.blocks.overlaps(blocks))
    }

    pub(crate) fn name(&mut self) -> u64 {
        self.named += 1;
        self.named
    }
}
