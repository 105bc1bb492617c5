//! The saved map on disk gives what the one in memory gives, and keeps it.
#![allow(clippy::unwrap_used)]

#[path = "../../store/tests/common/mod.rs"]
mod common;
mod medium;

use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
use azekura_map_db::CheckpointDb;
use azekura_store::{
    CheckpointBatch, InMemoryMap, Leaf, LeafKey, MapError, MergedOwner, SavedLeaf, SavedMap, SegmentRow,
};
use common::*;
use medium::*;
use std::sync::Arc;

/// A file name of this test alone, removed with the value.
struct TempFile(std::path::PathBuf);

impl TempFile {
    fn new(name: &str) -> TempFile {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        TempFile(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A store whose map goes into both kinds at each checkpoint.
#[test]
fn a_store_opens_from_the_database_as_from_memory() {
    let file = TempFile::new("map");
    // The last checkpoint takes all that is not saved.
    let mut rig = Rig::format(&azekura_store::Options { checkpoint_leaves_max: 1000, ..tiny() });
    let mut database = CheckpointDb::open(&file.0).unwrap();
    assert!(database.root().unwrap().is_none());
    for value in 0..120 {
        rig.write(1, 10 + value % 2, (value % 20) as u32, (value % 9) as u16, filled(value, 2), 2);
        if value % 30 == 7 {
            rig.store.drop_layer(1, LayerId(11));
        }
    }
    rig.checkpoint();
    // A full copy of the map through the interface.
    let copied = rig.map.root().unwrap().unwrap();
    let leaves: Vec<_> = rig.map.leaves().map(|(key, leaf)| (key, leaf.clone())).collect();
    let keys: Vec<LeafKey> = leaves.iter().map(|(key, _)| *key).collect();
    let batch = CheckpointBatch {
        root: copied.root.clone(),
        segments: copied.segments.clone(),
        leaves,
        removed: Vec::new(),
        layers: copied.layers.clone(),
        merged_owners_gone: Vec::new(),
        merged_owners: vec![MergedOwner { segment: 3, layer: LayerId(5), owner: LayerId(6) }],
    };
    database.checkpoint(batch).unwrap();
    drop(database);
    let database = CheckpointDb::open(&file.0).unwrap();
    let read = database.root().unwrap().unwrap();
    assert_eq!(read.root, copied.root);
    assert_eq!(read.segments, copied.segments);
    assert_eq!(read.layers, copied.layers);
    assert_eq!(read.layers, rig.store.layers().collect::<Vec<_>>());
    assert_eq!(database.load_merged_owners(3).unwrap().len(), 1);
    assert!(database.load_merged_owners(4).unwrap().is_empty());
    assert_eq!(database.load_leaves(&keys).unwrap(), rig.map.load_leaves(&keys).unwrap());
    for layer in [LayerId(10), LayerId(11)] {
        for from in [0, 3, 19, 20] {
            let from = ChunkIndex(from);
            assert_eq!(database.scan_layer(layer, from, 7).unwrap(), rig.map.scan_layer(layer, from, 7).unwrap());
        }
    }
    for after in [0, 60, 110, 120] {
        let after = Sequence(after);
        for (from, limit) in [((LayerId(0), ChunkIndex(0)), 100), ((LayerId(10), ChunkIndex(3)), 4)] {
            let listed = database.scan_modified(PgId(1), after, from, limit).unwrap();
            assert_eq!(listed, rig.map.scan_modified(PgId(1), after, from, limit).unwrap());
            assert!(database.scan_modified(PgId(2), after, from, limit).unwrap().is_empty());
        }
    }
    let mut count = 0;
    database.for_each_leaf(&mut |leaf| count += usize::from(leaf.is_ok())).unwrap();
    assert_eq!(count, keys.len());
}

#[test]
fn a_second_opening_of_the_database_is_refused() {
    let file = TempFile::new("twice");
    let _first = CheckpointDb::open(&file.0).unwrap();
    assert!(CheckpointDb::open(&file.0).is_err());
}

#[test]
fn a_removed_leaf_is_gone() {
    let file = TempFile::new("removed");
    let mut database = CheckpointDb::open(&file.0).unwrap();
    let mut memory = InMemoryMap::new();
    let key = LeafKey { layer: LayerId(1), chunk: ChunkIndex(2), pg: PgId(3) };
    let format = azekura_store::Store::format(&tiny(), &IDENTITY).unwrap();
    for removed in [false, true] {
        let mut batch = format.checkpoint.clone();
        if removed {
            batch.removed.push(key);
        } else {
            batch.leaves.push((key, Arc::new(Leaf { modified: Sequence(5), ..Leaf::default() })));
        }
        memory.checkpoint(batch.clone()).unwrap();
        database.checkpoint(batch).unwrap();
        assert_eq!(database.load_leaves(&[key]).unwrap(), memory.load_leaves(&[key]).unwrap());
        assert_eq!(
            database.scan_modified(PgId(3), Sequence(0), (LayerId(0), ChunkIndex(0)), 9).unwrap().is_empty(),
            removed
        );
    }
}

#[test]
fn a_read_that_fails_once_is_asked_again() {
    let backend = Backend::default();
    let mut map = backend.open();
    map.checkpoint(batch((0..MORE_THAN_CACHED).map(|chunk| (chunk, 5)))).unwrap();
    drop(map);
    let mut map = backend.open();
    let mut failures = 0;
    for chunk in (0..MORE_THAN_CACHED).step_by(7) {
        // Some failures are hidden from the database, of the others it is opened anew.
        let times = 1 + chunk % 4;
        backend.fail(0, times);
        assert!(matches!(loads(&map, chunk), SavedLeaf::Whole(_)));
        failures += times - backend.0.lock().unwrap().fails[0];
        backend.fail(0, 0);
    }
    assert!(failures > 50, "{failures} reads have failed");
    // So is a checkpoint that could not read.
    backend.fail(0, 4);
    map.checkpoint(batch([(7, 6)])).unwrap();
    assert_eq!(loads(&map, 7), SavedLeaf::Whole(leaf(6)));
}

#[test]
fn a_database_that_refuses_for_a_while_gives_everything_afterwards() {
    let backend = Backend::default();
    let mut map = backend.open();
    map.checkpoint(batch((0..MORE_THAN_CACHED).map(|chunk| (chunk, 5)))).unwrap();
    drop(map);
    let mut map = backend.open();
    backend.fail(0, u32::MAX);
    let refused = |chunk: &u32| matches!(map.load_leaves(&[key(*chunk)]), Err(MapError::Refused(_)));
    assert!((0..MORE_THAN_CACHED).find(refused).is_some());
    for _ in 0..3 {
        assert!(matches!(map.load_leaves(&[key(3)]), Err(MapError::Refused(_))));
        assert!(matches!(map.scan_layer(LayerId(10), ChunkIndex(0), 9), Err(MapError::Refused(_))));
        assert!(matches!(map.checkpoint(batch([(3, 9)])), Err(MapError::Refused(_))));
    }
    backend.fail(0, 0);
    assert_eq!(loads(&map, 3), SavedLeaf::Whole(leaf(5)));
    map.checkpoint(batch([(3, 9)])).unwrap();
    assert_eq!(loads(&map, 3), SavedLeaf::Whole(leaf(9)));
}

/// After a flush that has failed, nobody knows what is durable.
#[test]
fn a_checkpoint_that_could_not_be_flushed_or_written_is_not_tried_again() {
    for which in [1, 2] {
        let backend = Backend::default();
        let mut map = backend.open();
        map.checkpoint(batch([(3, 5)])).unwrap();
        backend.fail(which, 1);
        assert!(matches!(map.checkpoint(batch([(3, 6)])), Err(MapError::Failed(_))), "{which}");
    }
}

#[test]
fn a_flipped_bit_in_a_leaf_costs_that_leaf() {
    let backend = Backend::default();
    let mut map = backend.open();
    map.checkpoint(batch((0..20).map(|chunk| (chunk, 5)))).unwrap();
    drop(map);
    let image = leaf(5).encode(&key(3));
    let places = backend.places(&image);
    places.iter().for_each(|at| backend.flip(at + 500));
    let mut map = backend.open();
    let SavedLeaf::Damaged(damaged) = loads(&map, 3) else { panic!("{places:?}") };
    assert_eq!((damaged.stamps, damaged.own), (Some(leaf(5).stamps()), Some(1024)));
    assert!((0..20).filter(|chunk| *chunk != 3).all(|chunk| matches!(loads(&map, chunk), SavedLeaf::Whole(_))));
    // It is listed, can be saved again, and is whole then.
    assert_eq!(map.scan_layer(LayerId(10), ChunkIndex(0), 100).unwrap().len(), 20);
    assert_eq!(map.compare_totals(PgId(1)).unwrap(), None);
    map.checkpoint(batch([(3, 6)])).unwrap();
    assert_eq!(loads(&map, 3), SavedLeaf::Whole(leaf(6)));
    assert_eq!(map.compare_totals(PgId(1)).unwrap(), None);
}

/// Each small row exists twice: a flipped bit in one is no loss, in both an error that says what to do.
#[test]
fn a_flipped_bit_in_a_small_row_is_no_loss_and_in_both_copies_an_error() {
    let rows: [&[u8]; 4] = [
        &SegmentRow { generation: 77, live: 0x5a5a, used: true }.encode(),
        &0x7777_1111u64.to_le_bytes(),
        b"AZKROOT",
        &0x6666_2222u64.to_le_bytes(),
    ];
    for (index, row) in rows.iter().enumerate() {
        for bad in 1..=2 {
            let backend = Backend::default();
            let mut map = backend.open();
            map.checkpoint(batch([(3, 5)])).unwrap();
            let (whole, merged_owners) = (map.root().unwrap().unwrap(), map.load_merged_owners(1).unwrap());
            drop(map);
            let places = backend.places(row);
            assert!(places.len() >= 2, "{row:02x?} is at {places:?}");
            // An older page may still hold the row, too.
            let damaged = if bad == 1 { &places[..1] } else { &places[..] };
            damaged.iter().for_each(|at| backend.flip(at + 3));
            let map = backend.open();
            match (map.root(), map.load_merged_owners(1)) {
                (Ok(root), Ok(now)) => {
                    assert_eq!(bad, 1, "both copies of {row:02x?}");
                    assert_eq!((root.unwrap().segments, now), (whole.segments, merged_owners));
                }
                (Err(error), _) if index < 3 => assert!(bad == 2 && error.to_string().contains("damaged"), "{error}"),
                (_, Err(error)) => assert!(bad == 2 && matches!(error, MapError::Refused(_)), "{error}"),
                (root, merged_owners) => panic!("{root:?} {merged_owners:?}"),
            }
        }
    }
}

/// Each page that a checkpoint has written in turn is an older one: what it held is noticed to be gone, or is still
/// there.
#[test]
fn a_page_that_the_disk_has_lost_is_noticed() {
    const CHUNKS: u32 = 60;
    let backend = Backend::default();
    let mut map = backend.open();
    // Pages that were given up are used again after some transactions.
    for _ in 0..6 {
        map.checkpoint(batch((0..CHUNKS).map(|chunk| (chunk, 5)))).unwrap();
    }
    backend.0.lock().unwrap().before.clear();
    map.checkpoint(batch((0..CHUNKS).filter(|chunk| chunk % 3 == 0).map(|chunk| (chunk, 8)))).unwrap();
    drop(map);
    let (bytes, before) = {
        let medium = backend.0.lock().unwrap();
        (medium.bytes.clone(), medium.before.clone())
    };
    let (mut noticed, mut unharmed) = (0, 0);
    for (offset, older) in before.iter().filter(|(offset, _)| **offset >= 4096) {
        let again = Backend::default();
        let at = *offset as usize;
        {
            let mut medium = again.0.lock().unwrap();
            medium.bytes = bytes.clone();
            medium.bytes[at..at + older.len()].copy_from_slice(older);
        }
        // The database may stumble over it: that is an error, or ends the map's thread, which is one.
        let look = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let map = again.open();
            // Without the list of its tables it seems empty: the device is not opened.
            if !matches!(map.root(), Ok(Some(_))) {
                return 0;
            }
            let mut good = 0;
            for chunk in 0..CHUNKS {
                match map.load_leaves(&[key(chunk)]).map(|mut leaves| leaves.remove(0)) {
                    Ok(SavedLeaf::Whole(found)) => {
                        assert_eq!(
                            found,
                            leaf(if chunk % 3 == 0 { 8 } else { 5 }),
                            "an older leaf passes for the latest"
                        );
                        good += 1;
                    }
                    Ok(SavedLeaf::Absent) => assert!(
                        !matches!(map.compare_totals(PgId(1)), Ok(None)),
                        "page {offset}: a leaf is gone without a word"
                    ),
                    _ => {}
                }
            }
            good
        }));
        match look {
            Ok(good) if good == CHUNKS => unharmed += 1,
            Ok(_) => noticed += 1,
            Err(panic) => {
                let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                assert!(!said.contains("passes for") && !said.contains("without a word"), "{said}");
                noticed += 1;
            }
        }
    }
    assert!(noticed > 5, "{noticed} noticed, {unharmed} harmless");
}
