//! Where homes go when volumes are attached, and what becomes of groups that nobody has.

use azekura_model::{Change, KeyValue, Memory, Step};

use super::*;

const GIB: u64 = 1 << 30;

struct Cluster {
    model: Model,
    followers: Followers,
    revision: i64,
}

impl Cluster {
    /// Nodes 1 and 2 in rack `r` of site `a`, 3 in another rack, 4 in site `b`, without a device; a volume of 1 GiB
    /// with groups of its own.
    fn new() -> Cluster {
        let mut cluster = Cluster { model: Model::default(), followers: Followers::default(), revision: 0 };
        for (id, site, rack) in [(1, "a", "r"), (2, "a", "r"), (3, "a", "s"), (4, "b", "")] {
            let node = serde_json::json!({ "id": id, "uuid": "u", "name": format!("n{id}"), "site": site,
                "rack": rack, "data_address": "127.0.0.1:1", "api_address": "127.0.0.1:2" });
            cluster.put(&format!("nodes/{id}"), &node);
            cluster.put(&format!("alive/{id}"), &serde_json::json!({ "node": id, "since": "" }));
        }
        (1..=3).for_each(|id| cluster.put_device(id, 10 * GIB));
        let class = serde_json::json!({ "name": "near", "copies": 2, "failure_domain": "host", "ack_rule": "all",
            "copies_min": 1, "overcommit_ratio": 4.0, "home_attached": true, "created": "" });
        cluster.put("classes/near", &class);
        let own = serde_json::json!({ "name": "near@1", "copies": 2, "failure_domain": "host", "ack_rule": "all",
            "copies_min": 1, "overcommit_ratio": 4.0, "parent": "near", "groups": [1, 2],
            "created": "1970-01-01T00:16:40Z" });
        cluster.put("classes/near@1", &own);
        cluster.put_volume("v", 1, GIB);
        cluster
    }

    fn put(&mut self, key: &str, value: &serde_json::Value) {
        self.revision += 1;
        let kv = KeyValue {
            key: format!("/azekura/v1/{key}").into_bytes(),
            value: value.to_string().into_bytes(),
            mod_revision: self.revision,
            ..KeyValue::default()
        };
        self.model.apply([&Change::Put(kv)], self.revision);
        assert!(self.model.problems.is_empty(), "{:?}", self.model.problems);
    }

    fn put_device(&mut self, id: u32, capacity_bytes: u64) {
        let device = serde_json::json!({ "id": id, "uuid": "u", "node": id, "name": "d",
            "capacity_bytes": capacity_bytes, "state": "up" });
        self.put(&format!("devices/{id}"), &device);
    }

    fn put_volume(&mut self, name: &str, id: u64, size_bytes: u64) {
        let volume = serde_json::json!({ "id": id, "uuid": "u", "name": name, "size_bytes": size_bytes,
            "class": "near@1", "head": id, "group_offset": 0, "access": "shared", "created": "" });
        self.put(&format!("volumes/{name}"), &volume);
    }

    /// The volume is attached at these nodes and no others; a negative number: only to be read.
    fn attach(&mut self, volume: u64, nodes: &[i64]) {
        let entry = |node: &i64| {
            serde_json::json!({ "node": node.abs(), "reads_only": *node < 0, "incarnation": 1, "generation": 1,
                "shared": true, "pinned": false, "since": "" })
        };
        let attachments: Vec<serde_json::Value> = nodes.iter().map(entry).collect();
        let record = serde_json::json!({ "volume": volume, "generation": 1, "attachments": attachments });
        self.put(&format!("attachments/{volume}"), &record);
    }

