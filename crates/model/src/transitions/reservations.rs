//! Reservations of volumes: one record each, replaced by the next (docs/decisions/0046-reservations.md).

use azekura_base::{NodeId, VolumeId};

use super::volumes::missing;
use crate::read::Found;
use crate::{
    AttachmentsRecord, Key, Kind, MetaError, Outcome, Records, RegistrantName, ReservationCommand, ReservationOutcome,
    ReservationsRecord, Step, Txn, VolumeRecord,
};

/// The record of a volume, and that of its reservations as it is now.
fn look_up(
    records: &Records<'_>,
    volume: &str,
    wanted: VolumeId,
) -> Result<(Found, Found, ReservationsRecord), crate::Halt> {
    let [found, reservations] = records.find_all([&Key::Volume(volume), &Key::Reservations(wanted)])?;
    if found.record::<VolumeRecord>()?.is_none_or(|record| record.id != wanted) {
        // Deleted; one of that name is another's.
        return Err(missing(Kind::Volume, volume).into());
    }
    let now = reservations.record()?.unwrap_or_else(|| ReservationsRecord::none(wanted));
    if now.volume != wanted || !now.is_sound() {
        let reason = "it contradicts itself, or names another volume than its key".to_owned();
        return Err(MetaError::Broken { key: reservations.key, reason }.into());
    }
    Ok((found, reservations, now))
}

/// The record of a volume's reservations as it is.
///
/// # Errors
/// When the volume is gone, or its record can't be read.
pub fn read_reservations(records: &Records<'_>, volume: &str, wanted: VolumeId) -> Outcome<ReservationsRecord> {
    let (_, reservations, now) = look_up(records, volume, wanted)?;
    Ok(Step::Done(now, reservations.mod_revision()))
}

/// Carries a registrant's command out on the volume of this name and number. `id`: 64 random bits, the same in every
/// attempt, so that an attempt whose answer was lost is not carried out again.
///
/// # Errors
/// When the volume is gone, or its record can't be read. A command that the standards refuse is no error: the outcome
/// says so.
pub fn change_reservations(
    records: &Records<'_>,
    volume: &str,
    wanted: VolumeId,
    from: &RegistrantName,
    command: &ReservationCommand,
    id: u64,
) -> Outcome<ReservationOutcome> {
    let (found, reservations, now) = look_up(records, volume, wanted)?;
    let (outcome, next) = now.carry_out(from, command, id);
    let Some(next) = next else {
        return Ok(Step::Done(outcome, reservations.mod_revision()));
    };
    // The volume may be deleted meanwhile, and its reservations with it.
    let txn = Txn::new().when_as(&found).when_as(&reservations).put(&reservations.key, &next);
    Ok(Step::Run(txn, outcome))
}

/// Notes that a process (node and incarnation) heeds all changes up to this one: it bars what they bar, and of what it
/// had begun by rights from before nothing is under way. Nothing is noted where nobody waits for that, or the process
/// does not have the volume.
///
/// # Errors
/// When the volume is gone, or its record can't be read.
pub fn heed_reservations(
    records: &Records<'_>,
    volume: &str,
    wanted: VolumeId,
    (node, incarnation): (NodeId, u64),
    number: u64,
) -> Outcome<()> {
    let (_, reservations, now) = look_up(records, volume, wanted)?;
    let attachments = records.find(&Key::Attachments(wanted))?;
    let known = attachments.record()?.unwrap_or_else(|| AttachmentsRecord::none(wanted));
    let Some(next) = now.heeded(&known.of_process((node, incarnation)), number, &known.standing()) else {
        return Ok(Step::Done((), reservations.mod_revision()));
    };
    // Other attachments may come and go meanwhile: each counts by its own name, which is given once.
    Ok(Step::Run(Txn::new().when_as(&reservations).put(&reservations.key, &next), ()))
}

