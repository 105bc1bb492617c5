//! Loop devices, as the kernel lists them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::programs::run;
use crate::{AttachError, Outcome};

/// The loop device of a file.
pub(crate) fn find(file: &Path) -> Outcome<Option<PathBuf>> {
    let entries = fs::read_dir("/sys/block");
    let entries = entries.map_err(|error| AttachError::internal(format!("can't list /sys/block: {error}")))?;
    for entry in entries.flatten() {
        let Ok(behind) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        if Path::new(behind.trim_end_matches('\n')) == file {
            return Ok(Some(Path::new("/dev").join(entry.file_name())));
        }
    }
    Ok(None)
}

/// Makes a loop device of a file. Its sectors are whole blocks, as the volume's are. `direct`: past the kernel's cache.
pub(crate) fn make(file: &Path, read_only: bool, direct: bool) -> Outcome<PathBuf> {
    let direct = if direct { "--direct-io=on" } else { "--direct-io=off" };
    let mut arguments = vec!["--find", "--show", "--sector-size=4096", direct];
    if read_only {
        arguments.push("--read-only");
    }
    let arguments = arguments.into_iter().map(std::ffi::OsStr::new).chain([file.as_os_str()]);
    let shown = run(&format!("making a loop device of {}", file.display()), "losetup", arguments)?;
    Ok(shown.trim().into())
}

/// Lets the device take its file's size anew.
pub(crate) fn refresh(device: &Path) -> Outcome<()> {
    run("telling the loop device its new size", "losetup", ["--set-capacity".as_ref(), device.as_os_str()]).map(|_| ())
}

/// Takes the device from its file.
pub(crate) fn remove(device: &Path) -> Outcome<()> {
    run("giving the loop device back", "losetup", ["--detach".as_ref(), device.as_os_str()]).map(|_| ())
}
