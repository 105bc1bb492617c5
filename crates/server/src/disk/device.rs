//! A device's folder: `device.json` (who it is), `log` (the store's log), `map.redb` (its saved map).
//!
//! The log is a file, or a symbolic link to a disk that the device has to itself (`disks.rs`).
//!
//! A new log file is allocated but not yet written: its first writes would make the file system change its own
//! metadata at every flush. So segments are written with zeros once, in order (`initialise.rs`), and the store uses
//! only those that have been.

use crate::disk::disks;
use crate::disk::files::{self, write_json};
use crate::disk::memory::{open_map, read_cache_bytes};
use crate::disk::room;
use crate::disk::segments::{is_written, write_zeros};
use crate::random;
use anyhow::{Context, Result, anyhow, bail, ensure};
use azekura_base::{DeviceId, PageBuf};
use azekura_map_db::CheckpointDb;
use azekura_store::{
    DeviceError, Identity, Initialisation, Inspector, MapError, OpenError, Options, ReadDevice, SavedMap, Store,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Segments that are initialised before a new device opens; the others follow while it is in use.
const FIRST_SEGMENTS: u32 = 8;
/// What of a device can be used: block addresses reach no further.
const SIZE_MAX: u64 = 16 << 40;
/// How long a disk may be missing while a machine starts.
const DISK_PATIENCE: Duration = Duration::from_secs(60);
/// So often is looked for it.
const DISK_INTERVAL: Duration = Duration::from_millis(500);

/// Who a device is, kept beside its log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceFile {
    /// Version of this file's format.
    pub version: u32,
    /// The device's own identity.
    pub uuid: String,
    /// The cluster, as 32 hexadecimal digits; `None` before it has joined one.
    pub cluster: Option<String>,
    /// Its number in the cluster.
    pub id: Option<DeviceId>,
    /// Bytes of the log.
    pub size: u64,
    /// Distinguishes this log from an earlier one in the same place.
    pub instance: u64,
    /// Segments whose blocks have been written at least once.
    pub segments_ready: u32,
    /// The log is a disk of the device's own, and a link leads there.
    #[serde(default)]
    pub disk: bool,
}

/// What a device held is gone for good.
#[derive(Debug)]
pub struct DeviceLost(String);

impl fmt::Display for DeviceLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DeviceLost {}

/// What is missing of a device whose node would take it for lost, and what to do; `None` where that can't be told
/// without opening it.
#[must_use]
pub fn loss(folder: &Path) -> Option<String> {
    let lost = DeviceDir::open(folder).ok()?.check_presence().err()?;
    let lost = lost.downcast::<DeviceLost>().ok()?;
    Some(format!(
        "{lost}: the copies on this device are lost. Start its node all the same, so that they are made anew from the others, \
         and replace the device (docs/removing.md); or put the whole folder back from before the file was cut"
    ))
}

/// A device's log file.
pub struct LogFile(pub File);

impl ReadDevice for LogFile {
    fn read(&self, offset: u64, len: usize) -> Result<Bytes, DeviceError> {
        let mut bytes = PageBuf::new(len);
        self.0.read_exact_at(&mut bytes, offset).map_err(|error| DeviceError(error.to_string()))?;
        Ok(bytes.freeze())
    }
}

/// What the command line says about every device.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Writes have to be flushed.
    pub flush: bool,
    /// Blocks that a large read finds scattered are put together.
    pub gathers: bool,
    /// Memory for the map, in bytes.
    pub map_bytes: u64,
}

/// A device's folder, opened by this process.
pub struct DeviceDir {
    path: PathBuf,
    /// What `device.json` says.
    pub file: DeviceFile,
}

impl DeviceDir {
    /// Opens the folder of an existing device.
    ///
    /// # Errors
    /// When its `device.json` can't be read.
    pub fn open(path: &Path) -> Result<DeviceDir> {
        let json = path.join("device.json");
        let text = std::fs::read_to_string(&json).with_context(|| format!("can't read {}", json.display()))?;
        let file: DeviceFile = serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged; restore it from a backup or remove the device", json.display()))?;
        ensure!(file.version == 1, "{} has version {}, this program knows 1", json.display(), file.version);
        Ok(DeviceDir { path: path.to_owned(), file })
    }

    /// Opens the folder of a device; makes one of `size` bytes, if that is said, of a folder that was only begun.
    ///
    /// # Errors
    /// As [`DeviceDir::open`] and [`DeviceDir::create`].
    pub fn open_or_finish(path: &Path, size: Option<u64>) -> Result<DeviceDir> {
        let begun = missing(&path.join("device.json")) && missing(&path.join("map.redb"));
        let disk = std::fs::read_link(path.join("log")).ok().filter(|disk| disks::block_device(disk).is_some());
        match (disk, size) {
            (Some(disk), _) if begun => DeviceDir::create_on_disk(path, &disk),
            (None, Some(size)) if DeviceDir::is_unfinished(path) => DeviceDir::create(path, size),
            _ => DeviceDir::open(path),
        }
    }

