//! Data keys stay as long as somebody needs them, and no longer.

use azekura_base::{KeyGeneration, KeyId, NodeId};

use super::cuts::{Cut, VolumeCut, begin_cut, finish_cut};
use super::data_keys::{CloneKey, add_generation, forget_former, note_rekeyed, rewrap_key, write_with_newest};
use super::snapshots::{CloneSpec, clone_snapshot, delete_snapshot};
use super::tests::{cluster, run, txn_of};
use super::volumes::{VolumeDeletion, VolumeSpec, create_volume, delete_volume};
use crate::{
    DataKeyRecord, Key, Memory, MetaError, Outcome, Records, SnapshotOrigin, Txn, Unknown, VolumeAccess, VolumeRecord,
    WrappedKey, Wrapping,
};

fn key(id: u64) -> DataKeyRecord {
    let unknown = Unknown::default();
    let (provider, wrapped, check, created) = ("file".into(), "1:00".into(), "00".into(), String::new());
    let generation =
        WrappedKey { number: KeyGeneration::FIRST, provider, wrapped, check, created, unknown: unknown.clone() };
    DataKeyRecord { id: KeyId(id), generations: vec![generation], writing: None, unknown }
}

fn encrypted(name: &str, id: u64) -> VolumeSpec {
    let (class, access) = ("c".into(), VolumeAccess::Exclusive);
    VolumeSpec {
        name: name.into(),
        size_bytes: 8192,
        class,
        access,
        key: Some(key(id)),
        limits: None,
        logical_block: azekura_base::LogicalBlock::Bytes512,
    }
}

/// A volume `e` with key 5, its snapshot `s`, and a clone `f` of that.
fn with_clone() -> Memory {
    let mut memory = cluster();
    run(&mut memory, |records| create_volume(records, &encrypted("e", 5), "ue", "")).unwrap();
    let wish = VolumeCut::snapshot("e", "s", SnapshotOrigin::Person);
    let volumes = run(&mut memory, |r| begin_cut(r, "1", NodeId(1), std::slice::from_ref(&wish), (7, 0))).unwrap();
    let cut = Cut { id: "1".into(), volumes, revision: memory.model().revision };
    run(&mut memory, |records| finish_cut(records, &cut)).unwrap();
    let (volume, snapshot, name) = ("e".into(), "s".into(), "f".into());
    let spec = CloneSpec { volume, snapshot, name, size_bytes: None, access: None, key: None };
    run(&mut memory, |records| clone_snapshot(records, &spec, "uf", "")).unwrap();
    memory
}

fn volume<'a>(memory: &'a Memory, name: &str) -> &'a VolumeRecord {
    &memory.model().volumes[name].record
}

fn delete(records: &Records<'_>, name: &str) -> Outcome<()> {
    let id = records.known_model().volumes[name].id;
    delete_volume(records, name, id, &VolumeDeletion { snapshots: true, ..VolumeDeletion::default() })
}

fn has_key(memory: &Memory, id: u64) -> bool {
    memory.model().data_keys.contains_key(&KeyId(id))
}

#[test]
fn a_volume_shares_its_key_with_snapshots_and_clones() {
    let memory = with_clone();
    assert_eq!((volume(&memory, "e").key, volume(&memory, "f").key), (Some(KeyId(5)), Some(KeyId(5))));
    assert_eq!(memory.model().data_keys[&KeyId(5)].record, key(5));
    let keys = memory.model().layers.values().map(|layer| (layer.id.0, layer.key.map(|key| key.0)));
    assert_eq!(keys.collect::<Vec<_>>(), [(1, None), (2, Some(5)), (3, Some(5)), (4, Some(5))]);
}

#[test]
fn records_of_others_are_as_they_were() {
    let memory = cluster();
    for key in [Key::Volume("v"), Key::Layer(azekura_base::LayerId(1))] {
        let kv = memory.model().key_value(&key.to_string()).unwrap();
        assert!(!String::from_utf8(kv.value).unwrap().contains("\"key\""));
    }
}

