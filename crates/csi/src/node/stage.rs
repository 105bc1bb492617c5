//! A volume's device, and its file system mounted once.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use tonic::Status;

use super::filesystem::{self, Formatting};
use super::machine::{mounts, run, status, unmount_all};
use super::{Node, path};
use crate::capability::{Access, Filesystem, Use};
use crate::proto::{
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
};
use crate::{Outcome, names, secrets};

/// The options that a file system is mounted with.
fn options(filesystem: Filesystem, wanted: &[String], read_only: bool) -> String {
    let mut options: Vec<&str> = wanted.iter().map(String::as_str).collect();
    if read_only {
        options.push("ro");
    }
    // A clone has the identity of what it was made from, and may be on the same machine.
    if filesystem == Filesystem::Xfs {
        options.push("nouuid");
    }
    options.join(",")
}

/// The note of a file system that is being made.
fn note(folder: &Path) -> Outcome<std::path::PathBuf> {
    let made = fs::create_dir_all(folder);
    made.map_err(|error| Status::internal(format!("can't make {}: {error}", folder.display())))?;
    Ok(folder.join("formatting"))
}

/// Whether a call may go on with the device that is there. `shown`: it can only be read; `is_used`: it is mounted
/// somewhere. One that a call has left to be written, and nobody uses, is made one to read.
fn fits(shown: bool, read_only: bool, is_used: bool, device: &Path) -> Outcome<()> {
    let staged = match (shown, read_only) {
        (true, false) => "to be read only",
        (false, true) if is_used => "to be written",
        _ => return Ok(()),
    };
    Err(Status::already_exists(format!("the volume is staged as {} {staged}: unstage it first", device.display())))
}

impl Node {
    pub(super) fn node_stage_volume(&self, mut request: NodeStageVolumeRequest) -> Outcome<NodeStageVolumeResponse> {
        let secret = secrets::take(&mut request.secrets);
        let name = names::volume_id(&request.volume_id)?;
        let staging = path("staging_target_path", &request.staging_target_path)?;
        let wanted = Use::read(request.volume_capability.as_ref())?;
        let _alone = self.locks.take([name])?;
        let volume = self.cluster.known_volume(name)?;
        // Else a client of this machine would attach the volume by itself, and nobody would know why.
        let mine = volume.attachments.iter().find(|entry| entry.pinned && entry.node_name == self.name);
        let mine = mine.ok_or_else(|| {
            let reason = format!("volume '{name}' is not published to {}: publish it first", self.name);
            Status::failed_precondition(reason)
        })?;
        self.unlock(&volume, secret.as_ref(), "node-stage")?;
        self.note_staged(name)?;
        let read_only = wanted.is_read_only();
        if let Some(device) = self.devices.find(name).map_err(status)? {
            let shown = azekura_attach::is_read_only(&device).map_err(status)?;
            fits(shown, read_only, mounts()?.of(&device).next().is_some(), &device)?;
        }
        let device = self.devices.attach(&self.wanted(&volume, read_only)?).map_err(status)?.device;
        let note = note(&azekura_attach::folder(&self.state, name))?;
        // Published again to the same node, the attachment has another generation: it stands since the same time.
        let formatting = Formatting { note: &note, what: format!("{} {}", volume.uuid, mine.since) };
        if wanted.access == Access::Block && !read_only {
            // Containers write what they like to it, and the attachment stays the same: no later call may take that for
            // a file system that was half made.
            let ended = formatting.end();
            ended.map_err(|error| Status::internal(format!("can't remove {}: {error}", note.display())))?;
        }
        if let Access::Mount(filesystem, flags) = &wanted.access {
            let options = options(*filesystem, flags, read_only);
            mount(&device, &staging, *filesystem, &options, read_only, &formatting)?;
        }
        Ok(NodeStageVolumeResponse {})
    }

    pub(super) fn node_unstage_volume(&self, request: NodeUnstageVolumeRequest) -> Outcome<NodeUnstageVolumeResponse> {
        let name = names::volume_id(&request.volume_id)?;
        let staging = path("staging_target_path", &request.staging_target_path)?;
        let _alone = self.locks.take([name])?;
        // Else the file system would wait for ever for a volume that is another machine's by now.
        if self.is_noted(name) && self.is_taken(name) {
            self.cut(name)?;
        }
        unmount_all(&staging)?;
        if let Some(device) = self.devices.find(name).map_err(status)?
            && let Some(mount) = mounts()?.of(&device).next()
        {
            return Err(Status::failed_precondition(format!(
                "volume '{name}' is still mounted at {}: unpublish it there first",
                mount.point.display()
            )));
        }
        self.devices.detach(name).map_err(status)?;
        self.forget_staged(name)?;
        Ok(NodeUnstageVolumeResponse {})
    }
}

fn mount(
    device: &Path,
    staging: &Path,
    wanted: Filesystem,
    options: &str,
    read_only: bool,
    formatting: &Formatting<'_>,
) -> Outcome<()> {
    let at = staging.display();
    if let Some(there) = mounts()?.at(staging) {
        if !there.is_of(device) {
            return Err(Status::internal(format!("something else is mounted at {at}: unmount it")));
        }
        if there.filesystem != wanted.word() || there.is_read_only() != read_only {
            return Err(Status::already_exists(format!(
                "the volume is mounted at {at} as {} and {}: unstage it first",
                there.filesystem,
                if there.is_read_only() { "to read" } else { "to write" }
            )));
        }
        return Ok(());
    }
    filesystem::ensure(device, wanted, read_only, formatting)?;
    fs::create_dir_all(staging).map_err(|error| Status::internal(format!("can't make {at}: {error}")))?;
    let mut arguments = vec![OsStr::new("-t"), OsStr::new(wanted.word())];
    if !options.is_empty() {
        arguments.extend([OsStr::new("-o"), OsStr::new(options)]);
    }
    arguments.extend([device.as_os_str(), staging.as_os_str()]);
    run(&format!("mounting {} at {at}", device.display()), "mount", arguments)?;
    // A clone may be larger than its source, and a volume may have grown where nobody had it mounted. ext4 has grown by
    // now, and the others do nothing where there is nothing to do.
    if !read_only && wanted != Filesystem::Ext4 {
        filesystem::grow(device, wanted.word(), staging)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options() {
        assert_eq!(options(Filesystem::Ext4, &[], false), "");
        assert_eq!(options(Filesystem::Ext4, &["noatime".into(), "discard".into()], true), "noatime,discard,ro");
        assert_eq!(options(Filesystem::Xfs, &[], false), "nouuid");
    }

    #[test]
    fn a_volume_is_not_staged_a_second_time_for_another_use() {
        let code = |shown, read_only, is_used| {
            fits(shown, read_only, is_used, Path::new("/dev/nbd0")).map_err(|status| status.code()).err()
        };
        for is_used in [false, true] {
            assert_eq!(code(true, true, is_used), None);
            assert_eq!(code(false, false, is_used), None);
            assert_eq!(code(true, false, is_used), Some(tonic::Code::AlreadyExists));
        }
        assert_eq!(code(false, true, true), Some(tonic::Code::AlreadyExists));
        // The call before was interrupted.
        assert_eq!(code(false, true, false), None);
    }
}
