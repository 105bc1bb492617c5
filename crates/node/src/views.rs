//! The cluster's records, as the data plane wants them, and what it proposes, as records have it.

use crate::fences::Attachments;
use crate::view::{ClusterView, Location, NodeView};
use azekura_base::{AckRule, DeviceId, VolumeId};
use azekura_gateway::VolumeView;
use azekura_model::transitions::groups::GroupProposal;
use azekura_model::{
    AttachmentsRecord, ClassRecord, GroupRecord, LayerHolders, LayerState, Model, NodeRecord, SnapshotRecord,
    Versioned, VolumeRecord,
};
use azekura_replica::{GroupConfig, NodeRoll};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Makes views of the cluster, one after the other. What has not changed between two models is not made anew: a cluster
/// may have many more snapshots than volumes.
#[derive(Default)]
pub struct Views {
    volumes: BTreeMap<String, Made<VolumeRecord>>,
    snapshots: BTreeMap<(VolumeId, String), Made<SnapshotRecord>>,
}

/// A volume's view, and the records that it was made from.
struct Made<T> {
    record: Arc<Versioned<T>>,
    class: Arc<Versioned<ClassRecord>>,
    view: Arc<VolumeView>,
}

impl<T> Made<T> {
    fn is_of(&self, record: &Arc<Versioned<T>>, class: &Arc<Versioned<ClassRecord>>) -> bool {
        Arc::ptr_eq(&self.record, record) && Arc::ptr_eq(&self.class, class)
    }
}

impl Views {
    /// The data plane's view of `model`.
    pub fn of(&mut self, model: &Model) -> ClusterView {
        // A group whose class is not known is left out: what its copies must do for each other is not known.
        // A group that is closed is nobody's, until it is known which copy holds what (decision 0019).
        let open = model.groups.values().filter(|record| record.closed.is_none());
        let groups = open.filter_map(|record| {
            let class = model.classes.get(&record.class)?;
            Some((record.id, group_config(model, record, class)))
        });
        let holders = LayerHolders::new(model);
        let (mut dropped, mut merging) = (BTreeMap::new(), BTreeMap::new());
        // Devices may hold layers that lie on these and that the configuration does not know yet.
        let is_restored = model.cluster.as_ref().is_some_and(|cluster| cluster.restored.is_some());
        for (layer, open) in model.ending_layers(&holders).filter(|_| !is_restored) {
            match layer.into.filter(|_| layer.state == LayerState::Merging) {
                Some(into) => drop(merging.insert(layer.id, (into, open))),
                None => drop(dropped.insert(layer.id, open)),
            }
        }
        ClusterView {
            revision: u64::try_from(model.revision).unwrap_or(0),
            nodes: model.nodes.values().map(|node| (node.id, node_view(node))).collect(),
            transport: model.settings().transport,
            roll: Arc::new(node_roll(model)),
            full_percent: Some(model.settings().full_percent),
            devices: model.devices.values().map(|device| (device.id, device.endpoint())).collect(),
            groups: groups.collect(),
            volumes: self.volumes(model),
            attachments: model.attachments.iter().map(|(id, record)| (*id, attachments(record))).collect(),
            parents: model.layers.values().filter_map(|layer| Some((layer.id, layer.parent?))).collect(),
            dropped,
            merging,
        }
    }

    /// Volumes and snapshots as clients see them.
    fn volumes(&mut self, model: &Model) -> BTreeMap<String, Arc<VolumeView>> {
        let mut views = BTreeMap::new();
        let volumes_before = std::mem::take(&mut self.volumes);
        let mut snapshots_before = std::mem::take(&mut self.snapshots);
        for volume in model.volumes.values() {
            let Some(class) = model.classes.get(&volume.class) else { continue };
            let known = volumes_before.get(&volume.name).filter(|made| made.is_of(volume, class));
            let view = known.map_or_else(|| Arc::new(volume_view(volume, class)), |made| Arc::clone(&made.view));
            let same = known.is_some();
            for snapshot in model.snapshots_of(volume.id) {
                let key = (volume.id, snapshot.name.clone());
                let known = snapshots_before.remove(&key).filter(|made| {
                    // Its groups are the class's, its name and place are the volume's.
                    made.is_of(snapshot, class) && (same || made.view.group_offset == volume.group_offset)
                });
                let view = known.map_or_else(|| Arc::new(snapshot_view(snapshot, volume, class)), |made| made.view);
                views.insert(view.name.clone(), Arc::clone(&view));
                self.snapshots.insert(key, Made { record: Arc::clone(snapshot), class: Arc::clone(class), view });
            }
            views.insert(volume.name.clone(), Arc::clone(&view));
            let made = Made { record: Arc::clone(volume), class: Arc::clone(class), view };
            self.volumes.insert(volume.name.clone(), made);
        }
        views
    }
}

