//! What users see differently in two states of the cluster.
//!
//! Records change more often than what is shown of them. What has the same record in both states is the same and costs
//! a comparison of pointers; of what is left, both views are made and compared.

use std::collections::BTreeSet;
use std::sync::Arc;

use azekura_api::{ClusterStats, JobView, NodeView, VolumeView, Watched};
use azekura_base::{KeyId, VolumeId};
use azekura_model::{Model, RecordMap, VolumeRecord};
use serde_json::to_string;

use super::super::jobs::jobs;
use super::super::views;
use super::ring::{Change, STEP_BYTES_MAX, Told};
use crate::data_keys::DataKeys;

/// A volume as it is told.
pub(super) fn told_volume(change: Change, view: &VolumeView) -> Told {
    // A view can be written: the lists do so all the time.
    let (volume, data) = (Some(view.name.clone()), to_string(view).unwrap_or_default());
    Told { kind: Watched::Volumes, change, volume, data }
}

/// A node as it is told.
pub(super) fn told_node(change: Change, view: &NodeView) -> Told {
    Told { kind: Watched::Nodes, change, volume: None, data: to_string(view).unwrap_or_default() }
}

/// A job as it is told.
pub(super) fn told_job(change: Change, view: &JobView) -> Told {
    Told { kind: Watched::Jobs, change, volume: None, data: to_string(view).unwrap_or_default() }
}

/// A volume as the API shows it; `keys`: those of this node.
pub(super) fn volume(keys: &DataKeys, model: &Model, volume: &VolumeRecord) -> VolumeView {
    views::volume(keys, model, volume)
}

/// All nodes as the API shows them, without counters, which change all the time.
pub(super) fn nodes(model: &Model) -> Vec<NodeView> {
    views::nodes(model, &ClusterStats::default())
}

/// What leads from one state to another; `None`: more than is kept of one step.
pub(super) fn differences(keys: &DataKeys, before: &Model, after: &Model) -> Option<Vec<Told>> {
    let mut found = Found::default();
    node_differences(before, after, &mut found)?;
    volume_differences(keys, before, after, &mut found)?;
    job_differences(before, after, &mut found)?;
    Some(found.events)
}

/// What was found until now.
#[derive(Default)]
struct Found {
    events: Vec<Told>,
    bytes: usize,
}

impl Found {
    /// Adds an event; `None`: that is too much.
    fn add(&mut self, event: Told) -> Option<()> {
        self.bytes += event.bytes();
        self.events.push(event);
        (self.bytes <= STEP_BYTES_MAX).then_some(())
    }
}

/// Whose records are not the same.
fn changed<'a, K: Ord, T>(before: &'a RecordMap<K, T>, after: &'a RecordMap<K, T>) -> Vec<&'a K> {
    if Arc::ptr_eq(before, after) {
        return Vec::new();
    }
    let is_new = |(key, record): &(&K, &Arc<_>)| before.get(*key).is_none_or(|was| !Arc::ptr_eq(was, record));
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    after.iter().filter(is_new).map(|(key, _)| key).chain(gone).collect()
}

/// What leads from one list to another, both short: things are the same by their names.
fn list_differences<T: PartialEq, N: PartialEq>(
    was: &[T],
    is: &[T],
    name: fn(&T) -> N,
    told: fn(Change, &T) -> Told,
    found: &mut Found,
) -> Option<()> {
    for thing in is {
        match was.iter().find(|was| name(was) == name(thing)) {
            None => found.add(told(Change::Created, thing))?,
            Some(was) if was != thing => found.add(told(Change::Changed, thing))?,
            Some(_) => {}
        }
    }
    for thing in was.iter().filter(|was| !is.iter().any(|thing| name(thing) == name(was))) {
        found.add(told(Change::Deleted, thing))?;
    }
    Some(())
}

fn node_differences(before: &Model, after: &Model, found: &mut Found) -> Option<()> {
    let leads = |model: &Model| model.leader.as_ref().map(Arc::as_ptr);
    let same = Arc::ptr_eq(&before.nodes, &after.nodes)
        && Arc::ptr_eq(&before.alive, &after.alive)
        && Arc::ptr_eq(&before.devices, &after.devices)
        && leads(before) == leads(after);
    if same {
        return Some(());
    }
    list_differences(&nodes(before), &nodes(after), |node| node.id, told_node, found)
}

fn job_differences(before: &Model, after: &Model, found: &mut Found) -> Option<()> {
    let same = Arc::ptr_eq(&before.groups, &after.groups)
        && Arc::ptr_eq(&before.devices, &after.devices)
        && Arc::ptr_eq(&before.alive, &after.alive)
        && Arc::ptr_eq(&before.layers, &after.layers)
        && Arc::ptr_eq(&before.dropped, &after.dropped)
        && Arc::ptr_eq(&before.data_keys, &after.data_keys)
        && Arc::ptr_eq(&before.volumes, &after.volumes);
    if same {
        return Some(());
    }
    list_differences(&jobs(before), &jobs(after), |job| job.id.clone(), told_job, found)
}

/// The names of volumes that may look different.
fn suspects<'a>(before: &'a Model, after: &'a Model) -> BTreeSet<&'a String> {
    let mut names: BTreeSet<&String> = changed(&before.volumes, &after.volumes).into_iter().collect();
    let mut ids: BTreeSet<VolumeId> = changed(&before.attachments, &after.attachments).into_iter().copied().collect();
    ids.extend(changed(&before.snapshots, &after.snapshots).into_iter().map(|(volume, _)| *volume));
    let classes: BTreeSet<&String> = changed(&before.classes, &after.classes).into_iter().collect();
    let keys: BTreeSet<&KeyId> = changed(&before.data_keys, &after.data_keys).into_iter().collect();
    if !(ids.is_empty() && classes.is_empty() && keys.is_empty()) {
        let has_other_key = |volume: &VolumeRecord| volume.key.is_some_and(|key| keys.contains(&key));
        let is_one = |volume: &VolumeRecord| {
            ids.contains(&volume.id) || classes.contains(&volume.class) || has_other_key(volume)
        };
        names.extend(after.volumes.iter().filter(|(_, volume)| is_one(volume)).map(|(name, _)| name));
    }
    names
}

/// What of a volume's view changes with the volume. Where it is opened changes with the nodes, and when it was scrubbed
/// with its groups: of that all volumes would have to tell at once.
fn own(view: &VolumeView) -> VolumeView {
    VolumeView { endpoints: Vec::new(), scrubbed: None, key_missing: None, ..view.clone() }
}

fn volume_differences(keys: &DataKeys, before: &Model, after: &Model, found: &mut Found) -> Option<()> {
    for name in suspects(before, after) {
        let was = before.volumes.get(name).map(|record| volume(keys, before, record));
        let is = after.volumes.get(name).map(|record| volume(keys, after, record));
        match (was, is) {
            (None, Some(is)) => found.add(told_volume(Change::Created, &is))?,
            (Some(was), None) => found.add(told_volume(Change::Deleted, &was))?,
            (Some(was), Some(is)) if was.id != is.id => {
                found.add(told_volume(Change::Deleted, &was))?;
                found.add(told_volume(Change::Created, &is))?;
            }
            (Some(was), Some(is)) if own(&was) != own(&is) => {
                found.add(told_volume(Change::Changed, &is))?;
            }
            _ => {}
        }
    }
    Some(())
}

#[cfg(test)]
mod tests;
