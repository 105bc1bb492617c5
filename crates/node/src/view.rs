//! The cluster as a node's data plane sees it.

use azekura_base::{DeviceId, LayerId, NodeId, PgId};
use azekura_gateway::VolumeView;
use azekura_replica::GroupConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// Everything that a node needs to know of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Where nodes listen for each other.
    pub nodes: BTreeMap<NodeId, SocketAddr>,
    /// Which node has a device.
    pub devices: BTreeMap<DeviceId, NodeId>,
    /// The placement groups.
    pub groups: BTreeMap<PgId, GroupConfig>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, Arc<VolumeView>>,
    /// Parents of layers.
    pub parents: BTreeMap<LayerId, LayerId>,
    /// Layers whose space is to be given back, and the devices that still have to do it.
    pub dropped: BTreeMap<LayerId, BTreeSet<DeviceId>>,
}
