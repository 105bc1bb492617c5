//! Snapshots: made, listed, deleted; volumes gone back to them, cloned from them, and protected by them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use azekura_base::LayerId;
use azekura_meta::model::{ProtectionRecord, SnapshotOrigin, SnapshotRecord, Thinning, VolumeAccess};
use azekura_meta::time::rfc3339_seconds;
use azekura_meta::{Kind, MetaError, Model};
use serde::{Deserialize, Serialize};

use super::error::{Answer, ApiError, Body, Name, Params};
use super::views::nbd_uris;
use super::{Api, VolumeView, freed, space};
use crate::snapshots::find_snapshot;

/// Longest time that a snapshot is measured for: less than clients wait for an answer.
const MEASURE_TIME: Duration = Duration::from_secs(15);

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotView {
    /// Its volume.
    pub volume: String,
    /// Its name.
    pub name: String,
    /// The layer with its blocks.
    pub layer: u64,
    /// The volume's size at that time, bytes.
    pub size_bytes: u64,
    /// When it was made, RFC 3339.
    pub created: String,
    /// The same, seconds since 1970.
    pub seconds: u64,
    /// And nanoseconds.
    pub nanos: u32,
    /// Why it was made.
    pub origin: SnapshotOrigin,
    /// The same for all that were made at one instant.
    pub cut: String,
    /// What was written between the snapshot before it and this one, and is still shown by it or by what came later: bytes
    /// on the devices, with all copies. At most that much comes back when it is deleted.
    #[serde(default)]
    pub held_bytes: u64,
    /// What would come back if it were deleted now: bytes on the devices, with all copies. Only told of a single snapshot that
    /// is asked for, since it has to be measured. Nothing while two others (a snapshot and a clone, say) lie on it: it comes
    /// back when one of them is deleted, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed_bytes: Option<u64>,
    /// Devices whose part is not, or not all, in `freed_bytes`, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freed_missing: Vec<String>,
    /// When it ends by itself, RFC 3339.
    #[serde(default)]
    pub expires: Option<String>,
    /// Volumes that were made from it.
    #[serde(default)]
    pub clones: Vec<String>,
    /// NBD URIs that serve it, read-only.
    #[serde(default)]
    pub nbd_uris: Vec<String>,
}

impl SnapshotView {
    /// A snapshot as one of a list: without what only [`SnapshotView::new`] tells.
    fn in_list(volume: &str, record: &SnapshotRecord) -> SnapshotView {
        SnapshotView {
            volume: volume.to_owned(),
            name: record.name.clone(),
            layer: record.layer.0,
            size_bytes: record.size_bytes,
            created: rfc3339_seconds(record.seconds),
            seconds: record.seconds,
            nanos: record.nanos,
            origin: record.origin,
            cut: record.cut.clone(),
            held_bytes: 0,
            freed_bytes: None,
            freed_missing: Vec::new(),
            expires: record.expires.map(rfc3339_seconds),
            clones: Vec::new(),
            nbd_uris: Vec::new(),
        }
    }

    pub(super) fn new(model: &Model, record: &SnapshotRecord) -> SnapshotView {
        let volume = model.volume_by_id(record.volume).map(|volume| volume.name.clone()).unwrap_or_default();
        let made_from = format!("{volume}@{}", record.name);
        let on_it = |head| model.layers.get(head).is_some_and(|layer| layer.parent == Some(record.layer));
        let clones =
            model.volumes.values().filter(|clone| clone.source.as_ref() == Some(&made_from) && on_it(&clone.head));
        SnapshotView {
            clones: clones.map(|clone| clone.name.clone()).collect(),
            nbd_uris: nbd_uris(model, &made_from),
            ..SnapshotView::in_list(&volume, record)
        }
    }
}

/// Body of `POST /v1/snapshots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshots {
    /// The volumes, all of them at one instant.
    pub volumes: Vec<String>,
    /// The snapshots' name; without one, the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Body of `POST /v1/volumes/{name}/revert`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevertVolume {
    /// A snapshot's name, or a time: the newest snapshot that is not younger.
    pub to: String,
    /// Cut off whoever has the volume.
    #[serde(default)]
    pub force: bool,
}

/// Answer to `POST /v1/volumes/{name}/revert`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RevertedView {
    /// The volume.
    pub volume: VolumeView,
    /// The snapshot that it went back to.
    pub to: SnapshotView,
    /// What it was before.
    pub kept: SnapshotView,
}

/// Body of `POST /v1/volumes/{name}/clone`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloneVolume {
    /// The clone's name.
    pub name: String,
    /// A snapshot's name, or a time; without one, the present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its size, if it is to be larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Whether clients of several nodes may use it at once; if it is not said, as for the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
}

/// Body of `POST /v1/volumes/{name}/protect`: a pause and a time, or `off`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtectVolume {
    /// Pause between two snapshots, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_seconds: Option<u64>,
    /// How long all of them are kept, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_seconds: Option<u64>,
    /// What is kept of them afterwards.
    #[serde(default)]
    pub then: Vec<Thinning>,
    /// Protection ends.
    #[serde(default)]
    pub off: bool,
}

/// `GET /v1/snapshots`: of all volumes, by volume and then by time.
pub(super) async fn list(State(api): State<Api>) -> Answer<Vec<SnapshotView>> {
    let model = api.meta.model_of_snapshots().await?;
    let (held, _) = space::layers(&api, &model).await;
    Ok(Json(model.volumes.keys().flat_map(|volume| of_volume(&model, &held, volume)).collect()))
}

