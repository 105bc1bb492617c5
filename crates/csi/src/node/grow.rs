//! A device and its file system as large as their volume, while they are used.

use tonic::Status;

use super::machine::status;
use super::{Node, filesystem, path};
use crate::proto::{NodeExpandVolumeRequest, NodeExpandVolumeResponse};
use crate::sizes::signed;
use crate::{Outcome, names};

impl Node {
    pub(super) fn node_expand_volume(&self, request: NodeExpandVolumeRequest) -> Outcome<NodeExpandVolumeResponse> {
        let name = names::volume_id(&request.volume_id)?;
        if request.volume_path.is_empty() {
            return Err(Status::invalid_argument("the request names no volume_path"));
        }
        let _alone = self.locks.take([name])?;
        self.staged(name)?;
        let at = path("volume_path", &request.volume_path)?;
        let (_, mount) = self.mounted(name, &at)?;
        let volume = self.cluster.known_volume(name)?;
        let asked = request.capacity_range.as_ref().map_or(0, |range| range.required_bytes);
        if signed(volume.size_bytes) < asked {
            // This node hears of the new size later than the one that the controller has asked.
            let bytes = volume.size_bytes;
            return Err(Status::unavailable(format!(
                "volume '{name}' has {bytes} bytes at this node, and not {asked} yet"
            )));
        }
        let device = self.devices.grow(&self.wanted(&volume, mount.is_read_only())?).map_err(status)?;
        if !mount.shows_device() && !mount.is_read_only() {
            filesystem::grow(&device, &mount.filesystem, &at)?;
        }
        Ok(NodeExpandVolumeResponse { capacity_bytes: signed(volume.size_bytes) })
    }
}