/// While the counter of nodes can't be read nobody is gone.
fn node_roll(model: &Model) -> NodeRoll {
    let next = model.counters.get("nodes").copied().unwrap_or_default();
    NodeRoll::new(next, model.recorded_nodes().collect())
}

fn node_view(node: &NodeRecord) -> NodeView {
    NodeView {
        address: node.data_address,
        shards: node.shards,
        keys: node.keys.clone().unwrap_or_default(),
        location: Location { site: node.site.as_str().into(), rack: node.rack.as_str().into() },
    }
}

fn volume_view(volume: &VolumeRecord, class: &ClassRecord) -> VolumeView {
    VolumeView {
        id: volume.id,
        name: volume.name.clone(),
        size: volume.size_bytes,
        logical_block: volume.logical_block_bytes,
        layer: volume.head,
        cut: volume.cut.as_ref().map(|cut| cut.next),
        read_only: false,
        io_timeout: io_timeout(class),
        groups: class.groups.as_slice().into(),
        group_offset: volume.group_offset,
        key: volume.key,
        limits: volume.limits,
    }
}

fn snapshot_view(snapshot: &SnapshotRecord, volume: &VolumeRecord, class: &ClassRecord) -> VolumeView {
    VolumeView {
        id: VolumeView::snapshot_id(snapshot.layer),
        name: format!("{}@{}", volume.name, snapshot.name),
        size: snapshot.size_bytes,
        logical_block: volume.logical_block_bytes,
        layer: snapshot.layer,
        cut: None,
        read_only: true,
        io_timeout: io_timeout(class),
        groups: class.groups.as_slice().into(),
        group_offset: volume.group_offset,
        key: volume.key,
        limits: volume.limits,
    }
}

/// How long a request of the class waits for a group that does not answer (decision 0018).
fn io_timeout(class: &ClassRecord) -> Option<Duration> {
    class.io_timeout_seconds.map(Duration::from_secs)
}

fn attachments(record: &AttachmentsRecord) -> Attachments {
    Attachments { generation: record.generation, standing: record.standing() }
}

/// A group's record as its copies want it, whether or not it is closed.
#[must_use]
pub fn group_config(model: &Model, record: &GroupRecord, class: &ClassRecord) -> GroupConfig {
    let ack = class.ack_rule;
    let site = |device: &DeviceId| {
        let node = model.devices.get(device).and_then(|device| model.nodes.get(&device.node))?;
        Some((*device, Arc::from(node.site.as_str())))
    };
    // Proposals in doubt may name devices that were in sync and are leaving: what they hold counts for their sites.
    let holders = record.members.iter().chain(&record.in_sync).chain(&record.leaving).chain(record.away.keys());
    GroupConfig {
        version: record.version,
        epoch: record.epoch,
        primary: record.primary,
        primary_incarnation: record.primary_incarnation,
        in_sync: record.in_sync.iter().copied().collect(),
        away: record.away.clone(),
        members: record.members.iter().copied().collect(),
        leaving: record.leaving.clone(),
        copies_min: class.copies_min,
        ack,
        copies: class.copies,
        sites: if ack == AckRule::EachSite { holders.filter_map(site).collect() } else { BTreeMap::new() },
    }
}

