//! Pages of the saved map that the device does not give any more, or that hold something else: those of leaves cost
//! these leaves, and no other page makes a wrong answer.
#![allow(clippy::unwrap_used)]

#[path = "../../store/tests/common/mod.rs"]
mod common;
mod medium;

use azekura_base::{Checksum, ChunkIndex, LayerId, PgId, Sequence};
use azekura_map_db::CheckpointDb;
use azekura_store::{CheckpointBatch, Entry, Leaf, LeafKey, MapError, SavedLeaf, SavedMap};
use medium::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LAYER: LayerId = LayerId(10);
const CHUNKS: u32 = 60;
const BLOCK: usize = BLOCK_BYTES as usize;

fn listed(map: &CheckpointDb) -> Vec<u32> {
    map.scan_layer(LAYER, ChunkIndex(0), 1000).unwrap().into_iter().map(|key| key.chunk.0).collect()
}

fn removal(chunks: &[u32]) -> CheckpointBatch {
    CheckpointBatch { removed: chunks.iter().map(|chunk| key(*chunk)).collect(), ..batch([]) }
}

/// A leaf with one block: many of them share a page.
fn small(modified: u64) -> Arc<Leaf> {
    let mut leaf = Leaf { modified: Sequence(modified), ..Leaf::default() };
    leaf.entries.set(7, Entry::own(300, Checksum(modified as u32)));
    Arc::new(leaf)
}

fn with_leaves(leaves: impl IntoIterator<Item = (LeafKey, Arc<Leaf>)>) -> CheckpointBatch {
    CheckpointBatch { leaves: leaves.into_iter().collect(), ..batch([]) }
}

#[test]
fn a_leaf_whose_page_cannot_be_read_is_saved_apart() {
    let backend = Backend::default();
    let mut map = backend.open();
    map.checkpoint(batch((0..CHUNKS).map(|chunk| (chunk, 5)))).unwrap();
    drop(map);
    let places = backend.places(&leaf(5).encode(&key(3)));
    places.iter().for_each(|at| backend.spoil(*at));
    let mut map = backend.open();
    // The index tells what is needed to go on without it.
    let SavedLeaf::Refused(refused) = loads(&map, 3) else { panic!("{places:?}") };
    assert_eq!((refused.stamps, refused.own), (Some(leaf(5).stamps()), Some(1024)));
    assert!((0..CHUNKS).filter(|chunk| *chunk != 3).all(|chunk| loads(&map, chunk) == SavedLeaf::Whole(leaf(5))));
    assert_eq!(listed(&map), (0..CHUNKS).collect::<Vec<_>>());
    let (mut whole, mut bad) = (0, 0);
    map.for_each_leaf(&mut |leaf| if leaf.is_ok() { whole += 1 } else { bad += 1 }).unwrap();
    assert_eq!((whole, bad), (CHUNKS - 1, 1));
    for modified in [6, 7] {
        map.checkpoint(batch([(2, modified), (3, modified), (4, modified)])).unwrap();
        assert!((2..=4).all(|chunk| loads(&map, chunk) == SavedLeaf::Whole(leaf(modified))));
        drop(map);
        map = backend.open();
        assert!((2..=4).all(|chunk| loads(&map, chunk) == SavedLeaf::Whole(leaf(modified))));
        assert_eq!(map.compare_totals(PgId(1)).unwrap(), None);
        assert_eq!(listed(&map), (0..CHUNKS).collect::<Vec<_>>());
    }
    map.checkpoint(removal(&[2, 3])).unwrap();
    drop(map);
    let mut map = backend.open();
    assert_eq!((loads(&map, 2), loads(&map, 3)), (SavedLeaf::Absent, SavedLeaf::Absent));
    assert_eq!(listed(&map), (0..CHUNKS).filter(|chunk| !(2..4).contains(chunk)).collect::<Vec<_>>());
    assert_eq!(map.compare_totals(PgId(1)).unwrap(), None);
    map.checkpoint(batch([(3, 9)])).unwrap();
    assert_eq!(loads(&map, 3), SavedLeaf::Whole(leaf(9)));
    assert!(!backend.0.lock().unwrap().bad.is_empty(), "nobody has written over it");
}

