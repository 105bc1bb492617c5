//! A simulated disk: what a reader sees, what a power loss leaves.

use crate::kernel::random::Random;
use azekura_base::{BLOCK_SIZE, PageBuf};
use azekura_store::{DeviceError, IoId, ReadDevice};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

type Block = Box<[u8]>;

/// Bytes of a sector: the smallest unit that clients write, and that a write is torn at.
pub(crate) const SECTOR_SIZE: usize = 512;

/// Blocks that a lying disk keeps in its cache while it calls them durable.
const DENIED_CACHE_BLOCKS: usize = 64;

/// Of so many writes that a power loss interrupts a block can't be read afterwards.
const UNREADABLE_PERCENT: u64 = 20;

/// What a request that has failed was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    Write,
    Read,
    Flush,
}

impl ReadDevice for &Disk {
    /// What is there while nothing is under way.
    fn read(&self, offset: u64, len: usize) -> Result<Bytes, DeviceError> {
        let (first, count) = (offset as usize / BLOCK_SIZE, len / BLOCK_SIZE);
        if self.unreadable.range(first..first + count).next().is_some() {
            return Err(DeviceError("Medium error".into()));
        }
        let mut buf = PageBuf::zeroed(len);
        for (block, into) in (first..).zip(buf.chunks_exact_mut(BLOCK_SIZE)) {
            if let Some(contents) = self.cached.get(&block).or_else(|| self.durable.get(&block)) {
                into.copy_from_slice(contents);
            }
        }
        Ok(buf.freeze())
    }
}

/// A write that is not completed.
struct Writing {
    /// First block.
    first: usize,
    bytes: Bytes,
    durable: bool,
}

/// Something that a disk was asked to do.
pub(crate) enum Request {
    /// Write whole blocks.
    Write { offset: u64, bytes: Bytes, durable: bool },
    /// Read whole blocks.
    Read { offset: u64, len: usize },
    /// Make all completed writes durable.
    Flush,
}

/// What came of a request.
pub(crate) enum Answer {
    Written,
    Read(Bytes),
    /// Some of what was to be read can't be, until it is written.
    Unreadable,
    Flushed,
}

/// A disk. A completed durable write is on stable storage; a completed other write may be, and a crash decides.
pub(crate) struct Disk {
    /// On stable storage; absent blocks are zeros.
    durable: BTreeMap<usize, Block>,
    /// Completed, and not yet flushed.
    cached: BTreeMap<usize, Block>,
    /// Power failed while they were being written: they can't be read until they are written again.
    unreadable: BTreeSet<usize>,
    writing: BTreeMap<IoId, Writing>,
    reading: BTreeMap<IoId, (usize, usize)>,
    flushing: BTreeSet<IoId>,
    blocks: usize,
    /// What the latest durable writes have replaced, oldest first, kept only by disks that may lie.
    replaced: Option<VecDeque<(usize, Option<Block>)>>,
    losing: Losing,
}

/// Which of the coming writes are called done and are not.
#[derive(Clone, Copy, Debug, Default)]
struct Losing {
    /// So many are kept before the first that is lost.
    skip: u64,
    /// So many are lost.
    writes: u64,
    /// So many have been kept since the last that was lost.
    kept: u64,
}

impl Disk {
    /// An empty disk. One that `may_lie` remembers what it needs for that.
    pub(crate) fn new(bytes: u64, may_lie: bool) -> Disk {
        Disk {
            durable: BTreeMap::new(),
            cached: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            writing: BTreeMap::new(),
            reading: BTreeMap::new(),
            flushing: BTreeSet::new(),
            blocks: bytes as usize / BLOCK_SIZE,
            replaced: may_lie.then(VecDeque::new),
            losing: Losing::default(),
        }
    }

    /// After `skip` more writes, so many are called done although they are there in part, or not at all.
    pub(crate) fn lose(&mut self, skip: u64, writes: u64) {
        self.losing = Losing { skip, writes, kept: 0 };
    }

    /// Writes that are lost yet to come; and writes kept since the last that was lost.
    pub(crate) fn losing(&self) -> (u64, u64) {
        (self.losing.writes, self.losing.kept)
    }

    /// It keeps what it is given from now on.
    pub(crate) fn stop_losing(&mut self) {
        self.losing = Losing::default();
    }

