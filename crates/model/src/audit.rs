//! The audit: who has changed what (docs/formats/audit.md).
//!
//! Its keys do not begin with [`crate::PREFIX`], so nodes neither follow them nor keep them in memory.

use azekura_base::{Role, rfc3339_seconds};
use serde::{Deserialize, Serialize};

use crate::Unknown;

/// Every key of the audit starts with this; a time and a random number follow.
pub const AUDIT_PREFIX: &str = "/azekura/audit/v1/";

/// So many records stay; the oldest go.
pub const AUDIT_RECORDS_MAX: usize = 10_000;

/// By what somebody is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditProof {
    /// A grant's token.
    Token,
    /// A grant's key.
    Key,
    /// A node's key.
    Node,
    /// He has come through the node's own socket.
    Local,
    /// By nothing: the API was open.
    Open,
}

/// Somebody has changed the configuration. Written by the transaction that changes it, so its revision is that of the
/// change; if there were several, of the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// When it was asked for, RFC 3339, with nanoseconds: as in the key.
    pub at: String,
    /// The grant's name, or what he is known by else.
    pub who: String,
    /// By what he is known.
    pub proof: AuditProof,
    /// The grant's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// What he may.
    pub role: Role,
    /// Where from: an address, or the node's own socket.
    pub from: String,
    /// The node that was asked.
    pub node: String,
    /// What was asked for, by its name in the API's description.
    pub operation: String,
    /// The request's method.
    pub method: String,
    /// Its path, with names.
    pub path: String,
    /// What else the request said, without secrets.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub details: serde_json::Value,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// The time of a record, with nanoseconds, so that keys are in the order of time.
#[must_use]
pub fn audit_time(seconds: u64, nanos: u32) -> String {
    format!("{}.{nanos:09}Z", rfc3339_seconds(seconds).trim_end_matches('Z'))
}

/// The key of a record of this time.
#[must_use]
pub fn audit_key(at: &str, random: u64) -> String {
    format!("{AUDIT_PREFIX}{at}-{random:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
    fn a_record_is_as_the_document_has_it() {
        let golden = include_str!("../tests/golden/audit.json");
        let record: AuditRecord = serde_json::from_str(golden).unwrap();
        assert_eq!((record.proof, record.role), (AuditProof::Token, Role::User));
        assert_eq!(format!("{}\n", serde_json::to_string_pretty(&record).unwrap()), golden);
        let document = include_str!("../../../docs/formats/audit.md");
        let shown: Vec<&str> = document.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        assert!(shown.join("\n").ends_with(golden.trim_end()), "docs/formats/audit.md shows another record");
        assert!(document.contains(&audit_key(&record.at, 0x9f3c_5a17_02be_44d1)));
    }

    #[test]
    fn keys_are_in_the_order_of_time_and_no_nodes_business() {
        let keys =
            [(9, 999_999_999), (10, 0), (10, 7), (2_000_000_000, 1)].map(|(s, n)| audit_key(&audit_time(s, n), 5));
        assert!(keys.is_sorted(), "{keys:?}");
        assert!(!keys[0].starts_with(crate::PREFIX) && Key::parse(keys[0].as_bytes()).is_none());
    }
}
