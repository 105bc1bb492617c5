//! Nodes and devices that leave the cluster for good. First one is marked, which frees its name; then groups do without
//! it, and then its record goes ([`Model::removal_steps`]).

use azekura_base::{DeviceId, NodeId};

use super::groups::replace_group;
use super::volumes::missing;
use crate::{
    DeviceRecord, DeviceState, Found, Key, Kind, MetaError, Model, NodeRecord, Outcome, Records, RemovalStep, Step, Txn,
};

/// A device's record as one that leaves: copies on it count as lost.
fn leaving(record: DeviceRecord) -> DeviceRecord {
    DeviceRecord { state: DeviceState::Down, removed: true, ..record }
}

/// Takes a node out of the cluster for good, with its devices. `lost`: see [`Model::check_node_removal`].
///
/// # Errors
/// When the node is missing, or [`Model::check_node_removal`] refuses.
pub fn remove_node(records: &Records<'_>, node: NodeId, lost: bool) -> Outcome<()> {
    let keys = [&Key::Node(node), &Key::Alive(node), &Key::Counter("devices"), &Key::Counter("volumes")];
    let [found, alive, counter, volumes] = records.find_all(keys)?;
    let Some(record) = found.record::<NodeRecord>()? else {
        let name = records.known_model().nodes.get(&node).map_or_else(|| node.to_string(), |node| node.name.clone());
        return Err(missing(Kind::Node, &name).into());
    };
    let revisions = [&found, &alive, &counter, &volumes].map(Found::mod_revision);
    let model = records.model(revisions.into_iter().max().unwrap_or_default())?;
    model.check_node_removal(node, lost)?;
    let removed = NodeRecord { removed: true, ..record };
    let mut txn = Txn::new().when_as(&found).when_as(&alive).when_as(&counter).put(&found.key, &removed);
    for device in model.devices.values().filter(|device| device.node == node && !device.removed) {
        let key = Key::Device(device.id).to_string();
        txn = txn.when_unchanged(&key, device.mod_revision).put(&key, &leaving(device.record.clone()));
    }
    Ok(Step::Run(if lost { gives_up(txn, &volumes)? } else { txn }, ()))
}

/// The same for a device.
///
/// # Errors
/// When the device is missing, or [`Model::check_device_removal`] refuses.
pub fn remove_device(records: &Records<'_>, device: DeviceId, lost: bool) -> Outcome<()> {
    let [found, volumes] = records.find_all([&Key::Device(device), &Key::Counter("volumes")])?;
    let model = records.model(found.mod_revision().max(volumes.mod_revision()))?;
    let Some(record) = found.record::<DeviceRecord>()? else {
        return Err(missing(Kind::Device, &device.to_string()).into());
    };
    model.check_device_removal(device, lost)?;
    let txn = Txn::new().when_as(&found).put(&found.key, &leaving(record));
    Ok(Step::Run(if lost { gives_up(txn, &volumes)? } else { txn }, ()))
}

/// The same change, which may give up the last copies of groups that no volume has: so none is made meanwhile, nor by
/// somebody who does not know of it yet.
fn gives_up(txn: Txn, volumes: &Found) -> Result<Txn, MetaError> {
    Ok(txn.when_as(volumes).put(&volumes.key, &volumes.next_id()?))
}

