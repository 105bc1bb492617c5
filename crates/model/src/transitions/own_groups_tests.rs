//! Groups of a volume's own: they come before the volume, share its class's fate, and go step by step.

use azekura_base::{DeviceId, LayerId, LogicalBlock, PgId, VolumeId};

use super::super::classes::{ClassSpec, begin_class_deletion, change_class, create_class};
use super::super::groups::NewGroup;
use super::super::layers::remove_layer;
use super::super::tests::{cluster, run};
use super::super::volumes::{VolumeDeletion, VolumeSpec, create_volume, delete_volume};
use super::*;
use crate::{Memory, MetaError, OWN_GROUPS, VolumeAccess, VolumeRecord};

/// With a class of volumes that have groups of their own, and such groups of a volume that is not made yet.
fn with_own(groups: u32) -> Memory {
    let mut memory = cluster();
    let spec = ClassSpec { home_attached: true, ..ClassSpec::new("near", 2) };
    run(&mut memory, |records| create_class(records, &spec, "then")).unwrap();
    run(&mut memory, |records| create_own(records, "near", "near@1", "now")).unwrap();
    let ids: Vec<PgId> = (100..100 + groups).map(PgId).collect();
    let new = NewGroup { members: vec![DeviceId(1), DeviceId(2)], primary: DeviceId(1) };
    let record = ClassRecord { groups: ids.clone(), ..memory.model().classes["near@1"].record.clone() };
    let txn = Txn::new().put(&Key::Class("near@1").to_string(), &record);
    let group = |id: &PgId| new.clone().into_record(*id, "near@1", 0);
    memory.run(&ids.iter().fold(txn, |txn, id| txn.put(&Key::Group(*id).to_string(), &group(id)))).unwrap();
    memory
}

fn create(memory: &mut Memory, name: &str) -> Result<VolumeRecord, MetaError> {
    let spec = VolumeSpec {
        name: name.to_owned(),
        size_bytes: 8192,
        logical_block: LogicalBlock::Bytes512,
        class: "near@1".to_owned(),
        access: VolumeAccess::Exclusive,
        key: None,
        limits: None,
    };
    run(memory, |records| create_volume(records, &spec, name, ""))
}

#[test]
fn they_have_the_policy_of_their_class() {
    let mut memory = cluster();
    let spec = ClassSpec { home_attached: true, copies_min: 2, ..ClassSpec::new("near", 2) };
    run(&mut memory, |records| create_class(records, &spec, "then")).unwrap();
    let own = run(&mut memory, |records| create_own(records, "near", "near@1", "now")).unwrap();
    assert_eq!((own.copies, own.copies_min, own.parent.as_deref()), (2, 2, Some("near")));
    assert_eq!((own.created.as_str(), own.home_attached), ("now", false));
    let again = run(&mut memory, |records| create_own(records, "near", "near@1", "now")).unwrap();
    assert_eq!(again, own, "ours, of an attempt whose answer was lost");
    let of_others = run(&mut memory, |records| create_own(records, "c", "c@1", "now"));
    assert!(matches!(of_others, Err(MetaError::NotFound { .. })), "its volumes share its groups: {of_others:?}");
    let changed = run(&mut memory, |records| change_class(records, "near@1", Default::default()));
    assert!(matches!(changed, Err(MetaError::NotFound { .. })), "people do not know it: {changed:?}");
}

#[test]
fn nodes_that_do_not_know_them_are_in_the_way() {
    let mut memory = cluster();
    let put = |memory: &mut Memory, understands: &[&str]| {
        let node = serde_json::json!({ "id": 1, "uuid": "n", "name": "n1", "data_address": "127.0.0.1:1",
            "api_address": "127.0.0.1:2", "understands": understands });
        let cluster = serde_json::json!({ "id": "0".repeat(32), "name": "", "created": "" });
        memory.run(&Txn::new().put("/azekura/v1/nodes/1", &node).put("/azekura/v1/cluster", &cluster)).unwrap();
        assert!(memory.model().problems.is_empty(), "{:?}", memory.model().problems);
    };
    put(&mut memory, &[]);
    let spec = ClassSpec { home_attached: true, ..ClassSpec::new("near", 2) };
    let refused = run(&mut memory, |records| create_class(records, &spec, "")).unwrap_err().to_string();
    assert!(refused.contains("groups of their own: n1"), "{refused}");
    put(&mut memory, &[OWN_GROUPS]);
    run(&mut memory, |records| create_class(records, &spec, "")).unwrap();
    let requires = &memory.model().cluster.as_ref().unwrap().requires;
    assert!(requires.contains(OWN_GROUPS), "none that does not know them joins any more: {requires:?}");
}

#[test]
fn a_class_stands_while_a_volume_has_some() {
    let mut memory = with_own(1);
    let made = create(&mut memory, "one").unwrap();
    assert_eq!(made.class, "near@1");
    let refused = run(&mut memory, |records| begin_class_deletion(records, "near"));
    assert!(matches!(&refused, Err(MetaError::ClassInUse { volumes, .. }) if volumes == &["one"]), "{refused:?}");
    let refused = run(&mut memory, |records| delete_own(records, "near@1"));
    assert!(matches!(refused, Err(MetaError::ClassInUse { .. })), "{refused:?}");
}

#[test]
fn no_volume_comes_after_its_class() {
    let mut memory = with_own(1);
    run(&mut memory, |records| begin_class_deletion(records, "near")).unwrap();
    let refused = create(&mut memory, "late");
    assert!(matches!(&refused, Err(MetaError::NotFound { name, .. }) if name == "near"), "{refused:?}");
}

#[test]
fn they_go_a_hundred_at_a_time_after_the_last_layer() {
    let mut memory = with_own(150);
    let made: VolumeId = create(&mut memory, "one").unwrap().id;
    run(&mut memory, |records| delete_volume(records, "one", made, &VolumeDeletion::default())).unwrap();
    let layers = |memory: &Memory| -> Vec<LayerId> {
        memory.model().layers.values().filter(|layer| layer.class == "near@1").map(|layer| layer.id).collect()
    };
    let refused = run(&mut memory, |records| delete_own(records, "near@1"));
    assert!(matches!(&refused, Err(MetaError::ClassInUse { layers: 1, .. })), "its layer is there: {refused:?}");
    for layer in layers(&memory) {
        run(&mut memory, |records| remove_layer(records, layer)).unwrap();
    }
    let mut left = Vec::new();
    while run(&mut memory, |records| delete_own(records, "near@1")).unwrap() {
        left.push(memory.model().groups.values().filter(|group| group.class == "near@1").count());
    }
    assert_eq!(left, [150, 50, 0, 0], "first nobody can have them any more, last the record goes");
    assert!(!memory.model().classes.contains_key("near@1") && memory.model().classes.contains_key("near"));
    assert!(!run(&mut memory, |records| delete_own(records, "near")).unwrap(), "people delete that one");
    assert!(!memory.model().classes["near"].deleted);
}
