//! Torn and damaged headers: what can't be read of a segment of moved blocks costs no block that clients have.

use super::load::{DEPTH, Lands, Load, options};
use super::{apart, closed, segments, warm};
use crate::common::*;
use crate::rebuilt::{check_blocks, known, rebuild, settings};
use azekura_base::PgId;
use azekura_store::{OpenError, RebuildSettings, SavedMap, SegmentInfo};
use std::collections::{BTreeMap, BTreeSet};

pub fn at_header(info: &SegmentInfo, index: usize) -> usize {
    (256 + info.segment * options().segment_blocks + info.batches[index].block) as usize * 4096
}

/// The store opens, has all blocks, and goes on for long.
fn goes_on(load: &Load, disk: &Disk) {
    let mut after = load.reopened(disk.clone(), load.rig.map.clone());
    after.overwrite(150, &mut |_| {});
    after.settle();
    after.check();
}

/// Blocks behind a damaged header stay where they are until clients overwrite them: the cleaner does not find them.
#[test]
fn a_damaged_header_costs_no_block() {
    let load = closed();
    let infos: Vec<_> = apart(&load).into_iter().filter(|info| info.batches.len() > 2).collect();
    assert!(infos.len() > 2, "{}", infos.len());
    for info in &infos {
        for index in [0, 1, info.batches.len() - 1] {
            let at = at_header(info, index);
            let mut flipped = load.rig.disk.clone();
            flipped.image[at + 200] ^= 1;
            goes_on(&load, &flipped);
            let mut unreadable = load.rig.disk.clone();
            unreadable.unreadable.insert(at / 4096);
            goes_on(&load, &unreadable);
        }
    }
}

/// The same while the store runs, which knows where the headers are.
#[test]
fn a_header_that_is_damaged_while_the_store_runs_costs_no_block() {
    for index in 0..3 {
        let mut load = closed();
        for info in apart(&load).iter().filter(|info| info.batches.len() > index) {
            let at = at_header(info, index);
            load.rig.disk.image[at + 200] ^= 1;
        }
        load.overwrite(300, &mut |_| {});
        load.settle();
        load.check();
    }
}

/// A header of the chain is torn or damaged: the store opens without what was in flight, or is refused.
#[test]
fn damage_in_the_chain_is_found_beside_segments_of_moved_blocks() {
    let (mut load, mut refused, mut shortened) = (closed(), 0, 0);
    for _ in 0..40 {
        load.overwrite(5, &mut |_| {});
        let (disk, map) = load.crashed(Lands::Nothing);
        let chain = segments(&disk);
        let position = map.root().unwrap().unwrap().root.position.generation;
        for info in chain.iter().filter(|info| !info.apart && info.generation >= Some(position)) {
            for index in info.batches.len().saturating_sub(4)..info.batches.len() {
                let mut damaged = disk.clone();
                damaged.image[at_header(info, index) + 200] ^= 1;
                match Rig::open(&options(), damaged, map.clone()) {
                    Ok(rig) => {
                        rig.check_accounts();
                        let end = rig.store.group(azekura_base::PgId(1)).prepared_end.0;
                        // Each round of writes proves that those before it were durable.
                        let lost = load.acknowledged().saturating_sub(end);
                        assert!(lost <= DEPTH as u64, "{lost} acknowledged writes are lost without a word");
                        shortened += u32::from(lost > 0);
                    }
                    Err(OpenError::Damaged(_)) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
    assert!(refused > 100 && shortened > 10, "{refused} {shortened}");
}

/// A crash may have torn blocks on their way to another place, of which no record tells. They are where they were.
#[test]
fn a_map_made_anew_has_no_block_of_a_move_that_a_crash_tore() {
    let compared = settings(known(&[10], &BTreeMap::new(), 10), &options());
    let accepted = RebuildSettings { accepted: BTreeSet::from([PgId(1)]), ..compared.clone() };
    let (mut load, mut points, mut torn) = (warm(), 0, 0);
    load.overwrite(60, &mut |load| {
        points += 1;
        if !load.moves_are_under_way() || points % 4 > 0 {
            return;
        }
        let (disk, map) = load.crashed(Lands::Pieces);
        let mut after = load.reopened(disk, map);
        // The log goes on for longer than a rebuild takes a segment for one of its last.
        for _ in 0..6 {
            after.overwrite(6, &mut |_| {});
            after.settle();
            let moves = segments(&after.rig.disk).into_iter().filter(|info| info.apart);
            torn += moves.filter(|info| info.batches.iter().any(|batch| !batch.payload_whole)).count();
            for settings in [&compared, &accepted] {
                let (map, _) = rebuild(&after.rig.disk, settings).unwrap();
                check_blocks(&after.rig.disk, &map);
            }
        }
    });
    assert!(torn > 20, "{torn} segments with a move that was torn");
}