    /// Somebody began to make this device and was stopped, or has made the folder only.
    #[must_use]
    pub fn is_unfinished(path: &Path) -> bool {
        let empty = || std::fs::metadata(path.join("log")).is_ok_and(|log| log.len() == 0);
        let unformatted = || {
            let log = File::open(path.join("log")).map(|log| Inspector::open(LogFile(log)));
            matches!(log, Ok(Err(OpenError::NotFormatted)))
        };
        missing(&path.join("device.json"))
            && missing(&path.join("map.redb"))
            && (missing(&path.join("log")) || empty() || unformatted())
    }

    /// Makes the folder of a new device of `size` bytes, of which 16 TiB are used at most.
    ///
    /// # Errors
    /// When the size is too small, there is no room for it, or the folder can't be made: what was begun is removed.
    pub fn create(path: &Path, size: u64) -> Result<DeviceDir> {
        room::check_size(size)?;
        if size > SIZE_MAX {
            tracing::warn!(
                device = path.file_name().and_then(OsStr::to_str),
                "{} uses 16 TiB of the {} GiB that it may have: more devices (--devices) use the rest",
                path.display(),
                size >> 30
            );
        }
        or_nothing(path, DeviceDir::begin(path, size.min(SIZE_MAX)))
    }

    /// Makes the folder of a new device on a blank disk, of which 16 TiB are used at most.
    ///
    /// # Errors
    /// When the disk is not blank, in use, or too small, there is no room for its map, or the folder can't be made:
    /// what was begun is removed, and nothing has been written to the disk.
    pub fn create_on_disk(path: &Path, disk: &Path) -> Result<DeviceDir> {
        or_nothing(path, DeviceDir::begin_on_disk(path, disk))
    }

