//! What random 4 KiB blocks cost over dense data of many times what the map's memory holds, without a cluster.
//!
//!     cargo run --release -p azekura-map-db --example dense -- FOLDER [MEMORY_MIB] [TIMES] [THIN_CHUNKS]
//!
//! The store's map is a database in FOLDER; its log is on a device that takes no time and keeps only what is not the
//! one block that all data consists of. Each range is written in order first. Then come random writes and reads inside
//! of what memory holds, and over TIMES of that (10). At last the store is opened anew, as after a kill.
//!
//! With THIN_CHUNKS there are random writes to one block in each 128 KiB of so many chunks instead.
#![allow(clippy::unwrap_used)]

use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Body, ChunkIndex, DeviceId, Epoch, LayerId, PageBuf, PgId, RequestId, Sequence,
    SessionId, Write, WriteHeader,
};
use azekura_map_db::CheckpointDb;
use azekura_store::{Completion, Done, Effect, Identity, Options, SavedMap, Statistics, Store};
use bytes::Bytes;
use redb::StorageBackend;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const IDENTITY: Identity = Identity { cluster: 1, device: DeviceId(1), instance: 1 };
const LAYER: LayerId = LayerId(1);
const GROUPS: u32 = 64;
const DEPTH: usize = 128;
/// Blocks of a record when data is written in order.
const RECORD: u16 = 512;
/// Memory of a leaf with all blocks, about.
const LEAF_BYTES: u64 = 12_500;
const WRITES: u64 = 600_000;
const READS: u64 = 200_000;
const THIN_WRITES: u64 = 1_500_000;
/// Of a thin volume one block in so many is written.
const THIN_STEP: u64 = 32;

#[derive(Debug, Clone, Default)]
struct Counted(Arc<[AtomicU64; 3]>);

/// A file of which is counted how much is read and written, and in how many writes.
#[derive(Debug)]
struct CountedFile(File, Counted);

impl StorageBackend for CountedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.1.0[0].fetch_add(out.len() as u64, Ordering::Relaxed);
        self.0.read_exact_at(out, offset)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.1.0[1].fetch_add(data.len() as u64, Ordering::Relaxed);
        self.1.0[2].fetch_add(1, Ordering::Relaxed);
        self.0.write_all_at(data, offset)
    }
}

struct Bench {
    store: Store,
    map: CheckpointDb,
    counted: Counted,
    /// Blocks of the device that are not data.
    device: HashMap<u64, Bytes>,
    data: Bytes,
    began: Instant,
    sequences: Vec<u64>,
    waiting: Vec<(PgId, Sequence)>,
}

impl Bench {
    fn read(&self, offset: u64, len: usize) -> Bytes {
        if len == BLOCK_SIZE {
            let known = self.device.get(&(offset / BLOCK_SIZE as u64)).cloned();
            return known.unwrap_or_else(|| self.data.slice(..BLOCK_SIZE));
        }
        let mut buf = PageBuf::new(len);
        for (at, block) in (offset / BLOCK_SIZE as u64..).zip(buf.chunks_exact_mut(BLOCK_SIZE)) {
            // What nobody has written reads as zeros.
            if let Some(known) = self.device.get(&at) {
                block.copy_from_slice(known);
            }
        }
        buf.freeze()
    }

    fn write_blocks(&mut self, offset: u64, pieces: Vec<Bytes>) {
        let data = self.data.as_ptr_range();
        let mut at = offset / BLOCK_SIZE as u64;
        for piece in pieces {
            for block in (0..piece.len()).step_by(BLOCK_SIZE) {
                if data.contains(&piece.as_ptr()) {
                    self.device.remove(&at);
                } else {
                    self.device.insert(at, Bytes::copy_from_slice(&piece[block..block + BLOCK_SIZE]));
                }
                at += 1;
            }
        }
    }

    fn turn(&mut self) {
        self.store.tick(self.began.elapsed());
        self.store.pump();
        if self.store.checkpoint_due() {
            self.store.begin_checkpoint(|_| None);
        }
        while let Some(effect) = self.store.next_effect() {
            let (io, done) = match effect {
                Effect::Write { io, offset, pieces, .. } => {
                    self.write_blocks(offset, pieces);
                    (io, Done::Written(Ok(())))
                }
                Effect::Read { io, offset, len } => (io, Done::Read(Ok(self.read(offset, len)))),
                Effect::Flush { io } => (io, Done::Flushed(Ok(()))),
                effect => self.map.perform(effect).unwrap(),
            };
            self.store.done(io, done);
        }
    }

