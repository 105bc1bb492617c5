use super::*;
use azekura_base::NodeId;
use azekura_model::{Key, Memory, Txn};
use serde_json::{Value, json};

/// Puts a record, or takes it away; gives the state after that.
fn set(memory: &mut Memory, key: &Key<'_>, record: Option<Value>) -> Model {
    let key = key.to_string();
    let txn = match record {
        Some(record) => Txn::new().put(&key, &record),
        None => Txn::new().delete(&key),
    };
    memory.run(&txn).unwrap();
    memory.model().clone()
}

fn volume_record(id: u64, name: &str, size_bytes: u64, head: u64) -> Option<Value> {
    Some(json!({
        "id": id, "uuid": format!("u{id}"), "name": name, "size_bytes": size_bytes, "class": "default", "head": head,
        "group_offset": 0, "access": "exclusive", "created": "",
    }))
}

fn node_record(id: u32) -> Option<Value> {
    Some(json!({
        "id": id, "uuid": format!("u{id}"), "name": format!("n{id}"), "data_address": "127.0.0.1:1",
        "api_address": "127.0.0.1:2", "endpoints": [], "incarnation": 1,
    }))
}

/// What is told between two states: event and the thing's name.
fn between(before: &Model, after: &Model) -> Vec<String> {
    let events = differences(&DataKeys::new(None), before, after).unwrap();
    let shown = |told: &Told| {
        let view: Value = serde_json::from_str(&told.data).unwrap();
        format!("{}.{} {}", told.kind.noun(), told.change.word(), view["name"].as_str().unwrap())
    };
    events.iter().map(shown).collect()
}

#[test]
fn a_volume_is_told_from_its_making_to_its_end() {
    let mut memory = Memory::new();
    let none = memory.model().clone();
    let made = set(&mut memory, &Key::Volume("a"), volume_record(1, "a", 4096, 1));
    let larger = set(&mut memory, &Key::Volume("a"), volume_record(1, "a", 8192, 1));
    let head = set(&mut memory, &Key::Volume("a"), volume_record(1, "a", 8192, 2));
    let snapshot = json!({
        "volume": 1, "name": "s", "layer": 1, "size_bytes": 8192, "seconds": 1, "origin": "person", "cut": "c",
    });
    let key = Key::Snapshot(VolumeId(1), "s");
    let snapped = set(&mut memory, &key, Some(snapshot));
    let gone = set(&mut memory, &Key::Volume("a"), None);
    let another = set(&mut memory, &Key::Volume("a"), volume_record(2, "a", 4096, 3));
    assert_eq!(between(&none, &made), ["volume.created a"]);
    assert_eq!(between(&made, &larger), ["volume.changed a"]);
    assert!(between(&larger, &head).is_empty(), "nobody sees the layer that takes the writes");
    assert_eq!(between(&head, &snapped), ["volume.changed a"]);
    assert_eq!(between(&snapped, &gone), ["volume.deleted a"]);
    assert_eq!(
        between(&snapped, &another),
        ["volume.deleted a", "volume.created a"],
        "one after the other, seen at once"
    );
    assert!(between(&none, &gone).is_empty(), "came and went");
}

#[test]
fn nodes_are_told_and_volumes_do_not_tell_of_them() {
    let mut memory = Memory::new();
    set(&mut memory, &Key::Volume("a"), volume_record(1, "a", 4096, 1));
    let without = set(&mut memory, &Key::Node(NodeId(1)), node_record(1));
    let two = set(&mut memory, &Key::Node(NodeId(2)), node_record(2));
    assert_eq!(two.nodes.len(), 2, "the records are read: {:?}", two.problems);
    let alive = json!({ "node": 2, "since": "2026-11-26T10:00:00Z" });
    let alive = set(&mut memory, &Key::Alive(NodeId(2)), Some(alive));
    assert_eq!(alive.alive.len(), 1, "{:?}", alive.problems);
    let absent = set(&mut memory, &Key::Alive(NodeId(2)), None);
    let gone = set(&mut memory, &Key::Node(NodeId(2)), None);
    assert_eq!(between(&without, &two), ["node.created n2"]);
    assert_eq!(between(&two, &alive), ["node.changed n2"]);
    assert_eq!(between(&alive, &absent), ["node.changed n2"]);
    assert_eq!(between(&absent, &gone), ["node.deleted n2"]);
}

