//! Deleted layers: every device confirms that it dropped its part, then the record goes.

use azekura_base::{DeviceId, LayerId};

use super::{Attempt, MetaClient, Try};
use crate::client::Txn;
use crate::error::MetaError;
use crate::model::{DeviceState, Key, LayerRecord, LayerState, Model};

impl MetaClient {
    /// Notes that a device has dropped a deleted layer. Nothing happens when the layer's record is gone already.
    pub async fn confirm_layer_dropped(&self, layer: LayerId, device: DeviceId) -> Result<(), MetaError> {
        let confirmation = Key::LayerDropped(layer, device).to_string();
        let confirmation = &confirmation;
        self.settle("confirming a dropped layer", |Try { deadline, .. }| async move {
            let [found] = self.get_all([&Key::Layer(layer)], deadline).await?;
            if !found.record::<LayerRecord>()?.is_some_and(|layer| layer.state == LayerState::Deleted) {
                return Ok(Attempt::Done(()));
            }
            let txn = Txn::new().when_unchanged(&found.key, found.mod_revision()).put(confirmation, b"true".to_vec());
            self.commit(txn, ()).await
        })
        .await
    }

    /// Removes a deleted layer's record and confirmations.
    pub async fn remove_layer(&self, layer: LayerId) -> Result<(), MetaError> {
        let key = Key::Layer(layer).to_string();
        let key = &key;
        self.settle("removing a deleted layer", |Try { deadline, .. }| async move {
            let [found] = self.get_all([&Key::Layer(layer)], deadline).await?;
            match found.record::<LayerRecord>()? {
                Some(record) if record.state == LayerState::Deleted => {
                    let txn = Txn::new()
                        .when_unchanged(key, found.mod_revision())
                        .delete(key)
                        .delete_prefix(&format!("{key}/dropped/"));
                    self.commit(txn, ()).await
                }
                _ => Ok(Attempt::Done(())),
            }
        })
        .await
    }
}

impl Model {
    /// Deleted layers that every device which may hold a part of them has dropped.
    #[must_use]
    pub fn dropped_layers(&self) -> Vec<LayerId> {
        let holders: Vec<DeviceId> =
            self.devices.values().filter(|device| device.state != DeviceState::Down).map(|device| device.id).collect();
        let gone = |layer: LayerId| holders.iter().all(|device| self.dropped.contains(&(layer, *device)));
        self.layers
            .values()
            .filter(|layer| layer.state == LayerState::Deleted && gone(layer.id))
            .map(|layer| layer.id)
            .collect()
    }
}
