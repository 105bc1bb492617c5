//! Blocks that no copy could give: reads of them fail, whatever happens to them, until they are written.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{BlockIndex, BlockRange, Body, Checksum, ChunkIndex, LayerId, PgId};
use azekura_store::{ReadError, Repair, Report};
use std::time::Duration;

const LOST: u16 = 3;
/// What the lost block's contents had.
const HELD: Checksum = Checksum(0x1234_5678);

fn parents(store: &mut azekura_store::Store) {
    store.set_parent(LayerId(11), LayerId(10));
}

/// Chunk 0 of layer 10, of which block 3 is lost, and a child that has another block of its own.
fn rig() -> Rig {
    let mut rig = Rig::format(&tiny());
    parents(&mut rig.store);
    rig.write(1, 10, 0, 0, filled(1, 6), 6);
    rig.write(1, 11, 0, 5, filled(2, 1), 1);
    lose(&mut rig, 10, LOST);
    rig
}

fn lose(rig: &mut Rig, layer: u64, block: u16) {
    let (pg, chunk, first) = (PgId(1), ChunkIndex(0), BlockIndex(block));
    let body = Body::Lost { checksums: HELD.into() };
    let copy =
        Repair { pg, sequence: sequence(1), range: BlockRange { layer: LayerId(layer), chunk, first, count: 1 }, body };
    rig.store.append(8, copy);
    rig.settle();
}

fn is_lost(rig: &mut Rig, layer: u64) {
    for (first, count) in [(LOST, 1), (2, 2), (0, 20)] {
        let result = rig.read(1, layer, 0, first, count);
        assert!(matches!(result, Err(ReadError::Lost { block: BlockIndex(LOST) })), "layer {layer}: {result:?}");
    }
    assert!(rig.read(1, layer, 0, 0, LOST).unwrap() == bytes_of(&filled(1, LOST), LOST));
    assert!(rig.read(1, layer, 0, 4, 1).unwrap() == bytes_of(&filled(1, 6), 6)[4 * 4096..5 * 4096]);
    rig.check_accounts();
}

fn reopen(rig: Rig) -> Rig {
    let (disk, map) = rig.crash(|_, _| false);
    Rig::open_with(&tiny(), disk, map, parents).unwrap()
}

#[test]
fn what_is_lost_stays_lost_over_a_restart() {
    let mut rig = rig();
    for saved in [false, true] {
        if saved {
            rig.checkpoint();
        }
        [10, 11].into_iter().for_each(|layer| is_lost(&mut rig, layer));
        rig = reopen(rig);
    }
    [10, 11].into_iter().for_each(|layer| is_lost(&mut rig, layer));
}

#[test]
fn what_is_lost_is_moved_and_stays_lost() {
    let mut rig = rig();
    let before = rig.store.statistics().moved_blocks;
    for n in 0..3000u64 {
        let at = n.wrapping_mul(0x9e37_79b9) >> 5;
        rig.write(2, 12, 1 + (at % 8) as u32, (at / 8 % 50) as u16, filled(n, 1), 1);
    }
    rig.settle();
    assert!(rig.store.statistics().moved_blocks > before + 100, "{:?}", rig.store.statistics());
    [10, 11].into_iter().for_each(|layer| is_lost(&mut rig, layer));
    let mut rig = reopen(rig);
    [10, 11].into_iter().for_each(|layer| is_lost(&mut rig, layer));
}

#[test]
fn what_is_lost_goes_to_the_child_of_a_layer_that_ends() {
    let mut rig = rig();
    rig.store.merge_layer(1, LayerId(10), LayerId(11));
    for second in 1..100 {
        rig.store.tick(Duration::from_secs(second * 40));
        rig.checkpoint();
    }
    assert!(rig.reports.contains(&Report::LayerGone { layer: LayerId(10) }));
    is_lost(&mut rig, 11);
    is_lost(&mut reopen(rig), 11);
}

#[test]
fn what_is_written_is_lost_no_more() {
    let mut rig = rig();
    rig.write(1, 11, 0, LOST, filled(7, 1), 1);
    assert!(rig.read(1, 11, 0, LOST, 1).unwrap() == bytes_of(&filled(7, 1), 1));
    is_lost(&mut rig, 10);
    rig.write(1, 10, 0, LOST, Body::Zero, 1);
    assert!(rig.read(1, 10, 0, LOST, 1).unwrap() == vec![0; 4096]);
    let (pg, chunk, first) = (PgId(1), ChunkIndex(0), BlockIndex(4));
    lose(&mut rig, 10, 4);
    let copy = Repair {
        pg,
        sequence: sequence(1),
        range: BlockRange { layer: LayerId(10), chunk, first, count: 1 },
        body: filled(9, 1),
    };
    rig.store.append(8, copy);
    rig.settle();
    for layer in [10, 11] {
        assert!(rig.read(1, layer, 0, 4, 1).unwrap() == bytes_of(&filled(9, 1), 1), "found after all");
    }
    rig.check_accounts();
}

/// A replica that has them, or misses them as well, is level with this one; zeros, or an older version, are not.
#[test]
fn what_is_lost_counts_as_what_it_held() {
    let digest = |rig: &mut Rig| {
        rig.store.digest(5, PgId(1), LayerId(10), ChunkIndex(0));
        rig.settle();
        let told = rig.reports.drain(..).find_map(|report| match report {
            Report::Digest { token: 5, result } => Some(result.unwrap()),
            _ => None,
        });
        let runs = told.unwrap().runs;
        let has = |run: &&azekura_store::DigestRun| (run.first.0..run.first.0 + run.count).contains(&LOST);
        let run = runs.iter().find(has).unwrap();
        run.checksums.as_ref().unwrap()[usize::from(LOST - run.first.0)]
    };
    let mut rig = rig();
    assert_eq!(digest(&mut rig), HELD);
    rig.checkpoint();
    assert_eq!(digest(&mut reopen(rig)), HELD);
}
