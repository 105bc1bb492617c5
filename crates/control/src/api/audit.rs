//! The audit: what is noted of a request that changes something, and showing it (docs/formats/audit.md).

use azekura_api::endpoint::AuditShow;
use azekura_api::{AUDIT_PAGE, AuditEntry, AuditQuery, AuditView, Endpoint, ErrorCode};
use azekura_meta::cluster::{AuditPage, Audited, Deed};
use azekura_meta::time::{unix_seconds, unix_time};
use azekura_model::{AuditProof, AuditRecord, Unknown, audit_time};
use serde_json::{Map, Value};
use zeroize::Zeroize;

use super::Api;
use super::call::{Answer, Call};
use super::caller::Caller;
use super::error::ApiError;
use crate::attachments::node_name;
use crate::snapshots::when;

/// Of longer details the beginning is kept, bytes.
const DETAILS_BYTES_MAX: usize = 2_000;
/// How fields are called that have secrets, or how their names end.
const SECRETS: [&str; 3] = ["token", "secret", "password"];
/// What stands there instead.
const HIDDEN: &str = "…";

/// What is noted of somebody's request, if it changes something.
pub(super) fn record<E: Endpoint>(
    api: &Api,
    caller: &Caller,
    names: &E::Names,
    query: &E::Query,
    body: &E::Body,
) -> AuditRecord {
    let (seconds, nanos) = unix_time();
    let mut details = Map::new();
    for (name, said) in [("query", serde_json::to_value(query)), ("body", serde_json::to_value(body))] {
        let said = without_secrets(said.unwrap_or_default());
        if said.as_object().is_none_or(|fields| !fields.is_empty()) {
            details.insert(name.to_owned(), said);
        }
    }
    let target = E::target(names, query).unwrap_or_default();
    AuditRecord {
        at: audit_time(seconds, nanos),
        who: caller.name.clone(),
        proof: caller.proof,
        grant: caller.grant.map(|id| id.to_string()),
        role: caller.role,
        from: caller.door.to_string(),
        node: node_name(&api.meta.model(), api.node),
        operation: E::NAME.to_owned(),
        method: E::ROUTE.method.word().to_owned(),
        path: target.split('?').next().unwrap_or_default().to_owned(),
        details: short(details),
        unknown: Unknown::default(),
    }
}

/// Secrets do not come into the audit, wherever in a request they stand.
pub(super) fn without_secrets(said: Value) -> Value {
    match said {
        Value::Object(fields) => {
            let hide = |(name, value): (String, Value)| {
                let secret = SECRETS.iter().any(|word| name.to_ascii_lowercase().ends_with(word));
                let value = if secret && !value.is_null() { hidden(value) } else { without_secrets(value) };
                (name, value)
            };
            Value::Object(fields.into_iter().map(hide).collect())
        }
        Value::Array(values) => values.into_iter().map(without_secrets).collect(),
        other => other,
    }
}

/// What stands in a secret's place; its text is overwritten.
fn hidden(value: Value) -> Value {
    if let Value::String(mut text) = value {
        text.zeroize();
    }
    HIDDEN.into()
}

fn short(details: Map<String, Value>) -> Value {
    if details.is_empty() {
        return Value::Null;
    }
    let details = Value::Object(details);
    let text = details.to_string();
    if text.len() <= DETAILS_BYTES_MAX {
        return details;
    }
    let end = (0..=DETAILS_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    serde_json::json!({ "cut": text.get(..end) })
}

/// A line for the node's log, once a request is answered: also of one that was refused.
pub(super) fn log(deed: &Deed, status: u16) {
    let AuditRecord { who, role, from, operation, method, path, details, .. } = deed.record();
    let changed = deed.revision().map_or_else(|| "nothing changed".to_owned(), |at| format!("revision {at}"));
    let shown = if details.is_null() { String::new() } else { format!(" {details}") };
    tracing::info!(
        volume = named(path, "volumes").or_else(|| made(path, details)).map(|name| name.replace("%2F", "/")),
        group = named(path, "groups"),
        device = named(path, "devices"),
        "audit: {who} (role {role}) from {from}: {operation}, {method} {path}{shown}: {status}, {changed}"
    );
}

/// What a path names of this kind: `/v1/KIND/NAME…`.
fn named<'a>(path: &'a str, kind: &str) -> Option<&'a str> {
    let mut parts = path.split('/').skip(2);
    (parts.next() == Some(kind)).then(|| parts.next()).flatten()
}

