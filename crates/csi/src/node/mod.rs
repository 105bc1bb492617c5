//! The node: attached volumes as devices and folders of this machine's containers.
//!
//! Staging makes the device and mounts its file system once; publishing mounts that, or the device, where a container
//! wants it. What there is, is found in the kernel's lists each time: this process may end at any moment, and the one
//! after it goes on.

use std::path::{Path, PathBuf};

use azekura_api::endpoint::NodeList;
use azekura_api::{NodeView, PageQuery, VolumeView};
use azekura_attach::{Devices, Mount, Wanted, Way};
use tonic::Status;

use crate::cluster::{Cluster, told};
use crate::error::CsiError;
use crate::locks::Locks;
use crate::proto::node_server;
use crate::proto::node_service_capability::rpc::Type as Can;
use crate::proto::node_service_capability::{Rpc, Type};
use crate::proto::{
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeServiceCapability,
};
use crate::{Outcome, topology};

mod filesystem;
mod grow;
mod machine;
mod publish;
mod stage;
mod statistics;
mod taken;
mod unlock;

use machine::status;

/// What a node is told at its start.
#[derive(Clone, Debug)]
pub(crate) struct NodeSetup {
    /// The Azekura node of this machine.
    pub(crate) name: String,
    /// A folder that is empty after a restart of the machine.
    pub(crate) state: PathBuf,
    /// The way to new devices.
    pub(crate) way: Way,
}

/// The node's part. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    cluster: Cluster,
    locks: Locks,
    devices: Devices,
    name: String,
    state: PathBuf,
}

/// What it can.
const OFFERED: [Can; 5] =
    [Can::StageUnstageVolume, Can::GetVolumeStats, Can::ExpandVolume, Can::SingleNodeMultiWriter, Can::GetVolumeHealth];

/// A path that a request has to name.
fn path(what: &str, given: &str) -> Outcome<PathBuf> {
    if given.is_empty() {
        return Err(Status::invalid_argument(format!("the request names no {what}")));
    }
    machine::real(given)
}

impl Node {
    pub(crate) fn new(cluster: Cluster, setup: NodeSetup) -> Result<Node, CsiError> {
        let NodeSetup { name, state, way } = setup;
        let made = std::fs::create_dir_all(&state).and_then(|()| state.canonicalize());
        let state = made.map_err(|error| CsiError {
            message: format!("can't use {}: {error}", state.display()),
            hint: "name a folder of this process's own with --state",
        })?;
        Ok(Node { cluster, locks: Locks::default(), devices: Devices::new(way, &state), name, state })
    }

    fn node_get_capabilities(&self, _: NodeGetCapabilitiesRequest) -> Outcome<NodeGetCapabilitiesResponse> {
        let rpc = |can: Can| Some(Type::Rpc(Rpc { r#type: can.into() }));
        let capabilities = OFFERED.map(|can| NodeServiceCapability { r#type: rpc(can) }).to_vec();
        Ok(NodeGetCapabilitiesResponse { capabilities })
    }

    fn node_get_info(&self, _: NodeGetInfoRequest) -> Outcome<NodeGetInfoResponse> {
        Ok(NodeGetInfoResponse {
            node_id: self.name.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(topology::of_node(self.own()?)),
        })
    }

    /// The Azekura node of this machine, as the cluster knows it.
    fn own(&self) -> Outcome<NodeView> {
        let nodes = self.cluster.ask::<NodeList>([], &PageQuery::default())?;
        let nodes = nodes.map_err(|error| told("asking for the cluster's nodes", &error))?;
        nodes.into_iter().find(|node| node.name == self.name).ok_or_else(|| {
            Status::unavailable(format!(
                "the cluster has no node '{}': start it, or name this machine's node with --node",
                self.name
            ))
        })
    }

    /// What is wanted of the ways to a device: this machine's node serves it.
    fn wanted(&self, volume: &VolumeView, read_only: bool) -> Outcome<Wanted> {
        let shared = volume.attachments.iter().any(|entry| entry.node_name == self.name && entry.shared);
        let own = self.own()?;
        let endpoints = volume.endpoints.iter().filter(|there| {
            own.endpoints.iter().any(|mine| mine.protocol == there.protocol && mine.address == there.address)
        });
        Ok(Wanted {
            volume: volume.name.clone(),
            endpoints: endpoints.cloned().collect(),
            size_bytes: volume.size_bytes,
            request_bytes_min: volume.request_bytes_min(),
            read_only,
            shared,
        })
    }

    /// The device of a volume that has to be staged.
    fn staged(&self, volume: &str) -> Outcome<PathBuf> {
        self.devices
            .find(volume)
            .map_err(status)?
            .ok_or_else(|| Status::not_found(format!("volume '{volume}' is not staged on this node")))
    }

    /// The device of a volume, and what is mounted of it at a path.
    fn mounted(&self, volume: &str, at: &Path) -> Outcome<(PathBuf, Mount)> {
        let device = self.staged(volume)?;
        let mounts = machine::mounts()?;
        let mount = mounts.at(at).filter(|mount| mount.is_of(&device)).cloned();
        let mount =
            mount.ok_or_else(|| Status::not_found(format!("volume '{volume}' is not mounted at {}", at.display())))?;
        Ok((device, mount))
    }
}

crate::calls::service! {
    node_server::Node => Node {
        node_stage_volume: NodeStageVolumeRequest (volume_id) => NodeStageVolumeResponse;
        node_unstage_volume: NodeUnstageVolumeRequest (volume_id) => NodeUnstageVolumeResponse;
        node_publish_volume: NodePublishVolumeRequest (volume_id) => NodePublishVolumeResponse;
        node_unpublish_volume: NodeUnpublishVolumeRequest (volume_id) => NodeUnpublishVolumeResponse;
        node_get_volume_stats: NodeGetVolumeStatsRequest (volume_id) => NodeGetVolumeStatsResponse;
        node_get_volume_health: NodeGetVolumeHealthRequest (volume_id) => NodeGetVolumeHealthResponse;
        node_get_storage_health: NodeGetStorageHealthRequest => NodeGetStorageHealthResponse;
        node_expand_volume: NodeExpandVolumeRequest (volume_id) => NodeExpandVolumeResponse;
        node_get_capabilities: NodeGetCapabilitiesRequest => NodeGetCapabilitiesResponse;
        node_get_info: NodeGetInfoRequest => NodeGetInfoResponse;
    }
}
