//! What two layers show differently: for incremental copies of a volume. Beside nothing, a layer shows all its data
//! differently: for the first copy.
//!
//! No block is read. Two layers show the same contents in a block if their leaves have the same address, since a block
//! is never changed in place and one that moves changes its address in all leaves that reach it at once
//! (`map/inheritance.rs`). The other way round, blocks need not be the same: contents that were written again, or that
//! a copy holds twice, count as different.
//!
//! Only chunks are looked at of which a layer between the two and their nearest common ancestor has a leaf: where none
//! has, both find the same leaf. So the cost goes by what was written, not by the size of the volume.

use crate::cx::{Io, StoreCx};
use crate::effect::{Effect, MapError, ReadError};
use crate::map::{Entries, Entry, Leaf, LeafKey, Map};
use crate::query::Queries;
use crate::report::Report;
use azekura_base::{
    CHUNK_BLOCKS, ChunkIndex, CompareLayers, Differences, DifferingBlocks, LayerId, NotTold, PgId, Sequence,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A comparison that is under way.
#[derive(Debug)]
pub(super) struct Comparing {
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

impl Queries {
    /// Begins a comparison. `waiting` are the chunks with operations that wait. Gives the chunks to compare, when they
    /// are known already: [`Queries::chunk_compared`] is to be called once more than there are.
    pub fn compare(
        &mut self,
        cx: &mut StoreCx,
        map: &Map,
        token: u64,
        asked: CompareLayers,
        waiting: impl Iterator<Item = (PgId, ChunkIndex)>,
    ) -> Option<Vec<ChunkIndex>> {
        let layers = map.layers_between(asked.from, asked.to);
        let among: BTreeSet<LayerId> = layers.iter().copied().collect();
        let in_range = |chunk: ChunkIndex| (asked.first..asked.end).contains(&chunk);
        let wanted = |key: &LeafKey| key.pg == asked.pg && in_range(key.chunk) && among.contains(&key.layer);
        let mut found: BTreeSet<ChunkIndex> = map.present(wanted).iter().map(|key| key.chunk).collect();
        if !among.is_empty() {
            found.extend(waiting.filter(|(pg, chunk)| *pg == asked.pg && in_range(*chunk)).map(|(_, chunk)| chunk));
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
        self.list_differences(cx, token)
    }

    /// Lists the leaves of the next layer; gives the chunks to compare when all have been listed.
    fn list_differences(&mut self, cx: &mut StoreCx, token: u64) -> Option<Vec<ChunkIndex>> {
        let comparing = self.comparisons.get_mut(&token)?;
        let asked = comparing.asked;
        if let Some(layer) = comparing.layers.front().copied().filter(|_| comparing.error.is_none()) {
            let io = cx.new_io(Io::Comparison(token));
            let (pg, after, from) = (asked.pg, Sequence::ZERO, (layer, asked.first));
            cx.ask(Effect::ScanModified { io, pg, after, from, limit: asked.limit as usize });
            return None;
        }
        let until = comparing.until;
        comparing.found.retain(|chunk| *chunk < until);
        if let Some(next) = comparing.found.iter().nth(asked.limit as usize).copied() {
            comparing.until = next;
            comparing.found.retain(|chunk| *chunk < next);
        }
        let found: Vec<ChunkIndex> = std::mem::take(&mut comparing.found).into_iter().collect();
        // One more than there are: the comparison must not end while it is being started.
        comparing.left = found.len() + 1;
        Some(found)
    }

    /// The saved map has listed leaves of the group from a layer's on. Gives the group and the chunks to compare, when
    /// all have been listed.
    pub fn differences_listed(
        &mut self,
        cx: &mut StoreCx,
        token: u64,
        result: Result<Vec<(LeafKey, Sequence)>, MapError>,
    ) -> Option<(PgId, Vec<ChunkIndex>)> {
        let comparing = self.comparisons.get_mut(&token)?;
        let pg = comparing.asked.pg;
        let layer = comparing.layers.pop_front()?;
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
        self.list_differences(cx, token).map(|chunks| (pg, chunks))
    }

    /// A leaf can't be loaded.
    pub fn difference_failed(&mut self, cx: &mut StoreCx, token: u64, error: MapError) {
        if let Some(comparing) = self.comparisons.get_mut(&token) {
            comparing.error = Some(ReadError::Map(error));
        }
        self.chunk_compared(cx, token);
    }

    /// The layers that are being compared.
    pub fn compared_layers(&self, token: u64) -> Option<(Option<LayerId>, LayerId)> {
        self.comparisons.get(&token).map(|comparing| (comparing.asked.from, comparing.asked.to))
    }

    /// Compares the leaves that readers of a chunk look into, of one layer and of the other.
    pub fn compare_leaves(&mut self, token: u64, chunk: ChunkIndex, from: Option<&Leaf>, to: Option<&Leaf>) {
        let runs = differing(from.map(|leaf| &leaf.entries), to.map(|leaf| &leaf.entries));
        if let Some(comparing) = self.comparisons.get_mut(&token).filter(|_| !runs.is_empty()) {
            comparing.differing.insert(chunk, runs);
        }
    }

    /// A chunk has been compared, or can't be.
    pub fn chunk_compared(&mut self, cx: &mut StoreCx, token: u64) {
        let Some(comparing) = self.comparisons.get_mut(&token) else { return };
        comparing.left -= 1;
        if comparing.left > 0 {
            return;
        }
        let Some(Comparing { asked, until, differing, error, .. }) = self.comparisons.remove(&token) else { return };
        let chunks = differing.into_iter().map(|(chunk, runs)| (chunk.0, runs)).collect();
        let page = Differences { chunks, next: Some(until.0).filter(|until| *until < asked.end.0) };
        let result = error.map_or(Ok(page), |error| Err(NotTold::Failed(error.to_string())));
        cx.report(Report::Differences { token, result });
    }
}

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