#[test]
fn the_last_user_takes_the_key_along_whatever_it_is() {
    for order in [["e", "s", "f"], ["f", "e", "s"], ["s", "f", "e"], ["e", "f", "s"]] {
        let mut memory = with_clone();
        let id = volume(&memory, "e").id;
        for (at, user) in order.iter().enumerate() {
            match *user {
                "s" => drop(run(&mut memory, |records| delete_snapshot(records, id, "s")).unwrap()),
                name => run(&mut memory, |records| delete(records, name)).unwrap(),
            }
            assert_eq!(has_key(&memory, 5), at < 2, "{order:?}, {user}");
        }
    }
}

#[test]
fn of_two_users_that_end_at_once_the_second_sees_the_first() {
    let mut memory = with_clone();
    let id = volume(&memory, "e").id;
    run(&mut memory, |records| delete(records, "e")).unwrap();
    let late = txn_of(delete(&Records::known(memory.model()), "f"));
    let other = txn_of(delete_snapshot(&Records::known(memory.model()), id, "s"));
    assert!(memory.run(&other).is_some());
    assert_eq!(memory.run(&late), None);
    run(&mut memory, |records| delete(records, "f")).unwrap();
    assert!(!has_key(&memory, 5));
}

#[test]
fn a_clone_that_comes_meanwhile_keeps_the_key() {
    let mut memory = with_clone();
    let id = volume(&memory, "e").id;
    run(&mut memory, |records| delete(records, "f")).unwrap();
    let (volume, snapshot, name) = ("e".into(), "s".into(), "g".into());
    let spec = CloneSpec { volume, snapshot, name, size_bytes: None, access: None, key: None };
    let cloning = txn_of(clone_snapshot(&Records::known(memory.model()), &spec, "ug", ""));
    run(&mut memory, |records| delete(records, "e")).unwrap();
    let deleting = txn_of(delete_snapshot(&Records::known(memory.model()), id, "s"));
    // Of a clone and the end of what it is made of, one happens.
    assert_eq!(memory.run(&cloning), None);
    assert!(memory.run(&deleting).is_some() && !has_key(&memory, 5));
}

#[test]
fn what_cannot_be_read_may_need_the_key() {
    let mut memory = with_clone();
    let id = volume(&memory, "e").id;
    memory.run(&Txn::new().put(&Key::Volume("f").to_string(), &"broken")).unwrap();
    run(&mut memory, |records| delete(records, "e")).unwrap();
    run(&mut memory, |records| delete_snapshot(records, id, "s")).unwrap();
    assert!(has_key(&memory, 5));
}

#[test]
fn nodes_that_know_of_no_keys_are_in_the_way() {
    let mut memory = cluster();
    let node = serde_json::json!({ "id": 1, "uuid": "n", "name": "old", "data_address": "127.0.0.1:1",
        "api_address": "127.0.0.1:2" });
    memory.run(&Txn::new().put(&Key::Node(NodeId(1)).to_string(), &node)).unwrap();
    let refused = run(&mut memory, |records| create_volume(records, &encrypted("e", 5), "ue", ""));
    assert!(
        matches!(&refused, Err(error @ MetaError::NotEncrypted { .. }) if error.to_string().contains("old")),
        "{refused:?}"
    );
    let mut node = node;
    node["understands"] = serde_json::json!(["encryption"]);
    memory.run(&Txn::new().put(&Key::Node(NodeId(1)).to_string(), &node)).unwrap();
    run(&mut memory, |records| create_volume(records, &encrypted("e", 5), "ue", "")).unwrap();
}

#[test]
fn a_key_is_wrapped_anew_once_and_not_over_what_another_one_did() {
    let mut memory = with_clone();
    let from = wrapping("file", "1:00");
    let mut rewrap =
        |id, to| run(&mut memory, |records| rewrap_key(records, KeyId(id), &from, &wrapping("file", to))).unwrap();
    assert!(rewrap(5, "2:11"));
    assert!(rewrap(5, "2:11"), "asked twice");
    assert!(!rewrap(5, "2:22"), "overtaken");
    assert!(!rewrap(6, "2:11"), "there is none");
    let record = &memory.model().data_keys[&KeyId(5)].record;
    let wrapped = record.current().map(|generation| generation.wrapped.clone());
    assert_eq!((wrapped.as_deref(), record.generations.len()), (Some("2:11"), 1));
}

