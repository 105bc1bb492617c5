//! The cluster's certificate authority: by what clients know its nodes.

use serde::{Deserialize, Serialize};

/// The authority that signs the nodes' certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AuthorityView {
    /// Its number; the first one is 1.
    pub number: u32,
    /// SHA-256 of its key's SubjectPublicKeyInfo, 64 hexadecimal digits.
    pub fingerprint: String,
    /// Its certificate, in PEM.
    pub certificate: String,
    /// When it was made, RFC 3339.
    pub created: String,
    /// Who has made it.
    pub by: String,
}

/// Which authority's key a node asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AuthorityQuery {
    /// Its number.
    pub number: u32,
}

/// An authority with its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AuthorityKey {
    /// Its certificate and its key (PKCS#8), one behind the other in PEM.
    pub pem: String,
}

/// Without the key.
impl std::fmt::Debug for AuthorityKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthorityKey")
    }
}
