//! The cluster's records, as the data plane wants them.

use azekura_gateway::VolumeView;
use azekura_meta::model::{AttachmentsRecord, LayerState, Model};
use azekura_node::{Attachments, ClusterView};
use azekura_replica::GroupConfig;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The data plane's view of `model`.
#[must_use]
pub fn cluster_view(model: &Model) -> ClusterView {
    let group = |record: &azekura_meta::model::GroupRecord| GroupConfig {
        version: record.version,
        epoch: record.epoch,
        primary: record.primary,
        reign: record.reign,
        in_sync: record.in_sync.iter().copied().collect(),
        away: record.away.clone(),
        members: record.members.iter().copied().collect(),
        leaving: record.leaving.clone(),
        copies_min: model.classes.get(&record.class).map_or(1, |class| class.copies_min),
    };
    let volumes = model.volumes.values().filter_map(|volume| {
        let class = model.classes.get(&volume.class)?;
        let view = VolumeView {
            id: volume.id,
            name: volume.name.clone(),
            size: volume.size_bytes,
            layer: volume.head,
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
        devices: model.devices.values().map(|device| (device.id, device.node)).collect(),
        groups: model.groups.values().map(|record| (record.id, group(record))).collect(),
        volumes: volumes.collect(),
        attachments: model.attachments.iter().map(|(id, record)| (*id, attachments(record))).collect(),
        parents: model.layers.values().filter_map(|layer| Some((layer.id, layer.parent?))).collect(),
        dropped: dropped.collect(),
    }
}

fn attachments(record: &AttachmentsRecord) -> Attachments {
    Attachments { generation: record.generation, standing: record.standing() }
}
