//! What was removed is taken out of the groups, then its records go.

use azekura_meta::MetaClient;
use azekura_model::{MetaError, Model, RemovalStep};

/// Takes the next steps.
pub(super) async fn reconcile(meta: &MetaClient, model: &Model) -> Result<(), MetaError> {
    for step in model.removal_steps() {
        meta.take_removal_step(model, &step).await?;
        match step {
            RemovalStep::Node(node) => tracing::info!("node {node} is removed"),
            RemovalStep::Device(device) => tracing::info!("device {device} is removed"),
            RemovalStep::Group(..) => {}
        }
    }
    Ok(())
}
