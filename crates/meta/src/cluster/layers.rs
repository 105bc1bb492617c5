//! Layers that end: merged into the only one on top, or dropped. Every device confirms that it has nothing of such a
//! layer any more, then the record goes.

use azekura_base::{DeviceId, LayerId};

use super::{Attempt, MetaClient, Try, encode};
use crate::client::Txn;
use crate::error::MetaError;
use crate::model::{Key, LayerEnd, LayerRecord, LayerState, Model};

impl MetaClient {
    /// Notes that a device has nothing of a deleted or merging layer any more. Nothing happens when the layer's record
    /// is gone already.
    pub async fn confirm_layer_gone(&self, layer: LayerId, device: DeviceId) -> Result<(), MetaError> {
        let confirmation = Key::LayerDropped(layer, device).to_string();
        let confirmation = &confirmation;
        self.settle("confirming that a layer is gone", |Try { deadline, .. }| async move {
            let [found] = self.get_all([&Key::Layer(layer)], deadline).await?;
            let ending = |layer: LayerRecord| matches!(layer.state, LayerState::Deleted | LayerState::Merging);
            if !found.record()?.is_some_and(ending) {
                return Ok(Attempt::Done(()));
            }
            let txn = Txn::new().when_unchanged(&found.key, found.mod_revision()).put(confirmation, b"true".to_vec());
            self.commit(txn, ()).await
        })
        .await
    }

    /// Begins the end of a hidden layer as `end` was found in `model`; nothing happens when it has changed since.
    pub async fn begin_layer_end(&self, model: &Model, layer: LayerId, end: LayerEnd) -> Result<(), MetaError> {
        let Some(record) = model.layers.get(&layer) else { return Ok(()) };
        let mut ended = record.record.clone();
        let key = Key::Layer(layer).to_string();
        let mut txn = Txn::new().when_unchanged(&key, record.mod_revision);
        match end {
            LayerEnd::Drop => ended.state = LayerState::Deleted,
            LayerEnd::MergeInto(child) => {
                let Some(above) = model.layers.get(&child) else { return Ok(()) };
                (ended.state, ended.into) = (LayerState::Merging, Some(child));
                txn = txn.when_unchanged(&Key::Layer(child).to_string(), above.mod_revision);
            }
        }
        // Whether or not it succeeds, the next round sees what is.
        self.inner.etcd.txn(txn.put(&key, encode(&ended))).await?;
        Ok(())
    }

    /// Removes the record and the confirmations of a layer that has ended everywhere; what lay on a merged one lies on
    /// its parent then.
    pub async fn remove_layer(&self, layer: LayerId) -> Result<(), MetaError> {
        let key = Key::Layer(layer).to_string();
        let key = &key;
        self.settle("removing a layer", |Try { deadline, .. }| async move {
            let [found] = self.get_all([&Key::Layer(layer)], deadline).await?;
            let Some(record) = found.record::<LayerRecord>()? else { return Ok(Attempt::Done(())) };
            let mut txn = Txn::new()
                .when_unchanged(key, found.mod_revision())
                .delete(key)
                .delete_prefix(&format!("{key}/dropped/"));
            match (record.state, record.into) {
                (LayerState::Deleted, _) => {}
                (LayerState::Merging, Some(into)) => {
                    let [above] = self.get_all([&Key::Layer(into)], deadline).await?;
                    if let Some(mut child) = above.record::<LayerRecord>()? {
                        child.parent = record.parent;
                        txn = txn.when_unchanged(&above.key, above.mod_revision()).put(&above.key, encode(&child));
                    }
                }
                _ => return Ok(Attempt::Done(())),
            }
            self.commit(txn, ()).await
        })
        .await
    }
}
