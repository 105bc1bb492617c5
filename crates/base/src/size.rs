//! Sizes as people write them: `10GiB`, `10G`, `512M`, `1.5T`, plain bytes.
//!
//! All units are powers of 1024, also `GB`: a volume's size that depends on who counts helps nobody.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

/// Text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeError {
    text: String,
    reason: parse_size::Error,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accepted = "write 10GiB, 10G, 512M, 1.5T, or a plain number of bytes (units are powers of 1024)";
        write!(f, "'{}' is not a size: {}; {accepted}", self.text, self.reason)
    }
}

impl std::error::Error for SizeError {}

/// Binary units, largest first.
const UNITS: [(char, u32); 5] = [('P', 50), ('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl Size {
    /// A size of this many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Size {
        Size(bytes)
    }

    /// Bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// As text that loses nothing: like `Display` where that is exact, else all bytes.
    #[must_use]
    pub fn exact(self) -> String {
        let text = self.to_string();
        if text.parse() == Ok(self) { text } else { format!("{} bytes", self.0) }
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Size, SizeError> {
        let parsed = parse_size::Config::new().with_binary().parse_size(text.trim());
        parsed.map(Size).map_err(|reason| SizeError { text: text.to_owned(), reason })
    }
}

impl fmt::Display for Size {
    /// The shortest text that people read easily: `10GiB`, `1.5TiB`, `512B`; at most two decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((letter, shift)) = UNITS.iter().find(|(_, shift)| self.0 >= 1 << shift) else {
            return f.pad(&format!("{}B", self.0));
        };
        let number = format!("{:.2}", self.0 as f64 / (1_u64 << shift) as f64);
        f.pad(&format!("{}{letter}iB", number.trim_end_matches('0').trim_end_matches('.')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("10GiB", 10 * GIB),
            ("10G", 10 * GIB),
            ("10g", 10 * GIB),
            ("10 GB", 10 * GIB),
            (" 1Gi ", GIB),
            ("512M", 512 << 20),
            ("64KiB", 64 << 10),
            ("1.5G", GIB + GIB / 2),
            ("0.25T", 256 * GIB),
            ("64TiB", 64 << 40),
            ("4096", 4096),
            ("4096B", 4096),
            ("0", 0),
            ("1e9", 1_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size() {
        for text in [
            "",
            " ",
            "G",
            "lots",
            "-1G",
            "1X",
            "1GiBs",
            "1.5.2G",
            ".5G",
            "0x10",
            "1,5G",
            "ⅣG",
            "99999999999999999999T",
            "16777216T",
            "1\u{130}",
        ] {
            let error = text.parse::<Size>().unwrap_err().to_string();
            assert!(error.contains("10GiB"), "{text}: {error}");
        }
    }

    #[test]
    fn shown_sizes() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (4096, "4KiB"),
            (10 * GIB, "10GiB"),
            (GIB + GIB / 2, "1.5GiB"),
            (GIB + 1, "1GiB"),
            (64 << 40, "64TiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!(Size(GIB).exact(), "1GiB");
        assert_eq!(Size(GIB + 4096).exact(), "1073745920 bytes");
        assert_eq!(format!("{:>8}", Size(4096)), "    4KiB");
    }
}
