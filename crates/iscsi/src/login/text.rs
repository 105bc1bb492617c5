//! Keys and values (RFC 7143 section 6.1): `key=value`, each ended by a zero byte.

use std::fmt;

/// Bytes of text that one login or text request may have in all, over all PDUs that it goes on in.
pub const TEXT_MAX: usize = 16 << 10;
/// The longest key, in bytes (section 6.1).
const KEY_MAX: usize = 63;

/// Text that is no list of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadText;

impl fmt::Display for BadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text of a request is no list of keys and values")
    }
}

/// The keys and values of a text, in its order.
///
/// # Errors
/// When something is no key and value, or no text.
pub fn parse(text: &[u8]) -> Result<Vec<(&str, &str)>, BadText> {
    let text = std::str::from_utf8(text).map_err(|_| BadText)?;
    let pairs = text.split('\0').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').ok_or(BadText)?;
            let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b".-+@_/".contains(&byte);
            let is_good = !key.is_empty() && key.len() <= KEY_MAX && key.bytes().all(is_key);
            is_good.then_some((key, value)).ok_or(BadText)
        })
        .collect()
}

/// Puts a key and its value at the end of a text.
pub fn put(text: &mut Vec<u8>, key: &str, value: &str) {
    text.extend_from_slice(key.as_bytes());
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    text.push(0);
}

/// A number as section 6.1 has it: decimal, or hexadecimal behind `0x`.
#[must_use]
pub fn number(value: &str) -> Option<u32> {
    let (digits, radix) = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (value, 10),
    };
    let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    is_number.then(|| u32::from_str_radix(digits, radix).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!((number("262144"), number("0x40"), number("0")), (Some(262_144), Some(64), Some(0)));
        for none in ["", "0x", "+1", "-1", "1k", "4294967296"] {
            assert_eq!(number(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn what_was_put_is_read(pairs in proptest::collection::vec(("[A-Za-z.]{1,20}", "[ -~]{0,40}"), 0..8)) {
            let mut text = Vec::new();
            pairs.iter().for_each(|(key, value)| put(&mut text, key, value));
            let read: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            prop_assert_eq!(parse(&text), Ok(read));
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}
