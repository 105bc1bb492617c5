//! Things of the cluster as the API shows them: the records, with what is known about them live.

use azekura_api::{
    AckRule, AttachmentView, ClassView, ClusterStats, DeviceSnapshot, DeviceView, EndpointView, GroupView, NodeView,
    VolumeHome, VolumeView,
};
use azekura_base::DeviceId;
use azekura_model::{
    AttachmentRecord, ClassHome, ClassRecord, Endpoint, FailureKind, Model, VolumeRecord, class_shown,
};

use super::scrub;
use super::shown::Shown;
use crate::data_keys::DataKeys;
use azekura_plans::placement::place_class;

fn attachment(model: &Model, attachment: &AttachmentRecord) -> AttachmentView {
    let AttachmentRecord { node, host, reads_only, incarnation, generation, shared, pinned, since } =
        attachment.clone();
    AttachmentView {
        node,
        node_name: crate::attachments::node_name(model, node),
        host: host.map(|host| host.to_string()),
        reads_only,
        generation: generation.0,
        shared,
        pinned,
        in_use: incarnation.is_some(),
        since,
    }
}

/// A volume; `keys`: those of this node.
pub(super) fn volume(keys: &DataKeys, model: &Model, volume: &VolumeRecord) -> VolumeView {
    let attachments = model.attachments.get(&volume.id).map(|record| &record.record);
    let groups = model.classes.get(&volume.class).into_iter().flat_map(|class| &class.groups);
    VolumeView {
        name: volume.name.clone(),
        id: volume.id.0,
        uuid: volume.uuid.clone(),
        size_bytes: volume.size_bytes,
        logical_block_bytes: volume.logical_block_bytes,
        class: class_shown(&volume.class).to_owned(),
        home: model.classes.get(&volume.class).and_then(|class| home(model, class)),
        copies: model.classes.get(&volume.class).map_or(0, |class| class.copies),
        access: volume.access.shown(),
        generation: attachments.map_or(0, |record| record.generation.0),
        attachments: attachments
            .map(|record| record.attachments.iter().map(|entry| attachment(model, entry)).collect())
            .unwrap_or_default(),
        fence_due: attachments.is_some_and(|record| record.fence_due),
        ack_rule: model.classes.get(&volume.class).map_or(AckRule::All, |class| class.ack_rule.shown()),
        created: volume.created.clone(),
        encrypted: volume.key.is_some(),
        key_provider: volume.key.and_then(|key| {
            let generation = model.data_keys.get(&key)?.current()?;
            Some(generation.provider.clone())
        }),
        key_missing: volume.key.and_then(|key| keys.why_missing(key)),
        source: volume.source.clone(),
        snapshots: model.snapshots_of(volume.id).count(),
        protection: volume.protection.as_ref().map(Shown::shown),
        limits: volume.limits.as_ref().map(Shown::shown),
        endpoints: endpoints_of(model, &volume.name),
        scrubbed: scrub::last(groups.filter_map(|pg| model.groups.get(pg)).map(|group| &group.record)),
    }
}

/// The home of a class, or of a volume's own groups, and how far their copies are there.
fn home(model: &Model, class: &ClassRecord) -> Option<VolumeHome> {
    let ClassHome { site, rack, host } = class.home.clone()?;
    let groups = class.groups.iter().filter_map(|id| model.groups.get(id));
    let groups_there = groups.filter(|group| super::status::has_copy_at_home(model, class, group)).count();
    Some(VolumeHome { site, rack, host, groups: class.groups.len(), groups_there })
}

/// Where an export is opened, at every living node.
pub(super) fn endpoints_of(model: &Model, export: &str) -> Vec<EndpointView> {
    let alive = model.nodes.values().filter(|node| model.alive.contains_key(&node.id));
    let with_uri = |endpoint: &Endpoint| EndpointView { uri: endpoint.uri(export), ..endpoint.shown() };
    alive.flat_map(|node| &node.endpoints).filter(|endpoint| endpoint.serves(export)).map(with_uri).collect()
}

/// A storage class.
pub(super) fn class(model: &Model, class: &ClassRecord) -> ClassView {
    ClassView {
        name: class.name.clone(),
        copies: class.copies,
        failure_domain: class.failure_domain.shown(),
        ack_rule: class.ack_rule.shown(),
        copies_min: class.copies_min,
        overcommit_ratio: class.overcommit_ratio,
        io_timeout_seconds: class.io_timeout_seconds,
        encrypt: class.encrypt,
        logical_block_bytes: class.logical_block_bytes,
        home: class.home.as_ref().map(Shown::shown),
        home_attached: class.home_attached,
        groups: model.class_family(&class.name).map(|class| class.groups.len()).sum(),
        volumes: model.volumes.values().filter(|volume| class_shown(&volume.class) == class.name).count(),
        created: class.created.clone(),
        problem: place_class(model, class, 1).err().map(|error| error.to_string()),
    }
}

