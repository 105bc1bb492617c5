//! How registrants and their keys are called in a record.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest iSCSI name, bytes (RFC 7143 section 4.2.7.1).
const ISCSI_NAME_MAX: usize = 223;

/// Whose registration it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RegistrantName {
    /// An I_T nexus of iSCSI: an initiator port, and the target port that it has a session with.
    Iscsi {
        /// The initiator's name (IQN, EUI or NAA).
        initiator: String,
        /// The initiator's part of the session's identifier, 48 bits.
        isid: u64,
        /// The target's portal group.
        portal_group: u16,
    },
    /// A host of NVMe, whatever controllers it uses: its host identifier.
    Nvme {
        /// 128 bits, as the host has sent them, the first byte the most significant.
        host: u128,
    },
}

impl RegistrantName {
    /// Whether such a one can register: the name reads back as itself.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        match self {
            RegistrantName::Iscsi { initiator, isid, .. } => {
                let bad = |c: char| c == ',' || c.is_control() || c.is_whitespace();
                (1..=ISCSI_NAME_MAX).contains(&initiator.len()) && !initiator.contains(bad) && isid >> 48 == 0
            }
            // A host identifier of zero is nobody's (NVMe Base 2.0 section 8.19).
            RegistrantName::Nvme { host } => *host != 0,
        }
    }

    /// Whether both are the same initiator, at whatever target port.
    #[must_use]
    pub fn is_same_initiator(&self, other: &RegistrantName) -> bool {
        match (self, other) {
            (
                RegistrantName::Iscsi { initiator, isid, .. },
                RegistrantName::Iscsi { initiator: other, isid: other_isid, .. },
            ) => (initiator, isid) == (other, other_isid),
            _ => self == other,
        }
    }
}

impl fmt::Display for RegistrantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegistrantName::Iscsi { initiator, isid, portal_group } => {
                write!(f, "iscsi:{initiator},i,0x{isid:012x},t,0x{portal_group:04x}")
            }
            RegistrantName::Nvme { host } => write!(f, "nvme:{host:032x}"),
        }
    }
}

impl FromStr for RegistrantName {
    type Err = String;

    /// Each name has one spelling, so that nobody is registered twice.
    fn from_str(text: &str) -> Result<RegistrantName, String> {
        let name = match text.split_once(':') {
            Some(("iscsi", rest)) => {
                let parts: Vec<&str> = rest.split(',').collect();
                let [initiator, "i", isid, "t", group] = parts[..] else {
                    return Err(format!("'{text}' is not an iSCSI nexus"));
                };
                number(isid).zip(number(group).and_then(|group| u16::try_from(group).ok())).map(
                    |(isid, portal_group)| RegistrantName::Iscsi {
                        initiator: initiator.to_owned(),
                        isid,
                        portal_group,
                    },
                )
            }
            Some(("nvme", host)) => u128::from_str_radix(host, 16).ok().map(|host| RegistrantName::Nvme { host }),
            _ => None,
        };
        let name = name.filter(|name| name.is_sound() && name.to_string() == text);
        name.ok_or_else(|| format!("'{text}' names no registrant"))
    }
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

impl TryFrom<String> for RegistrantName {
    type Error = String;

    fn try_from(text: String) -> Result<RegistrantName, String> {
        text.parse()
    }
}

impl From<RegistrantName> for String {
    fn from(name: RegistrantName) -> String {
        name.to_string()
    }
}

/// 64 bits that stand in a record as 16 hexadecimal digits, since many readers of JSON lose bits of large numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hex64(pub u64);

impl fmt::Display for Hex64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl TryFrom<String> for Hex64 {
    type Error = String;

    fn try_from(text: String) -> Result<Hex64, String> {
        let value = u64::from_str_radix(&text, 16).ok().map(Hex64).filter(|value| value.to_string() == text);
        value.ok_or_else(|| format!("'{text}' is not 16 hexadecimal digits"))
    }
}

impl From<Hex64> for String {
    fn from(value: Hex64) -> String {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_spelling() {
        for good in
            ["iscsi:iqn.1993-08.org.debian:01:8f2,i,0x00023d000001,t,0x0001", "nvme:00112233445566778899aabbccddeeff"]
        {
            assert_eq!(good.parse::<RegistrantName>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "iscsi:",
            "iscsi:iqn.a,i,0x00023d000001,t,0x001",
            "iscsi:iqn.a,i,0x0023d000001,t,0x0001",
            "iscsi:iqn.a,i,0x1000000000000,t,0x0001",
            "iscsi:iqn.A,b,i,0x00023d000001,t,0x0001",
            "iscsi:,i,0x00023d000001,t,0x0001",
            "iscsi:iqn a,i,0x00023d000001,t,0x0001",
            "nvme:00000000000000000000000000000000",
            "nvme:00112233445566778899AABBCCDDEEFF",
            "fc:1",
        ] {
            assert!(bad.parse::<RegistrantName>().is_err(), "{bad}");
        }
        assert_eq!(Hex64::try_from("00000000000000ff".to_owned()), Ok(Hex64(255)));
        for bad in ["ff", "00000000000000FF", "+0000000000000ff", "00000000000000fg"] {
            assert!(Hex64::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