fn wrapping(provider: &str, wrapped: &str) -> Wrapping {
    Wrapping { provider: provider.into(), wrapped: wrapped.into() }
}

#[test]
fn keys_go_to_another_provider_when_all_nodes_know_it() {
    let mut memory = with_clone();
    let mut node = serde_json::json!({ "id": 1, "uuid": "n", "name": "old", "data_address": "127.0.0.1:1",
        "api_address": "127.0.0.1:2", "understands": ["encryption"] });
    memory.run(&Txn::new().put(&Key::Node(NodeId(1)).to_string(), &node)).unwrap();
    let (from, to) = (wrapping("file", "1:00"), wrapping("vault", "vault:v1:AAAA"));
    let rewrap = |memory: &mut Memory| run(memory, |records| rewrap_key(records, KeyId(5), &from, &to));
    let refused = rewrap(&mut memory).unwrap_err();
    assert!(matches!(&refused, MetaError::NotRewrapped { reason } if reason.contains("old")), "{refused}");
    let mut other = encrypted("g", 6);
    if let Some(key) = &mut other.key {
        key.generations[0].provider = "kmip".into();
    }
    let refused = run(&mut memory, |records| create_volume(records, &other, "ug", "")).unwrap_err();
    assert!(refused.to_string().contains("'kmip': old"), "{refused}");
    node["understands"] = serde_json::json!(["encryption", "key-providers"]);
    memory.run(&Txn::new().put(&Key::Node(NodeId(1)).to_string(), &node)).unwrap();
    assert!(rewrap(&mut memory).unwrap());
    assert_eq!(memory.model().data_keys[&KeyId(5)].current().map(WrappedKey::wrapping), Some(to));
    // A later step: nodes that know servers with keys, and nothing of volumes' own secrets.
    if let Some(key) = &mut other.key {
        key.generations[0].provider = crate::CSI_PROVIDER.into();
    }
    let refused = run(&mut memory, |records| create_volume(records, &other, "ug", "")).unwrap_err();
    assert!(refused.to_string().contains("no volumes' own secrets, not 'csi': old"), "{refused}");
    node["understands"] = serde_json::json!(["encryption", "key-providers", crate::CSI_KEYS]);
    memory.run(&Txn::new().put(&Key::Node(NodeId(1)).to_string(), &node)).unwrap();
    run(&mut memory, |records| create_volume(records, &other, "ug", "")).unwrap();
}

fn another(wrapped: &str) -> WrappedKey {
    WrappedKey { wrapped: wrapped.into(), ..key(5).generations.remove(0) }
}

fn numbers(memory: &Memory) -> Vec<u8> {
    let record = &memory.model().data_keys[&KeyId(5)].record;
    record.generations.iter().map(|generation| generation.number.number()).collect()
}

fn number(number: u8) -> KeyGeneration {
    KeyGeneration::new(number).unwrap()
}

fn add(memory: &mut Memory, wrapped: &str) -> Result<KeyGeneration, MetaError> {
    run(memory, |records| add_generation(records, KeyId(5), &another(wrapped)))
}

fn revision(memory: &Memory) -> i64 {
    memory.model().data_keys[&KeyId(5)].mod_revision
}

/// The pass through a volume has found it all under this generation.
fn rekeyed(memory: &mut Memory, name: &str, to: u8) -> bool {
    let (reverts, since) = (volume(memory, name).reverts, revision(memory));
    run(memory, |records| note_rekeyed(records, name, reverts, (number(to), since))).unwrap()
}

fn forget(memory: &mut Memory, newest: u8) -> bool {
    run(memory, |records| forget_former(records, KeyId(5), number(newest))).unwrap()
}

