//! The KEK that is made of a volume's own secret, which CSI hands over (docs/formats/data-keys.md).
//!
//! Unlike those of other providers it is not there to be asked for: whoever has the secret brings it, and it is
//! forgotten as soon as the data key is open.

use crate::keks::{KEY_BYTES, belongs, gcm};
use crate::{DataKey, KeyPlace, SecretsError, hex};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use aws_lc_rs::aead::{Aad, NONCE_LEN, Nonce};
use aws_lc_rs::{hkdf, rand};
use azekura_cipher::VolumeKey;
use std::fmt;
use zeroize::{Zeroize, Zeroizing};

mod record;

use record::{Derivation, Record, SALT_BYTES};

/// The shortest passphrase, bytes.
pub const PASSPHRASE_MIN: usize = 12;
/// The longest secret, bytes.
pub const VOLUME_SECRET_MAX: usize = 1024;
/// How a secret begins that is a key: 64 hexadecimal digits follow.
pub const KEY_PREFIX: &str = "azekura-key:";

/// What a key's KEK is made for (HKDF's info).
const KEK_INFO: &[u8] = b"azekura csi kek";

/// What a passphrase costs (RFC 9106, section 4, the second recommended option): 64 MiB, three passes, four lanes.
/// OWASP's least is 19 MiB and two passes. About 0.2 s of one core.
const COST: Derivation = Derivation::Argon2id { memory_kib: 64 << 10, passes: 3, lanes: 4 };

/// A volume's secret: a passphrase that somebody has thought up, or a key. Overwritten when it is dropped.
pub struct VolumeSecret(Form);

enum Form {
    Passphrase(Zeroizing<Vec<u8>>),
    Key(Zeroizing<Vec<u8>>),
}

impl fmt::Debug for VolumeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VolumeSecret(…)")
    }
}

type Kek = Zeroizing<[u8; KEY_BYTES]>;

impl VolumeSecret {
    /// The provider's name in records.
    pub const PROVIDER: &'static str = "csi";

    /// The secret of this text: `azekura-key:` with 64 hexadecimal digits is a key, anything else a passphrase. An end
    /// of line behind it does not count: files have one.
    ///
    /// # Errors
    /// When it is too short, or too long, or a key with another number of digits.
    pub fn read(text: &str) -> Result<VolumeSecret, SecretsError> {
        let unusable = |reason| SecretsError::UnusableSecret { reason };
        let text = text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
        if text.len() > VOLUME_SECRET_MAX {
            return Err(unusable("it has more than 1024 bytes"));
        }
        if let Some(digits) = text.strip_prefix(KEY_PREFIX) {
            let key = hex::read(digits).filter(|key| key.len() == KEY_BYTES);
            return Ok(VolumeSecret(Form::Key(key.ok_or_else(|| unusable("the key has not 64 hexadecimal digits"))?)));
        }
        if text.len() < PASSPHRASE_MIN {
            return Err(unusable("a passphrase has 12 bytes or more"));
        }
        Ok(VolumeSecret(Form::Passphrase(Zeroizing::new(text.as_bytes().to_vec()))))
    }

    /// Wraps a data key for a place. For a passphrase that takes some tenths of a second, and 64 MiB.
    ///
    /// # Errors
    /// When the system gives no random numbers, or not the memory.
    pub fn wrap(&self, place: KeyPlace, key: &DataKey) -> Result<String, SecretsError> {
        let derivation = match self.0 {
            Form::Passphrase(_) => COST,
            Form::Key(_) => Derivation::Hkdf,
        };
        self.wrap_at(derivation, place, key)
    }

    fn wrap_at(&self, derivation: Derivation, place: KeyPlace, key: &DataKey) -> Result<String, SecretsError> {
        let mut salt = [0; SALT_BYTES];
        rand::fill(&mut salt).map_err(|_| SecretsError::NoRandomness)?;
        let kek = self.kek(derivation, &salt)?;
        let mut sealed = Zeroizing::new(Vec::with_capacity(VolumeKey::BYTES + record::TAG_BYTES));
        sealed.extend_from_slice(key.bytes());
        let nonce = gcm(&*kek)?.seal_in_place_append_tag(Aad::from(belongs(place)), &mut *sealed);
        let nonce = nonce.map_err(|_| SecretsError::NoRandomness)?;
        let sealed = [&nonce.as_ref()[..], &sealed[..]].concat();
        Ok(Record { derivation, salt, sealed }.to_string())
    }

    /// Unwraps a data key of a place. It takes as long as the record says, within bounds.
    ///
    /// # Errors
    /// When the record is none, or the secret another one than that which wrapped.
    pub fn unwrap(&self, place: KeyPlace, wrapped: &str) -> Result<DataKey, SecretsError> {
        let Record { derivation, salt, sealed } = Record::read(wrapped)?;
        let mut sealed = Zeroizing::new(sealed);
        let kek = self.kek(derivation, &salt)?;
        let (nonce, sealed) = sealed.split_at_mut(NONCE_LEN);
        let nonce =
            Nonce::try_assume_unique_for_key(nonce).map_err(|_| SecretsError::Damaged { reason: "it has no nonce" })?;
        let opened = gcm(&*kek)?.open_in_place(nonce, Aad::from(belongs(place)), sealed);
        let wrong = "it is another one than that which the volume's key is wrapped with, or the record of that was \
                     altered";
        DataKey::of(opened.map_err(|_| SecretsError::WrongSecret { reason: wrong })?)
            .ok_or(SecretsError::Damaged { reason: "the key in it has another length" })
    }

    /// The KEK that comes of it.
    fn kek(&self, derivation: Derivation, salt: &[u8; SALT_BYTES]) -> Result<Kek, SecretsError> {
        let wrong = |reason| SecretsError::WrongSecret { reason };
        match (derivation, &self.0) {
            (Derivation::Argon2id { .. }, Form::Key(_)) => {
                Err(wrong("it is a key, and the volume's key is wrapped with a passphrase"))
            }
            (Derivation::Hkdf, Form::Passphrase(_)) => {
                Err(wrong("it is a passphrase, and the volume's key is wrapped with a key ('azekura-key:…')"))
            }
            (Derivation::Argon2id { memory_kib, passes, lanes }, Form::Passphrase(passphrase)) => {
                stretch(passphrase, salt, memory_kib, passes, lanes)
            }
            (Derivation::Hkdf, Form::Key(key)) => {
                let mut kek = Kek::default();
                let drawn = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(key);
                let filled = drawn.expand(&[KEK_INFO], hkdf::HKDF_SHA256).and_then(|drawn| drawn.fill(&mut *kek));
                filled.map(|()| kek).map_err(|_| SecretsError::NoRandomness)
            }
        }
    }
}

/// Argon2id (RFC 9106, version 0x13), in memory that is overwritten afterwards.
fn stretch(passphrase: &[u8], salt: &[u8], memory_kib: u32, passes: u32, lanes: u32) -> Result<Kek, SecretsError> {
    // Within the bounds of `Record::read` nothing of this fails.
    let failed = |_| SecretsError::Damaged { reason: "its parameters are none of argon2id's" };
    let parameters = Params::new(memory_kib, passes, lanes, Some(KEY_BYTES)).map_err(failed)?;
    let mut memory = vec![Block::default(); parameters.block_count()];
    let mut kek = Kek::default();
    let argon2id = Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters);
    let filled = argon2id.hash_password_into_with_memory(passphrase, salt, &mut *kek, &mut memory);
    memory.iter_mut().for_each(Zeroize::zeroize);
    filled.map(|()| kek).map_err(failed)
}

#[cfg(test)]
mod tests;
