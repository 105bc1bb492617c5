//! Projects: what they count is what there is, and quotas hold, in whatever order changes meet.

use std::collections::BTreeSet;

use azekura_base::{GrantId, IoLimits, NodeId, VolumeId};
use proptest::prelude::*;

use super::cuts::{Cut, VolumeCut, begin_cut, call_off_cut, finish_cut};
use super::grants::create_grant;
use super::projects::{ProjectChange, ProjectSpec, change_project, create_project, delete_project};
use super::snapshots::{CloneSpec, clone_snapshot, delete_snapshot};
use super::tests::{attempt, cluster, run, txn_of};
use super::volumes::{VolumeDeletion, VolumeSpec, create_volume, delete_volume, limit_volume, resize_volume};
use crate::{
    Bounds, Gathered, GrantKind, GrantRecord, Halt, Key, Kind, Memory, MetaError, Model, Outcome, ProjectQuota,
    Records, Role, SecretHash, SnapshotOrigin, Step, Txn, Unknown, VolumeAccess,
};

const BLOCK: u64 = 4096;

fn project(name: &str, quota: ProjectQuota) -> ProjectSpec {
    ProjectSpec { name: name.to_owned(), classes: None, quota }
}

fn with_projects(quota: ProjectQuota) -> Memory {
    let mut memory = cluster();
    for name in ["p", "q"] {
        run(&mut memory, |records| create_project(records, &project(name, quota), "")).unwrap();
    }
    memory
}

fn spec(name: &str, blocks: u64, iops: Option<u64>) -> VolumeSpec {
    VolumeSpec {
        name: name.to_owned(),
        size_bytes: blocks * BLOCK,
        class: "c".to_owned(),
        access: VolumeAccess::Exclusive,
        key: None,
        logical_block: azekura_base::LogicalBlock::Bytes512,
        limits: iops.map(|iops| IoLimits { iops: Some(iops), ..IoLimits::default() }),
    }
}

fn create(memory: &mut Memory, name: &str, blocks: u64) -> Result<(), MetaError> {
    run(memory, |records| create_volume(records, &spec(name, blocks, None), name, "")).map(drop)
}

fn begin(records: &Records<'_>, id: &str, volume: &str) -> Outcome<Vec<(VolumeCut, crate::VolumeRecord)>> {
    let wish = VolumeCut::snapshot(volume, id, SnapshotOrigin::Person);
    begin_cut(records, id, NodeId(1), &[wish], (7, 0))
}

fn snapshot(memory: &mut Memory, id: &str, volume: &str) -> Result<(), MetaError> {
    let volumes = run(memory, |records| begin(records, id, volume))?;
    let cut = Cut { id: id.to_owned(), volumes, revision: memory.model().revision };
    run(memory, |records| finish_cut(records, &cut)).map(drop)
}

fn counted(memory: &Memory) {
    let model = memory.model();
    for (name, project) in model.projects.iter() {
        assert_eq!(project.used, model.project_use(name), "{name}");
    }
}

#[test]
fn a_quota_is_what_a_project_has_at_most() {
    let quota = ProjectQuota { bytes: Some(10 * BLOCK), volumes: Some(2), snapshots: Some(1), iops: None };
    let mut memory = with_projects(quota);
    create(&mut memory, "p/a", 4).unwrap();
    create(&mut memory, "p/b", 4).unwrap();
    let told = |error: MetaError| (error.to_string(), error.hint().unwrap_or_default());
    let (error, hint) = told(create(&mut memory, "p/c", 1).unwrap_err());
    assert!(error.contains("'p' may have 2 volumes, has 2 volumes, and would have 1 volume more"), "{error}");
    assert!(hint.contains("azekura project set p --volumes N"), "{hint}");
    let grown = run(&mut memory, |records| resize_volume(records, "p/b", 7 * BLOCK, false));
    assert!(told(grown.unwrap_err()).0.contains("40KiB of volumes"));
    run(&mut memory, |records| resize_volume(records, "p/b", 6 * BLOCK, false)).unwrap();
    snapshot(&mut memory, "s", "p/a").unwrap();
    assert!(told(snapshot(&mut memory, "t", "p/b").unwrap_err()).0.contains("has 1 snapshot, and"));
    create(&mut memory, "q/a", 4).unwrap();
    create(&mut memory, "c", 4).unwrap();
    counted(&memory);
    let deletion = VolumeDeletion { snapshots: true, ..VolumeDeletion::default() };
    let id = memory.model().volumes["p/a"].id;
    run(&mut memory, |records| delete_volume(records, "p/a", id, &deletion)).unwrap();
    counted(&memory);
    assert_eq!(memory.model().projects["p"].used.snapshots, 0, "they go with it");
    assert!(run(&mut memory, |records| delete_snapshot(records, id, "s")).unwrap());
    counted(&memory);
}

