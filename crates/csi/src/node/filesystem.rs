//! File systems on devices: found, made, checked and grown with their own programs.

use std::fs::{self, File};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use azekura_attach::programs::said;
use tonic::Status;

use super::machine::{output, run};
use crate::Outcome;
use crate::capability::Filesystem;

/// A device that is to be formatted has nothing in so many bytes at its beginning, as a new volume has not.
const EMPTY_BYTES: usize = 1 << 20;
/// An ext4 that is this much smaller than its device is grown when it is mounted; a rest that fits no group stays.
const GROW_FROM_BYTES: u64 = 8 << 20;

/// What stands on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    /// A file system or something else that has a signature, by blkid's name.
    Known(String),
}

/// That a device of this volume is being formatted, under this attachment. If the program dies meanwhile, what is half
/// made would look like a file system that somebody has damaged.
#[derive(Clone, Debug)]
pub(super) struct Formatting<'a> {
    /// The note's file.
    pub(super) note: &'a Path,
    /// Which volume, and which of its attachments: after the next one somebody else may have written to it.
    pub(super) what: String,
}

impl Formatting<'_> {
    fn was_interrupted(&self) -> bool {
        fs::read_to_string(self.note).is_ok_and(|noted| noted == self.what)
    }

    fn begin(&self) -> std::io::Result<()> {
        fs::write(self.note, &self.what)
    }

    /// What is on the device from now on is not of the driver's making.
    pub(super) fn end(&self) -> std::io::Result<()> {
        match fs::remove_file(self.note) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn content(device: &Path) -> Outcome<Content> {
    let found = output("blkid", ["--probe".as_ref(), "--output".as_ref(), "export".as_ref(), device.as_os_str()])?;
    match found.status.code() {
        Some(0) => {
            let text = String::from_utf8_lossy(&found.stdout).into_owned();
            let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            let known = value("TYPE").or_else(|| value("PTTYPE")).unwrap_or("something");
            Ok(Content::Known(known.to_owned()))
        }
        Some(2) => Ok(Content::Nothing),
        _ => Err(Status::internal(format!("blkid can't tell what is on {}: {}", device.display(), said(&found)))),
    }
}

/// Whether the device begins with zeros. blkid says of a device that can't be read that nothing is on it, and whoever
/// believed that would format it.
fn begins_empty(device: &Path) -> Outcome<bool> {
    let unread = |error| Status::unavailable(format!("can't read {}: {error}", device.display()));
    let mut bytes = vec![0; EMPTY_BYTES];
    let file = File::open(device).map_err(unread)?;
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], filled as u64).map_err(unread)? {
            0 => break,
            more => filled += more,
        }
    }
    if filled == 0 {
        return Err(Status::unavailable(format!("{} is empty: has it no size yet?", device.display())));
    }
    Ok(bytes[..filled].iter().all(|byte| *byte == 0))
}

/// Makes sure that the file system is on the device. It is made only where nothing is.
pub(super) fn ensure(device: &Path, wanted: Filesystem, read_only: bool, formatting: &Formatting<'_>) -> Outcome<()> {
    let interrupted = formatting.was_interrupted();
    match content(device)? {
        Content::Known(known) if !interrupted && known == wanted.word() => {
            return if read_only { Ok(()) } else { check(device, wanted) };
        }
        Content::Known(known) if !interrupted => {
            return Err(Status::failed_precondition(format!(
                "the volume has {known} on it, and {} is wanted: nothing is formatted that has something on it. Ask for \
                 {known}, or delete what is there (wipefs)",
                wanted.word()
            )));
        }
        _ => {}
    }
    if read_only {
        return Err(Status::failed_precondition(
            "the volume has no file system yet, and is to be read only: mount it once to write",
        ));
    }
    if !interrupted && !begins_empty(device)? {
        return Err(Status::failed_precondition(format!(
            "the volume has something on it that is no file system which blkid knows: it is not formatted. If that is \
             worth nothing, delete its first {EMPTY_BYTES} bytes, or the volume"
        )));
    }
    let noted = |error| Status::internal(format!("can't write {}: {error}", formatting.note.display()));
    formatting.begin().map_err(noted)?;
    make_or_erase(device, formatting, || make(device, wanted, interrupted))?;
    formatting.end().map_err(noted)
}

/// A file system that could not be made leaves nothing behind that would be taken for data: the note counts on this
/// machine and for this attachment alone, and the next one would refuse the volume for ever. Where its beginning can't
/// be made zeros, the note stays, and all is made again.
fn make_or_erase(device: &Path, formatting: &Formatting<'_>, make: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    make().inspect_err(|_| {
        let erased = erase(device).and_then(|()| formatting.end());
        if let Err(error) = erased {
            tracing::warn!("what was begun on {} is not erased: {error}", device.display());
        }
    })
}

/// Makes the device begin with zeros, which are on the volume then. Not one that the kernel has for something.
fn erase(device: &Path) -> std::io::Result<()> {
    let is_device = fs::metadata(device)?.file_type().is_block_device();
    let flags = if is_device { rustix::fs::OFlags::EXCL } else { rustix::fs::OFlags::empty() };
    let file = fs::OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(device)?;
    let bytes = (&file).seek(SeekFrom::End(0))?.min(EMPTY_BYTES as u64);
    file.write_all_at(&vec![0; bytes as usize], 0)?;
    file.sync_all()
}

