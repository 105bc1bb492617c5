//! What all that wrap data keys have in common.

use crate::DataKey;
use azekura_base::KeyId;
use std::path::PathBuf;

/// Where a wrapped key belongs: in another place it does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPlace {
    /// The cluster's number.
    pub cluster: u128,
    /// The key's.
    pub key: KeyId,
}

/// One of a provider's keys (KEKs), as it may be told: nothing of the key itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KekMark {
    /// Its version.
    pub version: u32,
    /// 16 hexadecimal digits that two keys have in common if they are the same, and the clusters are.
    pub mark: String,
}

/// Somebody who has a key to wrap data keys with. Each call may wait for as long as a file or a network does.
pub trait KeyProvider: Send + Sync {
    /// Its name in records.
    fn name(&self) -> &'static str;

    /// Wraps a data key for a place.
    ///
    /// # Errors
    /// When the provider's key is not to be had.
    fn wrap(&self, place: KeyPlace, key: &DataKey) -> Result<String, SecretsError>;

    /// Unwraps a data key of a place.
    ///
    /// # Errors
    /// When the provider's key is not to be had, or it is not the one that wrapped.
    fn unwrap(&self, place: KeyPlace, wrapped: &str) -> Result<DataKey, SecretsError>;

    /// Wraps a data key anew with the provider's newest key; `None`: it is wrapped with that one.
    ///
    /// # Errors
    /// As the other two.
    fn rewrap(&self, place: KeyPlace, wrapped: &str) -> Result<Option<String>, SecretsError>;

    /// The provider's keys, the newest last, as a cluster tells them apart.
    ///
    /// # Errors
    /// When they are not to be had.
    fn keks(&self, cluster: u128) -> Result<Vec<KekMark>, SecretsError>;

    /// The version of the key that wrapped a data key.
    ///
    /// # Errors
    /// When that is not in it.
    fn version(&self, wrapped: &str) -> Result<u32, SecretsError>;
}

/// Why a data key is not wrapped, or not unwrapped. None of it has secrets in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// The file is not to be had.
    #[error("the key file {} can't be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Others can read it.
    #[error(
        "the key file {} has mode {mode:04o}: others on this machine can read it, so it is not used. If nobody has, \
         'chmod 600 {}' is enough",
        path.display(), path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// There is something else in it.
    #[error("the key file {}, line {line}: {reason}; a line is 'VERSION HEX', 64 hexadecimal digits of key", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// There is no key in it.
    #[error("the key file {} holds no key; a line is 'VERSION HEX', 64 hexadecimal digits of key", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Another version wrapped.
    #[error("the key file {} has no version {version}, which the volume's key is wrapped with", path.display())]
    NoVersion {
        /// The file.
        path: PathBuf,
        /// The version.
        version: u32,
    },
    /// It did not open.
    #[error(
        "version {version} in the key file {} is not the key that the volume's key is wrapped with, or the record of \
         that was altered", path.display()
    )]
    WrongKey {
        /// The file.
        path: PathBuf,
        /// The version.
        version: u32,
    },
    /// The record has something else.
    #[error("the record of the volume's key is damaged: {reason}")]
    Damaged {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The system's source of randomness fails.
    #[error("the system gives no random numbers")]
    NoRandomness,
}
