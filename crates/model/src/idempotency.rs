//! Requests that may be sent again: what was asked under a key, and what was answered (docs/formats/idempotency.md).
//!
//! Its keys do not begin with [`crate::PREFIX`], so nodes neither follow them nor keep them in memory.

use serde::{Deserialize, Serialize};

use crate::Unknown;

/// Every record of a request starts with this; the day and a hash follow.
pub const IDEMPOTENCY_PREFIX: &str = "/azekura/idempotency/v1/";

/// So many requests are known at a time; further ones with a key are refused.
pub const IDEMPOTENCY_RECORDS_MAX: usize = 20_000;

/// Longest answer that is kept, bytes.
pub const IDEMPOTENT_ANSWER_BYTES_MAX: usize = 16 * 1024;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// A request that came with a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdempotencyRecord {
    /// SHA-256 of what was asked, 64 hexadecimal digits.
    pub asked: String,
    /// What was asked, by its name in the API's description.
    pub operation: String,
    /// Who has asked.
    pub who: String,
    /// The node that carries it out.
    pub node: String,
    /// When it was asked, RFC 3339, with nanoseconds.
    pub at: String,
    /// Seconds since 1970: until then nobody else carries it out.
    pub until: u64,
    /// What stands behind [`crate::AUDIT_PREFIX`] in the key of the audit's record of it. That is there when something
    /// was changed.
    pub audit: String,
    /// What was answered; nothing: it is being carried out, or the node has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<KeptAnswer>,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptAnswer {
    /// HTTP's status.
    pub status: u16,
    /// The body, if there was one.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub body: serde_json::Value,
    /// The body is not kept: it had a secret, or was too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
}

/// The day of a time in seconds since 1970, as it stands in keys: six digits.
#[must_use]
pub fn idempotency_day(seconds: u64) -> String {
    format!("{:06}", seconds / DAY_SECONDS)
}

/// The key of a request of this day.
#[must_use]
pub fn idempotency_key(day: &str, hash: &str) -> String {
    format!("{IDEMPOTENCY_PREFIX}{day}/{hash}")
}

/// The keys at which a request may stand that is asked for at this time: today's, yesterday's, and tomorrow's, since
/// the clock of the node that was asked first may be ahead.
#[must_use]
pub fn idempotency_keys(seconds: u64, hash: &str) -> [String; 3] {
    [seconds, seconds.saturating_sub(DAY_SECONDS), seconds + DAY_SECONDS]
        .map(|seconds| idempotency_key(&idempotency_day(seconds), hash))
}

/// Up to here, exclusive, all requests are older than a day.
#[must_use]
pub fn idempotency_end(seconds: u64) -> String {
    format!("{IDEMPOTENCY_PREFIX}{}", idempotency_day(seconds.saturating_sub(DAY_SECONDS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
    fn a_record_is_as_the_document_has_it() {
        let golden = include_str!("../tests/golden/idempotency.json");
        let record: IdempotencyRecord = serde_json::from_str(golden).unwrap();
        assert_eq!(record.answer.as_ref().map(|answer| (answer.status, answer.left_out)), Some((204, false)));
        assert_eq!(format!("{}\n", serde_json::to_string_pretty(&record).unwrap()), golden);
        let document = include_str!("../../../docs/formats/idempotency.md");
        let shown: Vec<&str> = document.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        assert!(shown.join("\n").ends_with(golden.trim_end()), "docs/formats/idempotency.md shows another record");
        assert!(document.contains(&idempotency_key(&idempotency_day(1_795_860_000), &"5e".repeat(32))));
    }

    #[test]
    fn a_request_is_known_for_a_day_at_least_and_for_two_at_most() {
        let hash = "5e".repeat(32);
        for made in [0, 1, DAY_SECONDS - 1, DAY_SECONDS, 20_785 * DAY_SECONDS + 7] {
            let key = idempotency_key(&idempotency_day(made), &hash);
            assert!(!key.starts_with(crate::PREFIX) && Key::parse(key.as_bytes()).is_none());
            for (later, known) in [(0, true), (DAY_SECONDS, true), (2 * DAY_SECONDS, false)] {
                let now = made + later;
                assert_eq!(idempotency_keys(now, &hash).contains(&key), known, "{made} {later}");
                assert_eq!(key < idempotency_end(now), !known, "{made} {later}");
            }
        }
    }
}
