//! What the database writes is gathered until it is to be flushed, and what could not be done is remembered.

use crate::file::ALIGNMENT;
use azekura_base::{BLOCK_SIZE, PageBuf};
use redb::StorageBackend;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A read is tried so many times before the database hears of its failure, after which it has to be opened anew.
const READ_TRIES: usize = 3;
/// Blocks of one write (1 MiB).
const RUN_BLOCKS_MAX: usize = 256;

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
/// nothing of what it wrote has to be durable, so the pages are gathered and written in runs. It writes them in no
/// order: runs are long only where nearly all pages of a checkpoint are gathered.
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
    /// More blocks than that do not wait for the next flush.
    blocks_max: usize,
}

impl Watched {
    /// Gathers what takes `bytes_max` bytes of memory at the most, and one write more.
    pub fn new(backend: Box<dyn StorageBackend>, troubles: Troubles, bytes_max: usize) -> Watched {
        let blocks_max = bytes_max / BLOCK_SIZE;
        Watched { backend, troubles, writer: Mutex::default(), gathered: Mutex::default(), blocks_max }
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

    /// Writes what is gathered, the header last. When that fails, the rest is dropped: the database is opened anew. For
    /// who holds `writer`. What is being written stays gathered until it is in the file.
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
        if count > self.blocks_max {
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

    const BYTES_MAX: usize = 1024 * BLOCK_SIZE;

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
        let file = Watched::new(Box::new(memory.clone()), Troubles::default(), BYTES_MAX);
        let len = 3 * BYTES_MAX + 100;
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
        let file = Watched::new(Box::new(memory.clone()), Troubles::default(), BYTES_MAX);
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
    fn pages_in_no_order_are_written_in_long_runs_where_they_are_all_gathered() {
        let blocks = 8000;
        let runs = [blocks as usize * BLOCK_SIZE, BYTES_MAX].map(|bytes_max| {
            let memory = Memory::default();
            let file = Watched::new(Box::new(memory.clone()), Troubles::default(), bytes_max);
            file.set_len((blocks + 1) * ALIGNMENT).unwrap();
            for block in 0..blocks {
                // 1,237 and 8,000 have no common divisor: each block once.
                file.write((1 + block * 1237 % blocks) * ALIGNMENT, &[1; BLOCK_SIZE]).unwrap();
            }
            file.sync_data().unwrap();
            let writes = &memory.0.lock().unwrap().writes;
            assert_eq!(writes.iter().map(|(_, len)| len / BLOCK_SIZE).sum::<usize>(), blocks as usize);
            writes.len()
        });
        assert_eq!(runs[0], 8000_usize.div_ceil(RUN_BLOCKS_MAX));
        assert!(runs[1] > 4000, "with a part of them in memory most lie alone: {}", runs[1]);
    }

    #[test]
    fn after_a_write_that_failed_nothing_more_is_written() {
        let (memory, troubles) = (Memory::default(), Troubles::default());
        let file = Watched::new(Box::new(memory.clone()), troubles.clone(), BYTES_MAX);
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
}
