//! Requests that may be sent again: the header `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header-07;
//! docs/formats/idempotency.md).

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use azekura_api::{Answer as _, Endpoint, ErrorCode, IDEMPOTENCY_KEY_HEADER, Method, Needs, REPLAYED_HEADER, Route};
use azekura_meta::cluster::{Claimed, Deed};
use azekura_model::{IDEMPOTENT_ANSWER_BYTES_MAX, IdempotencyRecord, KeptAnswer};
use serde_json::{Value, json};

use super::Api;
use super::audit;
use super::call::Answer;
use super::caller::Caller;
use super::error::ApiError;
use crate::proofs::hash_of_text;

/// Longest key, bytes.
const KEY_BYTES_MAX: usize = 255;

/// The key that a request brings: a string of RFC 8941 (section 3.3.3), or its characters alone.
///
/// # Errors
/// When there are several, or it can't be read.
pub(super) fn key(route: Route, headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut all = headers.get_all(IDEMPOTENCY_KEY_HEADER).iter();
    let Some(header) = all.next() else { return Ok(None) };
    let refused = |message: &str| {
        let hint =
            format!("send one key, such as a UUID, of at most {KEY_BYTES_MAX} characters of ASCII without spaces");
        ApiError::new(ErrorCode::Malformed, message, Some(hint))
    };
    if route.method == Method::Get {
        return Ok(None);
    }
    if !route.takes_idempotency_key() {
        let hint = "leave the header out".to_owned();
        return Err(ApiError::new(ErrorCode::Malformed, "this path takes no Idempotency-Key", Some(hint)));
    }
    if all.next().is_some() {
        return Err(refused("there are several headers Idempotency-Key"));
    }
    let text = header.to_str().unwrap_or_default().trim();
    let text = text.strip_prefix('"').map_or(Some(text), |rest| rest.strip_suffix('"')).unwrap_or_default();
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if text.is_empty() || text.len() > KEY_BYTES_MAX || !text.bytes().all(fits) {
        return Err(refused("the Idempotency-Key can't be read"));
    }
    Ok(Some(text.to_owned()))
}

/// A request that came with a key.
#[derive(Clone, Debug)]
pub(super) struct Once {
    /// Of whose key it is, and which.
    hash: String,
    /// Of what is asked.
    asked: String,
}

impl Once {
    /// What somebody asks with this key. Everybody has keys of his own.
    pub(super) fn new<E: Endpoint>(
        caller: &Caller,
        key: &str,
        names: &E::Names,
        query: &E::Query,
        body: &E::Body,
    ) -> Once {
        let owner = caller.grant.map_or_else(|| caller.name.clone(), |grant| grant.to_string());
        let body = audit::without_secrets(serde_json::to_value(body).unwrap_or_default());
        let asked = json!([E::ROUTE.method.word(), E::target(names, query).unwrap_or_default(), body]);
        let whose = json!([audit::word(caller.proof), owner, key]);
        Once { hash: hex(&whose), asked: hex(&asked) }
    }
}

