//! Whom the gateway needs a connection to: who serves the volumes that its clients use.

use super::Gateway;
use crate::view::GroupView;
use azekura_base::{Endpoint, PgId, VolumeId};
use std::collections::BTreeSet;
use std::time::Duration;

impl Gateway {
    /// The shards that a request on a volume which is used may be sent to.
    pub fn peers(&self) -> impl Iterator<Item = Endpoint> + '_ {
        let groups: BTreeSet<PgId> = self
            .uses
            .volumes()
            .filter_map(|volume| self.directory.volume(volume))
            .flat_map(|volume| volume.groups_of_chunks())
            // A volume may have become smaller since.
            .chain(self.parts.all().map(|in_flight| in_flight.wanted().pg))
            .collect();
        groups.into_iter().filter_map(|pg| self.directory.group(pg)).flat_map(shards_of)
    }

    /// Changes when [`Gateway::peers`] may, apart from what [`Gateway::configure`] changes.
    #[must_use]
    pub fn changes_of_use(&self) -> u64 {
        self.uses.changes()
    }

    /// Volumes are used no more on which no request was under way for `idle`.
    pub fn forget_unused(&mut self, now: Duration, idle: Duration) {
        let busy: BTreeSet<VolumeId> = self.parts.all().map(|in_flight| in_flight.wanted().volume).collect();
        let directory = &self.directory;
        self.uses.forget(now, idle, &busy, |volume| directory.volume(volume).is_some());
    }

    /// The shards that have something to answer.
    pub fn asked(&self) -> impl Iterator<Item = Endpoint> + '_ {
        self.parts.all().filter_map(|in_flight| in_flight.at())
    }

    /// The shards that a request under way may be sent to.
    pub fn wanted(&self) -> impl Iterator<Item = Endpoint> + '_ {
        self.parts.all().filter_map(|in_flight| self.directory.group(in_flight.wanted().pg)).flat_map(shards_of)
    }
}

/// A write goes to the primary, a read to any copy that may answer it.
fn shards_of(group: &GroupView) -> impl Iterator<Item = Endpoint> + '_ {
    group.copies.iter().copied().chain([group.primary])
}
