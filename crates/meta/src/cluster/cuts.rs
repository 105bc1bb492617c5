//! Cuts: a new head layer is put into the place of a volume's, and what was its head becomes a snapshot
//! (docs/decisions/0011-snapshots.md). Beginning, finishing and calling off are one transaction each, for all volumes
//! of the cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura_base::{LayerId, NodeId};
use serde::Serialize;
use tokio::time::Instant;

use super::volumes::check_name;
use super::{Attempt, Found, MetaClient, Try, encode};
use crate::client::Txn;
use crate::error::{Kind, MetaError};
use crate::etcd::KeyValue;
use crate::model::{
    AttachmentsRecord, CutRecord, Key, LayerRecord, LayerState, Model, SnapshotOrigin, SnapshotRecord, Unknown,
    VOLUME_SNAPSHOTS_MAX, Versioned, VolumeRecord,
};
use crate::time::unix_time;

/// Most volumes that are cut at one instant: a transaction of etcd takes 128 operations.
pub const CUT_VOLUMES_MAX: usize = 24;

/// A volume to be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeCut {
    /// Its name.
    pub volume: String,
    /// Name of the snapshot that its head becomes.
    pub snapshot: String,
    /// Why it is made.
    pub origin: SnapshotOrigin,
    /// When the snapshot ends by itself, seconds since 1970.
    pub expires: Option<u64>,
    /// The snapshot that the volume goes back to, also in size; `None`: it stays what it is.
    pub back_to: Option<String>,
    /// Only while nobody has the volume attached.
    pub unattached: bool,
}

impl VolumeCut {
    /// A snapshot of the present.
    #[must_use]
    pub fn snapshot(volume: &str, snapshot: &str, origin: SnapshotOrigin) -> VolumeCut {
        VolumeCut {
            volume: volume.to_owned(),
            snapshot: snapshot.to_owned(),
            origin,
            expires: None,
            back_to: None,
            unattached: false,
        }
    }
}

/// A cut that has begun.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// Its id.
    pub id: String,
    /// What is cut, with the volumes' records as the cut has left them.
    pub volumes: Vec<(VolumeCut, VolumeRecord)>,
    /// The revision in which it began.
    pub revision: i64,
}

/// What a finished cut has made.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapped {
    /// The snapshots, in the order of the volumes.
    pub snapshots: Vec<SnapshotRecord>,
    /// The volumes.
    pub volumes: Vec<VolumeRecord>,
    /// The revision in which it was finished, or a later one.
    pub revision: i64,
}

fn missing(name: &str) -> MetaError {
    MetaError::NotFound { kind: Kind::Volume, name: name.to_owned() }
}

fn missing_snapshot(volume: &str, name: &str) -> MetaError {
    MetaError::NotFound { kind: Kind::Snapshot, name: format!("{volume}@{name}") }
}

