//! A staged volume where a container wants it.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use azekura_attach::Mount;
use tonic::Status;

use super::machine::{mounts, run, status, unmount_all};
use super::{Node, path};
use crate::capability::{Access, Use};
use crate::proto::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
};
use crate::{Outcome, names, secrets};

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Status {
    Status::internal(format!("can't {what} {}: {error}", path.display()))
}

/// What is mounted on: a folder for a file system, a file for a device.
fn make_target(target: &Path, access: &Access) -> Outcome<()> {
    let made = match access {
        Access::Mount(..) => fs::create_dir_all(target),
        Access::Block => {
            let folder = target.parent().map_or(Ok(()), fs::create_dir_all);
            folder.and_then(|()| fs::OpenOptions::new().create(true).append(true).open(target).map(|_| ()))
        }
    };
    made.map_err(|error| failed("make", target, &error))
}

/// Makes what is mounted read-only; the kernel takes that in a step of its own.
fn make_read_only(target: &Path) -> Outcome<()> {
    let arguments = ["-o".as_ref(), "remount,bind,ro".as_ref(), target.as_os_str()];
    run(&format!("making {} read-only", target.display()), "mount", arguments).map(|_| ())
}

impl Node {
    pub(super) fn node_publish_volume(
        &self,
        mut request: NodePublishVolumeRequest,
    ) -> Outcome<NodePublishVolumeResponse> {
        let secret = secrets::take(&mut request.secrets);
        let name = names::volume_id(&request.volume_id)?;
        let target = path("target_path", &request.target_path)?;
        let staging = path("staging_target_path", &request.staging_target_path)?;
        let wanted = Use::read(request.volume_capability.as_ref())?;
        let read_only = request.readonly || wanted.is_read_only();
        let _alone = self.locks.take([name])?;
        if let Some(secret) = secret {
            self.open_again(name, &secret, &target)?;
        }
        let unstaged =
            || Status::failed_precondition(format!("volume '{name}' is not staged on this node: stage it first"));
        let device = self.devices.find(name).map_err(status)?.ok_or_else(unstaged)?;
        let mounts = mounts()?;
        let source = match &wanted.access {
            Access::Block => device.clone(),
            Access::Mount(..) => {
                mounts.at(&staging).filter(|mount| mount.is_of(&device)).ok_or_else(unstaged)?;
                staging.clone()
            }
        };
        let done = NodePublishVolumeResponse {};
        if let Some(there) = mounts.at(&target) {
            repeat(there, &device, &target, read_only)?;
            return Ok(done);
        }
        let mut others = mounts.of(&device).filter(|mount| mount.point != staging);
        if let (true, Some(other)) = (wanted.is_single(), others.next()) {
            return Err(Status::failed_precondition(format!(
                "volume '{name}' is for one pod alone (ReadWriteOncePod), and is published at {}",
                other.point.display()
            )));
        }
        make_target(&target, &wanted.access)?;
        let arguments = ["--bind".as_ref(), source.as_os_str(), target.as_os_str()];
        run(&format!("mounting volume '{name}' at {}", target.display()), "mount", arguments)?;
        if read_only {
            make_read_only(&target)?;
        }
        Ok(done)
    }

    pub(super) fn node_unpublish_volume(
        &self,
        request: NodeUnpublishVolumeRequest,
    ) -> Outcome<NodeUnpublishVolumeResponse> {
        let name = names::volume_id(&request.volume_id)?;
        let target = path("target_path", &request.target_path)?;
        let _alone = self.locks.take([name])?;
        unmount_all(&target)?;
        // Only what is empty: a folder with something in it was never one of ours.
        let removed = match fs::symlink_metadata(&target) {
            Ok(found) if found.is_dir() => fs::remove_dir(&target),
            Ok(_) => fs::remove_file(&target),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove", &target, &error)),
            _ => Ok(NodeUnpublishVolumeResponse {}),
        }
    }
}

/// A call that was made before, or that a process has not ended.
fn repeat(there: &Mount, device: &Path, target: &Path, read_only: bool) -> Outcome<()> {
    if !there.is_of(device) {
        return Err(Status::internal(format!("something else is mounted at {}: unmount it", target.display())));
    }
    match (there.is_read_only(), read_only) {
        (false, true) => make_read_only(target),
        (true, false) => Err(Status::already_exists(format!(
            "the volume is published at {} to be read only: unpublish it first",
            target.display()
        ))),
        _ => Ok(()),
    }
}
