//! What a node knows of the cluster: the newest, or, while the configuration does not answer, what it knew when it last
//! did.

use std::sync::Arc;
use std::time::Duration;

use azekura_api::Stale;
use azekura_model::{EtcdError, MetaError, Model};

use super::Api;

/// Longest wait for the newest, where what was known before is good enough.
const NEWEST_WAIT: Duration = Duration::from_secs(2);

/// What has to be in an answer.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// Volumes that another node has made a moment ago.
    Volumes,
    /// Snapshots, likewise.
    Snapshots,
    /// Targets, likewise.
    Targets,
}

/// What this node knows.
pub(super) struct Known {
    pub(super) model: Arc<Model>,
    /// `None`: it is the newest.
    pub(super) stale: Option<Stale>,
}

/// The newest model, or the last one known while the configuration does not answer.
pub(super) async fn known(api: &Api, wanted: Wanted) -> Result<Known, MetaError> {
    if let Some(stale) = stale(api) {
        return Ok(Known { model: api.meta.model(), stale: Some(stale) });
    }
    let newest = async {
        match wanted {
            Wanted::Volumes => api.meta.model_of_volumes().await,
            Wanted::Snapshots => api.meta.model_of_snapshots().await,
            Wanted::Targets => api.meta.model_of_targets().await,
        }
    };
    let reason = match tokio::time::timeout(NEWEST_WAIT, newest).await {
        Ok(Ok(model)) => return Ok(Known { model, stale: None }),
        Ok(Err(MetaError::Etcd(
            error @ (EtcdError::Unreachable { .. } | EtcdError::Uncertain { .. } | EtcdError::Denied { .. }),
        ))) => error.to_string(),
        Ok(Err(error)) => return Err(error),
        Err(_) => format!("{} does not answer", api.meta.endpoints()),
    };
    // It may have been noticed meanwhile, with when it began.
    let since = stale(api).unwrap_or_else(|| Stale { seconds: NEWEST_WAIT.as_secs(), node: name(api), reason });
    Ok(Known { model: api.meta.model(), stale: Some(since) })
}

/// Whether, and for how long, the configuration is known not to answer.
pub(super) fn stale(api: &Api) -> Option<Stale> {
    let loss = api.meta.watch_link().borrow().clone()?;
    Some(Stale { seconds: loss.since.elapsed().as_secs(), node: name(api), reason: loss.reason })
}

fn name(api: &Api) -> String {
    api.meta.model().nodes.get(&api.node).map_or_else(|| api.node.to_string(), |node| node.name.clone())
}
