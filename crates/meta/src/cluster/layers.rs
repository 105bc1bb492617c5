//! Layers that end: merged into the only one on top, or dropped.

use azekura_base::{DeviceId, LayerId};
use azekura_model::transitions::layers::{begin_layer_end, confirm_layer_gone, remove_layer};
use azekura_model::{LayerEnd, MetaError, Model};

use super::MetaClient;

impl MetaClient {
    /// Notes that a device has nothing of a deleted or merging layer any more. Nothing happens when the layer's record
    /// is gone already.
    pub async fn confirm_layer_gone(&self, layer: LayerId, device: DeviceId) -> Result<(), MetaError> {
        self.run("confirming that a layer is gone", |records| confirm_layer_gone(records, layer, device)).await?;
        Ok(())
    }

    /// Begins the end of a hidden layer as `end` was found in `model`; nothing happens when it has changed since.
    pub async fn begin_layer_end(&self, model: &Model, layer: LayerId, end: LayerEnd) -> Result<(), MetaError> {
        if let Some(txn) = begin_layer_end(model, layer, end) {
            // Whether or not it succeeds, the next round sees what is.
            self.inner.etcd.txn(txn.into()).await?;
        }
        Ok(())
    }

    /// Removes the record and the confirmations of a layer that has ended everywhere; what lay on a merged one lies on
    /// its parent then.
    pub async fn remove_layer(&self, layer: LayerId) -> Result<(), MetaError> {
        self.run("removing a layer", |records| remove_layer(records, layer)).await?;
        Ok(())
    }
}
