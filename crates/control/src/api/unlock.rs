//! Volumes that are encrypted with a secret of their own: opened, and given another secret
//! (docs/decisions/0038-encrypted-volumes.md).

use std::collections::BTreeSet;
use std::time::Duration;

use azekura_api::endpoint::{NodeUnlock, VolumeChangeSecret, VolumeUnlock};
use azekura_api::{ChangeVolumeSecret, ErrorCode, KeyUnlocked, UnlockKey, UnlockVolume};
use azekura_base::{KeyId, NodeId, SecretText};
use azekura_model::{Kind, MetaError, Model};

use super::call::{Answer, Call};
use super::caller::Caller;
use super::error::ApiError;
use super::peers::{self, Peer};
use super::{Api, views};
use crate::attachments::{node_name, node_of};
use crate::data_keys::NotOpened;

/// How long another node may take: others' secrets may be tried there first.
const PEER_WAIT: Duration = Duration::from_secs(12);

pub(super) async fn unlock(Call { api, names: [name], body, caller, .. }: Call<VolumeUnlock>) -> Answer<VolumeUnlock> {
    caller.iter().try_for_each(Caller::check_private)?;
    let UnlockVolume { secret, node } = body;
    let model = api.meta.model_of_volumes().await?;
    let (key, mut nodes) = lock_of(&model, &name)?;
    if let Some(node) = node {
        nodes = [node_of(&model, &node)?].into();
    } else if nodes.is_empty() {
        nodes = [api.node].into();
    }
    for node in nodes {
        let outcome = match node == api.node {
            true => api.keys.unlock(&model, key, &secret).await,
            false => unlock_at(&api, &model, node, key, &secret).await,
        };
        outcome.map_err(|error| not_opened(&format!("volume '{name}' is not unlocked"), &error))?;
    }
    let model = api.meta.model_of_volumes().await?;
    let volume = model.volumes.get(&name).ok_or(MetaError::NotFound { kind: Kind::Volume, name })?;
    Ok(views::volume(&api.keys, &model, volume).into())
}

pub(super) async fn change(
    Call { api, names: [name], body, caller, .. }: Call<VolumeChangeSecret>,
) -> Answer<VolumeChangeSecret> {
    caller.iter().try_for_each(Caller::check_private)?;
    let ChangeVolumeSecret { secret, new_secret } = body;
    let mut model = api.meta.model_of_volumes().await?;
    let (key, _) = lock_of(&model, &name)?;
    let doing = format!("the secret of volume '{name}' is not changed");
    let change = api.keys.change_secret(&model, key, &secret, &new_secret).await;
    if let Some((from, to)) = change.map_err(|error| not_opened(&doing, &error))? {
        let (is_done, revision) = api.meta.rewrap_key(key, &from, &to).await?;
        if !is_done {
            let message = format!("{doing}: somebody else has changed it meanwhile");
            return Err(ApiError::new(ErrorCode::TryAgain, message, None));
        }
        model = api.meta.model_at(revision).await?;
    }
    let volume = model.volumes.get(&name).ok_or(MetaError::NotFound { kind: Kind::Volume, name })?;
    Ok(views::volume(&api.keys, &model, volume).into())
}

/// Another node has been asked, and asks this one.
pub(super) async fn node(Call { api, body, .. }: Call<NodeUnlock>) -> Answer<NodeUnlock> {
    let UnlockKey { key, secret } = body;
    // The volume may have been made through the other node a moment ago.
    let model = api.meta.model_of_volumes().await?;
    Ok(match api.keys.unlock(&model, KeyId(key), &secret).await {
        Ok(()) => KeyUnlocked::default(),
        Err(NotOpened::Refused(why)) => KeyUnlocked { refused: Some(why), ..KeyUnlocked::default() },
        Err(NotOpened::Busy(why)) => KeyUnlocked { busy: Some(why), ..KeyUnlocked::default() },
    }
    .into())
}

/// Refuses a secret that does not open what a volume is to be made from: both have one key.
pub(super) async fn check_source(api: &Api, source: &str, secret: &SecretText) -> Result<(), ApiError> {
    let model = api.meta.model_of_volumes().await?;
    let (key, _) = lock_of(&model, source)?;
    let tried = api.keys.try_secret(&model, key, secret).await;
    tried.map_err(|error| {
        let doing = format!("what is made from volume '{source}' has its key, and so its secret");
        not_opened(&doing, &error)
    })
}

/// The key of a volume, and the nodes that the volume is attached to.
fn lock_of(model: &Model, name: &str) -> Result<(KeyId, BTreeSet<NodeId>), ApiError> {
    let not_found = || MetaError::NotFound { kind: Kind::Volume, name: name.to_owned() };
    let volume = model.volumes.get(name).ok_or_else(not_found)?;
    let key = volume.key.ok_or_else(|| {
        let message = format!("volume '{name}' is not encrypted: there is nothing that a secret opens");
        ApiError::new(ErrorCode::Refused, message, None)
    })?;
    let record = model.attachments.get(&volume.id);
    let nodes = record.map(|record| record.attachments.iter().map(|entry| entry.node).collect());
    Ok((key, nodes.unwrap_or_default()))
}

async fn unlock_at(api: &Api, model: &Model, node: NodeId, key: KeyId, secret: &SecretText) -> Result<(), NotOpened> {
    let away = |why: String| NotOpened::Busy(format!("node {}: {why}", node_name(model, node)));
    let record = model.nodes.get(&node).ok_or_else(|| away("it is not there".to_owned()))?;
    let peer = Peer::of(record).map_err(away)?;
    let body = UnlockKey { key: key.0, secret: secret.clone() };
    let told = peers::post_within::<NodeUnlock>(&peer, &api.https, &body, PEER_WAIT).await.map_err(away)?;
    match (told.refused, told.busy) {
        (Some(why), _) => Err(NotOpened::Refused(why)),
        (None, Some(why)) => Err(away(why)),
        (None, None) => Ok(()),
    }
}

fn not_opened(doing: &str, error: &NotOpened) -> ApiError {
    let code = match error {
        NotOpened::Refused(_) => ErrorCode::Refused,
        NotOpened::Busy(_) => ErrorCode::Unavailable,
    };
    ApiError::new(code, format!("{doing}: {error}"), None)
}
