//! What transit answers.

use crate::told::printable;
use serde::Deserialize;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// What was asked for.
#[derive(Deserialize)]
pub(super) struct Answer<T> {
    pub(super) data: T,
}

/// Why there is nothing.
#[derive(Deserialize)]
pub(super) struct Errors {
    #[serde(default)]
    errors: Vec<String>,
}

impl Errors {
    pub(super) fn text(&self) -> String {
        printable(&self.errors.join("; "))
    }
}

#[derive(Deserialize)]
pub(super) struct Wrapped {
    pub(super) ciphertext: String,
}

#[derive(Deserialize)]
pub(super) struct Batch {
    pub(super) batch_results: Vec<Unwrapped>,
}

/// One of a batch: what it is, or why not.
#[derive(Deserialize)]
pub(super) struct Unwrapped {
    #[serde(default)]
    pub(super) plaintext: Option<Secret>,
    #[serde(default)]
    pub(super) error: String,
}

/// Text that is overwritten when it is dropped.
pub(super) struct Secret(pub(super) Zeroizing<String>);

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        String::deserialize(deserializer).map(|text| Secret(Zeroizing::new(text)))
    }
}

/// What is told of a key.
#[derive(Deserialize)]
pub(super) struct Key {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) derived: bool,
    pub(super) latest_version: u32,
    /// When each version that may still unwrap was made.
    pub(super) keys: BTreeMap<u32, serde_json::Value>,
}
