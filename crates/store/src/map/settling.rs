//! Writes that wait for their leaves (`deferred.rs`), and how they come into them.

use crate::checkpoint::PendingRow;
use crate::cx::StoreCx;
use crate::groups::Place;
use crate::map::apply::{Seen, stamp_of};
use crate::map::deferred::{LateWrite, Moment};
use crate::map::leaf::LeafKey;
use crate::map::payload::Payload;
use crate::map::step::Step;
use crate::map::{Map, MapCx};
use azekura_base::{BlockRange, CHUNK_BLOCKS, ChunkIndex, LayerId, PgId, Sequence};
use std::collections::BTreeMap;

/// A larger write is worth its leaf.
const BLOCKS_MAX: u16 = 16;
/// Waiting writes may take so much of the memory for leaves; when they take more, the longest waiting are settled.
const SHARE: (usize, usize) = (3, 8);
/// With so much, none may wait any more.
const SHARE_MAX: (usize, usize) = (1, 2);
/// Leaves that are asked for at once on behalf of writes that wait: they may take a sixteenth of the memory.
const ASKED_MAX: usize = 64;
const ASKED_MIN: usize = 4;
const ASKED_SHARE: usize = 16;
/// Memory of a leaf with all blocks, about.
const FULL_LEAF_BYTES: usize = CHUNK_BLOCKS * 12;

fn share(bytes: usize, (part, of): (usize, usize)) -> usize {
    bytes / of * part
}

impl Map {
    /// Has a committed write wait, if its leaf is not in memory and nothing speaks against that: true.
    pub fn defer_write(&mut self, s: &mut MapCx<'_>, pg: PgId, sequence: Sequence, stamp: u64) -> bool {
        if self.deferred.is_halted || self.deferred.bytes() > share(self.cache.bytes_max(), SHARE_MAX) {
            return false;
        }
        // A sweep must know what there is.
        if !s.jobs.is_empty() {
            return false;
        }
        let durable = s.cx.log().durable();
        let group = s.groups.get_mut(pg);
        let is_forgotten = group.is_forgotten();
        let Some(pending) = group.find(sequence) else { return false };
        let Some(written) = pending.written.filter(|written| written.place.log <= durable) else { return false };
        let range = pending.info.header.range;
        let Some(address) = written.place.payload.filter(|_| range.count <= BLOCKS_MAX && !is_forgotten) else {
            return false;
        };
        let key = LeafKey::of(pg, &range);
        // The record must be in the part of the log that a replay reads, also once the checkpoint is saved that is on
        // its way: no checkpoint keeps what waits.
        let is_replayed = s.cx.segments().is_in_chain(written.origin) && written.origin >= self.replay_from;
        if self.cache.find(key).is_some() || !is_replayed {
            return false;
        }
        let Some(checksums) = &pending.checksums else { return false };
        let (generation, first) = (written.origin, range.first);
        let write = LateWrite { key, sequence, generation, first, address, checksums };
        let (stamp, log) = (stamp_of(&written, stamp), written.place.log);
        if !self.deferred.add(&write, Moment { stamp, log, replayed: !s.cx.is_running() }) {
            return false;
        }
        group.applied(sequence);
        true
    }

    /// Brings the writes that wait for a chunk into their leaf.
    pub fn settle(&mut self, s: &mut MapCx<'_>, chunk: (PgId, ChunkIndex)) -> Step {
        let Some(key) = self.deferred.of(chunk).map(|waiting| waiting.key) else { return Step::Done };
        let passed_over = s.jobs.is_dropped(key.layer) || s.groups.get_mut(key.pg).is_forgotten();
        let slot = match passed_over {
            true => None,
            false => match self.leaf_for_change(s, key, true) {
                Ok(slot) => slot,
                Err(step) => return step,
            },
        };
        let Some(waiting) = self.deferred.take(chunk) else { return Step::Done };
        if passed_over {
            s.jobs.passed_over(key.layer, waiting.generation());
        }
        // At replay the saved leaf may have seen some of them.
        let modified = slot.and_then(|slot| self.cache.leaf(slot)).map_or(Sequence::ZERO, |leaf| leaf.modified);
        let mut own = 0;
        waiting.for_each(|write| {
            let segment = s.cx.segments().segment_of(write.address);
            let (first, count) = (write.first, write.checksums.len() as u16);
            let generation = waiting.generation();
            let place = Place { log: 0, payload: Some(write.address), segment, generation };
            if let Some(slot) = slot.filter(|_| write.sequence > modified) {
                let range = BlockRange { layer: key.layer, chunk: key.chunk, first, count };
                let data = Payload { address: write.address, checksums: write.checksums, lost: false };
                let seen = Seen { modified: write.sequence, stamp: waiting.stamp };
                own += self.put_blocks(s, slot, place, range, Some(data), seen);
            }
            place.unpin(s.cx.segments_mut(), count);
        });
        self.layers.own(key.layer, own);
        Step::Done
    }

