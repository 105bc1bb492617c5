//! Nodes, devices and storage classes that go for good.

use std::time::Duration;

use azekura_api::endpoint::{ClassDelete, DeviceRemove, NodeRemove};
use azekura_api::{RemoveMember, RemovedView};
use azekura_base::{DeviceId, NodeId};
use azekura_model::{Kind, MetaError, Model, is_own};

use super::Api;
use super::call::{Answer, Call};
use super::device_names::{find_device, find_lost_device};

/// An answer waits this long for the leader to take what was removed out of the groups; the rest goes on by itself.
const DONE_WAIT: Duration = Duration::from_secs(5);

pub(super) async fn node(Call { api, names: [name], query, .. }: Call<NodeRemove>) -> Answer<NodeRemove> {
    let RemoveMember { lost } = query;
    let node = find_node(&api.meta.model(), &name)?;
    api.meta.remove_node(node, lost).await?;
    let left = wait(&api, |model| {
        let devices = model.devices.values().filter(|device| device.node == node).map(|device| device.id);
        (!model.nodes.contains_key(&node), devices.collect())
    });
    Ok(RemovedView { removed: name, groups_left: left.await }.into())
}

pub(super) async fn device(Call { api, names: [name], query, .. }: Call<DeviceRemove>) -> Answer<DeviceRemove> {
    let RemoveMember { lost } = query;
    let find = if lost { find_lost_device } else { find_device };
    let device = find(&api.meta.model(), &name)?;
    api.meta.remove_device(device, lost).await?;
    let left = wait(&api, |model| (!model.devices.contains_key(&device), vec![device]));
    Ok(RemovedView { removed: name, groups_left: left.await }.into())
}

pub(super) async fn class(Call { api, names: [name], .. }: Call<ClassDelete>) -> Answer<ClassDelete> {
    if is_own(&name) {
        return Err(MetaError::NotFound { kind: Kind::Class, name }.into());
    }
    api.meta.delete_class(&name).await?;
    Ok(RemovedView { removed: name, groups_left: 0 }.into())
}

pub(super) fn find_node(model: &Model, name: &str) -> Result<NodeId, MetaError> {
    let mut named = model.nodes.values().filter(|node| node.name == name);
    let found = named.find(|node| !node.removed).or_else(|| model.nodes.values().find(|node| node.name == name));
    found.map(|node| node.id).ok_or_else(|| MetaError::NotFound { kind: Kind::Node, name: name.to_owned() })
}

/// Waits for the leader; the groups that are left. `look` tells whether all is done, and of which devices to count
/// groups.
async fn wait(api: &Api, look: impl Fn(&Model) -> (bool, Vec<DeviceId>)) -> usize {
    let mut models = api.meta.watch_model();
    // If that takes longer, it goes on by itself.
    drop(tokio::time::timeout(DONE_WAIT, models.wait_for(|model| look(model).0)).await);
    let model = models.borrow().clone();
    let (_, devices) = look(&model);
    model.groups.values().filter(|group| devices.iter().any(|device| group.names(*device))).count()
}
