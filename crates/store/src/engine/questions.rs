//! Questions: what blocks hold, what takes space, what layers show and own.

use crate::effect::MapError;
use crate::engine::Engine;
use crate::engine::op::Op;
use crate::map::{LeafKey, MapCx, Step};
use crate::query::{ChangedQuery, digest, status};
use azekura_base::{BlockRange, ChunkIndex, CompareLayers, LayerId, MeasureLayer, PgId, Sequence};
use bytes::Bytes;

impl Engine {
    pub(super) fn step_read(&mut self, token: u64, pg: PgId, range: BlockRange, gathers: bool) -> Step {
        let s =
            &mut MapCx { cx: &mut self.cx, groups: &mut self.groups, jobs: &mut self.jobs, repairs: &mut self.repairs };
        match self.map.nearest(s, LeafKey::of(pg, &range)) {
            Ok(slot) => {
                let leaf = slot.and_then(|slot| self.map.leaf(slot));
                let min = self.cx.options().gathered_read_blocks_min;
                let gathers = gathers && min > 0 && range.count >= min;
                let of = slot.filter(|_| gathers).map(|slot| self.map.key_of(slot));
                self.reads.start(&mut self.cx, token, range, leaf, of);
                Step::Done
            }
            Err(step) => step,
        }
    }

    /// A read of the device has ended. True: something is to be put together.
    pub fn fetched(&mut self, fetch: crate::read::Fetch, result: Result<Bytes, crate::effect::DeviceError>) -> bool {
        let scattered = self.reads.fetched(&mut self.cx, fetch, result);
        scattered.is_some_and(|scattered| self.gather(*scattered))
    }

    /// Reads the payload of a write that is prepared.
    pub fn read_prepared(&mut self, token: u64, pg: PgId, sequence: Sequence) {
        self.reads.start_prepared(&mut self.cx, &mut self.groups, token, pg, sequence);
    }

    pub(super) fn step_status(&mut self, token: u64, key: LeafKey) -> Step {
        let (map, mut s) = self.with_map();
        match map.nearest(&mut s, key) {
            Ok(slot) => {
                status(&mut self.cx, token, slot.and_then(|slot| self.map.leaf(slot)));
                Step::Done
            }
            Err(step) => step,
        }
    }

    pub(super) fn step_digest(&mut self, token: u64, key: LeafKey) -> Step {
        let (map, mut s) = self.with_map();
        match map.nearest(&mut s, key) {
            Ok(slot) => {
                let own = map.leaf_in_memory(key).map(|leaf| leaf.modified);
                digest(&mut self.cx, token, own, slot.and_then(|slot| self.map.leaf(slot)));
                Step::Done
            }
            Err(step) => step,
        }
    }

    /// The saved map has listed chunks that have changed.
    pub fn changed_listed(&mut self, query: &ChangedQuery, result: Result<Vec<(LeafKey, Sequence)>, MapError>) {
        query.listed(&mut self.cx, &self.map, &self.groups, &self.jobs, result);
    }

    /// Finds out what the end of a layer would give back.
    pub fn measure(&mut self, token: u64, asked: MeasureLayer) {
        self.queries.measure(&mut self.cx, token, asked);
    }

    /// The saved map has listed some leaves of a layer that is being measured.
    pub fn measure_listed(&mut self, token: u64, result: Result<Vec<LeafKey>, MapError>) {
        let Some(keys) = self.queries.measure_listed(&self.map, token, result) else { return };
        for key in keys {
            self.submit((key.pg, key.chunk), Op::Measure { token, key });
        }
        self.queries.leaf_measured(&mut self.cx, token, 0);
    }

    pub(super) fn step_measure(&mut self, token: u64, key: LeafKey) -> Step {
        let Some(merged_into) = self.queries.merged_into(token) else { return Step::Done };
        let (map, mut s) = self.with_map();
        let shown = merged_into.map_or(Ok(None), |layer| map.nearest(&mut s, LeafKey { layer, ..key }));
        let (own, shown) = match (map.leaf_here(&mut s, key), shown) {
            (Ok(own), Ok(shown)) => (own, shown),
            (Err(step), _) | (_, Err(step)) => return step,
        };
        let leaf = |slot| self.map.leaf(slot);
        self.queries.measure_leaf(&mut self.cx, token, own.and_then(leaf), shown.and_then(leaf));
        Step::Done
    }

    /// Finds out which blocks two layers show differently.
    pub fn compare(&mut self, token: u64, asked: CompareLayers) {
        // A write that is committed and waits for leaves may be about to make one.
        let waiting = self.ops.chunks();
        let chunks = self.queries.compare(&mut self.cx, &self.map, token, asked, waiting);
        self.compare_chunks(token, asked.pg, chunks);
    }

    /// The saved map has listed leaves of the group from a layer's on.
    pub fn differences_listed(&mut self, token: u64, result: Result<Vec<(LeafKey, Sequence)>, MapError>) {
        if let Some((pg, chunks)) = self.queries.differences_listed(&mut self.cx, token, result) {
            self.compare_chunks(token, pg, Some(chunks));
        }
    }

    fn compare_chunks(&mut self, token: u64, pg: PgId, chunks: Option<Vec<ChunkIndex>>) {
        let Some(chunks) = chunks else { return };
        for chunk in chunks {
            self.submit((pg, chunk), Op::Difference { token, pg, chunk });
        }
        self.queries.chunk_compared(&mut self.cx, token);
    }

    pub(super) fn step_difference(&mut self, token: u64, pg: PgId, chunk: ChunkIndex) -> Step {
        let Some((from, to)) = self.queries.compared_layers(token) else { return Step::Done };
        let key = |layer: LayerId| LeafKey { layer, chunk, pg };
        let (map, mut s) = self.with_map();
        let before = from.map_or(Ok(None), |from| map.nearest(&mut s, key(from)));
        let (from, to) = match (before, map.nearest(&mut s, key(to))) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(step), _) | (_, Err(step)) => return step,
        };
        if from != to {
            let leaf = |slot| self.map.leaf(slot);
            self.queries.compare_leaves(token, chunk, from.and_then(leaf), to.and_then(leaf));
        }
        self.queries.chunk_compared(&mut self.cx, token);
        Step::Done
    }
}
