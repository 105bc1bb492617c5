//! Devices: regular files or block devices, read and written past the page cache.

use crate::{
    DEVICE_DEPTH_MAX, DEVICE_READS_MAX, DEVICES_MAX, Event, FileId, Reactor, Stream, Token,
    patience::patiently,
    ring::Operation,
    transfer::{DeviceRead, DeviceWrite, Step},
};
use azekura_base::{BLOCK_SIZE, IoClass, IoQueue};
use bytes::Bytes;
use rustix::{
    fs::{FallocateFlags, FlockOperation},
    io::Errno,
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom},
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::Path,
};

/// The largest read in bytes: what one page buffer holds.
const READ_MAX: usize = 64 << 20;

/// How to open a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceOptions {
    /// Make the file when it isn't there.
    pub create: bool,
    /// Allocate a regular file up to this many bytes when it is shorter. Space that was reserved before is kept.
    pub size: Option<u64>,
}

/// A block device or regular file that is opened for direct I/O and locked, for this process alone: what a [`Reactor`]
/// takes in without waiting.
#[derive(Debug)]
pub struct DeviceFile(File);

impl DeviceFile {
    /// Opens and locks it. That may take seconds, while a predecessor's hold on it ends.
    ///
    /// # Errors
    /// When it is not there, is in use by another process (or opened twice by this one), lies on a file system without
    /// direct I/O, or can't be allocated to the wanted size.
    pub fn open(path: &Path, options: DeviceOptions) -> io::Result<DeviceFile> {
        open(path, options).map(DeviceFile)
    }
}

pub(crate) struct Device {
    file: DeviceFile,
    /// Its place among the ring's registered files.
    slot: u32,
    queue: IoQueue<Operation>,
    closing: bool,
}

