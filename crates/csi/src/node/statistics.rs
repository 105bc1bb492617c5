//! How full volumes are, and how they are on this machine.

use tonic::Status;

use super::machine::{size, status};
use super::{Node, path};
use crate::proto::volume_usage::Unit;
use crate::proto::{
    NodeGetStorageHealthRequest, NodeGetStorageHealthResponse, NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, VolumeHealthErrorType, VolumeUsage,
};
use crate::sizes::signed;
use crate::{Outcome, health, names};

impl Node {
    pub(super) fn node_get_volume_stats(
        &self,
        request: NodeGetVolumeStatsRequest,
    ) -> Outcome<NodeGetVolumeStatsResponse> {
        let name = names::volume_id(&request.volume_id)?;
        if request.volume_path.is_empty() {
            return Err(Status::invalid_argument("the request names no volume_path"));
        }
        self.staged(name)?;
        let absent = |_| Status::not_found(format!("volume '{name}' is not mounted at {}", request.volume_path));
        let at = path("volume_path", &request.volume_path).map_err(absent)?;
        let (device, mount) = self.mounted(name, &at)?;
        if mount.shows_device() {
            let total = signed(size(&device)?);
            let usage = VolumeUsage { total, unit: Unit::Bytes.into(), ..VolumeUsage::default() };
            return Ok(NodeGetVolumeStatsResponse { usage: vec![usage] });
        }
        let failed = |error| Status::internal(format!("can't ask for the space at {}: {error}", at.display()));
        let there = rustix::fs::statvfs(&at).map_err(failed)?;
        let bytes = |blocks: u64| signed(blocks.saturating_mul(there.f_frsize));
        let usage = vec![
            VolumeUsage {
                available: bytes(there.f_bavail),
                total: bytes(there.f_blocks),
                used: bytes(there.f_blocks.saturating_sub(there.f_bfree)),
                unit: Unit::Bytes.into(),
            },
            VolumeUsage {
                available: signed(there.f_favail),
                total: signed(there.f_files),
                used: signed(there.f_files.saturating_sub(there.f_ffree)),
                unit: Unit::Inodes.into(),
            },
        ];
        Ok(NodeGetVolumeStatsResponse { usage })
    }

    pub(super) fn node_get_volume_health(
        &self,
        request: NodeGetVolumeHealthRequest,
    ) -> Outcome<NodeGetVolumeHealthResponse> {
        let name = names::volume_id(&request.volume_id)?;
        let found = self.cluster.known_volume(name)?;
        let class = health::classes(&self.cluster)?.get(&found.class).copied();
        let mut told = health::of(&found, class);
        match self.devices.is_sound(name).map_err(status)? {
            None => return Err(Status::not_found(format!("volume '{name}' is not staged on this node"))),
            Some(true) => {}
            Some(false) => {
                let message =
                    format!("the program behind volume '{name}' on {} has ended: restart its pods", self.name);
                told.health_statuses.push(health::entry(VolumeHealthErrorType::Inaccessible, "DeviceEnded", message));
            }
        }
        Ok(NodeGetVolumeHealthResponse { volume_health: Some(told) })
    }

    pub(super) fn node_get_storage_health(
        &self,
        _: NodeGetStorageHealthRequest,
    ) -> Outcome<NodeGetStorageHealthResponse> {
        Err(Status::unimplemented("the health of storage is that of its volumes here"))
    }
}
