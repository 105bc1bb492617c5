//! The judgement of a cluster's health.

use azekura_api::{DeviceSnapshot, NodeSnapshot, NodeStats};
use azekura_model::KeyValue;

use super::*;

const NODE: &str = r#"{"id":ID,"uuid":"u","name":"nID","data_address":"127.0.0.1:1","api_address":"127.0.0.1:2"}"#;
const DEVICE: &str = r#"{"id":ID,"uuid":"u","node":ID,"name":"d","capacity_bytes":100,"state":"up"}"#;
const CLASS: &str = r#"{"name":"c","copies":2,"failure_domain":"host","ack_rule":"all","copies_min":1,
    "overcommit_ratio":4.0,"groups":[1],"created":""}"#;
const VOLUME: &str =
    r#"{"id":1,"uuid":"u","name":"v","size_bytes":4096,"class":"c","head":1,"group_offset":0,"created":""}"#;
const GROUP: &str = r#"{"id":1,"class":"c","epoch":1,"primary":1,"in_sync":[1,2],"members":[1,2]}"#;

/// A healthy cluster of two nodes.
fn model() -> Model {
    let mut kvs = Vec::new();
    let mut put = |key: &str, value: &str| {
        let key = format!("/azekura/v1/{key}").into_bytes();
        kvs.push(KeyValue { key, value: value.as_bytes().to_vec(), mod_revision: 1, ..KeyValue::default() });
    };
    for id in ["1", "2"] {
        put(&format!("nodes/{id}"), &NODE.replace("ID", id));
        put(&format!("alive/{id}"), &format!("{{\"node\":{id},\"since\":\"\"}}"));
        put(&format!("devices/{id}"), &DEVICE.replace("ID", id));
    }
    put("classes/c", CLASS);
    put("groups/1", GROUP);
    put("volumes/v", VOLUME);
    let model = Model::from_keys(&kvs, 1);
    assert!(model.problems.is_empty(), "{:?}", model.problems);
    model
}

fn stats() -> ClusterStats {
    let node = |id: u32, role: &str| {
        let device = DeviceSnapshot {
            id,
            state: "open".into(),
            capacity_bytes: 100,
            live_bytes: 10,
            ..DeviceSnapshot::default()
        };
        let group =
            GroupSnapshot { id: 1, device: id, role: role.into(), state: ACTIVE.into(), ..GroupSnapshot::default() };
        let snapshot = NodeSnapshot { node: id, devices: vec![device], groups: vec![group], ..NodeSnapshot::default() };
        NodeStats { node: azekura_base::NodeId(id), name: format!("n{id}"), snapshot: Some(snapshot), problem: None }
    };
    ClusterStats { nodes: vec![node(1, "primary"), node(2, "secondary")], resync: None }
}

fn away() -> Stale {
    Stale { seconds: 12, node: "n1".into(), reason: "refused".into() }
}

fn judged(model: &Model, stats: &ClusterStats) -> ClusterStatus {
    judge(model, stats, None, "http://here".into())
}

#[test]
fn a_healthy_cluster() {
    let status = judged(&model(), &stats());
    assert!(status.healthy, "{:?}", status.problems);
    assert_eq!(status.groups, BTreeMap::from([(GroupHealth::Healthy, 1)]));
    assert_eq!((status.used_bytes, status.capacity_bytes), (20, 200));
    assert_eq!(serde_json::to_value(&status).unwrap()["groups"], serde_json::json!({"healthy": 1}));
    // A cluster without groups is healthy, too.
    let mut empty = model();
    empty.groups = Default::default();
    assert!(judged(&empty, &stats()).healthy);
}

#[test]
fn a_dead_secondary_degrades_and_a_dead_primary_stops() {
    for (dead, health) in [(2, GroupHealth::Degraded), (1, GroupHealth::Unavailable)] {
        let mut model = model();
        std::sync::Arc::make_mut(&mut model.alive).remove(&azekura_base::NodeId(dead));
        let status = judged(&model, &stats());
        assert!(!status.healthy);
        assert_eq!(status.groups, BTreeMap::from([(health, 1)]));
        assert!(
            status.problems.iter().any(|problem| problem.contains(&format!("node n{dead}"))),
            "{:?}",
            status.problems
        );
    }
}

