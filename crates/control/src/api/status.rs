//! How the whole cluster is, and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use azekura_api::endpoint::Status;
use azekura_api::{
    ClusterStats, ClusterStatus, DeviceState, DeviceView, FailureKind, GroupHealth, GroupSnapshot, IDLE, NodeSnapshot,
    NodeView, READ_ONLY, Stale,
};
use azekura_base::{DeviceId, PgId};
use azekura_model::transitions::volumes::{promised_bytes, usable_capacity_bytes};
use azekura_model::{Endpoint, GroupRecord, HOSTS, Model, VolumeRecord, is_own, named};

use super::call::{Answer, Call};
use super::known::{Known, Wanted, known};
use super::stats::gather;
use super::views::FULL;
use super::{scrub, views};

mod homes;

pub(super) use homes::has_copy_at_home;

/// Why a node does not serve encrypted volumes, if there are such.
fn sealed(model: &Model, node: &str, snapshot: Option<&NodeSnapshot>) -> Option<String> {
    let missing = &snapshot?.keys_missing;
    let (_, why) = missing.first_key_value()?;
    let is_sealed = |volume: &VolumeRecord| volume.key.is_some_and(|key| missing.contains_key(&key.0));
    let sealed = model.volumes.values().filter(|volume| is_sealed(&volume.record));
    let names = named(sealed.map(|volume| volume.name.as_str()));
    (!names.is_empty())
        .then(|| format!("node {node} does not serve these encrypted volumes, for want of their keys: {names} ({why})"))
}

/// Which wrapping keys a node lacks, if data keys are wrapped by them.
fn lacking(node: &str, snapshot: Option<&NodeSnapshot>) -> Option<String> {
    let keks = &snapshot?.keks_lacking;
    (!keks.is_empty()).then(|| {
        format!(
            "node {node} does not have {}: after its next start it can't serve volumes for want of them; put the keys back \
             ('azekura kek show' says which node has which)",
            keks.join(", nor ")
        )
    })
}

/// Layers of nobody's that a note names.
const FOUND_LAYERS_NAMED_MAX: usize = 8;
/// What a primary's copy calls itself when it serves.
const ACTIVE: &str = "active";

/// Bad blocks that a note names.
const FOUND_NAMED_MAX: usize = 4;

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

pub(super) async fn status(Call { api, .. }: Call<Status>) -> Answer<Status> {
    let Known { model, stale } = known(&api, Wanted::Volumes).await?;
    let stats = gather(&api, &model).await;
    Ok(judge(&model, &stats, stale, api.meta.endpoints()).into())
}

/// The status of a model with these counters.
fn judge(model: &Model, stats: &ClusterStats, stale: Option<Stale>, configuration: String) -> ClusterStatus {
    let nodes = views::nodes(model, stats);
    let devices = views::devices(model, stats);
    let index = PrimaryIndex::new(stats, stale.is_none());
    let mut groups = BTreeMap::new();
    let mut of_health = BTreeMap::<GroupHealth, BTreeSet<PgId>>::new();
    for group in model.groups.values() {
        let health = health_of(model, group, &index);
        *groups.entry(health).or_insert(0) += 1;
        of_health.entry(health).or_default().insert(group.id);
    }
    let problems = problems(model, stats, stale.as_ref(), &nodes, &devices, &of_health);
    let clamp = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
    ClusterStatus {
        healthy: problems.is_empty(),
        problems,
        notes: notes(model, &nodes, &devices, &of_health)
            .into_iter()
            .chain(configuration_note(&configuration))
            .collect(),
        resync: stats.resync.clone(),
        scrubbed: scrub::last(model.groups.values().map(|group| &group.record)),
        scrubbing: index.copies.values().filter(|copy| copy.scrub.is_some()).count(),
        cluster: model.cluster.as_ref().map(|cluster| cluster.id.clone()),
        groups,
        volumes: model.volumes.len(),
        volume_bytes: model.volumes.values().map(|volume| volume.size_bytes).sum(),
        promised_bytes: clamp(promised_bytes(model)),
        capacity_bytes: clamp(usable_capacity_bytes(model)),
        used_bytes: devices.iter().map(|device| device.used_bytes).sum(),
        transport: Some(model.settings().transport),
        api_access: Some(model.settings().api_access),
        configuration,
        stale,
        nodes,
        devices,
    }
}

/// Whether an absent node holds something that the cluster needs. One whose copies all have new homes is not missed.
fn is_missed(model: &Model, node: &NodeView) -> bool {
    let mut devices = model.devices.values().filter(|device| device.node == node.id);
    model.groups.is_empty()
        || devices.any(|device| model.groups_on(device.id).any(|group| model.is_missed(&group.class)))
}

