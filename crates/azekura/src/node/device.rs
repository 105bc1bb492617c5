//! A device's folder: `device.json` (who it is), `log` (the store's log), `map.redb` (its saved map).
//!
//! A new log file is allocated but not yet written: its first writes would make the file system change its own
//! metadata at every flush. So segments are written with zeros once, in order, by a thread of their own, and the store
//! uses only those that have been.

use super::dataplane::{Command, Handle};
use super::random;
use anyhow::{Context, Result, bail, ensure};
use azekura_base::{BLOCK_SIZE, DeviceId, PageBuf};
use azekura_store::{
    CheckpointDb, DeviceError, Identity, Inspector, OpenError, Options, ReadDevice, SUPERBLOCK_AREA_BLOCKS, SavedMap,
    Store,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Segments that are initialised before a new device opens; the others follow while it is in use.
const FIRST_SEGMENTS: u32 = 8;
/// Segments that are initialised between two notes of how far it is.
const SEGMENTS_PER_NOTE: u32 = 4;
/// Bytes written with one call.
const WRITE_SIZE: usize = 4 << 20;
/// Smallest device.
pub const SIZE_MIN: u64 = 320 << 20;

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

/// A device's log file.
pub struct LogFile(pub File);

impl ReadDevice for LogFile {
    fn read(&self, offset: u64, len: usize) -> Result<Bytes, DeviceError> {
        let mut bytes = PageBuf::new(len);
        self.0.read_exact_at(&mut bytes, offset).map_err(|error| DeviceError(error.to_string()))?;
        Ok(bytes.freeze())
    }
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

    /// Somebody began to make this device and was stopped, or has made the folder only.
    #[must_use]
    pub fn is_unfinished(path: &Path) -> bool {
        let missing = |name| std::fs::metadata(path.join(name)).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let empty = || std::fs::metadata(path.join("log")).is_ok_and(|log| log.len() == 0);
        let unformatted = || {
            let log = File::open(path.join("log")).map(|log| Inspector::open(LogFile(log)));
            matches!(log, Ok(Err(OpenError::NotFormatted)))
        };
        missing("device.json") && missing("map.redb") && (missing("log") || empty() || unformatted())
    }

    /// Makes the folder of a new device of `size` bytes.
    ///
    /// # Errors
    /// When the size is too small, or the folder can't be made.
    pub fn create(path: &Path, size: u64) -> Result<DeviceDir> {
        ensure!(size >= SIZE_MIN, "a device of {size} bytes is too small: at least {} MiB are needed", SIZE_MIN >> 20);
        std::fs::create_dir_all(path).with_context(|| format!("can't make {}", path.display()))?;
        let log = path.join("log");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&log)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size).with_context(|| {
            format!("can't allocate {} MiB for {}; is there room on the file system?", size >> 20, log.display())
        })?;
        file.sync_all()?;
        let uuid = random::bits();
        let file = DeviceFile {
            version: 1,
            uuid: format!("{uuid:032x}"),
            cluster: None,
            id: None,
            size,
            instance: random::bits() as u64,
            segments_ready: 0,
        };
        let dir = DeviceDir { path: path.to_owned(), file };
        dir.save()?;
        Ok(dir)
    }

    fn save(&self) -> Result<()> {
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

    /// Bytes that the store uses.
    #[must_use]
    pub fn options(&self, flush: bool) -> Options {
        Options { flush, ..Options::for_device(self.file.size) }
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
    /// When the device belongs to another cluster, or can't be read or written; [`DeviceLost`] when the log or the map that
    /// it had is not there.
    pub fn open_store(&mut self, cluster: u128, id: DeviceId, flush: bool) -> Result<(Store, CheckpointDb)> {
        let hex = format!("{cluster:032x}");
        self.check_cluster(cluster)?;
        match self.file.id {
            Some(other) if other != id => bail!(
                "device {} is number {other} of its cluster, the configuration says {id}; was the configuration \
                 restored from an older backup?",
                self.path.display()
            ),
            _ => {}
        }
        let options = self.options(flush);
        let identity = Identity { cluster, device: id, instance: self.file.instance };
        let map_path = self.path.join("map.redb");
        let formatted = self.file.cluster.is_some() || self.is_in_use(&identity)?;
        if formatted {
            self.check_presence(&map_path)?;
        }
        let mut map =
            CheckpointDb::open(&map_path).with_context(|| format!("can't open the map {}", map_path.display()))?;
        let log = self.log()?;
        if !formatted {
            let format = Store::format(&options, &identity).context("can't format the device")?;
            let first = FIRST_SEGMENTS.min(options.segments);
            (0..first).try_for_each(|segment| write_zeros(&log, segment, &options))?;
            log.sync_data().context("can't flush the device")?;
            self.file.segments_ready = first;
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
                Err(error) if formatted => tracing::warn!("{error:#}; the device is opened all the same"),
                saved => saved?,
            }
        }
        let root = map.root().context("can't read the map")?.with_context(|| {
            DeviceLost(format!("the map {} is empty although the device was formatted", map_path.display()))
        })?;
        let mut store = Store::open(options, identity, root);
        store.segments_ready(self.file.segments_ready);
        Ok((store, map))
    }

    /// The device was formatted as this one although `device.json` does not say so: an older one was put back, or it could not
    /// be written. To format the device again would be to lose what it holds, under the number that all know it by.
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

    /// The map has a root.
    fn has_map(&self) -> Result<bool> {
        let path = self.path.join("map.redb");
        let map = CheckpointDb::open(&path).with_context(|| format!("can't open the map {}", path.display()))?;
        Ok(map.root().with_context(|| format!("can't read the map {}", path.display()))?.is_some())
    }

    /// Refuses a device whose log or map is missing or has been cut off.
    fn check_presence(&self, map: &Path) -> Result<()> {
        for (path, size_min) in [(self.log_path().as_path(), self.file.size), (map, 1)] {
            match std::fs::metadata(path) {
                Ok(file) if file.is_file() && file.len() < size_min => {
                    let what = format!("{} has {} bytes, of {size_min}", path.display(), file.len());
                    return Err(DeviceLost(what).into());
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(DeviceLost(format!("{} is not there", path.display())).into());
                }
                // Whatever else is wrong shows when it is opened.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn log(&self) -> Result<File> {
        let path = self.log_path();
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(&path)
            .with_context(|| format!("can't open {}", path.display()))
    }

    /// Writes zeros to those of the segments `from..to` that were never written.
    fn initialise(&self, log: &File, from: u32, to: u32, options: &Options) -> Result<()> {
        for segment in from..to {
            // The store uses it already if `device.json` is older than the log.
            if !is_written(log, segment, options)? {
                write_zeros(log, segment, options)?;
            }
        }
        log.sync_data().context("can't flush the device")
    }

    /// Initialises the rest of the log on a thread of its own, which stops when `stop` is set.
    pub fn initialise_rest(mut self, id: DeviceId, data_plane: Handle, stop: Arc<AtomicBool>) {
        let mut work = move || -> Result<()> {
            let options = self.options(true);
            let log = self.log()?;
            while self.file.segments_ready < options.segments && !stop.load(Ordering::Relaxed) {
                let from = self.file.segments_ready;
                let to = (from + SEGMENTS_PER_NOTE).min(options.segments);
                self.initialise(&log, from, to, &options)?;
                self.file.segments_ready = to;
                self.save()?;
                data_plane.send(Command::SegmentsReady(id, to));
            }
            Ok(())
        };
        let run = move || {
            if let Err(error) = work() {
                tracing::error!("device {id}: initialising the log stopped: {error:#}");
            }
        };
        if let Err(error) = std::thread::Builder::new().name(format!("init-{id}")).spawn(run) {
            tracing::error!("device {id}: no thread to initialise the log: {error}");
        }
    }
}

/// Byte offset of a segment's first block.
fn start_of(segment: u32, options: &Options) -> u64 {
    u64::from(SUPERBLOCK_AREA_BLOCKS) * BLOCK_SIZE as u64 + u64::from(segment) * options.segment_bytes()
}

/// A segment has been in use: it begins with a batch.
fn is_written(log: &File, segment: u32, options: &Options) -> Result<bool> {
    let mut block = PageBuf::new(BLOCK_SIZE);
    log.read_exact_at(&mut block, start_of(segment, options)).context("can't read the device")?;
    Ok(block.iter().any(|byte| *byte != 0))
}

fn write_zeros(log: &File, segment: u32, options: &Options) -> Result<()> {
    let zeros = PageBuf::zeroed(WRITE_SIZE);
    let mut at = start_of(segment, options);
    let end = start_of(segment + 1, options);
    while at < end {
        let len = (end - at).min(WRITE_SIZE as u64) as usize;
        log.write_all_at(&zeros[..len], at).context("can't write to the device")?;
        at += len as u64;
    }
    Ok(())
}

fn write_all(file: &File, mut offset: u64, pieces: &[bytes::Bytes]) -> Result<()> {
    for piece in pieces {
        file.write_all_at(piece, offset).context("can't write to the device")?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// Replaces a small file by one with `value` as JSON, durably.
///
/// # Errors
/// When the folder can't be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let temporary = path.with_extension("new");
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    let write = || -> std::io::Result<()> {
        std::fs::write(&temporary, text.as_bytes())?;
        File::open(&temporary)?.sync_all()?;
        std::fs::rename(&temporary, path)?;
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    };
    write().with_context(|| format!("can't write {}", path.display()))
}
