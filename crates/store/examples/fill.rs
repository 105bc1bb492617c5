//! What cleaning costs on a device that is filled to a share of its bytes and overwritten at random.
//!
//!     cargo run --release -p azekura-store --example fill -- 70 [hot]
//!
//! Prints, for each time that as much as the data has been overwritten, the blocks written in all for one that a client
//! wrote, the time spent stalled, and the memory that the store's parts have. With `hot`, nine writes of ten go to a
//! tenth of the blocks. The device takes no time and keeps no data: what is read back is one block with one checksum.
#![allow(clippy::unwrap_used)]

use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Body, ChunkIndex, DeviceId, Epoch, LayerId, PgId, RequestId, Sequence,
    SessionId, Write, WriteHeader,
};
use azekura_store::{Done, Effect, Identity, InMemoryMap, Options, SavedMap, Store};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

const DEPTH: u64 = 128;
/// Segments of 32 MiB: a device of 4 GiB.
const SEGMENTS: u32 = 128;
/// Turns of the event loop, of 500 µs, that a batch of the clients takes at least: 64,000 writes a second.
const TURNS_MIN: u64 = 4;
const ROUNDS: u64 = 4;

/// Headers and summaries, which are read back; all payload blocks are the same.
struct Device {
    blocks: BTreeMap<u64, Bytes>,
    block: Bytes,
}

impl Device {
    fn write(&mut self, offset: u64, pieces: &[Bytes]) {
        let mut at = offset / BLOCK_SIZE as u64;
        for piece in pieces {
            for from in (0..piece.len()).step_by(BLOCK_SIZE) {
                let block = piece.slice(from..from + BLOCK_SIZE);
                if block == self.block {
                    self.blocks.remove(&at);
                } else {
                    self.blocks.insert(at, Bytes::copy_from_slice(&block));
                }
                at += 1;
            }
        }
    }

    fn read(&self, offset: u64, len: usize) -> Bytes {
        let mut buf = azekura_base::PageBuf::new(len);
        for (at, into) in (offset / BLOCK_SIZE as u64..).zip(buf.chunks_exact_mut(BLOCK_SIZE)) {
            into.copy_from_slice(self.blocks.get(&at).unwrap_or(&self.block));
        }
        buf.freeze()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let percent: u64 = arguments.get(1).map_or(70, |value| value.parse().unwrap());
    let hot = arguments.get(2).is_some_and(|value| value == "hot");
    let options = Options { segments: SEGMENTS, read_cache_bytes_max: 0, ..Options::default() };
    let identity = Identity { cluster: 1, device: DeviceId(1), instance: 1 };
    let format = Store::format(&options, &identity).unwrap();
    let block = azekura_base::copy_to_pages(&[0x5a; BLOCK_SIZE]);
    let mut device = Device { blocks: BTreeMap::new(), block: block.clone() };
    device.write(format.offset, &format.pieces);
    let mut map = InMemoryMap::new();
    map.checkpoint(format.checkpoint).unwrap();
    let mut store = Store::open(options.clone(), identity, map.root().unwrap().unwrap());
    let blocks = options.device_bytes() / BLOCK_SIZE as u64 * percent / 100;
    let body = Body::data(block);
    let mut now = Duration::ZERO;
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut sequence = 0;
    let mut turn = |store: &mut Store, ticks: u64| {
        now += Duration::from_micros(ticks);
        store.tick(now);
        store.pump();
        if store.checkpoint_due() {
            store.begin_checkpoint(|_| None);
        }
        let mut effects = Vec::new();
        while let Some(effect) = store.next_effect() {
            effects.push(effect);
        }
        for effect in effects {
            let (io, done) = match effect {
                Effect::Write { io, offset, pieces, .. } => {
                    device.write(offset, &pieces);
                    (io, Done::Written(Ok(())))
                }
                Effect::Read { io, offset, len } => (io, Done::Read(Ok(device.read(offset, len)))),
                Effect::Flush { io } => (io, Done::Flushed(Ok(()))),
                effect => map.perform(effect).unwrap(),
            };
            store.done(io, done);
        }
        while store.next_completion().is_some() {}
    };
    for _ in 0..20 {
        turn(&mut store, 100);
    }
    println!(
        "{percent} % of {} MiB, {}",
        options.device_bytes() >> 20,
        if hot { "nine of ten to a tenth" } else { "uniform" }
    );
    for round in 0..=ROUNDS {
        let before = store.statistics();
        let (mut turns, mut batches) = (0u64, 0u64);
        for group in 0..blocks / DEPTH {
            for index in 0..DEPTH {
                let at = match round {
                    0 => group * DEPTH + index,
                    _ if hot && random() % 10 < 9 => random() % (blocks / 10),
                    _ => random() % blocks,
                };
                sequence += 1;
                let (chunk, first) = ((at / 1024) as u32, (at % 1024) as u16);
                let range =
                    BlockRange { layer: LayerId(1), chunk: ChunkIndex(chunk), first: BlockIndex(first), count: 1 };
                let header = WriteHeader {
                    pg: PgId(1),
                    epoch: Epoch(0),
                    sequence: Sequence(sequence),
                    commit: store.group(PgId(1)).committed,
                    session: SessionId(1),
                    request: RequestId(sequence),
                    range,
                };
                let write = Write { header, body: body.clone() };
                store.append(sequence, write);
            }
            batches += 1;
            let mut waited = 0;
            loop {
                turn(&mut store, 500);
                turns += 1;
                let at_rest = store.statistics().records_waiting == 0 && store.statistics().batches_in_flight == 0;
                waited += 1;
                if at_rest && waited >= TURNS_MIN {
                    break;
                }
                assert!(turns < 1_000_000, "stuck: {}", store.describe());
            }
            store.commit(PgId(1), Sequence(sequence));
        }
        let after = store.statistics();
        let clients = after.client_blocks - before.client_blocks;
        let log = (after.log_bytes - before.log_bytes) / BLOCK_SIZE as u64;
        println!(
            "round {round}: {:.2} blocks of log a block, {:.2} moved, {:.1} % map; {:.2} turns a batch; {} free; {} leaves in {} checkpoints, {} segments freed",
            log as f64 / clients as f64,
            (after.moved_blocks - before.moved_blocks) as f64 / clients as f64,
            (after.checkpoint_bytes - before.checkpoint_bytes) as f64 * 100.0
                / (after.log_bytes - before.log_bytes) as f64,
            turns as f64 / batches as f64,
            store.space().free_segments,
            after.checkpoint_leaves - before.checkpoint_leaves,
            after.checkpoints - before.checkpoints,
            after.cleaned_segments - before.cleaned_segments
        );
    }
}
