//! Snapshots: made by a cut that all groups of a volume make before any goes on (docs/decisions/0011-snapshots.md),
//! gone back to, cloned and thinned.
//!
//! - [`tree`]: what lies between two layers, and which end with a snapshot.
//! - [`when`]: times as people write them.

use std::sync::Arc;

use azekura_base::{Generation, KeyId, NodeId, PgId, rfc3339_seconds};
use azekura_meta::MetaClient;
use azekura_meta::cluster::{Snapped, random_uuid};
use azekura_meta::time::{unix_seconds, unix_time};
use azekura_model::transitions::cuts::{Cut, VolumeCut};
use azekura_model::transitions::data_keys::NOTHING_TO_REKEY;
use azekura_model::transitions::snapshots::CloneSpec;
use azekura_model::transitions::volumes::check_size;
use azekura_model::{
    DataKeyRecord, Kind, MetaError, Model, ProtectionRecord, SnapshotOrigin, SnapshotRecord, Versioned, VolumeAccess,
    VolumeRecord,
};

use crate::attachments::{Attacher, FREEZE_WAIT, Had, Wanting};
use crate::data_keys::DataKeys;

pub mod tree;
pub mod when;

/// A snapshot that keeps what a volume was before it was reverted or made smaller stays for so long, seconds: a day.
pub const KEPT_SECONDS: u64 = 86_400;
/// The snapshot that a clone of the present was made from is deleted by the leader after so long, seconds, if whoever
/// made it has not come to that.
const CLONE_SOURCE_SECONDS: u64 = 600;

/// A clone's data key is made so often while its source's changes all the time.
const CLONE_TRIES: u32 = 5;

/// Bytes that are trimmed with one request when a volume is made smaller.
const TRIM_BYTES_MAX: u64 = 1 << 30;

/// Makes snapshots, and does what is done with them. Cheap to clone.
#[derive(Clone)]
pub struct Snapshots {
    meta: MetaClient,
    node: NodeId,
    attacher: Attacher,
}

/// A clone to make.
#[derive(Clone, Copy, Debug)]
pub struct CloneWish<'a> {
    /// What it is made of.
    pub volume: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its size, bytes; `None`: its source's.
    pub size_bytes: Option<u64>,
    /// How many may use it at once; `None`: as many as its source.
    pub access: Option<VolumeAccess>,
}

/// A volume that has gone back to a snapshot.
#[derive(Clone, Debug)]
pub struct Reverted {
    /// The volume.
    pub volume: VolumeRecord,
    /// The snapshot that it went back to.
    pub to: SnapshotRecord,
    /// What it was before.
    pub kept: SnapshotRecord,
    /// The revision of the configuration that says so.
    pub revision: i64,
}

/// A snapshot's name that is made from a time: unique as long as no two are made in a second.
#[must_use]
pub fn name_of_time(prefix: &str, seconds: u64) -> String {
    let compact: String = rfc3339_seconds(seconds).chars().filter(|c| !"-:".contains(*c)).collect();
    format!("{prefix}{compact}")
}

/// The same for now, to the millisecond: for those that people may ask for one after the other.
fn name_of_now(prefix: &str) -> String {
    let (seconds, nanos) = unix_time();
    let whole = name_of_time(prefix, seconds);
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), nanos / 1_000_000)
}

/// The volume of this name in a model.
fn find_volume(model: &Model, name: &str) -> Result<VolumeRecord, MetaError> {
    let not_found = || MetaError::NotFound { kind: Kind::Volume, name: name.to_owned() };
    model.volumes.get(name).map(|volume| volume.record.clone()).ok_or_else(not_found)
}

/// The data key that a clone's is made of.
fn source_key(model: &Model, key: Option<KeyId>) -> Result<&Versioned<DataKeyRecord>, MetaError> {
    let refused = |reason: &str| MetaError::NotEncrypted { reason: reason.to_owned() };
    let key = key.ok_or_else(|| refused(NOTHING_TO_REKEY))?;
    let record = model.data_keys.get(&key).map(|record| &**record);
    record.ok_or_else(|| refused("its source's data key is not in the configuration"))
}

