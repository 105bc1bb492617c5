//! Reads: from the map to extents, with every block verified.

use crate::cx::Io;
use crate::effect::{Completion, DeviceError, Effect, ReadError};
use crate::groups::Place;
use crate::leaf::{Entry, LeafKey};
use crate::ops::Step;
use crate::read_cache::CacheKey;
use crate::segments::Segments;
use crate::store::Store;
use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Body, CHUNK_BLOCKS, Checksum, Checksums, Extent, PgId, Run, Sequence, checksum,
    copy_to_pages,
};
use bytes::Bytes;

/// Reads of up to so many blocks go through the read cache: larger ones are streams, which it would not help.
const CACHED_READ_BLOCKS_MAX: u16 = 8;

/// A part of a read that the device has to give.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub read: u64,
    /// The index of the extent.
    part: usize,
    first: BlockIndex,
    address: u32,
    checksums: Checksums,
}

/// A read that waits for the device.
#[derive(Debug)]
pub(crate) struct PendingRead {
    token: u64,
    prepared: bool,
    /// Put into the read cache when it is here.
    cached: bool,
    waiting: u32,
    extents: Vec<Extent>,
    error: Option<ReadError>,
}

impl Store {
    pub(crate) fn step_read(&mut self, token: u64, pg: PgId, range: BlockRange) -> Step {
        let slot = match self.nearest(LeafKey::of(pg, &range)) {
            Ok(slot) => slot,
            Err(step) => return step,
        };
        let BlockRange { first, count, .. } = range;
        let mut entries = [Entry::default(); CACHED_READ_BLOCKS_MAX as usize];
        let large;
        let entries: &[Entry] = match slot.and_then(|slot| self.cache.leaf(slot)) {
            None => {
                let result = Ok(vec![Extent::Zero { count }]);
                self.cx.complete(Completion::Read { token, result });
                return Step::Done;
            }
            Some(leaf) if count <= CACHED_READ_BLOCKS_MAX => {
                entries[..usize::from(count)].copy_from_slice(&leaf.entries[range.indexes()]);
                &entries[..usize::from(count)]
            }
            Some(leaf) => {
                large = leaf.entries[range.indexes()].to_vec();
                &large
            }
        };
        self.start_read(token, first, entries);
        Step::Done
    }

    /// Cuts `entries`, of the blocks from `first` on, into extents, and asks the device for what is not in memory.
    fn start_read(&mut self, token: u64, first: BlockIndex, entries: &[Entry]) {
        if let Some(unknown) = entries.iter().position(Entry::is_unknown) {
            let count = entries[unknown..].iter().take_while(|entry| entry.is_unknown()).count() as u16;
            let result = Err(ReadError::Unknown { first: BlockIndex(first.0 + unknown as u16), count });
            self.cx.complete(Completion::Read { token, result });
            return;
        }
        if let Some(lost) = entries.iter().position(Entry::is_lost) {
            let result = Err(ReadError::Lost { block: BlockIndex(first.0 + lost as u16) });
            self.cx.complete(Completion::Read { token, result });
            return;
        }
        let use_cache = self.read_cache.is_on() && entries.len() <= usize::from(CACHED_READ_BLOCKS_MAX);
        let mut read = PendingRead {
            token,
            prepared: false,
            cached: use_cache,
            waiting: 0,
            extents: Vec::with_capacity(1),
            error: None,
        };
        let id = self.next_read;
        let mut at = 0;
        while at < entries.len() {
            let block = BlockIndex(first.0 + at as u16);
            let run = &entries[at..at + run_length(&entries[at..])];
            at += run.len();
            if !run[0].is_allocated() {
                read.extents.push(Extent::Zero { count: run.len() as u16 });
                continue;
            }
            let checksums: Checksums = run.iter().map(|e| Checksum(e.checksum)).collect();
            let bytes = if use_cache { self.cached_run(run) } else { None };
            let missing = bytes.is_none();
            read.extents.push(Extent::Data { bytes: bytes.unwrap_or_default(), checksums: checksums.clone() });
            if missing {
                read.waiting += 1;
                let part = read.extents.len() - 1;
                self.fetch(Fetch { read: id, part, first: block, address: run[0].address, checksums });
            }
        }
        if read.waiting == 0 {
            self.cx.complete(Completion::Read { token, result: Ok(read.extents) });
            return;
        }
        self.add_read(id, read);
    }

    fn add_read(&mut self, id: u64, read: PendingRead) {
        self.reads.insert(id, read);
        self.next_read += 1;
    }

    fn fetch(&mut self, fetch: Fetch) {
        let segment = self.cx.segments().segment_of(fetch.address);
        self.cx.segments_mut().get_mut(segment).readers += 1;
        self.cx.counters().device_reads += 1;
        let offset = Segments::offset(fetch.address);
        let len = fetch.checksums.len() * BLOCK_SIZE;
        let io = self.cx.new_io(Io::Fetch(fetch));
        self.cx.ask(Effect::Read { io, offset, len });
    }

    /// The run, if all of it is in the read cache.
    fn cached_run(&mut self, run: &[Entry]) -> Option<Bytes> {
        let generation = self.cx.segments().get(self.cx.segments().segment_of(run[0].address)).generation;
        if let [entry] = run {
            return self.read_cache.get(CacheKey { address: entry.address, generation });
        }
        let mut blocks = Vec::with_capacity(run.len());
        for entry in run {
            blocks.push(self.read_cache.get(CacheKey { address: entry.address, generation })?);
        }
        let mut buf = azekura_base::PageBuf::new(run.len() * BLOCK_SIZE);
        for (part, block) in buf.chunks_exact_mut(BLOCK_SIZE).zip(&blocks) {
            part.copy_from_slice(block);
        }
        Some(buf.freeze())
    }

