//! Whether this node has all in service that it has, for probes.

use std::collections::BTreeMap;

use azekura_api::endpoint::Ready;
use azekura_api::{ErrorCode, NodeSnapshot, ReadyView};
use azekura_base::NodeId;
use azekura_model::{DeviceRecord, FailureKind, Model};

use super::call::{Answer, Call};
use super::error::ApiError;

/// What kind of thing a node waits for. Anybody is told, so nothing in here has a name or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    DataPlane,
    Configuration,
    Devices,
}

impl Awaited {
    fn message(self) -> &'static str {
        match self {
            Awaited::DataPlane => "this node is not ready: its data plane does not answer",
            Awaited::Configuration => "this node is not ready: its data plane does not know the configuration yet",
            Awaited::Devices => "this node is not ready: not all its devices are open yet",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Awaited::DataPlane => "look into the node's log; restart the node if it stays like this",
            Awaited::Configuration => "look into the node's log: it says what keeps the configuration away",
            Awaited::Devices => {
                "'azekura device list' shows which; a device that does not open is declared failed after --device-timeout, \
                 and one whose file system is full opens when there is room"
            }
        }
    }
}

/// 200 from when the data plane knows the configuration and all devices are open or declared failed, else 503. Clients'
/// sockets are open before this API is: a node that can't have one ends. A node that was ready stays so while the
/// configuration is away.
pub(super) async fn ready(Call { api, .. }: Call<Ready>) -> Answer<Ready> {
    let snapshot = api.statistics.snapshot().await;
    match awaited(&api.meta.model(), api.node, api.statistics.configured(), snapshot.as_ref()) {
        None => Ok(ReadyView { ready: true }.into()),
        Some(awaited) => Err(ApiError::new(ErrorCode::NotReady, awaited.message(), Some(awaited.hint().to_owned()))),
    }
}

/// The first thing that the node waits for. `configured`: up to which revision its data plane knows the configuration.
fn awaited(model: &Model, node: NodeId, configured: u64, snapshot: Option<&NodeSnapshot>) -> Option<Awaited> {
    let Some(snapshot) = snapshot else { return Some(Awaited::DataPlane) };
    if configured == 0 {
        return Some(Awaited::Configuration);
    }
    let states: BTreeMap<u32, &str> =
        snapshot.devices.iter().map(|device| (device.id, device.state.as_str())).collect();
    let mut own = model.devices.values().filter(|device| device.node == node && !device.removed);
    let is_failed = |device: &DeviceRecord| device.failure.as_ref().is_some_and(|it| it.kind != FailureKind::Failing);
    let is_settled = |id: u32| matches!(states.get(&id), Some(&("open" | "failed")));
    own.any(|device| !is_failed(device) && !is_settled(device.id.0)).then_some(Awaited::Devices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::DeviceSnapshot;
    use azekura_base::DeviceId;
    use azekura_model::{DeviceFailure, Key, Memory, Txn};

    /// Devices 1 and 2 of node 1, and device 3 of node 2.
    fn memory(change: impl Fn(&mut DeviceRecord)) -> Memory {
        let mut memory = Memory::new();
        for (id, node) in [(1, 1), (2, 1), (3, 2)] {
            let mut record: DeviceRecord = serde_json::from_value(serde_json::json!({
                "id": id, "uuid": format!("u{id}"), "node": node, "name": format!("d{id}"), "capacity_bytes": 1 << 30,
                "state": "up",
            }))
            .unwrap();
            change(&mut record);
            memory.run(&Txn::new().put(&Key::Device(DeviceId(id)).to_string(), &record)).unwrap();
        }
        memory
    }

    fn seen(states: &[(u32, &str)]) -> NodeSnapshot {
        let device = |(id, state): &(u32, &str)| DeviceSnapshot {
            id: *id,
            state: (*state).to_owned(),
            ..DeviceSnapshot::default()
        };
        NodeSnapshot { devices: states.iter().map(device).collect(), ..NodeSnapshot::default() }
    }

    #[test]
    fn a_node_waits_for_its_own_devices_alone() {
        let memory = memory(|_| {});
        let awaited = |configured, seen: Option<&NodeSnapshot>| awaited(memory.model(), NodeId(1), configured, seen);
        let both = seen(&[(1, "open"), (2, "failed")]);
        assert_eq!(awaited(5, Some(&both)), None);
        assert_eq!(awaited(0, Some(&both)), Some(Awaited::Configuration));
        assert_eq!(awaited(5, None), Some(Awaited::DataPlane));
        // One has not been handed to the data plane, or replays its log.
        assert_eq!(awaited(5, Some(&seen(&[(1, "open")]))), Some(Awaited::Devices));
        assert_eq!(awaited(5, Some(&seen(&[(1, "open"), (2, "opening")]))), Some(Awaited::Devices));
    }

    #[test]
    fn what_is_declared_failed_or_removed_is_not_waited_for() {
        let failed = memory(|device| {
            if device.id == DeviceId(2) {
                let (reason, since) = ("it is gone".to_owned(), String::new());
                device.failure = Some(DeviceFailure { kind: FailureKind::Lost, reason, since });
            }
        });
        let removed = memory(|device| device.removed = device.id == DeviceId(2));
        for memory in [failed, removed] {
            assert_eq!(awaited(memory.model(), NodeId(1), 5, Some(&seen(&[(1, "open")]))), None);
        }
    }

    /// Whoever shows no grant is told, too.
    #[test]
    fn what_is_told_has_no_names() {
        for awaited in [Awaited::DataPlane, Awaited::Configuration, Awaited::Devices] {
            let told = format!("{}{}", awaited.message(), awaited.hint());
            assert!(!told.contains(char::is_numeric), "{told}");
        }
    }
}
