//! Nodes and devices that go. A node or device is first marked, which frees its name; the leader then
//! takes it out of the groups and removes its record (`model/removal.rs` decides each step).

use azekura_base::{DeviceId, NodeId};
use azekura_model::MetaError;
use azekura_model::transitions::counters::touch_counter;
use azekura_model::transitions::removal::{remove_device, remove_node};

use super::MetaClient;

impl MetaClient {
    /// Takes a node out of the cluster for good, with its devices, if [`azekura_model::Model::check_node_removal`]
    /// allows it. Its name is free at once; the records go when no group names its devices any more.
    pub async fn remove_node(&self, node: NodeId, lost: bool) -> Result<(), MetaError> {
        self.run("removing the node", |records| remove_node(records, node, lost)).await?;
        self.touch_counter("nodes").await
    }

    /// The same for a device.
    pub async fn remove_device(&self, device: DeviceId, lost: bool) -> Result<(), MetaError> {
        self.run("removing the device", |records| remove_device(records, device, lost)).await?;
        self.touch_counter("devices").await
    }

    /// Changes a counter's revision: whoever makes something of its kind next has seen all that was changed before.
    pub(super) async fn touch_counter(&self, counter: &'static str) -> Result<(), MetaError> {
        self.run("ending the change", |records| touch_counter(records, counter)).await?;
        Ok(())
    }
}
