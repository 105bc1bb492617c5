//! Classes that come and go.

use azekura_base::{LayerId, VolumeId};

use super::super::layers::remove_layer;
use super::super::tests::{attempt, cluster, run, txn_of};
use super::super::volumes::{VolumeDeletion, VolumeSpec, create_volume, delete_volume};
use super::*;
use crate::{Memory, VolumeAccess};

fn create(memory: &mut Memory, spec: &ClassSpec, created: &str) -> Result<ClassRecord, MetaError> {
    run(memory, |records| create_class(records, spec, created))
}

#[test]
fn a_class_that_makes_no_sense_is_refused() {
    let mut memory = Memory::new();
    let good = ClassSpec::new("c", 2);
    let bad = [
        ClassSpec { copies: 0, ..good.clone() },
        ClassSpec { copies: 17, ..good.clone() },
        ClassSpec { copies_min: 3, ..good.clone() },
        ClassSpec { ack_rule: AckRule::Majority, ..good.clone() },
        ClassSpec { ack_rule: AckRule::EachSite, copies: 1, ..good.clone() },
        ClassSpec { overcommit_ratio: f64::NAN, ..good.clone() },
        ClassSpec { io_timeout_seconds: Some(0), ..good.clone() },
        ClassSpec { home: Some(ClassHome::new("", None)), ..good.clone() },
        ClassSpec { home: Some(ClassHome::new("a", None)), home_attached: true, ..good.clone() },
    ];
    for spec in &bad {
        assert!(matches!(create(&mut memory, spec, ""), Err(MetaError::InvalidClass { .. })), "{spec:?}");
    }
    let nameless = ClassSpec::new("", 2);
    assert!(matches!(create(&mut memory, &nameless, ""), Err(MetaError::InvalidName { .. })));
    assert_eq!(memory.model().revision, 0);
    create(&mut memory, &ClassSpec { io_timeout_seconds: None, ..good }, "").unwrap();
}

#[test]
fn a_class_changes_in_what_moves_no_copy() {
    let mut memory = cluster();
    let change = |memory: &mut Memory, name: &str, change| run(memory, |records| change_class(records, name, change));
    let before: ClassRecord = memory.model().classes["c"].record.clone();
    let patient = ClassChange { io_timeout_seconds: Some(None), ..ClassChange::default() };
    let expected = ClassRecord { io_timeout_seconds: None, ..before };
    assert_eq!(change(&mut memory, "c", patient).unwrap(), expected);
    assert_eq!(memory.model().classes["c"].record, expected);
    let revision = memory.model().revision;
    assert_eq!(change(&mut memory, "c", patient).unwrap(), expected);
    assert_eq!(change(&mut memory, "c", ClassChange::default()).unwrap(), expected);
    for bad in [
        ClassChange { io_timeout_seconds: Some(Some(0)), ..patient },
        ClassChange { overcommit_ratio: Some(0.0), ..patient },
    ] {
        assert!(matches!(change(&mut memory, "c", bad), Err(MetaError::InvalidClass { .. })), "{bad:?}");
    }
    assert!(matches!(change(&mut memory, "d", patient), Err(MetaError::NotFound { .. })));
    assert_eq!(memory.model().revision, revision, "nothing has changed");
}

/// Nodes 1 and 2, in sites of these names, each with a device of 1 MiB.
fn put_nodes(memory: &mut Memory, sites: [&str; 2], understands: &[&str]) {
    for (id, site) in (1..).zip(sites) {
        let node = serde_json::json!({ "id": id, "uuid": "n", "name": format!("n{id}"), "site": site,
            "data_address": "127.0.0.1:1", "api_address": "127.0.0.1:2", "understands": understands });
        let device = serde_json::json!({ "id": id, "uuid": "d", "node": id, "name": "d", "capacity_bytes": 1 << 20,
            "state": "up" });
        let txn = Txn::new().put(&format!("/azekura/v1/nodes/{id}"), &node);
        memory.run(&txn.put(&format!("/azekura/v1/devices/{id}"), &device)).unwrap();
    }
}

fn at_home(site: &str) -> ClassSpec {
    ClassSpec { home: Some(ClassHome::new(site, None)), ..ClassSpec::new("near", 1) }
}

#[test]
fn nodes_that_know_no_homes_are_in_the_way() {
    let mut memory = Memory::new();
    put_nodes(&mut memory, ["a", "b"], &[]);
    let refused = create(&mut memory, &at_home("a"), "").unwrap_err().to_string();
    assert!(refused.contains("n1, n2"), "{refused}");
    put_nodes(&mut memory, ["a", "b"], &[CLASS_HOMES]);
    let made = create(&mut memory, &at_home("a"), "").unwrap();
    assert_eq!(made.home.unwrap().to_string(), "site 'a'");
}

