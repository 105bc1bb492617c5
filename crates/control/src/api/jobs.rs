//! Jobs: what takes long. None has a record of its own: each follows from what the configuration says is still to be
//! done, so that none can be forgotten, and none is left over.

use std::collections::BTreeMap;

use azekura_api::endpoint::JobList;
use azekura_api::{JobKind, JobProgress, JobUnit, JobView, ResyncStatus};
use azekura_model::{
    DataKeyRecord, DeviceRecord, DeviceState, GroupRecord, LayerHolders, LayerState, Model, ScrubRecord, ScrubTimes,
};

use super::call::{Answer, Call};
use super::resync::lacks_copy;
use super::stats::gather;

pub(super) async fn list(Call { api, .. }: Call<JobList>) -> Answer<JobList> {
    let model = api.meta.model();
    let stats = gather(&api, &model).await;
    let with_progress = |job: JobView| match (job.kind, &stats.resync) {
        (JobKind::Resync, Some(ResyncStatus { groups_active, chunks, chunks_done, bytes, .. })) => {
            let (chunks, chunks_done, bytes) = (*chunks, *chunks_done, *bytes);
            let at_work = JobProgress { groups: *groups_active as u64, chunks, chunks_done, bytes };
            JobView { at_work: Some(at_work), ..job }
        }
        _ => job,
    };
    Ok(jobs(&model).into_iter().map(with_progress).collect::<Vec<_>>().into())
}

/// Everything that is still to be done, by kind.
pub(super) fn jobs(model: &Model) -> Vec<JobView> {
    let mut all = Vec::new();
    all.extend(resync(model));
    all.extend(leaving_devices(model));
    let (deep, light) = (|scrub: &ScrubRecord| scrub.deep, |scrub: &ScrubRecord| scrub.light);
    all.extend(scrubs(model, JobKind::Scrub, deep));
    all.extend(scrubs(model, JobKind::LightScrub, light));
    all.extend(ending_layers(model));
    all.extend(rekeys(model));
    all
}

fn job(id: String, kind: JobKind, what: String, left: usize, total: Option<usize>) -> JobView {
    let unit = match kind {
        JobKind::Deletion | JobKind::Merge => JobUnit::Layers,
        JobKind::Rekey => JobUnit::Volumes,
        JobKind::Resync | JobKind::Drain | JobKind::Removal | JobKind::Scrub | JobKind::LightScrub => JobUnit::Groups,
        JobKind::Other => JobUnit::Things,
    };
    JobView { id, kind, what, unit, left: left as u64, total: total.map(|total| total as u64), at_work: None }
}

/// Data keys that others take the place of, as long as volumes have blocks under them.
fn rekeys(model: &Model) -> Vec<JobView> {
    let shown = |record: &DataKeyRecord| {
        let newest = record.newest_of_several()?.number;
        let left = model.former_keys(record.id, newest).volumes;
        let total = model.volumes.values().filter(|volume| volume.key == Some(record.id)).count();
        let name = model.volumes.values().find(|volume| left.contains(&volume.id)).map(|volume| &volume.name)?;
        let what = match left.len() {
            1 => format!("volume {name}"),
            count => format!("{count} volumes, {name} among them"),
        };
        Some(job(format!("rekey/{}", record.id), JobKind::Rekey, what, left.len(), Some(total)))
    };
    model.data_keys.values().filter_map(|record| shown(record)).collect()
}

/// Copies that lack something and can get it.
fn resync(model: &Model) -> Option<JobView> {
    let left = model.groups.values().filter(|group| lacks_copy(model, group)).count();
    let what = format!("copies of {left} placement groups");
    (left > 0).then(|| job("resync".to_owned(), JobKind::Resync, what, left, None))
}