    fn begin_on_disk(path: &Path, disk: &Path) -> Result<DeviceDir> {
        let size = disks::check_blank(disk)?;
        if size > SIZE_MAX {
            tracing::warn!(
                device = path.file_name().and_then(OsStr::to_str),
                "of {} 16 TiB are used: make partitions to use the rest",
                disk.display()
            );
        }
        let size = size.min(SIZE_MAX);
        room::check_map(path, size)?;
        std::fs::create_dir_all(path).with_context(|| format!("can't make {}", path.display()))?;
        let log = path.join("log");
        match std::os::unix::fs::symlink(disk, &log) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.with_context(|| format!("can't make {}", log.display()))?,
        }
        // A disk's blocks are there: none has to be written before it is used.
        let segments_ready = Options::for_device(size).segments;
        DeviceDir::found(path, size, segments_ready, true)
    }

    fn begin(path: &Path, size: u64) -> Result<DeviceDir> {
        std::fs::create_dir_all(path).with_context(|| format!("can't make {}", path.display()))?;
        let log = path.join("log");
        // Of an earlier try nothing is worth keeping; what it took is free then.
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&log)?;
        room::check(path, size, 1)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size)
            .with_context(|| format!("can't allocate {} MiB for {}", size >> 20, log.display()))?;
        file.sync_all()?;
        DeviceDir::found(path, size, 0, false)
    }

    /// Gives a new device its identity.
    fn found(path: &Path, size: u64, segments_ready: u32, disk: bool) -> Result<DeviceDir> {
        if let Some(parent) = path.parent() {
            files::sync_folder(parent).with_context(|| format!("can't flush {}", parent.display()))?;
        }
        let uuid = random::bits();
        let file = DeviceFile {
            version: 1,
            uuid: format!("{uuid:032x}"),
            cluster: None,
            id: None,
            size,
            instance: random::bits() as u64,
            segments_ready,
            disk,
        };
        let dir = DeviceDir { path: path.to_owned(), file };
        dir.save()?;
        Ok(dir)
    }

    pub(super) fn save(&self) -> Result<()> {
        write_json(&self.path.join("device.json"), &self.file)
    }

    /// The log file.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.path.join("log")
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The geometry of its store, with the usual limits.
    #[must_use]
    pub fn options(&self) -> Options {
        Options::for_device(self.file.size)
    }

    /// Refuses another cluster than the one that the device belongs to.
    ///
    /// # Errors
    /// Names both clusters.
    pub fn check_cluster(&self, cluster: u128) -> Result<()> {
        let hex = format!("{cluster:032x}");
        match &self.file.cluster {
            Some(other) if *other != hex => bail!(
                "the device {} belongs to cluster {other}, this one is {hex}; give the node another data folder",
                self.path.display()
            ),
            _ => Ok(()),
        }
    }

    /// Opens the store; formats it first if it never was.
    ///
    /// # Errors
    /// When the device belongs to another cluster, or can't be read or written; `DeviceLost` when the log or the map
    /// that it had is not there.
    pub fn open_store(&mut self, cluster: u128, id: DeviceId, limits: Limits) -> Result<(Store, CheckpointDb)> {
        let hex = format!("{cluster:032x}");
        self.check_cluster(cluster)?;
        match self.file.id {
            Some(other) if other != id => bail!(
                "device {} is number {other} of its cluster, the configuration says {id}: it was taken in after the backup was \
                 made that the configuration was restored from. Its copies are not used; move the folder away to start with \
                 an empty device",
                self.path.display()
            ),
            _ => {}
        }
        let leaf_cache_bytes_max = usize::try_from(limits.map_bytes).unwrap_or(usize::MAX);
        let read_cache_bytes_max = read_cache_bytes(limits.map_bytes);
        let options = Options { flush: limits.flush, leaf_cache_bytes_max, read_cache_bytes_max, ..self.options() };
        let options = if limits.gathers { options } else { Options { gathered_read_blocks_min: 0, ..options } };
        let identity = Identity { cluster, device: id, instance: self.file.instance };
        let map_path = self.path.join("map.redb");
        // Held until it is formatted: else two processes could find it blank, and both format it.
        let claimed = if self.file.disk { self.check_disk(&identity)? } else { None };
        let formatted = self.file.cluster.is_some() || self.is_in_use(&identity)?;
        if formatted {
            self.check_presence()?;
        }
        let mut map = open_map(&map_path, limits.map_bytes).map_err(|error| self.map_error("open", &error))?;
        let log = claimed.map_or_else(|| self.log(), Ok)?;
        match room::reserve_map(&map_path, self.file.size) {
            Err(error) if formatted => tracing::warn!(
                device = %id,
                "no room could be reserved for the map {}: {error}; if the file system gets full, the device stops to take writes",
                map_path.display()
            ),
            reserved => reserved.with_context(|| format!("can't reserve room for the map {}", map_path.display()))?,
        }
        if !formatted {
            let format = Store::format(&options, &identity).context("can't format the device")?;
            if !self.file.disk {
                let first = FIRST_SEGMENTS.min(options.segments);
                (0..first).try_for_each(|segment| write_zeros(&log, segment, &options, drop))?;
                log.sync_data().context("can't flush the device")?;
                self.file.segments_ready = first;
            }
            write_all(&log, format.offset, &format.pieces)?;
            log.sync_all()?;
            map.checkpoint(format.checkpoint).context("can't write the map")?;
        }
        let known = (self.file.cluster.is_some(), self.file.segments_ready);
        // `device.json` may be older than the log.
        while self.file.segments_ready < options.segments && is_written(&log, self.file.segments_ready, &options)? {
            self.file.segments_ready += 1;
        }
        (self.file.cluster, self.file.id) = (Some(hex), Some(id));
        if known != (true, self.file.segments_ready) {
            match self.save() {
                // What it would say is found out at each start.
                Err(error) if formatted => tracing::warn!(device = %id, "{error:#}; the device is opened all the same"),
                saved => saved?,
            }
        }
        let root = map.root().map_err(|error| self.map_error("read", &error))?.with_context(|| {
            let what = format!("the map {} is empty although the device was formatted", map_path.display());
            DeviceLost(format!("{what}; {}", self.way_out()))
        })?;
        let mut store = Store::open(options, identity, root);
        store.segments_ready(self.file.segments_ready, Initialisation::GoesOn);
        let unproven = store.groups().filter(|(_, group)| group.unproven).count();
        if unproven > 0 {
            tracing::warn!(
                device = %id,
                "the map of device {id} was made from its log: its copies of {unproven} groups are compared with others \
                 before they count"
            );
        }
        Ok((store, map))
    }

    /// Waits for a disk that appears late, and refuses one that is not this device's: names of disks may change, and
    /// cables be swapped. That loses no copy: the device is out of service until its disk is back. One that is to
    /// be formatted is answered, held against others.
    pub(super) fn check_disk(&self, identity: &Identity) -> Result<Option<File>> {
        let link = self.log_path();
        let path = &std::fs::read_link(&link)
            .with_context(|| format!("{} leads to no disk: make it a link to the device's", link.display()))?;
        let deadline = Instant::now() + DISK_PATIENCE;
        while disks::block_device(path).is_none() {
            ensure!(
                Instant::now() < deadline,
                "there is no disk {}: it has failed, is not connected, or has another name now (then mend the link {})",
                path.display(),
                link.display()
            );
            std::thread::sleep(DISK_INTERVAL);
        }
        let log = File::open(path).with_context(|| format!("can't open {}", path.display()))?;
        match Inspector::open(LogFile(log)) {
            Ok(log) if log.identity() == *identity => Ok(None),
            Ok(log) => bail!(
                "{} is the disk of device {} of cluster {:032x}, and not that of {}: the names of disks were swapped, or this \
                 one was put in its place. Mend the link {}",
                path.display(),
                log.identity().device,
                log.identity().cluster,
                self.path.display(),
                link.display()
            ),
            // It is new; since its folder was made somebody else may have taken it.
            Err(OpenError::NotFormatted) if self.file.cluster.is_none() => disks::claim_blank(path).map(Some),
            Err(error) => Err(error).with_context(|| {
                format!(
                    "{} is not the disk of {}, or its beginning was overwritten",
                    path.display(),
                    self.path.display()
                )
            }),
        }
    }

    /// The device was formatted as this one although `device.json` does not say so: an older one was put back, or it
    /// could not be written. To format the device again would be to lose what it holds, under the number that all know
    /// it by.
    fn is_in_use(&self, identity: &Identity) -> Result<bool> {
        let path = self.log_path();
        let log = File::open(&path).with_context(|| format!("can't open {}", path.display()))?;
        let log = match Inspector::open(LogFile(log)) {
            Ok(log) => log,
            Err(OpenError::NotFormatted) => return Ok(false),
            Err(error) => return Err(error).with_context(|| format!("can't tell whose log {} is", path.display())),
        };
        let Identity { cluster, device, instance } = log.identity();
        ensure!(
            log.identity() == *identity,
            "{} is the log of device {device} of cluster {cluster:032x} (instance {instance}), which {} does not know of: \
             put back the device.json that belongs to it, or move the folder away to start with an empty device",
            path.display(),
            self.path.join("device.json").display()
        );
        let written = log.segment(0).map_err(|error| anyhow::anyhow!("can't read {}: {error}", path.display()))?;
        Ok(!written.batches.is_empty() || self.path.join("map.redb").exists() && self.has_map()?)
    }

    /// What to do about a map that is damaged or gone.
    fn way_out(&self) -> String {
        format!("'azekura store rebuild-map {}' makes a new map from the log", self.path.display())
    }

    fn map_error(&self, doing: &str, error: &MapError) -> anyhow::Error {
        let (map, what) = (self.path.join("map.redb"), error.what());
        match error {
            MapError::Full(_) => anyhow!("can't {doing} the map {}: {what}", map.display()),
            MapError::Failed(_) | MapError::Refused(_) => {
                anyhow!("can't {doing} the map {}: {what}; if it is damaged, {}", map.display(), self.way_out())
            }
        }
    }

    /// The map has a root.
    fn has_map(&self) -> Result<bool> {
        let path = self.path.join("map.redb");
        let map = CheckpointDb::open(&path).map_err(|error| self.map_error("open", &error))?;
        Ok(map.root().map_err(|error| self.map_error("read", &error))?.is_some())
    }

    /// Refuses a device whose log or map is missing or has been cut off.
    ///
    /// # Errors
    /// `DeviceLost` names the file, and how much of it there is.
    pub fn check_presence(&self) -> Result<()> {
        let map = &self.path.join("map.redb");
        for (path, size_min) in [(self.log_path().as_path(), self.file.size), (map.as_path(), 1)] {
            match std::fs::metadata(path) {
                Ok(file) if file.is_file() && file.len() < size_min => {
                    let what = format!("{} has {} bytes, of {size_min}", path.display(), file.len());
                    return Err(self.lost(what, path == map));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(self.lost(format!("{} is not there", path.display()), path == map));
                }
                // Whatever else is wrong shows when it is opened.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn lost(&self, what: String, is_map: bool) -> anyhow::Error {
        DeviceLost(if is_map { format!("{what}; {}", self.way_out()) } else { what }).into()
    }

    /// The log, opened as the store writes it.
    pub(super) fn log(&self) -> Result<File> {
        let path = self.log_path();
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(&path)
            .with_context(|| format!("can't open {}", path.display()))
    }
}

fn missing(path: &Path) -> bool {
    std::fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Removes what was begun of a device that could not be made.
fn or_nothing(path: &Path, made: Result<DeviceDir>) -> Result<DeviceDir> {
    if made.is_err() {
        // Whatever is left is in the way of the next try at most; the first error is the one to tell.
        let _ = std::fs::remove_file(path.join("log"));
        let _ = std::fs::remove_dir(path);
    }
    made
}

fn write_all(file: &File, mut offset: u64, pieces: &[bytes::Bytes]) -> Result<()> {
    for piece in pieces {
        file.write_all_at(piece, offset).context("can't write to the device")?;
        offset += piece.len() as u64;
    }
    Ok(())
}
