//! What this node knows of the cluster: from its copy of the configuration, without asking other nodes.

use std::collections::{BTreeMap, BTreeSet};

use azekura_api::{GroupHealth, IDLE, LastScrubs, NodeSnapshot, READ_ONLY, Stale};
use azekura_base::{DeviceId, NodeId};
use azekura_model::transitions::volumes::{promised_bytes, usable_capacity_bytes};
use azekura_model::{GroupRecord, Model, SnapshotOrigin, VolumeRecord};

use super::super::scrub;

/// The cluster, as one node sees it.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The configuration has not answered for so long, seconds.
    pub(super) away_seconds: Option<u64>,
    pub(super) leads: bool,
    /// Nodes that are neither removed nor shut out, by name, and whether they are alive.
    pub(super) nodes: BTreeMap<String, bool>,
    pub(super) totals: Totals,
    /// Groups whose primary is here, by health.
    pub(super) primaries: BTreeMap<&'static str, u64>,
    /// Names of this node's devices.
    pub(super) device_names: BTreeMap<u32, String>,
    /// By name: those that are used here.
    pub(super) used: BTreeMap<String, Volume>,
    /// Of the groups whose primary is here.
    pub(super) scrubbed: Option<LastScrubs>,
}

/// Sums over the cluster.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Devices that have failed or are failing, and that groups still name.
    pub(super) devices_failed: u64,
    /// Of groups that volumes need.
    pub(super) groups_without_primary: u64,
    pub(super) copies_missing: u64,
    pub(super) volumes: u64,
    pub(super) volume_bytes: u64,
    pub(super) snapshots: u64,
    pub(super) capacity_bytes: u64,
    pub(super) promised_bytes: u64,
}

impl Totals {
    /// `needed`: the groups that volumes need.
    fn of(model: &Model, needed: &[&GroupRecord]) -> Totals {
        let bytes = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        let failed = model.devices.values().filter(|device| !device.removed && device.failure.is_some());
        let without = needed.iter().filter(|group| !model.is_device_alive(group.primary));
        Totals {
            devices_failed: failed.filter(|device| model.groups_on(device.id).next().is_some()).count() as u64,
            groups_without_primary: without.count() as u64,
            copies_missing: needed.iter().map(|group| missing(model, group)).sum(),
            volumes: model.volumes.len() as u64,
            volume_bytes: model.volumes.values().map(|volume| volume.size_bytes).sum(),
            snapshots: model.snapshots.len() as u64,
            capacity_bytes: bytes(usable_capacity_bytes(model)),
            promised_bytes: bytes(promised_bytes(model)),
        }
    }
}

/// A volume's record, as far as metrics tell of it.
#[derive(Debug, Default)]
pub(super) struct Volume {
    pub(super) size_bytes: u64,
    pub(super) snapshots: u64,
    pub(super) protection: Option<Protection>,
}

/// Snapshots that are made by themselves.
#[derive(Debug)]
pub(super) struct Protection {
    pub(super) every_seconds: u64,
    /// The age of the newest; nothing before the first.
    pub(super) lag_seconds: Option<u64>,
}

impl Known {
    /// `used`: names of the volumes that are used here; `now`: seconds since 1970.
    pub(super) fn of(
        model: &Model,
        me: NodeId,
        snapshot: &NodeSnapshot,
        stale: Option<&Stale>,
        used: &BTreeSet<&str>,
        now: u64,
    ) -> Known {
        let missed = model.missed_classes();
        let groups = || model.groups.values().map(|group| &group.record);
        let needed: Vec<&GroupRecord> = groups().filter(|group| missed.contains(group.class.as_str())).collect();
        let here = |device: &DeviceId| model.devices.get(device).is_some_and(|device| device.node == me);
        let own = || model.devices.values().filter(|device| device.node == me);
        let nodes = model.nodes.values().filter(|node| !node.removed && node.shut_out.is_none());
        let of_volume = |name: &&str| Some(((*name).to_owned(), Volume::of(model, model.volumes.get(*name)?, now)));
        Known {
            away_seconds: stale.map(|stale| stale.seconds),
            leads: model.leader.as_ref().is_some_and(|leader| leader.node == me),
            nodes: nodes.map(|node| (node.name.clone(), model.alive.contains_key(&node.id))).collect(),
            totals: Totals::of(model, &needed),
            primaries: primaries(model, snapshot, needed.into_iter().filter(|group| here(&group.primary))),
            device_names: own().map(|device| (device.id.0, device.name.clone())).collect(),
            used: used.iter().filter_map(of_volume).collect(),
            scrubbed: scrub::last(groups().filter(|group| here(&group.primary))),
        }
    }

