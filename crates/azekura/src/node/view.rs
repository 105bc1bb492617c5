//! The cluster's records, as the data plane wants them.

use azekura_base::DeviceId;
use azekura_gateway::VolumeView;
use azekura_meta::model::{self, AttachmentsRecord, ClassRecord, GroupRecord, LayerState, Model};
use azekura_node::{Attachments, ClusterView};
use azekura_replica::{AckRule, GroupConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The data plane's view of `model`.
#[must_use]
pub fn cluster_view(model: &Model) -> ClusterView {
    // A group whose class is not known is left out: what its copies must do for each other is not known.
    let groups = model.groups.values().filter_map(|record| {
        let class = model.classes.get(&record.class)?;
        Some((record.id, group_config(model, record, class)))
    });
    let volumes = model.volumes.values().filter_map(|volume| {
        let class = model.classes.get(&volume.class)?;
        let view = VolumeView {
            id: volume.id,
            name: volume.name.clone(),
            size: volume.size_bytes,
            layer: volume.head,
            cut: None,
            read_only: false,
            groups: class.groups.as_slice().into(),
            group_offset: volume.group_offset,
        };
        Some((volume.name.clone(), Arc::new(view)))
    });
    let dropped = model.layers.values().filter(|layer| layer.state == LayerState::Deleted).map(|layer| {
        let open = model.devices.keys().filter(|device| !model.dropped.contains(&(layer.id, **device)));
        (layer.id, open.copied().collect::<BTreeSet<_>>())
    });
    ClusterView {
        revision: u64::try_from(model.revision).unwrap_or(0),
        nodes: model.nodes.values().map(|node| (node.id, node.data_address)).collect(),
        full_percent: Some(model.settings().full_percent),
        devices: model.devices.values().map(|device| (device.id, device.node)).collect(),
        groups: groups.collect(),
        volumes: volumes.collect(),
        attachments: model.attachments.iter().map(|(id, record)| (*id, attachments(record))).collect(),
        parents: model.layers.values().filter_map(|layer| Some((layer.id, layer.parent?))).collect(),
        dropped: dropped.collect(),
        merging: BTreeMap::new(),
    }
}

fn attachments(record: &AttachmentsRecord) -> Attachments {
    Attachments { generation: record.generation, standing: record.standing() }
}

fn group_config(model: &Model, record: &GroupRecord, class: &ClassRecord) -> GroupConfig {
    let ack = match class.ack_rule {
        model::AckRule::All => AckRule::All,
        model::AckRule::Majority => AckRule::Majority,
        model::AckRule::EachSite => AckRule::EachSite,
    };
    let site = |device: &DeviceId| {
        let node = model.devices.get(device).and_then(|device| model.nodes.get(&device.node))?;
        Some((*device, Arc::from(node.site.as_str())))
    };
    let holders = record.members.iter().chain(&record.in_sync);
    GroupConfig {
        version: record.version,
        epoch: record.epoch,
        primary: record.primary,
        reign: record.reign,
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
