//! When a protected volume's next snapshot is due, and which of its snapshots may go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use azekura_base::VolumeId;
use azekura_model::{Model, RecordMap, SnapshotOrigin, SnapshotRecord, Versioned, VolumeRecord};

use crate::retention::superfluous;

/// A volume whose snapshot is due is looked at again after so long, seconds, when its last one failed.
pub const RETRY_SECONDS: u64 = 5;

/// The protected volumes, each with the time when it is to be looked at. Made anew only when volumes have changed, so
/// that a look costs nothing while none is due.
#[derive(Debug, Default)]
pub struct Schedule {
    volumes: Option<RecordMap<String, VolumeRecord>>,
    due: BTreeMap<String, u64>,
    /// Volumes whose snapshot is being made.
    busy: BTreeSet<String>,
}

impl Schedule {
    /// Takes in what volumes there are.
    pub fn follow(&mut self, model: &Model, now: u64) {
        if self.volumes.as_ref().is_some_and(|known| Arc::ptr_eq(known, &model.volumes)) {
            return;
        }
        self.volumes = Some(Arc::clone(&model.volumes));
        let mut due = BTreeMap::new();
        for volume in model.volumes.values() {
            if let Some(protection) = &volume.protection {
                // A new leader, and a volume that was not protected, begin with the last snapshot that there is.
                let next = || last(model, volume.id).map_or(now, |last| last.seconds + protection.every_seconds);
                let known = self.due.get(&volume.name).copied();
                let known = known.map(|at| at.min(now + protection.every_seconds));
                due.insert(volume.name.clone(), known.unwrap_or_else(next));
            }
        }
        self.due = due;
    }

    /// When the next volume is due, seconds since 1970.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.due.iter().filter(|(name, _)| !self.busy.contains(*name)).map(|(_, at)| *at).min()
    }

    /// Takes up to `room` volumes that are due at `now`, and whose snapshot is not being made.
    pub fn take_due(&mut self, model: &Model, now: u64, room: usize) -> Vec<String> {
        let busy = &self.busy;
        let waits = |(name, at): &(&String, &u64)| **at <= now && !busy.contains(*name);
        let mut due: Vec<(u64, String)> = self.due.iter().filter(waits).map(|(name, at)| (*at, name.clone())).collect();
        due.sort_unstable();
        due.truncate(room);
        for (at, name) in &due {
            // One that is late has skipped what it missed.
            let every = model.volumes.get(name).and_then(|v| v.protection.as_ref()).map_or(1, |p| p.every_seconds);
            let skipped = now.saturating_sub(*at) / every.max(1);
            self.due.insert(name.clone(), at + (skipped + 1) * every.max(1));
        }
        due.into_iter().map(|(_, name)| name).collect()
    }

    /// A volume's snapshot is being made.
    pub fn begin(&mut self, volume: &str) {
        self.busy.insert(volume.to_owned());
    }

    /// It is made, or failed.
    pub fn end(&mut self, volume: &str, failed: bool, now: u64) {
        self.busy.remove(volume);
        if failed && let Some(at) = self.due.get_mut(volume) {
            *at = (*at).min(now + RETRY_SECONDS);
        }
    }

    /// Snapshots that are being made.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.busy.len()
    }
}

/// A volume's snapshots that its protection has made, the oldest first.
fn made(model: &Model, volume: VolumeId) -> Vec<&Arc<Versioned<SnapshotRecord>>> {
    let mut made: Vec<_> =
        model.snapshots_of(volume).filter(|snapshot| snapshot.origin == SnapshotOrigin::Schedule).collect();
    made.sort_by_key(|snapshot| (snapshot.seconds, snapshot.nanos));
    made
}

fn last(model: &Model, volume: VolumeId) -> Option<&Arc<Versioned<SnapshotRecord>>> {
    let made = model.snapshots_of(volume).filter(|snapshot| snapshot.origin == SnapshotOrigin::Schedule);
    made.max_by_key(|snapshot| (snapshot.seconds, snapshot.nanos))
}

/// Whether a volume can't have been written since its protection's last snapshot: nobody has it, or has had it since.
#[must_use]
pub fn is_unchanged(model: &Model, volume: &VolumeRecord) -> bool {
    let Some(last) = last(model, volume.id) else { return false };
    // A volume that was reverted has another head than the one that was put on the last snapshot's layer.
    let on_top = model.layers.get(&volume.head).and_then(|head| head.parent) == Some(last.layer);
    let (idle, generation) = model
        .attachments
        .get(&volume.id)
        .map_or((true, Default::default()), |now| (now.attachments.is_empty(), now.generation));
    on_top && idle && generation == last.generation
}

