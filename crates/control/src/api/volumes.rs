//! Volumes: list, show, create, resize, delete.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use azekura_meta::cluster::VolumeDeletion;
use azekura_meta::model::{AckRule, VolumeAccess};
use azekura_meta::{Kind, MetaError};
use serde::{Deserialize, Serialize};

use super::error::{Answer, ApiError, Body, Name, Params};
use super::known::{Known, Wanted, known};
use super::{Api, SnapshotView, Stale, VolumeView};
use crate::volumes::{VolumeRequest, create_volume};

/// Body of `POST /v1/volumes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Its name.
    pub name: String,
    /// Its size: a multiple of 4096 bytes.
    pub size_bytes: u64,
    /// Its storage class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Copies of every block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// When a write is acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_rule: Option<AckRule>,
    /// Clients of several nodes may use it at once.
    #[serde(default)]
    pub shared: bool,
}

/// Body of `POST /v1/volumes/{name}/attach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachVolume {
    /// The node, by its name.
    pub node: String,
    /// Beside other attachments that are shared, or alone; if it is not said, what the volume was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    /// End attachments that are in the way.
    #[serde(default)]
    pub force: bool,
}

/// Body of `POST /v1/volumes/{name}/detach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetachVolume {
    /// The node, by its name; without one, every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Body of `POST /v1/volumes/{name}/resize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// Its new size.
    pub size_bytes: u64,
    /// It may be smaller: what is cut off is kept as a snapshot for a day.
    #[serde(default)]
    pub shrink: bool,
    /// To make it smaller, cut off whoever has it.
    #[serde(default)]
    pub force: bool,
}

/// Answer to `POST /v1/volumes/{name}/resize`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResizedView {
    /// The volume.
    #[serde(flatten)]
    pub volume: VolumeView,
    /// What keeps the data that was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<SnapshotView>,
}

/// Query of `DELETE /v1/volumes/{name}`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteVolume {
    /// Although it is attached.
    #[serde(default)]
    force: bool,
    /// And its snapshots.
    #[serde(default)]
    snapshots: bool,
}

/// `GET /v1/volumes`. Volumes made through another node a moment ago are in it.
pub(super) async fn list(State(api): State<Api>) -> Result<(HeaderMap, Json<Vec<VolumeView>>), ApiError> {
    let Known { model, stale } = known(&api, Wanted::Volumes).await?;
    let views = model.volumes.values().map(|volume| VolumeView::new(&model, volume)).collect();
    Ok((Stale::headers(stale.as_ref()), Json(views)))
}

/// `GET /v1/volumes/{name}`.
pub(super) async fn show(State(api): State<Api>, Name(name): Name) -> Result<(HeaderMap, Json<VolumeView>), ApiError> {
    let Known { model, stale } = known(&api, Wanted::Snapshots).await?;
    match model.volumes.get(&name) {
        Some(volume) => Ok((Stale::headers(stale.as_ref()), Json(VolumeView::new(&model, volume)))),
        None => Err(MetaError::NotFound { kind: Kind::Volume, name }.into()),
    }
}

/// `POST /v1/volumes`.
pub(super) async fn create(
    State(api): State<Api>,
    Body(body): Body<CreateVolume>,
) -> Result<(StatusCode, Json<VolumeView>), ApiError> {
    let CreateVolume { name, size_bytes, class, copies, ack_rule, shared } = body;
    let access = if shared { VolumeAccess::Shared } else { VolumeAccess::Exclusive };
    let request = VolumeRequest { name, size_bytes, class, copies, ack_rule, access };
    let made = create_volume(&api.meta, &request).await?;
    // The answer tells the class's copies: the model must know the class.
    let model = api.meta.model_of_volumes().await?;
    Ok((StatusCode::CREATED, Json(VolumeView::new(&model, &made))))
}

/// `POST /v1/volumes/{name}/resize`.
pub(super) async fn resize(
    State(api): State<Api>,
    Name(name): Name,
    Body(body): Body<ResizeVolume>,
) -> Answer<ResizedView> {
    let ResizeVolume { size_bytes, shrink, force } = body;
    let model = api.meta.model_of_volumes().await?;
    let smaller = model.volumes.get(&name).is_some_and(|volume| size_bytes < volume.size_bytes);
    if shrink && smaller {
        let (volume, kept) = api.snapshots.shrink(&name, size_bytes, force).await?;
        let model = api.meta.model_of_snapshots().await?;
        let kept = SnapshotView::new(&model, &kept);
        return Ok(Json(ResizedView { volume: VolumeView::new(&model, &volume), kept: Some(kept) }));
    }
    let grown = api.meta.resize_volume(&name, size_bytes).await?;
    Ok(Json(ResizedView { volume: VolumeView::new(&api.meta.model(), &grown), kept: None }))
}

/// `POST /v1/volumes/{name}/attach`: answered when no former user's write can be applied any more.
pub(super) async fn attach(
    State(api): State<Api>,
    Name(name): Name,
    Body(body): Body<AttachVolume>,
) -> Answer<VolumeView> {
    let changed = api.attacher.attach_by_name(&name, &body.node, body.shared, body.force).await?;
    Ok(Json(VolumeView::new(&*api.meta.model_at(changed.revision).await?, &changed.volume)))
}

/// `POST /v1/volumes/{name}/detach`: the same.
pub(super) async fn detach(
    State(api): State<Api>,
    Name(name): Name,
    Body(body): Body<DetachVolume>,
) -> Answer<VolumeView> {
    let changed = api.attacher.detach(&name, body.node.as_deref()).await?;
    Ok(Json(VolumeView::new(&*api.meta.model_at(changed.revision).await?, &changed.volume)))
}

/// `DELETE /v1/volumes/{name}`.
pub(super) async fn delete(
    State(api): State<Api>,
    Name(name): Name,
    Params(query): Params<DeleteVolume>,
) -> Result<StatusCode, ApiError> {
    // Users that have ended without giving the volume back are not in the way.
    let attached = query.force || !api.attacher.is_in_use(&name).await?;
    api.meta.delete_volume(&name, VolumeDeletion { attached, snapshots: query.snapshots }).await?;
    Ok(StatusCode::NO_CONTENT)
}
