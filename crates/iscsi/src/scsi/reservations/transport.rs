//! TransportIDs of iSCSI (SPC-4 section 7.6.4): initiator ports by their names.

use super::super::sense::Sense;
use crate::names::NAME_MAX;
use azekura_model::RegistrantName;

/// PROTOCOL IDENTIFIER of iSCSI (section 7.6.1).
const ISCSI: u8 = 0x5;
/// FORMAT CODE: a name alone, which is any port of that initiator.
const NAME: u8 = 0x00;
/// FORMAT CODE: a name and an ISID, which is one port.
const PORT: u8 = 0x40;
/// What stands between a name and its ISID.
const ISID: &str = ",i,0x";
/// Bytes before the name.
const HEADER: usize = 4;
/// The fewest bytes behind these.
const NAME_BYTES_MIN: usize = 20;

/// The TransportID of a registrant. A host of NVMe has none in SCSI: hosts count what is listed, so it stands as a name
/// that no initiator has (0046).
pub(super) fn of(name: &RegistrantName) -> Vec<u8> {
    match name {
        RegistrantName::Iscsi { initiator, isid, .. } => bytes(PORT, &format!("{initiator}{ISID}{isid:012x}")),
        RegistrantName::Nvme { .. } => bytes(NAME, &name.to_string()),
    }
}

/// The name ends with a zero, and is filled up with more of these to a multiple of four bytes.
fn bytes(format: u8, name: &str) -> Vec<u8> {
    let len = (name.len() / 4 * 4 + 4).max(NAME_BYTES_MIN);
    let mut bytes = vec![format | ISCSI, 0];
    bytes.extend_from_slice(&(len as u16).to_be_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(HEADER + len, 0);
    bytes
}

/// Reads one that names a port of an initiator; `portal_group` is that of the target port which comes with it.
///
/// # Errors
/// INVALID FIELD IN PARAMETER LIST for all that names none.
pub(super) fn parse(bytes: &[u8], portal_group: u16) -> Result<RegistrantName, Sense> {
    port(bytes, portal_group).filter(RegistrantName::is_sound).ok_or(Sense::PARAMETER)
}

fn port(bytes: &[u8], portal_group: u16) -> Option<RegistrantName> {
    let (header, text) = bytes.split_first_chunk::<HEADER>()?;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // A name without an ISID is that of all ports of the initiator: nobody can say to which a reservation moves.
    if header[0] != PORT | ISCSI || len != text.len() || len < NAME_BYTES_MIN || !len.is_multiple_of(4) {
        return None;
    }
    let end = text.iter().position(|byte| *byte == 0)?;
    let (text, rest) = text.split_at(end);
    let (initiator, isid) = std::str::from_utf8(text).ok()?.split_once(ISID)?;
    let is_isid = isid.len() == 12 && isid.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_isid || initiator.len() > NAME_MAX || rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    let isid = u64::from_str_radix(isid, 16).ok()?;
    Some(RegistrantName::Iscsi { initiator: initiator.to_lowercase(), isid, portal_group })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(initiator: &str, isid: u64) -> RegistrantName {
        RegistrantName::Iscsi { initiator: initiator.to_owned(), isid, portal_group: 1 }
    }

    #[test]
    fn an_initiator_port_is_as_the_standard_has_it() {
        let mut expected = vec![0x45, 0, 0, 0x28];
        expected.extend_from_slice(b"iqn.2000-01.example:me,i,0x8001020300ff\0");
        assert_eq!(of(&host("iqn.2000-01.example:me", 0x8001_0203_00ff)), expected);
        assert_eq!(of(&host("a", 1)).len(), 24, "there are 20 bytes at least");
        let nvme = of(&RegistrantName::Nvme { host: 5 });
        assert_eq!(&nvme[..9], b"\x05\0\0\x28nvme:");
        assert_eq!(parse(&nvme, 1), Err(Sense::PARAMETER), "no port of an initiator");
    }

    #[test]
    fn what_names_no_port_is_refused() {
        let good = of(&host("iqn.a:b", 0x8001_0203_00ff));
        assert_eq!(parse(&good, 1), Ok(host("iqn.a:b", 0x8001_0203_00ff)));
        for (at, byte) in [(0, 0x05), (0, 0x46), (3, 0), (3, 24), (11, 0), (16, b'g'), (20, 0), (good.len() - 1, 1)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(bad != good && parse(&bad, 1).is_err(), "byte {at} is {byte:#x}");
        }
        assert_eq!(parse(&good[..good.len() - 1], 1), Err(Sense::PARAMETER));
    }

    proptest! {
        #[test]
        fn a_port_reads_back_as_itself(initiator in "[a-z0-9.:-]{1,223}", isid in 0..1_u64 << 48) {
            let name = host(&initiator, isid);
            let bytes = of(&name);
            prop_assert!(bytes.len().is_multiple_of(4) && bytes.len() >= 24);
            prop_assert_eq!(parse(&bytes, 1), Ok(name));
        }

        #[test]
        fn no_bytes_do_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..64), fits in any::<bool>()) {
            if fits && bytes.len() >= 4 {
                let len = (bytes.len() - 4) as u16;
                bytes[..2].copy_from_slice(&[0x45, 0]);
                bytes[2..4].copy_from_slice(&len.to_be_bytes());
            }
            if let Ok(name) = parse(&bytes, 1) {
                prop_assert!(name.is_sound());
            }
        }
    }
}
