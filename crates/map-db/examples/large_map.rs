//! A large saved map without a cluster, and how long it takes to open it.
//!
//!     cargo run --release -p azekura-map-db --example large_map -- FILE fill LEAVES [BLOCKS] [closed]
//!     cargo run --release -p azekura-map-db --example large_map -- FILE open
//!
//! `fill` makes the map of a device with so many chunks, each with BLOCKS blocks (1024: all of them), in checkpoints
//! as a store makes them. It ends without closing the database, as a node that is killed does, unless `closed` is said.
//! 640,000 leaves with all blocks are some 16 GiB. `open` opens the database and a store on it, whose log is empty,
//! and loads leaves at random; the time of each is printed. A second `open` finds a database that was closed.
#![allow(clippy::unwrap_used)]

use azekura_base::{BLOCK_SIZE, CHUNK_BLOCKS, Checksum, ChunkIndex, DeviceId, LayerId, PageBuf, PgId, Sequence};
use azekura_map_db::CheckpointDb;
use azekura_store::{
    CheckpointBatch, Completion, Done, Effect, Entry, Identity, Leaf, LeafImage, LeafKey, Options, SavedLeaf, SavedMap,
    SegmentRow, Store,
};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const IDENTITY: Identity = Identity { cluster: 1, device: DeviceId(1), instance: 1 };
const LAYER: LayerId = LayerId(1);
/// Leaves of one checkpoint.
const BATCH: u64 = 1024;
/// Groups that the chunks belong to.
const GROUPS: u64 = 64;
/// Leaves that `open` loads.
const LOADED: u64 = 1000;
const TELL_EVERY: Duration = Duration::from_secs(2);

fn key(chunk: u64) -> LeafKey {
    LeafKey { layer: LAYER, chunk: ChunkIndex(chunk as u32), pg: PgId((chunk % GROUPS) as u32) }
}

/// The leaf of a chunk whose blocks lie one behind the other, from this address on.
fn leaf(chunk: u64, blocks: u64, address: u64) -> LeafImage {
    let mut leaf = Leaf { modified: Sequence(chunk + 1), ..Leaf::default() };
    for block in 0..blocks {
        let at = (block * CHUNK_BLOCKS as u64 / blocks) as usize;
        let checksum = Checksum((chunk * blocks + block) as u32);
        leaf.entries.set(at, Entry::own((address + block) as u32, checksum));
    }
    Arc::new(leaf)
}

fn fill(map: &mut CheckpointDb, leaves: u64, blocks: u64) {
    // Segment 0 is where the log ends; the blocks lie behind it.
    let per_segment = u64::from(Options::default().segment_blocks);
    let full = (leaves * blocks).div_ceil(per_segment);
    let options = Options { segments: full as u32 + 8, ..Options::default() };
    let mut first = Store::format(&options, &IDENTITY).unwrap().checkpoint;
    first.root.position.generation = full + 1;
    first.segments = vec![(0, SegmentRow { generation: full + 1, live: 0, used: true })];
    for segment in 1..=full {
        let live = (leaves * blocks - (segment - 1) * per_segment).min(per_segment) as u32;
        first.segments.push((segment as u32, SegmentRow { generation: segment, live, used: true }));
    }
    first.layers = vec![(LAYER, leaves * blocks)];
    let root = first.root.clone();
    map.checkpoint(first).unwrap();
    let begins = options.device_bytes() / BLOCK_SIZE as u64 - (u64::from(options.segments) - 1) * per_segment;
    let (began, mut told) = (Instant::now(), Instant::now());
    for from in (0..leaves).step_by(BATCH as usize) {
        let chunks = from..(from + BATCH).min(leaves);
        let saved = chunks.map(|chunk| (key(chunk), leaf(chunk, blocks, begins + chunk * blocks))).collect();
        map.checkpoint(CheckpointBatch {
            root: root.clone(),
            segments: Vec::new(),
            leaves: saved,
            removed: Vec::new(),
            layers: Vec::new(),
            merged_owners: Vec::new(),
            merged_owners_gone: Vec::new(),
        })
        .unwrap();
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            println!("{:5.0} s  {from} of {leaves} leaves", began.elapsed().as_secs_f64());
        }
    }
    println!("{leaves} leaves of {blocks} blocks: {:.1} s", began.elapsed().as_secs_f64());
}