#[test]
fn a_home_has_as_much_room_as_its_devices() {
    const MIB: u64 = 1 << 20;
    let mut memory = cluster();
    put_nodes(&mut memory, ["a", "b"], &[CLASS_HOMES]);
    let class = |site: &str| ClassRecord { groups: vec![PgId(1)], ..at_home(site).record("") };
    memory.run(&Txn::new().put(&Key::Class("near").to_string(), &class("a"))).unwrap();
    let create = |memory: &mut Memory, name: &str, size_bytes| {
        let (name, class, access) = (name.to_owned(), "near".to_owned(), VolumeAccess::Exclusive);
        let spec = VolumeSpec {
            name,
            size_bytes,
            class,
            access,
            key: None,
            limits: None,
            logical_block: azekura_base::LogicalBlock::Bytes512,
        };
        run(memory, |records| create_volume(records, &spec, "u", ""))
    };
    let promised = crate::transitions::volumes::promised_bytes(memory.model());
    assert!(promised < u128::from(MIB), "there is room in the cluster, {promised}");
    create(&mut memory, "one", 3 * MIB).unwrap();
    // Four times 1 MiB at home.
    let refused = create(&mut memory, "two", 2 * MIB).unwrap_err();
    assert!(matches!(&refused, MetaError::Overcommit { home: Some(_), .. }), "{refused}");
    assert!(refused.to_string().contains("in site 'a'"), "{refused}");
    create(&mut memory, "two", MIB).unwrap();
}

#[test]
fn a_class_that_is_there_is_ours_only_when_the_answer_was_lost() {
    let mut memory = Memory::new();
    let spec = ClassSpec::new("c", 2);
    let record = create(&mut memory, &spec, "now").unwrap();
    assert!(matches!(create(&mut memory, &spec, "now"), Err(MetaError::Exists { .. })));
    let again = |created: &str| attempt(&memory, true, |records| create_class(records, &spec, created));
    assert!(matches!(again("now"), Ok(Step::Done(found, 1)) if found == record));
    assert!(again("later").is_err(), "somebody else's");
}

#[test]
fn a_class_goes_after_its_volumes_and_their_layers() {
    let mut memory = cluster();
    let begin = |memory: &mut Memory| run(memory, |records| begin_class_deletion(records, "c"));
    let used = |outcome| match outcome {
        Err(MetaError::ClassInUse { volumes, layers, .. }) => (volumes.len(), layers),
        other => panic!("{other:?}"),
    };
    assert_eq!(used(begin(&mut memory)), (1, 1));
    let deletion = VolumeDeletion::default();
    run(&mut memory, |records| delete_volume(records, "v", VolumeId(1), &deletion)).unwrap();
    assert_eq!(used(begin(&mut memory)), (0, 1), "its data is still to be given back");
    run(&mut memory, |records| remove_layer(records, LayerId(1))).unwrap();
    assert_eq!(begin(&mut memory).unwrap(), [PgId(1)]);
    assert_eq!(begin(&mut memory).unwrap(), [PgId(1)], "after an interruption");
    memory.run(&delete_groups(&[PgId(1)])).unwrap();
    assert_eq!(begin(&mut memory).unwrap(), [PgId(1)], "the class names it still");
    run(&mut memory, |records| finish_class_deletion(records, "c")).unwrap();
    assert!(memory.model().classes.is_empty() && memory.model().groups.is_empty());
    assert!(matches!(begin(&mut memory), Err(MetaError::NotFound { .. })));
}

#[test]
fn a_class_that_gets_a_volume_meanwhile_stays() {
    let mut memory = cluster();
    create(&mut memory, &ClassSpec::new("d", 1), "").unwrap();
    let deleting = txn_of(begin_class_deletion(&Records::known(memory.model()), "d"));
    let spec = VolumeSpec {
        name: "w".into(),
        size_bytes: 4096,
        class: "c".into(),
        access: VolumeAccess::Exclusive,
        key: None,
        logical_block: azekura_base::LogicalBlock::Bytes512,
        limits: None,
    };
    run(&mut memory, |records| create_volume(records, &spec, "w", "")).unwrap();
    assert_eq!(memory.run(&deleting), None, "whichever class the volume is of: a look at the model tells");
    // Who finishes a deletion does not end a class that somebody has made anew.
    run(&mut memory, |records| finish_class_deletion(records, "d")).unwrap();
    assert!(memory.model().classes.contains_key("d"));
}
