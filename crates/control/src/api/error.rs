//! Errors as the API answers them.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use azekura_meta::MetaError;
use azekura_meta::client::EtcdError;
use serde::{Deserialize, Serialize};

/// The body of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What happened, to what.
    pub error: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// An error with its status.
#[derive(Debug)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) body: ErrorBody,
}

/// What a handler answers.
pub(super) type Answer<T> = Result<Json<T>, ApiError>;

impl ApiError {
    pub(super) fn new(status: StatusCode, error: impl Into<String>, hint: Option<String>) -> ApiError {
        ApiError { status, body: ErrorBody { error: error.into(), hint } }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

impl From<MetaError> for ApiError {
    fn from(error: MetaError) -> ApiError {
        use MetaError as E;
        let status = match &error {
            E::Exists { .. } | E::NameTaken { .. } | E::Contended { .. } | E::NoGroups { .. } => StatusCode::CONFLICT,
            E::Attached { .. } | E::TooManyAttachments { .. } | E::NotAttached { .. } | E::NodeAbsent { .. } => {
                StatusCode::CONFLICT
            }
            E::RemovalRefused { .. } | E::ClassInUse { .. } | E::Removed { .. } | E::Ambiguous { .. } => {
                StatusCode::CONFLICT
            }
            E::InUse { .. } | E::HasSnapshots { .. } | E::CutEnded { .. } | E::TooManySnapshots { .. } => {
                StatusCode::CONFLICT
            }
            E::NotFenced { .. } | E::NotStopped { .. } => StatusCode::GATEWAY_TIMEOUT,
            E::NotFound { .. } | E::NoSnapshotThen { .. } | E::NoSuchSnapshot { .. } => StatusCode::NOT_FOUND,
            E::InvalidName { .. }
            | E::InvalidSize { .. }
            | E::InvalidClass { .. }
            | E::InvalidSetting { .. }
            | E::InvalidProtection { .. }
            | E::TooManyVolumes { .. }
            | E::ShrinkRefused { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            E::NotEnoughDevices { .. } | E::Overcommit { .. } | E::DrainRefused { .. } => {
                StatusCode::INSUFFICIENT_STORAGE
            }
            E::NotNow { .. } | E::Etcd(EtcdError::Unreachable { .. } | EtcdError::Uncertain { .. }) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError::new(status, error.to_string(), error.hint())
    }
}

/// A JSON body; what is wrong with a bad one is told like every other error.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: serde::de::DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Body<T>, ApiError> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Body(body)),
            Err(rejection) => Err(bad_body(&rejection)),
        }
    }
}

fn bad_body(rejection: &JsonRejection) -> ApiError {
    // The text names the field, if the body could be read as JSON at all.
    let hint = match rejection {
        JsonRejection::JsonDataError(_) => {
            "correct the field that the error names; its words are those that a GET shows"
        }
        JsonRejection::JsonSyntaxError(_) => "the body is no JSON: look at the place that the error names",
        _ => "send a JSON object with the header 'Content-Type: application/json'",
    };
    ApiError::new(rejection.status(), rejection.body_text(), Some(hint.to_owned()))
}

/// The name in a URL's path; what is wrong with a bad one is told like every other error.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Name, ApiError> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Name(name)),
            Err(rejection) => {
                let hint = "names are letters, digits, '.', '_' and '-', and need no escapes in a URL".to_owned();
                Err(ApiError::new(rejection.status(), rejection.body_text(), Some(hint)))
            }
        }
    }
}

/// The parameters of a URL's query; what is wrong with bad ones is told like every other error.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: serde::de::DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Params<T>, ApiError> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Params(params)),
            Err(rejection) => Err(ApiError::new(rejection.status(), rejection.body_text(), None)),
        }
    }
}

pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    let hint = "there are /v1/health, /v1/status, /v1/space, /v1/volumes, /v1/snapshots, /v1/classes, /v1/nodes, /v1/devices, \
                /v1/groups, /v1/scrub, /v1/settings, /v1/stats, /metrics";
    ApiError::new(StatusCode::NOT_FOUND, format!("there is nothing at {}", uri.path()), Some(hint.to_owned()))
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} can't be asked to {method}", uri.path()), None)
}
