//! Blocks that a client reads and that lie scattered are put together (decision 0063).
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{BLOCK_SIZE, PgId};
use azekura_store::{Completion, Options};
use std::time::Duration;

/// Blocks of the chunk that is read.
const BLOCKS: u16 = 48;
/// Of as many again in another chunk, which lie between them.
const OTHER: u32 = 7;
const PG: PgId = PgId(1);

fn options() -> Options {
    Options {
        segments: 32,
        segment_blocks: 64,
        cleaning_reserve_percent: 60,
        gathered_read_blocks_min: 16,
        gathering_blocks_max: 64,
        leaf_cache_bytes_max: 1 << 20,
        ..tiny()
    }
}

/// A block that holds `value`.
fn block(value: u64) -> azekura_base::Body {
    filled_plain(value, 1)
}

/// What block `number` holds that was written in this round.
fn value(round: u64, number: u16) -> u64 {
    round * 1000 + u64::from(number)
}

/// A chunk whose blocks were written one by one, far from their neighbours.
fn scattered(options: &Options) -> Rig {
    let mut rig = Rig::format(options);
    // 29 has no divisor in common with 48: each block once.
    for step in 0..BLOCKS {
        let number = step * 29 % BLOCKS;
        rig.write(PG.0, 10, 0, number, block(value(1, number)), 1);
        rig.write(PG.0, 10, OTHER, step, block(9), 1);
    }
    // What is in the segment that is being written stays where it is.
    for step in 0..options.segment_blocks as u16 {
        rig.write(PG.0, 10, OTHER + 1, step, block(9), 1);
    }
    rig
}

/// Reads the chunk as a client does, and does all that follows. Gives the device's reads.
fn serve(rig: &mut Rig) -> u64 {
    let before = rig.store.statistics().device_reads;
    rig.store.serve_read(5, PG, blocks(10, 0, 0, BLOCKS));
    rig.settle();
    let reads = rig.store.statistics().device_reads - before;
    let found = rig.done.drain(..).find_map(|completion| match completion {
        Completion::Read { token: 5, result } => Some(flatten(&result.unwrap(), BLOCKS)),
        _ => None,
    });
    assert!(found.unwrap() == contents(1));
    reads
}

fn contents(round: u64) -> Vec<u8> {
    (0..BLOCKS).flat_map(|number| bytes_of(&block(value(round, number)), 1)).collect()
}

fn pass(rig: &mut Rig, millis: u64) {
    rig.time += Duration::from_millis(millis);
    rig.store.tick(rig.time);
}

#[test]
fn what_is_read_once_lies_together_afterwards() {
    let mut rig = scattered(&options());
    assert_eq!(serve(&mut rig), u64::from(BLOCKS), "no two of them are neighbours");
    assert_eq!(rig.store.statistics().gathered_blocks, u64::from(BLOCKS));
    rig.check_accounts();
    // Three batches of at most 16 blocks.
    assert_eq!(serve(&mut rig), 3);
    assert_eq!(rig.store.statistics().gathered_blocks, u64::from(BLOCKS), "there is nothing more to be won");
    let (disk, map) = rig.crash(|_, _| false);
    let mut after = Rig::open(&options(), disk, map).unwrap();
    assert_eq!(serve(&mut after), 3);
    after.check_accounts();
}

/// One step of what is under way. False: there is nothing.
fn step(rig: &mut Rig) -> bool {
    rig.store.pump();
    rig.take_effects();
    if !rig.reads_waiting.is_empty() {
        rig.finish_read(0);
    } else if !rig.disk.waiting.is_empty() {
        rig.finish_write(0);
    } else if !rig.map_waiting.is_empty() {
        rig.finish_map(0);
    } else {
        return false;
    }
    true
}

#[test]
fn a_crash_at_any_step_loses_nothing() {
    let mut rig = scattered(&options());
    rig.store.serve_read(5, PG, blocks(10, 0, 0, BLOCKS));
    let mut steps = 0;
    while step(&mut rig) {
        steps += 1;
        // Nothing that is under way lands, all of it, or every other sector.
        for lands in [|_: usize| false, |_| true, |sector| sector % 2 == 0] {
            let mut disk = rig.disk.clone();
            for (_, offset, bytes) in std::mem::take(&mut disk.waiting) {
                for (sector, part) in bytes.chunks(512).enumerate().filter(|(sector, _)| lands(*sector)) {
                    disk.write(offset + sector as u64 * 512, part);
                }
            }
            let mut after = Rig::open(&options(), disk, rig.map.clone()).unwrap();
            after.check_accounts();
            assert!(after.read(PG.0, 10, 0, 0, BLOCKS).unwrap() == contents(1), "after {steps} steps");
        }
    }
    assert_eq!(rig.store.statistics().gathered_blocks, u64::from(BLOCKS));
    assert!(steps > usize::from(BLOCKS), "{steps}");
}