/// An error takes the database from all who use it: that must cost none of them what it has asked for.
#[test]
fn a_leaf_that_cannot_be_read_is_in_nobodys_way() {
    let backend = Backend::default();
    let mut map = backend.open();
    map.checkpoint(batch((0..CHUNKS).map(|chunk| (chunk, 5)))).unwrap();
    drop(map);
    backend.places(&leaf(5).encode(&key(3))).into_iter().for_each(|at| backend.spoil(at));
    let map = backend.open();
    assert!(matches!(loads(&map, 3), SavedLeaf::Refused(_)));
    let over = Arc::new(AtomicBool::new(false));
    let again_and_again = |look: fn(&CheckpointDb)| {
        let (map, over) = (map.clone(), over.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::Acquire) {
                look(&map);
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    };
    let bad = again_and_again(|map| assert!(matches!(loads(map, 3), SavedLeaf::Refused(_))));
    let good = again_and_again(|map| assert!(matches!(loads(map, 50), SavedLeaf::Whole(_))));
    let mut saving = map.clone();
    for modified in 6..60 {
        saving.checkpoint(batch((20..CHUNKS).map(|chunk| (chunk, modified)))).unwrap();
    }
    over.store(true, Ordering::Release);
    bad.join().unwrap();
    good.join().unwrap();
    assert!((20..CHUNKS).all(|chunk| loads(&map, chunk) == SavedLeaf::Whole(leaf(59))));
}

/// After each checkpoint, each leaf is what was saved last, or says that it can't be read.
#[test]
fn leaves_that_share_an_unreadable_page_are_changed_and_removed_in_any_order() {
    let group = |chunk: u32| LeafKey { layer: LAYER, chunk: ChunkIndex(chunk), pg: PgId(1 + chunk % 2) };
    let backend = Backend::default();
    let mut map = backend.open();
    map.checkpoint(with_leaves((0..400).map(|chunk| (group(chunk), small(5))))).unwrap();
    drop(map);
    for chunk in [30, 200] {
        let places = backend.places(&small(5).encode(&group(chunk)));
        places.iter().for_each(|at| backend.spoil(*at));
    }
    let mut map = backend.open();
    let load = |map: &CheckpointDb, chunk: u32| map.load_leaves(&[group(chunk)]).unwrap().remove(0);
    let mut saved: BTreeMap<u32, SavedLeaf> = BTreeMap::new();
    let mut refused = 0;
    for chunk in 0..400 {
        let leaf = load(&map, chunk);
        assert!(matches!(leaf, SavedLeaf::Refused(_)) || leaf == SavedLeaf::Whole(small(5)), "{chunk}: {leaf:?}");
        refused += u32::from(matches!(leaf, SavedLeaf::Refused(_)));
        saved.insert(chunk, leaf);
    }
    assert!((2..60).contains(&refused), "{refused} leaves on two pages");
    // What was never there is not, although its key belongs to such a page.
    let between = LeafKey { pg: PgId(7), ..group(30) };
    assert_eq!(map.load_leaves(&[between]).unwrap(), [SavedLeaf::Absent]);
    let mut random = 7_u64;
    for modified in 6..60 {
        let mut batch = batch([]);
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let first = next(400) as u32;
        for chunk in first..(first + 1 + next(30) as u32).min(400) {
            if next(2) == 0 {
                batch.removed.push(group(chunk));
                saved.insert(chunk, SavedLeaf::Absent);
            } else {
                batch.leaves.push((group(chunk), small(modified)));
                saved.insert(chunk, SavedLeaf::Whole(small(modified)));
            }
        }
        map.checkpoint(batch).unwrap();
        if modified % 10 == 0 {
            drop(map);
            map = backend.open();
        }
        let there = |(_, leaf): &(&u32, &SavedLeaf)| **leaf != SavedLeaf::Absent;
        assert_eq!(listed(&map), saved.iter().filter(there).map(|(chunk, _)| *chunk).collect::<Vec<_>>());
        let page = map.scan_layer(LAYER, ChunkIndex(190), 20).unwrap();
        let expected = saved.range(190..).filter(there).map(|(chunk, _)| group(*chunk)).take(20);
        assert_eq!(page, expected.collect::<Vec<_>>());
        for pg in [1, 2] {
            assert_eq!(map.compare_totals(PgId(pg)).unwrap(), None);
        }
    }
    for (chunk, expected) in &saved {
        match (load(&map, *chunk), expected) {
            (SavedLeaf::Refused(_), SavedLeaf::Refused(_)) => {}
            (leaf, expected) => assert_eq!(leaf, *expected, "{chunk}"),
        }
    }
}

/// What became of a map of which one block is bad.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// It went on without so many leaves.
    Without(u32),
    Refused(String),
    Failed(String),
}

const SMALL: u32 = 600;
const ALL: u32 = SMALL + 20;

fn expected(chunk: u32) -> Arc<Leaf> {
    if chunk < SMALL { small(5) } else { leaf(5) }
}

