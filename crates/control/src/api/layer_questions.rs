//! Questions about layers that nodes ask each other: `GET /v1/node/compare` and `GET /v1/node/measure`.

use axum::Json;
use axum::extract::State;
use azekura_base::{ChunkIndex, DeviceId, LayerId, NodeId, PgId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

use super::error::Params;
use super::{Api, peers};
use crate::layers::{CompareLayers, Differences, MeasureLayer, Measured, NotTold};

/// Longest wait for another node's answer: it may have to load a thousand leaves of its maps.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Groups that the data plane is asked about at once: it serves clients meanwhile.
const GROUPS_AT_ONCE: usize = 16;

/// Query of `GET /v1/node/compare`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CompareQuery {
    revision: u64,
    from: LayerId,
    to: LayerId,
    first: ChunkIndex,
    end: ChunkIndex,
    limit: u32,
    /// Numbers, separated by commas.
    #[serde(deserialize_with = "groups")]
    groups: Vec<PgId>,
}

fn groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PgId>, D::Error> {
    let all = String::deserialize(deserializer)?;
    let number = |word: &str| word.parse().map(PgId).map_err(|_| D::Error::custom(format!("{word:?} is no group")));
    all.split(',').map(number).collect()
}

/// What a node has said of one group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct GroupDifferences {
    pub(super) pg: PgId,
    pub(super) told: Result<Differences, NotTold>,
}

/// `GET /v1/node/compare`: what two layers show differently in groups of which this node has the primary.
pub(super) async fn compare(
    State(api): State<Api>,
    Params(query): Params<CompareQuery>,
) -> Json<Vec<GroupDifferences>> {
    let CompareQuery { revision, from, to, first, end, limit, groups } = query;
    let mut answers = Vec::new();
    let mut asked = JoinSet::new();
    for pg in groups {
        if asked.len() >= GROUPS_AT_ONCE {
            answers.extend(asked.join_next().await.and_then(Result::ok));
        }
        let question = CompareLayers { revision, pg, from, to, first, end, limit };
        let plane = Arc::clone(api.attacher.data_plane());
        asked.spawn(async move { GroupDifferences { pg, told: plane.compare_layers(question).await } });
    }
    while let Some(answer) = asked.join_next().await {
        answers.extend(answer.ok());
    }
    Json(answers)
}

/// Asks a node, which may be this one, about groups; an error is a sentence's end. The group in `asked` is not looked at.
pub(super) async fn ask_to_compare(
    api: &Api,
    node: NodeId,
    groups: &[PgId],
    asked: CompareLayers,
) -> Result<Vec<GroupDifferences>, String> {
    let CompareLayers { revision, from, to, first, end, limit, .. } = asked;
    if node == api.node {
        let query = CompareQuery { revision, from, to, first, end, limit, groups: groups.to_vec() };
        return Ok(compare(State(api.clone()), Params(query)).await.0);
    }
    let groups = groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let path = format!(
        "/v1/node/compare?revision={revision}&from={}&to={}&first={}&end={}&limit={limit}&groups={groups}",
        from.0, to.0, first.0, end.0
    );
    ask(api, node, &path).await
}

/// Query of `GET /v1/node/measure`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MeasureQuery {
    revision: u64,
    device: DeviceId,
    layer: LayerId,
    heir: Option<LayerId>,
    from: ChunkIndex,
    leaves_max: u32,
}

/// `GET /v1/node/measure`: a part of what the end of a layer would give back on a device of this node.
pub(super) async fn measure(
    State(api): State<Api>,
    Params(query): Params<MeasureQuery>,
) -> Json<Result<Measured, NotTold>> {
    let MeasureQuery { revision, device, layer, heir, from, leaves_max } = query;
    let asked = MeasureLayer { revision, device, layer, heir, from, leaves_max };
    Json(api.attacher.data_plane().measure_layer(asked).await)
}

/// Asks the node of a device, which may be this one; an error is a sentence's end.
pub(super) async fn ask_to_measure(
    api: &Api,
    node: NodeId,
    asked: MeasureLayer,
) -> Result<Result<Measured, NotTold>, String> {
    if node == api.node {
        return Ok(api.attacher.data_plane().measure_layer(asked).await);
    }
    let MeasureLayer { revision, device, layer, heir, from, leaves_max } = asked;
    let heir = heir.map(|heir| format!("&heir={}", heir.0)).unwrap_or_default();
    let path = format!(
        "/v1/node/measure?revision={revision}&device={}&layer={}{heir}&from={}&leaves_max={leaves_max}",
        device.0, layer.0, from.0
    );
    ask(api, node, &path).await
}

async fn ask<T: serde::de::DeserializeOwned>(api: &Api, node: NodeId, path: &str) -> Result<T, String> {
    let model = api.meta.model();
    let address = model.nodes.get(&node).map(|node| node.api_address).ok_or("it is not in the cluster")?;
    peers::get_within(address, path, ANSWER_WAIT).await
}
