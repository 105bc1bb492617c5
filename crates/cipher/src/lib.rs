//! What clients' bytes become before they leave the gateway of an encrypted volume (docs/decisions/0038).
//!
//! AES-256-XTS (IEEE 1619) in units of [`UNIT_SIZE`] bytes; a unit's tweak is its number in the volume, little-endian.
//! A unit of zeros in what copies hold was never written: it is zeros for the client, too, and not decrypted.
//!
//! A volume may have several keys ([`VolumeKeys`]), while one takes the place of another: each block says which it is.
//!
//! The block cipher is a library's, which takes many blocks at a time; the mode is here, because its libraries take one
//! at a time. It is compared with one of them, and with the standard's own vectors.

mod keys;
mod xts;

use azekura_base::KeyId;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use keys::{VolumeKeys, move_units};
pub use xts::{SameHalves, UNIT_SIZE, VolumeKey};

/// The keys that a node has, or why it has one not.
pub type Keyring = BTreeMap<KeyId, Result<Arc<VolumeKeys>, String>>;
