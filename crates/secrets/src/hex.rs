//! Bytes as hexadecimal digits.

use zeroize::Zeroizing;

pub(crate) fn write(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `None`: there is something else in it.
pub(crate) fn read(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    // It does not grow while it is filled: nothing is left behind in memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(pairs.len()));
    for [high, low] in pairs {
        bytes.push(digit(*high)? << 4 | digit(*low)?);
    }
    rest.is_empty().then_some(bytes)
}
