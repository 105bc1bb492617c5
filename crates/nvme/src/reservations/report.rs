//! Reservation Report's data (Base section 7.5.1): the Reservation Status Extended data structure. The other one, with
//! host identifiers of 64 bits, does not exist over fabrics.

use crate::fields::put_at;
use azekura_model::{RegistrantName, ReservationsRecord};

/// Bytes before the registrants, and of each of them.
const ENTRY_SIZE: usize = 64;
/// CNTLID of who has no controller that could be named: registrants here are hosts, and theirs are dynamic (Base
/// section 3.1.1).
const NO_CONTROLLER: u16 = 0xffff;
/// RCSTS bit 0: it holds the reservation.
const HOLDS: u8 = 1;

/// The whole structure. The caller cuts it where there is no more room.
#[must_use]
pub fn report(record: &ReservationsRecord) -> Vec<u8> {
    let mut bytes = vec![0; ENTRY_SIZE * (1 + record.registrants.len())];
    put_at(&mut bytes, 0, &record.generation.to_le_bytes());
    bytes[4] = record.reservation.as_ref().map_or(0, |held| held.kind.nvme());
    // REGCTL; there are not more than 256.
    put_at(&mut bytes, 5, &(record.registrants.len() as u16).to_le_bytes());
    // PTPLS: always.
    bytes[9] = 1;
    for (registrant, entry) in record.registrants.iter().zip(bytes[ENTRY_SIZE..].chunks_exact_mut(ENTRY_SIZE)) {
        put_at(entry, 0, &NO_CONTROLLER.to_le_bytes());
        entry[2] = if record.is_holder(&registrant.name) { HOLDS } else { 0 };
        put_at(entry, 8, &registrant.key.0.to_le_bytes());
        put_at(entry, 16, &host_id(&registrant.name));
    }
    bytes
}

/// HOSTID of a registrant. A nexus of iSCSI has none: hosts count and compare what is listed, so it stands with the
/// first 128 bits of its name's BLAKE3 hash.
fn host_id(name: &RegistrantName) -> [u8; 16] {
    match name {
        RegistrantName::Nvme { host } => host.to_be_bytes(),
        RegistrantName::Iscsi { .. } => {
            let mut id = [0; 16];
            id.copy_from_slice(&blake3::hash(name.to_string().as_bytes()).as_bytes()[..16]);
            id
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::VolumeId;
    use azekura_model::{REGISTRANTS_MAX, ReservationCommand, ReservationKind};

    const HOST: RegistrantName = RegistrantName::Nvme { host: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10 };

    fn port(isid: u64) -> RegistrantName {
        RegistrantName::Iscsi { initiator: "iqn.a:b".to_owned(), isid, portal_group: 1 }
    }

    fn record(commands: &[(RegistrantName, ReservationCommand)]) -> ReservationsRecord {
        commands.iter().enumerate().fold(ReservationsRecord::none(VolumeId(1)), |record, (id, (from, command))| {
            record.carry_out(from, command, id as u64).1.expect("it changes something")
        })
    }

    fn reserved(kind: ReservationKind) -> ReservationsRecord {
        record(&[
            (HOST, ReservationCommand::RegisterNew { new: 0x0807_0605_0403_0201 }),
            (port(1), ReservationCommand::Register { key: 0, new: 0xb2 }),
            (HOST, ReservationCommand::Reserve { key: 0x0807_0605_0403_0201, kind }),
        ])
    }

    /// As Linux's nvme_reservation_status_ext and nvme_registered_ctrl_ext have their fields.
    #[test]
    fn a_report_is_as_the_standard_has_it() {
        let nobody = report(&ReservationsRecord::none(VolumeId(1)));
        assert_eq!((nobody.len(), &nobody[..10]), (64, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..]));
        let bytes = report(&reserved(ReservationKind::ExclusiveAccessRegistrantsOnly));
        assert_eq!((bytes.len(), &bytes[..10]), (192, &[2, 0, 0, 0, 4, 2, 0, 0, 0, 1][..]));
        assert!(bytes[10..64].iter().all(|byte| *byte == 0));
        let (iscsi, nvme) = (&bytes[64..128], &bytes[128..192]);
        assert_eq!((&iscsi[..3], &iscsi[8..16]), (&[0xff, 0xff, 0][..], &0xb2_u64.to_le_bytes()[..]));
        assert_eq!((&nvme[..3], &nvme[8..16]), (&[0xff, 0xff, 1][..], &[1, 2, 3, 4, 5, 6, 7, 8][..]));
        assert_eq!(nvme[16..32], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], "as the host has sent it");
        assert!(iscsi[32..].iter().chain(&nvme[32..]).all(|byte| *byte == 0));
        assert!(host_id(&port(1)) != host_id(&port(2)) && host_id(&port(1)) != [0; 16]);
    }

    #[test]
    fn all_registrants_hold_what_is_of_all() {
        let bytes = report(&reserved(ReservationKind::WriteExclusiveAllRegistrants));
        assert_eq!((bytes[4], bytes[64 + 2], bytes[128 + 2]), (5, HOLDS, HOLDS));
    }

    #[test]
    fn the_longest_report_has_its_length() {
        let register = |isid| (port(isid), ReservationCommand::Register { key: 0, new: 1 });
        let bytes = report(&record(&(0..REGISTRANTS_MAX as u64).map(register).collect::<Vec<_>>()));
        assert_eq!((bytes.len(), &bytes[5..7]), (64 * 257, &256_u16.to_le_bytes()[..]));
    }
}
