//! Snapshots after they were made: deleted, cloned, kept by a schedule.

use std::sync::Arc;

use azekura_base::VolumeId;
use azekura_model::transitions::snapshots::{CloneSpec, clone_snapshot, delete_snapshot, protect_volume};
use azekura_model::{Key, MetaError, Model, ProtectionRecord, VolumeRecord};
use tokio::time::Instant;

use super::{MetaClient, OPERATION_TIMEOUT, random_uuid};
use crate::time::now_rfc3339;

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
        Ok(self.run("deleting the snapshot", |records| delete_snapshot(records, volume, name)).await?.0)
    }

    /// Makes a volume whose blocks are a snapshot's until it is written.
    pub async fn clone_snapshot(&self, spec: &CloneSpec) -> Result<VolumeRecord, MetaError> {
        let (uuid, created) = (random_uuid(), now_rfc3339());
        let _one_at_a_time = self.inner.creating.lock().await;
        Ok(self.run("cloning the snapshot", |records| clone_snapshot(records, spec, &uuid, &created)).await?.0)
    }

    /// Sets how a volume's snapshots come and go by themselves; `None`: none come any more, and those that are there
    /// stay.
    pub async fn protect_volume(
        &self,
        name: &str,
        protection: Option<&ProtectionRecord>,
    ) -> Result<VolumeRecord, MetaError> {
        Ok(self.run("protecting the volume", |records| protect_volume(records, name, protection)).await?.0)
    }
}
