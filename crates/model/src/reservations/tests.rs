//! Random commands of a few registrants, against the words of the standards; and the record as the document has it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::reference::Reference;
use super::*;

const KINDS: [CommandKind; 3] = [CommandKind::Inform, CommandKind::Read, CommandKind::Write];

/// Two ports of one initiator, another initiator, and two hosts of NVMe.
fn name(number: usize) -> RegistrantName {
    let iscsi = |initiator: &str, isid, portal_group| RegistrantName::Iscsi {
        initiator: initiator.to_owned(),
        isid,
        portal_group,
    };
    match number {
        0 => iscsi("iqn.2026-01.example:a", 1, 1),
        1 => RegistrantName::Nvme { host: 5 },
        2 => iscsi("iqn.2026-01.example:a", 1, 2),
        3 => iscsi("iqn.2026-01.example:b", 1, 1),
        other => RegistrantName::Nvme { host: 9 + other as u128 },
    }
}

fn kind() -> impl Strategy<Value = ReservationKind> {
    prop::sample::select(KIND_CODES.map(|(kind, ..)| kind).to_vec())
}

/// A command, whose own key is mostly the one that its sender has.
#[derive(Clone, Debug)]
struct Sent {
    from: usize,
    knows_key: bool,
    command: ReservationCommand,
}

fn sent(hosts: usize) -> impl Strategy<Value = Sent> {
    use ReservationCommand as C;
    let key = || 0u64..4;
    let command = prop_oneof![
        3 => (key(), key()).prop_map(|(key, new)| C::Register { key, new }),
        2 => key().prop_map(|new| C::RegisterIgnoringKey { new }),
        2 => (key(), key(), 0..hosts, any::<bool>())
            .prop_map(|(key, new, to, unregister)| C::RegisterAndMove { key, new, to: name(to), unregister }),
        3 => key().prop_map(|new| C::RegisterNew { new }),
        1 => prop::option::of(key()).prop_map(|key| C::Unregister { key }),
        1 => (prop::option::of(key()), key()).prop_map(|(key, new)| C::ReplaceKey { key, new }),
        4 => (key(), kind()).prop_map(|(key, kind)| C::Reserve { key, kind }),
        2 => (key(), kind()).prop_map(|(key, kind)| C::Release { key, kind }),
        1 => key().prop_map(|key| C::Clear { key }),
        5 => (key(), key(), kind(), any::<bool>())
            .prop_map(|(key, victim, kind, abort)| C::Preempt { key, victim, kind, abort }),
    ];
    (0..hosts, prop::bool::weighted(0.8), command).prop_map(|(from, knows_key, command)| Sent {
        from,
        knows_key,
        command,
    })
}

/// The command with its sender's key.
fn with_key(command: ReservationCommand, mine: u64) -> ReservationCommand {
    use ReservationCommand as C;
    match command {
        C::Register { new, .. } => C::Register { key: mine, new },
        C::RegisterAndMove { new, to, unregister, .. } => C::RegisterAndMove { key: mine, new, to, unregister },
        C::ReplaceKey { key: Some(_), new } => C::ReplaceKey { key: Some(mine), new },
        C::Unregister { key: Some(_) } => C::Unregister { key: Some(mine) },
        C::Reserve { kind, .. } => C::Reserve { key: mine, kind },
        C::Release { kind, .. } => C::Release { key: mine, kind },
        C::Clear { .. } => C::Clear { key: mine },
        C::Preempt { victim, kind, abort, .. } => C::Preempt { key: mine, victim, kind, abort },
        other => other,
    }
}

fn history() -> impl Strategy<Value = Vec<Sent>> {
    (2usize..=5).prop_flat_map(|hosts| prop::collection::vec(sent(hosts), 1..60))
}