/// Notes that every gateway has confirmed a change, and with it all before: nothing is under way any more that was
/// begun by rights from before it. The record still says that a fence is due when a later change asks for one.
///
/// # Errors
/// When the volume is gone, or its record can't be read.
pub fn confirm_reservations(records: &Records<'_>, volume: &str, wanted: VolumeId, number: u64) -> Outcome<()> {
    let (found, reservations, now) = look_up(records, volume, wanted)?;
    let Some(next) = now.fenced(number) else { return Ok(Step::Done((), reservations.mod_revision())) };
    Ok(Step::Run(Txn::new().when_as(&found).when_as(&reservations).put(&reservations.key, &next), ()))
}

#[cfg(test)]
mod tests {
    use super::super::attachments::{AttachRequest, attach, put_out};
    use super::super::tests::{attempt, cluster, run, txn_of};
    use super::super::volumes::{VolumeDeletion, delete_volume};
    use super::*;
    use crate::{Heeding, Memory, ReservationKind, ReservationStatus, Rights};
    use azekura_base::Generation;
    use std::collections::BTreeSet;

    const V: VolumeId = VolumeId(1);
    const KIND: ReservationKind = ReservationKind::WriteExclusiveRegistrantsOnly;

    fn host(number: u128) -> RegistrantName {
        RegistrantName::Nvme { host: number }
    }

    fn change(
        memory: &mut Memory,
        from: u128,
        command: &ReservationCommand,
        id: u64,
    ) -> Result<ReservationOutcome, MetaError> {
        run(memory, |records| change_reservations(records, "v", V, &host(from), command, id))
    }

    fn good(memory: &mut Memory, from: u128, command: &ReservationCommand, id: u64) -> ReservationOutcome {
        let outcome = change(memory, from, command, id).unwrap();
        assert_eq!(outcome.status, ReservationStatus::Good, "{command:?}");
        assert!(memory.model().problems.is_empty());
        outcome
    }

    #[test]
    fn a_lost_answer_does_not_carry_a_command_out_again() {
        let mut memory = cluster();
        good(&mut memory, 1, &ReservationCommand::RegisterNew { new: 7 }, 1);
        let preempt = ReservationCommand::Preempt { key: 7, victim: 9, kind: KIND, abort: false };
        assert_eq!(change(&mut memory, 1, &preempt, 2).unwrap().status, ReservationStatus::Conflict);
        good(&mut memory, 2, &ReservationCommand::RegisterNew { new: 9 }, 3);
        let transition = |records: &Records<'_>| change_reservations(records, "v", V, &host(1), &preempt, 4);
        let txn = txn_of(attempt(&memory, false, transition));
        memory.run(&txn).expect("nothing has changed");
        assert_eq!(memory.run(&txn), None, "a copy of it that comes late does nothing");
        // Others go on meanwhile; the victim registers again with the same key.
        good(&mut memory, 2, &ReservationCommand::RegisterNew { new: 9 }, 5);
        let Ok(Step::Done(again, _)) = attempt(&memory, true, transition) else { panic!("carried out twice") };
        assert_eq!((again.status, again.number, again.notices.len()), (ReservationStatus::Good, 3, 1));
        assert_eq!(memory.model().reservations[&V].key_of(&host(2)), Some(9));
        assert_eq!(memory.model().reservations[&V].generation, 4);
    }

    #[test]
    fn what_was_made_of_an_older_record_has_no_effect() {
        let mut memory = cluster();
        for (from, id) in [(1, 1), (2, 2)] {
            good(&mut memory, from, &ReservationCommand::RegisterNew { new: 7 }, id);
        }
        let reserve = ReservationCommand::Reserve { key: 7, kind: KIND };
        let late = |records: &Records<'_>| change_reservations(records, "v", V, &host(2), &reserve, 4);
        let txn = txn_of(attempt(&memory, false, late));
        good(&mut memory, 1, &reserve, 3);
        assert_eq!(memory.run(&txn), None);
        let Ok(Step::Done(outcome, _)) = attempt(&memory, false, late) else { panic!("two hold it") };
        assert_eq!(outcome.status, ReservationStatus::Conflict);
    }

