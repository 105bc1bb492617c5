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
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const ALIGNMENT: u64 = BLOCK_SIZE as u64;
/// The unit in which a file system says what a file takes.
const DISK_SECTOR: u64 = 512;
/// What a file takes has some blocks in it that are no contents: less than this.
const RESERVE_UNIT: u64 = 1 << 20;
/// A read is tried so many times before the database hears of its failure, after which it has to be opened anew.
const READ_TRIES: usize = 3;
/// Blocks that wait in memory to be written before the next flush (4 MiB).
const GATHERED_BLOCKS_MAX: usize = 1024;
/// Blocks of one write (1 MiB).
const RUN_BLOCKS_MAX: usize = 256;

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

/// Blocks that the database has written and the file has not, in the order of their places.
///
/// Each direct write costs a turn of the device, and the database writes page by page. Until it asks for a flush
/// nothing of what it wrote has to be durable, so the pages are gathered and written in runs.
#[derive(Debug, Default)]
struct Gathered {
    blocks: BTreeMap<u64, PageBuf>,
    /// The first block as the file has it: a part of it is written at each commit.
    header: Option<PageBuf>,
}

impl Gathered {
    /// What there is of `len` bytes from `offset` on: pieces, and where among these bytes each begins.
    fn of(&self, offset: u64, len: usize) -> Vec<(usize, Vec<u8>)> {
        let end = (offset + len as u64).div_ceil(ALIGNMENT);
        let blocks = self.blocks.range(offset / ALIGNMENT..end);
        let pieces = blocks.map(|(block, bytes)| {
            let (from, to) = overlap(*block, offset, len);
            ((block * ALIGNMENT + from as u64 - offset) as usize, bytes[from..to].to_vec())
        });
        pieces.collect()
    }

    /// The first blocks that lie side by side behind the header, and where they begin.
    fn run(&self) -> Option<(u64, PageBuf)> {
        let (first, _) = self.blocks.range(1..).next()?;
        let follows = |(place, (block, _)): &(u64, (&u64, &PageBuf))| **block == first + place;
        let count = (0..RUN_BLOCKS_MAX as u64).zip(self.blocks.range(first..)).take_while(follows).count();
        let mut run = PageBuf::new(count * BLOCK_SIZE);
        for (to, (_, from)) in run.chunks_exact_mut(BLOCK_SIZE).zip(self.blocks.range(first..)) {
            to.copy_from_slice(from);
        }
        Some((*first, run))
    }
}

/// Which part of a block lies within so many bytes from `offset` on.
fn overlap(block: u64, offset: u64, len: usize) -> (usize, usize) {
    let start = block * ALIGNMENT;
    let from = offset.saturating_sub(start) as usize;
    (from, ((offset + len as u64 - start) as usize).min(BLOCK_SIZE))
}

/// A backend that gathers what is written until it is to be flushed, and whose failures are remembered: the database
/// itself does not say what it was that failed. Who reads does not wait for who writes.
#[derive(Debug)]
pub(crate) struct Watched {
    backend: Box<dyn StorageBackend>,
    troubles: Troubles,
    /// Held by who writes, also to the file, and locked before what is gathered.
    writer: Mutex<()>,
    /// Never held while the file is asked for anything, but for a part of a block.
    gathered: Mutex<Gathered>,
}

impl Watched {
    pub fn new(backend: Box<dyn StorageBackend>, troubles: Troubles) -> Watched {
        Watched { backend, troubles, writer: Mutex::default(), gathered: Mutex::default() }
    }

    fn note<T>(&self, which: usize, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.troubles.0[which].store(true, Ordering::Release);
        }
        result
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_again(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut read = self.backend.read(offset, out);
        for _ in 1..READ_TRIES {
            if read.is_ok() {
                break;
            }
            read = self.backend.read(offset, out);
        }
        read
    }

    /// The block as it was before this write: gathered, in the file, or behind its end.
    fn block_before(&self, gathered: &mut Gathered, block: u64) -> io::Result<PageBuf> {
        if let Some(bytes) = gathered.blocks.remove(&block) {
            return Ok(bytes);
        }
        if let Some(header) = gathered.header.take_if(|_| block == 0) {
            return Ok(header);
        }
        let mut bytes = PageBuf::new(BLOCK_SIZE);
        let there = self.backend.len()?.saturating_sub(block * ALIGNMENT).min(ALIGNMENT) as usize;
        self.read_again(block * ALIGNMENT, &mut bytes[..there])?;
        Ok(bytes)
    }

    fn gather(&self, gathered: &mut Gathered, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = (offset + data.len() as u64).div_ceil(ALIGNMENT);
        for block in offset / ALIGNMENT..end {
            let (from, to) = overlap(block, offset, data.len());
            let start = (block * ALIGNMENT + from as u64 - offset) as usize;
            let mut bytes = match to - from {
                BLOCK_SIZE => gathered.blocks.remove(&block).unwrap_or_else(|| PageBuf::new(BLOCK_SIZE)),
                _ => self.block_before(gathered, block)?,
            };
            bytes[from..to].copy_from_slice(&data[start..start + to - from]);
            gathered.blocks.insert(block, bytes);
        }
        Ok(())
    }

