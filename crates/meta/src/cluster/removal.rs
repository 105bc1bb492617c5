//! Nodes and devices that go. A node or device is first marked, which frees its name; the leader then
//! takes it out of the groups and removes its record (`model/removal.rs` decides each step).

use azekura_base::{DeviceId, NodeId};
use azekura_model::transitions::counters::touch_counter;
use azekura_model::{DeviceRecord, DeviceState, Key, Kind, MetaError, Model, NodeRecord, RemovalStep};

use super::{MetaClient, Try, encode};
use crate::client::Txn;

/// A device's record as one that leaves: copies on it count as lost.
fn leaving(record: DeviceRecord) -> DeviceRecord {
    DeviceRecord { state: DeviceState::Down, removed: true, ..record }
}

impl MetaClient {
    /// Takes a node out of the cluster for good, with its devices, if [`Model::check_node_removal`] allows it. Its name
    /// is free at once; the records go when no group names its devices any more.
    pub async fn remove_node(&self, node: NodeId, lost: bool) -> Result<(), MetaError> {
        let (node_key, alive_key, counter_key) = (&Key::Node(node), &Key::Alive(node), &Key::Counter("devices"));
        let name = self.model().nodes.get(&node).map_or_else(|| node.to_string(), |node| node.name.clone());
        let name = &name;
        self.settle("removing the node", |Try { deadline, .. }| async move {
            let [found, alive, counter] = self.get_all([node_key, alive_key, counter_key], deadline).await?;
            let model = self.newest(&[found.mod_revision(), alive.mod_revision(), counter.mod_revision()]).await?;
            let Some(record) = found.record::<NodeRecord>()? else {
                return Err(MetaError::NotFound { kind: Kind::Node, name: name.clone() });
            };
            model.check_node_removal(node, lost)?;
            let mut txn = Txn::new()
                .when_unchanged(&found.key, found.mod_revision())
                .when_unchanged(&alive.key, alive.mod_revision())
                .when_unchanged(&counter.key, counter.mod_revision())
                .put(&found.key, encode(&NodeRecord { removed: true, ..record }));
            for device in model.devices.values().filter(|device| device.node == node && !device.removed) {
                let key = Key::Device(device.id).to_string();
                txn = txn.when_unchanged(&key, device.mod_revision).put(&key, encode(&leaving(device.record.clone())));
            }
            self.commit(txn, ()).await
        })
        .await?;
        self.touch_counter("nodes").await
    }

    /// The same for a device.
    pub async fn remove_device(&self, device: DeviceId, lost: bool) -> Result<(), MetaError> {
        let key = &Key::Device(device);
        self.settle("removing the device", |Try { deadline, .. }| async move {
            let [found] = self.get_all([key], deadline).await?;
            let model = self.newest(&[found.mod_revision()]).await?;
            let Some(record) = found.record::<DeviceRecord>()? else {
                return Err(MetaError::NotFound { kind: Kind::Device, name: device.to_string() });
            };
            model.check_device_removal(device, lost)?;
            let txn =
                Txn::new().when_unchanged(&found.key, found.mod_revision()).put(&found.key, encode(&leaving(record)));
            self.commit(txn, ()).await
        })
        .await?;
        self.touch_counter("devices").await
    }

    /// Does what [`Model::removal_steps`] said of a model. What has changed since is left to the next look.
    pub async fn take_removal_step(&self, model: &Model, step: &RemovalStep) -> Result<(), MetaError> {
        let (key, mod_revision) = match step {
            RemovalStep::Group(record, mod_revision) => {
                self.update_group(record, *mod_revision).await?;
                return Ok(());
            }
            RemovalStep::Device(id) => (Key::Device(*id), model.devices.get(id).map_or(0, |found| found.mod_revision)),
            RemovalStep::Node(id) => (Key::Node(*id), model.nodes.get(id).map_or(0, |found| found.mod_revision)),
        };
        let key = key.to_string();
        self.inner.etcd.txn(Txn::new().when_unchanged(&key, mod_revision).delete(&key)).await?;
        Ok(())
    }

    /// A model that holds every change up to these revisions.
    async fn newest(&self, revisions: &[i64]) -> Result<std::sync::Arc<Model>, MetaError> {
        self.model_at(revisions.iter().copied().max().unwrap_or(0)).await
    }

    /// Changes a counter's revision: whoever makes something of its kind next has seen all that was changed before.
    pub(super) async fn touch_counter(&self, counter: &'static str) -> Result<(), MetaError> {
        self.run("ending the change", |records| touch_counter(records, counter)).await?;
        Ok(())
    }
}
