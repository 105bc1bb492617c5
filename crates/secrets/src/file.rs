//! The KEK in a file on each node (docs/formats/data-keys.md).

use crate::{DataKey, KekMark, KeyPlace, KeyProvider, SecretsError, hex};
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use azekura_cipher::VolumeKey;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The longest file that is read, bytes: hundreds of versions.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a KEK.
const KEY_BYTES: usize = 32;
/// Bytes of what tells KEKs apart.
const MARK_BYTES: usize = 8;
/// Bytes of the tag.
const TAG_BYTES: usize = 16;

/// The KEK is in a file, which is read anew each time: who mends it need not start the node again, and no memory keeps
/// it.
#[derive(Clone, Debug)]
pub struct FileProvider {
    path: PathBuf,
}

/// The KEKs of a file, by version.
type Keks = BTreeMap<u32, Zeroizing<Vec<u8>>>;

impl FileProvider {
    /// The one with this file, which is not looked at yet.
    #[must_use]
    pub fn new(path: &Path) -> FileProvider {
        FileProvider { path: path.to_owned() }
    }

    /// Whether the file can be used.
    ///
    /// # Errors
    /// When it can't be read, others can read it, or there is something else in it.
    pub fn look(&self) -> Result<(), SecretsError> {
        self.newest().map(drop)
    }

    fn read(&self) -> Result<Keks, SecretsError> {
        let path = || self.path.clone();
        let unreadable = |error: std::io::Error| SecretsError::Unreadable { path: path(), reason: error.to_string() };
        let mut file = File::open(&self.path).map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        if meta.mode() & 0o077 != 0 {
            return Err(SecretsError::Open { path: path(), mode: meta.mode() & 0o7777 });
        }
        if meta.len() > FILE_BYTES_MAX || !meta.is_file() {
            let reason = format!("it is no file of at most {FILE_BYTES_MAX} bytes");
            return Err(SecretsError::Unreadable { path: path(), reason });
        }
        // What grows leaves its former place behind in memory.
        let mut text = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX as usize));
        file.by_ref().take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
        let mut keks = Keks::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let malformed = |reason| SecretsError::Malformed { path: path(), line: at + 1, reason };
            let (version, key) = line.split_once(' ').ok_or_else(|| malformed("there is no space in it"))?;
            let version: u32 = version
                .parse()
                .ok()
                .filter(|version| *version > 0)
                .ok_or_else(|| malformed("the version is no number from 1 on"))?;
            let key = hex::read(key.trim())
                .filter(|key| key.len() == KEY_BYTES)
                .ok_or_else(|| malformed("the key has not 64 hexadecimal digits"))?;
            if keks.insert(version, key).is_some() {
                return Err(malformed("the version was there before"));
            }
        }
        if keks.is_empty() { Err(SecretsError::Empty { path: path() }) } else { Ok(keks) }
    }

    fn newest(&self) -> Result<(u32, Zeroizing<Vec<u8>>), SecretsError> {
        self.read()?.pop_last().ok_or_else(|| SecretsError::Empty { path: self.path.clone() })
    }

    fn wrap_with(&self, version: u32, kek: &[u8], place: KeyPlace, key: &DataKey) -> Result<String, SecretsError> {
        let mut sealed = Zeroizing::new(Vec::with_capacity(VolumeKey::BYTES + TAG_BYTES));
        sealed.extend_from_slice(key.bytes());
        let nonce = gcm(kek)?.seal_in_place_append_tag(Aad::from(belongs(place)), &mut *sealed);
        let nonce = nonce.map_err(|_| SecretsError::NoRandomness)?;
        Ok(format!("{version}:{}{}", hex::write(nonce.as_ref()), hex::write(&sealed)))
    }
}

impl KeyProvider for FileProvider {
    fn name(&self) -> &'static str {
        "file"
    }

    fn wrap(&self, place: KeyPlace, key: &DataKey) -> Result<String, SecretsError> {
        let (version, kek) = self.newest()?;
        self.wrap_with(version, &kek, place, key)
    }

    fn unwrap(&self, place: KeyPlace, wrapped: &str) -> Result<DataKey, SecretsError> {
        let (version, sealed) = parts(wrapped)?;
        let keks = self.read()?;
        let kek = keks.get(&version).ok_or_else(|| SecretsError::NoVersion { path: self.path.clone(), version })?;
        let (nonce, sealed) =
            sealed.split_at_checked(NONCE_LEN).ok_or(SecretsError::Damaged { reason: "it is too short" })?;
        let nonce =
            Nonce::try_assume_unique_for_key(nonce).map_err(|_| SecretsError::Damaged { reason: "it has no nonce" })?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let opened = gcm(kek)?.open_in_place(nonce, Aad::from(belongs(place)), &mut sealed);
        let opened = opened.map_err(|_| SecretsError::WrongKey { path: self.path.clone(), version })?;
        DataKey::of(opened).ok_or(SecretsError::Damaged { reason: "the key in it has another length" })
    }

    fn rewrap(&self, place: KeyPlace, wrapped: &str) -> Result<Option<String>, SecretsError> {
        let (version, kek) = self.newest()?;
        if parts(wrapped)?.0 == version {
            return Ok(None);
        }
        let key = self.unwrap(place, wrapped)?;
        self.wrap_with(version, &kek, place, &key).map(Some)
    }

    fn keks(&self, cluster: u128) -> Result<Vec<KekMark>, SecretsError> {
        let mark = |kek: &[u8]| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, kek);
            let tag = hmac::sign(&key, &[&b"azekura kek mark"[..], &cluster.to_be_bytes()].concat());
            hex::write(&tag.as_ref()[..MARK_BYTES])
        };
        Ok(self.read()?.iter().map(|(version, kek)| KekMark { version: *version, mark: mark(kek) }).collect())
    }

    fn version(&self, wrapped: &str) -> Result<u32, SecretsError> {
        parts(wrapped).map(|(version, _)| version)
    }
}

fn gcm(kek: &[u8]) -> Result<RandomizedNonceKey, SecretsError> {
    RandomizedNonceKey::new(&AES_256_GCM, kek).map_err(|_| SecretsError::NoRandomness)
}

fn parts(wrapped: &str) -> Result<(u32, Vec<u8>), SecretsError> {
    let (version, sealed) = wrapped.split_once(':').ok_or(SecretsError::Damaged { reason: "it names no version" })?;
    let version = version.parse().map_err(|_| SecretsError::Damaged { reason: "its version is no number" })?;
    let sealed = hex::read(sealed).ok_or(SecretsError::Damaged { reason: "it is no hexadecimal number" })?;
    Ok((version, sealed.to_vec()))
}

/// What is authenticated beside the key.
fn belongs(place: KeyPlace) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..16].copy_from_slice(b"azekura data key");
    bytes[16..32].copy_from_slice(&place.cluster.to_be_bytes());
    bytes[32..].copy_from_slice(&place.key.0.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests;
