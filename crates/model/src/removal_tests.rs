//! What may be removed, and how it goes.

use azekura_base::{Epoch, Sequence};

use super::*;
use crate::{Change, KeyValue};

fn kv(key: &str, value: serde_json::Value) -> KeyValue {
    let key = format!("/azekura/v1/{key}").into_bytes();
    KeyValue { key, value: value.to_string().into_bytes(), mod_revision: 1, ..KeyValue::default() }
}

/// Three nodes with a device each, all alive; a class of two copies with three groups, and volume `v` of one chunk in
/// group 1.
fn cluster() -> Model {
    let mut kvs = Vec::new();
    for id in 1..=3 {
        kvs.push(kv(
            &format!("nodes/{id}"),
            serde_json::json!({ "id": id, "uuid": format!("u{id}"), "name": format!("n{id}"),
                "data_address": "127.0.0.1:1", "api_address": "127.0.0.1:2" }),
        ));
        kvs.push(kv(&format!("alive/{id}"), serde_json::json!({ "node": id, "since": "" })));
        kvs.push(kv(
            &format!("devices/{id}"),
            serde_json::json!({ "id": id, "uuid": format!("d{id}"), "node": id, "name": "device-0",
                "capacity_bytes": 100, "state": "up" }),
        ));
    }
    kvs.push(kv(
        "classes/c",
        serde_json::json!({ "name": "c", "copies": 2, "failure_domain": "host", "ack_rule": "all", "copies_min": 1,
            "overcommit_ratio": 4.0, "groups": [1, 2, 3], "created": "" }),
    ));
    for (id, on) in [(1, [1, 2]), (2, [2, 3]), (3, [3, 1])] {
        kvs.push(kv(
            &format!("groups/{id}"),
            serde_json::json!({ "id": id, "class": "c", "epoch": 1, "primary": on[0], "in_sync": on, "members": on }),
        ));
    }
    kvs.push(kv(
        "volumes/v",
        serde_json::json!({ "id": 1, "uuid": "u", "name": "v", "size_bytes": 4096, "class": "c", "head": 1,
            "group_offset": 0, "created": "" }),
    ));
    let model = Model::from_keys(&kvs, 1);
    assert!(model.problems.is_empty(), "{:?}", model.problems);
    model
}

fn put(model: &mut Model, key: &str, value: serde_json::Value) {
    let revision = model.revision + 1;
    let kv = KeyValue { mod_revision: revision, ..kv(key, value) };
    model.apply(&[Change::Put(kv)], revision);
}

fn gone(model: &mut Model, key: &str) {
    let revision = model.revision + 1;
    let kv = kv(key, serde_json::json!(null));
    model.apply(&[Change::Delete(kv.key)], revision);
}

fn put_group(model: &mut Model, group: &GroupRecord) {
    put(model, &format!("groups/{}", group.id), serde_json::to_value(group).unwrap());
}

/// As the operation marks them.
fn mark_removed(model: &mut Model, node: u32) {
    let mut record = model.nodes[&NodeId(node)].record.clone();
    record.removed = true;
    put(model, &format!("nodes/{node}"), serde_json::to_value(record).unwrap());
    for device in model.devices_of(NodeId(node)) {
        let mut record = model.devices[&device].record.clone();
        (record.removed, record.state) = (true, crate::DeviceState::Down);
        put(model, &format!("devices/{device}"), serde_json::to_value(record).unwrap());
    }
}

/// Takes the steps of one look, as the leader does.
fn take_steps(model: &mut Model) -> usize {
    let steps = model.removal_steps();
    for step in &steps {
        match step {
            RemovalStep::Group(record, _) => put_group(model, record),
            RemovalStep::Device(id) => gone(model, &format!("devices/{id}")),
            RemovalStep::Node(id) => gone(model, &format!("nodes/{id}")),
        }
    }
    steps.len()
}

fn refusal(outcome: Result<(), MetaError>) -> (String, String) {
    let error = outcome.unwrap_err();
    (error.to_string(), error.hint().unwrap())
}

#[test]
fn a_running_node_is_not_removed() {
    let model = cluster();
    for lost in [false, true] {
        let (error, hint) = refusal(model.check_node_removal(NodeId(2), lost));
        assert_eq!(error, "node n2 is not removed: it is running");
        assert!(hint.contains("azekura node drain n2"), "{hint}");
    }
}