/// Opens a store on the map, whose log is empty: behind its superblock the device reads as zeros.
fn open_store(map: &mut CheckpointDb) -> Store {
    let root = map.root().unwrap().expect("the map is empty: fill it first");
    let segments = root.segments.iter().map(|(segment, _)| segment + 1).max().unwrap_or(0) + 7;
    let options = Options { segments, ..Options::default() };
    let superblock = Store::format(&options, &IDENTITY).unwrap().pieces.concat();
    let read = |offset: u64, len: usize| {
        let mut buf = PageBuf::new(len);
        let known = superblock.get(offset as usize..).unwrap_or_default();
        let known = &known[..known.len().min(len)];
        buf[..known.len()].copy_from_slice(known);
        buf.freeze()
    };
    let mut store = Store::open(options, IDENTITY, root);
    loop {
        while let Some(effect) = store.next_effect() {
            let (io, done) = match effect {
                Effect::Read { io, offset, len } => (io, Done::Read(Ok(read(offset, len)))),
                Effect::Write { io, .. } => (io, Done::Written(Ok(()))),
                Effect::Flush { io } => (io, Done::Flushed(Ok(()))),
                effect => map.perform(effect).unwrap(),
            };
            store.done(io, done);
        }
        if let Completion::Recovered(result) = store.next_completion().expect("the opening comes to an end") {
            result.unwrap();
            return store;
        }
    }
}

fn open(path: &Path) {
    let mut last = Instant::now();
    let mut took = |what: &str| {
        println!("{what}: {:.3} s", last.elapsed().as_secs_f64());
        last = Instant::now();
    };
    let mut map = CheckpointDb::open(path).unwrap();
    took("the database");
    let store = open_store(&mut map);
    took("the store");
    let blocks: u64 = store.layers().map(|(_, blocks)| blocks).sum();
    // There is a leaf for each chunk up to the last one.
    let is_there = |chunk: u32| !map.scan_layer(LAYER, ChunkIndex(chunk), 1).unwrap().is_empty();
    let chunks = (0..u32::BITS).rev().fold(0, |below, bit| below | (u32::from(is_there(below | 1 << bit)) << bit));
    let mut state = 1u64;
    let mut whole = 0;
    for _ in 0..LOADED {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let found = map.load_leaves(&[key((state >> 33) % (u64::from(chunks) + 1))]).unwrap();
        whole += found.iter().filter(|leaf| matches!(leaf, SavedLeaf::Whole(_))).count();
    }
    took("1,000 leaves at random");
    println!("{whole} of them whole; {blocks} blocks live");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (path, command) = match words[..] {
        [path, command, ..] => (Path::new(path), command),
        _ => panic!("large_map FILE fill LEAVES [BLOCKS] [closed] | large_map FILE open"),
    };
    match command {
        "fill" => {
            let numbers: Vec<u64> = words[2..].iter().filter_map(|word| word.parse().ok()).collect();
            let leaves = *numbers.first().expect("how many leaves");
            let blocks = numbers.get(1).map_or(CHUNK_BLOCKS as u64, |blocks| *blocks);
            assert!((1..=CHUNK_BLOCKS as u64).contains(&blocks), "a chunk has 1024 blocks");
            assert!(!path.exists(), "{} exists", path.display());
            let mut map = CheckpointDb::open(path).unwrap();
            fill(&mut map, leaves, blocks);
            println!("{} MiB", std::fs::metadata(path).unwrap().len() >> 20);
            if words.last() != Some(&"closed") {
                std::process::exit(0);
            }
        }
        "open" => open(path),
        other => panic!("there is no '{other}'"),
    }
}
