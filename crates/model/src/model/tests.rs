//! The model against broken and strange values.

use proptest::prelude::*;

use super::*;
use crate::PREFIX;

fn kv(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.into(), value: value.into(), mod_revision: 7, ..KeyValue::default() }
}

const NODE: &str = r#"{"id":1,"uuid":"u","name":"n1","data_address":"127.0.0.1:7181","api_address":"127.0.0.1:7180"}"#;

#[test]
fn records_come_and_go() {
    let mut model = Model::from_keys(&[kv("/azekura/v1/nodes/1", NODE)], 7);
    assert_eq!(model.nodes[&NodeId(1)].name, "n1");
    assert_eq!(model.nodes[&NodeId(1)].mod_revision, 7);
    let before = model.clone();
    let gone = Change::Delete("/azekura/v1/nodes/1".into());
    model.apply(&[gone], 8);
    assert!(model.nodes.is_empty() && model.problems.is_empty());
    assert_eq!(model.revision, 8);
    assert_eq!(before.nodes.len(), 1, "a former model stays as it was");
}

#[test]
fn unknown_fields_are_kept() {
    let value = NODE.replace("{\"id\"", "{\"future\":[1,2],\"id\"");
    let model = Model::from_keys(&[kv("/azekura/v1/nodes/1", &value)], 7);
    let again = serde_json::to_value(&model.nodes[&NodeId(1)].record).unwrap();
    assert_eq!(again["future"], serde_json::json!([1, 2]));
}

#[test]
fn broken_records_are_reported_and_skipped() {
    let group = r#"{"id":2,"class":"c","epoch":1,"primary":1,"in_sync":[2,3],"members":[2,3]}"#;
    let broken = [
        ("/azekura/v1/nodes/1", "not json"),
        ("/azekura/v1/nodes/2", NODE),
        ("/azekura/v1/devices/1", r#"{"id":1,"uuid":"u","node":1,"name":"d","capacity_bytes":-1,"state":"up"}"#),
        ("/azekura/v1/devices/2", r#"{"id":2,"uuid":"u","node":1,"name":"d","capacity_bytes":1,"state":"melted"}"#),
        ("/azekura/v1/groups/2", group),
        ("/azekura/v1/volumes/v", "{}"),
        ("/azekura/v1/counters/volumes", "\"one\""),
        ("/azekura/v1/cluster", r#"{"id":"xyz","name":"c","created":""}"#),
    ];
    let kvs: Vec<KeyValue> = broken.iter().map(|(key, value)| kv(key, value)).collect();
    let mut model = Model::from_keys(&kvs, 9);
    assert_eq!(model.problems.len(), broken.len());
    assert!(model.nodes.is_empty() && model.devices.is_empty() && model.groups.is_empty());
    assert!(model.problems["/azekura/v1/nodes/2"].contains("another id"));
    // Repaired: the problem goes.
    let repaired = Change::Put(kv("/azekura/v1/nodes/1", NODE));
    model.apply(&[repaired], 10);
    assert_eq!(model.problems.len(), broken.len() - 1);
    // Keys of other versions are left alone.
    model.apply(&[Change::Put(kv("/azekura/v2/x", "?"))], 11);
    assert_eq!(model.problems.len(), broken.len() - 1);
}

#[test]
fn settings_have_defaults() {
    assert_eq!(Model::default().settings(), SettingsRecord::default());
    let set = |value: &str| Model::from_keys(&[kv("/azekura/v1/settings", value)], 1).settings();
    assert_eq!(set("{}").rehome_after_seconds, Some(600));
    assert_eq!(set(r#"{"rehome_after_seconds":null}"#).rehome_after_seconds, None);
    assert_eq!(set(r#"{"moves_at_once":2}"#).moves_at_once, 2);
}

#[test]
fn a_device_comes_back_to_a_group_only_when_its_copy_is_gone() {
    let text = r#"{"id":2,"class":"c","version":5,"epoch":3,"primary":1,"in_sync":[1],"members":[1,2],"away":{"2":7}}"#;
    let group: GroupRecord = serde_json::from_str(text).unwrap();
    assert!(!group.is_settled() && group.needs(DeviceId(2)));
    let moved = group.with_members(&[DeviceId(4), DeviceId(1)]);
    assert_eq!((moved.version, moved.epoch, moved.primary), (6, group.epoch, group.primary));
    assert_eq!((&moved.members[..], &moved.in_sync[..]), (&[DeviceId(1), DeviceId(4)][..], &[DeviceId(1)][..]));
    assert_eq!(moved.leaving, [DeviceId(2)].into());
    assert!(moved.away.is_empty(), "its place in the order is worth nothing once it may drop what it has");
    assert!(!moved.admits(DeviceId(2)) && moved.admits(DeviceId(3)));
    // One that is in sync still holds everything, whatever its plans were.
    let moved = moved.with_members(&[DeviceId(3), DeviceId(4)]);
    assert!(moved.leaving.contains(&DeviceId(1)) && moved.admits(DeviceId(1)) && moved.needs(DeviceId(1)));
    assert_eq!(moved.with_members(&[DeviceId(1), DeviceId(4)]).leaving, [DeviceId(2), DeviceId(3)].into());
}

#[test]
fn chunks_are_dealt_round_robin() {
    let groups: Vec<PgId> = (10..14).map(PgId).collect();
    let dealt: Vec<u32> = (0..6).map(|chunk| group_of(&groups, 3, ChunkIndex(chunk)).unwrap().0).collect();
    assert_eq!(dealt, [13, 10, 11, 12, 13, 10]);
    assert_eq!(group_of(&groups, u32::MAX, ChunkIndex(u32::MAX)), Some(PgId(12)));
    assert_eq!(group_of(&[], 0, ChunkIndex(0)), None);
}

proptest! {
    #[test]
    fn any_value_is_survived(
        kind in prop::sample::select(vec![
            "cluster", "leader", "settings", "nodes/1", "alive/1", "devices/1", "classes/c", "groups/1", "volumes/v", "layers/1",
            "layers/1/dropped/1", "snapshots/1/s", "counters/x",
        ]),
        value in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            r#"\{("(id|name|state|copies|groups|in_sync|primary|epoch)":(-?[0-9]{1,30}|null|\[1\]|"x"|\{\}),?){0,6}\}"#
                .prop_map(String::into_bytes),
        ],
    ) {
        let key = format!("{PREFIX}{kind}");
        let kv = KeyValue { key: key.clone().into_bytes(), value, ..KeyValue::default() };
        let mut model = Model::from_keys([&kv], 1);
        prop_assert!(model.problems.len() <= 1);
        let event = Change::Delete(kv.key);
        model.apply([&event], 2);
        prop_assert!(model.problems.is_empty());
    }
}
