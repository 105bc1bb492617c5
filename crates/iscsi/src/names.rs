//! Volumes' and targets' names as iSCSI names of targets (RFC 7143 section 4.2.7, RFC 3722).
//!
//! A volume as a target is called [`PREFIX`] and the volume's name, a target of several logical units [`UNITS_PREFIX`]
//! and its own name: no volume is mistaken for such a target. What an iSCSI name can't have, as capital letters, `_`,
//! the `/` behind a project, and the `@` of a snapshot, is written as `:` and two hexadecimal digits: names stay apart,
//! and can be read back.

use azekura_frontend::Nexus;
use azekura_model::{ISCSI_PREFIX, ISCSI_UNITS_PREFIX, RegistrantName, iscsi_name};

/// What the names of volumes as targets begin with.
pub const PREFIX: &str = ISCSI_PREFIX;
/// What the names of targets begin with whose logical units are volumes.
pub const UNITS_PREFIX: &str = ISCSI_UNITS_PREFIX;
/// The longest iSCSI name, in bytes (RFC 7143 section 4.2.7.1).
pub const NAME_MAX: usize = azekura_model::ISCSI_NAME_MAX;

/// The target of the volume `name`; `None` when that would be too long.
#[must_use]
pub fn target_name(name: &str) -> Option<String> {
    iscsi_name(PREFIX, name)
}

/// The iSCSI name of the target `name`, whose logical units are volumes; `None` when that would be too long.
#[must_use]
pub fn units_name(name: &str) -> Option<String> {
    iscsi_name(UNITS_PREFIX, name)
}

/// The volume of a target's name; `None` when it names none of this cluster's.
#[must_use]
pub fn volume_name(target: &str) -> Option<String> {
    read_back(PREFIX, target)
}

/// The target whose logical units are volumes, of an iSCSI name; `None` when it names none of this cluster's.
#[must_use]
pub fn units_of(target: &str) -> Option<String> {
    read_back(UNITS_PREFIX, target)
}

fn read_back(prefix: &str, target: &str) -> Option<String> {
    let target = target.to_ascii_lowercase();
    let mut bytes = target.strip_prefix(prefix)?.bytes();
    let mut name = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b':' {
            name.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
        name.push((high << 4 | low) as u8);
    }
    String::from_utf8(name).ok().filter(|name| !name.is_empty())
}

/// The nexus of a session: the names of the initiator's port and of the target's (RFC 7143 section 4.4.1, SPC-4 section
/// 7.6.4.4). Of names, upper and lower case are the same; `target` is an iSCSI name.
#[must_use]
pub fn nexus(initiator: &str, isid: [u8; 6], target: &str, portal_group: u16) -> Nexus {
    let isid = isid.map(|byte| format!("{byte:02x}")).concat();
    let initiator = initiator.to_lowercase();
    format!("{initiator},i,0x{isid} {target},t,{portal_group:#06x}").into()
}

/// The same nexus, as it registers with a volume.
#[must_use]
pub fn registrant(initiator: &str, isid: [u8; 6], portal_group: u16) -> RegistrantName {
    let isid = isid.iter().fold(0, |isid, byte| isid << 8 | u64::from(*byte));
    RegistrantName::Iscsi { initiator: initiator.to_lowercase(), isid, portal_group }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_need_no_care_are_kept() {
        assert_eq!(target_name("vm-1.disk").as_deref(), Some("iqn.2026-01.io.azekura:vm-1.disk"));
        assert_eq!(target_name("A@b").as_deref(), Some("iqn.2026-01.io.azekura::41:40b"));
        assert_eq!(target_name("accounts/vm7").as_deref(), Some("iqn.2026-01.io.azekura:accounts:2fvm7"));
        assert_eq!(volume_name("IQN.2026-01.io.azekura:vm-1"), Some("vm-1".to_owned()));
        for none in ["", "iqn.2026-01.io.azekura:", "iqn.2026-01.io.azekura:a:4", "iqn.2026-01.io.other:a"] {
            assert_eq!(volume_name(none), None, "{none}");
        }
        assert_eq!(target_name(&"_".repeat(100)), None, "it would be too long");
    }

    #[test]
    fn a_nexus_has_both_ports_in_it() {
        let of = |initiator: &str| nexus(initiator, [0x80, 1, 2, 3, 0, 0xff], "iqn.2026-01.io.azekura:vol1", 1);
        let mine = "iqn.2000-01.example:me,i,0x8001020300ff iqn.2026-01.io.azekura:vol1,t,0x0001";
        assert_eq!(&*of("iqn.2000-01.example:me"), mine);
        assert_eq!(of("IQN.2000-01.Example:me"), of("iqn.2000-01.example:me"));
        assert_ne!(of("iqn.2000-01.example:you"), of("iqn.2000-01.example:me"));
    }

    proptest! {
        #[test]
        fn a_target_names_its_volume(name in "[A-Za-z0-9._@/-]{1,60}") {
            let target = target_name(&name).expect("it is short");
            prop_assert!(target.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:".contains(&byte)));
            prop_assert_eq!(volume_name(&target), Some(name.clone()));
            prop_assert_eq!(units_of(&target), None);
            let units = units_name(&name).expect("it is short");
            prop_assert_eq!((volume_name(&units), units_of(&units)), (None, Some(name)));
        }

        #[test]
        fn no_name_does_harm(target in ".*") {
            let _ = volume_name(&target);
            let _ = volume_name(&format!("{PREFIX}{target}"));
            let _ = units_of(&format!("{UNITS_PREFIX}{target}"));
        }
    }
}
