//! Placement groups, and the starts of epochs that are not durable yet.

mod group;
mod pending;
mod requests;

pub(crate) use group::Group;
pub(crate) use pending::{Pending, Place, Written};
pub use requests::{REPLAYED_REQUESTS_MAX, Requests};

use crate::segments::Segments;
use azekura_base::{LayerId, PgId, Sequence};
use std::collections::BTreeMap;

/// The start of an epoch that is not durable yet: a crash would bring back what it drops.
#[derive(Debug)]
struct EpochWaiting {
    pg: PgId,
    /// The log generation when it was started: what it drops and was not in the log then, comes after this.
    generation: u64,
    dropped: Vec<Pending>,
}

/// All groups of a device.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<PgId, Group>,
    /// Starts of epochs that are not durable yet, by the names of their records.
    epochs_waiting: BTreeMap<u64, EpochWaiting>,
}

impl Groups {
    pub fn get(&self, pg: PgId) -> Option<&Group> {
        self.groups.get(&pg)
    }

    pub fn get_mut(&mut self, pg: PgId) -> &mut Group {
        self.groups.entry(pg).or_default()
    }

    pub fn remove(&mut self, pg: PgId) {
        self.groups.remove(&pg);
    }

    /// Drops what a group that is being forgotten has not committed.
    pub fn empty(&mut self, segments: &mut Segments, pg: PgId) {
        self.get_mut(pg).forget().iter().for_each(|pending| pending.unpin(segments));
    }

    /// The blocks of a write that was not applied are durably at `place` as well, and pinned there.
    pub fn write_moved(&mut self, segments: &mut Segments, pg: PgId, sequence: Sequence, id: u64, place: Place) {
        let pending = self.get_mut(pg).find(sequence).filter(|p| p.id == id && !p.applied);
        let Some(pending) = pending else { return };
        let written = pending.written.as_mut().expect("blocks that were moved had been written");
        segments.unpin(written.place.segment, u32::from(pending.info.header.range.count));
        written.place = place;
    }

    /// The record `id` of an epoch waits to become durable.
    pub fn epoch_begins(&mut self, id: u64, pg: PgId, generation: u64, dropped: Vec<Pending>) {
        self.epochs_waiting.insert(id, EpochWaiting { pg, generation, dropped });
    }

    /// The record of an epoch is durable. Gives the writes that the epoch drops for good.
    pub fn epoch_has_begun(&mut self, id: u64) -> Vec<Pending> {
        self.epochs_waiting.remove(&id).map(|waiting| waiting.dropped).unwrap_or_default()
    }

    /// The record of an epoch waits to become durable.
    pub fn epoch_waits(&self) -> bool {
        !self.epochs_waiting.is_empty()
    }

    /// The log generation in which the oldest of those epochs began whose records are not durable.
    pub fn oldest_epoch_waiting(&self) -> Option<u64> {
        self.epochs_waiting.values().map(|waiting| waiting.generation).min()
    }

    /// The writes of a group that epochs have dropped whose records are not durable: a crash would bring them back.
    pub fn dropped(&self, pg: PgId) -> impl Iterator<Item = &Pending> {
        self.epochs_waiting.values().filter(move |waiting| waiting.pg == pg).flat_map(|waiting| &waiting.dropped)
    }

    /// An epoch that is not durable yet has dropped a write to `layer`: after a crash it may be there again, and be
    /// committed.
    pub fn may_come_back(&self, layer: LayerId) -> bool {
        self.epochs_waiting.values().flat_map(|waiting| &waiting.dropped).any(|p| p.info.header.range.layer == layer)
    }

    /// A write to `layer` is not applied yet.
    pub fn waits_to_write(&self, layer: LayerId) -> bool {
        self.groups.values().flat_map(Group::pending).any(|p| p.info.header.range.layer == layer && !p.applied)
    }

    pub fn iter(&self) -> impl Iterator<Item = (PgId, &Group)> {
        self.groups.iter().map(|(pg, group)| (*pg, group))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (PgId, &mut Group)> {
        self.groups.iter_mut().map(|(pg, group)| (*pg, group))
    }
}
