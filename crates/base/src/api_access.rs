//! Who is listened to by the REST API.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Whether requests to the REST API need a grant (docs/decisions/0037-who-may.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ApiAccess {
    /// Whoever reaches the API and shows no token may everything; a token that is shown counts.
    #[default]
    Open,
    /// Only who proves a grant, and who comes through the node's own socket.
    Grants,
}

impl fmt::Display for ApiAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ApiAccess::Open => "open",
            ApiAccess::Grants => "grants",
        })
    }
}

/// There is no such access: the text says what there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiAccessError(String);

impl fmt::Display for ApiAccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no access to the API: open or grants", self.0)
    }
}

impl std::error::Error for ApiAccessError {}

impl FromStr for ApiAccess {
    type Err = ApiAccessError;

    fn from_str(text: &str) -> Result<ApiAccess, ApiAccessError> {
        let found = [ApiAccess::Open, ApiAccess::Grants].into_iter().find(|access| access.to_string() == text);
        found.ok_or_else(|| ApiAccessError(text.to_owned()))
    }
}
