//! Transitions that meet: what was made of an older configuration has no effect.

use azekura_base::{DeviceId, Generation, LayerId, NodeId, PgId, VolumeId};

use super::attachments::{AttachRequest, attach, change_attachments, confirm_fenced, detach};
use super::cuts::{Cut, VolumeCut, begin_cut, call_off_cut, finish_cut};
use super::groups::{GroupProposal, NewGroup, Proposed, confirm_copy_forgotten, propose, replace_group};
use super::layers::begin_layer_end;
use super::snapshots::{CloneSpec, clone_snapshot, delete_snapshot};
use super::volumes::{VolumeDeletion, VolumeSpec, create_volume, delete_volume, resize_volume};
use crate::Ending;
use crate::{
    Gathered, GroupRecord, Halt, Key, LayerEnd, LayerState, Memory, MetaError, Outcome, Records, SnapshotOrigin, Step,
    Txn, VolumeAccess,
};

const NOW: (u64, u32) = (7, 0);

/// A class on one group of two devices, and a volume of two blocks.
pub(super) fn cluster() -> Memory {
    let mut memory = Memory::new();
    let class = serde_json::json!({ "name": "c", "copies": 2, "failure_domain": "host", "ack_rule": "all",
        "copies_min": 1, "overcommit_ratio": 4.0, "groups": [1], "created": "" });
    let new = NewGroup { members: vec![DeviceId(1), DeviceId(2)], primary: DeviceId(1) };
    let mut txn = Txn::new().put("/azekura/v1/classes/c", &class);
    for id in 1..=2 {
        let device = serde_json::json!({ "id": id, "uuid": "u", "node": id, "name": "d", "capacity_bytes": 1 << 20,
            "state": "up" });
        txn = txn.put(&Key::Device(DeviceId(id)).to_string(), &device);
    }
    memory.run(&txn.put(&Key::Group(PgId(1)).to_string(), &new.into_record(PgId(1), "c", 0))).unwrap();
    let spec = VolumeSpec {
        name: "v".into(),
        size_bytes: 8192,
        class: "c".into(),
        access: VolumeAccess::Exclusive,
        key: None,
        logical_block: azekura_base::LogicalBlock::Bytes512,
        limits: None,
    };
    run(&mut memory, |records| create_volume(records, &spec, "u", "")).unwrap();
    assert!(memory.model().problems.is_empty(), "{:?}", memory.model().problems);
    memory
}

