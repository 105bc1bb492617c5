//! `GET /v1/openapi.json`: the description of this API.

use azekura_api::endpoint::OpenApi;
use azekura_api::{ErrorCode, OPENAPI};

use super::call::{Answer, Call};
use super::error::ApiError;

pub(super) async fn show(_: Call<OpenApi>) -> Answer<OpenApi> {
    let document: Result<serde_json::Value, _> = serde_json::from_str(OPENAPI);
    let document = document.map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string(), None))?;
    Ok(document.into())
}
