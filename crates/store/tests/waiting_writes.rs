//! Committed writes whose leaves are not in memory: they wait, and nothing that may happen meanwhile sees a difference.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
use azekura_store::{Completion, DeviceError, MapDamage, Options, ReadDevice, Report, SavedMap, check};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// The device as it is.
struct Image<'a>(&'a Disk);

impl ReadDevice for Image<'_> {
    fn read(&self, offset: u64, len: usize) -> Result<Bytes, DeviceError> {
        Ok(self.0.read(offset, len))
    }
}

const CHUNKS: u32 = 20;
const BLOCKS: u16 = 128;
/// Blocks of one record.
const RECORD: u16 = 16;

/// Room for a few leaves of 20.
fn few() -> Options {
    Options { segments: 160, leaf_cache_bytes_max: 16_000, checkpoint_leaves_max: 1 << 10, ..tiny() }
}

fn fill(rig: &mut Rig, blocks: u16) {
    for chunk in 0..CHUNKS {
        for first in (0..blocks).step_by(usize::from(RECORD)) {
            rig.write(1, 10, chunk, first, filled(1 + u64::from(chunk), RECORD), RECORD);
        }
    }
}

/// A store in which each chunk has some blocks, all of it saved, with hardly a leaf in memory.
fn filled_store(options: &Options) -> Rig {
    let mut rig = Rig::format(options);
    fill(&mut rig, BLOCKS);
    rig.checkpoint();
    // A replay would begin behind all that, with records of one chunk.
    for _ in 0..8 {
        for block in (0..BLOCKS).step_by(usize::from(RECORD)) {
            rig.write(1, 10, CHUNKS - 1, block, filled(u64::from(CHUNKS), RECORD), RECORD);
        }
        rig.checkpoint();
    }
    // Opened anew, it has no leaf in memory but those of the records that are replayed.
    let (disk, map) = rig.crash(|_, _| true);
    let mut rig = Rig::open(options, disk, map).unwrap();
    rig.settle_map();
    rig
}

/// What a block had at first.
fn first(chunk: u32, block: usize) -> Vec<u8> {
    bytes_of(&filled(1 + u64::from(chunk), RECORD), RECORD)[block * 4096..(block + 1) * 4096].to_vec()
}

fn contents(rig: &mut Rig, chunk: u32, block: u16) -> Vec<u8> {
    rig.read(1, 10, chunk, block, 1).unwrap()
}

/// Of 20 full leaves memory holds two.
#[test]
fn writes_to_leaves_that_are_not_in_memory_gather() {
    let options = Options { segments: 700, leaf_cache_bytes_max: 32_000, ..few() };
    let mut rig = Rig::format(&options);
    fill(&mut rig, 1024);
    let before = rig.store.statistics();
    let mut expected = BTreeMap::new();
    for write in 0..800_u64 {
        let (chunk, block) = ((write * 7 % u64::from(CHUNKS)) as u32, (write * 11 % 1000) as u16);
        rig.write(1, 10, chunk, block, filled(1_000 + write, 1), 1);
        expected.insert((chunk, block), 1_000 + write);
    }
    let after = rig.store.statistics();
    let (saved, loaded) = (after.checkpoint_leaves - before.checkpoint_leaves, after.leaf_misses - before.leaf_misses);
    assert!(saved < 250 && loaded < 250, "800 writes have loaded {loaded} leaves and saved {saved}");
    rig.check_accounts();
    for ((chunk, block), value) in expected {
        assert_eq!(contents(&mut rig, chunk, block), bytes_of(&filled(value, 1), 1), "block {block} of {chunk}");
    }
    rig.check_accounts();
}

/// A store of which some writes wait, to some chunks.
fn with_waiting_writes(options: &Options) -> Rig {
    let mut rig = filled_store(options);
    for chunk in 0..6 {
        rig.write(1, 10, chunk, 2, filled(500 + u64::from(chunk), 2), 2);
    }
    // The log says with a write that the one before is committed.
    rig.write(1, 10, 6, 2, filled(500, 2), 2);
    rig
}

fn check_waiting_writes(rig: &mut Rig) {
    for chunk in 0..6 {
        assert_eq!(contents(rig, chunk, 1), first(chunk, 1));
        let read = rig.read(1, 10, chunk, 2, 2).unwrap();
        assert_eq!(read, bytes_of(&filled(500 + u64::from(chunk), 2), 2), "chunk {chunk}");
    }
    rig.check_accounts();
}