    /// A write is completed: true when it is lost.
    fn loses(&mut self) -> bool {
        let Losing { skip, writes, kept } = &mut self.losing;
        match (*skip, *writes) {
            (1.., _) => *skip -= 1,
            (0, 1..) => {
                *writes -= 1;
                return true;
            }
            _ => *kept += 1,
        }
        false
    }

    /// Takes a request; [`Disk::finish`] does it.
    ///
    /// # Panics
    /// When it is not one of whole blocks inside the disk, which the store promises.
    pub(crate) fn start(&mut self, io: IoId, request: Request) {
        let (first, count) = match &request {
            Request::Write { offset, bytes, .. } => (*offset as usize, bytes.len()),
            Request::Read { offset, len } => (*offset as usize, *len),
            Request::Flush => (0, 0),
        };
        assert!(first.is_multiple_of(BLOCK_SIZE) && count.is_multiple_of(BLOCK_SIZE), "{first}+{count} is unaligned");
        let first = first / BLOCK_SIZE;
        assert!(first + count / BLOCK_SIZE <= self.blocks, "{first}+{count} lies outside the disk");
        match request {
            Request::Write { bytes, durable, .. } => {
                self.writing.insert(io, Writing { first, bytes, durable });
            }
            Request::Read { len, .. } => {
                self.reading.insert(io, (first, len / BLOCK_SIZE));
            }
            Request::Flush => {
                self.flushing.insert(io);
            }
        }
    }

    /// Does what was asked for; `None` when nothing was.
    pub(crate) fn finish(&mut self, io: IoId, random: &mut Random) -> Option<Answer> {
        if let Some(write) = self.writing.remove(&io) {
            if self.loses() {
                self.keep_in_part(&write, random);
                return Some(Answer::Written);
            }
            let Writing { first, bytes, durable } = write;
            for (block, contents) in (first..).zip(bytes.chunks_exact(BLOCK_SIZE)) {
                self.unreadable.remove(&block);
                if durable {
                    self.cached.remove(&block);
                    let before = self.durable.insert(block, contents.into());
                    if let Some(replaced) = &mut self.replaced {
                        replaced.push_back((block, before));
                        if replaced.len() > DENIED_CACHE_BLOCKS {
                            replaced.pop_front();
                        }
                    }
                } else {
                    self.cached.insert(block, contents.into());
                }
            }
            return Some(Answer::Written);
        }
        if let Some((first, count)) = self.reading.remove(&io) {
            if self.unreadable.range(first..first + count).next().is_some() {
                return Some(Answer::Unreadable);
            }
            return Some(Answer::Read(self.read(first, count, random)));
        }
        if self.flushing.remove(&io) {
            self.durable.append(&mut self.cached);
            return Some(Answer::Flushed);
        }
        None
    }

    /// True when the request is a read.
    pub(crate) fn is_read(&self, io: IoId) -> bool {
        self.reading.contains_key(&io)
    }

    /// Refuses what was asked for; `None` when nothing was. Of a write that fails, anything may be there.
    pub(crate) fn fail(&mut self, io: IoId, random: &mut Random) -> Option<Failed> {
        if let Some(write) = self.writing.remove(&io) {
            self.leave_in_part(&write, random);
            return Some(Failed::Write);
        }
        if self.reading.remove(&io).is_some() {
            return Some(Failed::Read);
        }
        self.flushing.remove(&io).then_some(Failed::Flush)
    }

    /// Reads blocks. Where a write is under way, each sector is old or new.
    fn read(&self, first: usize, count: usize, random: &mut Random) -> Bytes {
        let mut buf = PageBuf::zeroed(count * BLOCK_SIZE);
        for (block, into) in (first..).zip(buf.chunks_exact_mut(BLOCK_SIZE)) {
            if let Some(contents) = self.cached.get(&block).or_else(|| self.durable.get(&block)) {
                into.copy_from_slice(contents);
            }
        }
        for write in self.writing.values() {
            let end = write.first + write.bytes.len() / BLOCK_SIZE;
            for block in first.max(write.first)..end.min(first + count) {
                let new = &write.bytes[(block - write.first) * BLOCK_SIZE..][..BLOCK_SIZE];
                tear(&mut buf[(block - first) * BLOCK_SIZE..][..BLOCK_SIZE], new, random);
            }
        }
        buf.freeze()
    }

