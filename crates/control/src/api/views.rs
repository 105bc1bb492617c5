//! Things of the cluster as the API shows them: the records, with what is known about them live.

use azekura_base::{DeviceId, NodeId, PgId};
use azekura_meta::Model;
use azekura_meta::model::{
    AckRule, AttachmentRecord, DeviceState, FailureDomain, FailureKind, ProtectionRecord, ScrubRecord, VolumeAccess,
    VolumeRecord,
};
use serde::{Deserialize, Serialize};

use super::LastScrubs;
use super::stats::ClusterStats;
use crate::placement::place_class;
use crate::snapshot::DeviceSnapshot;

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeView {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u64,
    /// Random identity, 32 hexadecimal digits.
    pub uuid: String,
    /// Size, bytes.
    pub size_bytes: u64,
    /// Its storage class.
    pub class: String,
    /// Copies of every block.
    pub copies: u32,
    /// How many may use it at once.
    pub access: VolumeAccess,
    /// Raised at every change of its attachments.
    pub generation: u64,
    /// The nodes whose clients use it, or may.
    pub attachments: Vec<AttachmentView>,
    /// Former users are not kept out everywhere yet.
    pub fence_due: bool,
    /// When a write is acknowledged.
    pub ack_rule: AckRule,
    /// Time of creation, RFC 3339.
    pub created: String,
    /// What it was made from: `VOLUME@SNAPSHOT`.
    #[serde(default)]
    pub source: Option<String>,
    /// Number of its snapshots.
    #[serde(default)]
    pub snapshots: usize,
    /// Snapshots that come and go by themselves.
    #[serde(default)]
    pub protection: Option<ProtectionRecord>,
    /// NBD URIs of the gateways, every node's: each serves every volume.
    pub nbd_uris: Vec<String>,
    /// When its copies were last compared; nothing before its placement groups are there.
    #[serde(default)]
    pub scrubbed: Option<LastScrubs>,
}

/// A node that may use a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttachmentView {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub node_name: String,
    /// The generation that the attachment began in.
    pub generation: u64,
    /// Others that are shared may stand beside it.
    pub shared: bool,
    /// It stays until it is detached; else it ends with the node's last client.
    pub pinned: bool,
    /// A process of the node has taken it up for its clients.
    pub in_use: bool,
    /// Since when, RFC 3339.
    pub since: String,
}

impl AttachmentView {
    fn new(model: &Model, attachment: &AttachmentRecord) -> AttachmentView {
        let AttachmentRecord { node, incarnation, generation, shared, pinned, since } = attachment.clone();
        AttachmentView {
            node,
            node_name: crate::attachments::node_name(model, node),
            generation: generation.0,
            shared,
            pinned,
            in_use: incarnation != 0,
            since,
        }
    }
}

impl VolumeView {
    pub(super) fn new(model: &Model, volume: &VolumeRecord) -> VolumeView {
        let attachments = model.attachments.get(&volume.id).map(|record| &record.record);
        let groups = model.classes.get(&volume.class).into_iter().flat_map(|class| &class.groups);
        VolumeView {
            name: volume.name.clone(),
            id: volume.id.0,
            uuid: volume.uuid.clone(),
            size_bytes: volume.size_bytes,
            class: volume.class.clone(),
            copies: model.classes.get(&volume.class).map_or(0, |class| class.copies),
            access: volume.access,
            generation: attachments.map_or(0, |record| record.generation.0),
            attachments: attachments
                .map(|record| record.attachments.iter().map(|entry| AttachmentView::new(model, entry)).collect())
                .unwrap_or_default(),
            fence_due: attachments.is_some_and(|record| record.fence_due),
            ack_rule: model.classes.get(&volume.class).map_or(AckRule::All, |class| class.ack_rule),
            created: volume.created.clone(),
            source: volume.source.clone(),
            snapshots: model.snapshots_of(volume.id).count(),
            protection: volume.protection.clone(),
            nbd_uris: nbd_uris(model, &volume.name),
            scrubbed: LastScrubs::of(groups.filter_map(|pg| model.groups.get(pg)).map(|group| &group.record)),
        }
    }
}

