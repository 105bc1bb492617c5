//! What time it is; [`azekura_base::rfc3339_seconds`] writes it down.

use std::time::{SystemTime, UNIX_EPOCH};

/// The current time, such as `2026-01-31T09:30:00Z`.
#[must_use]
pub fn now_rfc3339() -> String {
    azekura_base::rfc3339_seconds(unix_seconds())
}

/// Seconds since 1970.
#[must_use]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Time since 1970: seconds, and nanoseconds beside them.
#[must_use]
pub fn unix_time() -> (u64, u32) {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or((0, 0), |since| (since.as_secs(), since.subsec_nanos()))
}
