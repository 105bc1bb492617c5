//! What the store costs in processor time for 4 KiB blocks, with a device that takes no time.
//!
//!     cargo run --release -p azekura-store --example cost
//!
//! Each figure is the whole path: call, batch, effects, completions. The device gives the same block back at every
//! read, so that no copy of this program's is counted; checksums are computed and compared as ever.
#![allow(clippy::unwrap_used)]

use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Body, ChunkIndex, DeviceId, Epoch, LayerId, PgId, RequestId, Sequence,
    SessionId, Write, WriteHeader,
};
use azekura_store::{Completion, Done, Effect, Identity, InMemoryMap, Options, SavedMap, Store};
use bytes::Bytes;
use std::time::{Duration, Instant};

const GROUPS: u32 = 64;
const CHUNKS: u32 = 512;
const DEPTH: usize = 128;
const WRITES: usize = 1_000_000;
const READS: usize = 2_000_000;

struct Bench {
    store: Store,
    map: InMemoryMap,
    superblock: Bytes,
    block: Bytes,
    now: Duration,
    written: u64,
}

impl Bench {
    fn turn(&mut self) {
        self.now += Duration::from_micros(100);
        self.store.tick(self.now);
        self.store.pump();
        if self.store.checkpoint_due() {
            self.store.begin_checkpoint(|_| None);
        }
        while let Some(effect) = self.store.next_effect() {
            let (io, done) = match effect {
                Effect::Write { io, pieces, .. } => {
                    self.written += pieces.iter().map(|p| p.len() as u64).sum::<u64>();
                    (io, Done::Written(Ok(())))
                }
                Effect::Read { io, offset: 0, .. } => (io, Done::Read(Ok(self.superblock.clone()))),
                Effect::Read { io, len, .. } if len == BLOCK_SIZE => (io, Done::Read(Ok(self.block.clone()))),
                Effect::Read { io, len, .. } => (io, Done::Read(Ok(vec![0; len].into()))),
                Effect::Flush { io } => (io, Done::Flushed(Ok(()))),
                effect => self.map.perform(effect).unwrap(),
            };
            self.store.done(io, done);
        }
    }
}

/// A walk over numbers below `limit` that looks random.
fn scramble(index: u64, limit: u64) -> u64 {
    (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % limit
}

fn range_of(chunk: u32, at: u64) -> BlockRange {
    BlockRange::block(LayerId(1), ChunkIndex(chunk), BlockIndex((at % 1024) as u16))
}

fn main() {
    let options = Options { segments: 1024, read_cache_bytes_max: 0, ..Options::default() };
    let identity = Identity { cluster: 1, device: DeviceId(1), instance: 1 };
    let format = Store::format(&options, &identity).unwrap();
    let mut map = InMemoryMap::new();
    map.checkpoint(format.checkpoint).unwrap();
    let store = Store::open(options, identity, map.root().unwrap().unwrap());
    let block = azekura_base::copy_to_pages(&[0x5a; BLOCK_SIZE]);
    let body = Body::data(block.clone());
    let superblock = format.pieces[0].clone();
    let mut bench = Bench { store, map, superblock, block, now: Duration::ZERO, written: 0 };
    while !matches!(bench.store.next_completion(), Some(Completion::Recovered(Ok(())))) {
        bench.turn();
    }

    let blocks = u64::from(CHUNKS) * 1024;
    let mut sequences = vec![0u64; GROUPS as usize];
    let mut write = |bench: &mut Bench, index: u64, at: u64| {
        let chunk = (at / 1024) as u32;
        let pg = chunk % GROUPS;
        let sequence = &mut sequences[pg as usize];
        *sequence += 1;
        let header = WriteHeader {
            pg: PgId(pg),
            epoch: Epoch(0),
            sequence: Sequence(*sequence),
            commit: Sequence(*sequence - 1).min(bench.store.group(PgId(pg)).committed),
            session: SessionId(1),
            request: RequestId(index),
            range: range_of(chunk, at),
        };
        bench.store.append(index, Write { header, body: body.clone() });
        (PgId(pg), Sequence(*sequence))
    };
    let settle = |bench: &mut Bench, waiting: &mut Vec<(PgId, Sequence)>| {
        while !waiting.is_empty() {
            bench.turn();
            while let Some(completion) = bench.store.next_completion() {
                assert!(!matches!(completion, Completion::Failed(_)));
            }
            if bench.store.statistics().batches_in_flight == 0 && bench.store.statistics().records_waiting == 0 {
                waiting.drain(..).for_each(|(pg, sequence)| bench.store.commit(pg, sequence));
            }
        }
    };

    let mut waiting = Vec::new();
    let start = Instant::now();
    for index in 0..blocks {
        waiting.push(write(&mut bench, index, index));
        if waiting.len() == DEPTH {
            settle(&mut bench, &mut waiting);
        }
    }
    settle(&mut bench, &mut waiting);
    report("sequential append and commit", start, blocks as usize);

    let before = (bench.store.statistics(), bench.written);
    let start = Instant::now();
    for index in 0..WRITES {
        waiting.push(write(&mut bench, index as u64, scramble(index as u64, blocks)));
        if waiting.len() == DEPTH {
            settle(&mut bench, &mut waiting);
        }
    }
    settle(&mut bench, &mut waiting);
    report("random append and commit", start, WRITES);
    let after = bench.store.statistics();
    println!(
        "    {} checkpoints, {} leaves; leaf images are {:.1} % of {} MiB of log",
        after.checkpoints - before.0.checkpoints,
        after.checkpoint_leaves - before.0.checkpoint_leaves,
        (after.checkpoint_bytes - before.0.checkpoint_bytes) as f64 * 100.0 / (bench.written - before.1) as f64,
        (bench.written - before.1) >> 20
    );

    let start = Instant::now();
    let mut done = 0;
    for index in 0..READS {
        let at = scramble(index as u64 ^ 0x5555, blocks);
        let chunk = (at / 1024) as u32;
        bench.store.read(index as u64, PgId(chunk % GROUPS), range_of(chunk, at));
        if index % DEPTH == DEPTH - 1 {
            bench.turn();
            while let Some(completion) = bench.store.next_completion() {
                if let Completion::Read { result, .. } = completion {
                    done += usize::from(result.is_ok());
                }
            }
        }
    }
    report("random read", start, READS);
    assert_eq!(done, READS / DEPTH * DEPTH);
}

fn report(what: &str, start: Instant, count: usize) {
    let each = start.elapsed().as_secs_f64() * 1e6 / count as f64;
    println!("{what}: {each:.3} us a block");
}