    fn append(&mut self, block: u64, count: u16) {
        let chunk = (block / 1024) as u32;
        let pg = chunk % GROUPS;
        self.sequences[pg as usize] += 1;
        let sequence = Sequence(self.sequences[pg as usize]);
        let committed = self.store.group(PgId(pg)).committed;
        let first = BlockIndex((block % 1024) as u16);
        let header = WriteHeader {
            pg: PgId(pg),
            epoch: Epoch(0),
            sequence,
            commit: Sequence(sequence.0 - 1).min(committed),
            session: SessionId(1),
            request: RequestId(sequence.0),
            range: BlockRange { layer: LAYER, chunk: ChunkIndex(chunk), first, count },
        };
        let body = Body::data(self.data.slice(..usize::from(count) * BLOCK_SIZE));
        self.store.append(0, Write { header, body });
        self.waiting.push((PgId(pg), sequence));
        if self.waiting.len() >= DEPTH / usize::from(count).min(DEPTH) {
            self.settle();
        }
    }

    fn settle(&mut self) {
        while !self.waiting.is_empty() {
            self.turn();
            while let Some(completion) = self.store.next_completion() {
                assert!(!matches!(completion, Completion::Failed(_)), "{completion:?}");
            }
            let statistics = self.store.statistics();
            if statistics.batches_in_flight == 0 && statistics.records_waiting == 0 {
                let waiting = std::mem::take(&mut self.waiting);
                waiting.into_iter().for_each(|(pg, sequence)| self.store.commit(pg, sequence));
            }
        }
    }

    fn fill(&mut self, chunks: u64) {
        for block in (0..chunks * 1024).step_by(usize::from(RECORD)) {
            self.append(block, RECORD);
        }
        self.settle();
    }

    fn measure(&mut self, what: &str, count: u64, act: impl FnOnce(&mut Bench)) -> f64 {
        let bytes = |bench: &Bench, which: usize| bench.counted.0[which].load(Ordering::Relaxed);
        let before = self.store.statistics();
        let (read, written, writes) = (bytes(self, 0), bytes(self, 1), bytes(self, 2));
        let start = Instant::now();
        act(self);
        let us = start.elapsed().as_secs_f64() * 1e6 / count as f64;
        let after = self.store.statistics();
        // An opening begins to count anew.
        let since = |of: fn(&Statistics) -> u64| of(&after).saturating_sub(of(&before));
        let each = |of: fn(&Statistics) -> u64| since(of) as f64 / count as f64;
        println!(
            "{what:24} {us:7.2} us; each: {:.3} leaves asked for, {:.3} saved, {:.0} bytes of map written in {:.3} writes, {:.0} read; \
             {} checkpoints, {} MiB of memory, {} MiB to replay, {} blocks moved",
            each(|s| s.leaf_misses),
            each(|s| s.checkpoint_leaves),
            (bytes(self, 1) - written) as f64 / count as f64,
            (bytes(self, 2) - writes) as f64 / count as f64,
            (bytes(self, 0) - read) as f64 / count as f64,
            since(|s| s.checkpoints),
            after.leaf_bytes >> 20,
            after.replay_bytes >> 20,
            since(|s| s.moved_blocks),
        );
        us
    }
}

