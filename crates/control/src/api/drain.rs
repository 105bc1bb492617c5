//! Emptying devices: refused when the rest of the cluster could not take what they hold.

use azekura_api::endpoint::{DeviceDrain, DeviceUndrain, NodeDrain, NodeUndrain};
use azekura_api::{ClusterStats, DeviceView};
use azekura_base::{DeviceId, Size};
use azekura_model::{DeviceState, Kind, MetaError, Model};
use azekura_plans::homes::{check_drain, takes_drained};

use super::call::{Answer, Call, Reply};
use super::device_names::find_device;
use super::error::ApiError;
use super::shown::Shown;
use super::stats::gather;
use super::{Api, views};

/// A device is filled by moves up to this share of its size.
const FILL_MAX: f64 = 0.9;

pub(super) async fn drain_device(Call { api, names: [name], .. }: Call<DeviceDrain>) -> Answer<DeviceDrain> {
    let device = find_device(&api.meta.model(), &name)?;
    set(&api, &format!("device {name}"), &[device], DeviceState::Draining).await
}

pub(super) async fn undrain_device(Call { api, names: [name], .. }: Call<DeviceUndrain>) -> Answer<DeviceUndrain> {
    let device = find_device(&api.meta.model(), &name)?;
    set(&api, &format!("device {name}"), &[device], DeviceState::Up).await
}

pub(super) async fn drain_node(Call { api, names: [name], .. }: Call<NodeDrain>) -> Answer<NodeDrain> {
    let devices = devices_of(&api.meta.model(), &name)?;
    set(&api, &format!("node {name}"), &devices, DeviceState::Draining).await
}

pub(super) async fn undrain_node(Call { api, names: [name], .. }: Call<NodeUndrain>) -> Answer<NodeUndrain> {
    let devices = devices_of(&api.meta.model(), &name)?;
    set(&api, &format!("node {name}"), &devices, DeviceState::Up).await
}

async fn set(
    api: &Api,
    what: &str,
    devices: &[DeviceId],
    state: DeviceState,
) -> Result<Reply<Vec<DeviceView>>, ApiError> {
    let model = api.meta.model();
    let stats = gather(api, &model).await;
    // A device that is out of service stays so: it is neither drained nor taken back by hand.
    let down = |device: &&DeviceId| model.devices.get(device).is_some_and(|device| device.state == DeviceState::Down);
    let devices: Vec<DeviceId> = devices.iter().filter(|device| !down(device)).copied().collect();
    if state == DeviceState::Draining {
        check(&model, &stats, what, &devices)?;
    }
    api.meta.set_device_state(&devices, state).await?;
    let wanted = |view: &DeviceView| devices.contains(&view.id);
    let views = views::devices(&model, &stats).into_iter().filter(wanted);
    Ok(views.map(|view| DeviceView { state: state.shown(), ..view }).collect::<Vec<_>>().into())
}

/// Whether the rest of the cluster can take what these devices hold.
fn check(model: &Model, stats: &ClusterStats, what: &str, devices: &[DeviceId]) -> Result<(), MetaError> {
    check_drain(model, what, devices)?;
    let stays = |id: DeviceId| {
        !devices.contains(&id) && model.devices.get(&id).is_some_and(|device| takes_drained(model, device))
    };
    let views = views::devices(model, stats);
    let held: u64 = views.iter().filter(|view| devices.contains(&view.id)).map(|view| view.used_bytes).sum();
    let rest = views.iter().filter(|view| stays(view.id));
    let room: u64 =
        rest.map(|view| ((view.capacity_bytes as f64 * FILL_MAX) as u64).saturating_sub(view.used_bytes)).sum();
    if held > room {
        let (held, room) = (Size::new(held), Size::new(room));
        let reason = format!("{held} are stored there, and the other devices have room for {room}");
        return Err(MetaError::DrainRefused { what: what.to_owned(), reason });
    }
    Ok(())
}

fn devices_of(model: &Model, name: &str) -> Result<Vec<DeviceId>, MetaError> {
    let node = model.nodes.values().find(|node| node.name == name);
    let node = node.ok_or_else(|| MetaError::NotFound { kind: Kind::Node, name: name.to_owned() })?;
    Ok(model.devices.values().filter(|device| device.node == node.id).map(|device| device.id).collect())
}
