//! Where space is: what volumes were promised, what is written, what snapshots share, what devices hold.
//!
//! All figures are bytes on devices, with every copy counted. A layer's blocks are counted once, at the layer that owns
//! them, so that what all layers own adds up to what all devices have in use.

use std::collections::{BTreeMap, BTreeSet};

use azekura_api::endpoint::{NodeLayers, Space};
use azekura_api::{ClassSpace, ClusterSpace, ClusterStats, DeviceSpace, HomeSpace, SpaceView, VolumeSpace, Written};
use azekura_base::LayerId;
use azekura_model::transitions::volumes::{Room, promised_bytes, usable_capacity_bytes};
use azekura_model::{ClassHome, DeviceRecord, LayerRecord, LayerState, Model, class_shown};

use super::call::{Answer, Call, Reply};
use super::error::ApiError;
use super::known::{Known, Wanted, known};
use super::{Api, peers, stats};

pub(super) async fn node(Call { api, .. }: Call<NodeLayers>) -> Answer<NodeLayers> {
    let hint = "look into the node's log; restart the node if it stays like this";
    Ok(api.statistics.layers().await.ok_or_else(|| ApiError::silent(hint))?.into())
}

pub(super) async fn show(Call { api, .. }: Call<Space>) -> Answer<Space> {
    let Known { model, stale } = known(&api, Wanted::Volumes).await?;
    let stats = stats::gather(&api, &model).await;
    let (layers, missing) = layers(&api, &model).await;
    Ok(Reply::as_known(SpaceView { missing, ..space(&model, &stats, &layers) }, stale))
}

/// Bytes that each layer owns on all devices, and which nodes did not answer.
pub(super) async fn layers(api: &Api, model: &Model) -> (BTreeMap<LayerId, u64>, Vec<String>) {
    let own = {
        let api = api.clone();
        async move { api.statistics.layers().await }
    };
    let answers = peers::ask_all::<NodeLayers>(api.node, &api.https, model, own).await;
    let mut layers = BTreeMap::<LayerId, u64>::new();
    let mut missing = Vec::new();
    for (node, answer) in answers {
        match answer {
            Ok(found) => found.0.values().flatten().for_each(|(layer, bytes)| {
                *layers.entry(LayerId(*layer)).or_default() += bytes;
            }),
            Err(problem) => {
                let name = model.nodes.get(&node).map_or_else(|| node.to_string(), |node| node.name.clone());
                missing.push(format!("{name}: {problem}"));
            }
        }
    }
    (layers, missing)
}

/// The layers that `head` stands on, nearest first.
fn ancestors(model: &Model, head: LayerId) -> impl Iterator<Item = LayerId> + '_ {
    let parent = |layer: &LayerId| model.layers.get(layer).and_then(|record| record.parent);
    // A loop in broken records must not hold anybody up.
    std::iter::successors(parent(&head), move |layer| parent(layer)).take(model.layers.len())
}

/// A snapshot, or what snapshots and clones stand on.
fn is_kept(layer: &LayerRecord) -> bool {
    matches!(layer.state, LayerState::Frozen | LayerState::Hidden | LayerState::Merging)
}

