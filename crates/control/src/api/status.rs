//! `GET /v1/status`: how the whole cluster is, and what is wrong with it.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use azekura_base::{DeviceId, PgId};
use azekura_meta::Model;
use azekura_meta::cluster::{promised_bytes, usable_capacity_bytes};
use azekura_meta::model::{DeviceState, FailureKind, GroupRecord};
use serde::{Deserialize, Serialize};

use super::error::Answer;
use super::stats::{ClusterStats, gather};
use super::{Api, DeviceView, LastScrubs, NodeView, ResyncStatus};
use crate::snapshot::{GroupSnapshot, IDLE, READ_ONLY};

/// What a primary's copy calls itself when it serves.
const ACTIVE: &str = "active";

/// How a placement group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupHealth {
    /// Every copy is in sync and on a living node.
    Healthy,
    /// It serves with fewer copies than its class wants, or will at the next request, or brings one up to date.
    Degraded,
    /// It serves reads only: fewer copies than its class's minimum are there.
    ReadOnly,
    /// It does not serve: its primary is away or not ready.
    Unavailable,
}

/// The cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Nothing is wrong.
    pub healthy: bool,
    /// What is wrong, and what to do: one sentence each, the worst first.
    pub problems: Vec<String>,
    /// What else people may want to know; nothing is wrong with it.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Copies that are being made or brought up to date.
    #[serde(default)]
    pub resync: Option<ResyncStatus>,
    /// When the copies of all groups were last compared; nothing before there are groups.
    #[serde(default)]
    pub scrubbed: Option<LastScrubs>,
    /// Groups that are being scrubbed now.
    #[serde(default)]
    pub scrubbing: usize,
    /// The cluster's id.
    pub cluster: Option<String>,
    /// Nodes.
    pub nodes: Vec<NodeView>,
    /// Devices.
    pub devices: Vec<DeviceView>,
    /// Groups by health.
    pub groups: BTreeMap<GroupHealth, usize>,
    /// Number of volumes.
    pub volumes: usize,
    /// Sum of the volumes' sizes, bytes.
    pub volume_bytes: u64,
    /// What the volumes need when full, with copies, bytes.
    pub promised_bytes: u64,
    /// Sum of the usable devices' sizes, bytes.
    pub capacity_bytes: u64,
    /// Bytes in use on the devices that answer.
    pub used_bytes: u64,
    /// The configuration servers.
    pub configuration: String,
}

/// What primaries say about their groups.
pub(super) struct PrimaryIndex<'a> {
    copies: BTreeMap<(u32, u32), &'a GroupSnapshot>,
    /// The configuration can be changed, so that primaries can leave copies behind.
    changeable: bool,
}

impl<'a> PrimaryIndex<'a> {
    pub(super) fn new(stats: &'a ClusterStats, changeable: bool) -> PrimaryIndex<'a> {
        let snapshots = stats.nodes.iter().filter_map(|node| node.snapshot.as_ref());
        let copies = snapshots.flat_map(|snapshot| &snapshot.groups);
        PrimaryIndex { copies: copies.map(|copy| ((copy.id, copy.device), copy)).collect(), changeable }
    }

    pub(super) fn get(&self, group: PgId, device: DeviceId) -> Option<&'a GroupSnapshot> {
        self.copies.get(&(group.0, device.0)).copied()
    }
}

pub(super) fn health_of(model: &Model, group: &GroupRecord, index: &PrimaryIndex<'_>) -> GroupHealth {
    let state = index.get(group.id, group.primary).map(|copy| copy.state.as_str());
    let ready = match state {
        Some(ACTIVE | READ_ONLY) => true,
        Some(IDLE) => index.changeable,
        _ => false,
    };
    if !model.is_device_alive(group.primary) || !ready {
        return GroupHealth::Unavailable;
    }
    let (copies, copies_min) =
        model.classes.get(&group.class).map_or((1, 1), |class| (class.copies as usize, class.copies_min as usize));
    // While nobody writes, those that are gone are not left behind yet.
    let there = group.in_sync.iter().filter(|device| model.is_device_alive(**device)).count();
    if state == Some(READ_ONLY) || there < copies_min {
        return GroupHealth::ReadOnly;
    }
    let in_service = |device: &DeviceId| {
        model.is_device_alive(*device) && index.get(group.id, *device).is_some_and(|copy| copy.state == ACTIVE)
    };
    if group.in_sync.len() >= copies && group.in_sync.iter().all(in_service) {
        return GroupHealth::Healthy;
    }
    GroupHealth::Degraded
}

