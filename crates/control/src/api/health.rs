//! `GET /v1/health`: whether this node serves, for load balancers and probes.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Api;
use super::error::ApiError;
use super::known::stale;

/// 200 while the data plane answers, else 503. It is 200 also while the configuration is away, and says so: I/O goes on
/// without it, and a balancer or probe that took the node out, or restarted it, would end what works.
pub(super) async fn health(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    if api.statistics.snapshot().await.is_none() {
        let hint = "look into the node's log".to_owned();
        let error = "this node's data plane does not answer";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error, Some(hint)));
    }
    let away = stale(&api);
    Ok(Json(json!({
        "serving": true,
        "configuration_reachable": away.is_none(),
        "configuration_away_seconds": away.as_ref().map(|away| away.seconds),
        "configuration": away.map_or_else(|| "reachable".to_owned(), |away| away.reason),
    })))
}
