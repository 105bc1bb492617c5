//! Nodes, devices and storage classes that go for good.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use azekura_base::{DeviceId, NodeId};
use azekura_meta::{Kind, MetaError, Model};
use serde::{Deserialize, Serialize};

use super::Api;
use super::drain::find_device;
use super::error::{Answer, Name, Params};

/// An answer waits this long for the leader to take what was removed out of the groups; the rest goes on by itself.
const DONE_WAIT: Duration = Duration::from_secs(5);

/// Query of `DELETE /v1/nodes/{name}` and `DELETE /v1/devices/{name}`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Removal {
    /// It will never come back: other copies are to make up for its copies.
    #[serde(default)]
    lost: bool,
}

/// What was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedView {
    /// The node, device or storage class.
    pub removed: String,
    /// Placement groups that still name it; its record goes when there are none.
    pub groups_left: usize,
}

/// `DELETE /v1/nodes/{name}`.
pub(super) async fn node(
    State(api): State<Api>,
    Name(name): Name,
    Params(Removal { lost }): Params<Removal>,
) -> Answer<RemovedView> {
    let node = find_node(&api.meta.model(), &name)?;
    api.meta.remove_node(node, lost).await?;
    let left = wait(&api, |model| {
        let devices = model.devices.values().filter(|device| device.node == node).map(|device| device.id);
        (!model.nodes.contains_key(&node), devices.collect())
    });
    Ok(Json(RemovedView { removed: name, groups_left: left.await }))
}

/// `DELETE /v1/devices/{name}`.
pub(super) async fn device(
    State(api): State<Api>,
    Name(name): Name,
    Params(Removal { lost }): Params<Removal>,
) -> Answer<RemovedView> {
    let device = find_device(&api.meta.model(), &name)?;
    api.meta.remove_device(device, lost).await?;
    let left = wait(&api, |model| (!model.devices.contains_key(&device), vec![device]));
    Ok(Json(RemovedView { removed: name, groups_left: left.await }))
}

/// `DELETE /v1/classes/{name}`.
pub(super) async fn class(State(api): State<Api>, Name(name): Name) -> Answer<RemovedView> {
    api.meta.delete_class(&name).await?;
    Ok(Json(RemovedView { removed: name, groups_left: 0 }))
}

fn find_node(model: &Model, name: &str) -> Result<NodeId, MetaError> {
    let mut named = model.nodes.values().filter(|node| node.name == name);
    let found = named.find(|node| !node.removed).or_else(|| model.nodes.values().find(|node| node.name == name));
    found.map(|node| node.id).ok_or_else(|| MetaError::NotFound { kind: Kind::Node, name: name.to_owned() })
}

/// Waits for the leader; the groups that are left. `look` tells whether all is done, and of which devices to count groups.
async fn wait(api: &Api, look: impl Fn(&Model) -> (bool, Vec<DeviceId>)) -> usize {
    let mut models = api.meta.watch_model();
    // If that takes longer, it goes on by itself.
    drop(tokio::time::timeout(DONE_WAIT, models.wait_for(|model| look(model).0)).await);
    let model = models.borrow().clone();
    let (_, devices) = look(&model);
    model.groups.values().filter(|group| devices.iter().any(|device| group.names(*device))).count()
}