/// Devices that are to be empty and are not.
fn leaving_devices(model: &Model) -> Vec<JobView> {
    let kind_of = |device: &DeviceRecord| match device.state {
        _ if device.removed => Some(JobKind::Removal),
        DeviceState::Draining => Some(JobKind::Drain),
        DeviceState::Up | DeviceState::Down => None,
    };
    let shown = |device: &DeviceRecord| {
        let kind = kind_of(device)?;
        let holds = |group: &&GroupRecord| group.needs(device.id) || group.leaving.contains(&device.id);
        let left = model.groups.values().map(|group| &group.record).filter(holds).count();
        let node = model.nodes.get(&device.node).map_or("?", |node| node.name.as_str());
        let what = format!("device {node}/{}", device.name);
        (left > 0).then(|| job(format!("{}/{}", kind.word(), device.id), kind, what, left, None))
    };
    model.devices.values().filter_map(|device| shown(device)).collect()
}

/// Scrubs that somebody has asked for: a job for each time at which that was.
fn scrubs(model: &Model, kind: JobKind, times: fn(&ScrubRecord) -> ScrubTimes) -> Vec<JobView> {
    let mut asked = BTreeMap::<u64, (usize, usize)>::new();
    for ScrubTimes { wanted, done, .. } in model.groups.values().map(|group| times(&group.scrub)) {
        let (left, total) = asked.entry(wanted).or_default();
        *left += usize::from(done < wanted);
        *total += 1;
    }
    let open = asked.into_iter().filter(|(_, (left, _))| *left > 0);
    let shown = |(wanted, (left, total))| {
        let what = format!("{total} placement groups, asked for at {}", azekura_base::rfc3339_seconds(wanted));
        job(format!("{}/{wanted}", kind.word()), kind, what, left, Some(total))
    };
    open.map(shown).collect()
}

