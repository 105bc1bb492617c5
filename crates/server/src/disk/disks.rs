//! Disks that are given to a node (`--disk`): which ones they are, by which name they are found again, and that nothing
//! is lost when one is taken.
//!
//! A disk is taken only when its first and its last [`LABEL_BYTES`] are zeros: partition tables, file systems, RAID,
//! LVM and ZFS have their labels there. `blkid` says what is on another one; what it does not know is left alone, too.

use crate::disk::device::LogFile;
use crate::disk::holders;
use crate::disk::room;
use anyhow::{Context, Result, bail, ensure};
use azekura_base::{PageBuf, Size};
use azekura_store::{Inspector, OpenError};
use rustix::fs::FallocateFlags;
use std::collections::BTreeSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes at either end of a disk that have to be zeros, and that a wipe makes zeros.
pub const LABEL_BYTES: u64 = 4 << 20;
/// Bytes read or written with one call.
const STEP_BYTES: usize = 1 << 20;
/// How long a disk may be held by somebody before it counts as in use.
const HELD_PATIENCE: Duration = Duration::from_millis(300);
/// So often is it tried.
const HELD_INTERVAL: Duration = Duration::from_millis(10);
/// Names that stay when disks are added and removed, the best first.
const LASTING: [&str; 4] = ["nvme-eui.", "wwn-", "nvme-", ""];

/// A disk that a node may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// A name that stays, if there is one.
    pub path: PathBuf,
    /// The kernel's number of it, which tells two names of one disk.
    number: u64,
    /// It was asked for by its own name, not by a pattern.
    pub named: bool,
}

/// The disks that these paths and patterns mean, each once, in their order. A pattern means whole disks only: a
/// partition has to be named.
///
/// # Errors
/// When a pattern can't be understood.
pub fn find(patterns: &[String]) -> Result<Vec<Disk>> {
    let (mut disks, mut seen) = (Vec::new(), BTreeSet::new());
    for pattern in patterns {
        let named = !pattern.contains(['*', '?', '[']);
        let paths: Vec<PathBuf> = if named {
            vec![pattern.into()]
        } else {
            let found = glob::glob(pattern).with_context(|| format!("--disk {pattern} is no pattern"))?;
            found.filter_map(Result::ok).collect()
        };
        for path in paths {
            let number = block_device(&path).map(|file| file.rdev());
            let wanted = named || number.is_some_and(|number| !is_partition(number) && has_room(&path));
            // One that is named and not there is found out when it is opened.
            if wanted && number.is_none_or(|number| seen.insert(number)) {
                let path = number.and_then(|number| lasting_name(&path, number)).unwrap_or(path);
                disks.push(Disk { path, number: number.unwrap_or_default(), named });
            }
        }
    }
    Ok(disks)
}

impl Disk {
    /// This path leads to the disk.
    #[must_use]
    pub fn is(&self, path: &Path) -> bool {
        block_device(path).is_some_and(|file| file.rdev() == self.number)
            || std::fs::read_link(path).is_ok_and(|target| target == self.path)
    }
}

/// What is known of a path that leads to a block device.
pub fn block_device(path: &Path) -> Option<Metadata> {
    std::fs::metadata(path).ok().filter(|file| file.file_type().is_block_device())
}

fn system(number: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number)).into()
}

fn is_partition(number: u64) -> bool {
    system(number).join("partition").exists()
}

/// Names of a disk's partitions, and of what was made of it (RAID, LVM, multipath).
fn users(number: u64) -> Vec<String> {
    let names = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let partitions = names(system(number)).into_iter().filter(|path| path.join("partition").exists());
    let holders = names(system(number).join("holders"));
    let name = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    partitions.chain(holders).filter_map(name).collect()
}

/// Card readers and loop devices without anything in them are not meant by any pattern.
fn has_room(path: &Path) -> bool {
    File::open(path).and_then(|file| size(&file)).is_ok_and(|bytes| bytes >= room::SIZE_MIN)
}

