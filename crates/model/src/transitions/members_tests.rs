//! Who registers is the one that was there before, or somebody new.

use super::super::devices::{note_device_failure, set_device_state};
use super::super::removal::remove_node;
use super::super::tests::{cluster, run, txn_of};
use super::*;
use crate::{DeviceFailure, FailureKind, Memory};

pub(in crate::transitions) fn node(uuid: &str, name: &str) -> NodeSpec {
    let address = SocketAddr::from(([127, 0, 0, 1], 7000));
    NodeSpec {
        uuid: uuid.into(),
        name: name.into(),
        data_address: address,
        api_address: address,
        endpoints: Vec::new(),
        site: String::new(),
        rack: String::new(),
        incarnation: 1,
        shards: NonZeroU8::MIN,
        key: PeerKey::unproved(uuid),
        api_tls: false,
    }
}

fn device(uuid: &str, node: u32, name: &str) -> DeviceSpec {
    let (uuid, name, shard) = (uuid.into(), name.into(), Shard(0));
    DeviceSpec { uuid, node: NodeId(node), shard, name, capacity_bytes: 1 << 20, usable_bytes: 1 << 20 }
}

pub(in crate::transitions) fn start(memory: &mut Memory, spec: &NodeSpec) -> Result<(u32, u64), MetaError> {
    run(memory, |records| register_node(records, spec)).map(|record| (record.id.0, record.incarnation))
}

fn add(memory: &mut Memory, spec: &DeviceSpec) -> Result<DeviceRecord, MetaError> {
    run(memory, |records| register_device(records, spec))
}

#[test]
fn every_start_of_a_node_has_a_higher_number() {
    let mut memory = Memory::new();
    assert_eq!(start(&mut memory, &node("a", "n1")).unwrap(), (1, 1));
    assert_eq!(start(&mut memory, &node("b", "n2")).unwrap(), (2, 1));
    let again = NodeSpec { site: "east".into(), ..node("a", "other") };
    assert_eq!(start(&mut memory, &again).unwrap(), (1, 2), "also when its data folder was put back");
    assert_eq!(start(&mut memory, &NodeSpec { incarnation: 9, ..again }).unwrap(), (1, 9));
    assert_eq!(memory.model().nodes[&NodeId(1)].name, "other");
    assert!(matches!(start(&mut memory, &node("c", "n2")), Err(MetaError::NameTaken { .. })));
    assert!(matches!(start(&mut memory, &node("c", "a b")), Err(MetaError::InvalidName { .. })));
}

#[test]
fn two_that_register_at_once_are_two() {
    let mut memory = Memory::new();
    let of = |memory: &Memory, spec: &NodeSpec| txn_of(register_node(&Records::known(memory.model()), spec));
    let (a, b) = (of(&memory, &node("a", "n1")), of(&memory, &node("b", "n1")));
    assert!(memory.run(&a).is_some());
    assert_eq!(memory.run(&b), None);
    assert!(matches!(start(&mut memory, &node("b", "n1")), Err(MetaError::NameTaken { .. })), "it looks again");
    // Of two processes of one node, the second has a number of its own, too.
    let (first, second) = (of(&memory, &node("a", "n1")), of(&memory, &node("a", "n1")));
    assert_eq!((memory.run(&first).is_some(), memory.run(&second)), (true, None));
}

#[test]
fn a_removed_node_does_not_come_back_and_its_name_is_free() {
    let mut memory = Memory::new();
    start(&mut memory, &node("a", "n1")).unwrap();
    let removal = txn_of(remove_node(&Records::known(memory.model()), NodeId(1), false));
    add(&mut memory, &device("d", 1, "d")).unwrap();
    assert_eq!(memory.run(&removal), None, "it has got a device");
    run(&mut memory, |records| remove_node(records, NodeId(1), false)).unwrap();
    assert!(matches!(start(&mut memory, &node("a", "n1")), Err(MetaError::Removed { kind: Kind::Node, .. })));
    assert!(matches!(add(&mut memory, &device("d", 1, "d")), Err(MetaError::Removed { kind: Kind::Device, .. })));
    assert_eq!(start(&mut memory, &node("b", "n1")).unwrap().0, 2);
}

#[test]
fn a_node_with_copies_of_each_site_stays_in_its_site() {
    let mut memory = cluster();
    let counters = Txn::new().put(&Key::Counter("devices").to_string(), &3);
    memory.run(&counters).unwrap();
    for name in ["n1", "n2"] {
        start(&mut memory, &NodeSpec { site: "east".into(), ..node(name, name) }).unwrap();
    }
    let moved = NodeSpec { site: "west".into(), ..node("n1", "n1") };
    start(&mut memory, &moved).unwrap();
    let class = memory.model().classes["c"].record.clone();
    let by_site = crate::ClassRecord { ack_rule: AckRule::EachSite, ..class };
    memory.run(&Txn::new().put(&Key::Class("c").to_string(), &by_site)).unwrap();
    start(&mut memory, &moved).unwrap();
    let back = start(&mut memory, &NodeSpec { site: "east".into(), ..moved });
    assert!(matches!(&back, Err(MetaError::InvalidSetting { name, .. }) if name == "site"), "{back:?}");
}

#[test]
fn a_device_keeps_its_state_and_its_failure() {
    let mut memory = Memory::new();
    let first = add(&mut memory, &device("a", 1, "d")).unwrap();
    assert_eq!(first.id, DeviceId(1));
    run(&mut memory, |records| set_device_state(records, &[first.id], DeviceState::Draining)).unwrap();
    let failure = |kind| DeviceFailure { kind, reason: "errors".into(), since: String::new() };
    let failing = failure(FailureKind::Failing);
    run(&mut memory, |records| note_device_failure(records, first.id, Some(&failing))).unwrap();
    let larger = DeviceSpec { capacity_bytes: 2 << 20, ..device("a", 1, "d") };
    let again = add(&mut memory, &larger).unwrap();
    let kept = DeviceRecord { state: DeviceState::Draining, failure: Some(failing), ..first };
    assert_eq!(again, DeviceRecord { capacity_bytes: 2 << 20, ..kept });
    let revision = memory.model().revision;
    assert_eq!(add(&mut memory, &larger).unwrap(), again);
    assert_eq!(memory.model().revision, revision, "nothing has changed");
    // Its name is taken on its node until it is lost.
    let other = device("b", 1, "d");
    assert!(matches!(add(&mut memory, &other), Err(MetaError::NameTaken { .. })));
    assert_eq!(add(&mut memory, &device("c", 2, "d")).unwrap().id, DeviceId(2));
    let lost = failure(FailureKind::Lost);
    run(&mut memory, |records| note_device_failure(records, again.id, Some(&lost))).unwrap();
    assert_eq!(add(&mut memory, &other).unwrap().id, DeviceId(3));
}

#[test]
fn a_later_process_may_have_other_shards() {
    let mut memory = Memory::new();
    let two = NonZeroU8::new(2).unwrap();
    start(&mut memory, &NodeSpec { shards: two, ..node("a", "n1") }).unwrap();
    let second = DeviceSpec { shard: Shard(1), ..device("d", 1, "d") };
    assert_eq!(add(&mut memory, &second).unwrap().endpoint().to_string(), "1.1");
    assert_eq!(memory.model().nodes[&NodeId(1)].shards, two);
    start(&mut memory, &node("a", "n1")).unwrap();
    assert_eq!(add(&mut memory, &device("d", 1, "d")).unwrap().endpoint().to_string(), "1");
    assert_eq!(memory.model().nodes[&NodeId(1)].shards.get(), 1);
}
