//! What this node knows of the cluster: the configuration, and what others have said that is ahead of it.

use crate::fences::Fences;
use crate::heads::Heads;
use crate::layers::Layers;
use crate::view::ClusterView;
use std::sync::Arc;

/// The configuration as it is known here, and what of attachments, heads and layers is known beyond it.
#[derive(Default)]
pub(crate) struct Directory {
    /// The configuration, which all shards of a process have together.
    pub(crate) view: Arc<ClusterView>,
    /// It has not changed up to this revision.
    pub(crate) revision: u64,
    pub(crate) fences: Fences,
    pub(crate) heads: Heads,
    pub(crate) layers: Layers,
}
