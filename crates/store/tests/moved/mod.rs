//! Restarts of a store with segments of moved blocks (decision 0036), also after a crash at each step.
#![allow(clippy::unwrap_used)]

mod batch;
mod damage;
mod load;
mod tools;

use crate::common::Disk;
use azekura_store::{InMemoryMap, Inspector, SavedMap, SegmentInfo};
use load::{Lands, Load, options};
use std::collections::BTreeSet;

/// Rounds of writes until segments of moved blocks come and go.
const WARM_ROUNDS: u32 = 300;

fn warm() -> Load {
    let mut load = Load::new(options());
    load.fill();
    load.overwrite(WARM_ROUNDS, &mut |_| {});
    load
}

/// The same, closed in the midst of it.
fn closed() -> Load {
    let mut load = warm();
    load.settle();
    load.check();
    load
}

fn segments(disk: &Disk) -> Vec<SegmentInfo> {
    Inspector::open(disk).unwrap().segments().map(Result::unwrap).collect()
}

/// Segments of moved blocks that still hold some of what clients read, with what was written into them.
fn apart(load: &Load) -> Vec<SegmentInfo> {
    let map = InMemoryMap::clone(&load.rig.map);
    let mut live = BTreeSet::new();
    map.for_each_leaf(&mut |leaf| {
        let (_, leaf) = leaf.unwrap();
        live.extend(leaf.entries.present().filter(|(_, e)| e.is_allocated()).map(|(_, entry)| entry.address));
    })
    .unwrap();
    let holds = |info: &SegmentInfo| {
        let first = 256 + info.segment * options().segment_blocks;
        live.range(first..first + options().segment_blocks).next().is_some()
    };
    segments(&load.rig.disk).into_iter().filter(|info| info.apart && holds(info)).collect()
}

/// Segments of moved blocks of which no record lies where a replay would find it.
fn behind_replay(load: &Load) -> BTreeSet<u32> {
    let mut segments_of: BTreeSet<u32> = apart(load).iter().map(|info| info.segment).collect();
    let position = load.rig.map.root().unwrap().unwrap().root.position.generation;
    for info in segments(&load.rig.disk).iter().filter(|info| info.generation >= Some(position)) {
        for record in info.batches.iter().flat_map(|batch| &batch.records).filter(|record| record.kind == "moved") {
            segments_of.remove(&((record.address - 256) / options().segment_blocks));
        }
    }
    segments_of
}

#[test]
fn a_crash_at_any_step_of_a_move_loses_nothing() {
    let mut load = warm();
    let mut points = 0;
    load.overwrite(120, &mut |load| {
        points += 1;
        if !load.moves_are_under_way() && points % 16 > 0 {
            return;
        }
        for lands in [Lands::Nothing, Lands::All, Lands::Chain, Lands::Moves, Lands::Pieces] {
            let (disk, map) = load.crashed(lands);
            let mut after = load.reopened(disk, map);
            if points % 8 == 0 {
                // What the crash left is cleaned and written over.
                after.overwrite(60, &mut |_| {});
                after.settle();
                after.check();
            }
        }
    });
    let crashes = &load.crashes;
    assert!(crashes.before_the_record > 100 && crashes.in_a_full_segment > 10, "{crashes:?}");
    assert!(crashes.behind_the_record > 100 && crashes.after_reuse > 500, "{crashes:?}");
}

/// What is dropped while it is being written keeps its segment until the write has landed.
#[test]
fn moved_blocks_that_land_late_hit_no_segment_of_somebody_else() {
    let mut load = warm();
    for round in 0..60 {
        load.holds_moves = round % 4 > 0;
        load.overwrite(20, &mut |_| {});
    }
    load.settle();
    load.check();
}

/// One crash after the other, each soon after the start.
#[test]
fn what_a_crash_left_outlasts_the_next_ones() {
    let mut load = warm();
    let all = [Lands::Pieces, Lands::Moves, Lands::Chain, Lands::Nothing, Lands::All];
    for crash in 0..200 {
        load.overwrite(1 + crash % 7, &mut |_| {});
        let (disk, map) = load.crashed(all[crash as usize % all.len()]);
        load = load.reopened(disk, map);
    }
}

/// Headers are walked then: nobody remembers where they are.
#[test]
fn segments_of_an_earlier_life_are_emptied_and_written_anew() {
    let load = closed();
    let before: BTreeSet<u32> = apart(&load).iter().map(|info| info.segment).collect();
    assert!(before.len() > 3, "{before:?}");
    let (disk, map) = (load.rig.disk.clone(), load.rig.map.clone());
    let mut load = load.reopened(disk, map);
    let mut left = before.clone();
    for _ in 0..60 {
        load.overwrite(20, &mut |_| {});
        left.retain(|segment| !load.apart.contains_key(segment) && !load.chained.contains(segment));
    }
    assert_eq!(left, BTreeSet::new(), "of {before:?}: they were never written anew");
    load.settle();
    load.check();
}

#[test]
fn a_replay_that_begins_behind_all_records_of_a_segment_knows_its_blocks() {
    let mut load = closed();
    (0..10).for_each(|_| load.rig.checkpoint());
    assert!(behind_replay(&load).len() > 3, "{:?} of {:?}", behind_replay(&load), apart(&load).len());
    let (disk, map) = (load.rig.disk.clone(), load.rig.map.clone());
    let mut load = load.reopened(disk, map);
    load.overwrite(300, &mut |_| {});
    load.settle();
    load.check();
}
