//! Errors as the API answers them.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use azekura_api::{ErrorBody, ErrorCode};
use azekura_model::{EtcdError, MetaError};

/// An error; its status follows from its code.
#[derive(Debug)]
pub(super) struct ApiError(ErrorBody);

impl ApiError {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>, hint: Option<String>) -> ApiError {
        ApiError(ErrorBody { code, message: message.into(), hint })
    }

    /// Whether what was asked may have been done, in whole or in part.
    pub(super) fn is_uncertain(&self) -> bool {
        use ErrorCode as E;
        matches!(self.0.code, E::Unavailable | E::Timeout | E::TryAgain | E::Internal | E::BadPeer)
    }

    /// The data plane of the node that was asked does not answer.
    pub(super) fn silent(hint: &str) -> ApiError {
        let message = "this node's data plane does not answer";
        ApiError::new(ErrorCode::Unavailable, message, Some(hint.to_owned()))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.0)).into_response();
        if status == StatusCode::UNAUTHORIZED {
            // RFC 9110, 15.5.2.
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<MetaError> for ApiError {
    fn from(error: MetaError) -> ApiError {
        use MetaError as E;
        let code = match &error {
            E::Exists { .. } | E::NameTaken { .. } => ErrorCode::Exists,
            E::Attached { .. }
            | E::InUse { .. }
            | E::HasSnapshots { .. }
            | E::ClassInUse { .. }
            | E::ProjectInUse { .. } => ErrorCode::InUse,
            E::TooManyAttachments { .. }
            | E::TooManySnapshots { .. }
            | E::NotAttached { .. }
            | E::NodeAbsent { .. }
            | E::RemovalRefused { .. }
            | E::GroupsGivenUp { .. }
            | E::KeysRefused { .. }
            | E::KeyTaken { .. }
            | E::Removed { .. }
            | E::Ambiguous { .. } => ErrorCode::Conflict,
            E::Contended { .. } | E::KeyChanged { .. } | E::NoGroups { .. } | E::CutEnded { .. } => ErrorCode::TryAgain,
            E::NotFenced { .. } | E::NotStopped { .. } => ErrorCode::Timeout,
            E::NotFound { .. } | E::NoSnapshotThen { .. } | E::NoSuchSnapshot { .. } => ErrorCode::NotFound,
            E::InvalidName { .. }
            | E::InvalidSize { .. }
            | E::InvalidClass { .. }
            | E::InvalidSetting { .. }
            | E::InvalidProtection { .. }
            | E::InvalidLimits { .. }
            | E::InvalidGrant { .. }
            | E::InvalidProject { .. }
            | E::InvalidTarget { .. }
            | E::OtherProject { .. }
            | E::UnknownLogicalBlock { .. }
            | E::NotEncrypted { .. }
            | E::NotRewrapped { .. }
            | E::NotRotated { .. }
            | E::NotReserved { .. }
            | E::TooManyVolumes { .. }
            | E::ShrinkRefused { .. } => ErrorCode::Refused,
            E::NotEnoughDevices { .. } | E::Overcommit { .. } | E::Full | E::Quota { .. } | E::DrainRefused { .. } => {
                ErrorCode::NoRoom
            }
            E::NotNow { .. }
            | E::Etcd(EtcdError::Unreachable { .. } | EtcdError::Uncertain { .. } | EtcdError::Denied { .. }) => {
                ErrorCode::Unavailable
            }
            _ => ErrorCode::Internal,
        };
        ApiError::new(code, error.to_string(), error.hint())
    }
}

/// The code of a request that can't be taken, by the status that axum gives it.
fn code_of(status: StatusCode) -> ErrorCode {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::TooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ErrorCode::NotJson,
        StatusCode::UNPROCESSABLE_ENTITY => ErrorCode::Refused,
        _ => ErrorCode::Malformed,
    }
}

/// A request that changes something without saying that its body is JSON.
pub(super) fn not_json() -> ApiError {
    let message = "a request that changes something must have the header 'Content-Type: application/json'";
    let hint = "add the header, also where there is no body (curl -H 'Content-Type: application/json')".to_owned();
    ApiError::new(ErrorCode::NotJson, message, Some(hint))
}

/// A body that can't be read; what is wrong with it is told like every other error.
pub(super) fn bad_body(rejection: &JsonRejection) -> ApiError {
    // The text names the field, if the body could be read as JSON at all.
    let hint = match rejection {
        JsonRejection::JsonDataError(_) => {
            "correct the field that the error names; its words are those that a GET shows"
        }
        JsonRejection::JsonSyntaxError(_) => "the body is no JSON: look at the place that the error names",
        _ => "send a JSON object with the header 'Content-Type: application/json'",
    };
    ApiError::new(code_of(rejection.status()), rejection.body_text(), Some(hint.to_owned()))
}

/// A name in a URL's path that can't be read.
pub(super) fn bad_path(rejection: &PathRejection) -> ApiError {
    let hint = "names are letters, digits, '.', '_' and '-', and need no escapes in a URL".to_owned();
    ApiError::new(code_of(rejection.status()), rejection.body_text(), Some(hint))
}

/// A query that can't be read.
pub(super) fn bad_query(rejection: &QueryRejection) -> ApiError {
    ApiError::new(code_of(rejection.status()), rejection.body_text(), None)
}