/// A name of the disk that does not change with the order in which the kernel finds disks.
fn lasting_name(path: &Path, number: u64) -> Option<PathBuf> {
    if path.starts_with("/dev/disk") {
        return None;
    }
    let entries = std::fs::read_dir("/dev/disk/by-id").ok()?.flatten();
    let same = |path: &PathBuf| block_device(path).is_some_and(|file| file.rdev() == number);
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(same).collect();
    names.sort();
    let starts = |path: &&PathBuf, with: &str| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(with))
    };
    LASTING.iter().find_map(|with| names.iter().find(|path| starts(path, with)).cloned())
}

/// Bytes of a disk.
fn size(file: &File) -> std::io::Result<u64> {
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

/// Opens a disk that nobody else uses.
fn claim(path: &Path, write: bool) -> Result<File> {
    let file = std::fs::metadata(path).with_context(|| format!("there is no disk {}", path.display()))?;
    ensure!(
        file.file_type().is_block_device(),
        "{} is no block device: --disk takes disks and partitions; --device-size makes a device of a file in the data folder",
        path.display()
    );
    let mut opening = OpenOptions::new();
    opening.read(true).write(write).custom_flags(libc::O_EXCL | libc::O_DIRECT);
    // A child that has been forked and has not become another program yet (blkid) holds what is open here.
    let is_held =
        |opened: &std::io::Result<File>| opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY));
    let mut opened = opening.open(path);
    let deadline = Instant::now() + HELD_PATIENCE;
    while is_held(&opened) && Instant::now() < deadline {
        std::thread::sleep(HELD_INTERVAL);
        opened = opening.open(path);
    }
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => anyhow::anyhow!(
            "{} is in use: it, or a part of it, is mounted, belongs to a RAID or LVM, or another program has it{}",
            path.display(),
            listed(&holders::all(Path::new("/proc"), file.rdev(), users(file.rdev())))
        ),
        _ => anyhow::Error::new(error).context(format!("can't open {}", path.display())),
    })
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

/// Where the labels of a disk of so many bytes are.
fn label_areas(bytes: u64) -> Vec<(u64, u64)> {
    let start = bytes.saturating_sub(LABEL_BYTES).max(LABEL_BYTES.min(bytes));
    vec![(0, LABEL_BYTES.min(bytes)), (start, bytes)]
}

/// Calls `step` with the offset and length of each piece of the areas where labels are.
fn each_piece(bytes: u64, mut step: impl FnMut(u64, usize) -> Result<bool>) -> Result<bool> {
    for (mut at, end) in label_areas(bytes) {
        while at < end {
            let len = (end - at).min(STEP_BYTES as u64) as usize;
            if !step(at, len)? {
                return Ok(false);
            }
            at += len as u64;
        }
    }
    Ok(true)
}

/// The device of Azekura's that is on the disk.
fn azekura_device(path: &Path) -> Option<String> {
    let log = Inspector::open(LogFile(File::open(path).ok()?));
    match log {
        Ok(log) => {
            let identity = log.identity();
            Some(format!("device {} of the Azekura cluster {:032x}", identity.device, identity.cluster))
        }
        Err(OpenError::NotFormatted) => None,
        Err(error) => Some(format!("a damaged device of Azekura ({error})")),
    }
}

/// What blkid calls that which is on the disk.
fn foreign_label(path: &Path) -> Option<String> {
    let output = Command::new("blkid").args(["-p", "-o", "export"]).arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
    match output.status.code() {
        // Several labels contradict each other.
        Some(8) => Some("several labels (wipefs lists them)".to_owned()),
        _ => value("TYPE").or_else(|| value("PTTYPE").map(|kind| format!("a partition table ({kind})"))),
    }
}

/// What is on a disk that nobody uses; `None`: nothing.
///
/// # Errors
/// When it is in use or can't be read.
pub fn content(path: &Path) -> Result<Option<String>> {
    content_of(path, &claim(path, false)?)
}