    /// Whether nothing is wrong that this node knows of.
    pub(super) fn healthy(&self) -> bool {
        let ill = |(health, count): (&&str, &u64)| *health != name(GroupHealth::Healthy) && *count > 0;
        self.away_seconds.is_none()
            && self.nodes.values().all(|alive| *alive)
            && self.totals.devices_failed + self.totals.groups_without_primary + self.totals.copies_missing == 0
            && !self.primaries.iter().any(ill)
    }
}

impl Volume {
    fn of(model: &Model, record: &VolumeRecord, now: u64) -> Volume {
        let mut snapshots = 0;
        let mut newest = None;
        for snapshot in model.snapshots_of(record.id) {
            snapshots += 1;
            if snapshot.origin == SnapshotOrigin::Schedule {
                newest = newest.max(Some(snapshot.seconds));
            }
        }
        let protection = record.protection.as_ref().map(|protection| Protection {
            every_seconds: protection.every_seconds,
            lag_seconds: newest.map(|made| now.saturating_sub(made)),
        });
        Volume { size_bytes: record.size_bytes, snapshots, protection }
    }
}

/// Copies that a group should have, and that are not in sync on a device that is served.
fn missing(model: &Model, group: &GroupRecord) -> u64 {
    let wanted = model.classes.get(&group.class).map_or(1, |class| class.copies as usize);
    let there = group.in_sync.iter().filter(|device| model.is_device_alive(**device)).count();
    wanted.saturating_sub(there) as u64
}

/// How the health of a group is called.
const fn name(health: GroupHealth) -> &'static str {
    match health {
        GroupHealth::Healthy => "healthy",
        GroupHealth::Degraded => "degraded",
        GroupHealth::ReadOnly => "read_only",
        GroupHealth::Unavailable => "unavailable",
    }
}

