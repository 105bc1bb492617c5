//! What is at no path, or can't be done there: for whoever may ask at all.

use axum::http::Uri;
use azekura_api::endpoint::ROUTES;
use azekura_api::{ErrorCode, Method, Route};

use super::caller::Caller;
use super::error::ApiError;

pub(super) async fn no_such_path(_: Caller, uri: Uri) -> ApiError {
    let listed = |route: &&Route| route.method == Method::Get && !route.path.contains(['{', '.']);
    let paths = ROUTES.iter().filter(listed).map(|route| route.path).filter(|path| !path.starts_with("/v1/node/"));
    let hint = format!("there are {}; /v1/openapi.json tells all", paths.collect::<Vec<_>>().join(", "));
    ApiError::new(ErrorCode::NoSuchPath, format!("there is nothing at {}", uri.path()), Some(hint))
}

pub(super) async fn no_such_method(_: Caller, method: axum::http::Method, uri: Uri) -> ApiError {
    ApiError::new(ErrorCode::NoSuchMethod, format!("{} can't be asked to {method}", uri.path()), None)
}
