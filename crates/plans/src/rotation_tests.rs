//! A rotation, step by step.

use super::*;
use azekura_base::CHUNK_SIZE;
use azekura_model::KeyValue;
use serde_json::{Value, json};

const KEY: KeyId = KeyId(5);

fn number(number: u8) -> KeyGeneration {
    KeyGeneration::new(number).unwrap()
}

/// Nodes 1 to 3, of which 3 is silent; the data key 5 of the volumes `a` and `b`, which are under these generations;
/// and where `a` is attached.
fn model(writing: Option<u8>, rekeyed: [Option<u8>; 2], attached: Option<u32>) -> Model {
    let mut kvs = Vec::new();
    let mut put = |key: String, value: Value| {
        let (key, value) = (format!("/azekura/v1/{key}").into_bytes(), value.to_string().into_bytes());
        kvs.push(KeyValue { key, value, mod_revision: 1, ..KeyValue::default() });
    };
    for id in 1..=3 {
        put(
            format!("nodes/{id}"),
            json!({ "id": id, "uuid": "u", "name": format!("n{id}"), "data_address": "127.0.0.1:1",
                "api_address": "127.0.0.1:2" }),
        );
        if id < 3 {
            put(format!("alive/{id}"), json!({ "node": id, "incarnation": 1, "since": "t" }));
        }
    }
    let generation =
        |n: u8| json!({ "number": n, "provider": "file", "wrapped": format!("1:{n}"), "check": "0", "created": "t" });
    let mut key = json!({ "id": 5, "generations": [generation(0), generation(1)] });
    if let Some(writing) = writing {
        key["writing"] = json!(writing);
    }
    put("keys/5".into(), key);
    for (id, name) in [(1, "a"), (2, "b")] {
        let mut volume = json!({ "id": id, "uuid": "u", "name": name, "size_bytes": 3 * CHUNK_SIZE, "class": "c",
            "head": id + 10, "group_offset": 0, "created": "t", "key": 5 });
        if let Some(rekeyed) = rekeyed[id - 1] {
            volume["rekeyed"] = json!(rekeyed);
        }
        put(format!("volumes/{name}"), volume);
        let layer = json!({ "id": id + 10, "volume": id, "state": "head", "class": "c", "key": 5 });
        put(format!("layers/{}", id + 10), layer);
    }
    if let Some(node) = attached {
        let one = json!({ "node": node, "incarnation": 1, "generation": 2, "shared": false, "pinned": false,
            "since": "t" });
        put("attachments/1".into(), json!({ "volume": 1, "generation": 2, "attachments": [one] }));
    }
    let model = Model::from_keys(&kvs, 1);
    assert!(model.problems.is_empty(), "{:?}", model.problems);
    model
}

/// Nodes 1 and 2 have this as their newest, and write with that.
fn seen(one: (u8, u8), two: (u8, u8)) -> Seen {
    let used = |(newest, writes)| {
        Some(KeySeen { incarnation: 1, used: KeyUse { newest: Ok(number(newest)), writes: Some(number(writes)) } })
    };
    [(NodeId(1), used(one)), (NodeId(2), used(two)), (NodeId(3), None)].into()
}

fn step(model: &Model, seen: &Seen) -> Option<Next> {
    next(model, &model.data_keys[&KEY], seen, &BTreeMap::new())
}

fn waits(next: Option<Next>) -> Vec<Waits> {
    let Some(Next::Wait(waits)) = next else { panic!("{next:?}") };
    waits
}

/// One node is waited for, with these words.
fn waits_for(next: Option<Next>, node: u32, words: &str) -> bool {
    matches!(&waits(next)[..], [Waits::Node { node: of, why }] if of.0 == node && why.contains(words))
}

#[test]
fn all_living_nodes_have_a_key_before_anything_is_written_with_it() {
    let model = model(Some(0), [None, None], None);
    assert!(waits_for(step(&model, &seen((1, 0), (0, 0))), 2, "not read"));
    let mut other = seen((1, 0), (0, 0));
    let used = KeyUse { newest: Err("no such version".into()), writes: None };
    other.insert(NodeId(2), Some(KeySeen { incarnation: 1, used }));
    assert!(waits_for(step(&model, &other), 2, "no such version"));
    other.insert(NodeId(2), None);
    assert!(waits_for(step(&model, &other), 2, "does not answer"));
    assert_eq!(step(&model, &seen((1, 0), (1, 0))), Some(Next::WriteWith(number(1))), "whatever the silent one has");
}

