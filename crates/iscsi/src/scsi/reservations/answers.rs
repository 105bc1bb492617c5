//! What PERSISTENT RESERVE IN is answered with (SPC-4 sections 6.15.2 to 6.15.5).

use super::{Question, SCOPE_OF_UNIT, transport};
use azekura_model::{RegistrantName, ReservationKind, ReservationsRecord};

/// The answer to a question that needs the record. It is whole: the caller cuts it where there is no more room.
#[must_use]
pub fn answer(question: Question, record: &ReservationsRecord) -> Vec<u8> {
    let generation = record.generation;
    match question {
        Question::Capabilities => capabilities(),
        Question::Keys => listed(generation, record.registrants.iter().flat_map(|one| one.key.0.to_be_bytes())),
        Question::Reservation => listed(generation, reservation(record)),
        Question::FullStatus => {
            let all = record.registrants.iter().flat_map(|one| full_status(record, &one.name, one.key.0));
            listed(generation, all)
        }
    }
}

/// PRGENERATION, ADDITIONAL LENGTH, and what follows.
fn listed(generation: u32, rest: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let mut bytes = [generation.to_be_bytes(), [0; 4]].concat();
    bytes.extend(rest);
    let len = (bytes.len() - 8) as u32;
    bytes[4..8].copy_from_slice(&len.to_be_bytes());
    bytes
}

fn scope_and_type(kind: ReservationKind) -> u8 {
    SCOPE_OF_UNIT << 4 | kind.scsi()
}

/// READ RESERVATION's descriptor, if there is one. Where all registrants hold it, its key is 0 (section 6.15.3.2).
fn reservation(record: &ReservationsRecord) -> Vec<u8> {
    let Some(held) = &record.reservation else { return Vec::new() };
    let key = held.holder.as_ref().and_then(|holder| record.key_of(holder)).unwrap_or(0);
    let mut bytes = vec![0; 16];
    bytes[..8].copy_from_slice(&key.to_be_bytes());
    bytes[13] = scope_and_type(held.kind);
    bytes
}

/// READ FULL STATUS's descriptor of one registrant (section 6.15.5).
fn full_status(record: &ReservationsRecord, name: &RegistrantName, key: u64) -> Vec<u8> {
    const R_HOLDER: u8 = 0x01;
    let port = match name {
        RegistrantName::Iscsi { portal_group, .. } => *portal_group,
        RegistrantName::Nvme { .. } => 0,
    };
    let id = transport::of(name);
    let mut bytes = vec![0; 24];
    bytes[..8].copy_from_slice(&key.to_be_bytes());
    if let Some(held) = record.reservation.as_ref().filter(|_| record.is_holder(name)) {
        (bytes[12], bytes[13]) = (R_HOLDER, scope_and_type(held.kind));
    }
    bytes[18..20].copy_from_slice(&port.to_be_bytes());
    bytes[20..24].copy_from_slice(&(id.len() as u32).to_be_bytes());
    bytes.extend(id);
    bytes
}

/// REPORT CAPABILITIES (section 6.15.4): all kinds; what is registered outlives a loss of power, always.
#[must_use]
pub fn capabilities() -> Vec<u8> {
    const PTPL_C: u8 = 0x01;
    const TMV: u8 = 0x80;
    // ALLOW COMMANDS 001b: TEST UNIT READY goes through whatever is reserved.
    const ALLOWS: u8 = 0x10;
    const PTPL_A: u8 = 0x01;
    let kinds = (0..16).filter_map(ReservationKind::from_scsi).map(ReservationKind::scsi);
    // Byte 4 has kinds 0 to 7, byte 5 those from 8 on.
    let types = kinds.fold(0_u16, |types, code| types | 1 << code).to_le_bytes();
    vec![0, 8, PTPL_C, TMV | ALLOWS | PTPL_A, types[0], types[1], 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::VolumeId;
    use azekura_model::{REGISTRANTS_MAX, ReservationCommand};

    fn port(isid: u64) -> RegistrantName {
        RegistrantName::Iscsi { initiator: "iqn.a:b".to_owned(), isid, portal_group: 1 }
    }

    fn record(commands: &[(RegistrantName, ReservationCommand)]) -> ReservationsRecord {
        let mut record = ReservationsRecord::none(VolumeId(1));
        for (id, (from, command)) in commands.iter().enumerate() {
            record = record.carry_out(from, command, id as u64).1.unwrap();
        }
        record
    }

    fn reserved(kind: ReservationKind) -> ReservationsRecord {
        record(&[
            (port(1), ReservationCommand::Register { key: 0, new: 0xa1 }),
            (RegistrantName::Nvme { host: 5 }, ReservationCommand::RegisterNew { new: 0xb2 }),
            (port(1), ReservationCommand::Reserve { key: 0xa1, kind }),
        ])
    }

    #[test]
    fn answers_are_as_the_standard_has_them() {
        let nobody = ReservationsRecord::none(VolumeId(1));
        for question in [Question::Keys, Question::Reservation, Question::FullStatus] {
            assert_eq!(answer(question, &nobody), [0; 8]);
        }
        let one = reserved(ReservationKind::WriteExclusiveRegistrantsOnly);
        let keys = [&[0, 0, 0, 2, 0, 0, 0, 16][..], &0xa1_u64.to_be_bytes(), &0xb2_u64.to_be_bytes()].concat();
        assert_eq!(answer(Question::Keys, &one), keys, "the other door's registrants are listed, too");
        let held = [&[0, 0, 0, 2, 0, 0, 0, 16][..], &0xa1_u64.to_be_bytes(), &[0, 0, 0, 0, 0, 5, 0, 0]].concat();
        assert_eq!(answer(Question::Reservation, &one), held);
        let all = reserved(ReservationKind::ExclusiveAccessAllRegistrants);
        let held = answer(Question::Reservation, &all);
        assert_eq!((&held[8..16], held[21]), (&[0; 8][..], 8), "all hold it");
        assert_eq!(capabilities(), [0, 8, 1, 0x91, 0xea, 0x01, 0, 0]);
    }

    #[test]
    fn a_full_status_says_who_holds_it() {
        for (kind, holders) in [
            (ReservationKind::WriteExclusive, [(1, 1), (0, 0)]),
            (ReservationKind::WriteExclusiveAllRegistrants, [(1, 7), (1, 7)]),
        ] {
            let bytes = answer(Question::FullStatus, &reserved(kind));
            assert_eq!(bytes.len(), 8 + u32::from_be_bytes(bytes[4..8].try_into().unwrap()) as usize);
            let (mut rest, mut seen) = (&bytes[8..], Vec::new());
            while !rest.is_empty() {
                let len = 24 + u32::from_be_bytes(rest[20..24].try_into().unwrap()) as usize;
                seen.push((rest[7], (rest[12], rest[13]), u16::from_be_bytes([rest[18], rest[19]]), rest[24]));
                rest = &rest[len..];
            }
            assert_eq!(seen, [(0xa1, holders[0], 1, 0x45), (0xb2, holders[1], 0, 0x05)], "{kind:?}");
        }
    }

    #[test]
    fn the_longest_answer_has_its_length() {
        let register = |isid| (port(isid), ReservationCommand::Register { key: 0, new: 1 });
        let full = record(&(0..REGISTRANTS_MAX as u64).map(register).collect::<Vec<_>>());
        assert_eq!(answer(Question::Keys, &full).len(), 8 + 8 * REGISTRANTS_MAX);
    }
}
