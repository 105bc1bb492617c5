//! A saved map in memory, for tests and the simulator: each checkpoint is atomic and at once durable. Such a map can be
//! damaged as one on disk can.

use crate::checkpoint::rows::{Root, SegmentRow};
use crate::checkpoint::saved_map::{CheckpointBatch, CheckpointRoot, SavedMap};
use crate::effect::MapError;
use crate::map::MergedOwner;
use crate::map::{DamagedLeaf, LeafImage, LeafKey, SavedLeaf};
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
use std::collections::{BTreeMap, BTreeSet};

/// What happened to a leaf, or to a row of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapDamage {
    /// A bit of the leaf's image has flipped, or an older page lies in the place of the latest: the index tells.
    Leaf,
    /// The same, and the index is damaged at this place as well.
    LeafAndIndex,
    /// The device does not give the leaf's page any more; the index tells of the leaf.
    Unreadable,
    /// The leaf and its row in the index are gone as if they had never been: a lost write took both.
    Lost,
}

/// A row of which the map has two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MapRow {
    /// Of a segment.
    Segment(u32),
    /// Of a layer: how many blocks it owns.
    Layer(LayerId),
    /// Of a layer's merged owner in a segment.
    MergedOwner(u32, LayerId),
}

/// A saved map in memory. Clone it to keep an image of this instant.
#[derive(Debug, Clone, Default)]
pub struct InMemoryMap {
    root: Option<Root>,
    segments: BTreeMap<u32, SegmentRow>,
    leaves: BTreeMap<(LayerId, ChunkIndex), (PgId, LeafImage)>,
    layers: BTreeMap<LayerId, u64>,
    merged_owners: BTreeMap<(u32, LayerId), LayerId>,
    damaged: BTreeMap<(LayerId, ChunkIndex), MapDamage>,
    /// Groups of which leaves are lost.
    lost: BTreeSet<PgId>,
    /// Rows of which one copy is damaged, or both (true).
    rows: BTreeMap<MapRow, bool>,
}

impl InMemoryMap {
    /// An empty map, as before format.
    #[must_use]
    pub fn new() -> InMemoryMap {
        InMemoryMap::default()
    }

    /// All saved leaves, by layer and chunk, as they were before any damage.
    pub fn leaves(&self) -> impl Iterator<Item = (LeafKey, &LeafImage)> {
        self.leaves.iter().map(|((layer, chunk), (pg, leaf))| (LeafKey { layer: *layer, chunk: *chunk, pg: *pg }, leaf))
    }

    /// Damages what is saved of a leaf. False when there is none.
    pub fn damage(&mut self, layer: LayerId, chunk: ChunkIndex, damage: MapDamage) -> bool {
        let Some((pg, _)) = self.leaves.get(&(layer, chunk)) else { return false };
        if damage == MapDamage::Lost {
            self.lost.insert(*pg);
            self.leaves.remove(&(layer, chunk));
        } else {
            self.damaged.insert((layer, chunk), damage);
        }
        true
    }

    /// What could not be read can be read again.
    pub fn mend(&mut self) {
        self.damaged.retain(|_, damage| *damage != MapDamage::Unreadable);
    }

    /// Leaves that can't be read.
    pub fn unreadable(&self) -> impl Iterator<Item = (LayerId, ChunkIndex)> {
        self.damaged.iter().filter(|(_, damage)| **damage == MapDamage::Unreadable).map(|(place, _)| *place)
    }

    /// Damages one copy of a row, and the second one when that has happened before. False when there is no such row.
    pub fn damage_row(&mut self, row: MapRow) -> bool {
        let is_there = match row {
            MapRow::Segment(segment) => self.segments.contains_key(&segment),
            MapRow::Layer(layer) => self.layers.contains_key(&layer),
            MapRow::MergedOwner(segment, layer) => self.merged_owners.contains_key(&(segment, layer)),
        };
        if is_there {
            self.rows.entry(row).and_modify(|both| *both = true).or_insert(false);
        }
        is_there
    }

    /// Of which row of these both copies are damaged.
    fn damaged_row(&self, which: impl Fn(&MapRow) -> bool) -> Option<MapRow> {
        self.rows.iter().find(|(row, both)| **both && which(row)).map(|(row, _)| *row)
    }

    fn saved(&self, key: &LeafKey) -> SavedLeaf {
        let place = (key.layer, key.chunk);
        let Some((_, leaf)) = self.leaves.get(&place) else { return SavedLeaf::Absent };
        let Some(damage) = self.damaged.get(&place) else { return SavedLeaf::Whole(leaf.clone()) };
        let is_indexed = *damage != MapDamage::LeafAndIndex;
        let damaged = |what: &str| {
            Box::new(DamagedLeaf {
                what: format!("the leaf of layer {} chunk {} {what}", key.layer, key.chunk),
                stamps: is_indexed.then(|| leaf.stamps()),
                own: is_indexed.then(|| leaf.own()),
            })
        };
        match damage {
            MapDamage::Unreadable => SavedLeaf::Refused(damaged("can't be read")),
            _ => SavedLeaf::Damaged(damaged("is damaged")),
        }
    }
}

