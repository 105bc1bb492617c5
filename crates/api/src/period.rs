//! Lengths of time as people write them: `90s`, `10m`, `2h`, `1d`.

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
        let refused = || format!("'{text}' is not a length of time; write 90s, 10m, 2h or 1d");
        let unit = text.chars().last().ok_or_else(refused)?;
        let (_, seconds) = UNITS.iter().find(|(letter, _)| *letter == unit).ok_or_else(refused)?;
        let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| refused())?;
        number.checked_mul(*seconds).map(Period).ok_or_else(refused)
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
        for bad in ["", "10", "m", "-1s", "1.5h", "10 m", "5w", "ä", "99999999999999999999d", "999999999999999999d"] {
            assert!(bad.parse::<Period>().is_err(), "{bad}");
        }
    }
}
