//! Live counters: this node's, and the whole cluster's, gathered from every node that answers.

use azekura_api::endpoint::{NodeStatistics, Stats};
use azekura_api::{ClusterStats, NodeSnapshot, NodeStats};
use azekura_model::Model;

use super::call::{Answer, Call};
use super::error::ApiError;
use super::{Api, peers, resync};

pub(super) async fn node(Call { api, .. }: Call<NodeStatistics>) -> Answer<NodeStatistics> {
    Ok(own(&api).await?.into())
}

pub(super) async fn cluster(Call { api, .. }: Call<Stats>) -> Answer<Stats> {
    Ok(gather(&api, &api.meta.model()).await.into())
}

/// This node's counters.
pub(super) async fn own(api: &Api) -> Result<NodeSnapshot, ApiError> {
    let hint = "look into the node's log; restart the node if it stays like this";
    own_snapshot(api).await.ok_or_else(|| ApiError::silent(hint))
}

async fn own_snapshot(api: &Api) -> Option<NodeSnapshot> {
    let mut snapshot = api.statistics.snapshot().await?;
    snapshot.node = api.node.0;
    if let Some(node) = api.meta.model().nodes.get(&api.node) {
        snapshot.name = node.name.clone();
    }
    Some(snapshot)
}

/// Asks every node that gives signs of life.
pub(super) async fn gather(api: &Api, model: &Model) -> ClusterStats {
    let own = {
        let api = api.clone();
        async move { own_snapshot(&api).await }
    };
    let answers = peers::ask_all::<NodeStatistics>(api.node, &api.https, model, own).await;
    let nodes = answers.into_iter().map(|(node, outcome)| {
        let name = model.nodes.get(&node).map(|node| node.name.clone()).unwrap_or_default();
        match outcome {
            Ok(snapshot) => NodeStats { node, name, snapshot: Some(snapshot), problem: None },
            Err(problem) => NodeStats { node, name, snapshot: None, problem: Some(problem) },
        }
    });
    let mut stats = ClusterStats { nodes: nodes.collect(), resync: None };
    stats.resync = resync::status(model, &stats);
    stats
}
