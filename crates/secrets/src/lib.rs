//! Data keys of encrypted volumes, and who wraps them (docs/decisions/0038-encrypted-volumes.md); and secrets that lie
//! in the configuration sealed ([`SealingKey`]).
//!
//! A [`DataKey`] lies in the configuration only wrapped, by a key (the KEK) that a [`KeyProvider`] has. A provider may
//! wait for files and networks: it belongs on a thread that may.
//!
//! - [`FileProvider`]: the KEK is in a file on each node.

mod data_key;
mod file;
mod hex;
mod provider;
mod sealed;

pub use data_key::DataKey;
pub use file::FileProvider;
pub use provider::{KekMark, KeyPlace, KeyProvider, SecretsError};
pub use sealed::{SEALING_KEY_BYTES, SealedError, SealingKey};
