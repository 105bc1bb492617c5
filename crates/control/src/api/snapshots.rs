//! Snapshots: made, listed, deleted; volumes gone back to them, cloned from them, and protected by them.

use std::collections::BTreeMap;
use std::time::Duration;

use azekura_api::endpoint::{
    SnapshotCreate, SnapshotDelete, SnapshotList, SnapshotShow, VolumeClone, VolumeProtect, VolumeRevert,
    VolumeSnapshots,
};
use azekura_api::{
    CloneVolume, ErrorCode, NoContent, PageQuery, ProtectVolume, RevertVolume, RevertedView, SnapshotView,
};
use azekura_base::{LayerId, LogicalBlock, rfc3339_seconds};
use azekura_model::{Kind, MetaError, Model, ProtectionRecord, SnapshotRecord, VolumeAccess};

use super::call::{Answer, Call, Reply};
use super::caller::Caller;
use super::error::ApiError;
use super::known::{Known, Wanted, known};
use super::pages::{Page, page};
use super::shown::{Meant, Shown};
use super::views::endpoints_of;
use super::{freed, space, unlock, views};
use crate::snapshots::{CloneWish, find_snapshot};

/// Longest time that a snapshot is measured for: less than clients wait for an answer.
const MEASURE_TIME: Duration = Duration::from_secs(15);

/// A snapshot as one of a list: without what only [`view`] tells.
fn in_list(volume: &str, block: LogicalBlock, record: &SnapshotRecord) -> SnapshotView {
    SnapshotView {
        volume: volume.to_owned(),
        name: record.name.clone(),
        layer: record.layer.0,
        size_bytes: record.size_bytes,
        logical_block_bytes: block,
        created: rfc3339_seconds(record.seconds),
        seconds: record.seconds,
        nanos: record.nanos,
        origin: record.origin.shown(),
        cut: record.cut.clone(),
        held_bytes: 0,
        freed_bytes: None,
        freed_missing: Vec::new(),
        expires: record.expires.map(rfc3339_seconds),
        clones: Vec::new(),
        endpoints: Vec::new(),
    }
}

/// A snapshot with all that the records tell of it.
pub(super) fn view(model: &Model, record: &SnapshotRecord) -> SnapshotView {
    let volume = model.volume_by_id(record.volume);
    let (volume, block) = volume.map(|volume| (volume.name.clone(), volume.logical_block_bytes)).unwrap_or_default();
    let made_from = format!("{volume}@{}", record.name);
    let on_it = |head| model.layers.get(head).is_some_and(|layer| layer.parent == Some(record.layer));
    let clones = model.volumes.values().filter(|clone| clone.source.as_ref() == Some(&made_from) && on_it(&clone.head));
    SnapshotView {
        clones: clones.map(|clone| clone.name.clone()).collect(),
        endpoints: endpoints_of(model, &made_from),
        ..in_list(&volume, block, record)
    }
}

/// Where a snapshot stands in lists: by volume, then by time, then by name.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(String, u64, u32, String);

impl Place {
    fn of(view: &SnapshotView) -> Place {
        Place(view.volume.clone(), view.seconds, view.nanos, view.name.clone())
    }

    /// Names have no `@`.
    fn write(&self) -> String {
        let Place(volume, seconds, nanos, name) = self;
        format!("{volume}@{seconds}@{nanos}@{name}")
    }

    fn read(text: &str) -> Option<Place> {
        let mut parts = text.splitn(4, '@');
        let (volume, seconds, nanos) =
            (parts.next()?.to_owned(), parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Place(volume, seconds, nanos, parts.next()?.to_owned()))
    }
}

/// A page of these, which stand in their order.
fn page_of(query: &PageQuery, all: impl Iterator<Item = SnapshotView>) -> Result<Page<SnapshotView>, ApiError> {
    page(query, all, Place::of, Place::read, Place::write)
}

pub(super) async fn list(Call { api, query, .. }: Call<SnapshotList>) -> Answer<SnapshotList> {
    let Known { model, stale } = known(&api, Wanted::Snapshots).await?;
    let (held, _) = space::layers(&api, &model).await;
    let all = model.volumes.keys().flat_map(|volume| of_volume(&model, &held, volume));
    let Page { things, next } = page_of(&query, all)?;
    Ok(Reply::as_known(things, stale).before(next))
}

pub(super) async fn list_of_volume(
    Call { api, names: [name], query, .. }: Call<VolumeSnapshots>,
) -> Answer<VolumeSnapshots> {
    let Known { model, stale } = known(&api, Wanted::Snapshots).await?;
    if !model.volumes.contains_key(&name) {
        return Err(MetaError::NotFound { kind: Kind::Volume, name }.into());
    }
    let (held, _) = space::layers(&api, &model).await;
    let Page { things, next } = page_of(&query, of_volume(&model, &held, &name).into_iter())?;
    Ok(Reply::as_known(things, stale).before(next))
}

