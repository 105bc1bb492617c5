//! Layers that end: devices confirm that they have nothing of them any more.

use azekura_base::{DeviceId, LayerId};
use azekura_model::MetaError;
use azekura_model::transitions::layers::confirm_layer_gone;

use super::MetaClient;

impl MetaClient {
    /// Notes that a device has nothing of a deleted or merging layer any more. Nothing happens when the layer's record
    /// is gone already.
    pub async fn confirm_layer_gone(&self, layer: LayerId, device: DeviceId) -> Result<(), MetaError> {
        self.run("confirming that a layer is gone", |records| confirm_layer_gone(records, layer, device)).await?;
        Ok(())
    }
}
