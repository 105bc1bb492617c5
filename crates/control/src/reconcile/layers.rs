//! Layers that no snapshot names any more end: merged into the only one on top, or dropped when nothing lies on them;
//! and the records of those that have ended on every device go.

use azekura_meta::{MetaClient, MetaError, Model};

/// Ends begun in one round: each takes two or three writes to the configuration.
const ENDS_AT_ONCE_MAX: usize = 64;

/// Takes the next steps.
pub(super) async fn reconcile(meta: &MetaClient, model: &Model) -> Result<(), MetaError> {
    if model.cluster.as_ref().is_some_and(|cluster| cluster.restored.is_some()) {
        return Ok(()); // Devices may hold layers that lie on these and that the configuration does not know yet.
    }
    for layer in model.ended_layers() {
        meta.remove_layer(layer).await?;
        tracing::debug!("layer {layer} is gone from every device");
    }
    for (layer, end) in model.layers_to_end().into_iter().take(ENDS_AT_ONCE_MAX) {
        tracing::debug!("layer {layer} is not needed any more: {end:?}");
        meta.begin_layer_end(model, layer, end).await?;
    }
    Ok(())
}
