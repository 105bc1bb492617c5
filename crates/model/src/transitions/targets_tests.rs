//! Targets: each number is given once, a volume is in one target, and goes with its deletion.

use azekura_base::{NodeId, VolumeId};
use proptest::prelude::*;
use std::collections::BTreeMap;

use super::projects::{ProjectSpec, create_project};
use super::targets::{UnitSpec, add_unit, create_target, delete_target, remove_unit};
use super::tests::{attempt, cluster, run, txn_of};
use super::volumes::{VolumeDeletion, VolumeSpec, create_volume, delete_volume};
use crate::{
    AttachmentsRecord, Bounds, Key, Kind, Memory, MetaError, Records, TARGETS, TargetRecord, Txn, VolumeAccess,
};

fn volume(memory: &mut Memory, name: &str) {
    let spec = VolumeSpec {
        name: name.to_owned(),
        size_bytes: 4096,
        class: "c".to_owned(),
        access: VolumeAccess::Shared,
        key: None,
        logical_block: azekura_base::LogicalBlock::Bytes512,
        limits: None,
    };
    run(memory, |records| create_volume(records, &spec, name, "")).unwrap();
}

fn with_volumes(names: &[&str]) -> Memory {
    let mut memory = cluster();
    let project = ProjectSpec { name: "p".to_owned(), ..ProjectSpec::default() };
    run(&mut memory, |records| create_project(records, &project, "")).unwrap();
    names.iter().for_each(|name| volume(&mut memory, name));
    memory
}

fn unit(volume: &str, lun: Option<u16>) -> UnitSpec {
    UnitSpec { volume: volume.to_owned(), lun }
}

fn create(memory: &mut Memory, name: &str, volumes: &[&str]) -> Result<TargetRecord, MetaError> {
    let units: Vec<UnitSpec> = volumes.iter().map(|volume| unit(volume, None)).collect();
    run(memory, |records| create_target(records, name, &units, "now"))
}

fn add(memory: &mut Memory, name: &str, volume: &str, lun: Option<u16>) -> Result<TargetRecord, MetaError> {
    run(memory, |records| add_unit(records, name, &unit(volume, lun)))
}

fn remove(memory: &mut Memory, name: &str, lun: u16) -> Result<TargetRecord, MetaError> {
    run(memory, |records| remove_unit(records, name, lun, false))
}

fn delete(memory: &mut Memory, name: &str) {
    let id = memory.model().volumes[name].id;
    run(memory, |records| delete_volume(records, name, id, &VolumeDeletion::default())).unwrap();
}

fn units(record: &TargetRecord) -> Vec<(u16, &str)> {
    record.units.iter().map(|(number, volume)| (*number, volume.as_str())).collect()
}

fn told<T: std::fmt::Debug>(result: Result<T, MetaError>) -> String {
    result.unwrap_err().to_string()
}

fn way_out<T: std::fmt::Debug>(result: Result<T, MetaError>) -> String {
    result.unwrap_err().hint().unwrap()
}

