//! Copies from other replicas that are not applied yet.

use crate::groups::Place;
use crate::hash::FixedMap;
use crate::record::Copy;
use azekura_base::{Body, LayerId};
use bytes::Bytes;

/// A copy that is not applied yet.
#[derive(Debug)]
pub(crate) struct CopyState {
    pub copy: Copy,
    /// Where it is, and its position in the log; absent until the record is in a batch.
    pub place: Option<(Place, u64)>,
}

/// All of them, by the names of their records.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    waiting: FixedMap<u64, CopyState>,
}

impl Copies {
    /// A copy that is, or is not, in the log.
    pub fn add(&mut self, id: u64, copy: Copy, place: Option<(Place, u64)>) {
        self.waiting.insert(id, CopyState { copy, place });
    }

    /// The record is in a batch: its payload is not needed any more.
    pub fn place(&mut self, id: u64, place: Place, position: u64) {
        let copy = self.waiting.get_mut(&id).expect("a copy stays until it is applied");
        copy.place = Some((place, position));
        // The payload is in the batch now.
        if let Body::Data { bytes, .. } = &mut copy.copy.body {
            *bytes = Bytes::new();
        }
    }

    pub fn get(&self, id: u64) -> Option<&CopyState> {
        self.waiting.get(&id)
    }

    /// Where in the log a copy is, once it is in a batch.
    pub fn position(&self, id: u64) -> Option<u64> {
        self.waiting.get(&id)?.place.map(|(_, position)| position)
    }

    /// It is applied.
    pub fn remove(&mut self, id: u64) {
        self.waiting.remove(&id);
    }

    /// A copy into `layer` waits.
    pub fn wait_for(&self, layer: LayerId) -> bool {
        self.waiting.values().any(|waiting| waiting.copy.range.layer == layer)
    }
}
