//! KEKs in memory, and what they wrap: for providers that have the keys themselves (docs/formats/data-keys.md).

use crate::{DataKey, KekMark, KeyPlace, SecretsError, hex};
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use azekura_cipher::VolumeKey;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// Bytes of a KEK.
pub(crate) const KEY_BYTES: usize = 32;
/// Bytes of what tells KEKs apart.
const MARK_BYTES: usize = 8;
/// Bytes of the tag.
const TAG_BYTES: usize = 16;

/// A provider's KEKs, by version.
pub(crate) struct Keks {
    /// Who had them, for errors: "the key file /etc/azekura/kek".
    pub(crate) from: String,
    pub(crate) keys: BTreeMap<u32, Zeroizing<Vec<u8>>>,
}

impl Keks {
    /// Wraps a data key with the newest.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn wrap(&self, place: KeyPlace, key: &DataKey) -> Result<String, SecretsError> {
        let (version, kek) =
            self.keys.last_key_value().ok_or_else(|| SecretsError::NoKeks { from: self.from.clone() })?;
        let mut sealed = Zeroizing::new(Vec::with_capacity(VolumeKey::BYTES + TAG_BYTES));
        sealed.extend_from_slice(key.bytes());
        let nonce = gcm(kek)?.seal_in_place_append_tag(Aad::from(belongs(place)), &mut *sealed);
        let nonce = nonce.map_err(|_| SecretsError::NoRandomness)?;
        Ok(format!("{version}:{}{}", hex::write(nonce.as_ref()), hex::write(&sealed)))
    }

    /// Unwraps a data key of a place.
    ///
    /// # Errors
    /// When its version is not there, or is not the key that wrapped.
    pub(crate) fn unwrap(&self, place: KeyPlace, wrapped: &str) -> Result<DataKey, SecretsError> {
        let (version, sealed) = parts(wrapped)?;
        let from = || self.from.clone();
        let kek = self.keys.get(&version).ok_or_else(|| SecretsError::NoVersion { from: from(), version })?;
        let (nonce, sealed) =
            sealed.split_at_checked(NONCE_LEN).ok_or(SecretsError::Damaged { reason: "it is too short" })?;
        let nonce =
            Nonce::try_assume_unique_for_key(nonce).map_err(|_| SecretsError::Damaged { reason: "it has no nonce" })?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let opened = gcm(kek)?.open_in_place(nonce, Aad::from(belongs(place)), &mut sealed);
        let opened = opened.map_err(|_| SecretsError::WrongKey { from: from(), version })?;
        DataKey::of(opened).ok_or(SecretsError::Damaged { reason: "the key in it has another length" })
    }

    /// What tells each from others, in this cluster.
    pub(crate) fn marks(&self, cluster: u128) -> Vec<KekMark> {
        let mark = |kek: &[u8]| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, kek);
            let tag = hmac::sign(&key, &[&b"azekura kek mark"[..], &cluster.to_be_bytes()].concat());
            hex::write(&tag.as_ref()[..MARK_BYTES])
        };
        self.keys.iter().map(|(version, kek)| KekMark { version: *version, mark: mark(kek) }).collect()
    }
}

/// The version that wrapped, and the rest: nonce, ciphertext and tag.
///
/// # Errors
/// When that is not in it.
pub(crate) fn parts(wrapped: &str) -> Result<(u32, Vec<u8>), SecretsError> {
    let (version, sealed) = wrapped.split_once(':').ok_or(SecretsError::Damaged { reason: "it names no version" })?;
    let version = version.parse().map_err(|_| SecretsError::Damaged { reason: "its version is no number" })?;
    let sealed = hex::read(sealed).ok_or(SecretsError::Damaged { reason: "it is no hexadecimal number" })?;
    Ok((version, sealed.to_vec()))
}

pub(crate) fn gcm(kek: &[u8]) -> Result<RandomizedNonceKey, SecretsError> {
    RandomizedNonceKey::new(&AES_256_GCM, kek).map_err(|_| SecretsError::NoRandomness)
}

/// What is authenticated beside the key, by all providers.
pub(crate) fn belongs(place: KeyPlace) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..16].copy_from_slice(b"azekura data key");
    bytes[16..32].copy_from_slice(&place.cluster.to_be_bytes());
    bytes[32..].copy_from_slice(&place.key.0.to_be_bytes());
    bytes
}