#[test]
fn a_refusal_says_what_to_do() {
    let mut memory = with_volumes(&["a", "b", "p/a"]);
    create(&mut memory, "t", &["a"]).unwrap();
    create(&mut memory, "u", &[]).unwrap();
    for (refused, wanted) in [
        (add(&mut memory, "u", "a", None), "azekura target remove t a;"),
        (create(&mut memory, "v", &["a"]), "azekura target remove t a;"),
        (add(&mut memory, "u", "p/a", None), "azekura target create p/NAME --volume p/a"),
        (create(&mut memory, "p/t", &["b"]), "azekura target create NAME --volume b"),
        (add(&mut memory, "t", "b", Some(0)), "without --lun"),
        (create(&mut memory, "v", &["b", "b"]), "once"),
        (remove(&mut memory, "t", 7), "'azekura target show t'"),
        (add(&mut memory, "t", "none", None), "'azekura volume list'"),
        (add(&mut memory, "none", "b", None), "'azekura target list'"),
        (create(&mut memory, "t", &[]), "another name"),
    ] {
        let told = way_out(refused);
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
}

#[test]
fn a_number_is_given_once() {
    let mut memory = with_volumes(&["a", "b", "c", "d"]);
    assert_eq!(units(&create(&mut memory, "t", &["a", "b"]).unwrap()), [(0, "a"), (1, "b")]);
    assert_eq!(units(&remove(&mut memory, "t", 1).unwrap()), [(0, "a")]);
    assert_eq!(units(&add(&mut memory, "t", "b", None).unwrap()), [(0, "a"), (2, "b")]);
    for given in [0, 1, 2] {
        assert!(told(add(&mut memory, "t", "c", Some(given))).contains("numbers from 3 on are free"), "{given}");
    }
    assert_eq!(units(&add(&mut memory, "t", "c", Some(7)).unwrap()), [(0, "a"), (2, "b"), (7, "c")]);
    assert!(told(add(&mut memory, "t", "d", Some(5))).contains("numbers from 8 on"), "5 was passed over");
    // The same again comes to the same.
    assert_eq!(add(&mut memory, "t", "c", None).unwrap().next, 8);
    assert_eq!(add(&mut memory, "t", "c", Some(7)).unwrap().next, 8);
    add(&mut memory, "t", "d", Some(255)).unwrap();
    remove(&mut memory, "t", 255).unwrap();
    for lun in [None, Some(256)] {
        assert!(way_out(add(&mut memory, "t", "d", lun)).contains("makes another target"));
    }
}

#[test]
fn a_volume_is_in_one_target_and_goes_with_its_deletion() {
    let mut memory = with_volumes(&["a", "b", "p/a"]);
    create(&mut memory, "t", &["a"]).unwrap();
    assert!(told(create(&mut memory, "u", &["a"])).contains("unit 0 of the target 't' already"));
    create(&mut memory, "u", &["b"]).unwrap();
    assert!(told(add(&mut memory, "u", "a", None)).contains("of the target 't' already"));
    assert!(told(add(&mut memory, "t", "a", Some(3))).contains("of the target 't' already"), "nor twice in one");
    delete(&mut memory, "a");
    assert_eq!(units(&memory.model().targets["t"]), []);
    volume(&mut memory, "a");
    assert_eq!(units(&add(&mut memory, "t", "a", None).unwrap()), [(1, "a")], "it is another one");
    assert_eq!(units(&memory.model().targets["u"]), [(0, "b")]);
    assert!(memory.model().unit_of("b").is_some_and(|(name, number)| (name, number) == ("u", 0)));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut memory = with_volumes(&["a", "b", "p/a"]);
    for name in ["", "-t", "a/b/c", "t@x", "default/t"] {
        assert!(create(&mut memory, name, &[]).is_err(), "{name}");
    }
    assert!(matches!(create(&mut memory, "t", &["none"]), Err(MetaError::NotFound { kind: Kind::Volume, .. })));
    assert!(told(create(&mut memory, "t", &["a", "a"])).contains("named twice"));
    assert!(told(create(&mut memory, "t", &["p/a"])).contains("another project"));
    assert!(told(create(&mut memory, "p/t", &["a"])).contains("another project"));
    create(&mut memory, "p/t", &["p/a"]).unwrap();
    create(&mut memory, "t", &[]).unwrap();
    assert!(matches!(create(&mut memory, "t", &[]), Err(MetaError::Exists { kind: Kind::Target, .. })));
    assert!(matches!(add(&mut memory, "none", "a", None), Err(MetaError::NotFound { kind: Kind::Target, .. })));
    assert!(told(remove(&mut memory, "t", 0)).contains("it has no unit 0"));
    // For others it is not there.
    let own = Bounds::Project("q".to_owned());
    let outside = create_target(&Records::known(memory.model()).within(&own), "p/u", &[], "");
    assert!(matches!(outside, Err(crate::Halt::Refused(MetaError::NotFound { kind: Kind::Target, .. }))));
    let seen = std::sync::Arc::new(memory.model().clone()).within(&Bounds::Project("p".to_owned()));
    assert_eq!(seen.targets.keys().collect::<Vec<_>>(), ["p/t"]);
}

#[test]
fn what_is_attached_is_taken_away_by_force_alone() {
    let mut memory = with_volumes(&["a", "b"]);
    create(&mut memory, "t", &["a", "b"]).unwrap();
    let id = memory.model().volumes["a"].id;
    let entry = serde_json::json!({ "node": 1, "incarnation": 1, "generation": 1, "shared": true, "pinned": false,
        "since": "" });
    let mut record = serde_json::to_value(AttachmentsRecord::none(id)).unwrap();
    record["attachments"] = serde_json::json!([entry]);
    memory.run(&Txn::new().put(&Key::Attachments(id).to_string(), &record)).unwrap();
    assert!(!memory.model().attachments[&id].attachments.is_empty());
    assert!(told(remove(&mut memory, "t", 0)).contains("'a' is attached, so it is not taken from its target"));
    assert!(told(run(&mut memory, |records| delete_target(records, "t", false))).contains("'a' is attached"));
    remove(&mut memory, "t", 1).unwrap();
    run(&mut memory, |records| remove_unit(records, "t", 0, true)).unwrap();
    run(&mut memory, |records| delete_target(records, "t", false)).unwrap();
    assert!(memory.model().targets.is_empty());
    assert!(matches!(
        run(&mut memory, |records| delete_target(records, "t", true)),
        Err(MetaError::NotFound { kind: Kind::Target, .. })
    ));
}

#[test]
fn nodes_that_know_no_targets_are_in_the_way_and_later_ones_are_required() {
    let mut memory = with_volumes(&["a"]);
    let node = serde_json::json!({ "id": 1, "uuid": "u", "name": "old", "data_address": "127.0.0.1:1",
        "api_address": "127.0.0.1:2", "understands": ["projects"] });
    memory.run(&Txn::new().put(&Key::Node(NodeId(1)).to_string(), &node)).unwrap();
    assert!(told(create(&mut memory, "t", &["a"])).contains("knows no targets: old"));
    let mut node = node;
    node["understands"] = serde_json::json!([TARGETS]);
    memory.run(&Txn::new().put(&Key::Node(NodeId(1)).to_string(), &node)).unwrap();
    create(&mut memory, "t", &["a"]).unwrap();
    let requires = memory.model().cluster.as_ref().map(|cluster| cluster.requires.contains(TARGETS));
    assert!(requires.unwrap_or(true));
}

/// Of two changes that were made from the same model the second one is tried again.
#[test]
fn changes_that_meet_do_not_both_happen() {
    let first = with_volumes(&["a", "b"]);
    let create = |name: &'static str| move |records: &Records<'_>| create_target(records, name, &[unit("a", None)], "");
    let id = first.model().volumes["a"].id;
    let gone = |records: &Records<'_>| delete_volume(records, "a", id, &VolumeDeletion::default());
    let mut memory = with_volumes(&["a", "b"]);
    let (one, two) = (txn_of(attempt(&memory, false, create("t"))), txn_of(attempt(&memory, false, create("u"))));
    let deletion = txn_of(attempt(&memory, false, gone));
    memory.run(&one).unwrap();
    assert!(memory.run(&two).is_none() && memory.run(&deletion).is_none());
    let mut memory = with_volumes(&["a", "b"]);
    let (one, deletion) = (txn_of(attempt(&memory, false, create("t"))), txn_of(attempt(&memory, false, gone)));
    memory.run(&deletion).unwrap();
    assert!(memory.run(&one).is_none());
    // An answer that was lost is found again.
    let mut memory = with_volumes(&["a", "b"]);
    memory.run(&txn_of(attempt(&memory, false, create("t")))).unwrap();
    assert!(matches!(attempt(&memory, true, create("t")), Ok(crate::Step::Done(..))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens, no number of a target means two volumes over time, and no volume is in two.
    #[test]
    fn no_number_comes_twice(wishes in proptest::collection::vec((0..5_u8, 0..2_usize, 0..4_usize, 0..12_u16), 1..60)) {
        let (volumes, targets) = (["a", "b", "c", "d"], ["t", "u"]);
        let mut memory = with_volumes(&volumes);
        let mut given: BTreeMap<(String, String, u16), VolumeId> = BTreeMap::new();
        for (kind, target, name, lun) in wishes {
            let (target, name) = (targets[target], volumes[name]);
            let _ = match kind {
                0 => create(&mut memory, target, &[]).map(drop),
                1 => add(&mut memory, target, name, Some(lun).filter(|lun| lun % 3 == 0)).map(drop),
                2 => remove(&mut memory, target, lun).map(drop),
                3 if memory.model().volumes.contains_key(name) => {
                    delete(&mut memory, name);
                    Ok(())
                }
                3 => {
                    volume(&mut memory, name);
                    Ok(())
                }
                _ => Ok(()),
            };
            let model = memory.model();
            let mut seen = std::collections::BTreeSet::new();
            for record in model.targets.values() {
                for (number, volume) in &record.units {
                    prop_assert!(seen.insert(volume.clone()), "{volume} is in two targets");
                    let id = model.volumes.get(volume).map(|volume| volume.id);
                    prop_assert!(id.is_some(), "{volume} is gone");
                    let key = (record.name.clone(), record.created.clone(), *number);
                    let first = *given.entry(key).or_insert(id.unwrap());
                    prop_assert_eq!(first, id.unwrap());
                    prop_assert!(*number < record.next);
                }
            }
        }
    }
}

/// etcd takes no transaction with more conditions.
#[test]
fn a_target_is_made_with_a_hundred_volumes_at_most() {
    let names: Vec<String> = (0..101).map(|number| format!("v{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut memory = with_volumes(&[]);
    let error = create(&mut memory, "t", &names).unwrap_err();
    assert!(error.to_string().contains("101 volumes are more than the 100"), "{error}");
    assert!(error.hint().unwrap_or_default().contains("azekura target add t VOLUME"), "{error:?}");
    let error = create(&mut memory, "t", &names[..100]).unwrap_err();
    assert!(matches!(error, MetaError::NotFound { .. }), "{error}");
}
