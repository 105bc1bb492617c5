//! Which device is meant by a name.

use std::collections::BTreeSet;

use azekura_base::{DeviceId, NodeId};
use azekura_model::{DeviceRecord, Kind, MetaError, Model};

/// The device that people mean by its number, `NODE/NAME`, or a name that only one device has. What was removed, or is
/// gone for good, may have left its name to another, which is meant then.
pub(super) fn find_device(model: &Model, name: &str) -> Result<DeviceId, MetaError> {
    find(model, name, &[is_there])
}

/// The same of somebody who means one that is gone for good, if such a one has the name.
pub(super) fn find_lost_device(model: &Model, name: &str) -> Result<DeviceId, MetaError> {
    find(model, name, &[|device| !device.removed && device.is_lost(), is_there])
}

fn is_there(device: &DeviceRecord) -> bool {
    !device.removed && !device.is_lost()
}

/// The device of this name: one that is as the first of `meant` says, if there is one, else as the second, else any.
fn find(model: &Model, name: &str, meant: &[fn(&DeviceRecord) -> bool]) -> Result<DeviceId, MetaError> {
    if let Some(id) = name.parse().ok().map(DeviceId).filter(|id| model.devices.contains_key(id)) {
        return Ok(id);
    }
    let (node, own) = name.split_once('/').map_or((None, name), |(node, own)| (Some(node), own));
    let on = |id| model.nodes.get(&id).map(|found| found.name.as_str());
    let called = |device: &&DeviceRecord| device.name == own && node.is_none_or(|node| on(device.node) == Some(node));
    let all: Vec<&DeviceRecord> = model.devices.values().map(|device| &device.record).filter(called).collect();
    let those = |are: &fn(&DeviceRecord) -> bool| all.iter().copied().filter(|device| are(device)).collect::<Vec<_>>();
    match meant.iter().map(those).find(|some| !some.is_empty()).unwrap_or(all.clone())[..] {
        [device] => Ok(device.id),
        ref several @ [_, _, ..] => {
            let nodes: BTreeSet<NodeId> = several.iter().map(|device| device.node).collect();
            let full = |device: &&DeviceRecord| {
                let name = format!("{}/{own}", on(device.node).unwrap_or("?"));
                if nodes.len() == several.len() { name } else { format!("{name} (number {})", device.id) }
            };
            // By name: which node came to the cluster first says nothing to people.
            let devices = several.iter().map(full).collect::<BTreeSet<_>>().into_iter().collect();
            Err(MetaError::Ambiguous { name: name.to_owned(), devices })
        }
        [] => Err(MetaError::NotFound { kind: Kind::Device, name: name.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_model::Versioned;
    use serde_json::json;
    use std::sync::Arc;

    fn versioned<T>(record: T) -> Arc<Versioned<T>> {
        Arc::new(Versioned { record, mod_revision: 1 })
    }

    #[test]
    fn a_name_that_several_devices_have_is_refused_with_their_full_names_in_order() {
        let mut model = Model::default();
        let (nodes, devices) = (Arc::make_mut(&mut model.nodes), Arc::make_mut(&mut model.devices));
        // n2 was the first to register.
        for (id, name) in [(1, "n2"), (2, "n1")] {
            let (data, api) = ("127.0.0.1:1", "127.0.0.1:2");
            let node = json!({ "id": id, "uuid": name, "name": name, "data_address": data, "api_address": api });
            nodes.insert(NodeId(id), versioned(serde_json::from_value(node).unwrap()));
            let device =
                json!({ "id": id, "uuid": "", "node": id, "name": "device-0", "capacity_bytes": 1, "state": "up" });
            devices.insert(DeviceId(id), versioned(serde_json::from_value(device).unwrap()));
        }
        assert_eq!(find_device(&model, "n2/device-0").unwrap(), DeviceId(1));
        assert_eq!(find_device(&model, "2").unwrap(), DeviceId(2));
        let several = find_device(&model, "device-0").unwrap_err();
        assert_eq!(several.to_string(), "2 devices have the name 'device-0': n1/device-0, n2/device-0");
    }

    #[test]
    fn a_device_that_is_gone_has_left_its_name_to_another() {
        let mut model = Model::default();
        let node =
            json!({ "id": 1, "uuid": "u", "name": "n1", "data_address": "127.0.0.1:1", "api_address": "127.0.0.1:2" });
        Arc::make_mut(&mut model.nodes).insert(NodeId(1), versioned(serde_json::from_value(node).unwrap()));
        let mut put = |id: u32, failure: Option<&str>| {
            let failure = failure.map(|kind| json!({ "kind": kind, "reason": "", "since": "" }));
            let device = json!({ "id": id, "uuid": "", "node": 1, "name": "device-0", "capacity_bytes": 1, "state": "up",
                "failure": failure });
            let device = versioned(serde_json::from_value(device).unwrap());
            Arc::make_mut(&mut model.devices).insert(DeviceId(id), device);
            let found = |found: Result<DeviceId, MetaError>| found.map_err(|error| error.to_string());
            (found(find_device(&model, "n1/device-0")), found(find_lost_device(&model, "device-0")))
        };
        assert_eq!(put(1, Some("lost")), (Ok(DeviceId(1)), Ok(DeviceId(1))));
        assert_eq!(put(2, None), (Ok(DeviceId(2)), Ok(DeviceId(1))));
        assert_eq!(
            put(1, None).0.unwrap_err(),
            "2 devices have the name 'n1/device-0': n1/device-0 (number 1), n1/device-0 (number 2)"
        );
        assert_eq!(
            put(1, Some("stopped")).1.unwrap_err().split_once(": ").unwrap().0,
            "2 devices have the name 'device-0'"
        );
    }
}