#[test]
fn with_another_generation_the_cluster_requires_who_understands_it() {
    let mut memory = with_clone();
    let cluster = serde_json::json!({ "id": "0".repeat(32), "name": "", "created": "", "life": "b" });
    memory.run(&Txn::new().put(&Key::Cluster.to_string(), &cluster)).unwrap();
    let required = |memory: &Memory| memory.model().cluster.as_ref().unwrap().requires.clone();
    assert!(required(&memory).is_empty());
    // The record of the cluster has changed since it was looked at: the generation is not added without its word.
    let late = txn_of(add_generation(&Records::known(memory.model()), KeyId(5), &another("1:11")));
    memory.run(&Txn::new().put(&Key::Cluster.to_string(), &cluster)).unwrap();
    assert_eq!(memory.run(&late), None);
    assert_eq!(add(&mut memory, "1:11").unwrap(), number(1));
    assert_eq!(required(&memory), ["key-generations".to_owned()].into());
    assert!(run(&mut memory, |records| write_with_newest(records, KeyId(5), number(1))).unwrap());
    let revision = memory.model().cluster.as_ref().unwrap().mod_revision;
    add(&mut memory, "1:22").unwrap();
    assert_eq!(memory.model().cluster.as_ref().unwrap().mod_revision, revision, "it is said once");
}

#[test]
fn a_generation_is_written_with_when_all_nodes_have_it() {
    let mut memory = with_clone();
    let writing = |memory: &Memory| memory.model().data_keys[&KeyId(5)].record.current().unwrap().number.number();
    assert_eq!(add(&mut memory, "1:11").unwrap(), number(1));
    assert_eq!(add(&mut memory, "1:11").unwrap(), number(1), "an attempt whose answer was lost");
    assert_eq!((numbers(&memory), writing(&memory)), (vec![0, 1], 0));
    let refused = add(&mut memory, "1:22").unwrap_err();
    assert!(refused.to_string().contains("on its way"), "{refused}");
    assert!(!run(&mut memory, |records| write_with_newest(records, KeyId(5), number(2))).unwrap());
    for _ in 0..2 {
        assert!(run(&mut memory, |records| write_with_newest(records, KeyId(5), number(1))).unwrap());
    }
    assert_eq!(writing(&memory), 1);
}

#[test]
fn former_generations_go_when_no_volume_and_no_snapshot_needs_them() {
    let mut memory = with_clone();
    add(&mut memory, "1:11").unwrap();
    assert!(!forget(&mut memory, 1), "it is not written with");
    run(&mut memory, |records| write_with_newest(records, KeyId(5), number(1))).unwrap();
    assert!(!forget(&mut memory, 1));
    assert!(rekeyed(&mut memory, "e", 1) && rekeyed(&mut memory, "e", 1));
    assert!(rekeyed(&mut memory, "f", 1) && !forget(&mut memory, 1), "the snapshot is under the former one");
    let former = memory.model().former_keys(KeyId(5), number(1));
    assert_eq!((former.volumes.len(), former.snapshots.len(), former.unread), (0, 1, false));
    let id = volume(&memory, "e").id;
    run(&mut memory, |records| delete_snapshot(records, id, "s")).unwrap();
    assert!(forget(&mut memory, 1) && forget(&mut memory, 1));
    assert_eq!(numbers(&memory), [1]);
    let record = &memory.model().data_keys[&KeyId(5)].record;
    assert_eq!((record.writing, record.current().map(|key| &*key.wrapped)), (None, Some("1:11")));
}

#[test]
fn snapshots_clones_and_reverts_say_what_they_are_under() {
    let mut memory = with_clone();
    add(&mut memory, "1:11").unwrap();
    run(&mut memory, |records| write_with_newest(records, KeyId(5), number(1))).unwrap();
    assert!(rekeyed(&mut memory, "e", 1));
    let cut = |memory: &mut Memory, id: &str, wish: VolumeCut| {
        let volumes = run(memory, |r| begin_cut(r, id, NodeId(1), std::slice::from_ref(&wish), (7, 0))).unwrap();
        let cut = Cut { id: id.into(), volumes, revision: memory.model().revision };
        run(memory, |records| finish_cut(records, &cut)).unwrap();
    };
    cut(&mut memory, "2", VolumeCut::snapshot("e", "t", SnapshotOrigin::Person));
    assert!(rekeyed(&mut memory, "e", 1), "with another head");
    assert_eq!(volume(&memory, "e").rekeyed, Some(number(1)));
    let clone = |memory: &mut Memory, snapshot: &str, name: &str| {
        let spec = CloneSpec {
            volume: "e".into(),
            snapshot: snapshot.into(),
            name: name.into(),
            size_bytes: None,
            access: None,
            key: None,
        };
        run(memory, |records| clone_snapshot(records, &spec, name, "")).unwrap();
        volume(memory, name).rekeyed
    };
    assert_eq!(clone(&mut memory, "t", "g"), Some(number(1)));
    assert_eq!(clone(&mut memory, "s", "h"), None);
    let back = VolumeCut { back_to: Some("s".into()), ..VolumeCut::snapshot("e", "u", SnapshotOrigin::Person) };
    cut(&mut memory, "3", back);
    let since = revision(&memory);
    assert_eq!(volume(&memory, "e").rekeyed, None, "it shows what the older snapshot has");
    let mut late =
        |reverts, since| run(&mut memory, |records| note_rekeyed(records, "e", reverts, (number(1), since))).unwrap();
    assert!(!late(0, since) && !late(1, since - 1), "it has gone back since, or it was another rotation");
}

