//! Reads: from the map's entries to extents, with every block verified.

mod cache;
mod fetch;
mod scattered;

pub(crate) use fetch::{Fetch, first_bad};
pub(crate) use scattered::Scattered;

use crate::cx::{Io, StoreCx};
use crate::effect::{Completion, DeviceError, Effect, ReadError};
use crate::groups::{Groups, Place, Written};
use crate::hash::FixedMap;
use crate::map::{Entry, Leaf, LeafKey};
use crate::options::Options;
use crate::segments::Segments;
use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Body, Checksum, Checksums, Extent, PgId, Sequence, copy_to_pages,
};
use bytes::Bytes;
use cache::{CacheKey, ReadCache};

/// Reads of up to so many blocks go through the read cache: larger ones are streams, which it would not help.
const CACHED_READ_BLOCKS_MAX: u16 = 8;

/// A read that waits for the device.
#[derive(Debug)]
struct PendingRead {
    token: u64,
    prepared: bool,
    /// Put into the read cache when it is here.
    cached: bool,
    waiting: u32,
    extents: Vec<Extent>,
    error: Option<ReadError>,
    /// What was read may be put together.
    scattered: Option<Box<Scattered>>,
}

/// All reads, and blocks in memory. See the module's description.
#[derive(Debug)]
pub(crate) struct Reads {
    waiting: FixedMap<u64, PendingRead>,
    next: u64,
    cache: ReadCache,
}

impl Reads {
    pub fn new(options: &Options) -> Reads {
        Reads { waiting: FixedMap::default(), next: 0, cache: ReadCache::new(options.read_cache_bytes_max) }
    }

    /// Blocks found in memory, blocks that were not, and the bytes of all that are.
    pub fn cache_figures(&self) -> (u64, u64, usize) {
        (self.cache.hits, self.cache.misses, self.cache.bytes())
    }

    /// Reads blocks of a chunk. `leaf` is what knows where they are; without one they are zeros. `gathers`: whose leaf
    /// that is, where scattered blocks are to be put together.
    pub fn start(
        &mut self,
        cx: &mut StoreCx,
        token: u64,
        range: BlockRange,
        leaf: Option<&Leaf>,
        gathers: Option<LeafKey>,
    ) {
        match leaf {
            Some(leaf) if range.count == 1 => {
                let entry = leaf.entries[usize::from(range.first.0)];
                self.start_entries(cx, token, range.first, &[entry], gathers);
            }
            Some(leaf) => {
                let entries: Vec<Entry> = leaf.entries.of(range.indexes()).copied().collect();
                self.start_entries(cx, token, range.first, &entries, gathers);
            }
            None => {
                let result = Ok(vec![Extent::Zero { count: range.count }]);
                cx.complete(Completion::Read { token, result });
            }
        }
    }

    /// Cuts `entries`, of the blocks from `first` on, into extents, and asks the device for what is not in memory.
    fn start_entries(
        &mut self,
        cx: &mut StoreCx,
        token: u64,
        first: BlockIndex,
        entries: &[Entry],
        gathers: Option<LeafKey>,
    ) {
        if let Some(unknown) = entries.iter().position(Entry::is_unknown) {
            let count = entries[unknown..].iter().take_while(|entry| entry.is_unknown()).count() as u16;
            let result = Err(ReadError::Unknown { first: BlockIndex(first.0 + unknown as u16), count });
            cx.complete(Completion::Read { token, result });
            return;
        }
        // A lost block is stored as zeros, which must not be taken for its data (decision 0014).
        if let Some(lost) = entries.iter().position(Entry::is_lost) {
            let result = Err(ReadError::Lost { block: BlockIndex(first.0 + lost as u16) });
            cx.complete(Completion::Read { token, result });
            return;
        }
        let use_cache = self.cache.is_on() && entries.len() <= usize::from(CACHED_READ_BLOCKS_MAX);
        let mut read = PendingRead {
            token,
            prepared: false,
            cached: use_cache,
            waiting: 0,
            extents: Vec::with_capacity(1),
            error: None,
            scattered: gathers.map(|key| Box::new(Scattered::new(key, first))),
        };
        let id = self.next;
        let mut at = 0;
        while at < entries.len() {
            let block = BlockIndex(first.0 + at as u16);
            let run = &entries[at..at + run_length(&entries[at..])];
            at += run.len();
            if !run[0].is_allocated() {
                read.extents.push(Extent::Zero { count: run.len() as u16 });
                continue;
            }
            let checksums = run.iter().map(|e| Checksum(e.checksum)).collect::<Checksums>().under(run[0].key());
            let bytes = if use_cache { self.cached_run(cx, run) } else { None };
            let missing = bytes.is_none();
            read.extents.push(Extent::Data { bytes: bytes.unwrap_or_default(), checksums: checksums.clone() });
            if let Some(scattered) = &mut read.scattered {
                scattered.add(cx.segments(), run[0].address, run.len());
            }
            if missing {
                read.waiting += 1;
                let part = read.extents.len() - 1;
                ask_device(cx, Fetch { read: id, part, first: block, address: run[0].address, checksums });
            }
        }
        if read.waiting == 0 {
            cx.complete(Completion::Read { token, result: Ok(read.extents) });
            return;
        }
        read.scattered = read.scattered.filter(|scattered| scattered.is_worthwhile());
        self.add(id, read);
    }

    fn add(&mut self, id: u64, read: PendingRead) {
        self.waiting.insert(id, read);
        self.next += 1;
    }