fn content_of(path: &Path, disk: &File) -> Result<Option<String>> {
    let bytes = size(disk).with_context(|| format!("can't tell the size of {}", path.display()))?;
    let number = disk.metadata()?.rdev();
    let partitions = users(number);
    if !partitions.is_empty() {
        return Ok(Some(format!("partitions{}", listed(&partitions))));
    }
    if let Some(label) = azekura_device(path).or_else(|| foreign_label(path)) {
        return Ok(Some(label));
    }
    let is_zero = each_piece(bytes, |at, len| {
        let mut piece = PageBuf::new(len);
        disk.read_exact_at(&mut piece, at).with_context(|| format!("can't read {}", path.display()))?;
        Ok(piece.iter().all(|byte| *byte == 0))
    })?;
    Ok((!is_zero).then(|| "data of an unknown kind".to_owned()))
}

/// Takes a disk that nothing is on: as long as the answered file is open no other process takes it, nor does the kernel
/// mount it. Who is to write it keeps the file until there is something on the disk that others leave alone.
///
/// # Errors
/// When there is something on it, it is in use, or too small, or can't be read or written.
pub fn claim_blank(path: &Path) -> Result<File> {
    let disk = claim(path, true)?;
    // The claim keeps out who asks for one. Others, such as dd, may write all the same; losetup only looks.
    let number = disk.metadata()?.rdev();
    let deadline = Instant::now() + HELD_PATIENCE;
    while let Some(program) = holders::writer(Path::new("/proc"), number) {
        ensure!(Instant::now() < deadline, "{} is in use: {program} has it open to write", path.display());
        std::thread::sleep(HELD_INTERVAL);
    }
    if let Some(found) = content_of(path, &disk)? {
        bail!(
            "{} is not taken: there is {found} on it. If nobody needs that any more, 'azekura store wipe {}' removes it",
            path.display(),
            path.display()
        )
    }
    let bytes = size(&disk)?;
    ensure!(
        bytes >= room::SIZE_MIN,
        "{} has {}: at least {} are needed",
        path.display(),
        Size::new(bytes),
        Size::new(room::SIZE_MIN)
    );
    Ok(disk)
}

/// Bytes of a disk that may be taken.
///
/// # Errors
/// As [`claim_blank`].
pub fn check_blank(path: &Path) -> Result<u64> {
    let disk = claim_blank(path)?;
    size(&disk).with_context(|| format!("can't tell the size of {}", path.display()))
}