/// A walk over numbers below `limit` that looks random.
fn scramble(index: u64, limit: u64) -> u64 {
    let mixed = (index ^ (index >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((u128::from(mixed ^ (mixed >> 29)) * u128::from(limit)) >> 64) as u64
}

fn random_writes(bench: &mut Bench, chunks: u64) {
    for index in 0..WRITES {
        bench.append(scramble(index, chunks * 1024), 1);
    }
    bench.settle();
}

fn thin_writes(bench: &mut Bench, chunks: u64) {
    for index in 0..THIN_WRITES {
        bench.append(scramble(index, chunks * 1024 / THIN_STEP) * THIN_STEP, 1);
    }
    bench.settle();
}

fn random_reads(bench: &mut Bench, chunks: u64) {
    let mut done = BTreeSet::new();
    for index in 0..READS {
        let block = scramble(index ^ 0x5555, chunks * 1024);
        let chunk = (block / 1024) as u32;
        let range = BlockRange::block(LAYER, ChunkIndex(chunk), BlockIndex((block % 1024) as u16));
        bench.store.read(index, PgId(chunk % GROUPS), range);
        if index % DEPTH as u64 == DEPTH as u64 - 1 {
            while done.len() as u64 <= index {
                bench.turn();
                while let Some(completion) = bench.store.next_completion() {
                    if let Completion::Read { token, result } = completion {
                        result.unwrap();
                        done.insert(token);
                    }
                }
            }
        }
    }
}

fn open(bench: &mut Bench, options: &Options) {
    let root = bench.map.root().unwrap().unwrap();
    bench.store = Store::open(options.clone(), IDENTITY, root);
    loop {
        bench.turn();
        if let Some(Completion::Recovered(result)) = bench.store.next_completion() {
            return result.unwrap();
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(arguments.first().expect("dense FOLDER [MEMORY_MIB] [TIMES]"));
    let number = |at: usize, usual: u64| arguments.get(at).map_or(usual, |n| n.parse().unwrap());
    let (memory, times) = (number(1, 16) << 20, number(2, 10));
    let thin = number(3, 0);
    let held = memory / LEAF_BYTES;
    // Unsaved leaves may take half of the memory: a range of that size would be at that bound.
    let (inside, over) = (held / 4, held * times);
    let path = folder.join("dense.redb");
    assert!(!path.exists(), "{} exists", path.display());
    let counted = Counted::default();
    let (file, counts) = (path.clone(), counted.clone());
    let opens = move || {
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&file)?;
        Ok(Box::new(CountedFile(opened, counts.clone())) as Box<dyn StorageBackend>)
    };
    // As a node has it whose devices are few.
    let cache_bytes = if thin > 0 { 64 << 20 } else { 16 << 20 };
    let mut map = CheckpointDb::over_with(opens, cache_bytes).unwrap();
    // All that is written fits: nothing is cleaned.
    let blocks = match thin {
        0 => (over + inside) * 1024 + 6 * WRITES,
        chunks => chunks * 1024 / THIN_STEP + 4 * THIN_WRITES,
    };
    let segment_blocks = Options::default().segment_blocks;
    let options = Options {
        segments: (blocks / u64::from(segment_blocks)) as u32 * 2 + 64,
        leaf_cache_bytes_max: memory as usize,
        read_cache_bytes_max: 0,
        ..Options::default()
    };
    let format = Store::format(&options, &IDENTITY).unwrap();
    map.checkpoint(format.checkpoint).unwrap();
    let store = Store::open(options.clone(), IDENTITY, map.root().unwrap().unwrap());
    let data = azekura_base::copy_to_pages(&vec![0x5a; usize::from(RECORD) * BLOCK_SIZE]);
    let (device, began) = (HashMap::new(), Instant::now());
    let (sequences, waiting) = (vec![0; GROUPS as usize], Vec::new());
    let mut bench = Bench { store, map, counted, device, data, began, sequences, waiting };
    bench.write_blocks(0, format.pieces);
    open(&mut bench, &options);
    if thin > 0 {
        println!("{} MiB of memory, {thin} chunks", memory >> 20);
        for turn in ["thin, for the first time", "again", "and again"] {
            bench.measure(turn, THIN_WRITES, |bench| thin_writes(bench, thin));
        }
        return std::fs::remove_file(&path).unwrap();
    }
    println!("{} MiB of memory, {inside} chunks inside, {over} chunks over", memory >> 20);

    bench.measure("in order", over * 1024, |bench| bench.fill(over));
    bench.measure("(to begin)", WRITES, |bench| random_writes(bench, inside));
    let writes = [inside, over]
        .map(|chunks| bench.measure(&format!("random writes, {chunks}"), WRITES, |bench| random_writes(bench, chunks)));
    let again = bench.measure("the same again", WRITES, |bench| random_writes(bench, over));
    println!("rate of writes over that inside: {:.2}, {:.2}", writes[0] / writes[1], writes[0] / again);
    bench.measure("opened", 1, |bench| open(bench, &options));
    bench.measure("(to begin)", READS, |bench| random_reads(bench, inside));
    let reads = [inside, over]
        .map(|chunks| bench.measure(&format!("random reads, {chunks}"), READS, |bench| random_reads(bench, chunks)));
    println!("rate of reads over that inside: {:.2}", reads[0] / reads[1]);
    std::fs::remove_file(&path).unwrap();
}