#[test]
fn a_node_with_copies_is_removed_only_as_lost() {
    let mut model = cluster();
    gone(&mut model, "alive/2");
    let (error, hint) = refusal(model.check_node_removal(NodeId(2), false));
    assert_eq!(error, "node n2 is not removed: 2 placement groups need its copies (parts of v)");
    assert!(hint.contains("azekura node drain n2") && hint.contains("azekura node remove n2 --lost"), "{hint}");
    model.check_node_removal(NodeId(2), true).unwrap();
    // A node whose copies have new homes goes without that.
    for (id, on) in [(1, [1, 3]), (2, [1, 3])] {
        let mut group = model.groups[&PgId(id)].record.clone();
        (group.primary, group.in_sync, group.members) = (DeviceId(1), on.map(DeviceId).into(), on.map(DeviceId).into());
        put_group(&mut model, &group);
    }
    model.check_node_removal(NodeId(2), false).unwrap();
}

#[test]
fn the_last_copy_is_not_given_up() {
    let mut model = cluster();
    gone(&mut model, "alive/2");
    let mut group = model.groups[&PgId(1)].record.clone();
    (group.primary, group.in_sync) = (DeviceId(2), vec![DeviceId(2)]);
    put_group(&mut model, &group);
    let (error, hint) = refusal(model.check_node_removal(NodeId(2), true));
    assert!(error.contains("the last copy") && error.contains("1 placement groups (parts of v)"), "{error}");
    assert!(hint.contains("azekura class delete c"), "{hint}");
    // Where a write waits for a majority, too few copies are as bad as none.
    let mut model = cluster();
    gone(&mut model, "alive/2");
    let mut class = serde_json::to_value(&model.classes["c"].record).unwrap();
    class["ack_rule"] = "majority".into();
    put(&mut model, "classes/c", class);
    assert!(refusal(model.check_node_removal(NodeId(2), true)).0.contains("one of too few"));
}

/// Two dead nodes are given up one after the other, and neither removal sees that the other copy is given up as well.
#[test]
fn a_copy_that_nobody_serves_is_not_what_is_left() {
    let mut model = cluster();
    for id in [1, 2] {
        gone(&mut model, &format!("alive/{id}"));
    }
    for node in [1, 2] {
        assert!(refusal(model.check_node_removal(NodeId(node), true)).0.contains("the last copy"));
    }
    // Of one whose record says so, the copy does not count either.
    let mut model = cluster();
    gone(&mut model, "alive/2");
    model.check_node_removal(NodeId(2), true).unwrap();
    let mut record = model.devices[&DeviceId(1)].record.clone();
    record.removed = true;
    put(&mut model, "devices/1", serde_json::to_value(record).unwrap());
    assert!(refusal(model.check_node_removal(NodeId(2), true)).0.contains("the last copy"));
    // Nor of one that has failed.
    let mut model = cluster();
    gone(&mut model, "alive/2");
    let mut record = serde_json::to_value(&model.devices[&DeviceId(1)].record).unwrap();
    record["failure"] = serde_json::json!({ "kind": "stopped", "reason": "", "since": "" });
    put(&mut model, "devices/1", record);
    assert!(refusal(model.check_node_removal(NodeId(2), true)).0.contains("the last copy"));
}

/// The way out that the refusal names: what was in the volumes is given up with them.
#[test]
fn the_last_copies_go_when_their_volumes_have() {
    let mut model = cluster();
    let layer = |state: &str| serde_json::json!({ "id": 1, "volume": 1, "parent": null, "state": state, "class": "c" });
    put(&mut model, "layers/1", layer("head"));
    for id in [1, 2] {
        gone(&mut model, &format!("alive/{id}"));
    }
    assert!(refusal(model.check_node_removal(NodeId(1), true)).0.contains("the last copy"));
    gone(&mut model, "volumes/v");
    put(&mut model, "layers/1", layer("deleted"));
    put(&mut model, "layers/1/dropped/3", serde_json::json!({}));
    for node in [1, 2] {
        assert_eq!(model.ended_layers(), [], "node {node} may come back with it");
        model.check_node_removal(NodeId(node), true).unwrap();
        mark_removed(&mut model, node);
    }
    assert_eq!(model.ended_layers(), [azekura_base::LayerId(1)]);
}

