//! The name of a key: what it is known by wherever it is listed.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// SHA-256 of a key's SubjectPublicKeyInfo (RFC 5280, 4.1.2.7), in DER. Its text is 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PeerKey(pub [u8; 32]);

impl PeerKey {
    /// Stands for a key where none is proved: in the simulator and in tests. Nobody has it.
    #[must_use]
    pub fn unproved(text: &str) -> PeerKey {
        let mut key = [0; 32];
        for (at, byte) in text.bytes().enumerate() {
            key[at % 32] ^= byte.rotate_left((at / 32) as u32);
        }
        PeerKey(key)
    }
}

/// The text is no key's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerKeyError;

impl fmt::Display for PeerKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key is named by 64 hexadecimal digits")
    }
}

impl std::error::Error for PeerKeyError {}

impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::hex32::write(&self.0, f)
    }
}

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerKey({self})")
    }
}

impl FromStr for PeerKey {
    type Err = PeerKeyError;

    fn from_str(text: &str) -> Result<PeerKey, PeerKeyError> {
        crate::hex32::read(text).map(PeerKey).ok_or(PeerKeyError)
    }
}

impl TryFrom<String> for PeerKey {
    type Error = PeerKeyError;

    fn try_from(text: String) -> Result<PeerKey, PeerKeyError> {
        text.parse()
    }
}

impl From<PeerKey> for String {
    fn from(key: PeerKey) -> String {
        key.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_text() {
        let key = PeerKey(std::array::from_fn(|at| (at * 9) as u8));
        assert_eq!(key.to_string().parse(), Ok(key));
        assert!(key.to_string().starts_with("0009121b"), "{key}");
        for nonsense in [String::new(), "0".repeat(63), "0".repeat(65), "g".repeat(64), "ä".repeat(32)] {
            assert_eq!(nonsense.parse::<PeerKey>(), Err(PeerKeyError), "{nonsense}");
        }
    }
}