    /// The device answered for a part of a read.
    pub(crate) fn fetched(&mut self, fetch: Fetch, result: Result<Bytes, DeviceError>) {
        let segment = self.cx.segments().segment_of(fetch.address);
        self.cx.segments_mut().get_mut(segment).readers -= 1;
        let verified = result.map_err(ReadError::Device).and_then(|bytes| {
            if bytes.len() != fetch.checksums.len() * BLOCK_SIZE {
                let error = format!("{} bytes came instead of {}", bytes.len(), fetch.checksums.len() * BLOCK_SIZE);
                return Err(ReadError::Device(DeviceError(error)));
            }
            match first_bad(&bytes, &fetch.checksums) {
                Some(index) => Err(ReadError::Checksum { block: BlockIndex(fetch.first.0 + index as u16) }),
                None => Ok(bytes),
            }
        });
        let Some(read) = self.reads.get_mut(&fetch.read) else { return };
        match verified {
            Ok(bytes) => {
                if read.cached {
                    let generation = self.cx.segments().get(segment).generation;
                    for (address, block) in (fetch.address..).zip(0..fetch.checksums.len()) {
                        let block = bytes.slice(block * BLOCK_SIZE..(block + 1) * BLOCK_SIZE);
                        let alone = if bytes.len() == BLOCK_SIZE { block } else { copy_to_pages(&block) };
                        self.read_cache.put(CacheKey { address, generation }, alone);
                    }
                }
                if let Some(Extent::Data { bytes: place, .. }) = read.extents.get_mut(fetch.part) {
                    *place = bytes;
                }
            }
            Err(error) => {
                if let ReadError::Checksum { .. } = error {
                    self.cx.counters().checksum_errors += 1;
                }
                read.error.get_or_insert(error);
            }
        }
        read.waiting -= 1;
        if read.waiting == 0
            && let Some(read) = self.reads.remove(&fetch.read)
        {
            self.finish_read(read);
        }
    }

    fn finish_read(&mut self, mut read: PendingRead) {
        let token = read.token;
        let result = read.error.map_or(Ok(()), Err);
        let completion = if read.prepared {
            let body = read.extents.pop().map_or(Body::Zero, Body::from);
            Completion::Prepared { token, result: result.map(|()| body) }
        } else {
            Completion::Read { token, result: result.map(|()| read.extents) }
        };
        self.cx.complete(completion);
    }

    pub(crate) fn start_read_prepared(&mut self, token: u64, pg: PgId, sequence: Sequence) {
        let group = self.groups.get_mut(pg);
        let found = match group.find(sequence) {
            Some(pending) => match (&pending.checksums, &pending.bytes, pending.place) {
                _ if pending.info.zero => Ok(Body::Zero),
                (Some(sums), Some(bytes), _) => Ok(Body::Data { bytes: bytes.clone(), checksums: sums.clone() }),
                (Some(sums), None, Some(place)) => {
                    let (sums, first) = (sums.clone(), pending.info.header.range.first);
                    return self.read_prepared_from_device(token, place, first, sums);
                }
                _ => Err(ReadError::NotPrepared),
            },
            None => Err(ReadError::NotPrepared),
        };
        self.cx.complete(Completion::Prepared { token, result: found });
    }

    fn read_prepared_from_device(&mut self, token: u64, place: Place, first: BlockIndex, checksums: Checksums) {
        let id = self.next_read;
        let extent = Extent::Data { bytes: Bytes::new(), checksums: checksums.clone() };
        let read = PendingRead { token, prepared: true, cached: false, waiting: 1, extents: vec![extent], error: None };
        self.fetch(Fetch { read: id, part: 0, first, address: place.address, checksums });
        self.add_read(id, read);
    }

    pub(crate) fn step_status(&mut self, token: u64, key: LeafKey) -> Step {
        let slot = match self.nearest(key) {
            Ok(slot) => slot,
            Err(step) => return step,
        };
        let mut runs: Vec<Run> = Vec::new();
        match slot.and_then(|slot| self.cache.leaf(slot)) {
            None => runs.push(Run { count: CHUNK_BLOCKS as u16, data: false }),
            Some(leaf) => {
                for entry in &leaf.entries {
                    match runs.last_mut() {
                        Some(run) if run.data == entry.has_contents() => run.count += 1,
                        _ => runs.push(Run { count: 1, data: entry.has_contents() }),
                    }
                }
            }
        }
        self.cx.complete(Completion::Status { token, result: Ok(runs) });
        Step::Done
    }
}

/// Blocks at the start of `entries` that are zeros, or lie one after the other in one segment's addresses.
fn run_length(entries: &[Entry]) -> usize {
    let start = entries[0];
    let follows = |(index, entry): (u32, &Entry)| match start.is_allocated() {
        true => entry.address == start.address + index,
        false => !entry.is_allocated(),
    };
    (0..).zip(entries).take_while(|(index, entry)| follows((*index, entry))).count()
}

/// The first block of `bytes` that does not match its checksum.
pub(crate) fn first_bad(bytes: &[u8], checksums: &[Checksum]) -> Option<usize> {
    bytes.chunks_exact(BLOCK_SIZE).zip(checksums).position(|(block, sum)| checksum(block) != *sum)
}
