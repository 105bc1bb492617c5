//! Layers that no snapshot names any more end, and the records of those that have ended on every device go.

use azekura_meta::MetaClient;
use azekura_model::plans::layers::{LayerPlan, step};
use azekura_model::{MetaError, Model};

/// Takes the next steps.
pub(super) async fn reconcile(meta: &MetaClient, model: &Model) -> Result<(), MetaError> {
    for plan in step(model) {
        match plan {
            LayerPlan::Remove(layer) => {
                meta.remove_layer(layer).await?;
                tracing::debug!("layer {layer} is gone from every device");
            }
            LayerPlan::Begin(layer, end) => {
                tracing::debug!("layer {layer} is not needed any more: {end:?}");
                meta.begin_layer_end(model, layer, end).await?;
            }
        }
    }
    Ok(())
}