/// The URIs of an export, every living node's.
pub(super) fn nbd_uris(model: &Model, export: &str) -> Vec<String> {
    let alive = model.nodes.values().filter(|node| model.alive.contains_key(&node.id));
    alive.flat_map(|node| &node.nbd_addresses).map(|at| nbd_uri(at, export)).collect()
}

/// The URI of an export (NBD URI specification): `unix:PATH` or `host:port` addresses.
fn nbd_uri(address: &str, export: &str) -> String {
    match address.strip_prefix("unix:") {
        Some(path) => format!("nbd+unix:///{export}?socket={path}"),
        None => format!("nbd://{address}/{export}"),
    }
}

/// A storage class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassView {
    /// Its name.
    pub name: String,
    /// Copies of every block.
    pub copies: u32,
    /// What two copies never share.
    pub failure_domain: FailureDomain,
    /// When a write is acknowledged.
    pub ack_rule: AckRule,
    /// With fewer in-sync copies a group is read-only.
    pub copies_min: u32,
    /// Volumes may promise this multiple of the devices' size.
    pub overcommit_ratio: f64,
    /// Seconds that a request waits for a group which does not serve it, before its client gets an error; null: for ever.
    pub io_timeout_seconds: Option<u64>,
    /// Its placement groups; 0 before its first volume.
    pub groups: usize,
    /// Its volumes.
    pub volumes: usize,
    /// Time of creation, RFC 3339.
    pub created: String,
    /// Why no volume can be made in it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ClassView {
    pub(super) fn new(model: &Model, class: &azekura_meta::model::ClassRecord) -> ClassView {
        ClassView {
            name: class.name.clone(),
            copies: class.copies,
            failure_domain: class.failure_domain,
            ack_rule: class.ack_rule,
            copies_min: class.copies_min,
            overcommit_ratio: class.overcommit_ratio,
            io_timeout_seconds: class.io_timeout_seconds,
            groups: class.groups.len(),
            volumes: model.volumes.values().filter(|volume| volume.class == class.name).count(),
            created: class.created.clone(),
            problem: place_class(model, class, 1).err().map(|error| error.to_string()),
        }
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its number.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Whether it gave a sign of life in the last seconds.
    pub alive: bool,
    /// Since when, RFC 3339.
    pub alive_since: Option<String>,
    /// It has left the cluster for good; its record goes when its devices' copies have new homes.
    #[serde(default)]
    pub removed: bool,
    /// Where other nodes reach it.
    pub data_address: String,
    /// Its REST API.
    pub api_address: String,
    /// Its NBD server.
    pub nbd_addresses: Vec<String>,
    /// Its site.
    pub site: String,
    /// Its rack.
    pub rack: String,
    /// Number of its devices.
    pub devices: usize,
    /// Whether it leads the control plane.
    pub leader: bool,
    /// Resident memory, bytes, if its statistics could be had.
    pub memory_bytes: Option<u64>,
    /// Time since its start, seconds, likewise.
    pub uptime_seconds: Option<f64>,
    /// Version of its program, likewise.
    pub version: Option<String>,
}

