//! What the end of a layer would give back.

use crate::cx::{Io, StoreCx};
use crate::effect::{Effect, MapError, ReadError};
use crate::map::{Leaf, LeafKey, Map};
use crate::query::Queries;
use crate::report::Report;
use azekura_base::{BLOCK_SIZE, ChunkIndex, LayerId, MeasureLayer, Measured, NotTold};
use std::collections::BTreeSet;

/// Leaves that one step of a measurement looks at: in between, the device's other work has its turn.
const LEAVES_PER_STEP: usize = 64;

/// A layer that is being measured.
#[derive(Debug)]
pub(super) struct Measurement {
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

impl Queries {
    pub fn measure(&mut self, cx: &mut StoreCx, token: u64, asked: MeasureLayer) {
        let next = Some(asked.from);
        let measurement = Measurement { asked, blocks: 0, next, leaves: 0, left: 0, error: None };
        self.measurements.insert(token, measurement);
        self.go_on_measuring(cx, token);
    }

    /// The saved map has listed some leaves of a layer that is being measured. Gives those that are to be looked at;
    /// [`Queries::leaf_measured`] is to be called once more than there are, since the step must not end while it is
    /// being started.
    pub fn measure_listed(
        &mut self,
        map: &Map,
        token: u64,
        result: Result<Vec<LeafKey>, MapError>,
    ) -> Option<Vec<LeafKey>> {
        let measurement = self.measurements.get_mut(&token)?;
        let from = measurement.next.take()?;
        let layer = measurement.asked.layer;
        let saved = result.unwrap_or_else(|error| {
            measurement.error = Some(ReadError::Map(error));
            Vec::new()
        });
        let last = saved.last().filter(|_| saved.len() >= LEAVES_PER_STEP).map(|key| key.chunk);
        // What is in memory may not be saved yet, or be saved differently.
        let in_step = |chunk: ChunkIndex| chunk >= from && last.is_none_or(|last| chunk <= last);
        let mut keys: BTreeSet<LeafKey> =
            map.present(|key| key.layer == layer && in_step(key.chunk)).into_iter().collect();
        keys.extend(saved);
        let more = keys.len() > LEAVES_PER_STEP || last.is_some();
        let keys: Vec<LeafKey> = keys.into_iter().take(LEAVES_PER_STEP).collect();
        let next = keys.last().filter(|_| more).and_then(|key| key.chunk.0.checked_add(1)).map(ChunkIndex);
        measurement.next = next.filter(|_| measurement.error.is_none());
        measurement.leaves += keys.len();
        measurement.left = keys.len() + 1;
        Some(keys)
    }

    /// A leaf can't be loaded.
    pub fn measure_failed(&mut self, cx: &mut StoreCx, token: u64, error: MapError) {
        if let Some(measurement) = self.measurements.get_mut(&token) {
            measurement.error = Some(ReadError::Map(error));
        }
        self.leaf_measured(cx, token, 0);
    }

    /// The layer that the one that is being measured is merged into; the outer `None`: nothing is being measured.
    pub fn merged_into(&self, token: u64) -> Option<Option<LayerId>> {
        self.measurements.get(&token).map(|measurement| measurement.asked.merged_into)
    }

    /// Counts the blocks of a layer's leaf that `shown`, the leaf of the layer it is merged into, does not show.
    pub fn measure_leaf(&mut self, cx: &mut StoreCx, token: u64, own: Option<&Leaf>, shown: Option<&Leaf>) {
        let mut blocks = 0;
        if let Some(leaf) = own {
            let shows = |block: usize, address| shown.is_some_and(|leaf| leaf.entries[block].address == address);
            let entries = leaf.entries.present().filter(|(_, entry)| entry.is_own());
            blocks = entries.filter(|(block, entry)| !shows(*block, entry.address)).count() as u64;
        }
        self.leaf_measured(cx, token, blocks);
    }

    /// A leaf has been looked at.
    pub fn leaf_measured(&mut self, cx: &mut StoreCx, token: u64, blocks: u64) {
        let Some(measurement) = self.measurements.get_mut(&token) else { return };
        measurement.blocks += blocks;
        measurement.left -= 1;
        if measurement.left == 0 {
            self.go_on_measuring(cx, token);
        }
    }

    /// Takes the next step, or reports what was found.
    fn go_on_measuring(&mut self, cx: &mut StoreCx, token: u64) {
        let Some(measurement) = self.measurements.get_mut(&token) else { return };
        let MeasureLayer { layer, leaves_max, .. } = measurement.asked;
        let leaves_max = leaves_max as usize;
        if let Some(from) = measurement.next.filter(|_| measurement.leaves < leaves_max && measurement.error.is_none())
        {
            let io = cx.new_io(Io::Measure(token));
            cx.ask(Effect::ScanLayer { io, layer, from, limit: LEAVES_PER_STEP });
            return;
        }
        let Some(Measurement { blocks, next, error, .. }) = self.measurements.remove(&token) else { return };
        let page = Measured { bytes: blocks * BLOCK_SIZE as u64, next: next.map(|chunk| chunk.0) };
        let result = error.map_or(Ok(page), |error| Err(NotTold::Failed(error.to_string())));
        cx.report(Report::Measured { token, result });
    }
}