/// `GET /v1/status`.
pub(super) async fn status(State(api): State<Api>) -> Answer<ClusterStatus> {
    let model = api.meta.model_of_volumes().await?;
    let stats = gather(&api, &model).await;
    let link = api.meta.watch_link().borrow().clone();
    Ok(Json(judge(&model, &stats, link, api.meta.endpoints())))
}

/// The status of a model with these counters.
fn judge(model: &Model, stats: &ClusterStats, link: Option<String>, configuration: String) -> ClusterStatus {
    let nodes = NodeView::all(model, stats);
    let devices = DeviceView::all(model, stats);
    let index = PrimaryIndex::new(stats, link.is_none());
    let mut groups = BTreeMap::new();
    for group in model.groups.values() {
        *groups.entry(health_of(model, group, &index)).or_insert(0) += 1;
    }
    let problems = problems(model, stats, link, &nodes, &devices, &groups);
    let clamp = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
    ClusterStatus {
        healthy: problems.is_empty(),
        problems,
        notes: notes(model, &nodes, &devices),
        resync: stats.resync.clone(),
        scrubbed: LastScrubs::of(model.groups.values().map(|group| &group.record)),
        scrubbing: index.copies.values().filter(|copy| copy.scrub.is_some()).count(),
        cluster: model.cluster.as_ref().map(|cluster| cluster.id.clone()),
        groups,
        volumes: model.volumes.len(),
        volume_bytes: model.volumes.values().map(|volume| volume.size_bytes).sum(),
        promised_bytes: clamp(promised_bytes(model)),
        capacity_bytes: clamp(usable_capacity_bytes(model)),
        used_bytes: devices.iter().map(|device| device.used_bytes).sum(),
        configuration,
        nodes,
        devices,
    }
}

/// Whether an absent node holds something that the cluster needs. One whose copies all have new homes is not missed.
fn is_missed(model: &Model, node: &NodeView) -> bool {
    let mut devices = model.devices.values().filter(|device| device.node == node.id);
    model.groups.is_empty() || devices.any(|device| model.groups_on(device.id).next().is_some())
}

fn notes(model: &Model, nodes: &[NodeView], devices: &[DeviceView]) -> Vec<String> {
    let mut notes = Vec::new();
    for node in nodes.iter().filter(|node| !node.alive && !is_missed(model, node)) {
        notes.push(format!("node {} is absent, and nothing is missing: it holds no copies", node.name));
    }
    for device in devices.iter().filter(|device| device.failure.is_some() && !holds_something(model, device)) {
        let DeviceView { id, name, node_name, .. } = device;
        let reason = device.problem.clone().unwrap_or_default();
        let what = match device.failure {
            Some(FailureKind::Failing) => "is failing",
            _ => "has failed",
        };
        notes.push(format!(
            "device {id} ({name} of node {node_name}) {what}, and nothing is missing: it holds no copies; replace it ({reason})"
        ));
    }
    for device in devices.iter().filter(|device| device.state == DeviceState::Draining) {
        let name = format!("device {} ({} of node {})", device.id, device.name, device.node_name);
        notes.push(match device.groups_left() {
            0 => format!("{name} is drained: it can be taken out"),
            left => format!("{name} is being drained: {left} groups left"),
        });
    }
    let findings = LastScrubs::of(model.groups.values().map(|group| &group.record)).map_or(0, |last| last.findings);
    if findings > 0 {
        notes.push(format!(
            "the last scrubs met {findings} blocks that differed between copies, or chunks that could not be read; the \
             logs of the nodes name them, and another scrub tells whether they are mended"
        ));
    }
    for unfenced in model.attachments.values().filter(|record| record.fence_due) {
        let Some(volume) = model.volume_by_id(unfenced.volume) else { continue };
        let name = &volume.name;
        notes.push(format!(
            "former users of volume {name} are not kept out everywhere yet; nobody is given it before they are: \
             'azekura volume show {name}'"
        ));
    }
    notes
}

