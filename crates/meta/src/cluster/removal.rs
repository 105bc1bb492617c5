//! Nodes and devices that go. A node or device is first marked, which frees its name; the leader then
//! takes it out of the groups and removes its record (`model/removal.rs` decides each step).

use azekura_base::{DeviceId, NodeId};
use azekura_model::transitions::counters::touch_counter;
use azekura_model::transitions::removal::{removal_step, remove_device, remove_node};
use azekura_model::{MetaError, Model, RemovalStep};

use super::MetaClient;

impl MetaClient {
    /// Takes a node out of the cluster for good, with its devices, if [`Model::check_node_removal`] allows it. Its name
    /// is free at once; the records go when no group names its devices any more.
    pub async fn remove_node(&self, node: NodeId, lost: bool) -> Result<(), MetaError> {
        self.run("removing the node", |records| remove_node(records, node, lost)).await?;
        self.touch_counter("nodes").await
    }

    /// The same for a device.
    pub async fn remove_device(&self, device: DeviceId, lost: bool) -> Result<(), MetaError> {
        self.run("removing the device", |records| remove_device(records, device, lost)).await?;
        self.touch_counter("devices").await
    }

    /// Does what [`Model::removal_steps`] said of a model. What has changed since is left to the next look.
    pub async fn take_removal_step(&self, model: &Model, step: &RemovalStep) -> Result<(), MetaError> {
        if let RemovalStep::Group(record, mod_revision) = step {
            // Many of them: one lost answer must not hold up the others.
            return self.update_group(record, *mod_revision).await.map(|_| ());
        }
        self.inner.etcd.txn(removal_step(model, step).into()).await?;
        Ok(())
    }

    /// Changes a counter's revision: whoever makes something of its kind next has seen all that was changed before.
    pub(super) async fn touch_counter(&self, counter: &'static str) -> Result<(), MetaError> {
        self.run("ending the change", |records| touch_counter(records, counter)).await?;
        Ok(())
    }
}
