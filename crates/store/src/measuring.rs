//! What the end of a layer would give back.

use crate::cx::Io;
use crate::effect::{Effect, MapError, ReadError};
use crate::leaf::LeafKey;
use crate::ops::{Op, Step};
use crate::report::Report;
use crate::store::Store;
use azekura_base::{BLOCK_SIZE, ChunkIndex, MeasureLayer, Measured, NotTold};
use std::collections::BTreeSet;

/// Leaves that one step of a measurement looks at: in between, the device's other work has its turn.
const LEAVES_PER_STEP: usize = 64;

/// A layer that is being measured.
#[derive(Debug)]
pub(crate) struct Measurement {
    asked: MeasureLayer,
    blocks: u64,
    /// Where the next step begins; `None` behind the last leaf.
    next: Option<ChunkIndex>,
    /// Leaves of all steps so far.
    leaves: usize,
    /// Leaves of this step that are not done yet.
    left: usize,
    error: Option<ReadError>,
}

impl Store {
    pub(crate) fn start_measurement(&mut self, token: u64, asked: MeasureLayer) {
        let next = Some(asked.from);
        let measurement = Measurement { asked, blocks: 0, next, leaves: 0, left: 0, error: None };
        self.measurements.insert(token, measurement);
        self.go_on_measuring(token);
    }

    /// The saved map has listed some leaves of a layer that is being measured.
    pub(crate) fn measure_listed(&mut self, token: u64, result: Result<Vec<LeafKey>, MapError>) {
        let Some(measurement) = self.measurements.get_mut(&token) else { return };
        let Some(from) = measurement.next.take() else { return };
        let layer = measurement.asked.layer;
        let saved = result.unwrap_or_else(|error| {
            measurement.error = Some(ReadError::Map(error));
            Vec::new()
        });
        let last = saved.last().filter(|_| saved.len() >= LEAVES_PER_STEP).map(|key| key.chunk);
        // What is in memory may not be saved yet, or be saved differently.
        let in_step = |chunk: ChunkIndex| chunk >= from && last.is_none_or(|last| chunk <= last);
        let mut keys: BTreeSet<LeafKey> =
            self.cache.present(|key| key.layer == layer && in_step(key.chunk)).into_iter().collect();
        keys.extend(saved);
        let more = keys.len() > LEAVES_PER_STEP || last.is_some();
        let keys: Vec<LeafKey> = keys.into_iter().take(LEAVES_PER_STEP).collect();
        let next = keys.last().filter(|_| more).and_then(|key| key.chunk.0.checked_add(1)).map(ChunkIndex);
        measurement.next = next.filter(|_| measurement.error.is_none());
        measurement.leaves += keys.len();
        // One more than there are: the step must not end while it is being started.
        measurement.left = keys.len() + 1;
        for key in keys {
            self.submit((key.pg, key.chunk), Op::Measure { token, key });
        }
        self.leaf_measured(token, 0);
    }

    /// A leaf can't be loaded.
    pub(crate) fn measure_failed(&mut self, token: u64, error: MapError) {
        if let Some(measurement) = self.measurements.get_mut(&token) {
            measurement.error = Some(ReadError::Map(error));
        }
        self.leaf_measured(token, 0);
    }

    /// Counts the blocks of a leaf that the heir does not show.
    pub(crate) fn step_measure(&mut self, token: u64, key: LeafKey) -> Step {
        let Some(heir) = self.measurements.get(&token).map(|measurement| measurement.asked.heir) else {
            return Step::Done;
        };
        let shown = heir.map_or(Ok(None), |heir| self.nearest(LeafKey { layer: heir, ..key }));
        let (own, shown) = match (self.leaf_here(key), shown) {
            (Ok(own), Ok(shown)) => (own, shown),
            (Err(step), _) | (_, Err(step)) => return step,
        };
        let mut blocks = 0;
        if let Some(leaf) = own.and_then(|own| self.cache.leaf(own)) {
            let shown = shown.and_then(|shown| self.cache.leaf(shown));
            let shows = |block: usize, address| shown.is_some_and(|leaf| leaf.entries[block].address == address);
            let entries = leaf.entries.iter().enumerate().filter(|(_, entry)| entry.is_own());
            blocks = entries.filter(|(block, entry)| !shows(*block, entry.address)).count() as u64;
        }
        self.leaf_measured(token, blocks);
        Step::Done
    }

    fn leaf_measured(&mut self, token: u64, blocks: u64) {
        let Some(measurement) = self.measurements.get_mut(&token) else { return };
        measurement.blocks += blocks;
        measurement.left -= 1;
        if measurement.left == 0 {
            self.go_on_measuring(token);
        }
    }

    /// Takes the next step, or tells what was found.
    fn go_on_measuring(&mut self, token: u64) {
        let Some(measurement) = self.measurements.get_mut(&token) else { return };
        let MeasureLayer { layer, leaves_max, .. } = measurement.asked;
        let leaves_max = leaves_max as usize;
        if let Some(from) = measurement.next.filter(|_| measurement.leaves < leaves_max && measurement.error.is_none())
        {
            let io = self.cx.new_io(Io::Measure(token));
            self.cx.ask(Effect::ScanLayer { io, layer, from, limit: LEAVES_PER_STEP });
            return;
        }
        let Some(Measurement { blocks, next, error, .. }) = self.measurements.remove(&token) else { return };
        let page = Measured { bytes: blocks * BLOCK_SIZE as u64, next: next.map(|chunk| chunk.0) };
        let result = error.map_or(Ok(page), |error| Err(NotTold::Failed(error.to_string())));
        self.cx.report(Report::Measured { token, result });
    }
}