/// These groups by health, as their primaries here know it. What a secondary makes of its copy, its own node tells.
fn primaries<'a>(
    model: &Model,
    snapshot: &NodeSnapshot,
    groups: impl Iterator<Item = &'a GroupRecord>,
) -> BTreeMap<&'static str, u64> {
    let states: BTreeMap<(u32, u32), &str> =
        snapshot.groups.iter().map(|copy| ((copy.id, copy.device), copy.state.as_str())).collect();
    let health = |group: &GroupRecord| match states.get(&(group.id.0, group.primary.0)).copied() {
        Some(READ_ONLY) => GroupHealth::ReadOnly,
        Some("active" | IDLE) if missing(model, group) > 0 => GroupHealth::Degraded,
        Some("active" | IDLE) => GroupHealth::Healthy,
        _ => GroupHealth::Unavailable,
    };
    let all = [GroupHealth::Healthy, GroupHealth::Degraded, GroupHealth::ReadOnly, GroupHealth::Unavailable];
    let mut counts: BTreeMap<&'static str, u64> = all.map(|health| (name(health), 0)).into();
    for group in groups {
        *counts.entry(name(health(group))).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::GroupSnapshot;
    use azekura_model::KeyValue;
    use serde_json::{Value, json};

    const NOW: u64 = 1_800_000_000;

    /// A volume with two copies, on two nodes; what is `changed` takes the place of records, or takes them away.
    fn model(changed: &[(&str, Option<Value>)]) -> Model {
        let node = |id: u32| {
            json!({ "id": id, "uuid": "u", "name": format!("n{id}"), "data_address": "127.0.0.1:1",
                "api_address": "127.0.0.1:2" })
        };
        let device =
            |id: u32| json!({ "id": id, "uuid": "u", "node": id, "name": "d", "capacity_bytes": 100, "state": "up" });
        let alive = |id: u32| json!({ "node": id, "since": "" });
        let class = json!({ "name": "c", "copies": 2, "failure_domain": "host", "ack_rule": "all", "copies_min": 1,
            "overcommit_ratio": 4.0, "groups": [1], "created": "" });
        let snapshot = |name: &str, origin: &str, seconds: u64| {
            json!({ "volume": 1, "name": name, "layer": 2, "size_bytes": 4096, "seconds": seconds, "origin": origin,
                "cut": "" })
        };
        let mut records: BTreeMap<&str, Value> = [
            ("nodes/1", node(1)),
            ("nodes/2", node(2)),
            ("alive/1", alive(1)),
            ("alive/2", alive(2)),
            ("devices/1", device(1)),
            ("devices/2", device(2)),
            ("classes/c", class),
            (
                "groups/1",
                json!({ "id": 1, "class": "c", "epoch": 1, "primary": 1, "in_sync": [1, 2], "members": [1, 2] }),
            ),
            (
                "volumes/v",
                json!({ "id": 1, "uuid": "u", "name": "v", "size_bytes": 4096, "class": "c", "head": 1,
                "group_offset": 0, "created": "", "protection": { "every_seconds": 60, "keep_seconds": 600 } }),
            ),
            ("snapshots/1/a", snapshot("a", "schedule", NOW - 90)),
            ("snapshots/1/b", snapshot("b", "schedule", NOW - 30)),
            ("snapshots/1/c", snapshot("c", "person", NOW - 10)),
        ]
        .into();
        for (key, value) in changed {
            match value {
                Some(value) => drop(records.insert(key, value.clone())),
                None => drop(records.remove(key)),
            }
        }
        let key_value = |(key, value): (&str, Value)| KeyValue {
            key: format!("/azekura/v1/{key}").into_bytes(),
            value: value.to_string().into_bytes(),
            mod_revision: 1,
            ..KeyValue::default()
        };
        let kvs: Vec<KeyValue> = records.into_iter().map(key_value).collect();
        let model = Model::from_keys(&kvs, 1);
        assert!(model.problems.is_empty(), "{:?}", model.problems);
        model
    }

    fn known(model: &Model, state: &str) -> Known {
        let copy = GroupSnapshot { id: 1, device: 1, state: state.into(), ..GroupSnapshot::default() };
        let snapshot = NodeSnapshot { groups: vec![copy], ..NodeSnapshot::default() };
        Known::of(model, NodeId(1), &snapshot, None, &["v"].into(), NOW)
    }

    #[test]
    fn a_healthy_cluster() {
        let known = known(&model(&[]), "active");
        assert!(known.healthy(), "{known:?}");
        assert_eq!((known.primaries["healthy"], known.nodes["n2"]), (1, true));
        assert_eq!((known.totals.promised_bytes, known.totals.capacity_bytes), (8192, 200));
        let volume = &known.used["v"];
        let protection = volume.protection.as_ref().unwrap();
        assert_eq!((volume.snapshots, protection.every_seconds, protection.lag_seconds), (3, 60, Some(30)));
    }

    #[test]
    fn what_is_away_is_missed_unless_no_volume_needs_it() {
        let lost = known(&model(&[("alive/2", None)]), "active");
        assert_eq!((lost.totals.copies_missing, lost.totals.groups_without_primary), (1, 0));
        assert!(!lost.healthy() && lost.primaries["degraded"] == 1 && !lost.nodes["n2"]);
        let lost = known(&model(&[("alive/1", None)]), "active");
        assert_eq!((lost.totals.copies_missing, lost.totals.groups_without_primary), (1, 1));
        let empty = known(&model(&[("alive/2", None), ("volumes/v", None)]), "active");
        assert_eq!((empty.totals.copies_missing, empty.totals.volumes), (0, 0));
    }

    #[test]
    fn a_primary_that_does_not_serve_is_told() {
        for (state, health) in [(READ_ONLY, "read_only"), ("opening", "unavailable"), (IDLE, "healthy")] {
            let known = known(&model(&[]), state);
            assert_eq!((known.primaries[health], known.healthy()), (1, health == "healthy"), "{state}");
        }
        let stale = Stale { seconds: 12, node: "n1".into(), reason: "refused".into() };
        let snapshot = NodeSnapshot::default();
        let known = Known::of(&model(&[]), NodeId(2), &snapshot, Some(&stale), &BTreeSet::new(), NOW);
        assert!(known.away_seconds == Some(12) && !known.healthy() && known.used.is_empty());
    }
}
