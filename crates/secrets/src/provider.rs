//! What all that wrap data keys have in common.

use crate::DataKey;
use azekura_base::KeyId;
use std::path::PathBuf;
use std::time::Duration;

/// How long a provider waits at most for a network, for all that it is asked at once.
pub const PROVIDER_WAIT: Duration = Duration::from_secs(5);
/// Data keys that a provider is asked to unwrap at once at most.
pub const UNWRAPS_MAX: usize = 128;

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

/// Somebody who has a key to wrap data keys with. Each call may wait for as long as a file does, or for a network up to
/// [`PROVIDER_WAIT`].
pub trait KeyProvider: Send + Sync {
    /// Its name in records.
    fn name(&self) -> &'static str;

    /// Wraps a data key for a place, with the provider's newest key.
    ///
    /// # Errors
    /// When the provider's key is not to be had.
    fn wrap(&self, place: KeyPlace, key: &DataKey) -> Result<String, SecretsError>;

    /// Unwraps data keys, each of its place, at most [`UNWRAPS_MAX`]. The answers are in the order of what was asked:
    /// the error of one is that its record or its KEK is wrong.
    ///
    /// # Errors
    /// When nothing can be unwrapped: the provider's keys are not to be had.
    fn unwrap(&self, wrapped: &[(KeyPlace, &str)]) -> Result<Vec<Result<DataKey, SecretsError>>, SecretsError>;

    /// The provider's keys, the newest last, as a cluster tells them apart.
    ///
    /// # Errors
    /// When they are not to be had.
    fn keks(&self, cluster: u128) -> Result<Vec<KekMark>, SecretsError>;
}

/// Why a data key is not wrapped, or not unwrapped. None of it has secrets in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// A file is not to be had.
    #[error("{what} {} can't be read: {reason}", path.display())]
    Unreadable {
        /// What it is.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Others can read it.
    #[error(
        "{what} {} has mode {mode:04o}: others on this machine can read it, so it is not used. If nobody has, \
         'chmod 600 {}' is enough",
        path.display(), path.display()
    )]
    Open {
        /// What it is.
        what: &'static str,
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
    /// There is something else in the file that names keys.
    #[error(
        "the file of KMIP keys {}, line {line}: {reason}; a line is 'VERSION IDENTIFIER', the unique identifier that \
         the server gave the key", path.display()
    )]
    MalformedNames {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// There is no key at all.
    #[error("{from} names no key")]
    NoKeks {
        /// Who should have it.
        from: String,
    },
    /// Another version wrapped.
    #[error("{from} has no version {version}, which the volume's key is wrapped with")]
    NoVersion {
        /// Who should have it.
        from: String,
        /// The version.
        version: u32,
    },
    /// It did not open.
    #[error(
        "version {version} in {from} is not the key that the volume's key is wrapped with, or the record of that was \
         altered"
    )]
    WrongKey {
        /// Who has it.
        from: String,
        /// The version.
        version: u32,
    },
    /// The secret that was given can't be one.
    #[error(
        "the secret can't be used: {reason}; it is a passphrase of 12 to 1024 bytes, or 'azekura-key:' with 64 \
         hexadecimal digits"
    )]
    UnusableSecret {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The secret that was given opens nothing.
    #[error("the secret does not open the volume: {reason}")]
    WrongSecret {
        /// Why not.
        reason: &'static str,
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
    /// Nobody answers, or not in time.
    #[error("no answer from {from}: {reason}")]
    Away {
        /// Who was asked.
        from: String,
        /// Why not.
        reason: String,
    },
    /// Whoever was asked says no.
    #[error("{from} refuses: {reason}")]
    Refused {
        /// Who was asked.
        from: String,
        /// Why.
        reason: String,
    },
    /// What came is no answer to what was asked.
    #[error("{from} gives no answer that makes sense: {reason}")]
    Foreign {
        /// Who was asked.
        from: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An option or a certificate can't be used.
    #[error("{what}: {reason}")]
    Setup {
        /// What it is.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
}
