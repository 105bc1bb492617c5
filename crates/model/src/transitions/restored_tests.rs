use super::*;
use crate::history::{Seen, check};
use crate::{AliveRecord, ClosedRecord, KeyValue, Memory, encode};
use azekura_base::{NodeId, PgId};

const NOW: u64 = 1_800_000_000;

#[test]
fn numbers_jump_beyond_those_given_after_an_earlier_restore_of_the_same_backup() {
    let first = beyond(7, NOW);
    // A minute of a million a second.
    assert!(beyond(7, NOW + 60) > first + 60_000_000);
    assert!(beyond(first + 60_000_000, NOW + 60) > first + 60_000_000);
    assert_eq!(beyond(first, 0), first + CLOCK_BEHIND_STEP, "the clock is wrong");
}

fn kv(key: &str, value: &Value, mod_revision: i64) -> KeyValue {
    let key = format!("{PREFIX}{key}").into_bytes();
    KeyValue { key, value: value.to_string().into_bytes(), mod_revision, ..KeyValue::default() }
}

fn cluster(life: &str) -> Value {
    json!({ "id": "0".repeat(32), "name": "x", "created": "t", "life": life })
}

fn volume(id: u64, name: &str, head: u64) -> Value {
    json!({ "id": id, "uuid": "u", "name": name, "size_bytes": 4096, "class": "c", "head": head, "group_offset": 0,
            "created": "t" })
}

fn layer(id: u64, volume: u64) -> Value {
    json!({ "id": id, "volume": volume, "state": "head" })
}

fn group(version: u64, epoch: u64) -> Value {
    json!({ "id": 1, "class": "c", "version": version, "epoch": epoch, "primary": 1, "reign": 4, "in_sync": [1],
            "members": [1, 2] })
}

/// As it was in revision 10.
fn backup(more: &[KeyValue]) -> Model {
    let mut kvs = vec![
        kv("cluster", &cluster("a"), 2),
        kv("counters/layers", &json!(2), 8),
        kv("volumes/v", &volume(1, "v", 1), 8),
        kv("layers/1", &layer(1, 1), 8),
        kv("groups/1", &group(5, 3), 9),
    ];
    kvs.extend(more.iter().cloned());
    Model::from_keys(&kvs, 10)
}

/// As a node has seen it in revision 20: the group has changed, and there is another volume.
fn copied() -> Copied {
    let kvs = [
        kv("cluster", &cluster("a"), 2),
        kv("counters/layers", &json!(3), 15),
        kv("volumes/v", &volume(1, "v", 1), 8),
        kv("layers/1", &layer(1, 1), 8),
        kv("volumes/w", &volume(2, "w", 2), 15),
        kv("layers/2", &layer(2, 2), 15),
        kv("groups/1", &group(7, 4), 20),
    ];
    Copied::of(&Model::from_keys(&kvs, 20)).unwrap()
}

fn value<'a>(plan: &'a Plan, key: &str) -> &'a Value {
    &plan.values[&format!("{PREFIX}{key}")]
}

/// A grant that only the backup has may have been revoked since.
#[test]
fn grants_come_from_the_newest_copy_and_never_from_the_backup() {
    let grant: Value = serde_json::from_str(include_str!("../../tests/golden/grant.json")).unwrap();
    let key = |digit: &str| format!("grants/{}", digit.repeat(11));
    let backup = backup(&[kv(&key("1"), &grant, 5), kv(&key("2"), &grant, 6), kv(&key("4"), &grant, 10)]);
    let mut copy = copied();
    let copied = CopiedKey { revision: 5, value: grant.clone() };
    copy.keys.insert(format!("{PREFIX}{}", key("1")), copied.clone());
    copy.keys.insert(format!("{PREFIX}{}", key("3")), CopiedKey { revision: 18, ..copied });
    let grants = |plan: Plan| -> Vec<String> {
        let names = plan.values.keys().filter_map(|name| name.strip_prefix(PREFIX));
        names.filter(|name| name.starts_with("grants/")).map(str::to_owned).collect()
    };
    assert_eq!(grants(merge(&backup, &[copy]).unwrap()), [key("1"), key("3")]);
    assert_eq!(grants(merge(&backup, &[]).unwrap()), [""; 0], "nobody knows which were revoked");
    let same = Copied::of(&backup).unwrap();
    assert_eq!(grants(merge(&backup, &[same]).unwrap()), [key("1"), key("2"), key("4")], "nothing went back");
}

#[test]
fn what_the_backup_lacks_comes_from_a_copy() {
    let mut plan = merge(&backup(&[]), &[copied()]).unwrap();
    begin_anew(&mut plan, NOW, 0);
    assert_eq!(plan.summary.copy_revision, Some(20));
    assert_eq!(value(&plan, "volumes/w")["head"], json!(2));
    assert_eq!(*value(&plan, "counters/layers"), json!(NOW << 20));
    let group = value(&plan, "groups/1");
    assert_eq!((&group["epoch"], &group["version"]), (&json!(NOW << 20), &json!(NOW << 20)));
    assert_eq!((&group["reign"], plan.summary.groups), (&json!(0), 1));
}

