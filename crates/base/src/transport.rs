//! How the nodes of a cluster talk with each other.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Whether nodes prove their keys to each other and encrypt what they say (docs/decisions/0037-who-may.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Connections are made without TLS; one with it is taken as well.
    #[default]
    Plain,
    /// Connections are made with TLS; one without it is taken as well. The way from `plain` to `tls`, and back.
    Both,
    /// Only connections with TLS.
    Tls,
}

impl Transport {
    /// Nodes dial with TLS.
    #[must_use]
    pub fn dials_tls(self) -> bool {
        self != Transport::Plain
    }

    /// Who proves no key is refused.
    #[must_use]
    pub fn needs_tls(self) -> bool {
        self == Transport::Tls
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Plain => "plain",
            Transport::Both => "both",
            Transport::Tls => "tls",
        })
    }
}
