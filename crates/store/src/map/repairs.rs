//! Repairs, from other replicas, that are not applied yet.

use crate::groups::Place;
use crate::hash::FixedMap;
use crate::record::Repair;
use azekura_base::{Body, ChunkIndex, LayerId, PgId};
use bytes::Bytes;

/// A repair that is not applied yet.
#[derive(Debug)]
pub(crate) struct RepairState {
    pub repair: Repair,
    /// Where it is, and its position in the log; absent until the record is in a batch.
    pub place: Option<(Place, u64)>,
}

/// All of them, by the names of their records.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    waiting: FixedMap<u64, RepairState>,
}

impl Repairs {
    /// A repair that is, or is not, in the log.
    pub fn add(&mut self, id: u64, repair: Repair, place: Option<(Place, u64)>) {
        self.waiting.insert(id, RepairState { repair, place });
    }

    /// The record is in a batch: its payload is not needed any more.
    pub fn place(&mut self, id: u64, place: Place, position: u64) {
        let repair = self.waiting.get_mut(&id).expect("a repair stays until it is applied");
        repair.place = Some((place, position));
        // The payload is in the batch now.
        if let Body::Data { bytes, .. } = &mut repair.repair.body {
            *bytes = Bytes::new();
        }
    }

    pub fn get(&self, id: u64) -> Option<&RepairState> {
        self.waiting.get(&id)
    }

    /// Where in the log a repair is, once it is in a batch.
    pub fn position(&self, id: u64) -> Option<u64> {
        self.waiting.get(&id)?.place.map(|(_, position)| position)
    }

    /// It is applied.
    pub fn remove(&mut self, id: u64) {
        self.waiting.remove(&id);
    }

    /// The oldest log position of those that wait for a chunk, in whatever layer, and are in the log.
    pub fn first_position(&self, pg: PgId, chunk: ChunkIndex) -> Option<u64> {
        let waits = |waiting: &&RepairState| (waiting.repair.pg, waiting.repair.range.chunk) == (pg, chunk);
        self.waiting.values().filter(waits).filter_map(|waiting| Some(waiting.place?.1)).min()
    }

    /// A repair into `layer` waits.
    pub fn wait_for(&self, layer: LayerId) -> bool {
        self.waiting.values().any(|waiting| waiting.repair.range.layer == layer)
    }
}
