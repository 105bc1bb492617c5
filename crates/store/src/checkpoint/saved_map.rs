//! The interface of whatever keeps checkpoints.

use crate::checkpoint::rows::{Root, SegmentRow};
use crate::effect::{Done, Effect, IoId, MapError};
use crate::map::MergedOwner;
use crate::map::{DamagedLeaf, LeafImage, LeafKey, SavedLeaf};
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
use std::ops::Range;

/// What one checkpoint transaction writes.
#[derive(Debug, Clone)]
pub struct CheckpointBatch {
    /// Replaces the root.
    pub root: Root,
    /// Rows of segments that changed.
    pub segments: Vec<(u32, SegmentRow)>,
    /// Leaves to write.
    pub leaves: Vec<(LeafKey, LeafImage)>,
    /// Leaves to remove.
    pub removed: Vec<LeafKey>,
    /// Layers whose count of owned blocks changed; 0 removes the row.
    pub layers: Vec<(LayerId, u64)>,
    /// Segments that become free: their merged owners are removed, before new ones are added.
    pub merged_owners_gone: Vec<u32>,
    /// Merged owners to add.
    pub merged_owners: Vec<MergedOwner>,
}

/// What the saved map gives at open.
#[derive(Debug, Clone)]
pub struct CheckpointRoot {
    /// The root.
    pub root: Root,
    /// Rows of all segments that were ever used.
    pub segments: Vec<(u32, SegmentRow)>,
    /// Blocks that the saved leaves of each layer own.
    pub layers: Vec<(LayerId, u64)>,
    /// Leaves that don't know where some of their blocks are.
    pub damaged: Vec<LeafKey>,
}

/// Whatever keeps the checkpoints: a database on disk (`crates/map-db`), [`crate::InMemoryMap`] in tests.
pub trait SavedMap {
    /// The last checkpoint; `None` when there never was one.
    ///
    /// # Errors
    /// When it can't be read or is damaged.
    fn root(&self) -> Result<Option<CheckpointRoot>, MapError>;

    /// Does one transaction: when it returns all is durable, or nothing happened.
    ///
    /// # Errors
    /// When it can't be written.
    fn checkpoint(&mut self, batch: CheckpointBatch) -> Result<(), MapError>;

    /// Looks leaves up, in the order of `keys`.
    ///
    /// # Errors
    /// When one can't be read.
    fn load_leaves(&self, keys: &[LeafKey]) -> Result<Vec<SavedLeaf>, MapError>;

    /// Lists at most `limit` leaves of `layer`, by chunk, starting at chunk `from`.
    ///
    /// # Errors
    /// When they can't be read.
    fn scan_layer(&self, layer: LayerId, from: ChunkIndex, limit: usize) -> Result<Vec<LeafKey>, MapError>;

    /// Lists at most `limit` leaves of `pg` modified after `after` (all, if `after` is 0), by layer and chunk, starting
    /// with `from`.
    ///
    /// # Errors
    /// When they can't be read.
    fn scan_modified(
        &self,
        pg: PgId,
        after: Sequence,
        from: (LayerId, ChunkIndex),
        limit: usize,
    ) -> Result<Vec<(LeafKey, Sequence)>, MapError>;

    /// Lists the merged owners of a segment.
    ///
    /// # Errors
    /// When they can't be read.
    fn load_merged_owners(&self, segment: u32) -> Result<Vec<MergedOwner>, MapError>;

    /// Compares what there is of a group with how much it should be, and says what differs: then leaves of it were
    /// saved, and are not there any more without a trace.
    ///
    /// # Errors
    /// When it can't be read.
    fn compare_totals(&self, pg: PgId) -> Result<Option<String>, MapError>;

    /// Calls `visit` with every leaf; a damaged one comes as an error.
    ///
    /// # Errors
    /// When the leaves can't be listed.
    fn for_each_leaf(&self, visit: &mut dyn FnMut(Result<(LeafKey, LeafImage), MapError>)) -> Result<(), MapError>;

    /// Performs `effect` if it is one of the map's; gives the effect back if not.
    // An effect that is not the map's goes back whole, to whoever performs it: no error that should be kept small.
    #[allow(clippy::result_large_err)]
    fn perform(&mut self, effect: Effect) -> Result<(IoId, Done), Effect> {
        Ok(match effect {
            Effect::LoadLeaves { io, keys, addresses } => {
                let leaves = self.load_leaves(&keys);
                let checked = leaves.map(|leaves| leaves.into_iter().map(|leaf| on_device(leaf, &addresses)).collect());
                (io, Done::Leaves(checked))
            }
            Effect::ScanLayer { io, layer, from, limit } => (io, Done::Layer(self.scan_layer(layer, from, limit))),
            Effect::ScanModified { io, pg, after, from, limit } => {
                (io, Done::Modified(self.scan_modified(pg, after, from, limit)))
            }
            Effect::LoadMergedOwners { io, segment } => (io, Done::MergedOwners(self.load_merged_owners(segment))),
            Effect::CompareTotals { io, pg } => (io, Done::Totals(self.compare_totals(pg))),
            Effect::Checkpoint { io, batch } => (io, Done::Checkpointed(self.checkpoint(*batch))),
            other => return Err(other),
        })
    }
}

/// A leaf, if its blocks are on the device. All of its entries are looked at, so this is done where the leaf was looked
/// up, and not by the thread that serves everything else.
fn on_device(leaf: SavedLeaf, addresses: &Range<u32>) -> SavedLeaf {
    let SavedLeaf::Whole(image) = &leaf else { return leaf };
    let Some(address) = image.entries.address_outside(addresses) else { return leaf };
    let what = format!("a leaf names block {address}, which is not on the device");
    SavedLeaf::Damaged(Box::new(DamagedLeaf { what, stamps: Some(image.stamps()), own: None }))
}
