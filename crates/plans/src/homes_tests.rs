//! Where groups go when nodes die, devices are drained and nodes join; the groups' primaries are played.

use std::sync::Arc;

use azekura_model::{DeviceFailure, KeyValue};

use super::*;

const GROUPS: u32 = 64;

fn put(model: &mut Model, key: &str, value: &str) {
    let kv = KeyValue {
        key: format!("/azekura/v1/{key}").into_bytes(),
        value: value.as_bytes().to_vec(),
        ..KeyValue::default()
    };
    let event = azekura_model::Change::Put(kv);
    model.apply([&event], 1);
    assert!(model.problems.is_empty(), "{:?}", model.problems);
}

fn join(model: &mut Model, id: u32) {
    let node = r#"{"id":ID,"uuid":"u","name":"nID","data_address":"127.0.0.1:1","api_address":"127.0.0.1:2"}"#;
    let device = r#"{"id":ID,"uuid":"u","node":ID,"name":"d","capacity_bytes":1000000,"state":"up"}"#;
    let of = |text: &str| text.replace("ID", &id.to_string());
    put(model, &format!("nodes/{id}"), &of(node));
    put(model, &format!("devices/{id}"), &of(device));
    put(model, &format!("alive/{id}"), &of(r#"{"node":ID,"since":""}"#));
}

/// Nodes 1 to `nodes`, each with device of the same number, and a class of two copies whose groups are placed.
fn cluster(nodes: u32) -> Model {
    let mut model = Model::default();
    (1..=nodes).for_each(|id| join(&mut model, id));
    let ids = (1..=GROUPS).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    let class = r#"{"name":"c","copies":2,"failure_domain":"host","ack_rule":"all","copies_min":1,
        "overcommit_ratio":4.0,"groups":[IDS],"created":""}"#;
    put(&mut model, "classes/c", &class.replace("IDS", &ids));
    let placed = crate::placement::place_class(&model, &model.classes["c"], GROUPS).unwrap();
    for (id, group) in (1..).zip(placed) {
        let record = serde_json::json!({
            "id": id, "class": "c", "version": 1, "epoch": 1, "primary": group.primary,
            "in_sync": group.members, "members": group.members,
        });
        put(&mut model, &format!("groups/{id}"), &record.to_string());
    }
    model
}

fn die(model: &mut Model, id: u32) {
    Arc::make_mut(&mut model.alive).remove(&NodeId(id));
}

fn set_state(model: &mut Model, id: u32, state: DeviceState) {
    let record = DeviceRecord { state, ..model.devices[&DeviceId(id)].record.clone() };
    put(model, &format!("devices/{id}"), &serde_json::to_string(&record).unwrap());
}

/// Device `id` fails, or is well again.
fn fail(model: &mut Model, id: u32, kind: Option<FailureKind>) {
    let failure = kind.map(|kind| DeviceFailure { kind, reason: "smoke".into(), since: String::new() });
    let record = DeviceRecord { failure, ..model.devices[&DeviceId(id)].record.clone() };
    put(model, &format!("devices/{id}"), &serde_json::to_string(&record).unwrap());
}

fn store(model: &mut Model, record: &GroupRecord) {
    put(model, &format!("groups/{}", record.id), &serde_json::to_string(record).unwrap());
}

fn carry_out(model: &mut Model, moves: &[Move]) {
    for wanted in moves {
        let record = model.groups[&wanted.group].with_members(&wanted.members);
        assert_eq!(record.version, model.groups[&wanted.group].version + 1);
        store(model, &record);
    }
}

/// What primaries and devices do, if their nodes are alive: bring members up to date, let others go, forget.
fn settle(model: &mut Model) {
    let groups: Vec<GroupRecord> = model.groups.values().map(|group| group.record.clone()).collect();
    for mut group in groups {
        let before = group.clone();
        let alive: Vec<DeviceId> = model.devices.keys().copied().filter(|d| model.is_device_alive(*d)).collect();
        group.in_sync.retain(|device| alive.contains(device));
        assert!(!group.in_sync.is_empty(), "every copy of {} is lost", group.id);
        let arrived: Vec<DeviceId> = group.members.iter().filter(|d| alive.contains(d)).copied().collect();
        group.in_sync.extend(arrived);
        group.in_sync.sort_unstable();
        group.in_sync.dedup();
        if group.in_sync.len() > group.members.len() {
            group.in_sync.retain(|device| group.members.contains(device));
        }
        if !group.in_sync.contains(&group.primary) {
            group.primary = group.in_sync[0];
        }
        let in_sync = group.in_sync.clone();
        group.leaving.retain(|device| in_sync.contains(device) || !alive.contains(device));
        if group != before {
            group.version += 1;
            store(model, &group);
        }
    }
}

fn loads(model: &Model) -> BTreeMap<u32, usize> {
    let count = |id: &DeviceId| model.groups.values().filter(|group| group.members.contains(id)).count();
    model.devices.keys().map(|id| (id.0, count(id))).collect()
}

/// Rounds until nothing is left to do; the number of copies that moved.
fn rounds(model: &mut Model, gone: &[u32]) -> usize {
    let gone = gone.iter().map(|id| DeviceId(*id)).collect();
    let mut copies = 0;
    for _ in 0..200 {
        let moves = step(model, &gone);
        if moves.is_empty() {
            return copies;
        }
        let optional = moves.iter().filter(|wanted| wanted.reason != Reason::Repair).count();
        assert!(optional <= model.settings().moves_at_once as usize, "{optional} groups at once");
        for wanted in &moves {
            let group = &model.groups[&wanted.group];
            copies += wanted.members.iter().filter(|device| !group.members.contains(device)).count();
            let kept = wanted.members.iter().any(|device| group.in_sync.contains(device));
            assert!(kept || wanted.reason != Reason::Repair);
        }
        carry_out(model, &moves);
        settle(model);
    }
    panic!("it never ends");
}

#[test]
fn a_settled_cluster_stays_as_it_is() {
    assert_eq!(step(&cluster(4), &BTreeSet::new()), []);
}

#[test]
fn the_copies_of_a_dead_node_get_new_homes_and_no_others_move() {
    let mut model = cluster(4);
    let lost = loads(&model)[&2];
    die(&mut model, 2);
    settle(&mut model);
    assert_eq!(step(&model, &BTreeSet::new()), [], "not before its time");
    let moves = step(&model, &[DeviceId(2)].into());
    assert_eq!(moves.len(), lost, "all at once: what has one copy does not wait");
    assert_eq!(rounds(&mut model, &[2]), lost);
    assert!(model.groups.values().all(|group| group.is_settled() && !group.needs(DeviceId(2))));
    assert_eq!(loads(&model).values().filter(|load| (42..=43).contains(*load)).count(), 3);
    // It comes back, empty: its share, and no more.
    put(&mut model, "alive/2", r#"{"node":2,"since":""}"#);
    settle(&mut model);
    assert!(model.groups.values().all(|group| group.leaving.is_empty()));
    assert_eq!(rounds(&mut model, &[]), 32);
}

#[test]
fn a_node_that_comes_back_in_time_keeps_everything() {
    let mut model = cluster(4);
    let before = loads(&model);
    die(&mut model, 3);
    settle(&mut model);
    assert_eq!(rounds(&mut model, &[]), 0);
    put(&mut model, "alive/3", r#"{"node":3,"since":""}"#);
    assert_eq!(rounds(&mut model, &[]), 0);
    assert_eq!(loads(&model), before);
}

#[test]
fn too_few_nodes_leave_everything_where_it_is() {
    let mut model = cluster(2);
    die(&mut model, 2);
    settle(&mut model);
    assert_eq!(step(&model, &[DeviceId(2)].into()), []);
}

#[test]
fn a_drained_device_is_emptied_a_few_groups_at_a_time() {
    let mut model = cluster(4);
    let drained = loads(&model)[&1];
    set_state(&mut model, 1, DeviceState::Draining);
    assert_eq!(step(&model, &BTreeSet::new()).len(), 8);
    put(&mut model, "settings", r#"{"moves_at_once":3}"#);
    assert_eq!(rounds(&mut model, &[]), drained);
    assert_eq!(loads(&model)[&1], 0);
    assert_eq!(model.groups_on(DeviceId(1)).count(), 0);
    // A drain that is called off half-way: what has not moved stays.
    let mut model = cluster(4);
    set_state(&mut model, 1, DeviceState::Draining);
    let moves = step(&model, &BTreeSet::new());
    carry_out(&mut model, &moves);
    set_state(&mut model, 1, DeviceState::Up);
    settle(&mut model);
    assert!(rounds(&mut model, &[]) <= 8);
    assert_eq!(loads(&model)[&1], 32);
}

#[test]
fn a_new_node_gets_its_share_and_nothing_else_moves() {
    let mut model = cluster(3);
    join(&mut model, 4);
    assert_eq!(rounds(&mut model, &[]), 32);
    assert_eq!(loads(&model), [(1, 32), (2, 32), (3, 32), (4, 32)].into());
}

#[test]
fn groups_that_lack_a_copy_do_not_move_for_balance() {
    let mut model = cluster(3);
    join(&mut model, 4);
    die(&mut model, 2);
    settle(&mut model);
    for wanted in step(&model, &BTreeSet::new()) {
        assert!(model.groups[&wanted.group].is_settled() && !wanted.members.contains(&DeviceId(2)), "{wanted:?}");
    }
}

#[test]
fn a_copy_comes_back_only_when_the_former_one_is_gone() {
    let mut model = cluster(2);
    join(&mut model, 3);
    die(&mut model, 2);
    settle(&mut model);
    let moves = step(&model, &[DeviceId(2)].into());
    carry_out(&mut model, &moves);
    // Node 3 dies, too, and node 2 is back, but has not given up its copies yet.
    put(&mut model, "alive/2", r#"{"node":2,"since":""}"#);
    die(&mut model, 3);
    assert_eq!(step(&model, &[DeviceId(3)].into()), []);
    settle(&mut model);
    assert_eq!(step(&model, &[DeviceId(3)].into()).len(), 64);
}

#[test]
fn absence_is_counted_from_when_it_was_seen() {
    let (mut model, mut absences) = (cluster(3), Absences::default());
    let start = Duration::from_secs(7);
    let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
    absences.look(&model, start);
    assert_eq!(absences.next(Some(minute), start), None);
    die(&mut model, 2);
    absences.look(&model, start + second);
    absences.look(&model, start + 2 * second);
    assert_eq!(absences.next(Some(minute), start + second), Some(start + 61 * second));
    assert_eq!(absences.next(None, start), None);
    assert!(absences.lost(&model, minute, start + 60 * second).is_empty());
    assert_eq!(absences.lost(&model, minute, start + 61 * second), [DeviceId(2)].into());
    put(&mut model, "alive/2", r#"{"node":2,"since":""}"#);
    absences.look(&model, start + 62 * second);
    assert!(absences.lost(&model, Duration::ZERO, start + 90 * second).is_empty());
}

#[test]
fn a_device_that_has_stopped_is_waited_for_as_a_node_is() {
    let (mut model, mut absences) = (cluster(4), Absences::default());
    let (start, minute) = (Duration::from_secs(7), Duration::from_secs(60));
    let lost = loads(&model)[&2];
    fail(&mut model, 2, Some(FailureKind::Stopped));
    settle(&mut model);
    absences.look(&model, start);
    assert_eq!(absences.next(Some(minute), start), Some(start + minute));
    let soon = absences.lost(&model, minute, start + minute / 2);
    assert_eq!(step(&model, &soon), [], "it keeps what it has, and is given nothing");
    let late = absences.lost(&model, minute, start + minute);
    assert_eq!(late, [DeviceId(2)].into());
    assert_eq!(step(&model, &late).len(), lost);
    assert_eq!(rounds(&mut model, &[2]), lost);
    assert!(model.groups.values().all(|group| group.is_settled() && !group.needs(DeviceId(2))));
    // Its node is started again, and it is well: its share.
    fail(&mut model, 2, None);
    absences.look(&model, start + 2 * minute);
    assert!(absences.lost(&model, Duration::ZERO, start + 3 * minute).is_empty());
    settle(&mut model);
    assert_eq!(rounds(&mut model, &[]), 32);
}

#[test]
fn what_is_gone_for_good_is_not_waited_for() {
    let (mut model, absences) = (cluster(4), Absences::default());
    let now = Duration::from_secs(7);
    let lost = loads(&model)[&3];
    fail(&mut model, 3, Some(FailureKind::Lost));
    settle(&mut model);
    let gone = absences.lost(&model, Duration::from_secs(600), now);
    assert_eq!(gone, [DeviceId(3)].into());
    let moves = step(&model, &gone);
    assert!(moves.len() == lost && moves.iter().all(|wanted| wanted.reason == Reason::Repair));
}

#[test]
fn a_failing_device_is_emptied_while_it_serves() {
    let mut model = cluster(4);
    let held = loads(&model)[&1];
    fail(&mut model, 1, Some(FailureKind::Failing));
    let moves = step(&model, &BTreeSet::new());
    assert!(moves.len() == 8 && moves.iter().all(|wanted| wanted.reason == Reason::Drain));
    assert_eq!(rounds(&mut model, &[]), held);
    assert_eq!(loads(&model)[&1], 0);
}
