//! Targets of several logical units (docs/formats/targets.md).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Unknown;

/// What a node's record says that it understands when it knows targets of several logical units. Versions before would
/// not serve them, and leave deleted volumes in them.
pub const TARGETS: &str = "targets";

/// A target of several logical units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetRecord {
    /// Its unique name, with its project before it where that is not the default one.
    pub name: String,
    /// The volumes that are its units, by their numbers (LUN).
    #[serde(default)]
    pub units: BTreeMap<u16, String>,
    /// No number from here on was ever given; those before are not given again.
    #[serde(default)]
    pub next: u16,
    /// Time of creation, RFC 3339.
    pub created: String,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// What the iSCSI names of volumes begin with, as targets of one logical unit.
pub const ISCSI_PREFIX: &str = "iqn.2026-01.io.azekura:";
/// What the iSCSI names of targets begin with whose logical units are volumes.
pub const ISCSI_UNITS_PREFIX: &str = "iqn.2026-01.io.azekura.targets:";
/// The longest iSCSI name, in bytes (RFC 7143 section 4.2.7.1).
pub const ISCSI_NAME_MAX: usize = 223;

/// A name behind a prefix, as an iSCSI name: what such can't have, as capital letters, `_`, and the `/` behind a
/// project, is written as `:` and two hexadecimal digits. `None` when that would be too long.
#[must_use]
pub fn iscsi_name(prefix: &str, name: &str) -> Option<String> {
    let mut target = prefix.to_owned();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' => target.push(char::from(byte)),
            _ => target.push_str(&format!(":{byte:02x}")),
        }
    }
    (target.len() <= ISCSI_NAME_MAX && !name.is_empty()).then_some(target)
}

/// The iSCSI name of a target; `None` when that would be too long.
#[must_use]
pub fn units_iscsi_name(name: &str) -> Option<String> {
    iscsi_name(ISCSI_UNITS_PREFIX, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_as_the_document_has_it() {
        let golden = include_str!("../tests/golden/target.json");
        let target: TargetRecord = serde_json::from_str(golden).unwrap();
        assert_eq!((target.units[&2].as_str(), target.next), ("accounts/ds3", 3));
        assert_eq!(format!("{}\n", serde_json::to_string_pretty(&target).unwrap()), golden);
        let document = include_str!("../../../docs/formats/targets.md");
        let shown: Vec<&str> = document.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        assert!(shown.join("\n").contains(golden.trim_end()), "docs/formats/targets.md shows another record");
    }
}
