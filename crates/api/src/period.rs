//! Lengths of time as people write them: `90s`, `10m`, `2h`, `1d`, `1h30m`.

use std::fmt;
use std::str::FromStr;

/// Units, the longest first: letter and seconds.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// A whole number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(pub u64);

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Period, String> {
        let refused = |reason: &dyn fmt::Display| {
            format!("'{text}' is not a length of time ({reason}); write 90s, 10m, 2h, 1d or 1h30m")
        };
        let period = humantime::parse_duration(text).map_err(|error| refused(&error))?;
        if period.subsec_nanos() == 0 {
            Ok(Period(period.as_secs()))
        } else {
            Err(refused(&"whole seconds are wanted"))
        }
    }
}

impl fmt::Display for Period {
    /// In the largest unit that is exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |(_, seconds): &&(char, u64)| self.0 >= *seconds && self.0.is_multiple_of(*seconds);
        let (letter, seconds) = UNITS.iter().find(exact).unwrap_or(&('s', 1));
        write!(f, "{}{letter}", self.0 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_as_people_write_them() {
        for (text, seconds, shown) in
            [("90s", 90, "90s"), ("10m", 600, "10m"), ("120m", 7_200, "2h"), ("1d", 86_400, "1d"), ("0s", 0, "0s")]
        {
            assert_eq!(text.parse(), Ok(Period(seconds)), "{text}");
            assert_eq!(Period(seconds).to_string(), shown);
        }
        for (text, seconds) in [("1h30m", 5_400), ("1.5h", 5_400), ("2 hours", 7_200), ("1w", 604_800)] {
            assert_eq!(text.parse(), Ok(Period(seconds)), "{text}");
        }
        for bad in ["", "10", "m", "-1s", "1.5s", "500ms", "ä", "99999999999999999999d", "999999999999999999d"] {
            let error = bad.parse::<Period>().unwrap_err();
            assert!(error.contains("90s"), "{bad}: {error}");
        }
    }
}