/// The name of a volume that is to be made.
fn made<'a>(path: &str, details: &'a Value) -> Option<&'a str> {
    (path == "/v1/volumes").then(|| details.get("body")?.get("name")?.as_str()).flatten()
}

pub(super) fn word(proof: AuditProof) -> &'static str {
    match proof {
        AuditProof::Token => "token",
        AuditProof::Key => "key",
        AuditProof::Node => "node",
        AuditProof::Local => "local",
        AuditProof::Open => "open",
    }
}

fn entry(Audited { record, revision, .. }: Audited) -> AuditEntry {
    let AuditRecord { at, who, proof, grant, role, from, node, operation, method, path, details, .. } = record;
    let proof = word(proof).to_owned();
    AuditEntry { at, who, proof, grant, role, from, node, operation, method, path, details, revision }
}

pub(super) async fn show(Call { api, query, .. }: Call<AuditShow>) -> Answer<AuditShow> {
    let AuditQuery { since, who, after, limit } = query;
    let refused = |message: String, hint: &str| ApiError::new(ErrorCode::Refused, message, Some(hint.to_owned()));
    let limit = limit.unwrap_or(AUDIT_PAGE);
    if !(1..=AUDIT_PAGE).contains(&limit) {
        let message = format!("a page has 1 to {AUDIT_PAGE} records, not {limit}");
        return Err(refused(message, "ask for further pages with 'after'"));
    }
    let since = match since {
        Some(text) => {
            let hint = "write it as 2026-11-26T10:00:00Z, '2 days ago' or 10:30";
            let read = when::parse(&text, unix_seconds());
            // A record of that very second stands behind this.
            audit_time(read.ok_or_else(|| refused(format!("'{text}' is no time"), hint))?, 0)
        }
        None => String::new(),
    };
    let mut from = since.max(after.unwrap_or_default());
    let wanted = |found: &Audited| {
        who.as_ref().is_none_or(|who| found.record.who == *who || found.record.grant.as_ref() == Some(who))
    };
    let (mut records, mut unreadable) = (Vec::new(), Vec::new());
    loop {
        let AuditPage { records: page, unreadable: more, next } = api.meta.audit(&from, AUDIT_PAGE).await?;
        unreadable.extend(more);
        for found in page.into_iter().filter(wanted) {
            if records.len() == limit {
                // The others come with the next page.
                unreadable.retain(|name| *name < from);
                return Ok(AuditView { records, unreadable, next: Some(from) }.into());
            }
            from.clone_from(&found.name);
            records.push(entry(found));
        }
        match next {
            Some(next) => from = next,
            None => return Ok(AuditView { records, unreadable, next: None }.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_left_out_wherever_they_stand() {
        let said = json!({ "name": "a", "token": "x", "chap": [{ "Secret": "y", "user": "u" }], "in_password": "z", "secret": null });
        let left = json!({ "name": "a", "token": "…", "chap": [{ "Secret": "…", "user": "u" }], "in_password": "…", "secret": null });
        assert_eq!(without_secrets(said), left);
    }

    #[test]
    fn a_line_names_what_a_request_is_about() {
        assert_eq!(named("/v1/volumes/v1/resize", "volumes"), Some("v1"));
        assert_eq!(named("/v1/devices/3", "volumes"), None);
        assert_eq!(named("/v1/volumes", "volumes"), None);
        let details = json!({ "body": { "name": "v1" } });
        assert_eq!([made("/v1/volumes", &details), made("/v1/hosts", &details)], [Some("v1"), None]);
        assert_eq!(made("/v1/volumes", &Value::Null), None);
    }

    #[test]
    fn long_details_are_cut() {
        let details = |text: &str| short(Map::from_iter([("body".to_owned(), json!({ "names": text }))]));
        assert_eq!(details("ä"), json!({ "body": { "names": "ä" } }));
        let cut = details(&"ä".repeat(DETAILS_BYTES_MAX));
        let kept = cut["cut"].as_str().unwrap();
        assert!(kept.starts_with("{\"body\"") && (DETAILS_BYTES_MAX - 1..=DETAILS_BYTES_MAX).contains(&kept.len()));
        assert_eq!(short(Map::new()), Value::Null);
    }
}
