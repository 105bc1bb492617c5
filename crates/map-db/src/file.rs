//! The file of the saved map, read and written without the page cache.
//!
//! When an fsync fails, Linux marks the pages as clean that it could not write: from then on a file read through the
//! page cache shows contents that are not on the device, and no later fsync says so again. A database that was closed
//! and opened again, by this process or the next, would take a commit for whole of which parts are lost. With direct
//! I/O there is no copy in between: what is read is what the device has. Since the device itself may hold it in a
//! cache, opening flushes before anything is read that is to be believed (docs/decisions/0015-saved-map.md).

use azekura_base::{BLOCK_SIZE, PageBuf};
use redb::StorageBackend;
use rustix::fs::{Advice, FallocateFlags, OFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

pub(crate) const ALIGNMENT: u64 = BLOCK_SIZE as u64;
/// The unit in which a file system says what a file takes.
const DISK_SECTOR: u64 = 512;
/// What a file takes has some blocks in it that are no contents: less than this.
const RESERVE_UNIT: u64 = 1 << 20;

/// The file. See the module's description.
#[derive(Debug)]
pub(crate) struct MapFile {
    file: File,
    /// Its length: the database asks for that with each page, and nobody else changes it.
    len: AtomicU64,
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
        let len = AtomicU64::new(file.metadata()?.len());
        Ok(MapFile { file, len, parts: Mutex::new(()) })
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

    fn write_blocks(&self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        self.file.write_all_at(blocks, offset)?;
        self.len.fetch_max(offset + blocks.len() as u64, Ordering::AcqRel);
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
        Ok(self.len.load(Ordering::Acquire))
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

    /// A file that gets shorter keeps the room that was reserved behind its end: the file system would give that to
    /// others, and the database makes its file shorter whenever it is closed.
    fn set_len(&self, len: u64) -> io::Result<()> {
        let before = self.file.metadata()?;
        self.file.set_len(len)?;
        self.len.store(len, Ordering::Release);
        let reserved = before.blocks() * DISK_SECTOR / RESERVE_UNIT * RESERVE_UNIT;
        if len < before.len() && reserved > before.len() {
            // Whoever has taken the room meanwhile has it: the next start says so.
            let _ = rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, reserved);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (start, len) = MapFile::around(offset, data.len());
        if len == data.len() && data.as_ptr().addr().is_multiple_of(BLOCK_SIZE) {
            return self.write_blocks(start, data);
        }
        let mut blocks = PageBuf::new(len);
        let _guard = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if len != data.len() {
            self.read_blocks(start, &mut blocks)?;
        }
        let from = (offset - start) as usize;
        blocks[from..from + data.len()].copy_from_slice(data);
        self.write_blocks(start, &blocks)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn room_that_is_reserved_stays_so_when_the_file_gets_shorter() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../target/map-room-{}", std::process::id()));
        let file = MapFile::open(&path).unwrap();
        rustix::fs::fallocate(&file.file, FallocateFlags::KEEP_SIZE, 0, 8 << 20).unwrap();
        let reserved = || std::fs::metadata(&path).unwrap().blocks() * DISK_SECTOR;
        for len in [4 << 20, 6 << 20, 1 << 20, 100] {
            file.set_len(len).unwrap();
            assert!(file.len().unwrap() == len && reserved() >= 8 << 20, "{} bytes at a length of {len}", reserved());
        }
        // What the file itself took beyond that is given back.
        file.set_len(9 << 20).unwrap();
        file.write(0, &vec![1; 9 << 20]).unwrap();
        file.set_len(1 << 20).unwrap();
        assert!(reserved() < 2 << 20, "{} bytes", reserved());
        std::fs::remove_file(&path).unwrap();
    }

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