fn notes(
    model: &Model,
    nodes: &[NodeView],
    devices: &[DeviceView],
    groups: &BTreeMap<GroupHealth, BTreeSet<PgId>>,
) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(unused_note(model, groups));
    for node in nodes.iter().filter(|node| node.removed) {
        let left = devices.iter().filter(|device| device.node == node.id).map(DeviceView::groups_left).sum::<usize>();
        notes.push(format!(
            "node {} is removed; {left} placement groups still have to do without its copies",
            node.name
        ));
    }
    for node in nodes.iter().filter(|node| node.shut_out && !node.removed) {
        let out = model.nodes.get(&node.id).and_then(|record| record.shut_out.clone());
        let (since, by) = out.map(|out| (out.since, out.by)).unwrap_or_default();
        notes.push(format!(
            "node {name} is shut out (by {by}, {since}): nobody talks with it. To let its machine in again: azekura node let-in \
             {name} --key KEY, with the key that it names when it is started; to do without it: azekura node remove {name} --lost",
            name = node.name
        ));
    }
    for node in nodes.iter().filter(|node| !node.alive && !node.removed && !is_missed(model, node)) {
        notes.push(format!("node {} is absent, and nothing is missing: it holds no copies", node.name));
    }
    for device in devices.iter().filter(|d| d.failure.is_some() && !d.removed && !holds_something(model, d)) {
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
            left => format!("{name} is being drained: {left} groups left{}", waits_for(model, device)),
        });
    }
    let findings = scrub::last(model.groups.values().map(|group| &group.record)).map_or(0, |last| last.findings);
    if findings > 0 {
        notes.push(findings_note(model, findings));
    }
    let found = azekura_plans::restored::found_layers(model);
    if !found.is_empty() {
        let numbers: Vec<String> = found.iter().take(FOUND_LAYERS_NAMED_MAX).map(ToString::to_string).collect();
        notes.push(format!(
            "{} layers on devices are no volume's since the configuration was restored ({}{}); nothing deletes them: \
             docs/operations/configuration-backup.md",
            found.len(),
            numbers.join(", "),
            if found.len() > FOUND_LAYERS_NAMED_MAX { ", …" } else { "" }
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
    notes.extend(homes::notes(model));
    notes.extend(homes::crowded_out(model));
    notes.extend(clear_note(model));
    notes.extend(hosts_notes(model));
    notes
}

/// Where volumes are served on a network to whoever comes, unencrypted.
fn clear_note(model: &Model) -> Option<String> {
    let is_open = |endpoint: &&Endpoint| {
        let address = endpoint.address.parse::<SocketAddr>();
        endpoint.protocol == Endpoint::NBD && address.is_ok_and(|address| !address.ip().is_loopback())
    };
    let doors = model.nodes.values().filter(|node| !node.removed).flat_map(|node| {
        node.endpoints.iter().filter(is_open).map(|endpoint| format!("{} ({})", node.name, endpoint.address))
    });
    let doors: Vec<String> = doors.collect();
    (!doors.is_empty()).then(|| {
        let names = named(doors.iter().map(String::as_str));
        format!("NBD is served without TLS on a network, to whoever reaches it: {names}; see docs/security.md")
    })
}

/// Where this node asks configuration servers over a network without TLS, by their URLs.
fn configuration_note(servers: &str) -> Option<String> {
    let leaves = |host: &str| {
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host != "localhost" && !address.is_ok_and(|address| address.to_canonical().is_loopback())
    };
    let is_clear = |url: &&str| {
        let host = url.strip_prefix("http://").and_then(|rest| rest.rsplit_once(':')).map(|(host, _)| host);
        host.is_some_and(leaves)
    };
    let clear: Vec<&str> = servers.split(", ").filter(is_clear).collect();
    (!clear.is_empty()).then(|| {
        format!(
            "the configuration is asked over a network without TLS, and whoever reaches it can change it: {}; see \
             docs/operations/configuration-security.md",
            named(clear)
        )
    })
}

/// Hosts that whoever reaches the port can pretend to be, and nodes that ask none for its grant or know no projects.
fn hosts_notes(model: &Model) -> Vec<String> {
    let hosts = || model.grants.values().filter_map(|grant| Some((grant.name.as_str(), grant.host.as_ref()?)));
    let unproved: BTreeSet<&str> = hosts().filter(|(_, host)| host.chap.is_none()).map(|(name, _)| name).collect();
    let unproved = named(unproved);
    let older = model.nodes.values().filter(|node| !node.removed && !node.understands.contains(HOSTS));
    let older = named(older.map(|node| node.name.as_str()));
    let mut notes = Vec::new();
    if !unproved.is_empty() {
        notes.push(format!(
            "hosts without a secret are let in by a name that anybody can give himself: {unproved}; see docs/security.md"
        ));
    }
    if !older.is_empty() && hosts().next().is_some() {
        notes.push(format!("nodes of a version that lets any host use all volumes over iSCSI and NVMe: {older}"));
    }
    let ignoring = named(model.ignoring_projects());
    if !ignoring.is_empty() && !model.projects.is_empty() {
        notes
            .push(format!("nodes of a version that keeps no projects apart, and counts nothing of theirs: {ignoring}"));
    }
    notes
}

/// Which groups of classes that no volume uses are not healthy: nobody misses them.
fn unused_note(model: &Model, groups: &BTreeMap<GroupHealth, BTreeSet<PgId>>) -> Option<String> {
    let unhealthy = groups.iter().filter(|(health, _)| **health != GroupHealth::Healthy).flat_map(|(_, groups)| groups);
    let classes = unhealthy.filter_map(|pg| Some(model.groups.get(pg)?.class.as_str()));
    // What a volume had of its own goes by itself.
    let unused: Vec<&str> = classes.filter(|class| !is_own(class) && !model.is_missed(class)).collect();
    let classes: BTreeSet<&str> = unused.iter().copied().collect();
    let first = classes.first()?;
    Some(format!(
        "{} placement groups of storage classes without volumes ({}) are not healthy, and nobody misses them; 'azekura class \
         delete {first}' removes one",
        unused.len(),
        named(classes.iter().copied())
    ))
}

/// Devices that do not serve, and that the groups of a drained one wait for.
fn waits_for(model: &Model, device: &DeviceView) -> String {
    let copies = model.groups_on(device.id).flat_map(|group| group.members.iter().chain(&group.in_sync).copied());
    let away: BTreeSet<DeviceId> = copies.filter(|copy| *copy != device.id && !model.is_device_alive(*copy)).collect();
    let name = |id: &DeviceId| {
        let node = model.devices.get(id).and_then(|device| model.nodes.get(&device.node));
        node.map_or_else(|| format!("device {id}"), |node| format!("device {id} of node {}", node.name))
    };
    let names: Vec<String> = away.iter().map(name).collect();
    if names.is_empty() {
        return String::new();
    }
    format!(
        "; some of them wait for copies on {}, which do not serve: start their nodes, or give them up ('azekura node remove NAME \
         --lost')",
        named(names.iter().map(String::as_str))
    )
}

/// What the last scrubs, and readers since then, have found.
fn findings_note(model: &Model, findings: u64) -> String {
    let mut found: Vec<_> = model.groups.values().flat_map(|group| &group.scrub.found).collect();
    found.sort_by_key(|found| std::cmp::Reverse(found.at));
    let named: String = found.iter().take(FOUND_NAMED_MAX).map(|found| format!("; {found}")).collect();
    let what =
        if findings == 1 { "1 bad block" } else { &format!("{findings} bad blocks (or chunks that can't be read)") };
    format!(
        "the last scrubs, and readers since then, found {what}{named}; the logs of the nodes name all of them, and another \
         scrub ('azekura scrub VOLUME --wait') tells whether all are good now"
    )
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
    stale: Option<&Stale>,
    nodes: &[NodeView],
    devices: &[DeviceView],
    groups: &BTreeMap<GroupHealth, BTreeSet<PgId>>,
) -> Vec<String> {
    let mut problems = azekura_plans::restored::problems(model);
    problems.extend(stale.map(|stale| format!("{stale}; it can't be changed meanwhile: {}", stale.reason)));
    for (health, what) in [
        (GroupHealth::Unavailable, "do not serve: their primary is away or not ready yet; I/O to them waits"),
        (GroupHealth::ReadOnly, "are read-only: too few copies are left; bring their nodes back"),
        (GroupHealth::Degraded, "have fewer copies in service than they should"),
    ] {
        let missed = |pg: &&PgId| model.groups.get(pg).is_some_and(|group| model.is_missed(&group.class));
        let ill: BTreeSet<PgId> = groups.get(&health).into_iter().flatten().filter(missed).copied().collect();
        if !ill.is_empty() {
            let volumes = match named(model.volumes_in(&ill)) {
                names if names.is_empty() => "no volume has a part in them".to_owned(),
                names => format!("volumes with a part in them: {names}"),
            };
            problems.push(format!("{} of {} placement groups {what} ({volumes})", ill.len(), model.groups.len()));
        }
    }
    for (node, stats) in nodes.iter().zip(&stats.nodes) {
        if !node.alive {
            if node.removed || !is_missed(model, node) {
                continue;
            }
            let rehome = rehome_hint(model);
            problems.push(format!("node {} gives no sign of life: start it, or look into its log{rehome}", node.name));
        } else if let Some(problem) = &stats.problem {
            problems.push(format!("node {} can't be asked at {}: {problem}", node.name, node.api_address));
        }
        problems.extend(sealed(model, &node.name, stats.snapshot.as_ref()));
        problems.extend(lacking(&node.name, stats.snapshot.as_ref()));
    }
    for device in devices {
        let name = format!("device {} ({} of node {})", device.id, device.name, device.node_name);
        if device.removed || device.failure.is_some() && !holds_something(model, device) {
            // Nothing is missed: that is a note.
        } else if let Some(problem) = device.problem.as_ref().filter(|problem| *problem != FULL) {
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
            problems.push(format!("{name} is {FULL}"));
        } else if device.used_bytes > 0 && device.used_bytes >= device.capacity_bytes / 100 * nearly_full {
            problems.push(format!("{name} is nearly full: delete volumes, trim them, or add devices"));
        }
    }
    for (key, reason) in model.problems.iter() {
        problems.push(format!("the record {key} of the configuration can't be read: {reason}; repair it with etcdctl"));
    }
    problems
}

#[cfg(test)]
mod tests;
