//! How the whole cluster is, and how old that knowledge is.

use std::collections::BTreeMap;

use azekura_base::NodeId;
use serde::{Deserialize, Serialize};

use crate::{ApiAccess, DeviceView, GroupHealth, LastScrubs, NodeSnapshot, NodeView, ResyncStatus, Transport};

/// The cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClusterStatus {
    /// Nothing is wrong.
    pub healthy: bool,
    /// What is wrong, and what to do: one sentence each, the worst first.
    pub problems: Vec<String>,
    /// What else people may want to know; nothing is wrong with it.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Copies that are being made or brought up to date.
    #[serde(default)]
    pub resync: Option<ResyncStatus>,
    /// When the copies of all groups were last compared; nothing before there are groups.
    #[serde(default)]
    pub scrubbed: Option<LastScrubs>,
    /// Groups that are being scrubbed now.
    #[serde(default)]
    pub scrubbing: usize,
    /// The cluster's id.
    pub cluster: Option<String>,
    /// Nodes.
    pub nodes: Vec<NodeView>,
    /// Devices.
    pub devices: Vec<DeviceView>,
    /// Groups by health.
    pub groups: BTreeMap<GroupHealth, usize>,
    /// Number of volumes.
    pub volumes: usize,
    /// Sum of the volumes' sizes, bytes.
    pub volume_bytes: u64,
    /// What the volumes need when full, with copies, bytes.
    pub promised_bytes: u64,
    /// Sum of the usable devices' sizes, bytes.
    pub capacity_bytes: u64,
    /// Bytes in use on the devices that answer.
    pub used_bytes: u64,
    /// How nodes talk with each other.
    #[serde(default)]
    pub transport: Option<Transport>,
    /// Whether the API asks for grants.
    #[serde(default)]
    pub api_access: Option<ApiAccess>,
    /// The configuration servers.
    pub configuration: String,
    /// The configuration does not answer: this is what the node knew when it last did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<Stale>,
}

/// How old an answer is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stale {
    /// The configuration has not answered for so long, seconds.
    pub seconds: u64,
    /// The node whose knowledge this is.
    pub node: String,
    /// Why the configuration does not answer.
    pub reason: String,
}

impl std::fmt::Display for Stale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the configuration has not answered for {} s; this is what node {} knew then",
            self.seconds, self.node
        )
    }
}

/// One node's counters, or why they are missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeStats {
    /// The node.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its counters.
    pub snapshot: Option<NodeSnapshot>,
    /// Why they are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Every node's counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClusterStats {
    /// By node number, ascending.
    pub nodes: Vec<NodeStats>,
    /// Copies that are being made or brought up to date.
    #[serde(default)]
    pub resync: Option<ResyncStatus>,
}

impl ClusterStats {
    /// A node's counters, if they could be had.
    #[must_use]
    pub fn snapshot(&self, node: NodeId) -> Option<&NodeSnapshot> {
        self.nodes.iter().find(|stats| stats.node == node)?.snapshot.as_ref()
    }
}
