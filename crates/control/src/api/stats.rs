//! Live counters: this node's, and the whole cluster's, gathered from every node that answers.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use azekura_base::NodeId;
use azekura_meta::Model;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::error::{Answer, ApiError};
use super::{Api, ResyncStatus, peers};
use crate::snapshot::NodeSnapshot;

/// Nodes asked at once.
const PEERS_AT_ONCE: usize = 64;

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
    let mut nodes = Vec::with_capacity(model.nodes.len());
    let mut asked = JoinSet::new();
    for node in model.nodes.values() {
        let (id, name, address) = (node.id, node.name.clone(), node.api_address);
        let api = api.clone();
        let is_alive = model.alive.contains_key(&id);
        if asked.len() >= PEERS_AT_ONCE {
            nodes.extend(asked.join_next().await.and_then(Result::ok));
        }
        asked.spawn(async move {
            let outcome = if id == api.node {
                own_snapshot(&api).await.ok_or_else(|| "its data plane does not answer".to_owned())
            } else if is_alive {
                peers::get(address, "/v1/node/stats").await
            } else {
                Err("it gives no sign of life".to_owned())
            };
            match outcome {
                Ok(snapshot) => NodeStats { node: id, name, snapshot: Some(snapshot), problem: None },
                Err(problem) => NodeStats { node: id, name, snapshot: None, problem: Some(problem) },
            }
        });
    }
    while let Some(outcome) = asked.join_next().await {
        nodes.extend(outcome.ok());
    }
    nodes.sort_by_key(|stats| stats.node);
    let mut stats = ClusterStats { nodes, resync: None };
    stats.resync = ResyncStatus::of(model, &stats);
    stats
}