impl SavedMap for InMemoryMap {
    fn root(&self) -> Result<Option<CheckpointRoot>, MapError> {
        match self.damaged_row(|row| !matches!(row, MapRow::MergedOwner(..))) {
            Some(MapRow::Segment(segment)) => {
                return Err(MapError::both_damaged(&format!("the row of segment {segment}")));
            }
            Some(MapRow::Layer(layer)) => return Err(MapError::both_damaged(&format!("the row of layer {layer}"))),
            Some(MapRow::MergedOwner(..)) | None => {}
        }
        let segments = self.segments.iter().map(|(segment, row)| (*segment, *row)).collect();
        let layers = self.layers.iter().map(|(layer, blocks)| (*layer, *blocks)).collect();
        let damaged = self.leaves().filter(|(_, leaf)| leaf.has_unknown()).map(|(key, _)| key).collect();
        Ok(self.root.clone().map(|root| CheckpointRoot { root, segments, layers, damaged }))
    }

    fn checkpoint(&mut self, batch: CheckpointBatch) -> Result<(), MapError> {
        self.root = Some(batch.root);
        for (segment, _) in &batch.segments {
            self.rows.remove(&MapRow::Segment(*segment));
        }
        for (layer, _) in &batch.layers {
            self.rows.remove(&MapRow::Layer(*layer));
        }
        for row in &batch.merged_owners {
            self.rows.remove(&MapRow::MergedOwner(row.segment, row.layer));
        }
        self.rows.retain(
            |row, _| !matches!(row, MapRow::MergedOwner(segment, _) if batch.merged_owners_gone.contains(segment)),
        );
        self.segments.extend(batch.segments);
        for key in batch.removed {
            self.leaves.remove(&(key.layer, key.chunk));
            self.damaged.remove(&(key.layer, key.chunk));
        }
        for (key, leaf) in batch.leaves {
            self.leaves.insert((key.layer, key.chunk), (key.pg, leaf));
            self.damaged.remove(&(key.layer, key.chunk));
        }
        self.layers.extend(batch.layers);
        self.layers.retain(|_, blocks| *blocks > 0);
        self.merged_owners.retain(|(segment, _), _| !batch.merged_owners_gone.contains(segment));
        self.merged_owners.extend(batch.merged_owners.iter().map(|row| ((row.segment, row.layer), row.owner)));
        Ok(())
    }

    fn load_leaves(&self, keys: &[LeafKey]) -> Result<Vec<SavedLeaf>, MapError> {
        Ok(keys.iter().map(|key| self.saved(key)).collect())
    }

    fn scan_layer(&self, layer: LayerId, from: ChunkIndex, limit: usize) -> Result<Vec<LeafKey>, MapError> {
        let range = (layer, from)..=(layer, ChunkIndex(u32::MAX));
        let keys =
            self.leaves.range(range).map(|((layer, chunk), (pg, _))| LeafKey { layer: *layer, chunk: *chunk, pg: *pg });
        Ok(keys.take(limit).collect())
    }

    fn compare_totals(&self, pg: PgId) -> Result<Option<String>, MapError> {
        Ok(self.lost.contains(&pg).then(|| format!("leaves of group {pg} are lost")))
    }

    fn for_each_leaf(&self, visit: &mut dyn FnMut(Result<(LeafKey, LeafImage), MapError>)) -> Result<(), MapError> {
        for (key, _) in self.leaves() {
            match self.saved(&key) {
                SavedLeaf::Whole(leaf) => visit(Ok((key, leaf))),
                SavedLeaf::Damaged(damaged) | SavedLeaf::Refused(damaged) => {
                    visit(Err(MapError::Refused(damaged.what)))
                }
                SavedLeaf::Absent => {}
            }
        }
        Ok(())
    }

    fn scan_modified(
        &self,
        pg: PgId,
        after: Sequence,
        from: (LayerId, ChunkIndex),
        limit: usize,
    ) -> Result<Vec<(LeafKey, Sequence)>, MapError> {
        let modified = |(key, leaf): (LeafKey, &LeafImage)| {
            let unknown = self.damaged.get(&(key.layer, key.chunk)) == Some(&MapDamage::LeafAndIndex);
            (key, if unknown { Sequence(u64::MAX) } else { leaf.modified })
        };
        let wanted = |(key, modified): &(LeafKey, Sequence)| {
            key.pg == pg && (key.layer, key.chunk) >= from && (*modified > after || after == Sequence::ZERO)
        };
        Ok(self.leaves().map(modified).filter(wanted).take(limit).collect())
    }

    fn load_merged_owners(&self, segment: u32) -> Result<Vec<MergedOwner>, MapError> {
        if let Some(MapRow::MergedOwner(segment, layer)) =
            self.damaged_row(|row| matches!(row, MapRow::MergedOwner(of, _) if *of == segment))
        {
            return Err(MapError::Refused(format!(
                "the merged owner of layer {layer} in segment {segment} is damaged"
            )));
        }
        let merged_owners = self.merged_owners.range((segment, LayerId(0))..=(segment, LayerId(u64::MAX)));
        Ok(merged_owners
            .map(|((segment, layer), owner)| MergedOwner { segment: *segment, layer: *layer, owner: *owner })
            .collect())
    }
}