fn make(device: &Path, wanted: Filesystem, again: bool) -> Outcome<()> {
    // Blocks that were never written need no discards. mkfs itself refuses what has a signature, unless it is made
    // again. Whatever size of sectors the device has here, it may have 4 KiB where the volume is used next.
    let (program, options, force): (_, &[&str], _) = match wanted {
        Filesystem::Ext4 => ("mkfs.ext4", &["-q", "-m", "0", "-b", "4096", "-E", "nodiscard"], "-F"),
        Filesystem::Xfs => ("mkfs.xfs", &["-q", "-K", "-s", "size=4096"], "-f"),
        Filesystem::Btrfs => ("mkfs.btrfs", &["-q", "--nodiscard", "-s", "4096"], "-f"),
    };
    let mut arguments: Vec<&std::ffi::OsStr> = options.iter().map(std::ffi::OsStr::new).collect();
    if again {
        arguments.push(force.as_ref());
    }
    arguments.push(device.as_os_str());
    run(&format!("formatting {}", device.display()), program, arguments).map(|_| ())
}

/// Repairs what can be repaired without a question; makes an ext4 as large as its device, for which it needs more
/// rights once it is mounted.
fn check(device: &Path, filesystem: Filesystem) -> Outcome<()> {
    if filesystem != Filesystem::Ext4 {
        // They look after themselves when they are mounted.
        return Ok(());
    }
    let fsck = |options: &[&str]| {
        let arguments = options.iter().map(std::ffi::OsStr::new).chain([device.as_os_str()]);
        let ended = output("e2fsck", arguments)?;
        // 1 and 2: it has repaired something (e2fsck(8)).
        if ended.status.code().is_some_and(|code| code < 4) {
            return Ok(());
        }
        let reason = format!("the file system needs a person: e2fsck -f {}: {}", device.display(), said(&ended));
        Err(Status::internal(reason))
    };
    fsck(&["-p"])?;
    let bytes = super::machine::size(device)?;
    if ext4_bytes(device)?.saturating_add(GROW_FROM_BYTES) > bytes {
        return Ok(());
    }
    fsck(&["-f", "-p"])?;
    run("growing the file system", "resize2fs", [device]).map(|_| ())
}

fn ext4_bytes(device: &Path) -> Outcome<u64> {
    let text = run("asking for the size of the file system", "dumpe2fs", ["-h".as_ref(), device.as_os_str()])?;
    let number = |name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
    };
    let bytes = number("Block count").zip(number("Block size")).map(|(count, size)| count.saturating_mul(size));
    bytes.ok_or_else(|| Status::internal(format!("dumpe2fs does not tell the size of {}", device.display())))
}

/// Makes a mounted file system as large as its device.
pub(super) fn grow(device: &Path, filesystem: &str, point: &Path) -> Outcome<()> {
    let doing = format!("growing the file system at {}", point.display());
    let done = match filesystem {
        "ext4" => run(&doing, "resize2fs", [device]),
        "xfs" => run(&doing, "xfs_growfs", [point]),
        "btrfs" => {
            let words = ["filesystem", "resize", "max"].map(std::ffi::OsStr::new);
            run(&doing, "btrfs", words.into_iter().chain([point.as_os_str()]))
        }
        other => return Err(Status::internal(format!("{doing}: it is {other}, which this driver did not make"))),
    };
    done.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_counts_for_one_attachment() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("formatting");
        let of = |what: &str| Formatting { note: &note, what: what.to_owned() };
        assert!(!of("uuid 7").was_interrupted());
        of("uuid 7").begin().unwrap();
        assert!(of("uuid 7").was_interrupted());
        assert!(!of("uuid 8").was_interrupted());
        of("uuid 7").end().unwrap();
        of("uuid 7").end().unwrap();
        assert!(!of("uuid 7").was_interrupted());
    }

    #[test]
    fn only_zeros_are_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        fs::write(&path, vec![0; 2 * EMPTY_BYTES]).unwrap();
        assert!(begins_empty(&path).unwrap());
        let mut bytes = vec![0; EMPTY_BYTES];
        bytes[EMPTY_BYTES - 1] = 1;
        fs::write(&path, bytes).unwrap();
        assert!(!begins_empty(&path).unwrap());
        fs::write(&path, b"").unwrap();
        assert_eq!(begins_empty(&path).unwrap_err().code(), tonic::Code::Unavailable);
        assert_eq!(begins_empty(&folder.path().join("none")).unwrap_err().code(), tonic::Code::Unavailable);
    }

    #[test]
    fn a_failed_mkfs_leaves_zeros_and_no_note() {
        let folder = tempfile::tempdir().unwrap();
        let (device, note) = (folder.path().join("device"), folder.path().join("formatting"));
        let size = 2 * EMPTY_BYTES;
        fs::write(&device, vec![0; size]).unwrap();
        let formatting = Formatting { note: &note, what: "uuid 7".to_owned() };
        formatting.begin().unwrap();
        let fails = || {
            fs::write(&device, vec![7; size]).unwrap();
            Err(Status::internal("mkfs has ended"))
        };
        assert_eq!(make_or_erase(&device, &formatting, fails).unwrap_err().message(), "mkfs has ended");
        assert!(begins_empty(&device).unwrap(), "the next attachment would not format it");
        assert!(!formatting.was_interrupted());
        assert_eq!(fs::metadata(&device).unwrap().len(), size as u64);
        // What can't be erased is made again.
        formatting.begin().unwrap();
        let gone = folder.path().join("gone");
        make_or_erase(&gone, &formatting, || Err(Status::internal("no device"))).unwrap_err();
        assert!(formatting.was_interrupted());
    }
}
