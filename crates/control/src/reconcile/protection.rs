//! Protected volumes: their snapshots are made when they are due, and thinned. Snapshots that end by their time, or
//! whose volume is deleted, go here, too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use azekura_base::VolumeId;
use azekura_meta::MetaClient;
use azekura_meta::time::unix_seconds;
use azekura_model::plans;
use azekura_model::transitions::cuts::VolumeCut;
use azekura_model::{MetaError, Model, RecordMap, SnapshotOrigin, SnapshotRecord, VolumeRecord};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::snapshots::schedule::{Schedule, is_unchanged, to_delete};
use crate::snapshots::{Snapshots, name_of_time};

/// Snapshots made at once.
const CUTS_AT_ONCE_MAX: usize = 8;
/// Snapshots deleted in one round.
const DELETIONS_MAX: usize = 64;

/// Snapshots and volumes as of a model.
type Known = (RecordMap<(VolumeId, String), SnapshotRecord>, RecordMap<String, VolumeRecord>);

/// A leader's work on protected volumes.
pub(super) struct Protector {
    meta: MetaClient,
    snapshots: Snapshots,
    schedule: Schedule,
    making: JoinSet<(String, Result<(), MetaError>)>,
    /// The snapshots and volumes that were looked at last, and when the next snapshot ends by its time, seconds since
    /// 1970.
    known: Option<Known>,
    next_expiry: Option<u64>,
    /// Volumes to be thinned, each when its next snapshot is made.
    crowded: BTreeSet<String>,
}

impl Protector {
    pub(super) fn new(meta: MetaClient, snapshots: Snapshots) -> Protector {
        Protector {
            meta,
            snapshots,
            schedule: Schedule::default(),
            making: JoinSet::new(),
            known: None,
            next_expiry: None,
            crowded: BTreeSet::new(),
        }
    }

    /// When there is something to do.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let at = [self.schedule.next(), self.next_expiry].into_iter().flatten().min()?;
        Some(now + Duration::from_secs(at.saturating_sub(unix_seconds())))
    }

    /// Makes what is due, and deletes what is over.
    pub(super) async fn reconcile(&mut self, model: &Arc<Model>) -> Result<(), MetaError> {
        let now = unix_seconds();
        while let Some(made) = self.making.try_join_next() {
            let Ok((volume, outcome)) = made else { continue };
            self.schedule.end(&volume, outcome.is_err(), now);
            match outcome {
                Ok(()) => drop(self.crowded.insert(volume)),
                Err(error) => tracing::warn!("protection of volume {volume}: {error}"),
            }
        }
        self.schedule.follow(model, now);
        let room = CUTS_AT_ONCE_MAX.saturating_sub(self.schedule.busy());
        for name in self.schedule.take_due(model, now, room) {
            self.crowded.insert(name.clone());
            if model.volumes.get(&name).is_some_and(|volume| !is_unchanged(model, volume)) {
                self.begin(name, now);
            }
        }
        self.thin(model, now).await?;
        self.end_snapshots(model, now).await
    }

    fn begin(&mut self, volume: String, now: u64) {
        self.schedule.begin(&volume);
        let snapshots = self.snapshots.clone();
        self.making.spawn(async move {
            let cut = VolumeCut::snapshot(&volume, &name_of_time("", now), SnapshotOrigin::Schedule);
            let outcome = snapshots.cut(&[cut]).await;
            let outcome = match outcome {
                // A person was here in the same second.
                Ok(_) | Err(MetaError::Exists { .. }) => Ok(()),
                Err(error) => Err(error),
            };
            (volume, outcome)
        });
    }

    /// Deletes snapshots that protections do not keep any more.
    async fn thin(&mut self, model: &Model, now: u64) -> Result<(), MetaError> {
        let mut left = DELETIONS_MAX;
        while let Some(name) = self.crowded.pop_first() {
            let Some(volume) = model.volumes.get(&name) else { continue };
            let superfluous = to_delete(model, volume, now);
            if superfluous.len() > left {
                self.crowded.insert(name);
            }
            for snapshot in superfluous.iter().take(left) {
                left -= 1;
                self.meta.delete_snapshot(volume.id, snapshot).await?;
            }
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Deletes snapshots whose time is over, and those of deleted volumes.
    async fn end_snapshots(&mut self, model: &Model, now: u64) -> Result<(), MetaError> {
        let same = self.known.as_ref().is_some_and(|(snapshots, volumes)| {
            Arc::ptr_eq(snapshots, &model.snapshots) && Arc::ptr_eq(volumes, &model.volumes)
        });
        if same && self.next_expiry.is_none_or(|at| now < at) {
            return Ok(());
        }
        let over: Vec<(VolumeId, &str)> = plans::snapshots::step(model, now).collect();
        for (volume, snapshot) in over.iter().take(DELETIONS_MAX) {
            self.meta.delete_snapshot(*volume, snapshot).await?;
        }
        self.next_expiry = plans::snapshots::next(model, now, over.len() <= DELETIONS_MAX);
        // Its deletions change the snapshots, and so call for the next look.
        self.known = Some((Arc::clone(&model.snapshots), Arc::clone(&model.volumes)));
        Ok(())
    }
}