#[test]
fn a_primary_that_is_not_ready_is_not_healthy() {
    let mut stats = stats();
    if let Some(snapshot) = &mut stats.nodes[0].snapshot {
        snapshot.groups[0].state = "recovering".into();
    }
    assert_eq!(judged(&model(), &stats).groups, BTreeMap::from([(GroupHealth::Unavailable, 1)]));
}

#[test]
fn a_group_that_nobody_has_used_since_a_copy_fell_silent_is_degraded_not_unserved() {
    let mut model = model();
    std::sync::Arc::make_mut(&mut model.alive).remove(&azekura_base::NodeId(2));
    let mut stats = stats();
    stats.nodes[1].snapshot = None;
    if let Some(snapshot) = &mut stats.nodes[0].snapshot {
        snapshot.groups[0].state = IDLE.into();
    }
    let status = judged(&model, &stats);
    assert_eq!(status.groups, BTreeMap::from([(GroupHealth::Degraded, 1)]));
    assert!(!status.problems.iter().any(|problem| problem.contains("do not serve")), "{:?}", status.problems);
    // The copy can't be left behind while the configuration can't be changed.
    let status = judge(&model, &stats, Some(away()), "http://here".into());
    assert_eq!(status.groups, BTreeMap::from([(GroupHealth::Unavailable, 1)]));
    // It is still named in sync, and the next write finds too few.
    let class = CLASS.replace(r#""copies_min":1"#, r#""copies_min":2"#);
    let kv = KeyValue { key: "/azekura/v1/classes/c".into(), value: class.into(), ..KeyValue::default() };
    model.apply([&azekura_model::Change::Put(kv)], 2);
    for state in [IDLE, ACTIVE, READ_ONLY] {
        if let Some(snapshot) = &mut stats.nodes[0].snapshot {
            snapshot.groups[0].state = state.into();
        }
        assert_eq!(judged(&model, &stats).groups, BTreeMap::from([(GroupHealth::ReadOnly, 1)]), "{state}");
    }
    // Nor does one serve whose only copy is gone.
    std::sync::Arc::make_mut(&mut model.alive).remove(&azekura_base::NodeId(1));
    assert_eq!(judged(&model, &stats).groups, BTreeMap::from([(GroupHealth::Unavailable, 1)]));
}

#[test]
fn other_troubles_are_told() {
    let mut stats = stats();
    if let Some(snapshot) = &mut stats.nodes[1].snapshot {
        snapshot.devices[0].live_bytes = 90;
    }
    stats.nodes[0].snapshot = None;
    stats.nodes[0].problem = Some("no answer in time".into());
    let status = judge(&model(), &stats, Some(away()), "http://here".into());
    for part in
        ["nearly full", "can't be asked at 127.0.0.1:2: no answer in time", "can't be changed meanwhile: refused"]
    {
        assert!(status.problems.iter().any(|problem| problem.contains(part)), "{part}: {:?}", status.problems);
    }
}

#[test]
fn a_dead_node_that_holds_nothing_is_not_missed() {
    let mut model = model();
    let mut put = |key: &str, value: String| {
        let kv =
            KeyValue { key: format!("/azekura/v1/{key}").into_bytes(), value: value.into(), ..KeyValue::default() };
        model.apply([&azekura_model::Change::Put(kv)], 2);
    };
    put("nodes/3", NODE.replace("ID", "3"));
    put("devices/3", DEVICE.replace("ID", "3").replace("up", "draining"));
    let mut with_three = stats();
    let away = NodeStats { node: azekura_base::NodeId(3), name: "n3".into(), snapshot: None, problem: None };
    with_three.nodes.push(away);
    let status = judged(&model, &with_three);
    assert!(status.healthy, "{:?}", status.problems);
    assert!(status.notes.iter().any(|note| note.contains("n3 is absent")), "{:?}", status.notes);
    assert!(status.notes.iter().any(|note| note.contains("is drained")), "{:?}", status.notes);
    // While a group still has its copy there, it is.
    let group = GROUP.replace(r#""in_sync":[1,2]"#, r#""in_sync":[1,2,3]"#);
    let kv = KeyValue { key: "/azekura/v1/groups/1".into(), value: group.into(), ..KeyValue::default() };
    model.apply([&azekura_model::Change::Put(kv)], 3);
    let status = judged(&model, &with_three);
    assert!(status.problems.iter().any(|problem| problem.contains("n3 gives no sign of life")));
    assert!(status.notes.iter().any(|note| note.contains("1 groups left")), "{:?}", status.notes);
}

#[test]
fn a_group_below_its_minimum_is_read_only() {
    let mut model = model();
    for (key, value) in [
        ("classes/c", CLASS.replace(r#""copies_min":1"#, r#""copies_min":2"#)),
        ("groups/1", GROUP.replace(r#""in_sync":[1,2]"#, r#""in_sync":[1]"#)),
    ] {
        let kv =
            KeyValue { key: format!("/azekura/v1/{key}").into_bytes(), value: value.into(), ..KeyValue::default() };
        model.apply([&azekura_model::Change::Put(kv)], 2);
    }
    let mut stats = stats();
    if let Some(snapshot) = &mut stats.nodes[0].snapshot {
        snapshot.groups[0].state = READ_ONLY.into();
    }
    assert_eq!(judged(&model, &stats).groups, BTreeMap::from([(GroupHealth::ReadOnly, 1)]));
}

#[test]
fn a_volume_whose_former_users_may_still_write_is_named() {
    let mut model = model();
    let mut put = |key: &str, value: &str| {
        let key = format!("/azekura/v1/{key}").into_bytes();
        let kv = KeyValue { key, value: value.as_bytes().to_vec(), mod_revision: 2, ..KeyValue::default() };
        model.apply(&[azekura_model::Change::Put(kv)], 2);
    };
    put(
        "volumes/v",
        r#"{"id":1,"uuid":"u","name":"v","size_bytes":4096,"class":"c","head":1,"group_offset":0,"created":""}"#,
    );
    put("attachments/1", r#"{"volume":1,"generation":4,"fence_due":true,"attachments":[]}"#);
    assert!(model.problems.is_empty(), "{:?}", model.problems);
    let status = judged(&model, &stats());
    assert!(status.healthy && status.notes.iter().any(|note| note.contains("volume v")), "{:?}", status.notes);
}

#[test]
fn nodes_have_the_shards_that_their_records_say() {
    let mut model = model();
    let key = b"/azekura/v1/nodes/2".to_vec();
    let value = NODE.replace("ID", "2").replace('}', r#","shards":3}"#).into_bytes();
    model.apply(&[azekura_model::Change::Put(KeyValue { key, value, ..KeyValue::default() })], 2);
    let status = serde_json::to_value(judged(&model, &stats())).unwrap();
    assert_eq!((&status["nodes"][0]["shards"], &status["nodes"][1]["shards"]), (&1.into(), &3.into()));
}

#[test]
fn a_failed_device_is_told_with_its_reason_until_it_holds_nothing() {
    for (kind, word) in [("stopped", "has failed: smoke; after 10 min"), ("lost", "has failed: smoke; its copies get")]
    {
        let mut model = model();
        let mut put = |key: &str, value: String| {
            let kv =
                KeyValue { key: format!("/azekura/v1/{key}").into_bytes(), value: value.into(), ..KeyValue::default() };
            model.apply([&azekura_model::Change::Put(kv)], 2);
        };
        let failure = format!(r#""failure":{{"kind":"{kind}","reason":"smoke","since":""}},"state""#);
        put("devices/2", DEVICE.replace("ID", "2").replace(r#""state""#, &failure));
        let status = judged(&model, &stats());
        assert!(status.problems.iter().any(|problem| problem.contains(word)), "{:?}", status.problems);
        assert_eq!(status.groups, BTreeMap::from([(GroupHealth::Degraded, 1)]));
        assert_eq!(status.devices[1].status, "failed");
        // Its copy has a new home.
        let mut put = |key: &str, value: String| {
            let kv =
                KeyValue { key: format!("/azekura/v1/{key}").into_bytes(), value: value.into(), ..KeyValue::default() };
            model.apply([&azekura_model::Change::Put(kv)], 3);
        };
        put("classes/c", CLASS.replace(r#""copies":2"#, r#""copies":1"#));
        put("groups/1", GROUP.replace("[1,2]", "[1]"));
        let status = judged(&model, &stats());
        assert!(status.healthy, "{:?}", status.problems);
        assert!(status.notes.iter().any(|note| note.contains("nothing is missing")), "{:?}", status.notes);
    }
}

#[test]
fn volumes_that_are_affected_are_named_and_what_nobody_uses_alarms_nobody() {
    let mut model = model();
    std::sync::Arc::make_mut(&mut model.alive).remove(&azekura_base::NodeId(1));
    let status = judged(&model, &stats());
    let told = status.problems.iter().find(|problem| problem.contains("do not serve")).unwrap();
    assert!(told.ends_with("(volumes with a part in them: v)"), "{told}");
    // Its volume is deleted: nobody misses the groups, nor the node.
    std::sync::Arc::make_mut(&mut model.volumes).clear();
    let status = judged(&model, &stats());
    assert!(status.healthy, "{:?}", status.problems);
    assert_eq!(status.groups, BTreeMap::from([(GroupHealth::Unavailable, 1)]), "they are counted all the same");
    assert!(status.notes.iter().any(|note| note.contains("azekura class delete c")), "{:?}", status.notes);
}

#[test]
fn while_the_configuration_is_away_the_status_says_how_old_it_is() {
    let status = judge(&model(), &stats(), Some(away()), "http://here".into());
    assert!(!status.healthy && status.stale == Some(away()));
    assert!(
        status.problems[0].starts_with("the configuration has not answered for 12 s; this is what node n1 knew then"),
        "{:?}",
        status.problems
    );
}

fn put(model: &mut Model, key: &str, value: String) {
    let kv = KeyValue { key: key.into(), value: value.into(), ..KeyValue::default() };
    model.apply([&azekura_model::Change::Put(kv)], 2);
}

#[test]
fn a_drain_tells_which_copies_it_waits_for() {
    let mut model = model();
    put(&mut model, "/azekura/v1/devices/1", DEVICE.replace("ID", "1").replace("\"up\"", "\"draining\""));
    let note = |model: &Model| judged(model, &stats()).notes.into_iter().find(|note| note.contains("drained")).unwrap();
    assert!(note(&model).ends_with("1 groups left"), "{}", note(&model));
    std::sync::Arc::make_mut(&mut model.alive).remove(&azekura_base::NodeId(2));
    assert!(note(&model).contains("wait for copies on device 2 of node n2"), "{}", note(&model));
}

#[test]
fn who_serves_volumes_in_clear_on_a_network_is_named() {
    let mut model = model();
    let mut note = |endpoints: &[(&str, &str)]| {
        let nodes = std::sync::Arc::make_mut(&mut model.nodes);
        let node = nodes.values_mut().next().unwrap();
        let mut record = node.record.clone();
        let endpoint = |(protocol, address): &(&str, &str)| Endpoint::new(protocol, (*address).to_owned());
        record.endpoints = endpoints.iter().map(endpoint).collect();
        *node = std::sync::Arc::new(azekura_model::Versioned { record, mod_revision: 1 });
        judged(&model, &stats()).notes.into_iter().find(|note| note.contains("without TLS"))
    };
    let guarded = [("nbds", "10.0.0.1:10809"), ("nbd", "127.0.0.1:1"), ("nbd", "[::1]:1"), ("nbd", "unix:/run/a")];
    assert_eq!(note(&guarded), None);
    for address in ["10.0.0.1:10809", "0.0.0.0:10809", "[fe80::1]:10809"] {
        let told = note(&[guarded[0], ("nbd", address)]).unwrap();
        assert!(told.contains(address) && !told.contains("127"), "{told}");
    }
}

#[test]
fn hosts_that_prove_nothing_are_named() {
    let mut model = model();
    let notes = |model: &Model| -> Vec<String> {
        judged(model, &stats()).notes.into_iter().filter(|note| note.contains("host")).collect()
    };
    let golden = include_str!("../../../../model/tests/golden/grant-host.json");
    put(&mut model, "/azekura/v1/grants/063UfDVRKBz", golden.to_owned());
    let older = notes(&model);
    assert!(older.len() == 1 && older[0].contains("a version that lets any host"), "{older:?}");
    let mut unproved: serde_json::Value = serde_json::from_str(golden).unwrap();
    unproved["host"].as_object_mut().unwrap().retain(|field, _| field == "name");
    put(&mut model, "/azekura/v1/grants/063UfDVRKBz", unproved.to_string());
    let told = notes(&model);
    assert!(told.len() == 2 && told[0].contains("without a secret") && told[0].contains("esx1"), "{told:?}");
}

#[test]
fn servers_without_tls_are_named_where_there_is_a_network() {
    for quiet in ["https://10.0.0.1:2379", "http://127.0.0.1:1, http://[::1]:2, http://localhost:3", ""] {
        assert_eq!(configuration_note(quiet), None, "{quiet}");
    }
    let note = configuration_note("http://127.0.0.1:1, http://10.0.0.1:2379, http://etcd-0:2379").unwrap();
    assert!(note.contains("http://10.0.0.1:2379, http://etcd-0:2379") && !note.contains("127"), "{note}");
}

#[test]
fn groups_without_a_copy_at_their_classes_home_are_told_of() {
    let with = |site: &str| {
        let mut model = model();
        for (key, value) in [
            ("classes/c", CLASS.replace(r#""copies":2"#, r#""copies":2,"home":{"site":"a"}"#)),
            ("nodes/1", NODE.replace("ID", "1").replace('}', &format!(r#","site":"{site}"}}"#))),
        ] {
            let key = format!("/azekura/v1/{key}").into_bytes();
            model.apply([&azekura_model::Change::Put(KeyValue { key, value: value.into(), ..KeyValue::default() })], 2);
        }
        judged(&model, &stats())
    };
    let tells = |status: &ClusterStatus| status.notes.iter().any(|note| note.contains("no copy in site 'a'"));
    assert!(!tells(&with("a")));
    let away = with("b");
    assert!(away.healthy && tells(&away), "{:?}", away.notes);
}

#[test]
fn a_full_device_has_that_problem_and_is_told_of_once() {
    let mut stats = stats();
    assert_eq!(views::devices(&model(), &stats)[0].problem, None);
    stats.nodes[0].snapshot.as_mut().unwrap().devices[0].full = true;
    let devices = views::devices(&model(), &stats);
    assert_eq!((devices[0].problem.as_deref(), devices[1].problem.as_deref()), (Some(FULL), None));
    let told = judged(&model(), &stats).problems;
    assert!(told.iter().filter(|problem| problem.contains("full")).count() == 1, "{told:?}");
    // What is worse comes first.
    stats.nodes[0].snapshot.as_mut().unwrap().devices[0].problem = Some("it is slow".into());
    assert_eq!(views::devices(&model(), &stats)[0].problem.as_deref(), Some("it is slow"));
}

#[test]
fn a_shut_out_node_is_told_of_with_a_command_that_can_be_given() {
    let mut model = model();
    let out = NODE.replace("ID", "2").replace('}', r#","shut_out":{"since":"then","by":"root"}}"#);
    put(&mut model, "/azekura/v1/nodes/2", out);
    let notes = judged(&model, &stats()).notes;
    let note = notes.iter().find(|note| note.contains("shut out")).unwrap();
    assert!(note.contains("azekura node let-in n2 --key KEY"), "{note}");
}