/// A volume's snapshot that `wanted` names: by its name, or by a time, which means the newest that is not younger.
///
/// # Errors
/// When there is none, with what there is.
pub fn find_snapshot(model: &Model, volume: &str, wanted: &str) -> Result<SnapshotRecord, MetaError> {
    let record = find_volume(model, volume)?;
    if let Some(named) = model.snapshots.get(&(record.id, wanted.to_owned())) {
        return Ok(named.record.clone());
    }
    let Some(time) = when::parse(wanted, unix_seconds()) else {
        return Err(MetaError::NoSuchSnapshot { volume: volume.to_owned(), wanted: wanted.to_owned() });
    };
    let then = model.snapshots_of(record.id).filter(|snapshot| snapshot.seconds <= time);
    then.max_by_key(|snapshot| (snapshot.seconds, snapshot.nanos)).map(|snapshot| snapshot.record.clone()).ok_or_else(
        || MetaError::NoSnapshotThen {
            volume: volume.to_owned(),
            wanted: rfc3339_seconds(time),
            oldest: model.snapshots_of(record.id).map(|snapshot| snapshot.seconds).min().map(rfc3339_seconds),
        },
    )
}

/// What a task came to.
async fn finished<T>(task: tokio::task::JoinHandle<Result<T, MetaError>>) -> Result<T, MetaError> {
    task.await.unwrap_or_else(|error| Err(MetaError::Interrupted { reason: error.to_string() }))
}

impl Snapshots {
    /// Snapshots that are made by this node, through the attacher's data plane.
    pub fn new(meta: MetaClient, node: NodeId, attacher: Attacher) -> Snapshots {
        Snapshots { meta, node, attacher }
    }

    /// The same on somebody's behalf.
    pub(crate) fn acting(&self, meta: &MetaClient) -> Snapshots {
        Snapshots { meta: meta.clone(), node: self.node, attacher: self.attacher.acting(meta) }
    }

    /// Makes a snapshot of each of these volumes, all of them at one instant. Without a name, the time is the name.
    pub async fn create(&self, volumes: &[String], name: Option<&str>) -> Result<Snapped, MetaError> {
        let name = name.map_or_else(|| name_of_now(""), ToOwned::to_owned);
        let mut wishes: Vec<VolumeCut> = Vec::with_capacity(volumes.len());
        for volume in volumes {
            if wishes.iter().all(|wish| wish.volume != *volume) {
                wishes.push(VolumeCut::snapshot(volume, &name, SnapshotOrigin::Person));
            }
        }
        self.cut(&wishes).await
    }

    /// Makes a cut: begins it, has all groups stop, finishes it. What can't be finished is called off. Goes on when
    /// nobody waits for it any more: all writes of the volumes wait for its end.
    pub async fn cut(&self, wishes: &[VolumeCut]) -> Result<Snapped, MetaError> {
        let (this, wishes) = (self.clone(), wishes.to_vec());
        finished(tokio::spawn(async move { this.run_cut(&wishes).await })).await
    }

    async fn run_cut(&self, wishes: &[VolumeCut]) -> Result<Snapped, MetaError> {
        let model = self.meta.model_of_snapshots().await?;
        for wish in wishes {
            let volume = find_volume(&model, &wish.volume)?;
            if model.snapshots.contains_key(&(volume.id, wish.snapshot.clone())) {
                let name = format!("{}@{}", wish.volume, wish.snapshot);
                return Err(MetaError::Exists { kind: Kind::Snapshot, name });
            }
        }
        let id = random_uuid();
        let outcome = self.try_cut(&id, wishes).await;
        if outcome.is_err() {
            // If that fails, too, the leader does it.
            let volumes: Vec<String> = wishes.iter().map(|wish| wish.volume.clone()).collect();
            if let Err(error) = self.meta.call_off_cut(&id, &volumes).await {
                let names = volumes.join(", ");
                tracing::warn!(volume = names, "can't call a snapshot of {names} off: {error}");
            }
        }
        outcome
    }

    async fn try_cut(&self, id: &str, wishes: &[VolumeCut]) -> Result<Snapped, MetaError> {
        let cut = self.meta.begin_cut(id, self.node, wishes).await?;
        self.stop_groups(&cut).await?;
        self.meta.finish_cut(&cut).await
    }

