//! Names that hosts give themselves: of iSCSI initiators (RFC 7143 section 4.2.7.1) and of NVMe hosts (NVMe Base 2.0
//! section 4.5).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest name, in bytes: of either kind.
pub const HOST_NAME_MAX: usize = 223;

/// How names of initiators begin.
const INITIATORS: [&str; 3] = ["iqn.", "eui.", "naa."];
/// How names of NVMe hosts begin.
const NVME: &str = "nqn.";

/// The name of a host, as a grant has it: an initiator's in lower case, an NVMe host's as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(Arc<str>);

/// What can't be a host's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostNameError;

impl fmt::Display for HostNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a host's name begins with 'iqn.', 'eui.' or 'naa.' (iSCSI) or with 'nqn.' (NVMe), and is at most \
             {HOST_NAME_MAX} characters of ASCII long, without spaces"
        )
    }
}

impl std::error::Error for HostNameError {}

impl HostName {
    /// The name that an initiator gives itself; `None`: no grant has such a name. Upper and lower case are the same
    /// (RFC 7143 section 4.2.7.2).
    #[must_use]
    pub fn of_initiator(text: &str) -> Option<HostName> {
        text.parse().ok().filter(|name: &HostName| !name.is_nvme())
    }

    /// The name that an NVMe host gives itself; `None`: no grant has such a name.
    #[must_use]
    pub fn of_nvme_host(text: &str) -> Option<HostName> {
        text.parse().ok().filter(HostName::is_nvme)
    }

    /// Whether it is an NVMe host's; else it is an initiator's.
    #[must_use]
    pub fn is_nvme(&self) -> bool {
        self.0.starts_with(NVME)
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<HostName, HostNameError> {
        let is_sound = text.len() <= HOST_NAME_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
        let begins = |prefix: &str| text.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix));
        let has_more = text.len() > NVME.len();
        if is_sound && has_more && text.starts_with(NVME) {
            return Ok(HostName(text.into()));
        }
        let is_initiator = is_sound && has_more && INITIATORS.iter().any(|prefix| begins(prefix));
        is_initiator.then(|| HostName(text.to_ascii_lowercase().into())).ok_or(HostNameError)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for HostName {
    type Error = HostNameError;

    fn try_from(text: String) -> Result<HostName, HostNameError> {
        text.parse()
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> String {
        name.0.as_ref().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_one_protocol() {
        let initiator = HostName::of_initiator("IQN.2000-01.Example:Me").unwrap();
        assert_eq!(initiator.as_str(), "iqn.2000-01.example:me");
        assert_eq!("iqn.2000-01.example:ME".parse(), Ok(initiator));
        assert_eq!(HostName::of_nvme_host("iqn.2000-01.example:me"), None);
        let host = HostName::of_nvme_host("nqn.2014-08.org.nvmexpress:uuid:AB").unwrap();
        assert_eq!(host.to_string(), "nqn.2014-08.org.nvmexpress:uuid:AB", "of these case counts");
        assert_eq!(HostName::of_initiator("nqn.2014-08.org.nvmexpress:uuid:AB"), None);
        assert!(HostName::of_initiator("eui.02004567A425678D").is_some() && HostName::of_initiator("naa.52").is_some());
    }

    #[test]
    fn what_is_no_name_is_none() {
        let long = format!("iqn.{}", "a".repeat(HOST_NAME_MAX - 4));
        assert!(long.parse::<HostName>().is_ok());
        for none in ["", "iqn.", "nqn.", "me", "NQN.2014-08.x:y", "iqn.a b", "iqn.a\n", "iqn.ä", "iq", &(long + "a")] {
            assert_eq!(none.parse::<HostName>(), Err(HostNameError), "{none}");
        }
    }
}