    /// Power fails: each write that was not completed is there wholly, in part, or not at all, and a block of it may be
    /// unreadable; what was completed and not flushed may be gone. With `lies`, so may be some of what was called
    /// durable last.
    pub(crate) fn crash(&mut self, lies: bool, random: &mut Random) {
        for (block, contents) in std::mem::take(&mut self.cached) {
            if random.chance(50) {
                self.durable.insert(block, contents);
            }
        }
        for write in std::mem::take(&mut self.writing).into_values() {
            self.leave_in_part(&write, random);
            if random.chance(UNREADABLE_PERCENT) {
                let blocks = (write.bytes.len() / BLOCK_SIZE) as u64;
                self.unreadable.insert(write.first + random.below(blocks) as usize);
            }
        }
        self.reading.clear();
        self.flushing.clear();
        if lies {
            self.lose_durable(random);
        } else if let Some(replaced) = &mut self.replaced {
            replaced.clear();
        }
    }

    /// A write that was not completed is there wholly, in part, or not at all.
    fn leave_in_part(&mut self, write: &Writing, random: &mut Random) {
        let fate = random.below(3);
        for (block, contents) in (write.first..).zip(write.bytes.chunks_exact(BLOCK_SIZE)) {
            match fate {
                0 => {}
                1 => {
                    let old = self.durable.entry(block).or_insert_with(|| vec![0; BLOCK_SIZE].into());
                    tear(old, contents, random);
                }
                _ => {
                    self.unreadable.remove(&block);
                    self.durable.insert(block, contents.into());
                }
            }
        }
    }

    /// Of a write that is lost, some blocks may be there, and some sectors of others.
    fn keep_in_part(&mut self, write: &Writing, random: &mut Random) {
        let whole = random.chance(50);
        for (block, contents) in (write.first..).zip(write.bytes.chunks_exact(BLOCK_SIZE)) {
            if whole || random.chance(50) {
                continue;
            }
            let old = self.cached.get(&block).or_else(|| self.durable.get(&block));
            let mut torn = old.cloned().unwrap_or_else(|| vec![0; BLOCK_SIZE].into());
            tear(&mut torn, contents, random);
            self.cached.remove(&block);
            self.durable.insert(block, torn);
        }
    }

    /// Takes back the latest durable writes, as a disk with a cache that it denies does at a power loss.
    fn lose_durable(&mut self, random: &mut Random) {
        let Some(mut replaced) = self.replaced.take() else { return };
        for _ in 0..random.below(replaced.len() as u64 + 1) {
            match replaced.pop_back() {
                Some((block, Some(contents))) => self.durable.insert(block, contents),
                Some((block, None)) => self.durable.remove(&block),
                None => None,
            };
        }
        self.replaced = Some(VecDeque::new());
    }

    /// Flips a bit of a stored block that `which` selects; false when there is none.
    pub(crate) fn flip(&mut self, random: &mut Random, which: impl Fn(&[u8]) -> bool) -> bool {
        let candidates: Vec<usize> =
            self.durable.iter().filter(|(_, contents)| which(contents)).map(|(block, _)| *block).collect();
        if candidates.is_empty() {
            return false;
        }
        let block = *random.pick(&candidates);
        let (byte, bit) = (random.below(BLOCK_SIZE as u64) as usize, random.below(8));
        if let Some(contents) = self.durable.get_mut(&block) {
            contents[byte] ^= 1 << bit;
        }
        true
    }
}

