//! After the configuration was restored: who has not said what he holds, and opening the groups again
//! (docs/decisions/0019-restored-configuration.md).

use std::collections::BTreeSet;

use azekura_base::{DeviceId, LayerId, PgId, VolumeId};
use azekura_model::{
    ClosedRecord, ClusterRecord, GroupRecord, LayerRecord, LayerState, Model, RestoredRecord, Unknown,
};
use azekura_replica::{AckRule, GroupConfig, Heard, Held, reopen};

use crate::plan::Plan;

/// Groups opened in one round, so that the first need not wait for all.
const OPENED_AT_ONCE_MAX: usize = 256;

/// The cluster, if it is between a restore and the opening of its groups.
fn restoration(model: &Model) -> Option<(&ClusterRecord, &RestoredRecord)> {
    let cluster = &model.cluster.as_ref()?.record;
    Some((cluster, cluster.restored.as_ref()?))
}

/// Devices that have not said yet what they hold, for which all groups wait: any device may have been given a copy
/// since the backup.
#[must_use]
pub fn awaited(model: &Model) -> Vec<DeviceId> {
    let Some((cluster, restored)) = restoration(model) else { return Vec::new() };
    let devices = model.devices.values().filter(|device| {
        let has_spoken = model.holdings.get(&device.id).is_some_and(|holdings| holdings.life == cluster.life);
        !device.is_lost() && !has_spoken && !restored.without.contains(&device.id)
    });
    devices.map(|device| device.id).collect()
}

/// What is in the way of the groups that are closed, for people.
#[must_use]
pub fn problems(model: &Model) -> Vec<String> {
    let closed: Vec<&GroupRecord> =
        model.groups.values().filter(|group| group.closed.is_some()).map(|group| &group.record).collect();
    if closed.is_empty() {
        return Vec::new();
    }
    let all = model.groups.len();
    let mut problems = Vec::new();
    let awaited = awaited(model);
    if !awaited.is_empty() {
        let name = |id: &DeviceId| {
            let node = model.devices.get(id).and_then(|device| model.nodes.get(&device.node));
            format!("{id} (node {})", node.map_or("?", |node| node.name.as_str()))
        };
        let names: Vec<String> = awaited.iter().map(name).collect();
        problems.push(format!(
            "{} of {all} placement groups are closed since the configuration was restored, until these devices have said what \
             they hold: {}; start their nodes, or give up what only they have: 'azekura cluster restored --without DEVICE'",
            closed.len(),
            names.join(", ")
        ));
    }
    for group in closed {
        if let Some(problem) = group.closed.as_ref().and_then(|closed| closed.problem.as_ref()) {
            problems.push(format!("placement group {} stays closed: {problem}", group.id));
        }
    }
    problems
}

/// Layers that were found on devices and that nothing in the configuration names, for people.
#[must_use]
pub fn found_layers(model: &Model) -> Vec<LayerId> {
    let named: BTreeSet<LayerId> = model.snapshots.values().map(|snapshot| snapshot.layer).collect();
    let frozen = model.layers.values().filter(|layer| layer.state == LayerState::Frozen && layer.volume == FOUND);
    frozen.map(|layer| layer.id).filter(|layer| !named.contains(layer)).collect()
}

/// The volume of layers that were found: none has this number.
const FOUND: VolumeId = VolumeId(0);

/// Opens groups, once all devices have spoken; then the restore is over.
#[must_use]
pub fn step(model: &Model) -> Vec<Plan> {
    let Some((_, restored)) = restoration(model).filter(|(_, restored)| !restored.under_way) else { return Vec::new() };
    if !awaited(model).is_empty() {
        return Vec::new();
    }
    // First of all: what lies below them must not be dropped.
    let mut plans: Vec<Plan> = found_now(model).map(Plan::AdoptLayer).collect();
    let mut closed = model.groups.values().filter(|group| group.closed.is_some()).peekable();
    if closed.peek().is_none() {
        plans.push(Plan::EndRestoration);
        return plans;
    }
    let next = closed.map(|group| (next_record(model, group, restored), group));
    let opened = next.filter(|(next, group)| *next != group.record).take(OPENED_AT_ONCE_MAX);
    plans.extend(opened.map(|(next, group)| Plan::Reopen(Box::new(next), group.mod_revision)));
    plans
}

/// The layers that devices hold and the configuration does not know.
fn found_now(model: &Model) -> impl Iterator<Item = LayerRecord> {
    let found = model.holdings.values().flat_map(|holdings| &holdings.unknown_layers);
    found.filter(|(id, _)| !model.layers.contains_key(id)).map(|(id, parent)| {
        let (state, unknown) = (LayerState::Frozen, Unknown::default());
        LayerRecord {
            id: *id,
            volume: FOUND,
            parent: *parent,
            state,
            into: None,
            class: String::new(),
            key: None,
            rekeyed: None,
            unknown,
        }
    })
}

/// What is known of a group's copies.
fn heard(model: &Model, pg: PgId, closed: &ClosedRecord, restored: &RestoredRecord) -> Heard {
    let held = model.holdings.values().filter_map(|holdings| {
        let held = holdings.groups.get(&pg)?;
        let (epoch, committed, prepared, complete) = (held.epoch, held.committed, held.prepared, held.complete);
        Some((holdings.device, Held { epoch, committed, prepared, complete }))
    });
    Heard { held: held.collect(), without: restored.without.clone(), one_history: closed.one_history }
}