    /// Everything is done that is to be done at this second; gives whether that was anything.
    fn at(&mut self, seconds: u64) -> bool {
        let now = Moment { elapsed: Duration::from_secs(seconds), unix_seconds: 1_000 + seconds };
        let plans = self.followers.step(&self.model, now);
        for plan in &plans {
            match plan {
                OwnPlan::Change(class, mod_revision) => {
                    assert_eq!(*mod_revision, self.model.classes[&class.name].mod_revision);
                    self.put(&format!("classes/{}", class.name), &serde_json::to_value(class).unwrap());
                }
                OwnPlan::Delete(name) => {
                    let key = format!("/azekura/v1/classes/{name}").into_bytes();
                    self.revision += 1;
                    self.model.apply([&Change::Delete(key)], self.revision);
                }
            }
        }
        !plans.is_empty()
    }

    fn home(&self) -> Option<String> {
        self.model.classes["near@1"].home.as_ref().map(ToString::to_string)
    }
}

#[test]
fn the_first_home_comes_at_once_and_further_ones_later() {
    let mut cluster = Cluster::new();
    assert!(!cluster.at(0) && cluster.home().is_none(), "nobody uses it");
    cluster.attach(1, &[1]);
    assert!(cluster.at(1));
    assert_eq!(cluster.home().unwrap(), "host 'n1'");
    assert!(!cluster.at(2), "it is there");
    cluster.attach(1, &[2]);
    assert!(!cluster.at(10));
    assert_eq!(cluster.followers.next(), Some(Duration::from_secs(310)));
    assert!(!cluster.at(309) && cluster.at(310));
    assert_eq!(cluster.home().unwrap(), "host 'n2'");
    cluster.attach(1, &[]);
    assert!(!cluster.at(1_000) && cluster.home().unwrap() == "host 'n2'", "it stays where it was used");
}

#[test]
fn who_comes_back_takes_nothing_along() {
    let mut cluster = Cluster::new();
    cluster.attach(1, &[1]);
    assert!(cluster.at(0));
    for (second, node) in [(10, 2), (200, 1), (210, 2), (400, 3), (600, 2)] {
        cluster.attach(1, &[node]);
        assert!(!cluster.at(second), "at {second}");
    }
    assert!(!cluster.at(899) && cluster.at(900), "300 s at the same place");
    assert_eq!(cluster.home().unwrap(), "host 'n2'");
}

#[test]
fn who_only_reads_through_a_node_does_not_count() {
    let mut cluster = Cluster::new();
    cluster.attach(1, &[-3, 1, -2]);
    assert!(cluster.at(0));
    assert_eq!(cluster.home().unwrap(), "host 'n1'");
}

#[test]
fn volumes_that_share_groups_have_a_home_that_all_are_in() {
    for (nodes, home) in [
        (&[1, 2][..], Some("rack 'r' of site 'a'")),
        (&[1, 3], Some("site 'a'")),
        (&[1, 4], None),
        // It has no device, and its site has none.
        (&[4], None),
    ] {
        let mut cluster = Cluster::new();
        for (id, node) in (1..).zip(nodes) {
            cluster.put_volume(&format!("v{id}"), id, GIB);
            cluster.attach(id, &[*node]);
        }
        cluster.at(0);
        assert_eq!(cluster.home().as_deref(), home, "{nodes:?}");
    }
}

#[test]
fn a_host_without_devices_is_served_from_its_site() {
    let mut cluster = Cluster::new();
    let node = serde_json::json!({ "id": 4, "uuid": "u", "name": "n4", "site": "a", "rack": "t",
        "data_address": "127.0.0.1:1", "api_address": "127.0.0.1:2" });
    cluster.put("nodes/4", &node);
    cluster.attach(1, &[4]);
    assert!(cluster.at(0));
    assert_eq!(cluster.home().unwrap(), "site 'a'");
}

