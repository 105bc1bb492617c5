//! A saved map in memory, for tests and the simulator: each checkpoint is atomic and at once durable.

use crate::checkpoint::{CheckpointBatch, CheckpointRoot, Root, SavedMap, SegmentRow};
use crate::effect::MapError;
use crate::heirs::Heir;
use crate::leaf::{LeafImage, LeafKey};
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
use std::collections::BTreeMap;

/// A saved map in memory. Clone it to keep an image of this instant.
#[derive(Debug, Clone, Default)]
pub struct MemoryMap {
    root: Option<Root>,
    segments: BTreeMap<u32, SegmentRow>,
    leaves: BTreeMap<(LayerId, ChunkIndex), (PgId, LeafImage)>,
    layers: BTreeMap<LayerId, u64>,
    heirs: BTreeMap<(u32, LayerId), LayerId>,
}

impl MemoryMap {
    /// An empty map, as before format.
    #[must_use]
    pub fn new() -> MemoryMap {
        MemoryMap::default()
    }

    /// All saved leaves, by layer and chunk.
    pub fn leaves(&self) -> impl Iterator<Item = (LeafKey, &LeafImage)> {
        self.leaves.iter().map(|((layer, chunk), (pg, leaf))| (LeafKey { layer: *layer, chunk: *chunk, pg: *pg }, leaf))
    }
}

impl SavedMap for MemoryMap {
    fn root(&self) -> Result<Option<CheckpointRoot>, MapError> {
        let segments = self.segments.iter().map(|(segment, row)| (*segment, *row)).collect();
        let layers = self.layers.iter().map(|(layer, blocks)| (*layer, *blocks)).collect();
        Ok(self.root.clone().map(|root| CheckpointRoot { root, segments, layers }))
    }

    fn checkpoint(&mut self, batch: CheckpointBatch) -> Result<(), MapError> {
        self.root = Some(batch.root);
        self.segments.extend(batch.segments);
        for key in batch.removed {
            self.leaves.remove(&(key.layer, key.chunk));
        }
        for (key, leaf) in batch.leaves {
            self.leaves.insert((key.layer, key.chunk), (key.pg, leaf));
        }
        self.layers.extend(batch.layers);
        self.layers.retain(|_, blocks| *blocks > 0);
        self.heirs.retain(|(segment, _), _| !batch.heirs_gone.contains(segment));
        self.heirs.extend(batch.heirs.iter().map(|heir| ((heir.segment, heir.layer), heir.heir)));
        Ok(())
    }

    fn load_leaves(&self, keys: &[LeafKey]) -> Result<Vec<Option<LeafImage>>, MapError> {
        Ok(keys.iter().map(|key| self.leaves.get(&(key.layer, key.chunk)).map(|(_, leaf)| leaf.clone())).collect())
    }

    fn scan_layer(&self, layer: LayerId, from: ChunkIndex, limit: usize) -> Result<Vec<LeafKey>, MapError> {
        let range = (layer, from)..=(layer, ChunkIndex(u32::MAX));
        let keys =
            self.leaves.range(range).map(|((layer, chunk), (pg, _))| LeafKey { layer: *layer, chunk: *chunk, pg: *pg });
        Ok(keys.take(limit).collect())
    }

    fn for_each_leaf(&self, visit: &mut dyn FnMut(Result<(LeafKey, LeafImage), MapError>)) -> Result<(), MapError> {
        self.leaves().for_each(|(key, leaf)| visit(Ok((key, leaf.clone()))));
        Ok(())
    }

    fn scan_modified(
        &self,
        pg: PgId,
        after: Sequence,
        from: (LayerId, ChunkIndex),
        limit: usize,
    ) -> Result<Vec<(LeafKey, Sequence)>, MapError> {
        let wanted = |(key, leaf): &(LeafKey, &LeafImage)| {
            key.pg == pg && (key.layer, key.chunk) >= from && (leaf.modified > after || after == Sequence::ZERO)
        };
        Ok(self.leaves().filter(wanted).take(limit).map(|(key, leaf)| (key, leaf.modified)).collect())
    }

    fn load_heirs(&self, segment: u32) -> Result<Vec<Heir>, MapError> {
        let heirs = self.heirs.range((segment, LayerId(0))..=(segment, LayerId(u64::MAX)));
        Ok(heirs.map(|((segment, layer), heir)| Heir { segment: *segment, layer: *layer, heir: *heir }).collect())
    }
}