/// What a transition comes to that reads what is there now, and knows an older model. `None`: it waits for a newer one.
fn with_older<T>(memory: &Memory, older: &Model, transition: impl Fn(&Records<'_>) -> Outcome<T>) -> Option<Step<T>> {
    let mut read = Gathered::new();
    loop {
        match transition(&Records::gathered(older, &read, false)) {
            Ok(step) => return Some(step),
            Err(Halt::Read(keys)) => {
                read.extend(keys.into_iter().map(|key| (key.clone(), memory.model().key_value(&key))));
            }
            Err(Halt::Wait(_)) => return None,
            Err(Halt::Refused(error)) => panic!("{error}"),
        }
    }
}

/// Who deletes a snapshot may not have heard yet that its volume is gone, and has counted it out.
#[test]
fn a_snapshot_is_counted_out_once() {
    let mut memory = with_projects(ProjectQuota::default());
    create(&mut memory, "p/a", 1).unwrap();
    create(&mut memory, "p/b", 1).unwrap();
    for volume in ["p/a", "p/b"] {
        snapshot(&mut memory, "s", volume).unwrap();
    }
    let older = memory.model().clone();
    let id = older.volumes["p/a"].id;
    let deletion = VolumeDeletion { snapshots: true, ..VolumeDeletion::default() };
    run(&mut memory, |records| delete_volume(records, "p/a", id, &deletion)).unwrap();
    let step = with_older(&memory, &older, |records| delete_snapshot(records, id, "s"));
    if let Some(Step::Run(txn, _)) = step {
        memory.run(&txn);
    }
    counted(&memory);
    let step = with_older(&memory, memory.model(), |records| delete_snapshot(records, id, "s"));
    let Some(Step::Run(txn, true)) = step else { panic!("{step:?}") };
    assert!(memory.run(&txn).is_some());
    counted(&memory);
    assert_eq!(memory.model().projects["p"].used.snapshots, 1);
}

#[test]
fn with_a_quota_of_requests_each_volume_has_a_limit() {
    let mut memory = with_projects(ProjectQuota::default());
    create(&mut memory, "p/a", 1).unwrap();
    let set = ProjectChange { iops: Some(Some(100)), ..ProjectChange::default() };
    let refused = run(&mut memory, |records| change_project(records, "p", &set)).unwrap_err();
    assert!(refused.to_string().contains("1 of its volumes have no limit"), "{refused}");
    let limit = |memory: &mut Memory, iops| {
        let limits = IoLimits { iops, ..IoLimits::default() };
        run(memory, |records| limit_volume(records, "p/a", Some(&limits))).map(drop)
    };
    limit(&mut memory, Some(60)).unwrap();
    run(&mut memory, |records| change_project(records, "p", &set)).unwrap();
    for (iops, told) in [(None, "each of its volumes has a limit"), (Some(41), "and would have 41 requests/s")] {
        let refused = run(&mut memory, |records| create_volume(records, &spec("p/b", 1, iops), "b", "")).unwrap_err();
        assert!(refused.to_string().contains(told), "{refused}");
    }
    assert!(limit(&mut memory, Some(101)).is_err() && limit(&mut memory, None).is_err());
    limit(&mut memory, Some(100)).unwrap();
    counted(&memory);
}

#[test]
fn projects_that_make_no_sense_are_refused() {
    let mut memory = with_projects(ProjectQuota::default());
    for name in ["", "default", "a/b", "-a", &"p".repeat(64), "p"] {
        let spec = project(name, ProjectQuota::default());
        assert!(run(&mut memory, |records| create_project(records, &spec, "")).is_err(), "{name}");
    }
    assert!(matches!(create(&mut memory, "none/v", 1), Err(MetaError::NotFound { kind: Kind::Project, .. })));
    let classes = |classes: &[&str]| Some(classes.iter().map(|class| (*class).to_owned()).collect::<BTreeSet<_>>());
    let only = |names| ProjectChange { classes: Some(classes(names)), ..ProjectChange::default() };
    assert!(run(&mut memory, |records| change_project(records, "p", &only(&[]))).is_err());
    run(&mut memory, |records| change_project(records, "p", &only(&["d"]))).unwrap();
    let refused = create(&mut memory, "p/v", 1).unwrap_err().to_string();
    assert!(refused.contains("'p' may use these alone: d"), "{refused}");
    create(&mut memory, "q/v", 1).unwrap();
    snapshot(&mut memory, "s", "q/v").unwrap();
    let clone = CloneSpec {
        volume: "q/v".to_owned(),
        snapshot: "s".to_owned(),
        name: "p/v".to_owned(),
        size_bytes: None,
        access: None,
        key: None,
    };
    let refused = run(&mut memory, |records| clone_snapshot(records, &clone, "u2", ""));
    assert!(matches!(refused, Err(MetaError::OtherProject { .. })), "{refused:?}");
}

#[test]
fn the_first_project_waits_for_all_nodes() {
    let mut memory = cluster();
    let node = serde_json::json!({ "id": 1, "uuid": "u", "name": "old", "data_address": "10.0.0.1:1",
        "api_address": "10.0.0.1:2", "endpoints": [], "understands": ["hosts"] });
    memory.run(&Txn::new().put(&Key::Node(NodeId(1)).to_string(), &node)).unwrap();
    let spec = project("p", ProjectQuota::default());
    let refused = run(&mut memory, |records| create_project(records, &spec, "")).unwrap_err();
    assert!(refused.to_string().contains("old"), "{refused}");
}

fn grant(name: &str, project: &str, role: Role) -> GrantRecord {
    GrantRecord {
        name: name.to_owned(),
        kind: GrantKind::Token,
        hash: SecretHash([7; 32]),
        role,
        project: project.to_owned(),
        volumes: None,
        host: None,
        until: None,
        created: String::new(),
        by: String::new(),
        unknown: Unknown::default(),
    }
}

#[test]
fn a_project_goes_when_nothing_is_in_it() {
    let mut memory = with_projects(ProjectQuota::default());
    let give = |memory: &mut Memory, id, grant: &GrantRecord| {
        run(memory, |records| create_grant(records, GrantId(id), grant, 1))
    };
    assert!(give(&mut memory, 1, &grant("a", "none", Role::User)).is_err(), "there is no such project");
    assert!(give(&mut memory, 1, &grant("a", "p", Role::Admin)).is_err(), "an admin is one everywhere");
    let late = txn_of(delete_project(&Records::known(memory.model()), "p"));
    give(&mut memory, 1, &grant("a", "p", Role::User)).unwrap();
    assert_eq!(memory.run(&late), None, "somebody has a grant meanwhile");
    give(&mut memory, 2, &grant("a", "q", Role::User)).expect("names of grants are the project's");
    let foreign = GrantRecord {
        kind: GrantKind::Key,
        volumes: Some(["p/v".to_owned(), "q/v".to_owned()].into()),
        ..grant("b", "p", Role::User)
    };
    let refused = give(&mut memory, 3, &foreign).unwrap_err().to_string();
    assert!(refused.contains("'q/v' is no volume of the project 'p'"), "{refused}");
    create(&mut memory, "q/v", 1).unwrap();
    for (name, told) in [("p", "grants: a"), ("q", "1 volume")] {
        let refused = run(&mut memory, |records| delete_project(records, name)).unwrap_err().to_string();
        assert!(refused.contains(told), "{refused}");
    }
    run(&mut memory, |records| super::grants::revoke_grant(records, GrantId(1))).unwrap();
    let late = txn_of(create_grant(&Records::known(memory.model()), GrantId(4), &grant("c", "p", Role::User), 1));
    run(&mut memory, |records| delete_project(records, "p")).unwrap();
    assert_eq!(memory.run(&late), None, "the project is gone");
    assert!(create(&mut memory, "p/v", 1).is_err());
}

#[test]
fn what_is_outside_is_not_there_for_any_transition() {
    let mut memory = with_projects(ProjectQuota::default());
    create(&mut memory, "p/v", 1).unwrap();
    let bounds = Bounds::Project("q".to_owned());
    for name in ["p/v", "p/none", "v", "none"] {
        let within = |outcome: &dyn Fn(&Records<'_>) -> Option<Halt>| {
            let known = outcome(&Records::known(memory.model()).within(&bounds)).expect("it is refused");
            assert!(
                matches!(&known, Halt::Refused(MetaError::NotFound { kind: Kind::Volume, name: told }) if told == name)
            );
        };
        within(&|records| create_volume(records, &spec(name, 1, None), "x", "").err());
        within(&|records| resize_volume(records, name, BLOCK, false).err());
        within(&|records| delete_volume(records, name, VolumeId(1), &VolumeDeletion::default()).err());
        within(&|records| begin(records, "s", name).err());
    }
    let own = create_volume(&Records::known(memory.model()).within(&bounds), &spec("q/v", 1, None), "x", "");
    assert!(matches!(own, Ok(Step::Run(..))));
    let seen = memory.model().clone().into();
    let seen = crate::Model::within(&seen, &bounds);
    assert!(seen.volumes.is_empty() && seen.projects.keys().eq(["q"]) && seen.grants.is_empty());
}

/// A change that somebody has in mind.
#[derive(Clone, Debug)]
enum Wish {
    Create(usize, u64, Option<u64>),
    Delete(usize),
    Resize(usize, u64),
    Limit(usize, Option<u64>),
    Begin(usize, usize),
    Finish(usize),
    CallOff(usize),
    Forget(usize, usize),
    Clone(usize, usize, usize),
}

fn wishes() -> impl Strategy<Value = Wish> {
    let volume = || 0..4_usize;
    let iops = || prop::option::of(10..50_u64);
    prop_oneof![
        4 => (volume(), 1..5_u64, iops()).prop_map(|(at, blocks, iops)| Wish::Create(at, blocks, iops)),
        2 => volume().prop_map(Wish::Delete),
        2 => (volume(), 1..6_u64).prop_map(|(at, blocks)| Wish::Resize(at, blocks)),
        1 => (volume(), iops()).prop_map(|(at, iops)| Wish::Limit(at, iops)),
        3 => (volume(), 0..3_usize).prop_map(|(at, name)| Wish::Begin(at, name)),
        3 => volume().prop_map(Wish::Finish),
        1 => volume().prop_map(Wish::CallOff),
        2 => (volume(), 0..3_usize).prop_map(|(at, name)| Wish::Forget(at, name)),
        2 => (volume(), volume(), 0..3_usize).prop_map(|(at, from, name)| Wish::Clone(at, from, name)),
    ]
}

/// The change that a wish comes to as things are.
fn change(memory: &Memory, wish: &Wish, number: usize) -> Option<Txn> {
    const NAMES: [&str; 4] = ["p/a", "p/b", "q/a", "c"];
    let snapshot = |name: &usize| format!("s{name}");
    let id = |at: &usize| memory.model().volumes.get(NAMES[*at]).map_or(VolumeId(0), |volume| volume.id);
    fn txn<T>(outcome: Outcome<T>) -> Option<Txn> {
        match outcome {
            Ok(Step::Run(txn, _)) => Some(txn),
            _ => None,
        }
    }
    let uuid = format!("u{number}");
    let deletion = VolumeDeletion { snapshots: true, ..VolumeDeletion::default() };
    let under_way = |at: &usize| {
        let volume = memory.model().volumes.get(NAMES[*at])?;
        let cut = volume.cut.as_ref()?;
        let name = cut.id.split('-').next()?.to_owned();
        let wish = VolumeCut::snapshot(NAMES[*at], &name, SnapshotOrigin::Person);
        let volumes = vec![(wish, volume.record.clone())];
        Some(Cut { id: cut.id.clone(), volumes, revision: memory.model().revision })
    };
    match wish {
        Wish::Create(at, blocks, iops) => {
            txn(attempt(memory, false, |r| create_volume(r, &spec(NAMES[*at], *blocks, *iops), &uuid, "")))
        }
        Wish::Delete(at) => txn(attempt(memory, false, |r| delete_volume(r, NAMES[*at], id(at), &deletion))),
        Wish::Resize(at, blocks) => txn(attempt(memory, false, |r| resize_volume(r, NAMES[*at], blocks * BLOCK, true))),
        Wish::Limit(at, iops) => {
            let limits = iops.map(|iops| IoLimits { iops: Some(iops), ..IoLimits::default() });
            txn(attempt(memory, false, |r| limit_volume(r, NAMES[*at], limits.as_ref())))
        }
        Wish::Begin(at, name) => {
            let wish = VolumeCut::snapshot(NAMES[*at], &snapshot(name), SnapshotOrigin::Person);
            let cut = format!("{}-{number}", snapshot(name));
            txn(attempt(memory, false, |r| begin_cut(r, &cut, NodeId(1), std::slice::from_ref(&wish), (7, 0))))
        }
        Wish::Finish(at) => {
            let cut = under_way(at)?;
            txn(attempt(memory, false, |r| finish_cut(r, &cut)))
        }
        Wish::CallOff(at) => {
            let cut = under_way(at)?;
            txn(attempt(memory, false, |r| call_off_cut(r, &cut.id, &[NAMES[*at].to_owned()])))
        }
        Wish::Forget(at, name) => {
            // Also of a volume that is gone, as the leader does it.
            let known = memory.model().snapshots.keys().nth(*name).cloned();
            let (volume, name) = if *at == 0 { known? } else { (id(at), snapshot(name)) };
            txn(attempt(memory, false, |r| delete_snapshot(r, volume, &name)))
        }
        Wish::Clone(at, from, name) => {
            let clone = CloneSpec {
                volume: NAMES[*from].to_owned(),
                snapshot: snapshot(name),
                name: NAMES[*at].to_owned(),
                size_bytes: None,
                access: None,
                key: None,
            };
            txn(attempt(memory, false, |r| clone_snapshot(r, &clone, &uuid, "")))
        }
    }
}

proptest! {
    /// Changes are thought out on some state and arrive later, when others have come before: what is counted is what
    /// there is after each of them, and no quota is ever passed.
    #[test]
    fn what_is_counted_is_what_there_is(steps in prop::collection::vec((wishes(), 0..4_usize), 1..60)) {
        let quota = ProjectQuota { bytes: Some(12 * BLOCK), volumes: Some(2), snapshots: Some(3), iops: None };
        let mut memory = with_projects(quota);
        let mut waiting: Vec<Txn> = Vec::new();
        for (number, (wish, late)) in steps.iter().enumerate() {
            waiting.extend(change(&memory, wish, number));
            if waiting.len() > *late {
                let txn = waiting.remove(*late % waiting.len());
                let _ = memory.run(&txn);
                counted(&memory);
                for project in memory.model().projects.values() {
                    let used = project.used;
                    prop_assert!(used.bytes <= 12 * BLOCK && used.volumes <= 2 && used.snapshots <= 3, "{:?}", used);
                }
            }
        }
        for txn in waiting {
            let _ = memory.run(&txn);
            counted(&memory);
        }
    }
}

#[test]
fn after_a_restore_all_is_counted_anew() {
    let mut memory = with_projects(ProjectQuota::default());
    create(&mut memory, "p/a", 4).unwrap();
    create(&mut memory, "c", 4).unwrap();
    snapshot(&mut memory, "s", "p/a").unwrap();
    snapshot(&mut memory, "s", "c").unwrap();
    let values = memory.model().keys.iter();
    let mut values: std::collections::BTreeMap<String, serde_json::Value> =
        values.map(|(name, kv)| (name.to_string(), serde_json::from_slice(&kv.value).unwrap())).collect();
    let before = values.clone();
    // Of two times: the records of projects are older, or have counted what is gone.
    for (name, volumes) in [("p", 0), ("q", 7)] {
        values.get_mut(&Key::Project(name).to_string()).unwrap()["used"]["volumes"] = volumes.into();
    }
    super::projects::recount(&mut values);
    assert_eq!(values, before);
}