/// What is always so.
fn check_sound(record: &ReservationsRecord) -> Result<(), TestCaseError> {
    prop_assert!(record.is_sound(), "{:?}", record);
    let holders = (0..6).filter(|number| record.is_holder(&name(*number))).count();
    match &record.reservation {
        None => prop_assert_eq!(holders, 0),
        Some(held) if held.kind.is_of_all() => prop_assert_eq!(holders, record.registrants.len()),
        Some(_) => prop_assert_eq!(holders, 1),
    }
    let view = ReservationsView::of(record);
    for number in 0..6 {
        prop_assert_eq!(view.rights(&name(number)), record.rights(&name(number)));
    }
    let kept = serde_json::from_slice::<ReservationsRecord>(&crate::encode(record)).unwrap();
    prop_assert_eq!(&kept, record);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn commands_do_what_the_standards_say(history in history()) {
        let mut record = ReservationsRecord::none(VolumeId(1));
        let mut reference = Reference::default();
        for (id, Sent { from, knows_key, command }) in history.into_iter().enumerate() {
            let from = name(from);
            let mine = record.key_of(&from).unwrap_or(0);
            let command = if knows_key { with_key(command, mine) } else { command };
            let expected = reference.step(&from, &command);
            let (outcome, next) = record.carry_out(&from, &command, id as u64);
            prop_assert_eq!(outcome.status, expected, "{:?}", command);
            let told: BTreeSet<_> = outcome.notices.iter().map(|notice| (notice.to.clone(), notice.what)).collect();
            prop_assert_eq!(&told, &reference.told, "{:?}", command);
            prop_assert_eq!(told.len(), outcome.notices.len());
            prop_assert_eq!(&outcome.aborted.iter().cloned().collect::<BTreeSet<_>>(), &reference.aborted);
            if outcome.status != ReservationStatus::Good {
                prop_assert!(next.is_none(), "a refused command has changed something");
            }
            let before = record.clone();
            if let Some(next) = next {
                let again = next.carry_out(&from, &command, id as u64);
                prop_assert_eq!(again, (outcome.clone(), None), "it was carried out twice");
                record = next;
            }
            check_sound(&record)?;
            let keys: Vec<_> = record.registrants.iter().map(|of| (of.name.clone(), of.key.0)).collect();
            prop_assert_eq!(keys, reference.keys.clone().into_iter().collect::<Vec<_>>());
            prop_assert_eq!(record.reservation.as_ref().map_or(0, |held| held.kind.scsi()), reference.kind);
            prop_assert_eq!(record.generation, reference.generation, "{:?}", command);
            let mut other = !outcome.aborted.is_empty() || !told.is_empty();
            for of in (0..6).map(name) {
                for kind in KINDS {
                    let conflict = access(&record, &of, kind) == Access::Conflict;
                    prop_assert_eq!(conflict, reference.conflicts(&of, kind), "{} {:?}", of, kind);
                    other |= conflict != (access(&before, &of, kind) == Access::Conflict);
                }
            }
            let due = record.fence_due == Some(record.number) && record.number != before.number;
            prop_assert_eq!(due, other, "a fence is due exactly when somebody's rights are others, or he is told: {:?}", command);
            prop_assert!(due || record.fence_due == before.fence_due);
        }
    }

    /// Whoever is preempted while there is a reservation writes no more until he registers, moves, or it is gone.
    #[test]
    fn a_preempted_registrant_never_writes(history in history()) {
        let mut record = ReservationsRecord::none(VolumeId(1));
        let mut barred: BTreeSet<RegistrantName> = BTreeSet::new();
        for (id, Sent { from, knows_key, command }) in history.into_iter().enumerate() {
            let from = name(from);
            let mine = record.key_of(&from).unwrap_or(0);
            let command = if knows_key { with_key(command, mine) } else { command };
            let (outcome, next) = record.carry_out(&from, &command, id as u64);
            record = next.unwrap_or(record);
            let lost = outcome.notices.iter().filter(|notice| notice.what == NoticeKind::RegistrationsPreempted);
            barred.extend(lost.map(|notice| notice.to.clone()));
            barred.retain(|of| record.key_of(of).is_none());
            if record.reservation.is_none() {
                barred.clear();
            }
            for of in &barred {
                prop_assert_eq!(access(&record, of, CommandKind::Write), Access::Conflict);
            }
        }
    }
}

