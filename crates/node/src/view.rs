//! The cluster as a node's data plane sees it.

use crate::fences::Attachments;
use azekura_base::{
    BLOCK_SIZE, BlockIndex, CHUNK_SIZE, ChunkIndex, DeviceId, Endpoint, LayerId, NodeId, PeerKey, PgId, Transport,
    VolumeId, Warning,
};
use azekura_gateway::VolumeView;
use azekura_replica::{GroupConfig, NodeRoll};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::sync::Arc;

/// A node, as others need to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Where all its shards are dialled.
    pub address: SocketAddr,
    /// How many shards it has.
    pub shards: NonZeroU8,
    /// Its keys.
    pub keys: Vec<PeerKey>,
    /// Where it stands.
    pub location: Location,
}

/// Where a node stands; empty: nobody has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The site.
    pub site: Arc<str>,
    /// The rack in it.
    pub rack: Arc<str>,
}

/// Everything that a node needs to know of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Every change of the configuration up to here is in it.
    pub revision: u64,
    /// The nodes.
    pub nodes: BTreeMap<NodeId, NodeView>,
    /// How they talk with each other.
    pub transport: Transport,
    /// Which numbers of nodes have been given, and which of them still have a record: what groups forget sessions by
    /// (decision 0018).
    pub roll: Arc<NodeRoll>,
    /// Share of a device's capacity from which on it takes no more data from clients, in percent; `None`: all of it.
    pub full_percent: Option<u8>,
    /// Who answers for a device.
    pub devices: BTreeMap<DeviceId, Endpoint>,
    /// The placement groups.
    pub groups: BTreeMap<PgId, GroupConfig>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, Arc<VolumeView>>,
    /// Attachments of volumes; volumes that never had one are left out.
    pub attachments: BTreeMap<VolumeId, Attachments>,
    /// Parents of layers.
    pub parents: BTreeMap<LayerId, LayerId>,
    /// Layers whose space is to be given back, and the devices that still have to do it.
    pub dropped: BTreeMap<LayerId, BTreeSet<DeviceId>>,
    /// Layers whose blocks are to become those of their only child, which is named, and the devices that still have to
    /// do it. The tree of layers stays as it is until none is left.
    pub merging: BTreeMap<LayerId, (LayerId, BTreeSet<DeviceId>)>,
}

impl ClusterView {
    /// All shards of all nodes.
    #[cfg(test)]
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = Endpoint> + '_ {
        let shards = |view: &NodeView| (0..view.shards.get()).map(azekura_base::Shard);
        self.nodes.iter().flat_map(move |(node, view)| shards(view).map(|shard| Endpoint { node: *node, shard }))
    }

    /// Where a shard is dialled; `None` when its node is not there, or has fewer.
    pub(crate) fn address_of(&self, endpoint: Endpoint) -> Option<SocketAddr> {
        let node = self.nodes.get(&endpoint.node)?;
        (endpoint.shard.0 < node.shards.get()).then_some(node.address)
    }

    /// Who has this key is that node.
    #[must_use]
    pub fn lists_key(&self, node: NodeId, key: PeerKey) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.keys.contains(&key))
    }

    /// Where a block is, for people.
    pub(crate) fn place_of(&self, layer: LayerId, chunk: ChunkIndex, block: BlockIndex) -> Place {
        let offset = u64::from(chunk.0) * CHUNK_SIZE as u64 + u64::from(block.0) * BLOCK_SIZE as u64;
        let volume = self.volumes.values().find(|volume| volume.layer == layer);
        Place { volume: volume.map(|volume| volume.name.clone()), layer, offset }
    }
}

/// Where a block is, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The volume, or `VOLUME@SNAPSHOT`; `None` when no name leads to the layer itself: it is below others.
    pub volume: Option<String>,
    /// The layer.
    pub layer: LayerId,
    /// Bytes from the start of the volume.
    pub offset: u64,
}

impl Place {
    /// A warning that names the place.
    pub(crate) fn named_in(&self, warning: Warning) -> Warning {
        let warning = warning.layer(self.layer);
        match &self.volume {
            Some(volume) => warning.volume(volume),
            None => warning,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.volume {
            Some(volume) => write!(f, "volume {volume}, byte {}", self.offset),
            None => write!(f, "layer {}, byte {}", self.layer, self.offset),
        }
    }
}