/// Whether a failed device holds something that the cluster needs. One whose copies all have new homes is not missed.
fn holds_something(model: &Model, device: &DeviceView) -> bool {
    model.groups.is_empty() || device.groups > 0
}

/// When copies on what is away are given up.
fn rehome_hint(model: &Model) -> String {
    let hint = model.settings().rehome_after_seconds.map(|seconds| match seconds {
        ..60 => format!("; after {seconds} s its copies get new homes"),
        _ => format!("; after {} min its copies get new homes", seconds / 60),
    });
    hint.unwrap_or_default()
}

fn problems(
    model: &Model,
    stats: &ClusterStats,
    link: Option<String>,
    nodes: &[NodeView],
    devices: &[DeviceView],
    groups: &BTreeMap<GroupHealth, usize>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let count = |health| groups.get(&health).copied().unwrap_or(0);
    let all: usize = groups.values().sum();
    if count(GroupHealth::Unavailable) > 0 {
        problems.push(format!(
            "{} of {all} placement groups do not serve: their primary is away or not ready yet; I/O to them waits",
            count(GroupHealth::Unavailable)
        ));
    }
    if count(GroupHealth::ReadOnly) > 0 {
        problems.push(format!(
            "{} of {all} placement groups are read-only: too few copies are left; bring their nodes back",
            count(GroupHealth::ReadOnly)
        ));
    }
    if count(GroupHealth::Degraded) > 0 {
        problems.push(format!(
            "{} of {all} placement groups have fewer copies in service than they should",
            count(GroupHealth::Degraded)
        ));
    }
    for (node, stats) in nodes.iter().zip(&stats.nodes) {
        if !node.alive {
            if !is_missed(model, node) {
                continue;
            }
            let rehome = rehome_hint(model);
            problems.push(format!("node {} gives no sign of life: start it, or look into its log{rehome}", node.name));
        } else if let Some(problem) = &stats.problem {
            problems.push(format!("node {} can't be asked at {}: {problem}", node.name, node.api_address));
        }
    }
    for device in devices {
        let name = format!("device {} ({} of node {})", device.id, device.name, device.node_name);
        if device.failure.is_some() && !holds_something(model, device) {
            // Nothing is missed: that is a note.
        } else if let Some(problem) = &device.problem {
            problems.push(match device.failure {
                Some(FailureKind::Stopped) => format!("{name} has failed: {problem}{}", rehome_hint(model)),
                Some(FailureKind::Lost) => format!("{name} has failed: {problem}; its copies get new homes"),
                Some(FailureKind::Failing) => {
                    format!("{name} is failing: {problem}; {} groups are still to leave it", device.groups_left())
                }
                None => format!("{name}: {problem}"),
            });
        } else if device.state == DeviceState::Down {
            problems.push(format!("{name} is out of service"));
        }
        let nearly_full = u64::from(model.settings().nearly_full_percent);
        if device.full {
            problems.push(format!("{name} is full: delete volumes, trim them, or add devices"));
        } else if device.used_bytes > 0 && device.used_bytes >= device.capacity_bytes / 100 * nearly_full {
            problems.push(format!("{name} is nearly full: delete volumes, trim them, or add devices"));
        }
    }
    if let Some(reason) = link {
        problems.push(format!("the configuration can't be changed: {reason}; what is here may be out of date"));
    }
    for (key, reason) in model.problems.iter() {
        problems.push(format!("the record {key} of the configuration can't be read: {reason}; repair it with etcdctl"));
    }
    problems
}

#[cfg(test)]
mod tests;
