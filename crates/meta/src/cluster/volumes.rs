//! Volumes: made, grown and deleted.

use std::sync::Arc;

use azekura_base::IoLimits;
use azekura_model::transitions::volumes::{
    VolumeDeletion, VolumeSpec, create_volume, delete_volume, limit_volume, resize_volume,
};
use azekura_model::{Key, Kind, MetaError, Model, VolumeRecord};
use tokio::time::Instant;

use super::{MetaClient, OPERATION_TIMEOUT, random_uuid};
use crate::time::now_rfc3339;

impl MetaClient {
    /// Makes a volume with an empty head layer.
    pub async fn create_volume(&self, spec: &VolumeSpec) -> Result<VolumeRecord, MetaError> {
        let (uuid, created) = (random_uuid(), now_rfc3339());
        let _one_at_a_time = self.inner.creating.lock().await;
        Ok(self.run("creating the volume", |records| create_volume(records, spec, &uuid, &created)).await?.0)
    }

    /// A model that holds every change of volumes made before this call, by whatever node.
    pub async fn model_of_volumes(&self) -> Result<Arc<Model>, MetaError> {
        let [volumes] = self.get_all([&Key::Counter("volumes")], Instant::now() + OPERATION_TIMEOUT).await?;
        self.model_at(volumes.mod_revision()).await
    }

    /// Deletes a volume. Its layer stays as "deleted" until every device has dropped it, and its snapshots until the
    /// leader has deleted them.
    pub async fn delete_volume(&self, name: &str, deletion: &VolumeDeletion) -> Result<(), MetaError> {
        let [volume] = self.get_all([&Key::Volume(name)], Instant::now() + OPERATION_TIMEOUT).await?;
        let not_found = || MetaError::NotFound { kind: Kind::Volume, name: name.to_owned() };
        let wanted = volume.record::<VolumeRecord>()?.ok_or_else(not_found)?.id;
        self.run("deleting the volume", |records| delete_volume(records, name, wanted, deletion)).await?;
        Ok(())
    }

    /// Grows a volume. The same size again is fine; a smaller one is refused.
    pub async fn resize_volume(&self, name: &str, size_bytes: u64) -> Result<VolumeRecord, MetaError> {
        self.set_size(name, size_bytes, false).await
    }

    /// Makes a volume smaller that has nothing behind its new end.
    pub async fn shrink_volume(&self, name: &str, size_bytes: u64) -> Result<VolumeRecord, MetaError> {
        self.set_size(name, size_bytes, true).await
    }

    /// Sets what a volume's clients may ask for in a second; `None`: whatever they like.
    pub async fn limit_volume(&self, name: &str, limits: Option<&IoLimits>) -> Result<VolumeRecord, MetaError> {
        Ok(self.run("limiting the volume", |records| limit_volume(records, name, limits)).await?.0)
    }

    async fn set_size(&self, name: &str, size_bytes: u64, may_shrink: bool) -> Result<VolumeRecord, MetaError> {
        let _one_at_a_time = self.inner.creating.lock().await;
        Ok(self.run("resizing the volume", |records| resize_volume(records, name, size_bytes, may_shrink)).await?.0)
    }
}