impl MetaClient {
    /// Begins a cut: from this revision on, groups that know of it take nothing for the volumes' heads.
    pub async fn begin_cut(&self, id: &str, node: NodeId, volumes: &[VolumeCut]) -> Result<Cut, MetaError> {
        for cut in volumes {
            check_name(Kind::Snapshot, &cut.snapshot)?;
        }
        if volumes.len() > CUT_VOLUMES_MAX {
            return Err(MetaError::TooManyVolumes { count: volumes.len(), most: CUT_VOLUMES_MAX });
        }
        self.settle("beginning a snapshot", |Try { deadline, .. }| async move {
            let read = &Reader { client: self, known: None, deadline };
            let found = read.volumes(volumes).await?;
            let [layers] = self.get_all([&Key::Counter("layers")], deadline).await?;
            if found.iter().all(|(_, record)| record.cut.as_ref().is_some_and(|cut| cut.id == id)) {
                // Ours, of an attempt whose answer was lost.
                let revision = found.iter().map(|(found, _)| found.mod_revision()).max().unwrap_or(0);
                return Ok(Attempt::Done(cut_of(id, volumes, found, revision)));
            }
            if found.iter().any(|(_, record)| record.cut.is_some()) {
                // Another one will be over soon: it is finished, or called off.
                return Ok(Attempt::Conflict);
            }
            let first = layers.next_id()?;
            let (seconds, nanos) = unix_time();
            let mut txn = Txn::new().when_unchanged(&layers.key, layers.mod_revision());
            let mut begun = Vec::with_capacity(found.len());
            for (index, (cut, (found, mut record))) in volumes.iter().zip(found).enumerate() {
                self.check_room(&record)?;
                let next = LayerId(first + index as u64);
                let mut parent = record.head;
                if let Some(name) = &cut.back_to {
                    let (snapshot, layer) = read.snapshot(&record, name).await?;
                    parent = snapshot.1.layer;
                    // Whoever merges the layer has to see that it carries one more.
                    txn = txn
                        .when_unchanged(&snapshot.0.key, snapshot.0.mod_revision())
                        .when_unchanged(&layer.0.key, layer.0.mod_revision())
                        .put(&layer.0.key, encode(&layer.1));
                }
                record.cut = Some(CutRecord { id: id.to_owned(), next, node, seconds, nanos });
                let layer = LayerRecord {
                    id: next,
                    volume: record.id,
                    parent: Some(parent),
                    state: LayerState::Next,
                    into: None,
                    class: record.class.clone(),
                    unknown: Unknown::default(),
                };
                let layer_key = Key::Layer(next).to_string();
                txn = txn
                    .when_unchanged(&found.key, found.mod_revision())
                    .when_absent(&layer_key)
                    .put(&found.key, encode(&record))
                    .put(&layer_key, encode(&layer));
                begun.push((found, record));
            }
            txn = txn.put(&layers.key, encode(&(first + volumes.len() as u64)));
            let answer = self.inner.etcd.txn(txn).await?;
            if !answer.succeeded {
                return Ok(Attempt::Conflict);
            }
            let revision = answer.header.map_or(0, |header| header.revision);
            Ok(Attempt::Done(cut_of(id, volumes, begun, revision)))
        })
        .await
    }

