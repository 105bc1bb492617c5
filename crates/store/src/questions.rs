//! Questions about whole chunks and layers: what has changed, what a chunk holds, what a layer would give back.

use crate::effect::{Effect, MapError, ReadError};
use crate::jobs::following;
use crate::leaf::{Entry, LeafKey};
use crate::leaf_cache::Content;
use crate::ops::{Op, Step};
use crate::report::{ChangedChunk, ChangedPage, ChunkDigest, DigestRun, LayerSpace, Report};
use crate::store::{Io, Store};
use azekura_base::{BlockIndex, CHUNK_BLOCKS, Checksum, ChunkIndex, LayerId, PgId, Sequence};
use std::collections::{BTreeMap, BTreeSet};

/// Leaves that one step of a measurement looks at.
const LEAVES_PER_STEP: usize = 64;

/// A page of a list of changed chunks that was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangedQuery {
    pub token: u64,
    pub pg: PgId,
    pub after: Sequence,
    pub from: (LayerId, ChunkIndex),
    pub limit: usize,
}

/// A layer that is being measured.
#[derive(Debug, Default)]
pub(crate) struct Measurement {
    layer: LayerId,
    unique: u64,
    /// Chunks that were found in memory: the saved map may list them too.
    seen: BTreeSet<ChunkIndex>,
    /// Where to ask the saved map next; `None` once it has no more.
    from: Option<ChunkIndex>,
    left: usize,
    error: Option<ReadError>,
}

impl Store {
    /// The saved map has answered; what it does not know yet is added.
    pub(crate) fn changed_listed(&mut self, query: &ChangedQuery, result: Result<Vec<(LeafKey, Sequence)>, MapError>) {
        let result = result.map_err(ReadError::Map).map(|saved| {
            let last = saved.last().filter(|_| saved.len() >= query.limit).map(|(key, _)| (key.layer, key.chunk));
            let changed = self.changed_chunks(query, saved, last);
            let chunks = changed.into_iter().map(|((layer, chunk), modified)| ChangedChunk { layer, chunk, modified });
            ChangedPage { chunks: chunks.collect(), next: last.and_then(|(layer, chunk)| following(layer, chunk)) }
        });
        self.reports.push_back(Report::Changed { token: query.token, result });
    }

    /// Of the chunks from the query's start to `last`: those that were changed, with what memory knows.
    pub(crate) fn changed_chunks(
        &self,
        query: &ChangedQuery,
        saved: Vec<(LeafKey, Sequence)>,
        last: Option<(LayerId, ChunkIndex)>,
    ) -> BTreeMap<(LayerId, ChunkIndex), Sequence> {
        let in_page = |key: (LayerId, ChunkIndex)| key >= query.from && last.is_none_or(|last| key <= last);
        let mut chunks: BTreeMap<(LayerId, ChunkIndex), Sequence> =
            saved.into_iter().map(|(key, modified)| ((key.layer, key.chunk), modified)).collect();
        for slot in self.cache.unsaved().filter(|slot| slot.key.pg == query.pg) {
            let key = (slot.key.layer, slot.key.chunk);
            match &slot.content {
                Content::Present(leaf) if in_page(key) => chunks.insert(key, leaf.modified),
                Content::Present(_) => None,
                _ => chunks.remove(&key),
            };
        }
        let group = self.groups.get(query.pg);
        for info in group.into_iter().flat_map(|g| &g.pending).map(|p| p.info) {
            let committed = group.is_some_and(|g| info.sequence <= g.committed);
            if committed && !self.dropped.contains(&info.layer) && in_page((info.layer, info.chunk)) {
                let modified = chunks.entry((info.layer, info.chunk)).or_default();
                *modified = info.sequence.max(*modified);
            }
        }
        chunks.retain(|_, modified| *modified > query.after || query.after == Sequence::ZERO);
        chunks
    }

    pub(crate) fn step_digest(&mut self, token: u64, key: LeafKey) -> Step {
        let slot = match self.nearest(key) {
            Ok(slot) => slot,
            Err(step) => return step,
        };
        let own = self.cache.find(key).and_then(|own| self.cache.leaf(own)).map(|leaf| leaf.modified);
        let mut runs = Vec::new();
        match slot.and_then(|slot| self.cache.leaf(slot)) {
            None => runs.push(DigestRun { first: BlockIndex(0), count: CHUNK_BLOCKS as u16, checksums: None }),
            Some(leaf) => {
                for entries in leaf.entries.chunk_by(|a, b| a.is_allocated() == b.is_allocated()) {
                    let first = runs.last().map_or(0, |run: &DigestRun| run.first.0 + run.count);
                    let sums = || entries.iter().map(|entry: &Entry| Checksum(entry.checksum)).collect();
                    runs.push(DigestRun {
                        first: BlockIndex(first),
                        count: entries.len() as u16,
                        checksums: entries[0].is_allocated().then(sums),
                    });
                }
            }
        }
        let digest = ChunkDigest { modified: own.unwrap_or(Sequence::ZERO), runs };
        self.reports.push_back(Report::Digest { token, result: Ok(digest) });
        Step::Done
    }