/// Executes a transition on what is.
pub(super) fn run<T>(memory: &mut Memory, transition: impl Fn(&Records<'_>) -> Outcome<T>) -> Result<T, MetaError> {
    match transition(&Records::known(memory.model())) {
        Ok(Step::Done(value, _)) => Ok(value),
        Ok(Step::Run(txn, value)) => Ok(memory.run(&txn).map(|_| value).expect("it is of what is")),
        Ok(Step::Again) => Err(MetaError::Contended { what: "it".into(), seconds: 0 }),
        Err(Halt::Refused(error)) => Err(error),
        Err(halt) => panic!("{halt:?}"),
    }
}

/// One attempt at a transition that knows the model and reads every key. `uncertain`: an earlier attempt may have been
/// executed.
pub(super) fn attempt<T>(
    memory: &Memory,
    uncertain: bool,
    transition: impl Fn(&Records<'_>) -> Outcome<T>,
) -> Outcome<T> {
    let mut read = Gathered::new();
    loop {
        match transition(&Records::gathered(memory.model(), &read, uncertain)) {
            Err(Halt::Read(keys)) => {
                read.extend(keys.into_iter().map(|key| (key.clone(), memory.model().key_value(&key))));
            }
            other => return other,
        }
    }
}

pub(super) fn txn_of<T: std::fmt::Debug>(outcome: Outcome<T>) -> Txn {
    let Ok(Step::Run(txn, _)) = outcome else { panic!("{outcome:?}") };
    txn
}

fn begin(memory: &mut Memory, id: &str, wish: VolumeCut) -> Result<Cut, MetaError> {
    let volumes = run(memory, |records| begin_cut(records, id, NodeId(1), std::slice::from_ref(&wish), NOW))?;
    Ok(Cut { id: id.into(), volumes, revision: memory.model().revision })
}

fn snapshot(memory: &mut Memory, name: &str) {
    let cut = begin(memory, name, VolumeCut::snapshot("v", name, SnapshotOrigin::Person)).unwrap();
    run(memory, |records| finish_cut(records, &cut)).unwrap();
}

#[test]
fn a_cut_that_was_called_off_is_not_finished() {
    let mut memory = cluster();
    let wish = VolumeCut::snapshot("v", "s", SnapshotOrigin::Person);
    let cut = begin(&mut memory, "1", wish.clone()).unwrap();
    let finishing = txn_of(finish_cut(&Records::known(memory.model()), &cut));
    assert!(matches!(begin(&mut memory, "2", wish), Err(MetaError::Contended { .. })), "one at a time");
    run(&mut memory, |records| call_off_cut(records, "1", &["v".into()])).unwrap();
    assert_eq!(memory.run(&finishing), None);
    let late = run(&mut memory, |records| finish_cut(records, &cut));
    assert!(matches!(late, Err(MetaError::CutEnded { .. })), "{late:?}");
    let model = memory.model();
    assert!(model.snapshots.is_empty() && model.layers.keys().eq([&LayerId(1)]), "{model:?}");
}

#[test]
fn a_finished_cut_is_recognised_when_its_answer_was_lost() {
    let mut memory = cluster();
    let cut = begin(&mut memory, "1", VolumeCut::snapshot("v", "s", SnapshotOrigin::Person)).unwrap();
    let (snapshots, volumes) = run(&mut memory, |records| finish_cut(records, &cut)).unwrap();
    let revision = memory.model().revision;
    assert_eq!(run(&mut memory, |records| finish_cut(records, &cut)).unwrap(), (snapshots, volumes));
    assert_eq!(memory.model().revision, revision);
    let layers: Vec<_> = memory.model().layers.values().map(|layer| (layer.id.0, layer.state)).collect();
    assert_eq!(layers, [(1, LayerState::Frozen), (2, LayerState::Head)]);
}

#[test]
fn a_layer_that_was_cloned_meanwhile_is_not_merged() {
    let mut memory = cluster();
    snapshot(&mut memory, "s");
    let spec = |name: &str| CloneSpec {
        volume: "v".into(),
        snapshot: "s".into(),
        name: name.into(),
        size_bytes: None,
        access: None,
        key: None,
    };
    let cloning = txn_of(clone_snapshot(&Records::known(memory.model()), &spec("late"), "w", ""));
    run(&mut memory, |records| delete_snapshot(records, VolumeId(1), "s")).unwrap();
    assert_eq!(memory.run(&cloning), None, "its snapshot is gone");
    let before = memory.model().clone();
    assert_eq!(before.layers_to_end(), [(LayerId(1), LayerEnd::MergeInto(LayerId(2)))]);
    // The head is frozen under a new one: the end is to be planned anew.
    snapshot(&mut memory, "t");
    let merging = begin_layer_end(&before, LayerId(1), LayerEnd::MergeInto(LayerId(2))).unwrap();
    assert_eq!(memory.run(&merging), None);
    assert_eq!(memory.model().layers[&LayerId(1)].state, LayerState::Hidden);
}

#[test]
fn a_volume_is_held_against_what_can_be_stored() {
    let mut memory = cluster();
    let grow = |memory: &mut Memory, bytes| run(memory, |records| resize_volume(records, "v", bytes, false));
    grow(&mut memory, 4 << 20).unwrap();
    for id in 1..=2 {
        let device = serde_json::json!({ "id": id, "uuid": "u", "node": id, "name": "d", "capacity_bytes": 1 << 20,
            "usable_bytes": 960 << 10, "state": "up" });
        memory.run(&Txn::new().put(&Key::Device(DeviceId(id)).to_string(), &device)).unwrap();
    }
    let refused = grow(&mut memory, (4 << 20) + 4096).unwrap_err();
    assert!(
        matches!(refused, MetaError::Overcommit { limit_bytes, capacity_bytes, .. }
            if (limit_bytes, capacity_bytes) == (4 * 2 * (960 << 10), 2 * (960 << 10))),
        "{refused}"
    );
}

#[test]
fn a_revert_waits_for_nobody_who_has_the_volume() {
    let mut memory = cluster();
    snapshot(&mut memory, "s");
    run(&mut memory, |records| resize_volume(records, "v", 16384, false)).unwrap();
    let wish = VolumeCut::snapshot("v", "before", SnapshotOrigin::Revert);
    let wish = VolumeCut { back_to: Some("s".into()), unattached: true, ..wish };
    let cut = begin(&mut memory, "1", wish).unwrap();
    let finishing = txn_of(finish_cut(&Records::known(memory.model()), &cut));
    let client = AttachRequest::of_node(NodeId(1), Some(5));
    let free = |what| panic!("{what:?} is in the way");
    run(&mut memory, |records| attach(records, "v", &client, &[].into(), "", free)).unwrap();
    assert_eq!(memory.run(&finishing), None, "it is attached by now");
    assert!(matches!(run(&mut memory, |records| finish_cut(records, &cut)), Err(MetaError::InUse { .. })));
    run(&mut memory, |records| detach(records, "v", None, &Ending::All)).unwrap();
    run(&mut memory, |records| finish_cut(records, &cut)).unwrap();
    assert_eq!(memory.model().volumes["v"].size_bytes, 8192);
}

#[test]
fn a_fence_is_confirmed_for_what_had_ended_when_it_began() {
    let mut memory = cluster();
    for (node, force) in [(1, false), (2, true)] {
        let wish = AttachRequest { force, ..AttachRequest::of_node(NodeId(node), Some(5)) };
        run(&mut memory, |records| attach(records, "v", &wish, &[].into(), "", |what| panic!("{what:?}"))).unwrap();
    }
    let record = memory.model().attachments[&VolumeId(1)].record.clone();
    assert!(record.fence_due);
    run(&mut memory, |records| detach(records, "v", None, &Ending::All)).unwrap();
    let late = run(&mut memory, |records| confirm_fenced(records, "v", record.generation)).unwrap().1;
    assert!(late.fence_due, "another attachment has ended since");
    let all = run(&mut memory, |records| confirm_fenced(records, "v", late.generation)).unwrap().1;
    assert_eq!((all.fence_due, all.generation), (false, Generation(late.generation.0 + 1)));
}

/// Who attaches a volume after somebody has looked whether it is used is in the way, and is not cut off.
#[test]
fn who_comes_while_a_volume_is_detached_or_deleted_is_in_the_way() {
    let mut memory = cluster();
    let attach_by = |memory: &mut Memory, node, incarnation, force| {
        let wish = AttachRequest { force, ..AttachRequest::of_node(NodeId(node), incarnation) };
        let free = |what| panic!("{what:?} is in the way");
        run(memory, |records| attach(records, "v", &wish, &[].into(), "", free)).unwrap().1
    };
    let gone = Ending::Gone(attach_by(&mut memory, 1, Some(5), false).standing().into_iter().collect());
    let late = attach_by(&mut memory, 2, Some(6), true);
    let refused = |result: Result<(), MetaError>| assert!(matches!(result, Err(MetaError::InUse { .. })), "{result:?}");
    let detach_by = |memory: &mut Memory, node, ending: &Ending| {
        run(memory, |records| detach(records, "v", node, ending)).map(drop)
    };
    let delete = |memory: &mut Memory, attached: &Ending| {
        let deletion = VolumeDeletion { attached: attached.clone(), ..VolumeDeletion::default() };
        run(memory, |records| delete_volume(records, "v", VolumeId(1), &deletion)).map(drop)
    };
    refused(detach_by(&mut memory, None, &gone));
    refused(detach_by(&mut memory, Some(NodeId(2)), &Ending::default()));
    refused(delete(&mut memory, &gone));
    refused(delete(&mut memory, &Ending::default()));
    assert_eq!(memory.model().attachments[&VolumeId(1)].record.attachments, late.attachments);
    // What was asked for by name has nobody to cut off, as long as no client has come.
    detach_by(&mut memory, None, &Ending::Gone(late.standing().into_iter().collect())).unwrap();
    attach_by(&mut memory, 1, None, false);
    refused(delete(&mut memory, &gone));
    attach_by(&mut memory, 1, Some(7), false);
    refused(detach_by(&mut memory, Some(NodeId(1)), &Ending::default()));
    detach_by(&mut memory, Some(NodeId(1)), &Ending::All).unwrap();
    attach_by(&mut memory, 1, None, false);
    detach_by(&mut memory, None, &Ending::default()).unwrap();
    delete(&mut memory, &Ending::default()).unwrap();
}

#[test]
fn the_snapshots_of_a_deleted_volume_are_left_to_the_leader() {
    let mut memory = cluster();
    snapshot(&mut memory, "s");
    let delete = |memory: &mut Memory, snapshots| {
        let deletion = VolumeDeletion { snapshots, ..VolumeDeletion::default() };
        run(memory, |records| delete_volume(records, "v", VolumeId(1), &deletion))
    };
    assert!(matches!(delete(&mut memory, false), Err(MetaError::HasSnapshots { count: 1, .. })));
    delete(&mut memory, true).unwrap();
    assert_eq!(memory.model().snapshots_of(VolumeId(1)).count(), 1, "it is the leader's to delete");
    run(&mut memory, |records| delete_snapshot(records, VolumeId(1), "s")).unwrap();
    assert_eq!(memory.model().layers[&LayerId(1)].state, LayerState::Hidden);
}

#[test]
fn of_two_proposals_one_stands() {
    let mut memory = cluster();
    let record = memory.model().groups[&PgId(1)].record.clone();
    let proposal = |primary: u32| GroupProposal {
        version: record.version + 1,
        epoch: record.epoch,
        primary: DeviceId(primary),
        primary_incarnation: Some(3),
        in_sync: vec![DeviceId(primary)],
        away: record.away.clone(),
    };
    let replace = |memory: &Memory, primary| match propose(memory.model(), PgId(1), &proposal(primary)) {
        Proposed::Replace(next, revision) => replace_group(&next, revision),
        other => panic!("{other:?}"),
    };
    let (one, two) = (replace(&memory, 1), replace(&memory, 2));
    assert!(memory.run(&one).is_some() && memory.run(&two).is_none());
    assert_eq!(propose(memory.model(), PgId(1), &proposal(1)), Proposed::Stands);
    assert_eq!(propose(memory.model(), PgId(1), &proposal(2)), Proposed::Void);
    assert_eq!(propose(memory.model(), PgId(9), &proposal(2)), Proposed::Void);
}

#[test]
fn a_copy_that_is_wanted_again_is_not_forgotten() {
    let mut memory = cluster();
    let put = |memory: &mut Memory, group: &GroupRecord| {
        memory.run(&Txn::new().put(&Key::Group(group.id).to_string(), group)).unwrap();
    };
    let left =
        GroupRecord { in_sync: vec![DeviceId(1)], ..memory.model().groups[&PgId(1)].with_members(&[DeviceId(1)]) };
    put(&mut memory, &GroupRecord { members: vec![DeviceId(1), DeviceId(2)], ..left.clone() });
    run(&mut memory, |records| confirm_copy_forgotten(records, PgId(1), DeviceId(2))).unwrap();
    assert!(memory.model().groups[&PgId(1)].leaving.contains(&DeviceId(2)));
    put(&mut memory, &left);
    run(&mut memory, |records| confirm_copy_forgotten(records, PgId(1), DeviceId(2))).unwrap();
    let group = &memory.model().groups[&PgId(1)];
    assert_eq!((group.leaving.len(), group.version), (0, left.version + 1));
}

#[test]
fn what_was_not_read_yet_is_asked_for() {
    let memory = cluster();
    let mut read = Gathered::new();
    let mut asked = Vec::new();
    let outcome = loop {
        let records = Records::gathered(memory.model(), &read, false);
        match change_attachments(&records, "v", |_, now| Ok(now.detach(None))) {
            Err(Halt::Read(keys)) => {
                read.extend(keys.iter().map(|key| (key.clone(), memory.model().key_value(key))));
                asked.push(keys);
            }
            other => break other,
        }
    };
    assert!(matches!(outcome, Ok(Step::Done(..))), "nobody has it: {outcome:?}");
    assert_eq!(asked, [["/azekura/v1/volumes/v"], ["/azekura/v1/attachments/1"]]);
    let records = Records::gathered(memory.model(), &read, false);
    let newer = memory.model().revision + 1;
    assert!(records.model(newer - 1).is_ok());
    assert!(matches!(records.model(newer), Err(Halt::Wait(revision)) if revision == newer));
}