/// Makes a disk blank: the areas where labels are become zeros, and what lies between is discarded where the disk can
/// do that.
///
/// # Errors
/// When the disk is in use, has partitions in use, or can't be written.
pub fn wipe(path: &Path) -> Result<()> {
    let disk = claim(path, true)?;
    let bytes = size(&disk)?;
    // A hint for the disk's own housekeeping, which it may ignore.
    let discard = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE | FallocateFlags::NO_HIDE_STALE;
    let _ = rustix::fs::fallocate(&disk, discard, 0, bytes);
    each_piece(bytes, |at, len| {
        disk.write_all_at(&PageBuf::zeroed(len), at).with_context(|| format!("can't write {}", path.display()))?;
        Ok(true)
    })?;
    disk.sync_all().with_context(|| format!("can't flush {}", path.display()))?;
    drop(disk);
    // The kernel forgets the partitions when it reads the table anew, which it does when the disk is closed by whoever
    // has written it and asks for that.
    let _ = Command::new("blockdev").arg("--rereadpt").arg(path).output();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::device::DeviceDir;
    use azekura_base::DeviceId;
    use azekura_store::Identity;

    #[test]
    fn labels_are_at_both_ends() {
        assert_eq!(label_areas(100 << 20), [(0, 4 << 20), (96 << 20, 100 << 20)]);
        assert_eq!(label_areas(6 << 20), [(0, 4 << 20), (4 << 20, 6 << 20)]);
        assert_eq!(label_areas(1 << 20), [(0, 1 << 20), (1 << 20, 1 << 20)]);
        let mut pieces = Vec::new();
        let all = each_piece((9 << 20) + 512, |at, len| {
            pieces.push((at, len));
            Ok(true)
        });
        assert!(all.unwrap());
        assert_eq!(pieces.iter().map(|(_, len)| len).sum::<usize>(), 8 << 20);
        assert_eq!(pieces.last().map(|(at, len)| at + *len as u64), Some((9 << 20) + 512));
    }

    #[test]
    fn what_is_no_disk_is_not_taken() {
        let folder = std::env::temp_dir().join(format!("azekura-disks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("file");
        std::fs::File::create(&file).unwrap().set_len(1 << 30).unwrap();
        let error = check_blank(&file).unwrap_err().to_string();
        assert!(error.contains("is no block device") && error.contains("--device-size"), "{error}");
        let error = format!("{:#}", check_blank(&folder.join("none")).unwrap_err());
        assert!(error.contains("there is no disk"), "{error}");
        // A pattern takes no files; a name stays, so that its fault is told.
        assert_eq!(find(&[format!("{}/*", folder.display())]).unwrap(), []);
        let named = find(&[file.display().to_string()]).unwrap();
        assert!(named.len() == 1 && named[0].named, "{named:?}");
        assert!(find(&["[".to_owned()]).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A block device of a file, while it lives.
    struct Loop(PathBuf, #[expect(dead_code, reason = "its end removes the file")] tempfile::TempDir);

    impl Loop {
        /// `None` where this process may not make one.
        fn new(bytes: u64) -> Option<Loop> {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("disk");
            File::create(&file).unwrap().set_len(bytes).unwrap();
            let made =
                Command::new("losetup").args(["--find", "--show", "--sector-size=4096"]).arg(&file).output().ok()?;
            let name = String::from_utf8_lossy(&made.stdout).trim().to_owned();
            made.status.success().then(|| Loop(name.into(), folder))
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = Command::new("losetup").arg("--detach").arg(&self.0).output();
        }
    }

    #[test]
    fn a_blank_disk_is_nobody_elses_while_it_is_claimed() {
        let Some(disk) = Loop::new(room::SIZE_MIN) else { return };
        let claimed = claim_blank(&disk.0).unwrap();
        let error = claim_blank(&disk.0).unwrap_err().to_string();
        let own = format!("process {}", std::process::id());
        assert!(error.contains("is in use") && error.contains(&own), "{error}");
        drop(claimed);
        assert_eq!(check_blank(&disk.0).unwrap(), room::SIZE_MIN);
    }

    #[test]
    fn a_disk_that_another_process_writes_is_refused_with_its_name() {
        let Some(disk) = Loop::new(room::SIZE_MIN) else { return };
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec 3<>\"$0\"; echo; exec sleep 60"]).arg(&disk.0);
        let mut writer = shell.stdout(std::process::Stdio::piped()).spawn().unwrap();
        std::io::Read::read_exact(writer.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let error = check_blank(&disk.0).map_err(|error| error.to_string());
        writer.kill().unwrap();
        writer.wait().unwrap();
        let error = error.unwrap_err();
        assert!(error.contains(&format!("process {} (s", writer.id())), "{error}");
        check_blank(&disk.0).unwrap();
    }

    #[test]
    fn a_disk_stays_claimed_until_it_is_formatted() {
        let Some(disk) = Loop::new(room::SIZE_MIN) else { return };
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| DeviceDir::create_on_disk(&folder.path().join(name), &disk.0).unwrap();
        let (first, second) = (make("device-0"), make("device-1"));
        let identity = |dir: &DeviceDir| Identity { cluster: 1, device: DeviceId(1), instance: dir.file.instance };
        let held = first.check_disk(&identity(&first)).unwrap();
        assert!(held.is_some());
        let error = second.check_disk(&identity(&second)).unwrap_err().to_string();
        assert!(error.contains("is in use"), "{error}");
        drop(held);
        assert!(second.check_disk(&identity(&second)).unwrap().is_some());
    }
}