    /// Begins to measure a layer.
    pub(crate) fn start_measurement(&mut self, token: u64, layer: LayerId) {
        let keys = self.cache.present(|key| key.layer == layer);
        let seen = keys.iter().map(|key| key.chunk).collect();
        let from = Some(ChunkIndex(0));
        self.measurements.insert(token, Measurement { layer, from, seen, ..Measurement::default() });
        self.measure(token, keys);
    }

    /// The saved map has listed some leaves of a layer that is being measured.
    pub(crate) fn measure_listed(&mut self, token: u64, result: Result<Vec<LeafKey>, MapError>) {
        let Some(measurement) = self.measurements.get_mut(&token) else { return };
        let keys = result.unwrap_or_else(|error| {
            measurement.error = Some(ReadError::Map(error));
            Vec::new()
        });
        let last = keys.last().filter(|_| keys.len() >= LEAVES_PER_STEP);
        measurement.from = last.and_then(|key| key.chunk.0.checked_add(1)).map(ChunkIndex);
        let keys = keys.into_iter().filter(|key| !measurement.seen.contains(&key.chunk)).collect();
        self.measure(token, keys);
    }

    /// A leaf can't be loaded.
    pub(crate) fn measure_failed(&mut self, token: u64, error: MapError) {
        if let Some(measurement) = self.measurements.get_mut(&token) {
            measurement.error = Some(ReadError::Map(error));
        }
        self.leaf_measured(token, 0);
    }

    /// Counts the blocks of a leaf that no child of its layer reaches.
    pub(crate) fn step_measure(&mut self, token: u64, key: LeafKey) -> Step {
        let slot = match self.leaf_here(key) {
            Ok(slot) => slot,
            Err(step) => return step,
        };
        let children: Vec<LayerId> = self.layers.children(key.layer).collect();
        let mut leaves = Vec::new();
        let mut all_reached = false;
        for layer in children {
            match self.leaf_here(LeafKey { layer, ..key }) {
                Ok(Some(child)) => leaves.push(child),
                // A child without a leaf reaches all that there is.
                Ok(None) => all_reached = true,
                Err(step) => return step,
            }
        }
        let mut unique = 0;
        if let Some(leaf) = slot.filter(|_| !all_reached).and_then(|slot| self.cache.leaf(slot)) {
            for (block, entry) in leaf.entries.iter().enumerate().filter(|(_, entry)| entry.is_own()) {
                let reaches = |child: &u32| {
                    self.cache.leaf(*child).is_some_and(|child| child.entries[block].address == entry.address)
                };
                unique += u64::from(!leaves.iter().any(reaches));
            }
        }
        self.leaf_measured(token, unique);
        Step::Done
    }

    fn measure(&mut self, token: u64, keys: Vec<LeafKey>) {
        let Some(measurement) = self.measurements.get_mut(&token) else { return };
        // One more than there are: the step must not end while it is being started.
        measurement.left = keys.len() + 1;
        for key in keys {
            self.submit((key.pg, key.chunk), Op::Measure { token, key });
        }
        self.leaf_measured(token, 0);
    }

    fn leaf_measured(&mut self, token: u64, unique: u64) {
        let Some(measurement) = self.measurements.get_mut(&token) else { return };
        measurement.unique += unique;
        measurement.left -= 1;
        if measurement.left > 0 {
            return;
        }
        let layer = measurement.layer;
        match measurement.from.filter(|_| measurement.error.is_none()) {
            Some(from) => {
                let io = self.new_io(Io::Measure(token));
                self.effects.push_back(Effect::ScanLayer { io, layer, from, limit: LEAVES_PER_STEP });
            }
            None => {
                let own = self.layers.owned(layer);
                let Some(measurement) = self.measurements.remove(&token) else { return };
                let space = LayerSpace { own, unique: measurement.unique };
                let result = measurement.error.map_or(Ok(space), Err);
                self.reports.push_back(Report::Measured { token, result });
            }
        }
    }
}
