//! What adds up, and what is counted once.

use super::*;
use azekura_api::{DeviceSnapshot, NodeSnapshot, NodeStats};
use azekura_base::NodeId;
use azekura_model::KeyValue;

fn model(records: &[(&str, &str)]) -> Model {
    let kvs: Vec<KeyValue> = records
        .iter()
        .map(|(key, value)| KeyValue {
            key: format!("/azekura/v1/{key}").into_bytes(),
            value: value.as_bytes().to_vec(),
            mod_revision: 1,
            ..KeyValue::default()
        })
        .collect();
    let model = Model::from_keys(&kvs, 1);
    assert!(model.problems.is_empty(), "{:?}", model.problems);
    model
}

const NODE: &str = r#"{"id":1,"uuid":"u","name":"n1","data_address":"127.0.0.1:1","api_address":"127.0.0.1:2"}"#;
const DEVICE: &str = r#"{"id":1,"uuid":"u","node":1,"name":"d","capacity_bytes":1000,"usable_bytes":900,
    "state":"up"}"#;
const CLASS: &str = r#"{"name":"c","copies":2,"failure_domain":"host","ack_rule":"all","copies_min":1,
    "overcommit_ratio":4.0,"groups":[1],"created":""}"#;

fn volume(id: u64, name: &str, head: u64) -> String {
    format!(
        r#"{{"id":{id},"uuid":"u","name":"{name}","size_bytes":4096,"class":"c","head":{head},"group_offset":0,"created":""}}"#
    )
}

fn layer(id: u64, parent: &str, state: &str) -> String {
    format!(r#"{{"id":{id},"volume":1,"parent":{parent},"state":"{state}"}}"#)
}

/// `db` stands on layers 2 and 1, its clone `look` on layer 1; layer 5 was deleted.
fn cloned() -> Model {
    let (db, look) = (volume(1, "db", 3), volume(2, "look", 4));
    let layers = [
        layer(1, "null", "frozen"),
        layer(2, "1", "frozen"),
        layer(3, "2", "head"),
        layer(4, "1", "head"),
        layer(5, "null", "deleted"),
    ];
    model(&[
        ("nodes/1", NODE),
        ("devices/1", DEVICE),
        ("classes/c", CLASS),
        ("volumes/db", &db),
        ("volumes/look", &look),
        ("layers/1", &layers[0]),
        ("layers/2", &layers[1]),
        ("layers/3", &layers[2]),
        ("layers/4", &layers[3]),
        ("layers/5", &layers[4]),
    ])
}

fn stats() -> ClusterStats {
    let device = DeviceSnapshot {
        id: 1,
        capacity_bytes: 900,
        live_bytes: 310,
        occupied_bytes: 400,
        ..DeviceSnapshot::default()
    };
    let snapshot = NodeSnapshot { node: 1, devices: vec![device], ..NodeSnapshot::default() };
    let node = NodeStats { node: NodeId(1), name: "n1".into(), snapshot: Some(snapshot), problem: None };
    ClusterStats { nodes: vec![node], resync: None }
}

#[test]
fn what_a_clone_and_its_source_share_counts_for_both_and_once_for_their_class() {
    let layers = [(1, 100), (2, 20), (3, 50), (4, 40), (5, 60)].map(|(layer, bytes)| (LayerId(layer), bytes)).into();
    let space = space(&cloned(), &stats(), &layers);
    let found: Vec<_> = space.volumes.iter().map(|v| (v.name.as_str(), v.written)).collect();
    let written = |unique_bytes, shared_bytes| Written {
        provisioned_bytes: 8192,
        written_bytes: unique_bytes + shared_bytes,
        unique_bytes,
        shared_bytes,
    };
    assert_eq!(found, [("db", written(50, 120)), ("look", written(40, 100))]);
    let class = &space.classes[0];
    assert_eq!((class.volumes, class.written), (2, Written { provisioned_bytes: 16384, ..written(90, 120) }));
    // What is neither in a head nor in a snapshot is on its way out, and all of it is what the devices have in use.
    let cluster = space.cluster;
    assert_eq!((cluster.unique_bytes, cluster.snapshot_bytes, cluster.leaving_bytes), (90, 120, 100));
    assert_eq!(cluster.used_bytes, 310);
    let device = &space.devices[0];
    assert_eq!((device.physical_bytes, device.reserved_bytes, device.capacity_bytes), (1000, 100, 900));
    assert_eq!((device.garbage_bytes, device.free_bytes), (90, 590));
}

#[test]
fn a_device_whose_node_is_silent_has_no_figures_but_its_size() {
    let space = space(&cloned(), &ClusterStats::default(), &BTreeMap::new());
    let device = &space.devices[0];
    assert_eq!((device.physical_bytes, device.capacity_bytes, device.used_bytes), (1000, 0, 0));
    assert_eq!((space.cluster.physical_bytes, space.cluster.usable_bytes), (1000, 900));
    assert_eq!(space.volumes[0].written.written_bytes, 0);
}

#[test]
fn a_loop_of_parents_ends() {
    let db = volume(1, "db", 2);
    let (one, two) = (layer(1, "2", "frozen"), layer(2, "1", "head"));
    let model = model(&[("classes/c", CLASS), ("volumes/db", &db), ("layers/1", &one), ("layers/2", &two)]);
    assert_eq!(ancestors(&model, LayerId(2)).count(), 2);
}