impl Drop for DeviceFile {
    /// Unlocks at once: the ring may hold on to the file for a while. No operation is under way by now.
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl<S: Stream> Reactor<S> {
    /// Opens a block device or regular file for direct I/O, for this process alone. Who serves meanwhile opens a
    /// [`DeviceFile`] elsewhere.
    ///
    /// # Errors
    /// Those of [`DeviceFile::open`] and of [`Reactor::add_device`].
    pub fn open_device(&mut self, path: &Path, options: DeviceOptions) -> io::Result<FileId> {
        self.add_device(DeviceFile::open(path, options)?)
    }

    /// Takes in a device that is open. It waits for nothing.
    ///
    /// # Errors
    /// When [`DEVICES_MAX`] are open, or the kernel does not register it.
    pub fn add_device(&mut self, file: DeviceFile) -> io::Result<FileId> {
        if self.device_slots.is_none() {
            self.ring.register_files(DEVICES_MAX)?;
            self.device_slots = Some((0..DEVICES_MAX as u32).rev().collect());
        }
        let slots = self.device_slots.get_or_insert_default();
        let slot = slots.pop().ok_or_else(|| io::Error::other(format!("more than {DEVICES_MAX} devices")))?;
        self.ring.register_file(slot, file.0.as_raw_fd())?;
        let device = Device { file, slot, queue: IoQueue::new(DEVICE_DEPTH_MAX, DEVICE_READS_MAX), closing: false };
        Ok(FileId(self.devices.insert(device)))
    }

    /// Closes a device after the operations that were queued have ended; their events still come. The lock is held
    /// until then.
    pub fn close_device(&mut self, file: FileId) {
        if let Some(index) = self.devices.index(file.0) {
            self.devices.at(index).closing = true;
            self.devices.void(index);
            self.remove_closed_device(index);
        }
    }

    /// The length of a device in bytes.
    ///
    /// # Errors
    /// When `file` is closed, or the kernel can't tell.
    pub fn device_len(&self, file: FileId) -> io::Result<u64> {
        let device = self.devices.get(file.0).ok_or_else(closed)?;
        (&device.file.0).seek(SeekFrom::End(0))
    }

    /// Operations of a device that have not ended.
    #[must_use]
    pub fn device_operations(&self, file: FileId) -> usize {
        self.devices.get(file.0).map_or(0, |device| device.queue.under_way() + device.queue.waiting())
    }

    /// Reads `len` bytes at `offset`, both multiples of the block size; [`Event::DeviceRead`] follows in every case.
    pub fn read(&mut self, file: FileId, offset: u64, len: usize, token: impl Into<Token>) {
        let token = token.into();
        let fits = is_whole(offset, len) && len <= READ_MAX;
        match self.devices.index(file.0) {
            None => self.ready.push(Event::DeviceRead { token, result: Err(closed()) }),
            Some(_) if !fits => {
                let error = invalid(format!("a read of {len} bytes at {offset} is not of whole blocks"));
                self.ready.push(Event::DeviceRead { token, result: Err(error) });
            }
            Some(index) => {
                let slot = self.devices.at(index).slot;
                let read = DeviceRead::new(token, offset, len);
                self.start_or_queue(index, Operation::Read { file: index, slot, read });
            }
        }
    }

    /// Writes `pieces`, one after the other, at `offset`; [`Event::DeviceWritten`] follows in every case. The sum of
    /// their lengths and `offset` must be multiples of the block size. Pieces that are not made of whole pages work,
    /// but are copied. With `durable` the data is on stable storage when the event comes.
    pub fn write(&mut self, file: FileId, offset: u64, pieces: Vec<Bytes>, durable: bool, token: impl Into<Token>) {
        let token = token.into();
        let len = pieces.iter().map(Bytes::len).sum();
        match self.devices.index(file.0) {
            None => self.ready.push(Event::DeviceWritten { token, result: Err(closed()) }),
            Some(_) if !is_whole(offset, len) => {
                let error = invalid(format!("a write of {len} bytes at {offset} is not of whole blocks"));
                self.ready.push(Event::DeviceWritten { token, result: Err(error) });
            }
            Some(index) => {
                let slot = self.devices.at(index).slot;
                let write = DeviceWrite::new(token, offset, pieces, durable);
                self.start_or_queue(index, Operation::Write { file: index, slot, write });
            }
        }
    }

    /// Makes all writes durable that have ended before this call; [`Event::DeviceSynced`] follows.
    pub fn sync(&mut self, file: FileId, token: impl Into<Token>) {
        let token = token.into();
        match self.devices.index(file.0) {
            None => self.ready.push(Event::DeviceSynced { token, result: Err(closed()) }),
            Some(index) => {
                let slot = self.devices.at(index).slot;
                self.start_or_queue(index, Operation::Sync { file: index, slot, token });
            }
        }
    }

    /// Nothing is refused: a log write that fails ends the use of its device, and a read is held back where it enters
    /// the store. Who asks bounds how much waits here.
    fn start_or_queue(&mut self, index: u32, operation: Operation) {
        self.devices.at(index).queue.push(class(&operation), operation);
        self.start_queued(index);
    }

    fn start_queued(&mut self, index: u32) {
        while let Some(operation) = self.devices.at(index).queue.start() {
            self.ring.start(operation);
        }
    }

    pub(crate) fn on_device(&mut self, index: u32, mut operation: Operation, result: io::Result<u32>) {
        let step = match &mut operation {
            Operation::Read { read, .. } => read.step(result),
            Operation::Write { write, .. } => write.step(result),
            _ => Step::Done(result.map(drop)),
        };
        let Step::Done(result) = step else {
            self.ring.start(operation);
            return;
        };
        let class = class(&operation);
        self.report(operation, result);
        self.devices.at(index).queue.ended(class);
        self.start_queued(index);
        self.remove_closed_device(index);
    }

    fn report(&mut self, operation: Operation, result: io::Result<()>) {
        self.ready.push(match operation {
            Operation::Read { read, .. } => {
                Event::DeviceRead { token: read.token, result: result.map(|()| read.into_bytes()) }
            }
            Operation::Write { write, .. } => Event::DeviceWritten { token: write.token, result },
            Operation::Sync { token, .. } => Event::DeviceSynced { token, result },
            _ => unreachable!("not an operation of a device"),
        });
    }

    fn remove_closed_device(&mut self, index: u32) {
        let device = self.devices.at(index);
        if !device.closing || device.queue.under_way() > 0 {
            return;
        }
        let slot = device.slot;
        // Emptying the place can't fail for one that is filled; if it did, the file would stay open and nothing else.
        let _ = self.ring.register_file(slot, -1);
        self.device_slots.get_or_insert_default().push(slot);
        self.devices.take(index);
    }
}

fn class(operation: &Operation) -> IoClass {
    if matches!(operation, Operation::Read { .. }) { IoClass::Read } else { IoClass::Write }
}

fn is_whole(offset: u64, len: usize) -> bool {
    len > 0
        && len.is_multiple_of(BLOCK_SIZE)
        && offset.is_multiple_of(BLOCK_SIZE as u64)
        && i64::try_from(offset).is_ok_and(|offset| offset.checked_add(len as i64).is_some())
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the device is closed")
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

fn open(path: &Path, options: DeviceOptions) -> io::Result<File> {
    let name = |error: io::Error, what: &str| io::Error::new(error.kind(), format!("{}: {what}", path.display()));
    let existed = path.exists();
    let is_block = fs::metadata(path).is_ok_and(|file| file.file_type().is_block_device());
    // On a block device O_EXCL refuses one that is mounted or part of an array.
    let flags = libc::O_DIRECT | if is_block { libc::O_EXCL } else { 0 };
    let mut opening = OpenOptions::new();
    opening.read(true).write(true).create(options.create && !is_block).custom_flags(flags).mode(0o600);
    let is_held = |error: &io::Error| error.raw_os_error() == Some(libc::EBUSY);
    let opened = patiently(is_held, || opening.open(path));
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => name(
            error,
            "this file system has no direct I/O (tmpfs?); put the device on ext4 or xfs, or give a block device",
        ),
        Some(libc::EBUSY) => name(error, "the block device is mounted or in use by another process"),
        _ => {
            let what = format!("can't open the device: {error}");
            name(error, &what)
        }
    })?;
    let lock = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    patiently(|error| *error == Errno::WOULDBLOCK, lock).map_err(|error| match error {
        Errno::WOULDBLOCK => name(io::ErrorKind::ResourceBusy.into(), "in use by another process"),
        _ => name(error.into(), "can't be locked"),
    })?;
    if let Some(size) = options.size.filter(|_| !is_block)
        && file.metadata()?.len() < size
    {
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size).map_err(|error| {
            let what = format!("can't allocate {size} bytes: {error}");
            name(error.into(), &what)
        })?;
        file.sync_all()?;
    }
    if !existed && let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}
