//! The file of the saved map, read and written without the page cache.
//!
//! When an fsync fails, Linux marks the pages as clean that it could not write: from then on a file read through the page
//! cache shows contents that are not on the device, and no later fsync says so again. A database that was closed and opened again, by this
//! process or the next, would take a commit for whole of which parts are lost. With direct I/O there is no copy in between: what is
//! read is what the device has. Since the device itself may hold it in a cache, opening flushes before anything is
//! read that is to be believed (docs/decisions/0015-saved-map.md).

use azekura_base::{BLOCK_SIZE, PageBuf};
use redb::StorageBackend;
use rustix::fs::{Advice, OFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const ALIGNMENT: u64 = BLOCK_SIZE as u64;
/// A read is tried so many times before the database hears of its failure, after which it has to be opened anew.
const READ_TRIES: usize = 3;

/// The file. See the module's description.
#[derive(Debug)]
pub(crate) struct MapFile {
    file: File,
    /// Writes of parts of blocks are one after the other: each reads the block first.
    parts: Mutex<()>,
}

impl MapFile {
    /// Opens the file at `path`, and makes it when there is none. No other process may have it open.
    pub fn open(path: &Path) -> io::Result<MapFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let direct = options.clone().custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path);
        let file = match direct {
            // Some file systems in memory don't have it: there the page cache is the device.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                let file = options.open(path)?;
                rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
                file
            }
            opened => opened?,
        };
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(
            |error| match error {
                rustix::io::Errno::WOULDBLOCK => io::Error::other("another process has it open"),
                error => error.into(),
            },
        )?;
        file.sync_all()?;
        Ok(MapFile { file, parts: Mutex::new(()) })
    }

    /// Reads whole blocks; what lies behind the end of the file is zeros.
    fn read_blocks(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                // A short read ends at the end of the file: with direct I/O the next one could not begin there.
                Ok(read) if read == 0 || read % BLOCK_SIZE != 0 => {
                    buf[done + read..].fill(0);
                    return Ok(());
                }
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The whole blocks around some bytes: where they begin, and how long they are.
    fn around(offset: u64, len: usize) -> (u64, usize) {
        let start = offset - offset % ALIGNMENT;
        (start, (offset + len as u64 - start).next_multiple_of(ALIGNMENT) as usize)
    }
}

impl StorageBackend for MapFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset + out.len() as u64 > self.len()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (start, len) = MapFile::around(offset, out.len());
        let mut blocks = PageBuf::new(len);
        self.read_blocks(start, &mut blocks)?;
        let from = (offset - start) as usize;
        out.copy_from_slice(&blocks[from..from + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (start, len) = MapFile::around(offset, data.len());
        let mut blocks = PageBuf::new(len);
        let _guard = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if len != data.len() {
            self.read_blocks(start, &mut blocks)?;
        }
        let from = (offset - start) as usize;
        blocks[from..from + data.len()].copy_from_slice(data);
        self.file.write_all_at(&blocks, start)
    }
}

/// What a database could not write since it was opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Troubles(Arc<[AtomicBool; 2]>);

impl Troubles {
    /// What follows is another matter.
    pub fn forget(&self) {
        self.0.iter().for_each(|trouble| trouble.store(false, Ordering::Release));
    }

    /// A write, or a change of length, has failed.
    pub fn write_failed(&self) -> bool {
        self.0[0].load(Ordering::Acquire)
    }

    /// What was written could not be made durable.
    pub fn sync_failed(&self) -> bool {
        self.0[1].load(Ordering::Acquire)
    }
}

/// A backend whose failures are remembered: the database itself does not say what it was that failed.
#[derive(Debug)]
pub(crate) struct Watched {
    pub backend: Box<dyn StorageBackend>,
    pub troubles: Troubles,
}

impl Watched {
    fn note<T>(&self, which: usize, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.troubles.0[which].store(true, Ordering::Release);
        }
        result
    }
}

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut read = self.backend.read(offset, out);
        for _ in 1..READ_TRIES {
            if read.is_ok() {
                break;
            }
            read = self.backend.read(offset, out);
        }
        read
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.note(0, self.backend.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.note(1, self.backend.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.note(0, self.backend.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn any_bytes_can_be_written_and_read() {
        // On a disk, where there is direct I/O.
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../target/map-file-{}", std::process::id()));
        let file = MapFile::open(&path).unwrap();
        assert!(MapFile::open(&path).is_err(), "two have it open");
        file.set_len(5 * ALIGNMENT).unwrap();
        let mut expected = vec![0; 5 * BLOCK_SIZE];
        for (value, (at, len)) in
            (1..).zip([(0, 320), (4096, 8192), (100, 5), (4000, 200), (12_287, 2), (16_384, 4096)])
        {
            file.write(at, &vec![value; len]).unwrap();
            expected[at as usize..at as usize + len].fill(value);
        }
        file.sync_data().unwrap();
        drop(file);
        let file = MapFile::open(&path).unwrap();
        for (at, len) in [(0, 5 * BLOCK_SIZE), (1, 1), (4095, 2), (8000, 9000), (20_479, 1)] {
            let mut found = vec![0xff; len];
            file.read(at as u64, &mut found).unwrap();
            assert_eq!(found, expected[at..at + len], "{len} bytes at {at}");
        }
        assert!(file.read(5 * ALIGNMENT - 1, &mut [0, 0]).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