    fn writer(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is gathered, the header last. When that fails, the rest is dropped: the database is opened anew. To be
    /// called by who holds `writer`. What is being written stays gathered until it is in the file.
    fn write_out(&self) -> io::Result<()> {
        let written = self.write_runs();
        if written.is_err() {
            self.gathered().blocks.clear();
        }
        written
    }

    fn write_runs(&self) -> io::Result<()> {
        loop {
            let Some((first, run)) = self.gathered().run() else { break };
            self.write_run(first, &run)?;
            let mut gathered = self.gathered();
            (first..first + (run.len() / BLOCK_SIZE) as u64).for_each(|block| drop(gathered.blocks.remove(&block)));
        }
        let header = self.gathered().blocks.get(&0).map(|header| header.to_vec());
        if let Some(header) = header {
            self.write_run(0, &header)?;
            let mut gathered = self.gathered();
            gathered.header = gathered.blocks.remove(&0);
        }
        Ok(())
    }

    /// Behind the file's end there is nothing: the last block may be a part of one.
    fn write_run(&self, first: u64, bytes: &[u8]) -> io::Result<()> {
        let len = self.backend.len()?.saturating_sub(first * ALIGNMENT).min(bytes.len() as u64) as usize;
        self.backend.write(first * ALIGNMENT, &bytes[..len])
    }
}

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        // Looked at first: what is not gathered any more by the time that the file is read is in the file.
        let newer = self.gathered().of(offset, out.len());
        if newer.iter().map(|(_, piece)| piece.len()).sum::<usize>() < out.len() {
            self.read_again(offset, out)?;
        }
        newer.into_iter().for_each(|(start, piece)| out[start..start + piece.len()].copy_from_slice(&piece));
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _writer = self.writer();
        drop(self.gathered().blocks.split_off(&len.div_ceil(ALIGNMENT)));
        self.note(0, self.backend.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        let writer = self.writer();
        self.note(0, self.write_out())?;
        drop(writer);
        self.note(1, self.backend.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let _writer = self.writer();
        let count = {
            let mut gathered = self.gathered();
            self.note(0, self.gather(&mut gathered, offset, data))?;
            gathered.blocks.len()
        };
        if count > GATHERED_BLOCKS_MAX {
            self.note(0, self.write_out())?;
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        let writer = self.writer();
        self.note(0, self.write_out())?;
        drop(writer);
        self.backend.close()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A file in memory, and what was done to it.
    #[derive(Debug, Default)]
    struct InMemory {
        bytes: Vec<u8>,
        /// Offsets and lengths.
        writes: Vec<(u64, usize)>,
        /// A write at this offset fails.
        fails_at: Option<u64>,
    }

    #[derive(Debug, Default, Clone)]
    struct Memory(Arc<Mutex<InMemory>>);

    impl StorageBackend for Memory {
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.lock().unwrap().bytes.len() as u64)
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            out.copy_from_slice(&self.0.lock().unwrap().bytes[offset as usize..][..out.len()]);
            Ok(())
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.lock().unwrap().bytes.resize(len as usize, 0);
            Ok(())
        }
        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let mut file = self.0.lock().unwrap();
            if file.fails_at == Some(offset) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            file.bytes[offset as usize..][..data.len()].copy_from_slice(data);
            file.writes.push((offset, data.len()));
            Ok(())
        }
    }

    #[test]
    fn what_was_written_is_read_before_and_after_it_is_in_the_file() {
        let memory = Memory::default();
        let file = Watched::new(Box::new(memory.clone()), Troubles::default());
        let len = 3 * GATHERED_BLOCKS_MAX * BLOCK_SIZE + 100;
        file.set_len(len as u64).unwrap();
        let mut expected = vec![0; len];
        let mut random = 7_u64;
        for n in 0..4000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (random >> 33) as usize % len;
            let size = 1 + (random >> 20) as usize % 9000;
            let size = size.min(len - at);
            file.write(at as u64, &vec![n as u8; size]).unwrap();
            expected[at..at + size].fill(n as u8);
            if n % 50 == 0 {
                let from = at.saturating_sub(10_000);
                let mut found = vec![0; (size + 10_000).min(len - from)];
                file.read(from as u64, &mut found).unwrap();
                assert!(found == expected[from..from + found.len()], "write {n} at {at}");
            }
            if n % 1000 == 999 {
                file.sync_data().unwrap();
                assert!(memory.0.lock().unwrap().bytes == expected, "after flush {n}");
            }
        }
    }

    #[test]
    fn neighbours_are_written_together_and_the_header_last() {
        let memory = Memory::default();
        let file = Watched::new(Box::new(memory.clone()), Troubles::default());
        file.set_len(700 * ALIGNMENT).unwrap();
        for block in (0..600).rev() {
            file.write(block * ALIGNMENT, &[1; BLOCK_SIZE]).unwrap();
        }
        file.write(650 * ALIGNMENT, &[1; BLOCK_SIZE]).unwrap();
        assert!(memory.0.lock().unwrap().writes.is_empty(), "nobody has asked for it yet");
        file.sync_data().unwrap();
        let runs = [(1, 256), (257, 256), (513, 87), (650, 1), (0, 1)];
        let writes: Vec<_> = runs.map(|(block, count)| (block * ALIGNMENT, count * BLOCK_SIZE)).into();
        assert_eq!(memory.0.lock().unwrap().writes, writes);
    }

    #[test]
    fn after_a_write_that_failed_nothing_more_is_written() {
        let (memory, troubles) = (Memory::default(), Troubles::default());
        let file = Watched::new(Box::new(memory.clone()), troubles.clone());
        file.set_len(10 * ALIGNMENT).unwrap();
        memory.0.lock().unwrap().fails_at = Some(3 * ALIGNMENT);
        for block in [0, 3, 5] {
            file.write(block * ALIGNMENT, &[1; BLOCK_SIZE]).unwrap();
        }
        assert!(file.sync_data().is_err());
        assert!(troubles.write_failed() && !troubles.sync_failed());
        memory.0.lock().unwrap().fails_at = None;
        file.close().unwrap();
        assert!(memory.0.lock().unwrap().writes.is_empty(), "a header without its pages would be a commit");
    }

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