fn hex(value: &Value) -> String {
    hash_of_text(&value.to_string()).0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a request is to be carried out: else what is answered.
pub(super) async fn begin<E: Endpoint>(api: &Api, deed: &Deed, once: &Once) -> Result<(), Response> {
    // What makes something new may not be repeated when it has changed something; all else comes to the same.
    let repeats = E::STATUS != StatusCode::CREATED.as_u16();
    match api.meta.claim(deed, &once.hash, &once.asked, repeats).await.map(instead) {
        Ok(None) => Ok(()),
        Ok(Some(response)) => Err(response),
        Err(error) => Err(ApiError::from(error).into_response()),
    }
}

/// An answer that was given before.
fn replayed(record: &IdempotencyRecord, KeptAnswer { status, body, left_out }: KeptAnswer) -> Response {
    let IdempotencyRecord { operation, at, .. } = record;
    if left_out {
        let message = format!(
            "{operation} was carried out, as it was asked for at {at}; what was answered is not kept: it had a secret, or was too long"
        );
        let hint = "look at what is there now; where a secret is lost, revoke what it belongs to, and make another one with another key";
        return ApiError::new(ErrorCode::Conflict, message, Some(hint.to_owned())).into_response();
    }
    let mut response = if body.is_null() { ().into_response() } else { Json(body).into_response() };
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
    response
}

/// What is answered to a request that is not carried out.
fn instead(claimed: Claimed) -> Option<Response> {
    let new = |code, message: String, hint: &str| ApiError::new(code, message, Some(hint.to_owned()));
    let refusal = match claimed {
        Claimed::Mine => return None,
        Claimed::Answered(record, answer) => return Some(replayed(&record, answer)),
        Claimed::Other(IdempotencyRecord { operation, at, .. }) => new(
            ErrorCode::Refused,
            format!("something else was asked with this Idempotency-Key at {at}: {operation}"),
            "take a new key for each request, and the same one for the same request alone",
        ),
        Claimed::Pending(IdempotencyRecord { operation, node, at, .. }) => new(
            ErrorCode::TryAgain,
            format!("{operation} with this Idempotency-Key is being carried out by {node}, since {at}"),
            "send it again in some seconds: if that node has ended, after 40 s",
        ),
        Claimed::Unanswered(IdempotencyRecord { operation, node, at, .. }) => new(
            ErrorCode::Conflict,
            format!(
                "{operation} with this Idempotency-Key has changed something at {at}, and {node} ended before it answered"
            ),
            "look at what is there now",
        ),
        Claimed::Unreadable => new(
            ErrorCode::Conflict,
            "the record of this Idempotency-Key can't be read".to_owned(),
            "look at what is there now, and take another key",
        ),
        Claimed::Full => new(
            ErrorCode::Unavailable,
            "there are too many requests with an Idempotency-Key: they are known for a day".to_owned(),
            "leave the header out, or wait",
        ),
    };
    Some(refusal.into_response())
}

/// How a request has ended.
pub(super) enum End {
    Answered(KeptAnswer),
    /// It was refused, or may be carried out once more.
    Refused,
    /// Nobody can know whether it was made, or not all of it was: whoever asks again is told when that is known.
    Uncertain,
}

impl End {
    pub(super) fn of<E: Endpoint>(deed: &Deed, outcome: &Answer<E>) -> End {
        match outcome {
            Ok(reply) => End::Answered(kept::<E>(reply.answer())),
            Err(error) => {
                let makes = E::STATUS == StatusCode::CREATED.as_u16();
                let changed = deed.revision().is_some() || error.is_uncertain();
                if makes && changed { End::Uncertain } else { End::Refused }
            }
        }
    }

    /// Notes it.
    pub(super) async fn note(self, api: &Api, deed: &Deed) {
        let noted = match self {
            End::Answered(answer) => api.meta.keep_answer(deed, answer).await,
            End::Refused => api.meta.give_key_back(deed).await.map_err(Into::into),
            End::Uncertain => Ok(()),
        };
        if let Err(error) = noted {
            tracing::warn!("API: how a request with an Idempotency-Key has ended is not noted: {error}");
        }
    }
}

/// What is kept of an answer: all of it, unless it has a secret or is too long.
fn kept<E: Endpoint>(answer: &E::Answer) -> KeptAnswer {
    let status = E::STATUS;
    if <E::Answer as azekura_api::Answer>::MEDIA_TYPE.is_none() {
        return KeptAnswer { status, body: Value::Null, left_out: false };
    }
    let bytes = answer.to_bytes().unwrap_or_default();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let left_out = body.is_null()
        || bytes.len() > IDEMPOTENT_ANSWER_BYTES_MAX
        || E::ROUTE.needs == Needs::Grants
        || audit::without_secrets(body.clone()) != body;
    KeptAnswer { status, body: if left_out { Value::Null } else { body }, left_out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::endpoint::{NodeJoin, VolumeDelete, VolumeList};

    fn read(keys: &[&str]) -> Result<Option<String>, ApiError> {
        let header = |key: &&str| (IDEMPOTENCY_KEY_HEADER.parse().unwrap(), HeaderValue::from_str(key).unwrap());
        key(VolumeDelete::ROUTE, &keys.iter().map(header).collect())
    }

    #[test]
    fn a_key_is_read_whole_or_not_at_all() {
        assert_eq!(read(&[]).unwrap(), None);
        for text in ["8e03978e-40d5-43dd", "\"8e03978e-40d5-43dd\""] {
            assert_eq!(read(&[text]).unwrap().as_deref(), Some("8e03978e-40d5-43dd"));
        }
        let long = "k".repeat(KEY_BYTES_MAX);
        assert_eq!(read(&[&long]).unwrap(), Some(long.clone()));
        let longer = long + "k";
        for wrong in
            [&["a", "b"][..], &[""], &["\"\""], &["\"a"], &["a\""], &["a b"], &["a\\b"], &["\"a\";p=1"], &[&longer]]
        {
            read(wrong).unwrap_err();
        }
        let headers: HeaderMap =
            [(IDEMPOTENCY_KEY_HEADER.parse().unwrap(), HeaderValue::from_static("a"))].into_iter().collect();
        assert_eq!(key(VolumeList::ROUTE, &headers).unwrap(), None, "to look changes nothing");
        key(NodeJoin::ROUTE, &headers).unwrap_err();
    }
}