/// Overwrites each sector of `old` or not.
fn tear(old: &mut [u8], new: &[u8], random: &mut Random) {
    for (old, new) in old.chunks_exact_mut(SECTOR_SIZE).zip(new.chunks_exact(SECTOR_SIZE)) {
        if random.chance(50) {
            old.copy_from_slice(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(disk: &mut Disk, io: u64, block: u64, fill: u8, durable: bool) {
        let bytes = Bytes::from(vec![fill; BLOCK_SIZE]);
        disk.start(IoId(io), Request::Write { offset: block * BLOCK_SIZE as u64, bytes, durable });
    }

    fn contents(disk: &mut Disk, block: u64) -> Bytes {
        disk.start(IoId(99), Request::Read { offset: block * BLOCK_SIZE as u64, len: BLOCK_SIZE });
        match disk.finish(IoId(99), &mut Random::new(0)) {
            Some(Answer::Read(bytes)) => bytes,
            _ => panic!("not read"),
        }
    }

    #[test]
    fn what_was_completed_durable_survives_and_the_rest_may_tear() {
        let (mut torn, mut kept, mut lost, mut unreadable) = (0, 0, 0, 0);
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut disk = Disk::new(1 << 20, false);
            write(&mut disk, 1, 3, 1, true);
            assert!(matches!(disk.finish(IoId(1), &mut random), Some(Answer::Written)));
            write(&mut disk, 2, 4, 2, true);
            disk.crash(false, &mut random);
            assert!(disk.finish(IoId(2), &mut random).is_none());
            assert!(contents(&mut disk, 3).iter().all(|byte| *byte == 1));
            if !disk.unreadable.is_empty() {
                disk.start(IoId(5), Request::Read { offset: 0, len: 1 << 20 });
                assert!(matches!(disk.finish(IoId(5), &mut random), Some(Answer::Unreadable)));
                write(&mut disk, 6, 4, 3, true);
                disk.finish(IoId(6), &mut random);
                assert!(contents(&mut disk, 4).iter().all(|byte| *byte == 3), "it was written again");
                unreadable += 1;
                continue;
            }
            let second = contents(&mut disk, 4);
            match second.iter().filter(|byte| **byte == 2).count() {
                0 => lost += 1,
                BLOCK_SIZE => kept += 1,
                _ => torn += 1,
            }
        }
        assert!(torn > 30 && kept > 30 && lost > 30 && unreadable > 20, "{torn} {kept} {lost} {unreadable}");
    }

    #[test]
    fn a_disk_that_lies_goes_back_to_an_earlier_moment() {
        let mut lost = 0;
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let mut disk = Disk::new(1 << 20, true);
            for (io, block) in [3, 4, 3].into_iter().enumerate() {
                write(&mut disk, io as u64, block, io as u8 + 1, true);
                disk.finish(IoId(io as u64), &mut random);
            }
            disk.crash(seed % 2 == 0, &mut random);
            let states = [contents(&mut disk, 3)[0], contents(&mut disk, 4)[0]];
            assert!([[3, 2], [1, 2], [1, 0], [0, 0]].contains(&states), "{states:?}");
            assert!(seed % 2 == 0 || states == [3, 2], "it does not lie, and has lost something");
            lost += u32::from(states != [3, 2]);
        }
        assert!(lost > 20, "{lost}");
    }

    #[test]
    fn writes_that_are_lost_are_called_done() {
        let (mut whole, mut part) = (0, 0);
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let mut disk = Disk::new(1 << 20, true);
            disk.lose(1, 2);
            for block in 0..4 {
                write(&mut disk, block, block, 7, true);
                assert!(matches!(disk.finish(IoId(block), &mut random), Some(Answer::Written)));
            }
            assert_eq!(disk.losing(), (0, 1));
            disk.crash(false, &mut random);
            let mut there = |block| contents(&mut disk, block).iter().filter(|byte| **byte == 7).count();
            assert_eq!((there(0), there(3)), (BLOCK_SIZE, BLOCK_SIZE), "not one of those that are lost");
            for block in [1, 2] {
                *(if there(block) == 0 { &mut whole } else { &mut part }) += 1;
            }
        }
        assert!(whole > 50 && part > 20, "{whole} {part}");
    }

    #[test]
    fn of_a_write_that_fails_anything_may_be_there() {
        let mut random = Random::new(1);
        let mut disk = Disk::new(1 << 20, false);
        write(&mut disk, 1, 3, 1, true);
        assert_eq!(disk.fail(IoId(1), &mut random), Some(Failed::Write));
        assert!(disk.finish(IoId(1), &mut random).is_none() && disk.fail(IoId(1), &mut random).is_none());
    }

    #[test]
    fn a_flush_makes_completed_writes_durable() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let mut disk = Disk::new(1 << 20, false);
            write(&mut disk, 1, 3, 1, false);
            disk.finish(IoId(1), &mut random);
            assert!(contents(&mut disk, 3).iter().all(|byte| *byte == 1), "visible before it is durable");
            disk.start(IoId(2), Request::Flush);
            assert!(matches!(disk.finish(IoId(2), &mut random), Some(Answer::Flushed)));
            disk.crash(false, &mut random);
            assert!(contents(&mut disk, 3).iter().all(|byte| *byte == 1));
        }
    }
}