    /// The run, if all of it is in memory.
    fn cached_run(&mut self, cx: &StoreCx, run: &[Entry]) -> Option<Bytes> {
        let generation = cx.segments().get(cx.segments().segment_of(run[0].address)).generation;
        if let [entry] = run {
            return self.cache.get(CacheKey { address: entry.address, generation });
        }
        let mut blocks = Vec::with_capacity(run.len());
        for entry in run {
            blocks.push(self.cache.get(CacheKey { address: entry.address, generation })?);
        }
        let mut buf = azekura_base::PageBuf::new(run.len() * BLOCK_SIZE);
        for (part, block) in buf.chunks_exact_mut(BLOCK_SIZE).zip(&blocks) {
            part.copy_from_slice(block);
        }
        Some(buf.freeze())
    }

    /// The device answered for a part of a read. Gives what may be put together, when all of a read that was scattered
    /// is here.
    pub fn fetched(
        &mut self,
        cx: &mut StoreCx,
        fetch: Fetch,
        result: Result<Bytes, DeviceError>,
    ) -> Option<Box<Scattered>> {
        let segment = cx.segments().segment_of(fetch.address);
        cx.segments_mut().read_ends(segment);
        let verified = fetch.verified(result);
        let read = self.waiting.get_mut(&fetch.read)?;
        match verified {
            Ok(bytes) => {
                if read.cached {
                    let generation = cx.segments().get(segment).generation;
                    for (address, block) in (fetch.address..).zip(0..fetch.checksums.len()) {
                        let block = bytes.slice(block * BLOCK_SIZE..(block + 1) * BLOCK_SIZE);
                        let alone = if bytes.len() == BLOCK_SIZE { block } else { copy_to_pages(&block) };
                        self.cache.put(CacheKey { address, generation }, alone);
                    }
                }
                if let Some(Extent::Data { bytes: place, .. }) = read.extents.get_mut(fetch.part) {
                    *place = bytes;
                }
            }
            Err(error) => {
                if let ReadError::Checksum { .. } = error {
                    cx.counters().checksum_errors += 1;
                }
                read.error.get_or_insert(error);
            }
        }
        read.waiting -= 1;
        if read.waiting > 0 {
            return None;
        }
        let mut read = self.waiting.remove(&fetch.read)?;
        let scattered = read.scattered.take().filter(|_| read.error.is_none());
        let scattered = scattered.map(|mut scattered| {
            scattered.extents.clone_from(&read.extents);
            scattered
        });
        finish(cx, read);
        scattered
    }

    /// Reads the payload of a write that is prepared and not yet applied.
    pub fn start_prepared(&mut self, cx: &mut StoreCx, groups: &mut Groups, token: u64, pg: PgId, sequence: Sequence) {
        let group = groups.get_mut(pg);
        let found = match group.find(sequence) {
            Some(pending) => match (&pending.checksums, &pending.bytes, pending.written) {
                _ if pending.info.zero => Ok(Body::Zero),
                (Some(sums), Some(bytes), _) => Ok(Body::Data { bytes: bytes.clone(), checksums: sums.clone() }),
                (Some(sums), None, Some(Written { place, .. })) => {
                    let (sums, first) = (sums.clone(), pending.info.header.range.first);
                    return self.prepared_from_device(cx, token, place, first, sums);
                }
                _ => Err(ReadError::NotPrepared),
            },
            None => Err(ReadError::NotPrepared),
        };
        cx.complete(Completion::Prepared { token, result: found });
    }

    fn prepared_from_device(
        &mut self,
        cx: &mut StoreCx,
        token: u64,
        place: Place,
        first: BlockIndex,
        checksums: Checksums,
    ) {
        let id = self.next;
        let extent = Extent::Data { bytes: Bytes::new(), checksums: checksums.clone() };
        let read = PendingRead {
            token,
            prepared: true,
            cached: false,
            waiting: 1,
            extents: vec![extent],
            error: None,
            scattered: None,
        };
        ask_device(cx, Fetch { read: id, part: 0, first, address: place.address(), checksums });
        self.add(id, read);
    }
}

fn ask_device(cx: &mut StoreCx, fetch: Fetch) {
    let segment = cx.segments().segment_of(fetch.address);
    cx.segments_mut().read_begins(segment);
    cx.counters().device_reads += 1;
    let offset = Segments::offset(fetch.address);
    let len = fetch.checksums.len() * BLOCK_SIZE;
    let io = cx.new_io(Io::Fetch(fetch));
    cx.ask(Effect::Read { io, offset, len });
}

fn finish(cx: &mut StoreCx, mut read: PendingRead) {
    let token = read.token;
    let result = read.error.map_or(Ok(()), Err);
    let completion = if read.prepared {
        let body = read.extents.pop().map_or(Body::Zero, Body::from);
        Completion::Prepared { token, result: result.map(|()| body) }
    } else {
        Completion::Read { token, result: result.map(|()| read.extents) }
    };
    cx.complete(completion);
}

/// Blocks at the start of `entries` that are zeros, or lie one after the other in one segment's addresses and are
/// encrypted under the same generation of a key.
fn run_length(entries: &[Entry]) -> usize {
    let start = entries[0];
    let follows = |(index, entry): (u32, &Entry)| match start.is_allocated() {
        true => entry.address == start.address + index && entry.key() == start.key(),
        false => !entry.is_allocated(),
    };
    (0..).zip(entries).take_while(|(index, entry)| follows((*index, entry))).count()
}