#[test]
fn a_home_has_room_for_what_is_at_home_there() {
    let mut cluster = Cluster::new();
    // Two copies, 10 GiB: 5 GiB may be at home there, the rest is for copies of what is at home elsewhere.
    cluster.put_volume("v", 1, 5 * GIB + 4096);
    cluster.attach(1, &[1]);
    assert!(!cluster.at(0) && cluster.home().is_none());
    let told = |cluster: &Cluster| -> Vec<String> {
        crowded_out(&cluster.model).iter().map(|(volume, place)| format!("{volume}: {place}")).collect()
    };
    assert_eq!(told(&cluster), ["v: host 'n1'"]);
    cluster.put_volume("v", 1, 5 * GIB);
    assert!(told(&cluster).is_empty());
    assert!(cluster.at(1));
    assert_eq!(cluster.home().unwrap(), "host 'n1'");
    cluster.put_volume("v", 1, 20 * GIB);
    assert!(!cluster.at(2) && cluster.home().is_some(), "it has grown, and stays");
}

#[test]
fn it_is_switched_off_for_what_has_a_home() {
    let mut cluster = Cluster::new();
    cluster.put("settings", &serde_json::json!({ "follow_after_seconds": null }));
    cluster.attach(1, &[1]);
    assert!(cluster.at(0));
    cluster.attach(1, &[2]);
    assert!(!cluster.at(1) && !cluster.at(1_000_000));
    assert_eq!(cluster.followers.next(), None);
}

#[test]
fn what_is_changed_of_the_class_is_changed_of_all() {
    let mut cluster = Cluster::new();
    let mut class = serde_json::to_value(&cluster.model.classes["near"].record).unwrap();
    class["io_timeout_seconds"] = serde_json::json!(null);
    class["overcommit_ratio"] = serde_json::json!(2.0);
    cluster.put("classes/near", &class);
    assert!(cluster.at(0) && !cluster.at(1));
    let own = &cluster.model.classes["near@1"];
    assert_eq!((own.io_timeout_seconds, own.overcommit_ratio), (None, 2.0));
}

#[test]
fn groups_that_nobody_has_go_when_their_volume_does_not_come() {
    let mut cluster = Cluster::new();
    let own = cluster.model.classes["near@1"].record.clone();
    // Made 1,000 s after 1970, which is second 0 here.
    for name in ["near@2", "near@3"] {
        let record = ClassRecord { name: name.to_owned(), ..own.clone() };
        cluster.put(&format!("classes/{name}"), &serde_json::to_value(&record).unwrap());
    }
    let layer = serde_json::json!({ "id": 9, "volume": 7, "parent": null, "state": "deleted", "class": "near@3" });
    cluster.put("layers/9", &layer);
    assert!(!cluster.at(100));
    assert_eq!(cluster.followers.next(), Some(Duration::from_secs(120)));
    assert!(cluster.at(120));
    let left: Vec<&String> = cluster.model.classes.keys().collect();
    assert_eq!(left, ["near", "near@1", "near@3"], "a volume has one, a layer another");
}

#[test]
fn a_plan_that_was_overtaken_changes_nothing() {
    let mut memory = Memory::new();
    let class = azekura_model::transitions::classes::ClassSpec::new("c", 1).record("");
    let own = ClassRecord { name: "c@1".to_owned(), parent: Some("c".to_owned()), ..class };
    let put = |memory: &mut Memory, record: &ClassRecord| {
        memory.run(&Txn::new().put(&Key::Class("c@1").to_string(), record)).unwrap();
    };
    put(&mut memory, &own);
    let seen = memory.model().classes["c@1"].mod_revision;
    let changed = ClassRecord { home: Some(ClassHome::new("a", None)), ..own.clone() };
    let plan = OwnPlan::Change(Box::new(changed), seen);
    assert!(matches!(plan.transition(&Records::known(memory.model())), Ok(Step::Run(_, true))));
    put(&mut memory, &own);
    assert!(matches!(plan.transition(&Records::known(memory.model())), Ok(Step::Done(false, _))));
    let gone = OwnPlan::Delete("c@9".to_owned());
    assert!(matches!(gone.transition(&Records::known(memory.model())), Ok(Step::Done(false, _))));
}
