//! Storage classes: list, show, create.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use azekura_meta::cluster::{ClassSpec, DEFAULT_OVERCOMMIT_RATIO};
use azekura_meta::model::{AckRule, FailureDomain, IO_TIMEOUT_DEFAULT_SECONDS};
use azekura_meta::{Kind, MetaError};
use serde::{Deserialize, Serialize};

use super::error::{Answer, ApiError, Body, Name};
use super::known::{Known, Wanted, known};
use super::{Api, ClassView};

/// Body of `POST /v1/classes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateClass {
    /// Its name.
    pub name: String,
    /// Copies of every block.
    pub copies: u32,
    /// What two copies never share; a host, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<FailureDomain>,
    /// When a write is acknowledged; when all in-sync copies are durable, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_rule: Option<AckRule>,
    /// With fewer in-sync copies a group is read-only; 1, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies_min: Option<u32>,
    /// Volumes may promise this multiple of the devices' size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overcommit_ratio: Option<f64>,
    /// Seconds that a request waits for a group which does not serve it, before its client gets an error; null: for ever; 30,
    /// if it is not said.
    #[serde(default, deserialize_with = "super::settings::named", skip_serializing_if = "Option::is_none")]
    pub io_timeout_seconds: Option<Option<u64>>,
}

/// `GET /v1/classes`.
pub(super) async fn list(State(api): State<Api>) -> Answer<Vec<ClassView>> {
    let Known { model, .. } = known(&api, Wanted::Volumes).await?;
    Ok(Json(model.classes.values().filter(|class| !class.deleted).map(|class| ClassView::new(&model, class)).collect()))
}

/// `GET /v1/classes/{name}`.
pub(super) async fn show(State(api): State<Api>, Name(name): Name) -> Answer<ClassView> {
    let model = api.meta.model_of_volumes().await?;
    match model.classes.get(&name) {
        Some(class) => Ok(Json(ClassView::new(&model, class))),
        None => Err(MetaError::NotFound { kind: Kind::Class, name }.into()),
    }
}

/// `POST /v1/classes`.
pub(super) async fn create(
    State(api): State<Api>,
    Body(body): Body<CreateClass>,
) -> Result<(StatusCode, Json<ClassView>), ApiError> {
    let spec = ClassSpec {
        name: body.name,
        copies: body.copies,
        failure_domain: body.failure_domain.unwrap_or(FailureDomain::Host),
        ack_rule: body.ack_rule.unwrap_or(AckRule::All),
        copies_min: body.copies_min.unwrap_or(1),
        overcommit_ratio: body.overcommit_ratio.unwrap_or(DEFAULT_OVERCOMMIT_RATIO),
        io_timeout_seconds: body.io_timeout_seconds.unwrap_or(Some(IO_TIMEOUT_DEFAULT_SECONDS)),
    };
    let class = api.meta.create_class(&spec).await?;
    Ok((StatusCode::CREATED, Json(ClassView::new(&api.meta.model(), &class))))
}
