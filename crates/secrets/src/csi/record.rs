//! What a data key's record says of a secret that wraps it: how the KEK is made of it, and what that seals
//! (docs/formats/data-keys.md).

use crate::{SecretsError, hex};
use aws_lc_rs::aead::NONCE_LEN;
use azekura_cipher::VolumeKey;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::Split;

/// Bytes of the salt.
pub(super) const SALT_BYTES: usize = 16;
/// Bytes of the tag.
pub(super) const TAG_BYTES: usize = 16;
/// Bytes of nonce, ciphertext and tag.
const SEALED_BYTES: usize = NONCE_LEN + VolumeKey::BYTES + TAG_BYTES;

/// What a record may ask for: who alters records must not be able to have nodes work for minutes, or without memory.
const PASSES: RangeInclusive<u32> = 1..=16;
const LANES: RangeInclusive<u32> = 1..=16;
const MEMORY_KIB: RangeInclusive<u32> = 128..=256 << 10;

/// How the KEK is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Derivation {
    /// Of a passphrase, by argon2id (RFC 9106).
    Argon2id {
        /// Memory, KiB.
        memory_kib: u32,
        /// Passes over it.
        passes: u32,
        /// Lanes.
        lanes: u32,
    },
    /// Of a key, by HKDF with SHA-256 (RFC 5869).
    Hkdf,
}

/// A wrapped data key: `argon2id:KIB:PASSES:LANES:SALT:SEALED` or `hkdf-sha256:SALT:SEALED`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) derivation: Derivation,
    pub(super) salt: [u8; SALT_BYTES],
    /// Nonce, ciphertext and tag.
    pub(super) sealed: Vec<u8>,
}

impl Record {
    /// # Errors
    /// When it is none.
    pub(super) fn read(text: &str) -> Result<Record, SecretsError> {
        let damaged = |reason| SecretsError::Damaged { reason };
        let mut parts = text.split(':');
        let derivation = match parts.next() {
            Some("argon2id") => Derivation::Argon2id {
                memory_kib: number(&mut parts, MEMORY_KIB)?,
                passes: number(&mut parts, PASSES)?,
                lanes: number(&mut parts, LANES)?,
            },
            Some("hkdf-sha256") => Derivation::Hkdf,
            _ => return Err(damaged("it does not say how a key is made of the secret")),
        };
        let salt = parts.next().and_then(hex::read).and_then(|salt| salt.as_slice().try_into().ok());
        let sealed = parts.next().and_then(hex::read).filter(|sealed| sealed.len() == SEALED_BYTES);
        let salt = salt.ok_or_else(|| damaged("its salt has not 32 hexadecimal digits"))?;
        let sealed = sealed.ok_or_else(|| damaged("what is sealed has not 184 hexadecimal digits"))?;
        match parts.next() {
            None => Ok(Record { derivation, salt, sealed: sealed.to_vec() }),
            Some(_) => Err(damaged("something stands behind what is sealed")),
        }
    }
}

/// A number within bounds, written as numbers are.
fn number(parts: &mut Split<'_, char>, bounds: RangeInclusive<u32>) -> Result<u32, SecretsError> {
    let text = parts.next().unwrap_or_default();
    let read = text.parse().ok().filter(|number: &u32| number.to_string() == text && bounds.contains(number));
    read.ok_or(SecretsError::Damaged { reason: "its parameters of argon2id are none, or out of bounds" })
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.derivation {
            Derivation::Argon2id { memory_kib, passes, lanes } => write!(f, "argon2id:{memory_kib}:{passes}:{lanes}")?,
            Derivation::Hkdf => f.write_str("hkdf-sha256")?,
        }
        write!(f, ":{}:{}", hex::write(&self.salt), hex::write(&self.sealed))
    }
}
