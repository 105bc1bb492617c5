//! Times as people write them: `14:03:20`, `2026-01-31 14:03`, `2026-01-31T14:03:20Z`, `10 minutes ago`, `90s ago`.
//! All are UTC.

use azekura_base::day_number;

const DAY: u64 = 86_400;

/// Units of `… ago`: their first letters, and seconds.
const UNITS: [(&str, u64); 5] = [("weeks", 7 * DAY), ("days", DAY), ("hours", 3_600), ("minutes", 60), ("seconds", 1)];

/// The time, in seconds since 1970, that `text` means at `now`; `None`: it is none. A time of day without a date is the
/// last one that has been; a time that ends with minutes or seconds means all of that minute or second.
#[must_use]
pub fn parse(text: &str, now: u64) -> Option<u64> {
    let text = text.trim();
    if text == "now" {
        return Some(now);
    }
    if let Some(period) = text.strip_suffix("ago") {
        return now.checked_sub(period_seconds(period.trim())?);
    }
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (Some(date), Some(time.trim())),
        None if text.contains(':') => (None, Some(text)),
        None => (Some(text), None),
    };
    let second = time.map_or(Some(DAY - 1), second_of_day)?;
    match date {
        Some(date) => Some(day_of(date)? * DAY + second),
        None => {
            let today = now / DAY * DAY + second;
            // A minute that has just begun is meant, too.
            if today / 60 <= now / 60 { Some(today) } else { today.checked_sub(DAY) }
        }
    }
}

/// `10 minutes`, `10min`, `90s`, `1h`, `an hour`.
fn period_seconds(text: &str) -> Option<u64> {
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(0) => (1, text.strip_prefix("an ").or_else(|| text.strip_prefix("a "))?),
        Some(end) => (text[..end].parse().ok()?, &text[end..]),
        None => return None,
    };
    let unit = unit.trim();
    let (_, seconds) = UNITS.iter().find(|(name, _)| !unit.is_empty() && name.starts_with(unit))?;
    u64::checked_mul(number, *seconds)
}

/// `14:03` or `14:03:20`, as a second of the day.
fn second_of_day(text: &str) -> Option<u64> {
    let parts: Vec<u64> = text.split(':').map(two_digits).collect::<Option<_>>()?;
    let (hour, minute, second) = match parts[..] {
        [hour, minute] => (hour, minute, 59),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    (hour < 24 && minute < 60 && second < 60).then_some(hour * 3_600 + minute * 60 + second)
}

/// `2026-01-31`, as a day since 1970.
fn day_of(text: &str) -> Option<u64> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, two_digits(parts.next()?)?, two_digits(parts.next()?)?);
    let plain = year.len() == 4 && year.bytes().all(|byte| byte.is_ascii_digit()) && parts.next().is_none();
    day_number(year.parse().ok().filter(|_| plain)?, month, day)
}

fn two_digits(text: &str) -> Option<u64> {
    let plain = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_as_people_write_them() {
        // 2026-01-31T14:10:00Z
        let now = 1_769_868_600;
        for (text, ago) in [
            ("now", 0),
            ("14:03:20", 400),
            ("14:03", 361),
            ("14:10", -59),
            ("14:11:00", 86_340),
            ("2026-01-31T14:03:20Z", 400),
            ("2026-01-31 14:03:20", 400),
            ("2026-01-30 14:10:00", 86_400),
            ("2026-01-30", 51_001),
            ("10 minutes ago", 600),
            ("10 min ago", 600),
            ("10m ago", 600),
            ("90s ago", 90),
            ("1 hour ago", 3_600),
            ("an hour ago", 3_600),
            ("a day ago", 86_400),
            ("2w ago", 1_209_600),
        ] {
            assert_eq!(parse(text, now), now.checked_add_signed(-ago), "{text}");
        }
        for bad in [
            "",
            "ago",
            "m ago",
            "10 ago",
            "10 eons ago",
            "24:00",
            "14:60",
            "14",
            "14:3:200",
            "2026-02-30",
            "2026-1",
            "x",
            "2026-01-31T",
            "99999999999999999999 days ago",
            "9999999999 weeks ago",
            "before-upgrade",
            "ä ago",
            "+1:10",
        ] {
            assert_eq!(parse(bad, now), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[0-9aghmsdZT: ä-]{0,24}|.{0,12}", now in any::<u64>()) {
            let _ = parse(&text, now >> 20);
        }
    }
}
