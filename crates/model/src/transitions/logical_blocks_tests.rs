//! Volumes that say what clients count their blocks in.

use azekura_base::{LogicalBlock, NodeId, VolumeId};

use super::classes::{ClassSpec, create_class};
use super::cuts::{Cut, VolumeCut, begin_cut, finish_cut};
use super::snapshots::{CloneSpec, clone_snapshot};
use super::tests::{cluster, run};
use super::volumes::{VolumeSpec, create_volume, resize_volume};
use crate::{Key, Memory, MetaError, SnapshotOrigin, Txn, VolumeAccess, VolumeRecord};

fn spec(name: &str, logical_block: LogicalBlock) -> VolumeSpec {
    VolumeSpec {
        name: name.into(),
        size_bytes: 8192,
        logical_block,
        class: "c".into(),
        access: VolumeAccess::Exclusive,
        key: None,
        limits: None,
    }
}

fn create(memory: &mut Memory, name: &str, block: LogicalBlock) -> Result<VolumeRecord, MetaError> {
    run(memory, |records| create_volume(records, &spec(name, block), name, ""))
}

fn cut(memory: &mut Memory, wish: &VolumeCut) {
    let volumes =
        run(memory, |records| begin_cut(records, "1", NodeId(1), std::slice::from_ref(wish), (7, 0))).unwrap();
    let cut = Cut { id: "1".into(), volumes, revision: memory.model().revision };
    run(memory, |records| finish_cut(records, &cut)).unwrap();
}

fn block_of(memory: &Memory, name: &str) -> LogicalBlock {
    memory.model().volumes[name].logical_block_bytes
}

/// What is kept of a volume.
fn kept(memory: &Memory, name: &str) -> serde_json::Value {
    serde_json::from_slice(&memory.model().key_value(&Key::Volume(name).to_string()).unwrap().value).unwrap()
}

#[test]
fn records_of_before_have_small_blocks_and_stay_as_they_are() {
    let mut memory = cluster();
    assert_eq!(block_of(&memory, "v"), LogicalBlock::Bytes512);
    assert_eq!(kept(&memory, "v").get("logical_block_bytes"), None);
    create(&mut memory, "large", LogicalBlock::Bytes4096).unwrap();
    assert_eq!(kept(&memory, "large")["logical_block_bytes"], 4096);
    for other in [serde_json::json!(1024), serde_json::json!("4096"), serde_json::json!(0)] {
        let mut record = kept(&memory, "large");
        record["logical_block_bytes"] = other;
        assert!(serde_json::from_value::<VolumeRecord>(record).is_err(), "nobody serves it in other blocks");
    }
}

#[test]
fn what_is_made_of_a_volume_has_its_blocks() {
    let mut memory = cluster();
    create(&mut memory, "large", LogicalBlock::Bytes4096).unwrap();
    cut(&mut memory, &VolumeCut::snapshot("large", "s", SnapshotOrigin::Person));
    let (volume, snapshot) = ("large".into(), "s".into());
    let clone = CloneSpec { volume, snapshot, name: "clone".into(), size_bytes: Some(16384), access: None, key: None };
    let made = run(&mut memory, |records| clone_snapshot(records, &clone, "u2", "")).unwrap();
    assert_eq!((made.logical_block_bytes, made.size_bytes), (LogicalBlock::Bytes4096, 16384));
    run(&mut memory, |records| resize_volume(records, "large", 12288, false)).unwrap();
    let back = VolumeCut { back_to: Some("s".into()), ..VolumeCut::snapshot("large", "t", SnapshotOrigin::Revert) };
    let volumes = run(&mut memory, |r| begin_cut(r, "2", NodeId(1), std::slice::from_ref(&back), (8, 0))).unwrap();
    let cut = Cut { id: "2".into(), volumes, revision: memory.model().revision };
    run(&mut memory, |records| finish_cut(records, &cut)).unwrap();
    assert_eq!(memory.model().volumes["large"].size_bytes, 8192);
    assert_eq!(block_of(&memory, "large"), LogicalBlock::Bytes4096);
}

#[test]
fn sizes_are_whole_blocks() {
    let mut memory = cluster();
    for size_bytes in [512, 4096 + 512, 8191] {
        let odd = VolumeSpec { size_bytes, ..spec("odd", LogicalBlock::Bytes4096) };
        let refused = run(&mut memory, |records| create_volume(records, &odd, "u", ""));
        assert!(matches!(&refused, Err(error @ MetaError::InvalidSize { .. }) if error.to_string().contains("4096")));
    }
}

#[test]
fn nodes_that_count_otherwise_are_in_the_way() {
    let mut memory = cluster();
    let mut node = serde_json::json!({ "id": 1, "uuid": "n", "name": "old", "data_address": "127.0.0.1:1",
        "api_address": "127.0.0.1:2", "understands": ["encryption"] });
    memory.run(&Txn::new().put(&Key::Node(NodeId(1)).to_string(), &node)).unwrap();
    let class = ClassSpec { logical_block: LogicalBlock::Bytes4096, ..ClassSpec::new("large", 2) };
    let refusals = [
        create(&mut memory, "large", LogicalBlock::Bytes4096).map(|_| ()),
        run(&mut memory, |records| create_class(records, &class, "")).map(|_| ()),
    ];
    for refused in refusals {
        let Err(error @ MetaError::UnknownLogicalBlock { bytes: 4096, .. }) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().ends_with(": old") && error.hint().is_some_and(|hint| hint.contains("update")));
    }
    create(&mut memory, "small", LogicalBlock::Bytes512).unwrap();
    node["understands"] = serde_json::json!(["logical-blocks"]);
    memory.run(&Txn::new().put(&Key::Node(NodeId(1)).to_string(), &node)).unwrap();
    let cluster = serde_json::json!({ "id": "0".repeat(32), "name": "", "created": "", "life": "b" });
    memory.run(&Txn::new().put(&Key::Cluster.to_string(), &cluster)).unwrap();
    let required = |memory: &Memory| memory.model().cluster.as_ref().unwrap().requires.clone();
    create(&mut memory, "as-ever", LogicalBlock::Bytes512).unwrap();
    assert!(required(&memory).is_empty());
    assert_eq!(create(&mut memory, "large", LogicalBlock::Bytes4096).unwrap().id, VolumeId(4));
    assert_eq!(required(&memory), ["logical-blocks".to_owned()].into(), "such nodes are not put back");
    run(&mut memory, |records| create_class(records, &class, "")).unwrap();
    assert_eq!(memory.model().classes["large"].logical_block_bytes, LogicalBlock::Bytes4096);
}
