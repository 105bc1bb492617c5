//! Volumes: list, show, create, resize, delete.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use azekura_meta::{Kind, MetaError};
use serde::{Deserialize, Serialize};

use super::error::{Answer, ApiError, Body};
use super::{Api, VolumeView};
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
}

/// Body of `POST /v1/volumes/{name}/resize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// Its new size.
    pub size_bytes: u64,
}

/// `GET /v1/volumes`. Volumes made through another node a moment ago are in it.
pub(super) async fn list(State(api): State<Api>) -> Answer<Vec<VolumeView>> {
    let model = api.meta.model_of_volumes().await?;
    Ok(Json(model.volumes.values().map(|volume| VolumeView::new(&model, volume)).collect()))
}

/// `GET /v1/volumes/{name}`.
pub(super) async fn show(State(api): State<Api>, Path(name): Path<String>) -> Answer<VolumeView> {
    let model = api.meta.model_of_volumes().await?;
    match model.volumes.get(&name) {
        Some(volume) => Ok(Json(VolumeView::new(&model, volume))),
        None => Err(MetaError::NotFound { kind: Kind::Volume, name }.into()),
    }
}

/// `POST /v1/volumes`.
pub(super) async fn create(
    State(api): State<Api>,
    Body(body): Body<CreateVolume>,
) -> Result<(StatusCode, Json<VolumeView>), ApiError> {
    let CreateVolume { name, size_bytes, class, copies } = body;
    let made = create_volume(&api.meta, &VolumeRequest { name, size_bytes, class, copies }).await?;
    // The answer tells the class's copies: the model must know the class.
    let model = api.meta.model_of_volumes().await?;
    Ok((StatusCode::CREATED, Json(VolumeView::new(&model, &made))))
}

/// `POST /v1/volumes/{name}/resize`.
pub(super) async fn resize(
    State(api): State<Api>,
    Path(name): Path<String>,
    Body(body): Body<ResizeVolume>,
) -> Answer<VolumeView> {
    let grown = api.meta.resize_volume(&name, body.size_bytes).await?;
    Ok(Json(VolumeView::new(&api.meta.model(), &grown)))
}

/// `DELETE /v1/volumes/{name}`.
pub(super) async fn delete(State(api): State<Api>, Path(name): Path<String>) -> Result<StatusCode, ApiError> {
    api.meta.delete_volume(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}