    /// The saved map has refused a leaf that writes may wait for.
    pub fn waiting_refused(&mut self, chunk: (PgId, ChunkIndex)) {
        self.deferred.refused(chunk);
    }

    /// The writes of group `pg` that wait for leaves which the saved map refuses, and whose records a replay from
    /// `position` would not find: rows for the root.
    pub fn waiting_rows(&self, pg: PgId, position: u64) -> Vec<PendingRow> {
        let mut rows = Vec::new();
        for waiting in self.deferred.of_refused().filter(|waiting| waiting.key.pg == pg) {
            waiting.for_each(|write| {
                if write.generation >= position {
                    return;
                }
                let LateWrite { key, sequence, generation, first, address, checksums } = *write;
                let count = checksums.len() as u16;
                let range = BlockRange { layer: key.layer, chunk: key.chunk, first, count };
                let (written, blocks) = ((waiting.log(), generation), (address, checksums));
                rows.push(PendingRow::of_committed(key.pg, sequence, range, written, blocks));
            });
        }
        rows
    }

    /// The next chunk whose waiting writes are to be brought into their leaf; its leaf is to be asked for.
    pub fn next_to_settle(&mut self) -> Option<(PgId, ChunkIndex)> {
        let bytes_max = self.cache.bytes_max();
        // Until a checkpoint has made room, a leaf more would have to stay.
        if self.deferred.is_empty() || self.cache.dirty_bytes() > bytes_max / 2 {
            return None;
        }
        let asked_max = (bytes_max / ASKED_SHARE / FULL_LEAF_BYTES).clamp(ASKED_MIN, ASKED_MAX);
        self.deferred.ask_next(asked_max, share(bytes_max, SHARE))
    }

    /// A checkpoint is being saved, and replay begins with this log generation then.
    pub fn replay_begins_at(&mut self, generation: u64) {
        self.replay_from = generation;
    }

    /// Writes that wait since before this log generation are to be settled.
    pub fn settle_before(&mut self, generation: u64) {
        self.deferred.wanted_before = generation;
    }

    /// Says whether space is short: then all writes that wait are settled, since nobody knows what they replace, and
    /// no others begin to wait.
    pub fn space_is_short(&mut self, is_short: bool) {
        if is_short {
            self.deferred.wanted_before = u64::MAX;
        }
        self.deferred.is_halted = is_short;
    }

    /// Leaves for which writes wait, and the sequence of the last one, in no order that means anything.
    pub fn waiting_leaves(&self) -> impl Iterator<Item = (LeafKey, Sequence)> + '_ {
        self.deferred.leaves()
    }

    /// The blocks that writes which wait have written to each layer.
    pub fn waiting_blocks(&self) -> &BTreeMap<LayerId, u64> {
        self.deferred.blocks()
    }

    /// Some write waits for its leaf.
    pub fn has_waiting(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Memory that a checkpoint, or settled writes, would make free: of leaves that are not saved, and of writes that
    /// wait for theirs.
    pub fn unsaved_bytes(&self) -> usize {
        self.cache.dirty_bytes() + self.deferred.bytes()
    }

    /// The first write that waits for the chunk and that no saved leaf can have seen.
    pub(super) fn first_waiting(&self, cx: &StoreCx, key: LeafKey) -> Option<Sequence> {
        self.deferred.first_new((key.pg, key.chunk)).filter(|_| cx.is_running())
    }
}