/// Uses maps of which one block each is bad, in the way that `spoil` makes them bad. Blocks in which there are leaves
/// must not cost more than these.
fn one_bad_block_each(spoil: impl Fn(&Backend, usize)) -> Vec<Outcome> {
    let whole = Backend::default();
    let mut map = whole.open();
    map.checkpoint(with_leaves((0..SMALL).map(|chunk| (key(chunk), small(5))))).unwrap();
    map.checkpoint(batch((SMALL..ALL).map(|chunk| (chunk, 5)))).unwrap();
    drop(map);
    let mut of_leaves = BTreeSet::new();
    for chunk in 0..ALL {
        let image = expected(chunk).encode(&key(chunk));
        for at in whole.places(&image) {
            of_leaves.extend(at / BLOCK..(at + image.len()).div_ceil(BLOCK));
        }
    }
    assert!(of_leaves.len() > 80, "{of_leaves:?}");
    let blocks = whole.0.lock().unwrap().bytes.len() / BLOCK;
    let mut outcomes = Vec::new();
    for block in 0..blocks {
        let backend = whole.copied();
        spoil(&backend, block * BLOCK);
        let used = std::panic::catch_unwind(move || {
            let mut map = CheckpointDb::over(move || Ok(Box::new(backend.clone())))?;
            use_a_map(&mut map, block)
        });
        let outcome = match used {
            Ok(Ok(missing)) => Outcome::Without(missing),
            Ok(Err(MapError::Refused(what))) => Outcome::Refused(what),
            Ok(Err(error)) => Outcome::Failed(error.to_string()),
            Err(panic) => {
                let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                assert!(!said.contains("wrong leaf"), "{said}");
                Outcome::Failed(said)
            }
        };
        let goes_on = matches!(outcome, Outcome::Without(_));
        assert!(goes_on || !of_leaves.contains(&block), "{outcome:?} for leaves in block {block}");
        outcomes.push(outcome);
    }
    outcomes
}

fn count(outcomes: &[Outcome], which: impl Fn(&Outcome) -> bool) -> usize {
    outcomes.iter().filter(|outcome| which(outcome)).count()
}

/// Reads all leaves, and saves each fourth. Gives the number of those that are not there.
fn use_a_map(map: &mut CheckpointDb, block: usize) -> Result<u32, MapError> {
    map.root()?;
    map.checkpoint(with_leaves((0..ALL).step_by(4).map(|chunk| (key(chunk), small(6)))))?;
    let mut missing = 0;
    for chunk in 0..ALL {
        let expected = if chunk % 4 == 0 { small(6) } else { expected(chunk) };
        match map.load_leaves(&[key(chunk)])?.remove(0) {
            SavedLeaf::Whole(found) => assert_eq!(found, expected, "wrong leaf: chunk {chunk}, block {block} is bad"),
            SavedLeaf::Refused(_) | SavedLeaf::Damaged(_) => {
                assert_ne!(chunk % 4, 0, "wrong leaf: {chunk} has just been saved, block {block} is bad");
                missing += 1;
            }
            SavedLeaf::Absent => panic!("wrong leaf: chunk {chunk} is gone, block {block} is bad"),
        }
    }
    let all = map.scan_layer(LAYER, ChunkIndex(0), 5000)?;
    assert_eq!(all.len(), ALL as usize, "wrong leaf: not all are listed, block {block} is bad");
    Ok(missing)
}

#[test]
fn pages_of_leaves_that_cannot_be_read_cost_these_leaves_and_other_pages_are_refused() {
    let outcomes = one_bad_block_each(Backend::spoil);
    assert!(matches!(outcomes[0], Outcome::Failed(_)), "without its header it can't be opened");
    let many = |outcome: &Outcome| matches!(outcome, Outcome::Without(missing) if *missing == ALL / 4 * 3);
    assert!(count(&outcomes, many) > 0, "inner pages of the leaves: {outcomes:?}");
    // Other pages: a checkpoint that has to change them says so. Nothing but the lists of tables has a third outcome.
    let refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused(what) if what.contains("Medium error"));
    let failed = count(&outcomes, |outcome| matches!(outcome, Outcome::Failed(_)));
    assert!(count(&outcomes, refused) > 10 && failed < 8, "{outcomes:?}");
}

#[test]
fn pages_of_leaves_that_hold_something_else_cost_these_leaves() {
    let outcomes = one_bad_block_each(|backend, at| backend.0.lock().unwrap().bytes[at..at + BLOCK].fill(0xff));
    assert!(count(&outcomes, |outcome| matches!(outcome, Outcome::Without(1..))) > 80, "{outcomes:?}");
}
