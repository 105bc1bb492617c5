//! What two layers show differently: for incremental copies of a volume.
//!
//! No block is read. Two layers show the same contents in a block if their leaves have the same address, since a block
//! is never changed in place and one that moves changes its address in all leaves that reach it at once
//! (`inheritance.rs`). The other way round it need not be so: contents that were written again, or that a copy holds
//! twice, count as different.
//!
//! Only chunks are looked at of which a layer between the two and their nearest common ancestor has a leaf: where none
//! has, both find the same leaf. So the cost is that of what was written, not of the volume.

use crate::cx::Io;
use crate::effect::{Effect, MapError, ReadError};
use crate::leaf::{Entry, LeafKey};
use crate::leaf_cache::SlotId;
use crate::ops::{Op, Step};
use crate::report::Report;
use crate::store::Store;
use azekura_base::{
    CHUNK_BLOCKS, ChunkIndex, CompareLayers, Differences, DifferingBlocks, LayerId, NotTold, PgId, Sequence,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A comparison that is under way.
#[derive(Debug)]
pub(crate) struct Comparing {
    asked: CompareLayers,
    /// Layers whose leaves are still to be listed, ancestors before what lies on them: blocks that a merge moves in
    /// between are found where they go.
    layers: VecDeque<LayerId>,
    /// Chunks that may differ.
    found: BTreeSet<ChunkIndex>,
    /// All of those before this one have been found.
    until: ChunkIndex,
    /// Chunks that are not compared yet.
    left: usize,
    differing: BTreeMap<ChunkIndex, Vec<DifferingBlocks>>,
    error: Option<ReadError>,
}

impl Store {
    pub(crate) fn start_comparison(&mut self, token: u64, asked: CompareLayers) {
        let layers = self.layers.between(asked.from, asked.to);
        let among: BTreeSet<LayerId> = layers.iter().copied().collect();
        let in_range = |chunk: ChunkIndex| (asked.first..asked.end).contains(&chunk);
        let wanted = |key: &LeafKey| key.pg == asked.pg && in_range(key.chunk) && among.contains(&key.layer);
        let mut found: BTreeSet<ChunkIndex> = self.cache.present(wanted).iter().map(|key| key.chunk).collect();
        if !among.is_empty() {
            // A write that is committed and waits for leaves may be about to make one.
            let waiting = self.ops.keys().filter(|(pg, chunk)| *pg == asked.pg && in_range(*chunk));
            found.extend(waiting.map(|(_, chunk)| *chunk));
        }
        let comparing = Comparing {
            asked,
            layers: layers.into(),
            found,
            until: asked.end,
            left: 0,
            differing: BTreeMap::new(),
            error: None,
        };
        self.comparisons.insert(token, comparing);
        self.list_differences(token);
    }

    /// Lists the leaves of the next layer, or compares when all have been listed.
    fn list_differences(&mut self, token: u64) {
        let Some(comparing) = self.comparisons.get_mut(&token) else { return };
        let asked = comparing.asked;
        if let Some(layer) = comparing.layers.front().copied().filter(|_| comparing.error.is_none()) {
            let io = self.cx.new_io(Io::Comparison(token));
            let (pg, after, from) = (asked.pg, Sequence::ZERO, (layer, asked.first));
            self.cx.ask(Effect::ScanModified { io, pg, after, from, limit: asked.limit as usize });
            return;
        }
        let until = comparing.until;
        comparing.found.retain(|chunk| *chunk < until);
        if let Some(next) = comparing.found.iter().nth(asked.limit as usize).copied() {
            comparing.until = next;
            comparing.found.retain(|chunk| *chunk < next);
        }
        let found = std::mem::take(&mut comparing.found);
        // One more than there are: it must not end while it is being started.
        comparing.left = found.len() + 1;
        for chunk in found {
            self.submit((asked.pg, chunk), Op::Difference { token, pg: asked.pg, chunk });
        }
        self.chunk_compared(token);
    }

    /// The saved map has listed leaves of the group from a layer's on.
    pub(crate) fn differences_listed(&mut self, token: u64, result: Result<Vec<(LeafKey, Sequence)>, MapError>) {
        let Some(comparing) = self.comparisons.get_mut(&token) else { return };
        let Some(layer) = comparing.layers.pop_front() else { return };
        match result {
            Ok(listed) => {
                let until = comparing.until;
                let full = listed.len() >= comparing.asked.limit as usize;
                let last = listed.last().filter(|(key, _)| full && key.layer == layer).map(|(key, _)| key.chunk);
                let chunks = listed.iter().map(|(key, _)| key).filter(|key| key.layer == layer).map(|key| key.chunk);
                comparing.found.extend(chunks.filter(|chunk| *chunk < until));
                if let Some(last) = last {
                    comparing.until = until.min(ChunkIndex(last.0.saturating_add(1)));
                }
            }
            Err(error) => comparing.error = Some(ReadError::Map(error)),
        }
        self.list_differences(token);
    }

    /// A leaf can't be loaded.
    pub(crate) fn difference_failed(&mut self, token: u64, error: MapError) {
        if let Some(comparing) = self.comparisons.get_mut(&token) {
            comparing.error = Some(ReadError::Map(error));
        }
        self.chunk_compared(token);
    }

    pub(crate) fn step_difference(&mut self, token: u64, pg: PgId, chunk: ChunkIndex) -> Step {
        let Some(CompareLayers { from, to, .. }) = self.comparisons.get(&token).map(|comparing| comparing.asked) else {
            return Step::Done;
        };
        let key = |layer: LayerId| LeafKey { layer, chunk, pg };
        let (from, to) = match (self.nearest(key(from)), self.nearest(key(to))) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(step), _) | (_, Err(step)) => return step,
        };
        if from != to {
            let leaf = |slot: Option<SlotId>| slot.and_then(|slot| self.cache.leaf(slot));
            let runs = differing(leaf(from).map(|leaf| &leaf.entries), leaf(to).map(|leaf| &leaf.entries));
            if let Some(comparing) = self.comparisons.get_mut(&token).filter(|_| !runs.is_empty()) {
                comparing.differing.insert(chunk, runs);
            }
        }
        self.chunk_compared(token);
        Step::Done
    }

    fn chunk_compared(&mut self, token: u64) {
        let Some(comparing) = self.comparisons.get_mut(&token) else { return };
        comparing.left -= 1;
        if comparing.left > 0 {
            return;
        }
        let Some(Comparing { asked, until, differing, error, .. }) = self.comparisons.remove(&token) else { return };
        let chunks = differing.into_iter().map(|(chunk, runs)| (chunk.0, runs)).collect();
        let page = Differences { chunks, next: Some(until.0).filter(|until| *until < asked.end.0) };
        let result = error.map_or(Ok(page), |error| Err(NotTold::Failed(error.to_string())));
        self.cx.report(Report::Differences { token, result });
    }
}

type Entries = [Entry; CHUNK_BLOCKS];

/// Runs of blocks that a leaf has elsewhere than another one: whether the second has data there, or zeros.
fn differing(from: Option<&Entries>, to: Option<&Entries>) -> Vec<DifferingBlocks> {
    let entry = |entries: Option<&Entries>, block: usize| entries.map_or(Entry::default(), |entries| entries[block]);
    let mut runs: Vec<DifferingBlocks> = Vec::new();
    for block in 0..CHUNK_BLOCKS {
        let (before, now) = (entry(from, block), entry(to, block));
        // What nobody knows may be anything.
        if before.address == now.address && !before.is_unknown() && !now.is_unknown() {
            continue;
        }
        let has_data = now.has_contents();
        match runs.last_mut() {
            Some(DifferingBlocks(first, count, data)) if usize::from(*first + *count) == block && *data == has_data => {
                *count += 1;
            }
            _ => runs.push(DifferingBlocks(block as u16, 1, has_data)),
        }
    }
    runs
}
