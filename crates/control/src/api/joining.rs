//! Machines that become nodes, with a join token.

use std::num::NonZeroU8;

use azekura_api::endpoint::NodeJoin;
use azekura_api::{ErrorCode, JoinCluster, JoinedView};
use azekura_meta::cluster::NodeSpec;

use super::call::{Answer, Call};
use super::caller::unauthorized;
use super::error::ApiError;

pub(super) async fn join(Call { api, body, caller, .. }: Call<NodeJoin>) -> Answer<NodeJoin> {
    let grant = caller.and_then(|caller| caller.grant).ok_or_else(unauthorized)?;
    let JoinCluster { name, uuid, key, data_address, api_address, site, rack, cluster: wanted } = body;
    let cluster = api.meta.model().cluster.as_ref().map(|cluster| cluster.id.clone()).unwrap_or_default();
    if let Some(wanted) = wanted.filter(|wanted| *wanted != cluster) {
        let message =
            format!("the token is for cluster {cluster}, and the machine's configuration has cluster {wanted}");
        let hint = "give the node the configuration of this cluster (--config)".to_owned();
        return Err(ApiError::new(ErrorCode::Conflict, message, Some(hint)));
    }
    let (endpoints, incarnation, shards) = (Vec::new(), 0, NonZeroU8::MIN);
    let api_tls = true;
    let spec =
        NodeSpec { uuid, name, data_address, api_address, endpoints, site, rack, incarnation, shards, key, api_tls };
    let node = api.meta.join(grant, &spec).await?.id;
    Ok(JoinedView { cluster, node }.into())
}