    /// Finishes a cut whose volumes' groups have all stopped: what was to be the head is the head, and what it was is a
    /// snapshot.
    pub async fn finish_cut(&self, cut: &Cut) -> Result<Snapped, MetaError> {
        let wishes: Vec<VolumeCut> = cut.volumes.iter().map(|(wish, _)| wish.clone()).collect();
        let wishes = &wishes;
        // All writes of the volumes wait for this: the first attempt is made without asking what there is.
        let model = self.model_at(cut.revision).await?;
        let first = &AtomicBool::new(true);
        let model = &model;
        self.settle("finishing a snapshot", |Try { deadline, .. }| async move {
            let known = first.swap(false, Ordering::Relaxed).then_some(&**model);
            let read = &Reader { client: self, known, deadline };
            let keys: Vec<Key<'_>> =
                cut.volumes.iter().map(|(wish, record)| Key::Snapshot(record.id, &wish.snapshot)).collect();
            let taken = read.each(&keys).await?;
            let taken: Vec<(Found, Option<SnapshotRecord>)> = taken
                .into_iter()
                .map(|found| found.record().map(|record| (found, record)))
                .collect::<Result<_, MetaError>>()?;
            if taken.iter().all(|(_, record)| record.as_ref().is_some_and(|record| record.cut == cut.id)) {
                // Done, by an attempt of ours whose answer was lost.
                let revision = taken.iter().map(|(found, _)| found.mod_revision()).max().unwrap_or(0);
                let volumes = read.volumes(wishes).await?.into_iter().map(|(_, record)| record);
                let snapshots = taken.into_iter().filter_map(|(_, record)| record).collect();
                return Ok(Attempt::Done(Snapped { snapshots, volumes: volumes.collect(), revision }));
            }
            let mut txn = Txn::new();
            let (mut snapshots, mut volumes) = (Vec::new(), Vec::new());
            let found = read.volumes(wishes).await?;
            for ((wish, (found, mut record)), (snapshot_key, there)) in wishes.iter().zip(found).zip(taken) {
                if there.is_some() {
                    let name = format!("{}@{}", record.name, wish.snapshot);
                    return Err(MetaError::Exists { kind: Kind::Snapshot, name });
                }
                let ours = record.cut.take_if(|now| now.id == cut.id);
                let ended = || MetaError::CutEnded { volume: record.name.clone() };
                let CutRecord { next, seconds, nanos, .. } = ours.ok_or_else(ended)?;
                let keys = [Key::Attachments(record.id), Key::Layer(record.head), Key::Layer(next)];
                let [attachments, head, next_layer] = read.all(&keys).await?;
                let now: Option<AttachmentsRecord> = attachments.record()?;
                if wish.unattached {
                    if now.as_ref().is_some_and(|now| !now.attachments.is_empty()) {
                        return Err(MetaError::InUse { volume: record.name.clone(), what: "reverted" });
                    }
                    txn = txn.when_unchanged(&attachments.key, attachments.mod_revision());
                }
                let broken = |key: &str| MetaError::Broken { key: key.to_owned(), reason: "it is missing".into() };
                let mut frozen: LayerRecord = head.record()?.ok_or_else(|| broken(&head.key))?;
                let mut new_head: LayerRecord = next_layer.record()?.ok_or_else(|| broken(&next_layer.key))?;
                frozen.state = LayerState::Frozen;
                new_head.state = LayerState::Head;
                let snapshot = SnapshotRecord {
                    volume: record.id,
                    name: wish.snapshot.clone(),
                    layer: record.head,
                    size_bytes: record.size_bytes,
                    seconds,
                    nanos,
                    origin: wish.origin,
                    cut: cut.id.clone(),
                    generation: now.map(|now| now.generation).unwrap_or_default(),
                    expires: wish.expires,
                    unknown: Unknown::default(),
                };
                record.head = next;
                if let Some(name) = &wish.back_to {
                    let (target, _) = read.snapshot(&record, name).await?;
                    record.size_bytes = target.1.size_bytes;
                    txn = txn.when_unchanged(&target.0.key, target.0.mod_revision());
                }
                txn = txn
                    .when_unchanged(&found.key, found.mod_revision())
                    .when_unchanged(&head.key, head.mod_revision())
                    .when_unchanged(&next_layer.key, next_layer.mod_revision())
                    .when_absent(&snapshot_key.key)
                    .put(&found.key, encode(&record))
                    .put(&head.key, encode(&frozen))
                    .put(&next_layer.key, encode(&new_head))
                    .put(&snapshot_key.key, encode(&snapshot));
                snapshots.push(snapshot);
                volumes.push(record);
            }
            let answer = self.inner.etcd.txn(note_snapshots(txn)).await?;
            if !answer.succeeded {
                return Ok(Attempt::Conflict);
            }
            let revision = answer.header.map_or(0, |header| header.revision);
            Ok(Attempt::Done(Snapped { snapshots, volumes, revision }))
        })
        .await
    }

    /// Calls a cut off: the volumes' heads stay. Nothing happens where it is over already.
    pub async fn call_off_cut(&self, id: &str, volumes: &[String]) -> Result<(), MetaError> {
        self.settle("calling a snapshot off", |Try { deadline, .. }| async move {
            let keys: Vec<Key<'_>> = volumes.iter().map(|name| Key::Volume(name)).collect();
            let mut txn = Txn::new();
            let mut under_way = false;
            for found in self.get_each(&keys, deadline).await? {
                let Some(mut record) = found.record::<VolumeRecord>()? else { continue };
                let Some(cut) = record.cut.take_if(|cut| cut.id == id) else { continue };
                under_way = true;
                txn = txn
                    .when_unchanged(&found.key, found.mod_revision())
                    .put(&found.key, encode(&record))
                    .delete(&Key::Layer(cut.next).to_string());
            }
            if !under_way {
                return Ok(Attempt::Done(()));
            }
            self.commit(txn, ()).await
        })
        .await
    }