fn of_volume(model: &Model, held: &BTreeMap<LayerId, u64>, name: &str) -> Vec<SnapshotView> {
    let Some(volume) = model.volumes.get(name) else { return Vec::new() };
    let view = |snapshot: &SnapshotRecord| SnapshotView {
        held_bytes: held.get(&snapshot.layer).copied().unwrap_or(0),
        ..in_list(name, volume.logical_block_bytes, snapshot)
    };
    let mut snapshots: Vec<SnapshotView> = model.snapshots_of(volume.id).map(|snapshot| view(snapshot)).collect();
    snapshots.sort_by_cached_key(Place::of);
    snapshots
}

pub(super) async fn show(
    Call { api, names: [volume, snapshot], query, .. }: Call<SnapshotShow>,
) -> Answer<SnapshotShow> {
    let patience = query.measure_ms.map_or(MEASURE_TIME, Duration::from_millis).min(MEASURE_TIME);
    let Known { model, stale } = known(&api, Wanted::Snapshots).await?;
    let found = find_snapshot(&model, &volume, &snapshot)?;
    let (held, _) = space::layers(&api, &model).await;
    let held_bytes = held.get(&found.layer).copied().unwrap_or(0);
    let mut shown = SnapshotView { held_bytes, ..view(&model, &found) };
    if !patience.is_zero() {
        let freed = freed::measure(&api, &model, found.layer, patience).await;
        (shown.freed_bytes, shown.freed_missing) = (Some(freed.bytes), freed.missing);
    }
    Ok(Reply::as_known(shown, stale))
}

/// Answered when they are there; every write that was acknowledged before is in them.
pub(super) async fn create(Call { api, body, .. }: Call<SnapshotCreate>) -> Answer<SnapshotCreate> {
    if body.volumes.is_empty() {
        return Err(ApiError::new(ErrorCode::Refused, "no volume is named", None));
    }
    let made = api.snapshots.create(&body.volumes, body.name.as_deref()).await?;
    let model = api.meta.model_at(made.revision).await?;
    Ok(made.snapshots.iter().map(|snapshot| view(&model, snapshot)).collect::<Vec<_>>().into())
}

pub(super) async fn delete(
    Call { api, names: [volume, snapshot], .. }: Call<SnapshotDelete>,
) -> Answer<SnapshotDelete> {
    api.snapshots.delete(&volume, &snapshot).await?;
    Ok(NoContent.into())
}

pub(super) async fn revert(Call { api, names: [name], body, .. }: Call<VolumeRevert>) -> Answer<VolumeRevert> {
    let RevertVolume { to, force } = body;
    let done = api.snapshots.revert(&name, &to, force).await?;
    let model = api.meta.model_at(done.revision).await?;
    let (to, kept) = (view(&model, &done.to), view(&model, &done.kept));
    Ok(RevertedView { volume: views::volume(&api.keys, &model, &done.volume), to, kept }.into())
}

pub(super) async fn clone(Call { api, names: [name], body, caller, .. }: Call<VolumeClone>) -> Answer<VolumeClone> {
    caller.iter().try_for_each(|caller| caller.check_own(&body.name))?;
    let CloneVolume { name: clone, from, size_bytes, shared, rekey, secret } = body;
    if let Some(secret) = secret {
        caller.iter().try_for_each(Caller::check_private)?;
        unlock::check_source(&api, &name, &secret).await?;
    }
    let access = shared.map(|shared| if shared { VolumeAccess::Shared } else { VolumeAccess::Exclusive });
    let wish = CloneWish { volume: &name, name: &clone, size_bytes, access };
    let made = api.snapshots.clone_volume(&wish, from.as_deref(), rekey.then_some(&api.keys)).await?;
    let model = api.meta.model_of_volumes().await?;
    Ok(views::volume(&api.keys, &model, &made).into())
}

pub(super) async fn protect(Call { api, names: [name], body, .. }: Call<VolumeProtect>) -> Answer<VolumeProtect> {
    let ProtectVolume { every_seconds, keep_seconds, then, off } = body;
    let protection = match (every_seconds, keep_seconds) {
        (Some(every_seconds), Some(keep_seconds)) if !off => {
            let then = then.into_iter().map(Meant::meant).collect();
            Some(ProtectionRecord { every_seconds, keep_seconds, then })
        }
        (None, None) if off && then.is_empty() => None,
        _ => {
            let reason = "it needs 'every_seconds' and 'keep_seconds', or 'off': true and nothing else".to_owned();
            return Err(MetaError::InvalidProtection { reason }.into());
        }
    };
    let volume = api.snapshots.protect(&name, protection.as_ref()).await?;
    Ok(views::volume(&api.keys, &*api.meta.model_of_volumes().await?, &volume).into())
}