/// What a step changes that [`Model::removal_steps`] found in this model. When that has changed since, the condition
/// does not hold, and whoever looks next sees what is.
pub fn removal_step(model: &Model, step: &RemovalStep) -> Txn {
    let (key, mod_revision) = match step {
        RemovalStep::Group(record, mod_revision) => return replace_group(record, *mod_revision),
        RemovalStep::Device(id) => (Key::Device(*id), model.devices.get(id).map_or(0, |found| found.mod_revision)),
        RemovalStep::Node(id) => (Key::Node(*id), model.nodes.get(id).map_or(0, |found| found.mod_revision)),
    };
    let key = key.to_string();
    Txn::new().when_unchanged(&key, mod_revision).delete(&key)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{cluster, run, txn_of};
    use super::super::volumes::{VolumeDeletion, VolumeSpec, create_volume, delete_volume};
    use super::*;
    use crate::{AliveRecord, Memory, VolumeAccess};
    use azekura_base::LogicalBlock;

    /// Nodes 1 to 3, and a device of the third that no group names.
    fn three_nodes() -> Memory {
        let mut memory = cluster();
        let mut txn = Txn::new();
        for id in 1..=3 {
            let node = serde_json::json!({ "id": id, "uuid": format!("u{id}"), "name": format!("n{id}"),
                "data_address": "127.0.0.1:1", "api_address": "127.0.0.1:2" });
            txn = txn.put(&Key::Node(NodeId(id)).to_string(), &node);
        }
        memory.run(&add_device(txn, 3, 3)).unwrap();
        assert!(memory.model().problems.is_empty(), "{:?}", memory.model().problems);
        memory
    }

    /// A device is registered.
    fn add_device(txn: Txn, id: u32, node: u32) -> Txn {
        let device = serde_json::json!({ "id": id, "uuid": "u", "node": node, "name": "d", "capacity_bytes": 1 << 20,
            "state": "up" });
        let counter = Key::Counter("devices").to_string();
        txn.put(&Key::Device(DeviceId(id)).to_string(), &device).put(&counter, &(id + 1))
    }

    fn steps(memory: &mut Memory) -> usize {
        let model = memory.model().clone();
        let steps = model.removal_steps();
        steps.iter().for_each(|step| assert!(memory.run(&removal_step(&model, step)).is_some()));
        steps.len()
    }

    #[test]
    fn a_node_goes_with_its_devices_or_not_at_all() {
        let mut memory = three_nodes();
        let refused = run(&mut memory, |records| remove_node(records, NodeId(1), false));
        assert!(matches!(refused, Err(MetaError::RemovalRefused { .. })), "{refused:?}");
        let gone = run(&mut memory, |records| remove_node(records, NodeId(9), false));
        assert!(matches!(gone, Err(MetaError::NotFound { .. })), "{gone:?}");
        run(&mut memory, |records| remove_node(records, NodeId(3), false)).unwrap();
        let device = &memory.model().devices[&DeviceId(3)];
        assert!(device.removed && device.state == DeviceState::Down && memory.model().nodes[&NodeId(3)].removed);
        assert_eq!((steps(&mut memory), steps(&mut memory), steps(&mut memory)), (1, 1, 0));
        assert!(memory.model().nodes.keys().eq([&NodeId(1), &NodeId(2)]) && memory.model().devices.len() == 2);
    }

    #[test]
    fn a_node_that_comes_back_meanwhile_stays() {
        let memory = three_nodes();
        let removal = txn_of(remove_node(&Records::known(memory.model()), NodeId(3), false));
        let after = |change: &dyn Fn(&mut Memory)| {
            let mut memory = memory.clone();
            change(&mut memory);
            memory.run(&removal)
        };
        assert!(after(&|_| {}).is_some());
        assert_eq!(after(&|now| assert!(now.run(&add_device(Txn::new(), 4, 3)).is_some())), None, "a new device");
        let life = crate::encode(&AliveRecord { node: NodeId(3), since: String::new() });
        let runs = |now: &mut Memory| assert!(now.hold(&Key::Alive(NodeId(3)).to_string(), Some(life.clone())) > 0);
        assert_eq!(after(&runs), None, "it runs");
    }

    #[test]
    fn no_volume_is_made_where_all_copies_were_given_up() {
        let mut memory = three_nodes();
        let delete = |memory: &mut Memory, name: &str| {
            let id = memory.model().volumes[name].id;
            run(memory, |records| delete_volume(records, name, id, &VolumeDeletion::default())).unwrap();
        };
        delete(&mut memory, "v");
        let spec = volume();
        for device in [1, 2] {
            let made = run(&mut memory, |records| create_volume(records, &spec, &format!("u{device}"), ""));
            assert!(made.is_ok(), "{made:?}");
            delete(&mut memory, "w");
            run(&mut memory, |records| remove_device(records, DeviceId(device), true)).unwrap();
        }
        let made = run(&mut memory, |records| create_volume(records, &spec, "u3", ""));
        assert!(matches!(&made, Err(MetaError::GroupsGivenUp { groups: 1, .. })), "{made:?}");
    }

    fn volume() -> VolumeSpec {
        VolumeSpec {
            name: "w".into(),
            size_bytes: 4096,
            class: "c".into(),
            access: VolumeAccess::Exclusive,
            key: None,
            logical_block: LogicalBlock::Bytes512,
            limits: None,
        }
    }

    #[test]
    fn a_volume_is_made_before_last_copies_are_given_up_or_not_at_all() {
        let mut before = three_nodes();
        let id = before.model().volumes["v"].id;
        run(&mut before, |records| delete_volume(records, "v", id, &VolumeDeletion::default())).unwrap();
        run(&mut before, |records| remove_device(records, DeviceId(1), true)).unwrap();
        let known = Records::known(before.model());
        let making = txn_of(create_volume(&known, &volume(), "u1", ""));
        for removal in [remove_device(&known, DeviceId(2), true), remove_node(&known, NodeId(2), true)] {
            let giving_up = txn_of(removal);
            let mut memory = before.clone();
            assert!(memory.run(&making).is_some());
            assert_eq!(memory.run(&giving_up), None, "the volume has its copies there");
            let mut memory = before.clone();
            assert!(memory.run(&giving_up).is_some());
            assert_eq!(memory.run(&making), None, "there are no copies any more");
        }
    }

    #[test]
    fn a_step_that_others_overtook_changes_nothing() {
        let mut memory = three_nodes();
        let busy = run(&mut memory, |records| remove_device(records, DeviceId(1), false));
        assert!(matches!(busy, Err(MetaError::RemovalRefused { .. })), "{busy:?}");
        let life = crate::encode(&AliveRecord { node: NodeId(1), since: String::new() });
        assert!(memory.hold(&Key::Alive(NodeId(1)).to_string(), Some(life)) > 0);
        run(&mut memory, |records| remove_device(records, DeviceId(2), true)).unwrap();
        let before = memory.model().clone();
        let [step] = &before.removal_steps()[..] else { panic!("{:?}", before.removal_steps()) };
        let late = removal_step(&before, step);
        assert_eq!(steps(&mut memory), 1, "the group does without it");
        assert_eq!(memory.run(&late), None);
    }
}