#[test]
fn volumes_are_passed_through_when_nobody_writes_under_a_former_key() {
    let attached = |to| model(None, [None, Some(0)], to);
    let late = "on their way";
    assert!(waits_for(step(&attached(Some(2)), &seen((1, 1), (1, 0))), 2, late));
    assert!(waits_for(step(&attached(Some(2)), &seen((1, 1), (0, 0))), 2, late), "a gateway that has not heard of it");
    let fresh = attached(Some(1));
    let Some(Next::Pass { to, done, left }) = step(&fresh, &seen((1, 1), (0, 0))) else { panic!("they are not") };
    let wish = RekeyWish { reverts: 0, key: number(1), since: 1, size: 3 * CHUNK_SIZE as u64 };
    assert_eq!((to, done), (number(1), vec![]));
    assert_eq!(left, [(VolumeId(1), wish), (VolumeId(2), wish)].into());
    // Which of its writes is under the oldest key, a node that can't open them does not know.
    let used = KeyUse { newest: Err("no such version".into()), writes: Some(number(1)) };
    let mut sealed = seen((1, 1), (1, 1));
    sealed.insert(NodeId(2), Some(KeySeen { incarnation: 1, used }));
    assert!(waits_for(step(&attached(Some(2)), &sealed), 2, "no such version"));
    // One that is silent may write as long as it has one of them; and so may a former process of one that answers.
    let process = |node| vec![Waits::Process { volume: VolumeId(1), attachment: Generation(2), node: NodeId(node) }];
    assert_eq!(waits(step(&attached(Some(3)), &seen((1, 1), (1, 1)))), process(3));
    let mut restarted = seen((1, 1), (1, 1));
    restarted.get_mut(&NodeId(1)).unwrap().as_mut().unwrap().incarnation = 2;
    assert_eq!(waits(step(&attached(Some(1)), &restarted)), process(1));
}

#[test]
fn what_ended_attachments_have_sent_is_waited_for() {
    let mut model = model(None, [None, None], None);
    let ended = json!({ "volume": 1, "generation": 2, "fence_due": true, "attachments": [] });
    let kv = KeyValue {
        key: b"/azekura/v1/attachments/1".to_vec(),
        value: ended.to_string().into_bytes(),
        mod_revision: 2,
        ..KeyValue::default()
    };
    let kvs: Vec<KeyValue> = model.keys.keys().filter_map(|name| model.key_value(name)).chain([kv]).collect();
    model = Model::from_keys(&kvs, 2);
    assert_eq!(waits(step(&model, &seen((1, 1), (1, 1)))), [Waits::Fence(VolumeId(1))]);
}

#[test]
fn what_was_passed_through_is_noted_and_what_has_gone_back_is_not() {
    let model = model(None, [None, None], Some(1));
    let wish = |reverts| RekeyWish { reverts, key: number(1), since: 1, size: 3 * CHUNK_SIZE as u64 };
    let progress = |reverts, chunks| RekeyProgress { wish: wish(reverts), chunks, of: 3, moved: 1 };
    let former = RekeyProgress { wish: RekeyWish { since: 0, ..wish(0) }, ..progress(0, 3) };
    let pass = |progress| {
        let Some(Next::Pass { done, left, .. }) =
            next(&model, &model.data_keys[&KEY], &seen((1, 1), (1, 1)), &progress)
        else {
            panic!("they are not passed through")
        };
        (done, left.into_keys().collect::<Vec<_>>())
    };
    let both = |one, two| BTreeMap::from([(VolumeId(1), one), (VolumeId(2), two)]);
    assert_eq!(pass(both(progress(0, 3), progress(0, 2))), (vec![(VolumeId(1), 0)], vec![VolumeId(2)]));
    assert_eq!(pass(both(progress(1, 3), progress(0, 3))).1, [VolumeId(1)], "it has gone back meanwhile");
    assert_eq!(pass(both(former, progress(0, 3))).1, [VolumeId(1)], "of a former rotation to the same number");
}

#[test]
fn former_keys_are_forgotten_when_nothing_is_under_them() {
    let done = model(None, [Some(1), Some(1)], None);
    assert_eq!(step(&done, &seen((1, 1), (1, 1))), Some(Next::ForgetBefore(number(1))));
    let mut one = done.data_keys[&KEY].record.clone();
    one.generations.remove(0);
    let one = Versioned { record: one, mod_revision: 1 };
    assert_eq!(next(&done, &one, &Seen::new(), &BTreeMap::new()), None);
}
