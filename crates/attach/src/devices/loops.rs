//! Loop devices, as the kernel lists them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::make_writable;
use crate::mounts::Mounts;
use crate::programs::run;
use crate::{AttachError, Outcome};

/// The loop device of a file of what is mounted at `point`. The kernel lists the devices of all who share it, and where
/// these are machines of their own (those of kind, for example), the path is the same on each.
pub(crate) fn find(file: &Path, point: &Path) -> Outcome<Option<PathBuf>> {
    let mounts = Mounts::now()?;
    let Some(mount) = mounts.at(point) else { return Ok(None) };
    let entries = fs::read_dir("/sys/block");
    let entries = entries.map_err(|error| AttachError::internal(format!("can't list /sys/block: {error}")))?;
    for entry in entries.flatten() {
        let Ok(behind) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let device = Path::new("/dev").join(entry.file_name());
        if Path::new(behind.trim_end_matches('\n')) == file && mount.may_be_numbered(&file_system_behind(&device)?) {
            return Ok(Some(device));
        }
    }
    Ok(None)
}

/// Whether what the device's file was in is mounted nowhere any more: then the file's path begins there.
pub(crate) fn is_abandoned(device: &Path) -> bool {
    let Some(name) = device.file_name() else { return false };
    let behind = fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file"));
    behind.is_ok_and(|behind| ["/", "/nbd"].contains(&behind.trim_end_matches('\n')))
}

/// The number of the file system that the device's file is on; empty: that does not answer.
fn file_system_behind(device: &Path) -> Outcome<String> {
    let arguments = ["--list", "--noheadings", "--output=BACK-MAJ:MIN"].map(OsStr::new);
    let arguments = arguments.into_iter().chain([device.as_os_str()]);
    let shown = run(&format!("asking what is behind {}", device.display()), "losetup", arguments)?;
    Ok(shown.trim().to_owned())
}

/// Makes a loop device of a file. Its sectors are whole blocks, as the volume's are. `direct`: past the kernel's cache.
pub(crate) fn make(file: &Path, read_only: bool, direct: bool) -> Outcome<PathBuf> {
    let direct = if direct { "--direct-io=on" } else { "--direct-io=off" };
    let mut arguments = vec!["--find", "--show", "--sector-size=4096", direct];
    if read_only {
        arguments.push("--read-only");
    }
    let arguments = arguments.into_iter().map(OsStr::new).chain([file.as_os_str()]);
    let shown = run(&format!("making a loop device of {}", file.display()), "losetup", arguments)?;
    Ok(shown.trim().into())
}

/// Lets the device take its file's size anew.
pub(crate) fn refresh(device: &Path) -> Outcome<()> {
    run("telling the loop device its new size", "losetup", ["--set-capacity".as_ref(), device.as_os_str()]).map(|_| ())
}

/// Takes the device from its file.
pub(crate) fn remove(device: &Path) -> Outcome<()> {
    make_writable(device);
    run("giving the loop device back", "losetup", ["--detach".as_ref(), device.as_os_str()]).map(|_| ())
}
