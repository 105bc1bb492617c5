//! Volumes: list, show, create, resize, delete.

use azekura_api::endpoint::{
    VolumeAttach, VolumeCreate, VolumeDelete, VolumeDetach, VolumeLimit, VolumeList, VolumeResize, VolumeShow,
};
use azekura_api::{AttachVolume, CreateVolume, DeleteVolume, DetachVolume, NoContent, ResizeVolume, ResizedView};
use azekura_model::Ending;
use azekura_model::transitions::volumes::VolumeDeletion;
use azekura_model::{Kind, MetaError, VolumeAccess};

use super::call::{Answer, Call, Reply};
use super::caller::Caller;
use super::known::{Known, Wanted, known};
use super::pages::{Page, page};
use super::shown::Meant;
use super::{snapshots, views};
use crate::volumes::{VolumeRequest, create_volume};

/// Volumes made through another node a moment ago are in it.
pub(super) async fn list(Call { api, query, .. }: Call<VolumeList>) -> Answer<VolumeList> {
    let Known { model, stale } = known(&api, Wanted::Volumes).await?;
    let name = |text: &str| Some(text.to_owned());
    let Page { things, next } =
        page(&query, model.volumes.values(), |volume| volume.name.clone(), name, String::clone)?;
    let views = things.into_iter().map(|volume| views::volume(&api.keys, &model, volume)).collect();
    Ok(Reply::as_known(views, stale).before(next))
}

pub(super) async fn show(Call { api, names: [name], .. }: Call<VolumeShow>) -> Answer<VolumeShow> {
    let Known { model, stale } = known(&api, Wanted::Snapshots).await?;
    match model.volumes.get(&name) {
        Some(volume) => Ok(Reply::as_known(views::volume(&api.keys, &model, volume), stale)),
        None => Err(MetaError::NotFound { kind: Kind::Volume, name }.into()),
    }
}

pub(super) async fn create(Call { api, body, caller, .. }: Call<VolumeCreate>) -> Answer<VolumeCreate> {
    caller.iter().try_for_each(|caller| caller.check_own(&body.name))?;
    let CreateVolume {
        name,
        size_bytes,
        logical_block_bytes,
        class,
        copies,
        ack_rule,
        shared,
        encrypt,
        secret,
        limits,
    } = body;
    if secret.is_some() {
        caller.iter().try_for_each(Caller::check_private)?;
    }
    let access = if shared { VolumeAccess::Shared } else { VolumeAccess::Exclusive };
    let ack_rule = ack_rule.map(Meant::meant);
    let limits = limits.map(Meant::meant).filter(|limits| !limits.is_none());
    let request = VolumeRequest {
        name,
        size_bytes,
        logical_block: logical_block_bytes,
        class,
        copies,
        ack_rule,
        access,
        encrypt,
        secret,
        limits,
    };
    let made = create_volume(&api.meta, &api.keys, &request).await?;
    // The answer tells the class's copies: the model must know the class.
    let model = api.meta.model_of_volumes().await?;
    Ok(views::volume(&api.keys, &model, &made).into())
}

pub(super) async fn resize(Call { api, names: [name], body, .. }: Call<VolumeResize>) -> Answer<VolumeResize> {
    let ResizeVolume { size_bytes, shrink, force } = body;
    let model = api.meta.model_of_volumes().await?;
    let smaller = model.volumes.get(&name).is_some_and(|volume| size_bytes < volume.size_bytes);
    if shrink && smaller {
        let (volume, kept) = api.snapshots.shrink(&name, size_bytes, force).await?;
        let model = api.meta.model_of_snapshots().await?;
        let kept = Some(snapshots::view(&model, &kept));
        return Ok(ResizedView { volume: views::volume(&api.keys, &model, &volume), kept }.into());
    }
    let grown = api.meta.resize_volume(&name, size_bytes).await?;
    Ok(ResizedView { volume: views::volume(&api.keys, &api.meta.model(), &grown), kept: None }.into())
}

pub(super) async fn limit(Call { api, names: [name], body, .. }: Call<VolumeLimit>) -> Answer<VolumeLimit> {
    let limits = body.meant();
    limits.check().map_err(|reason| MetaError::InvalidLimits { reason })?;
    let limited = api.meta.limit_volume(&name, Some(limits).filter(|limits| !limits.is_none()).as_ref()).await?;
    Ok(views::volume(&api.keys, &*api.meta.model_of_volumes().await?, &limited).into())
}

pub(super) async fn attach(Call { api, names: [name], body, .. }: Call<VolumeAttach>) -> Answer<VolumeAttach> {
    let AttachVolume { node, shared, force } = body;
    let changed = api.attacher.attach_by_name(&name, &node, shared, force).await?;
    Ok(views::volume(&api.keys, &*api.meta.model_at(changed.revision).await?, &changed.volume).into())
}

pub(super) async fn detach(Call { api, names: [name], body, .. }: Call<VolumeDetach>) -> Answer<VolumeDetach> {
    let DetachVolume { node, force } = body;
    let changed = match force {
        true => api.attacher.detach(&name, node.as_deref()).await?,
        false => api.attacher.detach_unused(&name, node.as_deref()).await?,
    };
    Ok(views::volume(&api.keys, &*api.meta.model_at(changed.revision).await?, &changed.volume).into())
}

pub(super) async fn delete(Call { api, names: [name], query, .. }: Call<VolumeDelete>) -> Answer<VolumeDelete> {
    let DeleteVolume { force, snapshots } = query;
    // Users that have ended without giving the volume back are not in the way.
    let attached = if force { Ending::All } else { api.attacher.gone_alone(&name).await?.unwrap_or_default() };
    api.meta.delete_volume(&name, &VolumeDeletion { attached, snapshots }).await?;
    Ok(NoContent.into())
}
