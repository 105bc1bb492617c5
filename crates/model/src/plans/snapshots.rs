//! Snapshots that end by themselves.

use std::collections::BTreeSet;

use azekura_base::VolumeId;

use crate::Model;

/// Snapshots whose time is over at `now` (seconds since 1970), and those of deleted volumes: all of them are to be
/// deleted.
pub fn step(model: &Model, now: u64) -> impl Iterator<Item = (VolumeId, &str)> {
    let volumes: BTreeSet<VolumeId> = model.volumes.values().map(|volume| volume.id).collect();
    let snapshots = model.snapshots.values();
    let over = snapshots.filter(move |s| s.expires.is_some_and(|at| at <= now) || !volumes.contains(&s.volume));
    over.map(|snapshot| (snapshot.volume, snapshot.name.as_str()))
}

/// When the next one ends by its time, seconds since 1970; `at_once`: none that has ended is left.
#[must_use]
pub fn next(model: &Model, now: u64, at_once: bool) -> Option<u64> {
    model.snapshots.values().filter_map(|snapshot| snapshot.expires).filter(|at| !at_once || *at > now).min()
}
