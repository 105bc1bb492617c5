//! The audit: who has changed what.

use azekura_base::Role;
use serde::{Deserialize, Serialize};

/// Records of one answer, unless a number is given.
pub const AUDIT_PAGE: usize = 1_000;

/// Query of `GET /v1/audit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Only what was changed since then: a time, such as `2026-11-26T10:00:00Z`, `2 days ago` or `10:30`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Only what this grant has changed, by its name or number, or who is called so else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Only what stands behind this: `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most so many records, 1 to 1,000; 1,000 if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// A page of the audit, the oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AuditView {
    /// The records.
    pub records: Vec<AuditEntry>,
    /// The names of records that can't be read: damaged, or of a version that writes them otherwise.
    #[serde(default)]
    pub unreadable: Vec<String>,
    /// What the next page is asked for with; null: this was the last one.
    pub next: Option<String>,
}

/// Somebody has changed something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AuditEntry {
    /// When it was asked for, RFC 3339, with nanoseconds.
    pub at: String,
    /// The grant's name, or what he is known by else.
    pub who: String,
    /// By what he is known: `token`, `key`, `node`, `local` (the node's own socket) or `open` (nothing was asked).
    pub proof: String,
    /// The grant's number.
    pub grant: Option<String>,
    /// What he may.
    pub role: Role,
    /// Where from: an address, or the node's own socket.
    pub from: String,
    /// The node that was asked.
    pub node: String,
    /// What was asked for, by its name in this description.
    pub operation: String,
    /// The request's method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// What else the request said, without secrets.
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub details: serde_json::Value,
    /// The revision of the configuration that the change has made; if there were several, the last one.
    pub revision: i64,
}
