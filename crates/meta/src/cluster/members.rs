//! Nodes and devices make themselves known.

use azekura_base::{NodeId, PeerKey};
use azekura_model::transitions::keys::{add_key, remove_key, replace_keys};
use azekura_model::transitions::members::{register_device, register_node, register_trusted_node, set_endpoints};
use azekura_model::{DeviceRecord, Endpoint, MetaError, NodeRecord};

use super::MetaClient;

pub use azekura_model::transitions::members::{DeviceSpec, NodeSpec};

impl MetaClient {
    /// Registers a start of a node. Returns its record, with its id and an incarnation beyond all earlier ones.
    pub async fn register_node(&self, spec: &NodeSpec) -> Result<NodeRecord, MetaError> {
        let _one_at_a_time = self.inner.creating.lock().await;
        Ok(self.run("registering", |records| register_node(records, spec)).await?.0)
    }

    /// Registers a start of a node that needs no join token.
    pub async fn register_trusted_node(&self, spec: &NodeSpec) -> Result<NodeRecord, MetaError> {
        let _one_at_a_time = self.inner.creating.lock().await;
        Ok(self.run("registering", |records| register_trusted_node(records, spec)).await?.0)
    }

    /// Registers a device, or brings its record up to date (its state stays). Returns the record with its id.
    pub async fn register_device(&self, spec: &DeviceSpec) -> Result<DeviceRecord, MetaError> {
        let _one_at_a_time = self.inner.creating.lock().await;
        Ok(self.run("registering", |records| register_device(records, spec)).await?.0)
    }

    /// A node's clients connect here from now on.
    pub async fn set_node_endpoints(&self, node: NodeId, endpoints: &[Endpoint]) -> Result<NodeRecord, MetaError> {
        Ok(self.run("telling where clients connect", |records| set_endpoints(records, node, endpoints)).await?.0)
    }

    /// Adds a key to a node's.
    pub async fn add_node_key(&self, node: NodeId, key: PeerKey) -> Result<NodeRecord, MetaError> {
        Ok(self.run("adding a key", |records| add_key(records, node, key)).await?.0)
    }

    /// Takes a key from a node's, which is not its last.
    pub async fn remove_node_key(&self, node: NodeId, key: PeerKey) -> Result<NodeRecord, MetaError> {
        Ok(self.run("removing a key", |records| remove_key(records, node, key)).await?.0)
    }

    /// A node has this key and no other any more.
    pub async fn replace_node_keys(&self, node: NodeId, key: PeerKey) -> Result<NodeRecord, MetaError> {
        Ok(self.run("replacing keys", |records| replace_keys(records, node, key)).await?.0)
    }
}