    fn check_room(&self, volume: &VolumeRecord) -> Result<(), MetaError> {
        let count = self.model().snapshots_of(volume.id).count();
        if count < VOLUME_SNAPSHOTS_MAX {
            return Ok(());
        }
        Err(MetaError::TooManySnapshots { volume: volume.name.clone(), count })
    }
}

/// Reads records: from the server, or from a model of which is known that it has all of them as they are needed.
pub(super) struct Reader<'a> {
    pub(super) client: &'a MetaClient,
    pub(super) known: Option<&'a Model>,
    pub(super) deadline: Instant,
}

impl Reader<'_> {
    async fn each(&self, keys: &[Key<'_>]) -> Result<Vec<Found>, MetaError> {
        match self.known {
            Some(model) => Ok(keys.iter().map(|key| known(model, key)).collect()),
            None => self.client.get_each(keys, self.deadline).await,
        }
    }

    async fn all<const N: usize>(&self, keys: &[Key<'_>; N]) -> Result<[Found; N], MetaError> {
        let found = self.each(keys).await?;
        Ok(found.try_into().expect("each key has its answer"))
    }

    async fn volumes(&self, cuts: &[VolumeCut]) -> Result<Vec<(Found, VolumeRecord)>, MetaError> {
        let keys: Vec<Key<'_>> = cuts.iter().map(|cut| Key::Volume(&cut.volume)).collect();
        let record = |(found, cut): (Found, &VolumeCut)| {
            let record = found.record()?.ok_or_else(|| missing(&cut.volume))?;
            Ok((found, record))
        };
        self.each(&keys).await?.into_iter().zip(cuts).map(record).collect()
    }

    /// A snapshot of a volume, with its layer.
    pub(super) async fn snapshot(
        &self,
        volume: &VolumeRecord,
        name: &str,
    ) -> Result<((Found, SnapshotRecord), (Found, LayerRecord)), MetaError> {
        let not_found = || missing_snapshot(&volume.name, name);
        let [found] = self.all(&[Key::Snapshot(volume.id, name)]).await?;
        let snapshot: SnapshotRecord = found.record()?.ok_or_else(not_found)?;
        let [layer] = self.all(&[Key::Layer(snapshot.layer)]).await?;
        let record = layer.record()?.ok_or_else(not_found)?;
        Ok(((found, snapshot), (layer, record)))
    }
}

/// A record as a model has it.
fn known(model: &Model, key: &Key<'_>) -> Found {
    fn kv<T: Serialize>(record: Option<&Arc<Versioned<T>>>) -> Option<KeyValue> {
        let record = record?;
        let mod_revision = record.mod_revision;
        Some(KeyValue { value: encode(&record.record), mod_revision, ..KeyValue::default() })
    }
    let kv = match key {
        Key::Volume(name) => kv(model.volumes.get(*name)),
        Key::Layer(id) => kv(model.layers.get(id)),
        Key::Attachments(id) => kv(model.attachments.get(id)),
        Key::Snapshot(volume, name) => kv(model.snapshots.get(&(*volume, (*name).to_owned()))),
        // Not asked for; taken for absent, a transaction that relies on it fails, and the server is asked.
        _ => None,
    };
    Found { key: key.to_string(), kv }
}

fn cut_of(id: &str, wishes: &[VolumeCut], found: Vec<(Found, VolumeRecord)>, revision: i64) -> Cut {
    let records = found.into_iter().map(|(_, record)| record);
    Cut { id: id.to_owned(), volumes: wishes.iter().cloned().zip(records).collect(), revision }
}

/// Every change of snapshots moves this counter: a model that has seen its last change knows all snapshots.
pub(super) fn note_snapshots(txn: Txn) -> Txn {
    txn.put(&Key::Counter("snapshots").to_string(), encode(&1))
}
