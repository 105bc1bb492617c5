//! Questions about layers that nodes ask each other.

use std::sync::Arc;
use std::time::Duration;

use azekura_api::Endpoint;
use azekura_api::endpoint::{NodeCompare, NodeMeasure};
use azekura_api::layers::{CompareQuery, GroupDifferences, Measured, NotTold};
use azekura_base::{NodeId, PgId};
use tokio::task::JoinSet;

use super::call::{Answer, Call};
use super::{Api, peers};
use crate::layers::{CompareLayers, MeasureLayer};

/// Longest wait for another node's answer: it may have to load a thousand leaves of its maps.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Groups that the data plane is asked about at once: it serves clients meanwhile.
const GROUPS_AT_ONCE: usize = 16;

pub(super) async fn compare(Call { api, query, .. }: Call<NodeCompare>) -> Answer<NodeCompare> {
    Ok(compare_here(&api, query).await.into())
}

/// What two layers show differently in groups of which this node has the primary.
async fn compare_here(api: &Api, query: CompareQuery) -> Vec<GroupDifferences> {
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
    answers
}

/// Asks a node, which may be this one, about groups; an error is a sentence's end. The group in `asked` is not looked
/// at.
pub(super) async fn ask_to_compare(
    api: &Api,
    node: NodeId,
    groups: &[PgId],
    asked: CompareLayers,
) -> Result<Vec<GroupDifferences>, String> {
    let CompareLayers { revision, from, to, first, end, limit, .. } = asked;
    let query = CompareQuery { revision, from, to, first, end, limit, groups: groups.to_vec() };
    if node == api.node {
        return Ok(compare_here(api, query).await);
    }
    ask::<NodeCompare>(api, node, &query).await
}

pub(super) async fn measure(Call { api, query, .. }: Call<NodeMeasure>) -> Answer<NodeMeasure> {
    Ok(api.attacher.data_plane().measure_layer(query).await.into())
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
    ask::<NodeMeasure>(api, node, &asked).await
}

async fn ask<E: Endpoint<Names = [String; 0]>>(api: &Api, node: NodeId, query: &E::Query) -> Result<E::Answer, String> {
    let model = api.meta.model();
    let peer = peers::Peer::of(model.nodes.get(&node).ok_or("it is not in the cluster")?)?;
    peers::get_within::<E>(&peer, &api.https, query, ANSWER_WAIT).await
}
