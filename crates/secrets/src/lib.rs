//! Data keys of encrypted volumes, and who wraps them (docs/decisions/0038-encrypted-volumes.md); and secrets that lie
//! in the configuration sealed ([`SealingKey`]).
//!
//! A [`DataKey`] lies in the configuration only wrapped, by a key (the KEK) that a [`KeyProvider`] has. A provider may
//! wait for files and networks: it belongs on a thread that may.
//!
//! - [`FileProvider`]: the KEK is in a file on each node.
//! - [`VaultProvider`]: the KEK is in Vault or OpenBao, and never leaves it.
//! - [`KmipProvider`]: the KEK is fetched from a KMIP server whenever it is needed.
//!
//! With none of them: [`VolumeSecret`], which whoever uses the volume brings.

mod csi;
mod data_key;
mod file;
mod hex;
mod keks;
mod kmip;
mod lines;
mod private_file;
mod provider;
mod sealed;
mod tls;
mod told;
mod vault;
mod versions;

pub use csi::{KEY_PREFIX, PASSPHRASE_MIN, VOLUME_SECRET_MAX, VolumeSecret};
pub use data_key::DataKey;
pub use file::FileProvider;
pub use kmip::{KmipOptions, KmipProvider};
pub use provider::{KekMark, KeyPlace, KeyProvider, PROVIDER_WAIT, SecretsError, UNWRAPS_MAX};
pub use sealed::{SEALING_KEY_BYTES, SealedError, SealingKey};
pub use vault::{VaultOptions, VaultProvider};
pub use versions::version_of;