/// `GET /v1/volumes/{name}/snapshots`, by time.
pub(super) async fn list_of_volume(State(api): State<Api>, Name(name): Name) -> Answer<Vec<SnapshotView>> {
    let model = api.meta.model_of_snapshots().await?;
    if !model.volumes.contains_key(&name) {
        return Err(MetaError::NotFound { kind: Kind::Volume, name }.into());
    }
    let (held, _) = space::layers(&api, &model).await;
    Ok(Json(of_volume(&model, &held, &name)))
}

fn of_volume(model: &Model, held: &BTreeMap<LayerId, u64>, name: &str) -> Vec<SnapshotView> {
    let Some(volume) = model.volumes.get(name) else { return Vec::new() };
    let view = |snapshot: &SnapshotRecord| SnapshotView {
        held_bytes: held.get(&snapshot.layer).copied().unwrap_or(0),
        ..SnapshotView::in_list(name, snapshot)
    };
    let mut snapshots: Vec<SnapshotView> = model.snapshots_of(volume.id).map(|snapshot| view(snapshot)).collect();
    snapshots.sort_by_key(|snapshot| (snapshot.seconds, snapshot.nanos));
    snapshots
}

/// Query of `GET /v1/volumes/{name}/snapshots/{snapshot}`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShowSnapshot {
    /// Longest time to measure what would come back, milliseconds; 0: it is not measured.
    measure_ms: Option<u64>,
}

/// `GET /v1/volumes/{name}/snapshots/{snapshot}`; the snapshot may be named by a time.
pub(super) async fn show(
    State(api): State<Api>,
    Path((volume, snapshot)): Path<(String, String)>,
    Params(query): Params<ShowSnapshot>,
) -> Answer<SnapshotView> {
    let patience = query.measure_ms.map_or(MEASURE_TIME, Duration::from_millis).min(MEASURE_TIME);
    let model = api.meta.model_of_snapshots().await?;
    let found = find_snapshot(&model, &volume, &snapshot)?;
    let (held, _) = space::layers(&api, &model).await;
    let held_bytes = held.get(&found.layer).copied().unwrap_or(0);
    let mut view = SnapshotView { held_bytes, ..SnapshotView::new(&model, &found) };
    if !patience.is_zero() {
        let freed = freed::measure(&api, &model, found.layer, patience).await;
        (view.freed_bytes, view.freed_missing) = (Some(freed.bytes), freed.missing);
    }
    Ok(Json(view))
}

/// `POST /v1/snapshots`: answered when they are there; every write that was acknowledged before is in them.
pub(super) async fn create(
    State(api): State<Api>,
    Body(body): Body<CreateSnapshots>,
) -> Result<(StatusCode, Json<Vec<SnapshotView>>), ApiError> {
    if body.volumes.is_empty() {
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "no volume is named", None));
    }
    let made = api.snapshots.create(&body.volumes, body.name.as_deref()).await?;
    let model = api.meta.model_at(made.revision).await?;
    let views = made.snapshots.iter().map(|snapshot| SnapshotView::new(&model, snapshot)).collect();
    Ok((StatusCode::CREATED, Json(views)))
}

/// `DELETE /v1/volumes/{name}/snapshots/{snapshot}`; only by its name.
pub(super) async fn delete(
    State(api): State<Api>,
    Path((volume, snapshot)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    api.snapshots.delete(&volume, &snapshot).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/volumes/{name}/revert`.
pub(super) async fn revert(
    State(api): State<Api>,
    Name(name): Name,
    Body(body): Body<RevertVolume>,
) -> Answer<RevertedView> {
    let done = api.snapshots.revert(&name, &body.to, body.force).await?;
    let model = api.meta.model_at(done.revision).await?;
    Ok(Json(RevertedView {
        volume: VolumeView::new(&model, &done.volume),
        to: SnapshotView::new(&model, &done.to),
        kept: SnapshotView::new(&model, &done.kept),
    }))
}

/// `POST /v1/volumes/{name}/clone`.
pub(super) async fn clone(
    State(api): State<Api>,
    Name(name): Name,
    Body(body): Body<CloneVolume>,
) -> Result<(StatusCode, Json<VolumeView>), ApiError> {
    let CloneVolume { name: clone, from, size_bytes, shared } = body;
    let access = shared.map(|shared| if shared { VolumeAccess::Shared } else { VolumeAccess::Exclusive });
    let made = api.snapshots.clone_volume(&name, from.as_deref(), &clone, size_bytes, access).await?;
    let model = api.meta.model_of_volumes().await?;
    Ok((StatusCode::CREATED, Json(VolumeView::new(&model, &made))))
}

/// `POST /v1/volumes/{name}/protect`.
pub(super) async fn protect(
    State(api): State<Api>,
    Name(name): Name,
    Body(body): Body<ProtectVolume>,
) -> Answer<VolumeView> {
    let protection = match (body.every_seconds, body.keep_seconds) {
        (Some(every_seconds), Some(keep_seconds)) if !body.off => {
            Some(ProtectionRecord { every_seconds, keep_seconds, then: body.then })
        }
        (None, None) if body.off && body.then.is_empty() => None,
        _ => {
            let reason = "it needs 'every_seconds' and 'keep_seconds', or 'off': true and nothing else".to_owned();
            return Err(MetaError::InvalidProtection { reason }.into());
        }
    };
    let volume = api.snapshots.protect(&name, protection.as_ref()).await?;
    Ok(Json(VolumeView::new(&*api.meta.model_of_volumes().await?, &volume)))
}
