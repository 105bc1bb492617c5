//! Sockets for volumes, at the nodes on whose machines they are to be.

use std::time::Duration;

use azekura_api::endpoint::{NodeExpose, VolumeExpose, VolumeUnexpose};
use azekura_api::{ErrorCode, ExposeHere, ExposeVolume, Exposed};
use azekura_base::NodeId;
use azekura_model::{Kind, MetaError, Model};

use super::call::{Answer, Call};
use super::error::ApiError;
use super::peers::{self, Peer};
use super::{Api, views};
use crate::attachments::{node_name, node_of};

/// How long another node may take.
const PEER_WAIT: Duration = Duration::from_secs(5);

pub(super) async fn expose(Call { api, names: [name], body, .. }: Call<VolumeExpose>) -> Answer<VolumeExpose> {
    shown(&api, name, body, false).await
}

pub(super) async fn unexpose(Call { api, names: [name], body, .. }: Call<VolumeUnexpose>) -> Answer<VolumeUnexpose> {
    shown(&api, name, body, true).await
}

/// Another node has been asked, and asks this one.
pub(super) async fn node(Call { api, body, .. }: Call<NodeExpose>) -> Answer<NodeExpose> {
    // The volume may have been made through the other node a moment ago.
    api.meta.model_of_volumes().await?;
    Ok(Exposed { refused: here(&api, body).await.err() }.into())
}

/// Does it at the node that is meant, and shows the volume then.
async fn shown(api: &Api, name: String, body: ExposeVolume, ends: bool) -> Answer<VolumeExpose> {
    let ExposeVolume { node, vhost } = body;
    let model = api.meta.model_of_volumes().await?;
    if !model.volumes.contains_key(&name) {
        return Err(MetaError::NotFound { kind: Kind::Volume, name }.into());
    }
    let node = node.map_or(Ok(api.node), |node| node_of(&model, &node))?;
    let asked = ExposeHere { volume: name.clone(), vhost, ends };
    let outcome = if node == api.node {
        here(api, asked).await.map_err(Why::Refused)
    } else {
        at(api, &model, node, asked).await
    };
    outcome.map_err(|why| {
        let doing = if ends { "is not taken from" } else { "is not served at" };
        let (code, why) = match why {
            Why::Refused(why) => (ErrorCode::Refused, why),
            Why::Away(why) => (ErrorCode::Unavailable, why),
        };
        ApiError::new(
            code,
            format!("volume '{name}' {doing} that socket of node {}: {why}", node_name(&model, node)),
            None,
        )
    })?;
    api.meta.record_deed().await?;
    let model = api.meta.model_of_volumes().await?;
    let volume = model.volumes.get(&name).ok_or(MetaError::NotFound { kind: Kind::Volume, name })?;
    Ok(views::volume(&api.keys, &model, volume).into())
}

/// Why not.
enum Why {
    Refused(String),
    Away(String),
}

async fn here(api: &Api, ExposeHere { volume, vhost, ends }: ExposeHere) -> Result<(), String> {
    match ends {
        false => api.data_plane().expose(volume, vhost).await,
        true => api.data_plane().unexpose(volume, vhost).await,
    }
}

async fn at(api: &Api, model: &Model, node: NodeId, asked: ExposeHere) -> Result<(), Why> {
    let record = model.nodes.get(&node).ok_or_else(|| Why::Away("it is not there".to_owned()))?;
    let peer = Peer::of(record).map_err(Why::Away)?;
    let told = peers::post_within::<NodeExpose>(&peer, &api.https, &asked, PEER_WAIT).await.map_err(Why::Away)?;
    told.refused.map_or(Ok(()), |why| Err(Why::Refused(why)))
}