/// Names of a protected volume's snapshots that its protection does not keep any more.
#[must_use]
pub fn to_delete(model: &Model, volume: &VolumeRecord, now: u64) -> Vec<String> {
    let Some(protection) = &volume.protection else { return Vec::new() };
    let made = made(model, volume.id);
    let times: Vec<u64> = made.iter().map(|snapshot| snapshot.seconds).collect();
    superfluous(protection, &times, now).into_iter().map(|index| made[index].name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_model::KeyValue;
    use serde_json::{Value, json};

    fn model(revision: i64, records: &[(&str, Value)]) -> Model {
        let kv = |(key, value): &(&str, Value)| KeyValue {
            key: format!("/azekura/v1/{key}").into_bytes(),
            value: value.to_string().into_bytes(),
            mod_revision: revision,
            ..KeyValue::default()
        };
        let kvs: Vec<KeyValue> = records.iter().map(kv).collect();
        let model = Model::from_keys(&kvs, revision);
        assert!(model.problems.is_empty(), "{:?}", model.problems);
        model
    }

    fn volume(every: u64) -> (&'static str, Value) {
        let protection = json!({ "every_seconds": every, "keep_seconds": 100 });
        let record = json!({ "id": 1, "uuid": "u", "name": "v", "size_bytes": 4096, "class": "c", "head": 9,
            "group_offset": 0, "created": "", "protection": protection });
        ("volumes/v", record)
    }

    fn snapshot(key: &'static str, seconds: u64, origin: &str, layer: u64) -> (&'static str, Value) {
        let name = key.rsplit('/').next().unwrap();
        let record = json!({ "volume": 1, "name": name, "layer": layer, "size_bytes": 4096, "seconds": seconds,
            "origin": origin, "cut": "x", "generation": 5 });
        (key, record)
    }

    #[test]
    fn one_that_is_late_skips() {
        let model = model(1, &[volume(10), snapshot("snapshots/1/a", 1_000, "schedule", 3)]);
        let mut schedule = Schedule::default();
        schedule.follow(&model, 1_003);
        assert_eq!(schedule.next(), Some(1_010));
        assert!(schedule.take_due(&model, 1_009, 8).is_empty());
        assert_eq!(schedule.take_due(&model, 1_047, 8), ["v"]);
        schedule.begin("v");
        assert_eq!(schedule.next(), None, "one at a time");
        assert!(schedule.take_due(&model, 1_060, 8).is_empty());
        schedule.end("v", true, 1_041);
        assert_eq!(schedule.next(), Some(1_046), "it is tried again soon");
        schedule.follow(&model, 1_050);
        assert_eq!(schedule.take_due(&model, 1_046, 0).len(), 0);
        assert_eq!(schedule.take_due(&model, 1_046, 1), ["v"]);
        assert_eq!(schedule.next(), Some(1_056));
    }

    #[test]
    fn a_volume_without_users_is_left_alone() {
        let layer = ("layers/9", json!({ "id": 9, "volume": 1, "parent": 3, "state": "head" }));
        let base = [volume(10), snapshot("snapshots/1/a", 1_000, "schedule", 3), layer];
        let users = |generation: u64, attached: bool| {
            let one =
                json!({ "node": 1, "incarnation": 1, "generation": 1, "shared": false, "pinned": false, "since": "" });
            let list = if attached { json!([one]) } else { json!([]) };
            ("attachments/1", json!({ "volume": 1, "generation": generation, "attachments": list }))
        };
        let with = |users: (&'static str, Value)| model(1, &[base.to_vec(), vec![users]].concat());
        let unchanged = |model: &Model| is_unchanged(model, &model.volumes["v"]);
        assert!(unchanged(&with(users(5, false))));
        assert!(!unchanged(&with(users(5, true))), "somebody has it");
        assert!(!unchanged(&with(users(7, false))), "somebody has had it");
        let reverted = model(1, &[volume(10), snapshot("snapshots/1/a", 1_000, "schedule", 4), users(5, false)]);
        assert!(!unchanged(&reverted), "its head lies on another layer");
    }

    #[test]
    fn what_people_made_stays() {
        let model = model(
            1,
            &[
                volume(10),
                snapshot("snapshots/1/a", 1_000, "schedule", 3),
                snapshot("snapshots/1/b", 1_001, "person", 4),
                snapshot("snapshots/1/c", 1_002, "revert", 5),
                snapshot("snapshots/1/d", 1_010, "schedule", 6),
                snapshot("snapshots/1/e", 1_020, "schedule", 7),
            ],
        );
        assert_eq!(to_delete(&model, &model.volumes["v"], 1_115), ["a"]);
        assert_eq!(to_delete(&model, &model.volumes["v"], 9_999), ["a", "d"]);
    }
}
