//! Times as people read them: RFC 3339, UTC, whole seconds.

/// Seconds since 1970 as text, such as `2026-01-31T09:30:00Z`.
#[must_use]
pub fn rfc3339_seconds(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// The day of a Gregorian date, counted from 1970-01-01; the inverse of what [`rfc3339_seconds`] does (same source,
/// `days_from_civil`). `None` for dates that do not exist or lie before 1970.
#[must_use]
pub fn day_number(year: u64, month: u64, day: u64) -> Option<u64> {
    let plausible = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let year_from_march = year.checked_sub(u64::from(month <= 2)).filter(|_| plausible)?;
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    (civil_from_days(days) == (year, month, day)).then_some(days)
}

/// The Gregorian date of a day counted from 1970-01-01 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms",
/// `civil_from_days`, for days after 1970): years begin in March, so that the leap day is the last of its year.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for (year, month, day) in [(1969, 12, 31), (2026, 2, 29), (2026, 13, 1), (2026, 0, 1), (2026, 4, 31)] {
            assert_eq!(day_number(year, month, day), None);
        }
    }
}