/// Whether or not a checkpoint came in between, and wherever the crash came.
#[test]
fn what_waits_is_there_after_a_crash_and_opening_asks_for_no_leaf() {
    for checkpoints in 0..3 {
        let options = Options { leaf_cache_bytes_max: 64_000, ..few() };
        let mut rig = with_waiting_writes(&options);
        for _ in 0..checkpoints {
            rig.store.begin_checkpoint(|_| None);
            rig.settle();
        }
        let (disk, map) = rig.crash(|_, _| true);
        let mut rig = Rig::open(&options, disk, map).unwrap();
        // A write of many blocks asks for its leaf, but not the others.
        let asked = rig.store.statistics().leaf_misses;
        assert!(asked <= 10, "the opening has asked for {asked} leaves of {CHUNKS}");
        check_waiting_writes(&mut rig);
    }
}

#[test]
fn a_check_of_a_closed_store_looks_at_what_waits() {
    let rig = with_waiting_writes(&few());
    let (mut disk, map) = rig.crash(|_, _| true);
    assert!(check(Image(&disk), &map, &[], true).is_clean());
    let want = bytes_of(&filled(503, 2), 2);
    let at = disk.image.windows(4096).step_by(4096).position(|w| w == &want[..4096]).unwrap();
    disk.image[at * 4096] ^= 1;
    assert_eq!(check(Image(&disk), &map, &[], true).errors, 1);
}

#[test]
fn chunks_of_writes_that_wait_have_changed_and_count() {
    let mut rig = filled_store(&few());
    let before = rig.store.group(PgId(1)).committed;
    rig.write(1, 10, 3, 2, filled(9, 1), 1);
    rig.store.modified_since(7, PgId(1), before);
    rig.settle();
    let told = rig.done.drain(..).find_map(|c| match c {
        Completion::Modified { token: 7, result } => Some(result.unwrap()),
        _ => None,
    });
    assert_eq!(told.unwrap(), [(LayerId(10), ChunkIndex(3), Sequence(before.0 + 1))]);
    // One block more than there are: the one before is not known yet.
    let blocks = u64::from(CHUNKS) * u64::from(BLOCKS);
    assert_eq!(rig.store.layers().collect::<Vec<_>>(), [(LayerId(10), blocks + 1)]);
    rig.settle_map();
    assert_eq!(rig.store.layers().collect::<Vec<_>>(), [(LayerId(10), blocks)]);
}

/// The leaf of a chunk can't be read: what waits for it must hold nobody else's log, and come back after a crash.
#[test]
fn what_waits_for_a_leaf_that_is_refused_does_not_hold_the_log() {
    let mut rig = filled_store(&few());
    // Two records of one chunk, of which one has two blocks, and one that is written over by the other.
    rig.write(1, 10, 3, 2, filled(500, 2), 2);
    rig.write(1, 10, 3, 3, filled(600, 1), 1);
    assert!(rig.map.damage(LayerId(10), ChunkIndex(3), MapDamage::Unreadable));
    let device = few().device_bytes();
    let end = rig.store.statistics().log_bytes + device;
    let mut value = 10_000;
    while rig.store.statistics().log_bytes < end {
        value += 1;
        rig.write(1, 10, 10 + value as u32 % 8, 0, filled(value, 4), 4);
        if value % 16 == 0 {
            rig.store.settle_map();
            rig.settle();
        }
    }
    assert!(rig.store.statistics().replay_bytes < device / 2, "replay begins where the writes that wait do");
    let (disk, mut map) = rig.crash(|_, _| true);
    // It was a path that was down.
    map.mend();
    let mut rig = Rig::open(&few(), disk, map).unwrap();
    assert_eq!(contents(&mut rig, 3, 2), bytes_of(&filled(500, 2), 2)[..4096]);
    assert_eq!(contents(&mut rig, 3, 3), bytes_of(&filled(600, 1), 1));
    assert_eq!(contents(&mut rig, 3, 1), first(3, 1));
    rig.check_accounts();
}