impl NodeView {
    pub(super) fn all(model: &Model, stats: &ClusterStats) -> Vec<NodeView> {
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
                    data_address: node.data_address.to_string(),
                    api_address: node.api_address.to_string(),
                    nbd_addresses: node.nbd_addresses.clone(),
                    site: node.site.clone(),
                    rack: node.rack.clone(),
                    devices: model.devices.values().filter(|device| device.node == node.id).count(),
                    leader: leader == Some(node.id),
                    memory_bytes: snapshot.map(|snapshot| snapshot.memory_bytes),
                    uptime_seconds: snapshot.map(|snapshot| snapshot.uptime_seconds),
                    version: snapshot.map(|snapshot| snapshot.version.clone()),
                }
            })
            .collect()
    }
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceView {
    /// Its number.
    pub id: DeviceId,
    /// Its name on its node.
    pub name: String,
    /// Its node.
    pub node: NodeId,
    /// Its node's name.
    pub node_name: String,
    /// What it is meant to be.
    pub state: DeviceState,
    /// It has left the cluster for good; its record goes when no group names it any more.
    #[serde(default)]
    pub removed: bool,
    /// What it is: `open`, another word of its node, or `unknown` while the node does not answer; `failed` or `failing`
    /// when its node has found that.
    pub status: String,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// How badly it has failed, if it has.
    #[serde(default)]
    pub failure: Option<FailureKind>,
    /// Size, bytes.
    pub capacity_bytes: u64,
    /// Bytes in use; 0 while the node does not answer.
    pub used_bytes: u64,
    /// It takes no more data.
    pub full: bool,
    /// Placement groups that need its copy: it is a member, or writes wait for it.
    pub groups: usize,
    /// Placement groups that do not need it any more, and whose data it has not given up yet.
    #[serde(default)]
    pub leaving: usize,
    /// Groups that it leads.
    pub primaries: usize,
}

impl DeviceView {
    /// Groups that are still to go before the device is empty.
    #[must_use]
    pub fn groups_left(&self) -> usize {
        self.groups + self.leaving
    }

    pub(super) fn all(model: &Model, stats: &ClusterStats) -> Vec<DeviceView> {
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
                    state: device.state,
                    removed: device.removed,
                    status: match &device.failure {
                        Some(failure) if failure.kind == FailureKind::Failing => "failing".to_owned(),
                        Some(_) => "failed".to_owned(),
                        None => live.map_or_else(|| "unknown".to_owned(), |live| live.state.clone()),
                    },
                    problem: match &device.failure {
                        Some(failure) => Some(failure.reason.clone()),
                        None => live.and_then(|live| live.problem.clone()),
                    },
                    failure: device.failure.as_ref().map(|failure| failure.kind),
                    capacity_bytes: live
                        .map(|live| live.capacity_bytes)
                        .filter(|capacity| *capacity > 0)
                        .unwrap_or(device.capacity_bytes),
                    used_bytes: live.map_or(0, |live| live.live_bytes),
                    full: live.is_some_and(|live| live.full),
                    groups,
                    leaving,
                    primaries,
                }
            })
            .collect()
    }
}

/// A placement group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupView {
    /// Its number.
    pub id: PgId,
    /// Its class.
    pub class: String,
    /// The reign of its primary.
    pub epoch: u64,
    /// The device that orders its writes.
    pub primary: DeviceId,
    /// Devices that hold every acknowledged write.
    pub in_sync: Vec<DeviceId>,
    /// Devices that are to hold a copy.
    pub members: Vec<DeviceId>,
    /// How it is.
    pub health: super::GroupHealth,
    /// What the primary says about it; empty while its node does not answer.
    pub state: String,
    /// The newest committed write, as far as its primary says.
    pub committed: u64,
    /// When it was scrubbed.
    pub scrub: ScrubRecord,
}

impl GroupView {
    /// All of them; `changeable` says whether the configuration can be changed now.
    pub(super) fn all(model: &Model, stats: &ClusterStats, changeable: bool) -> Vec<GroupView> {
        let index = super::status::PrimaryIndex::new(stats, changeable);
        model
            .groups
            .values()
            .map(|group| {
                let live = index.get(group.id, group.primary);
                GroupView {
                    id: group.id,
                    class: group.class.clone(),
                    epoch: group.epoch.0,
                    primary: group.primary,
                    in_sync: group.in_sync.clone(),
                    members: group.members.clone(),
                    health: super::status::health_of(model, group, &index),
                    state: live.map(|live| live.state.clone()).unwrap_or_default(),
                    committed: live.map_or(0, |live| live.committed),
                    scrub: group.scrub.clone(),
                }
            })
            .collect()
    }
}
