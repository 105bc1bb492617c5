//! Bytes in the values of keys (RFC 7143 section 6.1): hexadecimal behind `0x`, base64 behind `0b`.

/// The longest value that is read, in bytes of what it stands for (section 12.1.3: CHAP_C and CHAP_R).
pub const BINARY_MAX: usize = 1024;

/// As hexadecimal digits, behind `0x`.
#[must_use]
pub fn write(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    bytes.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
    text
}

/// The bytes of a value; `None`: it is none, or stands for more than [`BINARY_MAX`].
#[must_use]
pub fn read(value: &str) -> Option<Vec<u8>> {
    let (kind, digits) = value.split_at_checked(2)?;
    let bytes = match kind {
        "0x" | "0X" => hexadecimal(digits.as_bytes()),
        "0b" | "0B" => base64(digits.as_bytes()),
        _ => None,
    };
    bytes.filter(|bytes| !bytes.is_empty() && bytes.len() <= BINARY_MAX)
}

fn hexadecimal(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    bytes.filter(|_| rest.is_empty())
}

/// The number of a digit (RFC 4648 section 4).
fn sextet(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

/// With its padding (RFC 4648 section 4), and with no bit behind the last byte.
fn base64(digits: &[u8]) -> Option<Vec<u8>> {
    let (groups, rest) = digits.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(groups.len() * 3);
    for (index, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|digit| **digit == b'=').count();
        if padding > 2 || padding > 0 && index + 1 < groups.len() {
            return None;
        }
        let mut number = 0;
        for digit in &group[..4 - padding] {
            number = number << 6 | sextet(*digit)?;
        }
        number <<= 6 * padding;
        let [_, all @ ..] = number.to_be_bytes();
        if all[3 - padding..].iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&all[..3 - padding]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By the examples of RFC 4648 section 10.
    #[test]
    fn base64_is_read_as_others_write_it() {
        for (value, bytes) in
            [("0bZg==", "f"), ("0bZm8=", "fo"), ("0BZm9v", "foo"), ("0bZm9vYg==", "foob"), ("0bZm9vYmFy", "foobar")]
        {
            assert_eq!(read(value).as_deref(), Some(bytes.as_bytes()), "{value}");
        }
        assert_eq!(read("0XfF00"), Some(vec![255, 0]));
        for none in [
            "",
            "0",
            "0x",
            "0b",
            "0x0",
            "0xfg",
            "ff",
            "5",
            "0bZg=",
            "0bZg",
            "0bZ===",
            "0b====",
            "0bZh==",
            "0bZg==Zg==",
            "0bZm 8",
            "0x+f",
            "ä0",
        ] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(bytes in proptest::collection::vec(any::<u8>(), 1..40)) {
            prop_assert_eq!(read(&write(&bytes)), Some(bytes.clone()));
            prop_assert_eq!(read(&write(&bytes).to_uppercase()), Some(bytes));
        }

        #[test]
        fn nothing_is_too_long(digits in 0..4000_usize) {
            let read = read(&format!("0x{}", "0".repeat(digits)));
            prop_assert_eq!(read.is_some(), digits > 0 && digits % 2 == 0 && digits <= 2 * BINARY_MAX);
        }

        #[test]
        fn no_value_does_harm(value in "(0[xXbB])?[ -~]{0,40}") {
            prop_assert!(read(&value).is_none_or(|bytes| bytes.len() <= value.len()));
        }
    }
}
