//! Protected volumes: their snapshots are made when they are due, and thinned. Snapshots that end by their time, or
//! whose volume is deleted, go here, too.

use std::collections::BTreeSet;
use std::sync::Arc;

use azekura_base::VolumeId;
use azekura_model::{Model, RecordMap, SnapshotRecord, VolumeRecord};

use crate::schedule::{Schedule, is_unchanged, to_delete};
use crate::snapshots;

/// Snapshots made at once.
const CUTS_AT_ONCE_MAX: usize = 8;
/// Snapshots deleted in one round.
const DELETIONS_MAX: usize = 64;

/// Snapshots and volumes as of a model.
type Known = (RecordMap<(VolumeId, String), SnapshotRecord>, RecordMap<String, VolumeRecord>);

/// A leader's work on protected volumes. Times are seconds since 1970.
#[derive(Debug, Default)]
pub struct Protector {
    schedule: Schedule,
    /// The snapshots and volumes that were looked at last, and when the next snapshot ends by its time.
    known: Option<Known>,
    next_expiry: Option<u64>,
    /// Volumes to be thinned, each when its next snapshot is made.
    crowded: BTreeSet<String>,
}

impl Protector {
    /// When there is something to do.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        [self.schedule.next(), self.next_expiry].into_iter().flatten().min()
    }

    /// Volumes whose snapshots are to be made now. Each is being made from then on, until [`Protector::made`] says that
    /// it is.
    pub fn due(&mut self, model: &Model, now: u64) -> Vec<String> {
        self.schedule.follow(model, now);
        let room = CUTS_AT_ONCE_MAX.saturating_sub(self.schedule.busy());
        let mut due = self.schedule.take_due(model, now, room);
        self.crowded.extend(due.iter().cloned());
        due.retain(|name| model.volumes.get(name).is_some_and(|volume| !is_unchanged(model, volume)));
        due.iter().for_each(|name| self.schedule.begin(name));
        due
    }

    /// A volume's snapshot is made, or could not be.
    pub fn made(&mut self, volume: &str, failed: bool, now: u64) {
        self.schedule.end(volume, failed, now);
        if !failed {
            self.crowded.insert(volume.to_owned());
        }
    }

    /// Snapshots to be deleted now: those that protections do not keep any more, those whose time is over, and those
    /// of deleted volumes.
    pub fn over(&mut self, model: &Model, now: u64) -> Vec<(VolumeId, String)> {
        let mut over = self.thinned(model, now);
        over.extend(self.ended(model, now));
        over
    }

    /// What was to be deleted may still be there: it is looked for again.
    pub fn look_again(&mut self) {
        self.known = None;
    }

    fn thinned(&mut self, model: &Model, now: u64) -> Vec<(VolumeId, String)> {
        let mut over = Vec::new();
        while over.len() < DELETIONS_MAX {
            let Some(name) = self.crowded.pop_first() else { break };
            let Some(volume) = model.volumes.get(&name) else { continue };
            let superfluous = to_delete(model, volume, now);
            let room = DELETIONS_MAX - over.len();
            if superfluous.len() > room {
                self.crowded.insert(name);
            }
            over.extend(superfluous.into_iter().take(room).map(|snapshot| (volume.id, snapshot)));
        }
        over
    }

    fn ended(&mut self, model: &Model, now: u64) -> Vec<(VolumeId, String)> {
        let same = self.known.as_ref().is_some_and(|(snapshots, volumes)| {
            Arc::ptr_eq(snapshots, &model.snapshots) && Arc::ptr_eq(volumes, &model.volumes)
        });
        if same && self.next_expiry.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let over: Vec<(VolumeId, &str)> = snapshots::step(model, now).collect();
        self.next_expiry = snapshots::next(model, now, over.len() <= DELETIONS_MAX);
        // Its deletions change the snapshots, and so call for the next look.
        self.known = Some((Arc::clone(&model.snapshots), Arc::clone(&model.volumes)));
        over.into_iter().take(DELETIONS_MAX).map(|(volume, name)| (volume, name.to_owned())).collect()
    }
}
