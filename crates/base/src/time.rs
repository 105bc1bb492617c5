//! Times as people read them: RFC 3339, UTC, whole seconds.

use std::time::{Duration, UNIX_EPOCH};

/// The last second of the year 9999, the last that RFC 3339 can write.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Seconds since 1970 as text, such as `2026-01-31T09:30:00Z`; what is past the year 9999 as its last second.
#[must_use]
pub fn rfc3339_seconds(seconds: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds.min(SECONDS_MAX))).to_string()
}

/// Seconds since 1970 of such a text; `None`: it is no time, or one before.
#[must_use]
pub fn seconds_of_rfc3339(text: &str) -> Option<u64> {
    let time = humantime::parse_rfc3339(text).ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// The day of a Gregorian date, counted from 1970-01-01; the inverse of [`rfc3339_seconds`]. `None` for dates that do
/// not exist or lie before 1970.
#[must_use]
pub fn day_number(year: u64, month: u64, day: u64) -> Option<u64> {
    let midnight = humantime::parse_rfc3339(&format!("{year:04}-{month:02}-{day:02}T00:00:00Z")).ok()?;
    Some(midnight.duration_since(UNIX_EPOCH).ok()?.as_secs() / 86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for seconds in [0, 1, 1_770_000_000, SECONDS_MAX] {
            assert_eq!(seconds_of_rfc3339(&rfc3339_seconds(seconds)), Some(seconds));
        }
        for bad in ["", "now", "1969-12-31T23:59:59Z", "2026-01-31"] {
            assert_eq!(seconds_of_rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn known_times() {
        // `date -u -d @N +%FT%TZ`
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_827_696, "2000-02-29T12:34:56Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339_seconds(seconds), text);
            let part = |from: usize, to: usize| text[from..to].parse().unwrap();
            assert_eq!(day_number(part(0, 4), part(5, 7), part(8, 10)), Some(seconds / 86_400));
        }
        for (year, month, day) in
            [(1969, 12, 31), (2026, 2, 29), (2026, 13, 1), (2026, 0, 1), (2026, 4, 31), (10_000, 1, 1), (2026, 1, 100)]
        {
            assert_eq!(day_number(year, month, day), None);
        }
        for seconds in [SECONDS_MAX, SECONDS_MAX + 1, u64::MAX] {
            assert_eq!(rfc3339_seconds(seconds), "9999-12-31T23:59:59Z");
        }
    }
}
