//! Where the control plane gets what its node says about itself.

use std::pin::Pin;

use azekura_api::{LayerUse, NodeSnapshot};

/// Where a node's counters come from.
pub trait NodeStatistics: Send + Sync + 'static {
    /// The node's counters now; `None` when its data plane does not answer.
    fn snapshot(&self) -> Pin<Box<dyn Future<Output = Option<NodeSnapshot>> + Send + '_>>;

    /// Up to which revision of the configuration the node's data plane has been told; 0: of nothing yet.
    fn configured(&self) -> u64;

    /// What layers hold on the node's devices now; `None` when its data plane does not answer.
    fn layers(&self) -> Pin<Box<dyn Future<Output = Option<LayerUse>> + Send + '_>>;
}