/// All nodes.
pub(super) fn nodes(model: &Model, stats: &ClusterStats) -> Vec<NodeView> {
    let leader = model.leader.as_ref().map(|leader| leader.node);
    model
        .nodes
        .values()
        .map(|node| {
            let snapshot = stats.snapshot(node.id);
            let alive = model.alive.get(&node.id);
            NodeView {
                id: node.id,
                name: node.name.clone(),
                alive: alive.is_some(),
                alive_since: alive.map(|alive| alive.since.clone()),
                removed: node.removed,
                shut_out: node.shut_out.is_some(),
                data_address: node.data_address.to_string(),
                api_address: node.api_address.to_string(),
                endpoints: node.endpoints.iter().map(Shown::shown).collect(),
                site: node.site.clone(),
                rack: node.rack.clone(),
                devices: model.devices.values().filter(|device| device.node == node.id).count(),
                shards: node.shards.get(),
                leader: leader == Some(node.id),
                memory_bytes: snapshot.map(|snapshot| snapshot.memory_bytes),
                uptime_seconds: snapshot.map(|snapshot| snapshot.uptime_seconds),
                version: snapshot.map(|snapshot| snapshot.version.clone()),
            }
        })
        .collect()
}

/// The problem of a device that has no room left.
pub(super) const FULL: &str = "full: delete volumes, trim them, or add devices";

/// All devices.
pub(super) fn devices(model: &Model, stats: &ClusterStats) -> Vec<DeviceView> {
    let mut copies = std::collections::BTreeMap::<DeviceId, (usize, usize, usize)>::new();
    for group in model.groups.values() {
        let in_sync = group.in_sync.iter().filter(|device| !group.members.contains(device));
        for device in group.members.iter().chain(in_sync) {
            copies.entry(*device).or_default().0 += 1;
        }
        copies.entry(group.primary).or_default().1 += 1;
        for device in group.leaving.iter().filter(|device| !group.needs(**device)) {
            copies.entry(*device).or_default().2 += 1;
        }
    }
    model
        .devices
        .values()
        .map(|device| {
            let live: Option<&DeviceSnapshot> = stats
                .snapshot(device.node)
                .and_then(|snapshot| snapshot.devices.iter().find(|live| live.id == device.id.0));
            let (groups, primaries, leaving) = copies.get(&device.id).copied().unwrap_or_default();
            DeviceView {
                id: device.id,
                name: device.name.clone(),
                node: device.node,
                node_name: model.nodes.get(&device.node).map(|node| node.name.clone()).unwrap_or_default(),
                state: device.state.shown(),
                removed: device.removed,
                status: match &device.failure {
                    Some(failure) if failure.kind == FailureKind::Failing => "failing".to_owned(),
                    Some(_) => "failed".to_owned(),
                    None => live.map_or_else(|| "unknown".to_owned(), |live| live.state.clone()),
                },
                problem: match &device.failure {
                    Some(failure) => Some(failure.reason.clone()),
                    None => live.and_then(|live| live.problem.clone().or_else(|| live.full.then(|| FULL.to_owned()))),
                },
                failure: device.failure.as_ref().map(|failure| failure.kind.shown()),
                capacity_bytes: live
                    .map(|live| live.capacity_bytes)
                    .filter(|capacity| *capacity > 0)
                    .unwrap_or(device.usable_bytes()),
                used_bytes: live.map_or(0, |live| live.live_bytes),
                full: live.is_some_and(|live| live.full),
                groups,
                leaving,
                primaries,
            }
        })
        .collect()
}

/// All placement groups; `changeable` says whether the configuration can be changed now.
pub(super) fn groups(model: &Model, stats: &ClusterStats, changeable: bool) -> Vec<GroupView> {
    let index = super::status::PrimaryIndex::new(stats, changeable);
    model
        .groups
        .values()
        .map(|group| {
            let live = index.get(group.id, group.primary);
            GroupView {
                id: group.id,
                class: class_shown(&group.class).to_owned(),
                epoch: group.epoch.0,
                primary: group.primary,
                in_sync: group.in_sync.clone(),
                members: group.members.clone(),
                health: super::status::health_of(model, group, &index),
                state: live.map(|live| live.state.clone()).unwrap_or_default(),
                committed: live.map_or(0, |live| live.committed),
                scrub: group.scrub.shown(),
            }
        })
        .collect()
}