/// A clone `g` of the snapshot `s` with the key 6, made of the key 5 as it was at `since`.
fn clone_apart(memory: &mut Memory, since: i64) -> Result<VolumeRecord, MetaError> {
    let source = memory.model().data_keys[&KeyId(5)].record.clone();
    let copies = source.generations.iter().map(|of| WrappedKey { wrapped: format!("6:{}", of.wrapped), ..of.clone() });
    let record = source.for_clone(KeyId(6), copies.collect(), another("6:new")).unwrap();
    let key = Some(CloneKey { record, since });
    let (volume, snapshot, name) = ("e".into(), "s".into(), "g".into());
    let spec = CloneSpec { volume, snapshot, name, size_bytes: None, access: None, key };
    run(memory, |records| clone_snapshot(records, &spec, "ug", ""))
}

#[test]
fn a_clone_with_a_key_of_its_own_has_what_its_blocks_are_under_and_a_new_one() {
    let mut memory = with_clone();
    add(&mut memory, "1:11").unwrap();
    run(&mut memory, |records| write_with_newest(records, KeyId(5), number(1))).unwrap();
    let cluster = serde_json::json!({ "id": "0".repeat(32), "name": "", "created": "", "life": "b" });
    memory.run(&Txn::new().put(&Key::Cluster.to_string(), &cluster)).unwrap();
    let since = revision(&memory);
    let made = clone_apart(&mut memory, since).unwrap();
    assert_eq!(memory.model().cluster.as_ref().unwrap().requires, ["key-generations".to_owned()].into());
    assert_eq!((made.key, made.rekeyed), (Some(KeyId(6)), None));
    assert_eq!(memory.model().layers[&made.head].key, Some(KeyId(6)));
    let record = memory.model().data_keys[&KeyId(6)].record.clone();
    let has = |record: &DataKeyRecord| -> Vec<(u8, String)> {
        record.generations.iter().map(|key| (key.number.number(), key.wrapped.clone())).collect()
    };
    assert_eq!(has(&record), [(0, "6:1:00".into()), (1, "6:1:11".into()), (2, "6:new".into())]);
    assert_eq!(record.current().map(|key| key.number), Some(number(2)), "it is written with at once");
    assert_eq!(memory.model().former_keys(KeyId(6), number(2)).volumes, [made.id]);
    // Each key ends with its own users, and is rotated by itself.
    let id = volume(&memory, "e").id;
    run(&mut memory, |records| delete(records, "f")).unwrap();
    run(&mut memory, |records| delete(records, "e")).unwrap();
    run(&mut memory, |records| delete_snapshot(records, id, "s")).unwrap();
    assert!(!has_key(&memory, 5) && has_key(&memory, 6));
    let since = memory.model().data_keys[&KeyId(6)].mod_revision;
    assert!(run(&mut memory, |records| note_rekeyed(records, "g", 0, (number(2), since))).unwrap());
    assert!(run(&mut memory, |records| forget_former(records, KeyId(6), number(2))).unwrap());
    assert_eq!(memory.model().data_keys[&KeyId(6)].record.generations.len(), 1);
    run(&mut memory, |records| delete(records, "g")).unwrap();
    assert!(!has_key(&memory, 6));
}