/// Puts together what devices and layers hold.
fn space(model: &Model, stats: &ClusterStats, layers: &BTreeMap<LayerId, u64>) -> SpaceView {
    let own = |layer: &LayerId| layers.get(layer).copied().unwrap_or(0);
    let mut classes: BTreeMap<&str, (usize, Written, BTreeSet<LayerId>)> =
        model.classes_shown().map(|class| (class.name.as_str(), Default::default())).collect();
    let mut volumes = Vec::with_capacity(model.volumes.len());
    let mut unique_bytes = 0;
    for volume in model.volumes.values() {
        let copies = model.classes.get(&volume.class).map_or(1, |class| class.copies);
        let below: Vec<LayerId> = ancestors(model, volume.head).collect();
        let (unique, shared) = (own(&volume.head), below.iter().map(own).sum::<u64>());
        let written = Written {
            provisioned_bytes: volume.size_bytes.saturating_mul(u64::from(copies)),
            written_bytes: unique + shared,
            unique_bytes: unique,
            shared_bytes: shared,
        };
        unique_bytes += unique;
        if let Some((count, sum, stands_on)) = classes.get_mut(class_shown(&volume.class)) {
            *count += 1;
            sum.provisioned_bytes = sum.provisioned_bytes.saturating_add(written.provisioned_bytes);
            sum.unique_bytes += unique;
            stands_on.extend(below);
        }
        volumes.push(VolumeSpace {
            name: volume.name.clone(),
            class: class_shown(&volume.class).to_owned(),
            copies,
            written,
        });
    }
    // Snapshots that their volume does not stand on any more, since it was reverted, are their class's as well.
    for record in model.layers.values().filter(|record| is_kept(record)) {
        if let Some((_, _, stands_on)) = classes.get_mut(class_shown(&record.class)) {
            stands_on.insert(record.id);
        }
    }
    let devices: Vec<DeviceSpace> = devices(model, stats).collect();
    let classes = classes.into_iter().map(|(name, (volumes, mut written, stands_on))| {
        written.shared_bytes = stands_on.iter().map(own).sum();
        written.written_bytes = written.unique_bytes + written.shared_bytes;
        let home = model.classes.get(name).and_then(|class| class.home.as_ref());
        let home = home.map(|home| home_space(model, home, &devices));
        ClassSpace { name: name.to_owned(), volumes, home, written }
    });
    let classes: Vec<ClassSpace> = classes.collect();
    let frozen = |layer: &&LayerId| model.layers.get(layer).is_some_and(|record| is_kept(record));
    let snapshot_bytes = layers.keys().filter(frozen).map(own).sum();
    let sum = |of: fn(&DeviceSpace) -> u64| devices.iter().map(of).sum::<u64>();
    let used_bytes = sum(|device| device.used_bytes);
    let cluster = ClusterSpace {
        provisioned_bytes: clamp(promised_bytes(model)),
        physical_bytes: physical_bytes(model, |_| true),
        usable_bytes: clamp(usable_capacity_bytes(model)),
        reserved_bytes: sum(|device| device.reserved_bytes),
        capacity_bytes: sum(|device| device.capacity_bytes),
        used_bytes,
        unique_bytes,
        snapshot_bytes,
        leaving_bytes: used_bytes.saturating_sub(unique_bytes + snapshot_bytes),
        garbage_bytes: sum(|device| device.garbage_bytes),
        free_bytes: sum(|device| device.free_bytes),
    };
    SpaceView { cluster, classes, devices, volumes, missing: Vec::new() }
}

fn clamp(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The devices at a class's home.
fn home_space(model: &Model, home: &ClassHome, devices: &[DeviceSpace]) -> HomeSpace {
    let room = Room::of(model, home);
    let is_there = |device: &DeviceRecord| {
        let node = model.nodes.get(&device.node);
        device.is_sound() && node.is_some_and(|node| node.is_at(home))
    };
    let spaces = devices.iter().filter(|space| model.devices.get(&space.id).is_some_and(|device| is_there(device)));
    HomeSpace {
        provisioned_bytes: clamp(room.promised_bytes),
        physical_bytes: physical_bytes(model, is_there),
        usable_bytes: clamp(room.capacity_bytes),
        free_bytes: spaces.map(|device| device.free_bytes).sum(),
    }
}

/// Sum of the sizes of those of the devices in use.
fn physical_bytes(model: &Model, are: impl Fn(&DeviceRecord) -> bool) -> u64 {
    let used = model.devices.values().filter(|device| device.is_sound() && are(device));
    used.map(|device| device.capacity_bytes).sum()
}

fn devices<'a>(model: &'a Model, stats: &'a ClusterStats) -> impl Iterator<Item = DeviceSpace> + 'a {
    model.devices.values().map(|device| {
        let snapshot = stats.snapshot(device.node);
        let live = snapshot.and_then(|node| node.devices.iter().find(|live| live.id == device.id.0));
        let reserved_bytes = live.map_or(0, |live| device.capacity_bytes.saturating_sub(live.capacity_bytes));
        let live = live.cloned().unwrap_or_default();
        DeviceSpace {
            id: device.id,
            name: device.name.clone(),
            node_name: model.nodes.get(&device.node).map(|node| node.name.clone()).unwrap_or_default(),
            physical_bytes: device.capacity_bytes,
            reserved_bytes,
            capacity_bytes: live.capacity_bytes,
            used_bytes: live.live_bytes,
            garbage_bytes: live.occupied_bytes.saturating_sub(live.live_bytes),
            free_bytes: live.capacity_bytes.saturating_sub(live.live_bytes),
            full: live.full,
        }
    })
}

#[cfg(test)]
mod tests;