#[test]
fn an_attached_node_is_not_removed() {
    let mut model = cluster();
    gone(&mut model, "alive/2");
    put(
        &mut model,
        "attachments/1",
        serde_json::json!({ "volume": 1, "generation": 1, "attachments": [{ "node": 2, "incarnation": 0,
            "generation": 1, "shared": false, "pinned": true, "since": "" }] }),
    );
    assert!(model.problems.is_empty(), "{:?}", model.problems);
    let (error, hint) = refusal(model.check_node_removal(NodeId(2), true));
    assert!(error.contains("until they are detached: v"), "{error}");
    assert_eq!(hint, "'azekura volume detach v --node n2' takes one away from it");
}

#[test]
fn a_lost_node_leaves_the_groups_and_then_its_records_go() {
    let mut model = cluster();
    gone(&mut model, "alive/2");
    mark_removed(&mut model, 2);
    assert_eq!(take_steps(&mut model), 2, "two groups have a copy there");
    assert_eq!(model.groups[&PgId(1)].members, [DeviceId(1)]);
    assert_eq!(model.groups[&PgId(1)].in_sync, [DeviceId(1), DeviceId(2)], "that is its primary's business");
    assert_eq!(take_steps(&mut model), 0, "it waits for that");
    // The primaries let the copies go; another one was left behind long ago.
    for (id, stays) in [(1, 1), (2, 3)] {
        let mut group = model.groups[&PgId(id)].record.clone();
        (group.primary, group.in_sync, group.epoch) = (DeviceId(stays), vec![DeviceId(stays)], Epoch(2));
        group.away.insert(DeviceId(2), Sequence(7));
        put_group(&mut model, &group);
    }
    assert_eq!(take_steps(&mut model), 2);
    let group = &model.groups[&PgId(1)];
    assert!(group.leaving.is_empty() && group.away.is_empty(), "{group:?}");
    assert_eq!(take_steps(&mut model), 1, "the device");
    assert_eq!(take_steps(&mut model), 1, "the node");
    assert!(!model.nodes.contains_key(&NodeId(2)) && !model.devices.contains_key(&DeviceId(2)));
    assert_eq!(take_steps(&mut model), 0);
}

#[test]
fn the_last_member_is_never_taken_out() {
    let mut model = cluster();
    let mut group = model.groups[&PgId(1)].record.clone();
    (group.primary, group.in_sync, group.members) = (DeviceId(2), vec![DeviceId(2)], vec![DeviceId(2)]);
    put_group(&mut model, &group);
    gone(&mut model, "alive/2");
    mark_removed(&mut model, 2);
    while take_steps(&mut model) > 0 {}
    assert_eq!(model.groups[&PgId(1)].record, group);
    assert!(model.devices.contains_key(&DeviceId(2)), "its record stays as long");
}

#[test]
fn a_device_is_drained_first() {
    let mut model = cluster();
    let (error, hint) = refusal(model.check_device_removal(DeviceId(2), false));
    assert!(error.starts_with("device 2 (device-0 of node n2) is not removed: 2 placement groups need"), "{error}");
    assert!(hint.contains("azekura device drain 2"), "{hint}");
    assert!(refusal(model.check_device_removal(DeviceId(2), true)).0.contains("so it is not lost"));
    for (id, on) in [(1, [1, 3]), (2, [1, 3])] {
        let mut group = model.groups[&PgId(id)].with_members(&on.map(DeviceId));
        (group.primary, group.in_sync) = (DeviceId(1), on.map(DeviceId).into());
        put_group(&mut model, &group);
    }
    assert!(refusal(model.check_device_removal(DeviceId(2), false)).0.contains("still giving back"));
    for id in [1, 2] {
        let mut group = model.groups[&PgId(id)].record.clone();
        group.leaving.clear();
        put_group(&mut model, &group);
    }
    model.check_device_removal(DeviceId(2), false).unwrap();
}

#[test]
fn who_uses_what() {
    let model = cluster();
    let groups = |ids: &[u32]| ids.iter().copied().map(PgId).collect::<BTreeSet<_>>();
    assert_eq!(model.groups_of_volume(&model.volumes["v"]), groups(&[1]));
    assert_eq!(model.volumes_in(&groups(&[1, 2])), ["v"]);
    assert!(model.volumes_in(&groups(&[2, 3])).is_empty() && model.volumes_in(&groups(&[])).is_empty());
    assert!(model.is_class_used("c") && !model.is_class_used("d"));
    assert_eq!(named(["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
}