#[test]
fn an_older_copy_adds_nothing() {
    let older = Copied { revision: 9, ..Copied::of(&backup(&[])).unwrap() };
    let plan = merge(&backup(&[kv("volumes/new", &volume(2, "new", 3), 10)]), &[older]).unwrap();
    assert_eq!(plan.summary.copy_revision, None);
    assert!(plan.values.contains_key("/azekura/v1/volumes/new"));
}

#[test]
fn what_may_have_been_made_after_the_restore_stays_unless_its_numbers_are_taken() {
    let made = [
        kv("volumes/x", &volume(9, "x", 9), 12),
        kv("layers/9", &layer(9, 9), 12),
        kv("volumes/y", &volume(2, "y", 2), 13),
    ];
    let mut model = backup(&made);
    model.revision = 30;
    let strange = volume(8, "strange", 2);
    let model = Model::from_keys(
        &model.keys.values().map(|kv| KeyValue::clone(kv)).chain([kv("volumes/s", &strange, 14)]).collect::<Vec<_>>(),
        30,
    );
    let plan = merge(&model, &[copied()]).unwrap();
    assert!(plan.summary.kept.contains(&"/azekura/v1/volumes/x".to_owned()));
    assert_eq!(plan.summary.removed, ["/azekura/v1/volumes/s"]);
}

#[test]
fn a_layer_of_a_cut_that_only_the_backup_knows_goes() {
    let next = |id: u64| json!({ "id": id, "volume": 1, "parent": 1, "state": "next" });
    let cut = |next: u64| {
        let mut record = volume(1, "v", 1);
        record["cut"] = json!({ "id": "c", "next": next, "node": 1, "seconds": 0 });
        record
    };
    let begun = [kv("volumes/v", &cut(9), 12), kv("layers/9", &next(9), 12)];
    // The volume is as the copy has it: the cut is not under way.
    let plan = merge(&backup(&begun), &[copied()]).unwrap();
    assert!(!plan.values.contains_key("/azekura/v1/layers/9"), "{:?}", plan.values.keys());
    assert!(plan.summary.kept.is_empty(), "{:?}", plan.summary.kept);
    // Without a copy it is, and will be finished or called off.
    let plan = merge(&backup(&begun), &[]).unwrap();
    assert_eq!(value(&plan, "layers/9")["state"], json!("next"));
}

#[test]
fn groups_that_the_backup_may_have_opened_are_doubtful() {
    let mut plan = merge(&backup(&[kv("groups/1", &group(8, 4), 19)]), &[copied()]).unwrap();
    begin_anew(&mut plan, NOW, 0);
    assert_eq!(value(&plan, "groups/1")["closed"]["one_history"], json!(false));
    let mut alone = merge(&backup(&[]), &[]).unwrap();
    begin_anew(&mut alone, NOW, 0);
    assert_eq!(value(&alone, "groups/1")["closed"]["one_history"], json!(false), "nothing is known without a copy");
}

#[test]
fn an_empty_server_is_filled_from_a_copy() {
    let plan = merge(&Model::from_keys(&[], 1), &[copied()]).unwrap();
    assert_eq!(plan.values.len(), 7);
    assert!(matches!(merge(&Model::from_keys(&[], 1), &[]), Err(MetaError::NothingRestored { .. })));
}

/// What a configuration server has that was restored, as it is executed in memory.
fn memory(model: &Model) -> Memory {
    let mut memory = Memory::new();
    let put = |txn: Txn, kv: &KeyValue| {
        let value: Value = serde_json::from_slice(&kv.value).unwrap();
        txn.put(std::str::from_utf8(&kv.key).unwrap(), &value)
    };
    memory.run(&model.keys.values().fold(Txn::new(), |txn, kv| put(txn, kv))).unwrap();
    memory
}

fn moment(life: &str) -> RestoreMoment {
    RestoreMoment { seconds: NOW, now: "t".into(), life: life.into(), random: 0 }
}

fn execute(memory: &mut Memory, restore: &Restore) {
    let guard = memory.run(restore.first()).unwrap();
    restore.rest(guard).for_each(|txn| assert!(memory.run(&txn).is_some()));
}

