//! Secrets that lie in the configuration sealed, so that who reads that has none of them
//! (docs/decisions/0053-hosts.md).

use crate::hex;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a key that seals.
pub const SEALING_KEY_BYTES: usize = 32;

/// A key that seals and opens (AES-256-GCM). Nothing prints it.
pub struct SealingKey(RandomizedNonceKey);

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey(…)")
    }
}

/// Why something is not sealed, or not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealedError {
    /// The system's source of randomness fails.
    #[error("the system gives no random numbers")]
    NoRandomness,
    /// It is nothing that was sealed.
    #[error("the sealed secret is no hexadecimal number with a nonce in it")]
    Malformed,
    /// Another key sealed it, or it belongs elsewhere, or was altered.
    #[error("the secret was sealed by another key or for another place, or was altered")]
    DoesNotOpen,
}

impl SealingKey {
    /// The one of these bytes.
    ///
    /// # Errors
    /// Never, but for a fault in a library.
    pub fn new(bytes: &[u8; SEALING_KEY_BYTES]) -> Result<SealingKey, SealedError> {
        RandomizedNonceKey::new(&AES_256_GCM, bytes).map(SealingKey).map_err(|_| SealedError::NoRandomness)
    }

    /// Seals a secret for a place, outside of which it does not open: hexadecimal digits of a nonce, the ciphertext and
    /// a tag.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn seal(&self, place: &[u8], secret: &[u8]) -> Result<String, SealedError> {
        let mut sealed = Zeroizing::new(Vec::with_capacity(secret.len() + AES_256_GCM.tag_len()));
        sealed.extend_from_slice(secret);
        let nonce = self.0.seal_in_place_append_tag(Aad::from(place), &mut *sealed);
        let nonce = nonce.map_err(|_| SealedError::NoRandomness)?;
        Ok(format!("{}{}", hex::write(nonce.as_ref()), hex::write(&sealed)))
    }

    /// Opens what was sealed for this place.
    ///
    /// # Errors
    /// When it is nothing that was, or not by this key, or for another place.
    pub fn open(&self, place: &[u8], sealed: &str) -> Result<Zeroizing<Vec<u8>>, SealedError> {
        let sealed = hex::read(sealed).ok_or(SealedError::Malformed)?;
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN).ok_or(SealedError::Malformed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealedError::Malformed)?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let opened = self.0.open_in_place(nonce, Aad::from(place), &mut sealed);
        opened.map(|opened| Zeroizing::new(opened.to_vec())).map_err(|_| SealedError::DoesNotOpen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(byte: u8) -> SealingKey {
        SealingKey::new(&[byte; SEALING_KEY_BYTES]).unwrap()
    }

    #[test]
    fn what_was_sealed_opens_in_its_place_alone() {
        let sealed = key(1).seal(b"here", b"a secret").unwrap();
        assert_eq!(sealed.len(), 2 * (12 + 8 + 16));
        assert_eq!(*key(1).open(b"here", &sealed).unwrap(), b"a secret");
        assert_ne!(key(1).seal(b"here", b"a secret").unwrap(), sealed, "each time with another nonce");
        assert_eq!(key(2).open(b"here", &sealed), Err(SealedError::DoesNotOpen));
        assert_eq!(key(1).open(b"there", &sealed), Err(SealedError::DoesNotOpen));
        assert_eq!(key(1).open(b"here", &sealed[2..]), Err(SealedError::DoesNotOpen));
        for none in ["", "00", "zz", &sealed[..22]] {
            assert_eq!(key(1).open(b"here", none), Err(SealedError::Malformed), "{none}");
        }
        assert_eq!(format!("{:?}", key(1)), "SealingKey(…)");
    }

    /// As another implementation of AES-256-GCM (Python's cryptography) seals it.
    #[test]
    fn what_was_sealed_before_opens() {
        let sealed = "000102030405060708090a0b6cf68c1c6b6cf92b0ec680ef66e2a295c7ebb7eee21cee9b58bf0950";
        assert_eq!(*key(7).open(b"place", sealed).unwrap(), b"twelve bytes");
    }

    proptest! {
        #[test]
        fn nothing_that_was_altered_opens(at in 0..72_usize, digit in "[0-9a-f]") {
            let sealed = key(1).seal(b"here", b"a secret").unwrap();
            let mut altered = sealed.clone();
            altered.replace_range(at..=at, &digit);
            prop_assert_eq!(key(1).open(b"here", &altered).is_ok(), altered == sealed);
        }
    }
}
