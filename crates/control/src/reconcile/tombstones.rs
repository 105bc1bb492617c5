//! Records of deleted layers go when every device has dropped its part.

use azekura_meta::{MetaClient, MetaError, Model};

/// Removes the records that nothing waits for any more.
pub(super) async fn reconcile(meta: &MetaClient, model: &Model) -> Result<(), MetaError> {
    for layer in model.dropped_layers() {
        meta.remove_layer(layer).await?;
        tracing::info!("layer {layer} is gone from every device");
    }
    Ok(())
}
