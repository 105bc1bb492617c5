//! Live counters: this node's, and the whole cluster's, gathered from every node that answers.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use azekura_base::NodeId;
use azekura_meta::Model;
use serde::{Deserialize, Serialize};

use super::error::{Answer, ApiError};
use super::{Api, ResyncStatus, peers};
use crate::snapshot::NodeSnapshot;

/// One node's counters, or why they are missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStats {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its counters.
    pub snapshot: Option<NodeSnapshot>,
    /// Why they are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Every node's counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterStats {
    /// By node number, ascending.
    pub nodes: Vec<NodeStats>,
    /// Copies that are being made or brought up to date.
    #[serde(default)]
    pub resync: Option<ResyncStatus>,
}

impl ClusterStats {
    /// A node's counters, if they could be had.
    #[must_use]
    pub fn snapshot(&self, node: NodeId) -> Option<&NodeSnapshot> {
        self.nodes.iter().find(|stats| stats.node == node)?.snapshot.as_ref()
    }
}

/// `GET /v1/node/stats`.
pub(super) async fn node(State(api): State<Api>) -> Answer<NodeSnapshot> {
    own_snapshot(&api).await.map(Json).ok_or_else(|| {
        let hint = "look into the node's log; restart the node if it stays like this".to_owned();
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "this node's data plane does not answer", Some(hint))
    })
}

/// `GET /v1/stats`.
pub(super) async fn cluster(State(api): State<Api>) -> Answer<ClusterStats> {
    Ok(Json(gather(&api, &api.meta.model()).await))
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
    let answers = peers::ask_all(api.node, model, own, "/v1/node/stats").await;
    let nodes = answers.into_iter().map(|(node, outcome)| {
        let name = model.nodes.get(&node).map(|node| node.name.clone()).unwrap_or_default();
        match outcome {
            Ok(snapshot) => NodeStats { node, name, snapshot: Some(snapshot), problem: None },
            Err(problem) => NodeStats { node, name, snapshot: None, problem: Some(problem) },
        }
    });
    let mut stats = ClusterStats { nodes: nodes.collect(), resync: None };
    stats.resync = ResyncStatus::of(model, &stats);
    stats
}
