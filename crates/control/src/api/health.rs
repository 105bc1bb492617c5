//! `GET /v1/health`: whether this node serves, for load balancers and probes.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Api;
use super::error::ApiError;

/// 200 while the data plane answers, else 503. The configuration server may be away: I/O goes on without it.
pub(super) async fn health(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    if api.statistics.snapshot().await.is_none() {
        let hint = "look into the node's log".to_owned();
        let error = "this node's data plane does not answer";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error, Some(hint)));
    }
    let link = api.meta.watch_link().borrow().clone();
    Ok(Json(json!({ "serving": true, "configuration": link.as_deref().unwrap_or("reachable") })))
}