#[test]
fn a_key_that_changes_while_a_clones_is_made_of_it_is_noticed() {
    let mut memory = with_clone();
    let since = revision(&memory);
    add(&mut memory, "1:11").unwrap();
    let refused = clone_apart(&mut memory, since).unwrap_err();
    assert!(matches!(refused, MetaError::KeyChanged { key: KeyId(5) }), "{refused}");
    assert!(!memory.model().volumes.contains_key("g") && !has_key(&memory, 6));
}

#[test]
fn a_clone_has_no_key_of_its_own_where_that_is_not_understood_or_all_numbers_are_taken() {
    let source = |generations: u8| {
        let generations = (0..generations).map(|of| WrappedKey { number: number(of), ..another("1:00") }).collect();
        DataKeyRecord { generations, ..key(5) }
    };
    let apart = |record: &DataKeyRecord, copies| record.for_clone(KeyId(6), copies, another("n"));
    let (some, all) = (source(15), source(16));
    let newest = apart(&some, some.generations.clone()).unwrap().generations.last().unwrap().number;
    assert_eq!(newest, number(15));
    assert_eq!(apart(&all, all.generations.clone()), None);
    assert_eq!(apart(&some, some.generations[1..].to_vec()), None, "one was not copied");
    let mut memory = with_clone();
    let node = serde_json::json!({ "id": 1, "uuid": "n", "name": "old", "data_address": "127.0.0.1:1",
        "api_address": "127.0.0.1:2", "understands": ["encryption"] });
    memory.run(&Txn::new().put(&Key::Node(NodeId(1)).to_string(), &node)).unwrap();
    let since = revision(&memory);
    let refused = clone_apart(&mut memory, since).unwrap_err();
    assert!(matches!(&refused, MetaError::NotEncrypted { reason } if reason.contains("old")), "{refused}");
}

/// A number that some volume says it is under, from a rotation long ago, must not be taken for the next one's work.
#[test]
fn numbers_that_volumes_name_are_not_used_again() {
    let mut memory = with_clone();
    let id = volume(&memory, "e").id;
    run(&mut memory, |records| delete_snapshot(records, id, "s")).unwrap();
    let mut last = 0;
    let mut used = Vec::new();
    for round in 1..40 {
        let next = add(&mut memory, &format!("1:{round}")).unwrap();
        run(&mut memory, |records| write_with_newest(records, KeyId(5), next)).unwrap();
        let named: Vec<u8> = memory.model().rekeyed_to(KeyId(5)).map(KeyGeneration::number).collect();
        assert!(next.number() != last && !named.contains(&next.number()), "{next} is in use: {named:?}");
        for name in ["e", "f"] {
            rekeyed(&mut memory, name, next.number());
        }
        assert!(forget(&mut memory, next.number()));
        last = next.number();
        used.push(last);
    }
    assert!((0..16).all(|number| used.contains(&number)));
}

#[test]
fn nodes_that_know_one_key_a_volume_are_in_the_way() {
    let mut memory = with_clone();
    let node = serde_json::json!({ "id": 1, "uuid": "n", "name": "old", "data_address": "127.0.0.1:1",
        "api_address": "127.0.0.1:2", "understands": ["encryption"] });
    memory.run(&Txn::new().put(&Key::Node(NodeId(1)).to_string(), &node)).unwrap();
    let refused = add(&mut memory, "1:11").unwrap_err();
    assert!(matches!(&refused, MetaError::NotRotated { reason } if reason.contains("old")), "{refused}");
}

#[test]
fn what_cannot_be_read_may_be_under_a_former_key() {
    let mut memory = with_clone();
    add(&mut memory, "1:11").unwrap();
    run(&mut memory, |records| write_with_newest(records, KeyId(5), number(1))).unwrap();
    let id = volume(&memory, "e").id;
    run(&mut memory, |records| delete_snapshot(records, id, "s")).unwrap();
    rekeyed(&mut memory, "e", 1);
    memory.run(&Txn::new().put(&Key::Volume("f").to_string(), &"broken")).unwrap();
    assert!(!forget(&mut memory, 1));
}