    #[test]
    fn a_fence_is_due_until_the_last_change_that_asked_for_one_is_confirmed() {
        let mut memory = cluster();
        let confirm = |memory: &mut Memory, number| {
            run(memory, |records| confirm_reservations(records, "v", V, number)).unwrap();
            memory.model().reservations[&V].fence_due
        };
        assert_eq!(good(&mut memory, 1, &ReservationCommand::RegisterNew { new: 7 }, 1).fence_due, None);
        let outcome = good(&mut memory, 1, &ReservationCommand::Reserve { key: 7, kind: KIND }, 2);
        assert_eq!(outcome.fence_due, Some(2), "others may not write any more");
        assert_eq!(
            good(&mut memory, 2, &ReservationCommand::RegisterNew { new: 9 }, 3).fence_due,
            Some(3),
            "he may write"
        );
        assert_eq!(change(&mut memory, 3, &ReservationCommand::Clear { key: 1 }, 4).unwrap().fence_due, Some(3));
        let preempt = ReservationCommand::Preempt { key: 7, victim: 9, kind: KIND, abort: true };
        assert_eq!(good(&mut memory, 1, &preempt, 5).fence_due, Some(4));
        assert_eq!(confirm(&mut memory, 3), Some(4), "confirmed too early");
        assert_eq!(confirm(&mut memory, 5), None);
        assert_eq!(confirm(&mut memory, 5), None);
    }

    /// Attaches the volume to a process, beside others.
    fn attach_to(memory: &mut Memory, node: u32) {
        let wish = AttachRequest { shared: Some(true), ..AttachRequest::of_node(NodeId(node), Some(5)) };
        let refusal = |_| MetaError::NotAttached { volume: "v".to_owned(), node: None };
        run(memory, |records| attach(records, "v", &wish, &BTreeSet::new(), "t", refusal)).unwrap();
    }

    fn heed(memory: &mut Memory, node: u32, incarnation: u64, number: u64) -> Vec<(u32, u64)> {
        run(memory, |records| heed_reservations(records, "v", V, (NodeId(node), incarnation), number)).unwrap();
        let model = memory.model();
        let of = |heeding: &Heeding| {
            let all = &model.attachments[&V].attachments;
            let found = all.iter().find(|entry| entry.generation == heeding.attachment);
            (found.map_or(0, |entry| entry.node.0), heeding.number)
        };
        model.reservations[&V].heeding.iter().map(of).collect()
    }

    #[test]
    fn who_heeds_a_change_is_noted_while_a_fence_is_due() {
        let mut memory = cluster();
        attach_to(&mut memory, 1);
        attach_to(&mut memory, 2);
        good(&mut memory, 1, &ReservationCommand::RegisterNew { new: 7 }, 1);
        assert_eq!(heed(&mut memory, 1, 5, 1), [], "nobody waits for that");
        good(&mut memory, 1, &ReservationCommand::Reserve { key: 7, kind: KIND }, 2);
        assert_eq!(heed(&mut memory, 1, 5, 1), [], "that was the change before");
        assert_eq!(heed(&mut memory, 1, 4, 2), [], "another process has it");
        assert_eq!(heed(&mut memory, 3, 5, 2), [], "it does not have it");
        assert_eq!(heed(&mut memory, 1, 5, 2), [(1, 2)]);
        assert_eq!(heed(&mut memory, 1, 5, 2), [(1, 2)]);
        assert_eq!(heed(&mut memory, 2, 5, 2), [(1, 2), (2, 2)]);
        // A later change asks for a fence of its own.
        good(&mut memory, 2, &ReservationCommand::RegisterNew { new: 9 }, 3);
        let preempt = ReservationCommand::Preempt { key: 7, victim: 9, kind: KIND, abort: false };
        good(&mut memory, 1, &preempt, 4);
        let standing = memory.model().attachments[&V].attachments.iter().map(|entry| entry.generation);
        let standing: Vec<_> = standing.collect();
        assert!(!standing.iter().any(|name| memory.model().reservations[&V].is_heeded_by(*name)));
        assert_eq!(heed(&mut memory, 2, 5, 4), [(2, 4)]);
        assert!(memory.model().reservations[&V].is_heeded_by(standing[1]));
        run(&mut memory, |records| confirm_reservations(records, "v", V, 4)).unwrap();
        assert_eq!(heed(&mut memory, 1, 5, 4), []);
    }

