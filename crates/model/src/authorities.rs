//! Certificate authorities of the cluster: by what clients know its nodes (docs/decisions/0037-who-may.md).

use serde::{Deserialize, Serialize};

use crate::Unknown;

/// A certificate authority, without its key, which nodes give each other. The one with the largest number signs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuthorityRecord {
    /// Its number; the first one is 1.
    pub number: u32,
    /// Its certificate, in PEM.
    pub certificate: String,
    /// The same key and name, signed by the authority before, in PEM: so clients that know that one trust this one.
    /// `None`: of the first, and where the one before is trusted no more, since a node was shut out that has its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_by_previous: Option<String>,
    /// When it was made, RFC 3339.
    pub created: String,
    /// Who has made it.
    pub by: String,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}
