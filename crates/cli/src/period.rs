//! Lengths of time that are only estimates.

/// About so many seconds: `40 s`, `2 min`, `3.5 h`.
pub fn about(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5_400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_as_people_read_them() {
        assert_eq!((about(12.4), about(130.0), about(9_000.0)), ("12 s".into(), "2 min".into(), "2.5 h".into()));
    }
}