    #[test]
    fn who_has_ended_heeds_nothing() {
        let mut memory = cluster();
        attach_to(&mut memory, 1);
        attach_to(&mut memory, 2);
        good(&mut memory, 1, &ReservationCommand::RegisterNew { new: 7 }, 1);
        good(&mut memory, 1, &ReservationCommand::Reserve { key: 7, kind: KIND }, 2);
        assert_eq!(heed(&mut memory, 2, 5, 2), [(2, 2)]);
        let gone: BTreeSet<Generation> =
            memory.model().attachments[&V].of(NodeId(2), None).map(|mine| mine.generation).into_iter().collect();
        run(&mut memory, |records| put_out(records, "v", &gone)).unwrap();
        assert!(memory.model().attachments[&V].fence_due);
        assert_eq!(heed(&mut memory, 2, 5, 2), [(0, 2)], "what it had confirmed is of no use, and it confirms no more");
        attach_to(&mut memory, 2);
        assert_eq!(heed(&mut memory, 2, 5, 2), [(2, 2)], "by a new name");
    }

    #[test]
    fn reservations_go_with_their_volume() {
        let mut memory = cluster();
        good(&mut memory, 1, &ReservationCommand::RegisterNew { new: 7 }, 1);
        let register = ReservationCommand::RegisterNew { new: 9 };
        let late =
            txn_of(attempt(&memory, false, |records| change_reservations(records, "v", V, &host(2), &register, 2)));
        let deletion = VolumeDeletion { attached: crate::Ending::All, snapshots: true };
        run(&mut memory, |records| delete_volume(records, "v", V, &deletion)).unwrap();
        assert!(memory.model().reservations.is_empty());
        assert_eq!(memory.run(&late), None);
        let gone = change(&mut memory, 1, &register, 3);
        assert!(matches!(gone, Err(MetaError::NotFound { kind: Kind::Volume, .. })), "{gone:?}");
    }

    #[test]
    fn what_can_not_be_read_opens_nothing() {
        let mut memory = cluster();
        assert_eq!(memory.model().reservations_view(V).rights(&host(1)), Rights::All);
        let key = Key::Reservations(V).to_string();
        let reservation = serde_json::json!({ "kind": "write_exclusive", "holder": "nvme:0" });
        let broken = serde_json::json!({ "volume": 1, "generation": 1, "number": 1, "reservation": reservation });
        memory.run(&Txn::new().put(&key, &broken)).unwrap();
        assert_eq!(memory.model().reservations_view(V).rights(&host(1)), Rights::Nothing);
        let holder = host(1).to_string();
        let reservation = serde_json::json!({ "kind": "write_exclusive", "holder": holder });
        let unsound = serde_json::json!({ "volume": 1, "generation": 1, "number": 1, "reservation": reservation });
        memory.run(&Txn::new().put(&key, &unsound)).unwrap();
        assert_eq!(memory.model().reservations_view(V).rights(&host(1)), Rights::Nothing, "he is not registered");
        let refused = change(&mut memory, 1, &ReservationCommand::RegisterNew { new: 7 }, 1);
        assert!(matches!(refused, Err(MetaError::Broken { .. })), "{refused:?}");
    }
}
