//! The key of a volume, as it is drawn and unwrapped.

use crate::hex;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::fill;
use azekura_base::KeyId;
use azekura_cipher::VolumeKey;
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of the check value.
const CHECK_BYTES: usize = 16;

/// The key of a volume. It is overwritten when it is dropped, and nothing prints it.
pub struct DataKey(Zeroizing<[u8; VolumeKey::BYTES]>);

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(…)")
    }
}

impl DataKey {
    /// A new one, of the system's randomness.
    ///
    /// # Errors
    /// When that gives none.
    pub fn draw() -> Result<DataKey, crate::SecretsError> {
        let mut bytes = Zeroizing::new([0; VolumeKey::BYTES]);
        fill(&mut *bytes).map_err(|_| crate::SecretsError::NoRandomness)?;
        Ok(DataKey(bytes))
    }

    /// The one of these bytes; `None`: there are not as many as it has.
    pub(crate) fn of(bytes: &[u8]) -> Option<DataKey> {
        let mut key = Zeroizing::new([0; VolumeKey::BYTES]);
        (bytes.len() == key.len()).then(|| key.copy_from_slice(bytes))?;
        Some(DataKey(key))
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &*self.0
    }

    /// What tells it from others without telling it: 32 hexadecimal digits.
    #[must_use]
    pub fn check(&self, id: KeyId) -> String {
        hex::write(&self.tag(id)[..CHECK_BYTES])
    }

    /// Whether it is the key with this check value.
    #[must_use]
    pub fn has_check(&self, id: KeyId, check: &str) -> bool {
        let wanted = hex::read(check);
        wanted.is_some_and(|wanted| verify_slices_are_equal(&wanted, &self.tag(id)[..CHECK_BYTES]).is_ok())
    }

    fn tag(&self, id: KeyId) -> [u8; 32] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &*self.0), format!("azekura data key {id}").as_bytes());
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// Ready to encrypt with; `None`: its halves are equal, which no drawn one's are.
    #[must_use]
    pub fn cipher(&self) -> Option<VolumeKey> {
        VolumeKey::new(&self.0).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_tells_keys_apart_and_nothing_else() {
        let (one, two) = (DataKey::draw().unwrap(), DataKey::draw().unwrap());
        let check = one.check(KeyId(5));
        assert!(check.len() == 32 && one.has_check(KeyId(5), &check));
        assert!(!two.has_check(KeyId(5), &check) && !one.has_check(KeyId(6), &check));
        for damaged in ["", "00", &check[2..], &check.replace(|_: char| true, "x")] {
            assert!(!one.has_check(KeyId(5), damaged), "{damaged}");
        }
        assert!(one.cipher().is_some() && format!("{one:?}") == "DataKey(…)");
        assert!(DataKey::of(&[1; 63]).is_none() && DataKey::of(&[1; 64]).unwrap().cipher().is_none());
    }

    /// docs/formats/data-keys.md says how it is made.
    #[test]
    fn the_check_of_a_known_key() {
        let bytes: Vec<u8> = (0..64).collect();
        assert_eq!(DataKey::of(&bytes).unwrap().check(KeyId(5)), "ff33578023f91a98517dd25a8e6c8b51");
    }
}