    /// Returns when all groups of all volumes of a cut have stopped.
    async fn stop_groups(&self, cut: &Cut) -> Result<(), MetaError> {
        let model = self.meta.model_at(cut.revision).await?;
        let revision = u64::try_from(cut.revision).unwrap_or(0);
        let mut stopping = tokio::task::JoinSet::new();
        for (_, volume) in &cut.volumes {
            let groups: Vec<PgId> =
                model.classes.get(&volume.class).map(|class| class.groups.clone()).unwrap_or_default();
            let (plane, id, head) = (Arc::clone(self.attacher.data_plane()), volume.id, volume.head);
            stopping.spawn(async move { plane.freeze(id, head, revision, groups).await });
        }
        let mut late: Vec<PgId> = Vec::new();
        let mut all = true;
        while let Some(outcome) = stopping.join_next().await {
            match outcome {
                Ok(Ok(())) => {}
                Ok(Err(groups)) => {
                    all = false;
                    late.extend(groups);
                }
                Err(_) => all = false,
            }
        }
        if all {
            return Ok(());
        }
        late.sort_unstable();
        late.dedup();
        let names: Vec<&str> = cut.volumes.iter().map(|(_, volume)| volume.name.as_str()).collect();
        Err(MetaError::NotStopped { volumes: names.join(", "), groups: late, seconds: FREEZE_WAIT.as_secs() })
    }

    /// Deletes a snapshot.
    pub async fn delete(&self, volume: &str, name: &str) -> Result<(), MetaError> {
        let model = self.meta.model_of_snapshots().await?;
        let record = find_volume(&model, volume)?;
        if self.meta.delete_snapshot(record.id, name).await? {
            return Ok(());
        }
        Err(MetaError::NotFound { kind: Kind::Snapshot, name: format!("{volume}@{name}") })
    }

    /// Takes a volume back to a snapshot, which a name or a time tells; what it was is kept as a snapshot for
    /// [`KEPT_SECONDS`]. While it is attached only by `force`, which cuts its users off.
    pub async fn revert(&self, volume: &str, wanted: &str, force: bool) -> Result<Reverted, MetaError> {
        let model = self.meta.model_of_snapshots().await?;
        let to = find_snapshot(&model, volume, wanted)?;
        self.release(volume, force, "reverted").await?;
        let now = unix_seconds();
        let wish = VolumeCut {
            expires: Some(now + KEPT_SECONDS),
            back_to: Some(to.name.clone()),
            unattached: true,
            ..VolumeCut::snapshot(volume, &name_of_now("before-revert-"), SnapshotOrigin::Revert)
        };
        let mut done = self.cut(&[wish]).await?;
        match (done.volumes.pop(), done.snapshots.pop()) {
            (Some(volume), Some(kept)) => Ok(Reverted { volume, to, kept, revision: done.revision }),
            _ => Err(MetaError::CutEnded { volume: volume.to_owned() }),
        }
    }

    /// Makes a volume smaller; what it was is kept as a snapshot for [`KEPT_SECONDS`]. What lies behind its new end is
    /// taken away first, so that it does not come back when the volume grows again.
    pub async fn shrink(
        &self,
        volume: &str,
        size_bytes: u64,
        force: bool,
    ) -> Result<(VolumeRecord, SnapshotRecord), MetaError> {
        check_size(size_bytes)?;
        self.release(volume, force, "made smaller").await?;
        let (this, volume) = (self.clone(), volume.to_owned());
        // Who has attached a volume must give it back, whether or not somebody still waits.
        finished(tokio::spawn(async move { this.shrink_alone(&volume, size_bytes).await })).await
    }

    async fn shrink_alone(&self, volume: &str, size_bytes: u64) -> Result<(VolumeRecord, SnapshotRecord), MetaError> {
        let incarnation = self.attacher.data_plane().incarnation();
        let wanting = Wanting::of_process(self.node, incarnation);
        let Had { attachment, .. } = self.attacher.attach_for_clients(volume, &wanting).await?;
        let outcome = self.cut_off(volume, attachment, size_bytes).await;
        self.attacher.give_back(volume, self.node, attachment).await?;
        outcome
    }