#[test]
fn what_is_overwritten_meanwhile_stays_overwritten() {
    let mut rig = scattered(&options());
    rig.store.serve_read(5, PG, blocks(10, 0, 0, BLOCKS));
    // All is read, and is about to be written elsewhere.
    while rig.store.statistics().gathered_blocks == 0 {
        assert!(step(&mut rig));
    }
    for number in (0..BLOCKS).step_by(3) {
        let write = rig.next_write(PG.0, 10, 0, number, block(value(2, number)), 1);
        let sequence = write.header.sequence;
        rig.store.append(1, write);
        step(&mut rig);
        rig.settle();
        rig.store.commit(PG, sequence);
    }
    rig.settle();
    let check = |rig: &mut Rig| {
        let found = rig.read(PG.0, 10, 0, 0, BLOCKS).unwrap();
        for (number, bytes) in (0..BLOCKS).zip(found.chunks(BLOCK_SIZE)) {
            let round = if number % 3 == 0 { 2 } else { 1 };
            assert!(bytes == bytes_of(&block(value(round, number)), 1), "block {number}");
        }
    };
    check(&mut rig);
    rig.check_accounts();
    // It says that those before it are committed.
    rig.write(PG.0, 10, OTHER, 0, block(9), 1);
    let (disk, map) = rig.crash(|_, _| true);
    check(&mut Rig::open(&options(), disk, map).unwrap());
}

#[test]
fn it_has_a_pace() {
    let mut rig = scattered(&options());
    // Twice as many blocks as may be gathered at once: the second chunk waits until the first has taken its time.
    assert_eq!(serve(&mut rig), u64::from(BLOCKS));
    let serve_other = |rig: &mut Rig| {
        rig.store.serve_read(5, PG, blocks(10, OTHER, 0, BLOCKS));
        rig.settle();
        rig.done.clear();
        rig.store.statistics().gathered_blocks
    };
    assert_eq!(serve_other(&mut rig), u64::from(BLOCKS), "not now");
    pass(&mut rig, 1);
    assert_eq!(serve_other(&mut rig), 2 * u64::from(BLOCKS));
}

#[test]
fn who_reads_for_copies_and_scrubs_moves_nothing() {
    let mut rig = scattered(&options());
    assert!(rig.read(PG.0, 10, 0, 0, BLOCKS).unwrap() == contents(1));
    assert_eq!(rig.store.statistics().gathered_blocks, 0);
}

#[test]
fn small_reads_and_reads_in_order_move_nothing() {
    let mut rig = scattered(&Options { gathered_read_blocks_min: BLOCKS + 1, ..options() });
    assert_eq!(serve(&mut rig), u64::from(BLOCKS));
    let mut never = scattered(&Options { gathered_read_blocks_min: 0, ..options() });
    assert_eq!(serve(&mut never), u64::from(BLOCKS));
    let mut in_order = Rig::format(&options());
    for first in (0..BLOCKS).step_by(12) {
        in_order.write(PG.0, 10, 0, first, filled_plain(u64::from(first), 12), 12);
    }
    for step in 0..64 {
        in_order.write(PG.0, 10, OTHER, step, block(9), 1);
    }
    in_order.store.serve_read(5, PG, blocks(10, 0, 0, BLOCKS));
    in_order.settle();
    for rig in [rig, never, in_order] {
        assert_eq!(rig.store.statistics().gathered_blocks, 0);
    }
}

#[test]
fn blocks_of_a_snapshot_stay_where_they_are() {
    let mut rig = scattered(&options());
    // A head over the layer that has the blocks: its leaf inherits all of them but one.
    rig.store.set_parent(azekura_base::LayerId(11), azekura_base::LayerId(10));
    rig.settle();
    rig.write(PG.0, 11, 0, 0, block(value(1, 0)), 1);
    rig.store.serve_read(5, PG, blocks(11, 0, 0, BLOCKS));
    rig.settle();
    assert!(rig.store.statistics().gathered_blocks <= 1);
    rig.check_accounts();
}

#[test]
fn there_is_room_for_clients_first() {
    let options = Options { cleaning_reserve_percent: 20, ..options() };
    let mut rig = scattered(&options);
    // Blocks that stay, until the cleaner has something to win back.
    let mut chunk = OTHER + 2;
    while rig.store.space().free_segments > 8 {
        for first in (0..60).step_by(2) {
            rig.write(PG.0, 10, chunk, first, filled_plain(3, 2), 2);
        }
        chunk += 1;
    }
    let free = rig.store.space().free_segments;
    serve(&mut rig);
    let gathered = rig.store.statistics().gathered_blocks;
    assert!(gathered == 0 || rig.store.space().free_segments + 2 >= free, "{gathered} with {free} free");
}