/// The leaf is damaged, and so is what is known of it: what waits was never in it.
#[test]
fn what_waits_for_a_leaf_that_is_damaged_is_kept() {
    for damage in [MapDamage::Leaf, MapDamage::LeafAndIndex] {
        let mut rig = with_waiting_writes(&few());
        assert!(rig.map.damage(LayerId(10), ChunkIndex(3), damage));
        assert_eq!(rig.read(1, 10, 3, 2, 2).unwrap(), bytes_of(&filled(503, 2), 2));
        assert!(rig.read(1, 10, 3, 1, 1).is_err(), "of the rest of the chunk nothing is known");
    }
}

/// Until their leaves are here, nobody knows what the waiting writes replace: when space is short, none may wait.
#[test]
fn a_device_does_not_look_full_for_what_waiting_writes_replace() {
    let options = Options { segments: 16, leaf_cache_bytes_max: 16_000, checkpoint_leaves_max: 1 << 10, ..tiny() };
    let mut rig = Rig::format(&options);
    let mut chunk = 0;
    while {
        let space = rig.store.space();
        space.used + space.capacity / 20 < space.capacity
    } {
        rig.write(1, 10, chunk, 0, filled(1, 4), 4);
        chunk += 1;
    }
    for write in 0..1_000_u64 {
        rig.write(1, 10, (write * 7 % u64::from(chunk)) as u32, (write % 4) as u16, filled(write, 1), 1);
        assert!(!rig.store.space().full, "full after {write} writes to blocks that were there");
    }
    rig.settle_map();
    rig.check_accounts();
}

/// The ends of a layer and of a group find the chunks of which nothing but waiting writes is known.
#[test]
fn what_ends_ends_with_what_waits_for_it() {
    let mut rig = filled_store(&few());
    rig.store.set_parent(LayerId(11), LayerId(10));
    for chunk in 0..4 {
        rig.write(1, 11, chunk, 1, filled(700 + u64::from(chunk), 1), 1);
    }
    assert_eq!(rig.read(1, 11, 0, 1, 1).unwrap(), bytes_of(&filled(700, 1), 1));
    rig.store.merge_layer(7, LayerId(10), LayerId(11));
    for _ in 0..8 {
        rig.settle();
        rig.store.tick(Duration::from_secs(60));
        rig.checkpoint();
        rig.write(1, 11, 15, 0, filled(1, 1), 1);
    }
    rig.check_accounts();
    for chunk in 1..4 {
        assert_eq!(rig.read(1, 11, chunk, 1, 1).unwrap(), bytes_of(&filled(700 + u64::from(chunk), 1), 1));
    }
    rig.write(1, 11, 5, 0, filled(800, 1), 1);
    rig.store.forget_group(9, PgId(1));
    for seconds in 1..8 {
        rig.settle();
        rig.store.tick(Duration::from_secs(1_000 + seconds * 60));
        rig.store.begin_checkpoint(|_| None);
    }
    rig.settle();
    assert!(rig.reports.iter().any(|report| matches!(report, Report::Forgotten { .. })), "{}", rig.store.describe());
    assert_eq!(rig.store.space().live, 0);
    assert_eq!(rig.map.scan_layer(LayerId(11), ChunkIndex(0), 100).unwrap(), []);
}

/// It was prepared long before, so the checkpoint that is being saved has it: replay will begin behind its record.
#[test]
fn a_write_that_is_committed_while_a_checkpoint_is_saved_does_not_wait_behind_it() {
    let mut rig = filled_store(&few());
    let fill_segments = |rig: &mut Rig, records: u16| {
        for record in 0..records {
            rig.write(1, 10, CHUNKS - 1, record % 8 * RECORD, filled(9, RECORD), RECORD);
        }
    };
    fill_segments(&mut rig, 10);
    let write = rig.next_write(2, 10, 103, 2, filled(500, 1), 1);
    let sequence = write.header.sequence;
    rig.store.append(1, write);
    rig.settle();
    fill_segments(&mut rig, 4);
    // So old that all is saved, and replay begins with the open segment.
    rig.store.tick(Duration::from_secs(100));
    rig.store.begin_checkpoint(|_| None);
    rig.store.commit(PgId(2), sequence);
    for _ in 0..2 {
        rig.settle();
        rig.store.begin_checkpoint(|_| None);
    }
    rig.settle();
    let (disk, map) = rig.crash(|_, _| true);
    let mut rig = Rig::open(&few(), disk, map).unwrap();
    assert_eq!(rig.read(2, 10, 103, 2, 1).unwrap(), bytes_of(&filled(500, 1), 1));
    rig.check_accounts();
}