#[test]
fn a_restored_configuration_begins_another_life_that_follows_the_one_before() {
    let mut memory = memory(&backup(&[]));
    let restoration = Restoration { copies: vec![copied()], without: BTreeSet::from([DeviceId(2)]) };
    let restore = plan_restore(memory.model(), &restoration, &moment("b")).unwrap();
    execute(&mut memory, &restore);
    let model = memory.model();
    let cluster = model.cluster.as_ref().unwrap();
    assert_eq!((cluster.life.as_str(), &cluster.former_lives[..]), ("b", &["a".to_owned()][..]));
    // The server counts revisions anew: nothing shows that it has no change of its own.
    let closed = Some(ClosedRecord { one_history: false, problem: None });
    assert_eq!((model.volumes.len(), &model.groups[&PgId(1)].closed), (2, &closed));
    let seen = Seen { version: 1, cluster: "0".repeat(32), life: "a".into(), revision: 90, incarnation: 0 };
    assert!(check(&seen, None, model, "n").is_ok());
    // All have spoken, but for one.
    let run = |memory: &mut Memory, txn| memory.run(&txn).unwrap();
    let Step::Run(txn, ()) = open_without(&Records::known(memory.model()), &[DeviceId(1)].into()).unwrap() else {
        panic!("nothing is changed")
    };
    run(&mut memory, txn);
    let without = |memory: &Memory| memory.model().cluster.as_ref()?.restored.clone().map(|restored| restored.without);
    assert_eq!(without(&memory), Some([DeviceId(1), DeviceId(2)].into()));
    let Step::Run(txn, ()) = end_restoration(&Records::known(memory.model())).unwrap() else { panic!("nothing") };
    run(&mut memory, txn);
    assert_eq!(without(&memory), None);
}

#[test]
fn a_restore_that_was_interrupted_goes_on_with_its_numbers_and_its_life() {
    let whole = {
        let mut memory = memory(&backup(&[]));
        let restore = plan_restore(memory.model(), &Restoration::default(), &moment("b")).unwrap();
        execute(&mut memory, &restore);
        memory
    };
    let mut memory = memory(&backup(&[]));
    let restore = plan_restore(memory.model(), &Restoration::default(), &moment("b")).unwrap();
    memory.run(restore.first()).unwrap();
    let seen = Seen { version: 1, cluster: "0".repeat(32), life: "a".into(), revision: 1, incarnation: 0 };
    assert!(matches!(check(&seen, None, memory.model(), "n"), Err(MetaError::RestoreUnderWay)));
    let later = RestoreMoment { seconds: NOW + 9, ..moment("c") };
    let again = plan_restore(memory.model(), &Restoration::default(), &later).unwrap();
    execute(&mut memory, &again);
    assert_eq!(memory.model().cluster.as_ref().unwrap().life, "b");
    assert_eq!(memory.model().counters, whole.model().counters, "numbers are raised once");
    assert_eq!(memory.run(restore.first()), None, "the first attempt is over");
}

#[test]
fn nothing_is_restored_below_running_nodes() {
    let mut memory = memory(&backup(&[]));
    let life = encode(&AliveRecord { node: NodeId(1), since: String::new() });
    memory.hold(&Key::Alive(NodeId(1)).to_string(), Some(life));
    let refused = plan_restore(memory.model(), &Restoration::default(), &moment("b"));
    assert!(matches!(refused, Err(MetaError::NodesRunning { .. })), "{refused:?}");
}

#[test]
fn a_volume_without_attachments_in_the_backup_does_not_begin_with_their_first_generation() {
    let mut memory = memory(&backup(&[]));
    let restoration = Restoration { copies: vec![copied()], ..Restoration::default() };
    let restore = plan_restore(memory.model(), &restoration, &moment("b")).unwrap();
    execute(&mut memory, &restore);
    for volume in [VolumeId(1), VolumeId(2)] {
        let record = &memory.model().attachments[&volume].record;
        assert!(record.attachments.is_empty() && !record.fence_due);
        assert!(record.generation.0 >= NOW * NUMBERS_PER_SECOND, "{record:?}");
    }
}

/// Who holds what is still so; what gateways were to confirm is over, since no attachment is left.
#[test]
fn reservations_go_on_with_numbers_that_nobody_has_seen() {
    let golden = include_str!("../../tests/golden/reservations.json").replace("\"volume\": 4", "\"volume\": 1");
    let before: Value = serde_json::from_str(&golden).unwrap();
    let mut memory = memory(&backup(&[kv("reservations/1", &before, 9)]));
    let restore = plan_restore(memory.model(), &Restoration::default(), &moment("b")).unwrap();
    execute(&mut memory, &restore);
    assert!(memory.model().problems.is_empty(), "{:?}", memory.model().problems);
    let record = &memory.model().reservations[&VolumeId(1)].record;
    assert!(record.number >= NOW * NUMBERS_PER_SECOND && record.changes.is_empty() && record.fence_due.is_none());
    assert_eq!(record.heeding, []);
    assert_eq!(record.changes_after(4), None, "a gateway has missed some");
    assert_eq!((record.registrants.len(), record.generation), (1, 3));
    assert_eq!(json!(record.reservation), before["reservation"]);
}