/// What a copy proposes for its group's record.
#[must_use]
pub fn proposal_of(config: &GroupConfig) -> GroupProposal {
    GroupProposal {
        version: config.version,
        epoch: config.epoch,
        primary: config.primary,
        primary_incarnation: config.primary_incarnation,
        in_sync: config.in_sync.iter().copied().collect(),
        away: config.away.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::PgId;
    use azekura_base::{Endpoint, NodeId, Shard};
    use azekura_model::{Key, Memory, Txn};

    #[test]
    fn devices_are_at_shards_of_their_nodes() {
        let node = serde_json::json!({ "id": 3, "uuid": "u", "name": "n", "shards": 2,
            "data_address": "127.0.0.1:1", "api_address": "127.0.0.1:2" });
        let mut txn = Txn::new().put("/azekura/v1/nodes/3", &node);
        for id in [1, 2] {
            let device = serde_json::json!({ "id": id, "uuid": "u", "node": 3, "shard": id - 1, "name": "d",
                "capacity_bytes": 1, "state": "up" });
            txn = txn.put(&Key::Device(DeviceId(id)).to_string(), &device);
        }
        let mut memory = Memory::new();
        memory.run(&txn).expect("there are no conditions");
        let view = Views::default().of(memory.model());
        assert_eq!(view.nodes[&NodeId(3)].shards.get(), 2);
        let at = |shard| Endpoint { node: NodeId(3), shard: Shard(shard) };
        assert_eq!(view.devices, [(DeviceId(1), at(0)), (DeviceId(2), at(1))].into());
    }

    #[test]
    fn a_node_is_gone_when_its_number_was_given_and_it_has_no_record() {
        let node = serde_json::json!({ "id": 1, "uuid": "u", "name": "n", "data_address": "127.0.0.1:1",
            "api_address": "127.0.0.1:2" });
        // The third is of a version that writes records differently.
        let txn = Txn::new().put("/azekura/v1/nodes/1", &node).put("/azekura/v1/nodes/3", &"?");
        let mut memory = Memory::new();
        memory.run(&txn).expect("there are no conditions");
        let gone = |memory: &Memory| {
            let roll = Views::default().of(memory.model()).roll;
            (1..6).filter(|node| roll.is_gone(NodeId(*node))).collect::<Vec<u32>>()
        };
        assert!(gone(&memory).is_empty(), "nothing says which numbers were given");
        memory.run(&Txn::new().put(&Key::Counter("nodes").to_string(), &4)).expect("there are no conditions");
        assert_eq!(gone(&memory), [2]);
    }

    #[test]
    fn where_a_class_says_nothing_its_volumes_wait_half_a_minute_for_a_stuck_group() {
        let bound = |io_timeout: serde_json::Value| {
            let mut class = serde_json::json!({ "name": "c", "copies": 1, "failure_domain": "host", "ack_rule": "all",
                "copies_min": 1, "overcommit_ratio": 1.0, "groups": [1], "created": "" });
            if !io_timeout.is_null() {
                class["io_timeout_seconds"] = io_timeout;
            }
            let volume = serde_json::json!({ "id": 1, "uuid": "u", "name": "v", "size_bytes": 4096, "class": "c", "head": 1,
                "group_offset": 0, "created": "" });
            let txn = Txn::new().put(&Key::Class("c").to_string(), &class).put(&Key::Volume("v").to_string(), &volume);
            let mut memory = Memory::new();
            memory.run(&txn).expect("there are no conditions");
            Views::default().of(memory.model()).volumes["v"].io_timeout
        };
        assert_eq!(bound(serde_json::Value::Null), Some(Duration::from_secs(30)));
        assert_eq!(bound(5.into()), Some(Duration::from_secs(5)));
    }

    /// Proposals in doubt name devices that are neither members nor in sync any more: a site that is not known would
    /// count as one of its own, of which a copy has to hold everything.
    #[test]
    fn the_site_of_a_former_member_is_known_until_its_copy_is_gone() {
        let mut txn = Txn::new();
        for (id, site) in [(1, "east"), (2, "west"), (3, "east")] {
            let node = serde_json::json!({ "id": id, "uuid": "u", "name": id.to_string(), "site": site,
                "data_address": "127.0.0.1:1", "api_address": "127.0.0.1:2" });
            let device = serde_json::json!({ "id": id, "uuid": "u", "node": id, "name": "d", "capacity_bytes": 1,
                "state": "up" });
            txn = txn.put(&format!("/azekura/v1/nodes/{id}"), &node);
            txn = txn.put(&Key::Device(DeviceId(id)).to_string(), &device);
        }
        let class = serde_json::json!({ "name": "c", "copies": 2, "failure_domain": "host", "ack_rule": "each_site",
            "copies_min": 1, "overcommit_ratio": 4.0, "groups": [1], "created": "" });
        let group = serde_json::json!({ "id": 1, "class": "c", "epoch": 1, "primary": 1, "in_sync": [1, 2],
            "members": [1, 2], "leaving": [3] });
        let mut memory = Memory::new();
        txn = txn.put("/azekura/v1/classes/c", &class).put(&Key::Group(PgId(1)).to_string(), &group);
        memory.run(&txn).expect("there are no conditions");
        let view = Views::default().of(memory.model());
        let sites: BTreeMap<DeviceId, &str> = view.groups[&PgId(1)].sites.iter().map(|(id, s)| (*id, &**s)).collect();
        assert_eq!(sites, [(DeviceId(1), "east"), (DeviceId(2), "west"), (DeviceId(3), "east")].into());
    }
}