#[test]
fn kinds_have_their_numbers() {
    for (at, (kind, scsi, nvme)) in KIND_CODES.into_iter().enumerate() {
        assert_eq!((kind as usize, kind.scsi(), kind.nvme()), (at, scsi, nvme));
        assert_eq!((ReservationKind::from_scsi(scsi), ReservationKind::from_nvme(nvme)), (Some(kind), Some(kind)));
    }
    assert_eq!([0, 2, 4, 9].map(ReservationKind::from_scsi), [None; 4]);
    assert_eq!([0, 7].map(ReservationKind::from_nvme), [None; 2]);
}

#[test]
fn there_is_a_limit_and_old_changes_are_forgotten() {
    let mut record = ReservationsRecord::none(VolumeId(1));
    let host = |number: usize| RegistrantName::Nvme { host: 1 + number as u128 };
    for number in 0..REGISTRANTS_MAX {
        let register = ReservationCommand::RegisterNew { new: 7 };
        record = record.carry_out(&host(number), &register, number as u64).1.unwrap();
    }
    let (outcome, next) =
        record.carry_out(&host(REGISTRANTS_MAX), &ReservationCommand::Register { key: 0, new: 7 }, 1000);
    assert_eq!((outcome.status, next), (ReservationStatus::TooManyRegistrants, None));
    assert_eq!(record.changes.len(), RESERVATION_CHANGES_KEPT);
    assert_eq!(record.changes_after(256).map(<[_]>::len), Some(0));
    assert_eq!(record.changes_after(224).map(<[_]>::len), Some(32));
    assert_eq!(record.changes_after(223), None, "change 224 is forgotten");
    let kind = ReservationKind::WriteExclusive;
    let preempt = ReservationCommand::Preempt { key: 7, victim: 7, kind, abort: true };
    let (outcome, cleared) = record.carry_out(&host(3), &preempt, 1001);
    let cleared = cleared.unwrap();
    assert_eq!((outcome.notices.len(), outcome.aborted.len()), (255, 256), "without a reservation all of them go");
    assert!(cleared.registrants.is_empty() && !cleared.changes.is_empty() && cleared.is_sound());
    assert!(crate::encode(&cleared).len() < 1 << 20, "etcd takes 1.5 MiB");
}

#[test]
fn a_generation_wraps() {
    let record = ReservationsRecord { generation: u32::MAX, ..ReservationsRecord::none(VolumeId(1)) };
    let (_, next) = record.carry_out(&name(0), &ReservationCommand::RegisterIgnoringKey { new: 1 }, 1);
    assert_eq!(next.unwrap().generation, 0);
}

/// Both doors on one volume: a host of iSCSI is put out by one of NVMe.
fn example() -> ReservationsRecord {
    let kind = ReservationKind::WriteExclusiveRegistrantsOnly;
    let commands = [
        (0, ReservationCommand::Register { key: 0, new: 0xa }),
        (1, ReservationCommand::RegisterNew { new: 0xb }),
        (0, ReservationCommand::Reserve { key: 0xa, kind }),
        (1, ReservationCommand::Preempt { key: 0xb, victim: 0xa, kind, abort: true }),
    ];
    let mut record = ReservationsRecord::none(VolumeId(4));
    for (id, (from, command)) in commands.iter().enumerate() {
        record = record.carry_out(&name(*from), command, 0x100 + id as u64).1.unwrap();
    }
    record.heeded(&[Generation(7)].into(), 4, &[Generation(7), Generation(9)]).unwrap()
}

#[test]
fn a_record_is_as_the_document_has_it() {
    let golden = include_str!("../../tests/golden/reservations.json");
    let record: ReservationsRecord = serde_json::from_str(golden).unwrap();
    assert_eq!(record, example());
    assert_eq!(format!("{}\n", serde_json::to_string_pretty(&record).unwrap()), golden);
    let document = include_str!("../../../../docs/formats/reservations.md");
    let shown: Vec<&str> = document.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    assert!(shown.join("\n").ends_with(golden.trim_end()), "docs/formats/reservations.md shows another record");
    for (was, is) in [("registrants_only\"", "some\""), ("\"nvme:", "\"fc:"), ("000b\"", "00b\"")] {
        let other = golden.replace(was, is);
        assert!(other != golden && serde_json::from_str::<ReservationsRecord>(&other).is_err(), "{is}");
    }
}
