//! Snapshots after they were made: deleted, cloned, kept by a schedule.

use std::sync::Arc;

use azekura_base::{LayerId, VolumeId};
use tokio::time::Instant;

use super::cuts::{Reader, note_snapshots};
use super::volumes::{check_name, check_overcommit};
use super::{Attempt, MetaClient, OPERATION_TIMEOUT, Try, encode, random_uuid};
use crate::client::Txn;
use crate::error::{Kind, MetaError};
use crate::model::{
    Key, LayerRecord, LayerState, Model, ProtectionRecord, SnapshotRecord, Unknown, VolumeAccess, VolumeRecord,
};
use crate::time::now_rfc3339;

/// A volume to make from a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneSpec {
    /// The snapshot's volume.
    pub volume: String,
    /// The snapshot.
    pub snapshot: String,
    /// The clone's name.
    pub name: String,
    /// Its size, bytes; at least the snapshot's. `None`: the same.
    pub size_bytes: Option<u64>,
    /// How many may use it at once; `None`: as many as the source.
    pub access: Option<VolumeAccess>,
}

impl MetaClient {
    /// A model that holds every change of volumes and snapshots made before this call, by whatever node.
    pub async fn model_of_snapshots(&self) -> Result<Arc<Model>, MetaError> {
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        let keys = [&Key::Counter("volumes"), &Key::Counter("snapshots")];
        let [volumes, snapshots] = self.get_all(keys, deadline).await?;
        self.model_at(volumes.mod_revision().max(snapshots.mod_revision())).await
    }

    /// Deletes a snapshot. What only it held is given back in the background. Nothing happens when it is gone already;
    /// false then.
    pub async fn delete_snapshot(&self, volume: VolumeId, name: &str) -> Result<bool, MetaError> {
        let key = &Key::Snapshot(volume, name);
        self.settle("deleting the snapshot", |Try { deadline, uncertain }| async move {
            let [found] = self.get_all([key], deadline).await?;
            let Some(snapshot) = found.record::<SnapshotRecord>()? else { return Ok(Attempt::Done(uncertain)) };
            let [layer] = self.get_all([&Key::Layer(snapshot.layer)], deadline).await?;
            let mut txn = Txn::new().when_unchanged(&found.key, found.mod_revision()).delete(&found.key);
            if let Some(mut record) = layer.record::<LayerRecord>()? {
                record.state = LayerState::Hidden;
                txn = txn.when_unchanged(&layer.key, layer.mod_revision()).put(&layer.key, encode(&record));
            }
            self.commit(note_snapshots(txn), true).await
        })
        .await
    }

    /// Makes a volume whose blocks are a snapshot's until it is written.
    pub async fn clone_snapshot(&self, spec: &CloneSpec) -> Result<VolumeRecord, MetaError> {
        check_name(Kind::Volume, &spec.name)?;
        let (uuid, created) = (random_uuid(), now_rfc3339());
        let keys =
            [Key::Volume(&spec.name), Key::Volume(&spec.volume), Key::Counter("volumes"), Key::Counter("layers")];
        let _one_at_a_time = self.inner.creating.lock().await;
        let (keys, uuid, created) = (&keys, &uuid, &created);
        self.settle("cloning the snapshot", |Try { deadline, .. }| async move {
            let [made, source, volumes, layers] = self.get_all(keys.each_ref(), deadline).await?;
            match made.record::<VolumeRecord>()? {
                // Ours, of an attempt whose answer was lost.
                Some(existing) if existing.uuid == *uuid => return Ok(Attempt::Done(existing)),
                Some(_) => return Err(MetaError::Exists { kind: Kind::Volume, name: spec.name.clone() }),
                None => {}
            }
            let not_found = || MetaError::NotFound { kind: Kind::Volume, name: spec.volume.clone() };
            let from: VolumeRecord = source.record()?.ok_or_else(not_found)?;
            let read = Reader { client: self, known: None, deadline };
            let (snapshot, below) = read.snapshot(&from, &spec.snapshot).await?;
            let size_bytes = spec.size_bytes.unwrap_or(snapshot.1.size_bytes);
            if size_bytes < snapshot.1.size_bytes {
                let (name, from_bytes) = (format!("{}@{}", from.name, spec.snapshot), snapshot.1.size_bytes);
                return Err(MetaError::ShrinkRefused { name, from_bytes, to_bytes: size_bytes });
            }
            super::volumes::check_size(size_bytes)?;
            let model = self.model_at(volumes.mod_revision()).await?;
            let no_class = || MetaError::NotFound { kind: Kind::Class, name: from.class.clone() };
            check_overcommit(&model, model.classes.get(&from.class).ok_or_else(no_class)?, size_bytes)?;
            let (id, layer) = (volumes.next_id()?, LayerId(layers.next_id()?));
            let record = VolumeRecord {
                id: VolumeId(id),
                uuid: uuid.clone(),
                name: spec.name.clone(),
                size_bytes,
                class: from.class.clone(),
                head: layer,
                // Its chunks lie in the groups that have the source's.
                group_offset: from.group_offset,
                access: spec.access.unwrap_or(from.access),
                created: created.clone(),
                cut: None,
                protection: None,
                source: Some(format!("{}@{}", from.name, spec.snapshot)),
                unknown: Unknown::default(),
            };
            let head = LayerRecord {
                id: layer,
                volume: record.id,
                parent: Some(snapshot.1.layer),
                state: LayerState::Head,
                into: None,
                class: from.class.clone(),
                unknown: Unknown::default(),
            };
            let head_key = Key::Layer(layer).to_string();
            let txn = Txn::new()
                .when_absent(&made.key)
                .when_absent(&head_key)
                .when_unchanged(&snapshot.0.key, snapshot.0.mod_revision())
                .when_unchanged(&below.0.key, below.0.mod_revision())
                .when_unchanged(&volumes.key, volumes.mod_revision())
                .when_unchanged(&layers.key, layers.mod_revision())
                .put(&made.key, encode(&record))
                .put(&head_key, encode(&head))
                // Whoever merges the layer below has to see that it carries one more.
                .put(&below.0.key, encode(&below.1))
                .put(&volumes.key, encode(&(id + 1)))
                .put(&layers.key, encode(&(layer.0 + 1)));
            self.commit(txn, record).await
        })
        .await
    }

    /// Sets how a volume's snapshots come and go by themselves; `None`: none come any more, and those that are there
    /// stay.
    pub async fn protect_volume(
        &self,
        name: &str,
        protection: Option<&ProtectionRecord>,
    ) -> Result<VolumeRecord, MetaError> {
        let keys = &[Key::Volume(name), Key::Counter("volumes")];
        self.settle("protecting the volume", |Try { deadline, .. }| async move {
            let [volume, volumes] = self.get_all(keys.each_ref(), deadline).await?;
            let not_found = || MetaError::NotFound { kind: Kind::Volume, name: name.to_owned() };
            let mut record: VolumeRecord = volume.record()?.ok_or_else(not_found)?;
            if record.protection.as_ref() == protection {
                return Ok(Attempt::Done(record));
            }
            record.protection = protection.cloned();
            let txn = Txn::new()
                .when_unchanged(&volume.key, volume.mod_revision())
                .when_unchanged(&volumes.key, volumes.mod_revision())
                .put(&volume.key, encode(&record))
                .put(&volumes.key, encode(&volumes.next_id()?));
            self.commit(txn, record).await
        })
        .await
    }
}