/// What was deleted, and not yet given back by all devices.
fn ending_layers(model: &Model) -> Vec<JobView> {
    if !model.layers.values().any(|layer| matches!(layer.state, LayerState::Merging | LayerState::Deleted)) {
        return Vec::new();
    }
    let (mut deleted, mut merging) = (0, 0);
    for (layer, open) in model.ending_layers(&LayerHolders::new(model)) {
        if !open.is_empty() {
            *(if layer.state == LayerState::Merging { &mut merging } else { &mut deleted }) += 1;
        }
    }
    let shown = |kind: JobKind, left: usize, what: &str| {
        (left > 0).then(|| job(kind.word().to_owned(), kind, format!("{left} {what}"), left, None))
    };
    let deletion = shown(JobKind::Deletion, deleted, "states of deleted volumes and snapshots");
    let merge = shown(JobKind::Merge, merging, "states of deleted snapshots");
    deletion.into_iter().chain(merge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::{DeviceId, LayerId, NodeId, PgId};
    use azekura_model::{Key, Memory, Txn};
    use serde_json::{Value, json};

    fn put(memory: &mut Memory, key: &Key<'_>, record: &Value) {
        memory.run(&Txn::new().put(&key.to_string(), record)).unwrap();
    }

    fn device(id: u32, state: &str, removed: bool) -> Value {
        let (name, node) = (format!("device-{id}"), id);
        json!({ "id": id, "uuid": format!("d{id}"), "node": node, "name": name, "capacity_bytes": 1, "state": state, "removed": removed })
    }

    fn group(id: u32, in_sync: &[u32], members: &[u32], wanted: u64, done: u64) -> Value {
        json!({ "id": id, "class": "c", "epoch": 1, "primary": in_sync[0], "in_sync": in_sync, "members": members,
            "scrub": { "deep": { "wanted": wanted, "done": done, "findings": 0 }, "light": { "wanted": 0, "done": 9, "findings": 0 } } })
    }

    /// Three nodes with a device each, and groups on the first two.
    fn cluster() -> Memory {
        let mut memory = Memory::new();
        for id in 1..=3 {
            let node = json!({ "id": id, "uuid": format!("u{id}"), "name": format!("n{id}"), "data_address": "127.0.0.1:1",
                "api_address": "127.0.0.1:2", "endpoints": [], "incarnation": 1 });
            put(&mut memory, &Key::Node(NodeId(id)), &node);
            put(&mut memory, &Key::Alive(NodeId(id)), &json!({ "node": id, "since": "2026-11-26T10:00:00Z" }));
            put(&mut memory, &Key::Device(DeviceId(id)), &device(id, "up", false));
        }
        for id in 1..=4 {
            put(&mut memory, &Key::Group(PgId(id)), &group(id, &[1, 2], &[1, 2], 0, 0));
        }
        assert!(memory.model().problems.is_empty(), "{:?}", memory.model().problems);
        memory
    }

    fn told(memory: &Memory) -> Vec<(String, u64, Option<u64>)> {
        assert!(memory.model().problems.is_empty(), "{:?}", memory.model().problems);
        jobs(memory.model()).into_iter().map(|job| (job.id, job.left, job.total)).collect()
    }

    #[test]
    fn a_cluster_at_rest_has_none() {
        assert_eq!(told(&cluster()), []);
    }

    #[test]
    fn a_device_that_is_emptied_is_one_until_it_is_empty() {
        let mut memory = cluster();
        put(&mut memory, &Key::Device(DeviceId(2)), &device(2, "draining", false));
        assert_eq!(told(&memory), [("drain/2".to_owned(), 4, None)]);
        // Three have moved, one is on its way: its new copy lacks what the others have.
        for id in 1..=3 {
            put(&mut memory, &Key::Group(PgId(id)), &group(id, &[1, 3], &[1, 3], 0, 0));
        }
        put(&mut memory, &Key::Group(PgId(4)), &group(4, &[1, 2], &[1, 3], 0, 0));
        assert_eq!(told(&memory), [("resync".to_owned(), 1, None), ("drain/2".to_owned(), 1, None)]);
        assert_eq!(jobs(memory.model())[1].what, "device n2/device-2");
        put(&mut memory, &Key::Device(DeviceId(2)), &device(2, "draining", true));
        assert_eq!(told(&memory)[1].0, "removal/2");
        put(&mut memory, &Key::Group(PgId(4)), &group(4, &[1, 3], &[1, 3], 0, 0));
        assert_eq!(told(&memory), []);
    }

    #[test]
    fn a_scrub_is_one_until_its_last_group_is_done() {
        let mut memory = cluster();
        for id in 1..=3 {
            put(&mut memory, &Key::Group(PgId(id)), &group(id, &[1, 2], &[1, 2], 100, 90));
        }
        assert_eq!(told(&memory), [("scrub/100".to_owned(), 3, Some(3))]);
        put(&mut memory, &Key::Group(PgId(1)), &group(1, &[1, 2], &[1, 2], 100, 105));
        // One is wanted once more meanwhile.
        put(&mut memory, &Key::Group(PgId(2)), &group(2, &[1, 2], &[1, 2], 103, 90));
        assert_eq!(told(&memory), [("scrub/100".to_owned(), 1, Some(2)), ("scrub/103".to_owned(), 1, Some(1))]);
        for id in 2..=3 {
            put(&mut memory, &Key::Group(PgId(id)), &group(id, &[1, 2], &[1, 2], 103, 103));
        }
        assert_eq!(told(&memory), []);
    }

    #[test]
    fn what_was_deleted_is_one_until_all_devices_have_given_it_back() {
        let mut memory = cluster();
        let layer = |id: u64, state: &str, into: Option<u64>| json!({ "id": id, "volume": 1, "state": state, "into": into, "class": "c" });
        put(&mut memory, &Key::Layer(LayerId(1)), &layer(1, "head", None));
        assert_eq!(told(&memory), []);
        put(&mut memory, &Key::Layer(LayerId(2)), &layer(2, "deleted", None));
        put(&mut memory, &Key::Layer(LayerId(3)), &layer(3, "merging", Some(1)));
        assert_eq!(told(&memory), [("deletion".to_owned(), 1, None), ("merge".to_owned(), 1, None)]);
        for device in [1, 2] {
            put(&mut memory, &Key::LayerDropped(LayerId(2), DeviceId(device)), &json!({}));
        }
        assert_eq!(told(&memory), [("merge".to_owned(), 1, None)]);
    }
}