/// A closed group's next record: open, or with the reason why not.
fn next_record(model: &Model, group: &GroupRecord, restored: &RestoredRecord) -> GroupRecord {
    let Some(closed) = &group.closed else { return group.clone() };
    let copies = model.classes.get(&group.class).map_or(1, |class| class.copies);
    let config = GroupConfig {
        version: group.version,
        epoch: group.epoch,
        primary: group.primary,
        primary_incarnation: group.primary_incarnation,
        in_sync: group.in_sync.iter().copied().collect(),
        away: group.away.clone(),
        members: group.members.iter().copied().collect(),
        leaving: group.leaving.clone(),
        copies_min: 1,
        ack: AckRule::All,
        copies,
        sites: std::collections::BTreeMap::new(),
    };
    let stays_closed = |problem: String| {
        let closed = ClosedRecord { problem: Some(problem), ..closed.clone() };
        let version = if group.closed.as_ref() == Some(&closed) { group.version } else { group.version + 1 };
        GroupRecord { version, closed: Some(closed), ..group.clone() }
    };
    match reopen(&config, &heard(model, group.id, closed, restored)) {
        Ok(next) if next.in_sync.is_empty() => stays_closed("all devices that had a copy are given up".to_owned()),
        Ok(next) => GroupRecord {
            version: next.version,
            epoch: next.epoch,
            primary: next.primary,
            primary_incarnation: next.primary_incarnation,
            in_sync: next.in_sync.into_iter().collect(),
            away: next.away,
            members: next.members.into_iter().collect(),
            leaving: next.leaving,
            closed: None,
            ..group.clone()
        },
        Err(told) => stays_closed(format!(
            "device {} has committed writes that device {} never had, which took writes later: both took writes after the \
             configuration went back. Say whose are given up: 'azekura cluster restored --without DEVICE'",
            told.ahead, told.latest
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_model::KeyValue;
    use serde_json::{Value, json};

    /// Two devices; what they hold of the one group, if they have spoken.
    fn model(one: Option<Value>, two: Option<Value>, without: &[u32]) -> Model {
        let mut kvs = Vec::new();
        let mut put = |key: String, value: Value| {
            let (key, value) = (format!("/azekura/v1/{key}").into_bytes(), value.to_string().into_bytes());
            kvs.push(KeyValue { key, value, mod_revision: 1, ..KeyValue::default() });
        };
        let restored = json!({ "at": "t", "without": without });
        put(
            "cluster".into(),
            json!({ "id": "0".repeat(32), "name": "x", "created": "t", "life": "b", "restored": restored }),
        );
        for (id, held) in [(1, one), (2, two)] {
            let device = json!({ "id": id, "uuid": "u", "node": id, "name": "d", "capacity_bytes": 1, "state": "up" });
            put(format!("devices/{id}"), device);
            if let Some(held) = held {
                put(format!("holdings/{id}"), json!({ "device": id, "life": "b", "groups": { "1": held } }));
            }
        }
        let group = json!({ "id": 1, "class": "c", "version": 9, "epoch": 9, "primary": 1, "in_sync": [1, 2],
            "members": [1, 2], "closed": { "one_history": true } });
        put("groups/1".into(), group);
        let class = json!({ "name": "c", "copies": 2, "failure_domain": "host", "ack_rule": "all", "copies_min": 1,
            "overcommit_ratio": 4.0, "groups": [1], "created": "" });
        put("classes/c".into(), class);
        let model = Model::from_keys(&kvs, 1);
        assert!(model.problems.is_empty(), "{:?}", model.problems);
        model
    }

    fn held(epoch: u64, place: u64) -> Option<Value> {
        Some(json!({ "epoch": epoch, "committed": place, "prepared": place, "complete": place }))
    }

    fn next(model: &Model) -> GroupRecord {
        let (_, restored) = restoration(model).unwrap();
        next_record(model, &model.groups[&PgId(1)], restored)
    }

    #[test]
    fn groups_wait_for_all_devices() {
        let model = model(held(3, 5), None, &[]);
        assert_eq!((awaited(&model), step(&model)), (vec![DeviceId(2)], vec![]));
        let told = problems(&model);
        assert!(told.len() == 1 && told[0].contains("2 (node ?)"), "{told:?}");
    }

    #[test]
    fn a_group_opens_with_who_has_everything() {
        let model = model(held(3, 5), held(3, 9), &[]);
        assert_eq!(awaited(&model), []);
        let next = next(&model);
        assert_eq!((next.closed.clone(), next.primary, next.in_sync.clone()), (None, DeviceId(2), vec![DeviceId(2)]));
        assert_eq!(next.members, [DeviceId(1), DeviceId(2)]);
        assert_eq!(step(&model), [Plan::Reopen(Box::new(next), 1)]);
    }

    #[test]
    fn nobody_waits_for_a_device_that_is_given_up() {
        let model = model(held(3, 5), None, &[2]);
        assert_eq!(awaited(&model), []);
        let next = next(&model);
        assert_eq!((next.in_sync, next.leaving), (vec![DeviceId(1)], BTreeSet::from([DeviceId(2)])));
    }

    #[test]
    fn a_group_of_which_nothing_is_left_stays_closed() {
        let next = next(&model(None, None, &[1, 2]));
        assert!(next.closed.unwrap().problem.unwrap().starts_with("all devices"));
    }

    #[test]
    fn a_group_that_people_must_decide_about_says_so() {
        let model = model(held(3, 9), held(4, 5), &[]);
        let next = next(&model);
        let problem = next.closed.unwrap().problem.unwrap();
        assert!(problem.starts_with("device 1 has committed writes that device 2 never had"), "{problem}");
    }
}