#[test]
fn a_step_that_is_too_large_is_not_kept() {
    let mut memory = Memory::new();
    let none = memory.model().clone();
    let mut txn = Txn::new();
    for id in 0..6000 {
        let name = format!("a{id}");
        txn = txn.put(&Key::Volume(&name).to_string(), &volume_record(id, &name, 4096, id).unwrap());
    }
    memory.run(&txn).unwrap();
    assert!(differences(&DataKeys::new(None), &none, memory.model()).is_none());
}

#[test]
fn a_job_is_told_as_it_begins_goes_on_and_ends() {
    let mut memory = Memory::new();
    set(&mut memory, &Key::Node(NodeId(1)), node_record(1));
    let device = |state: &str| {
        Some(json!({ "id": 1, "uuid": "d1", "node": 1, "name": "device-0", "capacity_bytes": 1, "state": state }))
    };
    let group = |id: u32, member: u32| {
        Some(json!({ "id": id, "class": "c", "epoch": 1, "primary": member, "in_sync": [member], "members": [member] }))
    };
    let key = Key::Device(azekura_base::DeviceId(1));
    set(&mut memory, &key, device("up"));
    set(&mut memory, &Key::Group(azekura_base::PgId(1)), group(1, 1));
    let before = set(&mut memory, &Key::Group(azekura_base::PgId(2)), group(2, 1));
    let begun = set(&mut memory, &key, device("draining"));
    let half = set(&mut memory, &Key::Group(azekura_base::PgId(1)), group(1, 2));
    let over = set(&mut memory, &Key::Group(azekura_base::PgId(2)), group(2, 2));
    let told = |before: &Model, after: &Model| {
        let events = differences(&DataKeys::new(None), before, after).unwrap();
        let jobs = events.into_iter().filter(|told| told.kind == Watched::Jobs);
        let shown = |told: Told| {
            let view: JobView = serde_json::from_str(&told.data).unwrap();
            format!("{} {} {}", told.change.word(), view.id, view.left)
        };
        jobs.map(shown).collect::<Vec<_>>()
    };
    assert_eq!(told(&before, &begun), ["created drain/1 2"]);
    assert_eq!(told(&begun, &half), ["changed drain/1 1"]);
    assert_eq!(told(&half, &over), ["deleted drain/1 1"]);
    assert!(told(&over, &over.clone()).is_empty());
}

#[test]
fn the_rotation_of_a_key_is_told() {
    let mut memory = Memory::new();
    let key = |numbers: &[u8], provider: &str| {
        let made =
            |number: &u8| json!({ "number": number, "provider": provider, "wrapped": "", "check": "", "created": "" });
        Some(json!({ "id": 5, "generations": numbers.iter().map(made).collect::<Vec<_>>() }))
    };
    let name = Key::DataKey(KeyId(5));
    set(&mut memory, &name, key(&[0], "file"));
    let mut of_key = volume_record(1, "a", 4096, 1).unwrap();
    of_key["key"] = json!(5);
    let one = set(&mut memory, &Key::Volume("a"), Some(of_key));
    assert_eq!(one.data_keys.len(), 1, "{:?}", one.problems);
    let two = set(&mut memory, &name, key(&[0, 1], "file"));
    let again = set(&mut memory, &name, key(&[1], "vault"));
    let told = |before, after| {
        let events = differences(&DataKeys::new(None), before, after).unwrap();
        let told: Vec<String> =
            events.iter().map(|told| format!("{}.{}", told.kind.noun(), told.change.word())).collect();
        told
    };
    assert_eq!(told(&one, &two), ["job.created"]);
    assert_eq!(told(&two, &again), ["volume.changed", "job.deleted"], "somebody else has the wrapping key");
}