    async fn cut_off(
        &self,
        volume: &str,
        attachment: Generation,
        size_bytes: u64,
    ) -> Result<(VolumeRecord, SnapshotRecord), MetaError> {
        let now = unix_seconds();
        let wish = VolumeCut {
            expires: Some(now + KEPT_SECONDS),
            ..VolumeCut::snapshot(volume, &name_of_now("before-resize-"), SnapshotOrigin::Resize)
        };
        let mut done = self.cut(&[wish]).await?;
        let (Some(before), Some(kept)) = (done.volumes.pop(), done.snapshots.pop()) else {
            return Err(MetaError::CutEnded { volume: volume.to_owned() });
        };
        let mut offset = size_bytes;
        while offset < before.size_bytes {
            let len = TRIM_BYTES_MAX.min(before.size_bytes - offset);
            let trimmed = self.attacher.data_plane().trim(volume.to_owned(), attachment, offset, len).await;
            trimmed
                .map_err(|status| MetaError::NotTrimmed { volume: volume.to_owned(), reason: status.to_string() })?;
            offset += len;
        }
        Ok((self.meta.shrink_volume(volume, size_bytes).await?, kept))
    }

    /// Makes a volume from a snapshot, which a name or a time tells, or from the present (`from`: `None`). With `keys`
    /// it gets a data key of its own, which they draw.
    pub async fn clone_volume(
        &self,
        wish: &CloneWish<'_>,
        from: Option<&str>,
        keys: Option<&DataKeys>,
    ) -> Result<VolumeRecord, MetaError> {
        let CloneWish { volume, name, .. } = *wish;
        let model = self.meta.model_of_snapshots().await?;
        if model.volumes.contains_key(name) {
            return Err(MetaError::Exists { kind: Kind::Volume, name: name.to_owned() });
        }
        if let Some(from) = from {
            let from = find_snapshot(&model, volume, from)?;
            return self.clone_snapshot(wish, &from, keys).await;
        }
        if let Some(keys) = keys {
            // What is refused is refused before anything is cut.
            keys.draw_for_clone(&model, source_key(&model, model.volumes.get(volume).and_then(|of| of.key))?).await?;
        }
        let now = unix_seconds();
        let cut = VolumeCut {
            expires: Some(now + CLONE_SOURCE_SECONDS),
            ..VolumeCut::snapshot(volume, &name_of_now("clone-"), SnapshotOrigin::Clone)
        };
        let done = self.cut(&[cut]).await?;
        let Some(snapshot) = done.snapshots.first() else {
            return Err(MetaError::CutEnded { volume: volume.to_owned() });
        };
        let clone = self.clone_snapshot(wish, snapshot, keys).await;
        // The clone holds what it needs by itself; if this fails, the snapshot ends by its time.
        if let Err(error) = self.meta.delete_snapshot(snapshot.volume, &snapshot.name).await {
            tracing::warn!(volume, "snapshot {volume}@{} is left over from a clone: {error}", snapshot.name);
        }
        clone
    }

    /// Makes a volume from this snapshot.
    async fn clone_snapshot(
        &self,
        wish: &CloneWish<'_>,
        from: &SnapshotRecord,
        keys: Option<&DataKeys>,
    ) -> Result<VolumeRecord, MetaError> {
        let mut tries = 0;
        loop {
            let key = match keys {
                Some(keys) => {
                    let model = self.meta.model_of_snapshots().await?;
                    let layer = model.layers.get(&from.layer);
                    Some(keys.draw_for_clone(&model, source_key(&model, layer.and_then(|layer| layer.key))?).await?)
                }
                None => None,
            };
            let spec = CloneSpec {
                volume: wish.volume.to_owned(),
                snapshot: from.name.clone(),
                name: wish.name.to_owned(),
                size_bytes: wish.size_bytes,
                access: wish.access,
                key,
            };
            tries += 1;
            match self.meta.clone_snapshot(&spec).await {
                Err(MetaError::KeyChanged { .. }) if tries < CLONE_TRIES => {}
                done => return done,
            }
        }
    }

    /// Sets a volume's protection, or ends it.
    pub async fn protect(
        &self,
        volume: &str,
        protection: Option<&ProtectionRecord>,
    ) -> Result<VolumeRecord, MetaError> {
        protection.map(azekura_plans::retention::check).transpose()?;
        self.meta.protect_volume(volume, protection).await
    }

    /// Makes sure that nobody has a volume: by force, or else only if its users have gone already.
    async fn release(&self, volume: &str, force: bool, what: &'static str) -> Result<(), MetaError> {
        if let Some(gone) = self.attacher.gone_alone(volume).await? {
            return self.attacher.forget_gone(volume, &gone).await;
        }
        if !force {
            return Err(MetaError::InUse { volume: volume.to_owned(), what });
        }
        match self.attacher.detach(volume, None).await {
            Ok(_) | Err(MetaError::NotAttached { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
