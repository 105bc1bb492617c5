//! How the nodes of a cluster talk with each other.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Whether nodes prove their keys to each other and encrypt what they say (docs/decisions/0037-who-may.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
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

/// Nobody talks so: the text says what there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportError(String);

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no transport: plain, both or tls", self.0)
    }
}

impl std::error::Error for TransportError {}

impl FromStr for Transport {
    type Err = TransportError;

    fn from_str(text: &str) -> Result<Transport, TransportError> {
        let all = [Transport::Plain, Transport::Both, Transport::Tls];
        let found = all.into_iter().find(|transport| transport.to_string() == text);
        found.ok_or_else(|| TransportError(text.to_owned()))
    }
}
