//! Leaves of the saved map that cannot be used: they cost their chunk on this copy, never the device.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{BlockIndex, BlockRange, Body, ChunkIndex, LayerId, PgId};
use azekura_store::{
    Completion, Failure, LeafKey, MapDamage, MapError, ReadError, Repair, Report, SavedMap, UnknownBlocks, check,
};
use std::time::Duration;

const CHUNK: u32 = 2;
/// More than fit into memory.
const CHUNKS: u32 = 24;

/// A store with a few saved chunks, the leaf of one of which is damaged while nobody has it in memory.
fn with_a_damaged_leaf(damage: MapDamage) -> Rig {
    let mut rig = Rig::format(&tiny());
    for chunk in 0..CHUNKS {
        rig.write(1, 10, chunk, 0, filled(u64::from(chunk), 8), 8);
    }
    rig.checkpoint();
    let (disk, mut map) = rig.crash(|_, _| true);
    assert!(map.damage(LayerId(10), ChunkIndex(CHUNK), damage));
    Rig::open(&tiny(), disk, map).unwrap()
}

fn key(layer: u64) -> LeafKey {
    LeafKey { layer: LayerId(layer), chunk: ChunkIndex(CHUNK), pg: PgId(1) }
}

#[test]
fn a_damaged_leaf_costs_its_chunk_and_not_the_device() {
    for damage in [MapDamage::Leaf, MapDamage::LeafAndIndex] {
        let mut rig = with_a_damaged_leaf(damage);
        let unknown = |first, count| ReadError::Unknown { first: BlockIndex(first), count };
        assert_eq!(rig.read(1, 10, CHUNK, 0, 4), Err(unknown(0, 4)));
        assert_eq!(rig.read(1, 10, 1, 0, 8).unwrap(), bytes_of(&filled(1, 8), 8));
        // A write is what stopped the store once.
        rig.write(1, 10, CHUNK, 2, filled(9, 1), 1);
        assert_eq!(rig.read(1, 10, CHUNK, 2, 1).unwrap(), bytes_of(&filled(9, 1), 1));
        assert_eq!(rig.read(1, 10, CHUNK, 0, 4), Err(unknown(0, 2)));
        let told = rig.reports.iter().filter(|report| matches!(report, Report::LeafDamaged { .. })).count();
        assert_eq!(told, 1);
        rig.checkpoint();
        if damage == MapDamage::Leaf {
            rig.check_accounts();
        }
        // A restart does not forget it, and names what is missing before anybody reads.
        let (disk, map) = rig.crash(|_, _| true);
        let mut rig = Rig::open(&tiny(), disk, map).unwrap();
        rig.store.unknown_blocks();
        rig.settle();
        let runs = vec![(BlockIndex(0), 2), (BlockIndex(3), 1021)];
        assert_eq!(rig.store.unknown_blocks(), [UnknownBlocks { key: key(10), runs }]);
        // Another copy gives the blocks.
        for (first, count, body) in [(0, 2, filled(2, 2)), (3, 5, filled(5, 5)), (8, 1016, Body::Zero)] {
            let (pg, layer, chunk) = (PgId(1), LayerId(10), ChunkIndex(CHUNK));
            let sequence = rig.store.group(pg).committed;
            rig.store.append(
                3,
                Repair { pg, sequence, range: BlockRange { layer, chunk, first: BlockIndex(first), count }, body },
            );
            rig.settle();
        }
        assert_eq!(rig.read(1, 10, CHUNK, 0, 2).unwrap(), bytes_of(&filled(2, 2), 2));
        assert_eq!(rig.read(1, 10, CHUNK, 2, 1).unwrap(), bytes_of(&filled(9, 1), 1));
        assert_eq!(rig.read(1, 10, CHUNK, 8, 9).unwrap(), vec![0; 9 * 4096]);
        assert_eq!(rig.store.unknown_blocks(), []);
        rig.checkpoint();
        assert!(rig.map.root().unwrap().unwrap().damaged.is_empty());
    }
}

#[test]
fn a_replayed_record_may_meet_a_damaged_leaf() {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, CHUNK, 0, filled(1, 4), 4);
    rig.write(1, 10, CHUNK, 1, filled(2, 1), 1);
    rig.checkpoint();
    rig.write(1, 10, CHUNK, 3, filled(3, 1), 1);
    let (disk, mut map) = rig.crash(|_, _| true);
    map.damage(LayerId(10), ChunkIndex(CHUNK), MapDamage::Leaf);
    for _ in 0..3 {
        let mut rig = Rig::open(&tiny(), disk.clone(), map.clone()).unwrap();
        let end = rig.store.group(PgId(1)).prepared_end;
        rig.store.commit(PgId(1), end);
        rig.settle();
        // What the leaf had seen is not applied again out of turn: it may have been overwritten since.
        assert_eq!(rig.read(1, 10, CHUNK, 0, 4), Err(ReadError::Unknown { first: BlockIndex(0), count: 3 }));
        assert_eq!(rig.read(1, 10, CHUNK, 3, 1).unwrap(), bytes_of(&filled(3, 1), 1));
        rig.check_accounts();
        rig.checkpoint();
        rig.check_accounts();
        map = rig.crash(|_, _| true).1;
    }
}

#[test]
fn what_a_damaged_leaf_owned_becomes_free_again() {
    let mut rig = with_a_damaged_leaf(MapDamage::Leaf);
    let before = rig.store.space().live;
    assert!(rig.read(1, 10, CHUNK, 0, 4).is_err());
    rig.check_accounts();
    // The log goes round several times, and space is short enough that the cleaner looks at every segment.
    for round in 0..1500u64 {
        rig.write(1, 10, 30, (round * 37 % 20 * 8) as u16, filled(round, 8), 8);
    }
    rig.checkpoint();
    rig.check_accounts();
    let kept = u64::from((CHUNKS - 1) * 8 + 160) * 4096;
    assert_eq!(rig.store.space().live, kept, "of {before} before");
}

#[test]
fn layers_on_a_damaged_leaf_get_what_it_gets() {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, CHUNK, 0, filled(1, 8), 8);
    rig.store.set_parent(LayerId(11), LayerId(10));
    rig.write(1, 11, CHUNK, 4, filled(2, 1), 1);
    rig.checkpoint();
    let (disk, mut map) = rig.crash(|_, _| true);
    map.damage(LayerId(10), ChunkIndex(CHUNK), MapDamage::Leaf);
    let mut rig = Rig::open_with(&tiny(), disk, map, |store| store.set_parent(LayerId(11), LayerId(10))).unwrap();
    assert!(rig.read(1, 10, CHUNK, 0, 1).is_err());
    assert_eq!(rig.read(1, 11, CHUNK, 4, 1).unwrap(), bytes_of(&filled(2, 1), 1));
    assert_eq!(rig.read(1, 11, CHUNK, 0, 6), Err(ReadError::Unknown { first: BlockIndex(0), count: 4 }));
    rig.check_accounts();
    rig.checkpoint();
    let (pg, layer, chunk) = (PgId(1), LayerId(10), ChunkIndex(CHUNK));
    for (first, count, body) in [(0, 8, filled(1, 8)), (8, 1016, Body::Zero)] {
        let sequence = rig.store.group(pg).committed;
        rig.store.append(
            3,
            Repair { pg, sequence, range: BlockRange { layer, chunk, first: BlockIndex(first), count }, body },
        );
        rig.settle();
    }
    let mut expected = bytes_of(&filled(1, 8), 8);
    assert_eq!(rig.read(1, 10, CHUNK, 0, 8).unwrap(), expected);
    expected[4 * 4096..5 * 4096].copy_from_slice(&bytes_of(&filled(2, 1), 1));
    assert_eq!(rig.read(1, 11, CHUNK, 0, 8).unwrap(), expected);
    rig.checkpoint();
    rig.check_accounts();
}

/// The map refuses for a while: readers are told at once, writes wait, and nothing is lost.
#[test]
fn a_map_that_refuses_for_a_moment_costs_nothing() {
    for (seconds, another_has_it) in [(5, true), (15, false), (15, true)] {
        let mut rig = with_a_damaged_leaf(MapDamage::Lost);
        rig.settle_map();
        (2..CHUNKS).filter(|chunk| *chunk != CHUNK).for_each(|chunk| drop(rig.read(1, 10, chunk, 0, 1).unwrap()));
        let write = rig.next_write(1, 10, 1, 0, filled(7, 1), 1);
        let sequence = write.header.sequence;
        rig.store.append(1, write);
        rig.store.pump();
        rig.take_effects();
        rig.finish_write(0);
        rig.store.commit(PgId(1), sequence);
        assert!(rig.store.settle_map(), "the write waits for its leaf");
        rig.store.read(
            5,
            PgId(1),
            BlockRange { layer: LayerId(10), chunk: ChunkIndex(1), first: BlockIndex(4), count: 1 },
        );
        for second in 1..=seconds {
            rig.take_effects();
            for effect in std::mem::take(&mut rig.map_waiting) {
                let (io, done) = effect.map_error(MapError::Refused("no answer".into())).unwrap();
                rig.store.done(io, done);
            }
            rig.store.tick(Duration::from_secs(second));
            let overdue = rig.store.overdue_leaves();
            assert_eq!(overdue.len(), usize::from(second % 10 == 0), "after {second} s");
            overdue.iter().filter(|_| another_has_it).for_each(|leaf| rig.store.give_up_leaf(&leaf.key));
            assert!(overdue.iter().all(|leaf| leaf.alone_for.is_zero()), "the whole map refuses");
        }
        rig.settle();
        let failed = |c: &Completion| matches!(c, Completion::Failed(_));
        assert!(!rig.done.iter().any(failed), "{:?}", rig.done);
        assert!(rig.done.iter().any(|c| matches!(c, Completion::Read { token: 5, result: Err(ReadError::Map(_)) })));
        rig.done.clear();
        assert_eq!(rig.read(1, 10, 1, 0, 1).unwrap(), bytes_of(&filled(7, 1), 1));
        // After some time it counts as damaged, so that the device goes on, where that costs nothing: another copy has
        // the blocks.
        let other = rig.read(1, 10, 1, 4, 1);
        assert_eq!(other.is_ok(), seconds < 10 || !another_has_it, "{other:?}");
    }
}

fn pass(rig: &mut Rig, seconds: std::ops::Range<u64>) {
    for second in seconds {
        rig.store.tick(Duration::from_secs(second));
        rig.settle();
    }
}

/// The rest of the map can be read. When the leaf is given up its chunk is unknown, whether something waits for it or
/// somebody has only tried to read it.
#[test]
fn a_leaf_whose_page_cannot_be_read_costs_its_chunk_and_not_the_device() {
    for writes in [true, false] {
        let mut rig = with_a_damaged_leaf(MapDamage::Unreadable);
        let refused = |result| matches!(result, Err(ReadError::Map(MapError::Refused(_))));
        assert!(refused(rig.read(1, 10, CHUNK, 0, 4)));
        if writes {
            rig.write(1, 10, CHUNK, 2, filled(9, 1), 1);
        }
        pass(&mut rig, 1..40);
        // Nobody has given it up. Where a write waits for it, it is asked for again soon.
        rig.done.clear();
        let range = BlockRange { layer: LayerId(10), chunk: ChunkIndex(CHUNK), first: BlockIndex(2), count: 1 };
        rig.store.read(5, PgId(1), range);
        pass(&mut rig, 40..41);
        let told = |c: &Completion| {
            matches!(c, Completion::Read { token: 5, result: Err(ReadError::Map(MapError::Refused(_))) })
        };
        assert!(rig.done.iter().any(told), "{:?}", rig.done);
        assert_eq!(rig.read(1, 10, 1, 0, 8).unwrap(), bytes_of(&filled(1, 8), 8));
        let overdue = rig.store.overdue_leaves();
        let [leaf] = &overdue[..] else { panic!("{overdue:?}") };
        assert_eq!(leaf.key, key(10));
        assert!(leaf.alone_for >= Duration::from_secs(35) && leaf.alone_for <= leaf.refused_for, "{leaf:?}");
        rig.store.give_up_leaf(&leaf.key);
        pass(&mut rig, 41..53);
        rig.store.unknown_blocks();
        pass(&mut rig, 53..55);
        let told = rig.reports.iter().filter(|report| matches!(report, Report::LeafDamaged { .. })).count();
        assert_eq!(told, 1);
        if writes {
            assert_eq!(rig.read(1, 10, CHUNK, 2, 1).unwrap(), bytes_of(&filled(9, 1), 1));
        }
        let runs = match writes {
            true => vec![(BlockIndex(0), 2), (BlockIndex(3), 1021)],
            false => vec![(BlockIndex(0), 1024)],
        };
        assert_eq!(rig.store.unknown_blocks(), [UnknownBlocks { key: key(10), runs }]);
        // The index has told what it owned.
        rig.check_accounts();
        rig.checkpoint();
        rig.check_accounts();
        assert_eq!(rig.store.overdue_leaves(), []);
        // It has been saved elsewhere.
        let (disk, map) = rig.crash(|_, _| true);
        let mut rig = Rig::open(&tiny(), disk, map).unwrap();
        let first = ReadError::Unknown { first: BlockIndex(0), count: 2 - u16::from(!writes) };
        assert_eq!(rig.read(1, 10, CHUNK, 0, 1 + u16::from(writes)), Err(first));
    }
}

/// As when the database has to change a page that it can't read: not one of leaves, these it goes round.
#[test]
fn a_checkpoint_that_is_refused_for_long_ends_the_device_and_tells_what_to_do() {
    let mut rig = with_a_damaged_leaf(MapDamage::Lost);
    rig.write(1, 10, 1, 0, filled(7, 1), 1);
    rig.store.begin_checkpoint(|_| None);
    let mut failed = None;
    for second in 1..200 {
        rig.take_effects();
        for effect in std::mem::take(&mut rig.map_waiting) {
            let (io, done) = effect.map_error(MapError::Refused("Medium error".into())).unwrap();
            rig.store.done(io, done);
        }
        let told = rig.done.drain(..).find_map(|c| match c {
            Completion::Failed(Failure::Map(MapError::Failed(what))) => Some(what),
            _ => None,
        });
        if let Some(what) = told {
            failed = Some((second, what));
            break;
        }
        rig.store.tick(Duration::from_secs(second));
    }
    let (second, what) = failed.unwrap();
    assert!((60..75).contains(&second), "after {second} s");
    assert!(what.contains("Medium error") && what.contains("rebuild-map"), "{what}");
}

/// A write to it is in the log, and nobody has taken it out of the map's way before the process ended.
#[test]
fn a_device_opens_although_replay_meets_a_leaf_whose_page_cannot_be_read() {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, CHUNK, 0, filled(1, 4), 4);
    rig.checkpoint();
    rig.write(1, 10, CHUNK, 3, filled(3, 1), 1);
    rig.checkpoint();
    rig.write(1, 10, CHUNK, 1, filled(4, 1), 1);
    rig.write(1, 10, 1, 0, filled(5, 1), 1);
    let (disk, mut map) = rig.crash(|_, _| true);
    assert!(map.damage(LayerId(10), ChunkIndex(CHUNK), MapDamage::Unreadable));
    let mut rig = Rig::open(&tiny(), disk, map).unwrap();
    let end = rig.store.group(PgId(1)).prepared_end;
    rig.store.commit(PgId(1), end);
    rig.settle();
    pass(&mut rig, 100..160);
    rig.store.overdue_leaves().iter().for_each(|leaf| rig.store.give_up_leaf(&leaf.key));
    pass(&mut rig, 160..163);
    assert_eq!(rig.read(1, 10, CHUNK, 1, 1).unwrap(), bytes_of(&filled(4, 1), 1));
    assert_eq!(rig.read(1, 10, CHUNK, 2, 2), Err(ReadError::Unknown { first: BlockIndex(2), count: 2 }));
    assert_eq!(rig.read(1, 10, 1, 0, 1).unwrap(), bytes_of(&filled(5, 1), 1));
    rig.checkpoint();
    rig.check_accounts();
}

#[test]
fn a_map_that_does_nothing_is_waited_for_and_the_time_is_told() {
    let mut rig = with_a_damaged_leaf(MapDamage::Lost);
    rig.store.read(5, PgId(1), BlockRange { layer: LayerId(10), chunk: ChunkIndex(1), first: BlockIndex(4), count: 1 });
    rig.take_effects();
    assert_eq!(rig.map_waiting.len(), 1);
    // A process that stood still must not take its map for dead.
    rig.store.tick(Duration::from_secs(3600));
    assert_eq!(rig.store.map_silence(), Duration::from_secs(1));
    for second in 1..100 {
        rig.store.tick(Duration::from_secs(3600 + second));
    }
    assert!(rig.store.next_completion().is_none());
    assert_eq!(rig.store.map_silence(), Duration::from_secs(100));
    rig.settle();
    assert!(rig.map_waiting.is_empty() && rig.store.map_silence().is_zero());
    rig.store.tick(Duration::from_secs(3800));
    assert!(rig.store.map_silence().is_zero(), "it was asked for nothing");
}

#[test]
fn leaves_that_are_gone_without_a_trace_are_noticed_when_all_are_listed() {
    let mut rig = with_a_damaged_leaf(MapDamage::Lost);
    rig.store.modified_since(4, PgId(1), sequence(0));
    rig.settle();
    assert!(rig.reports.iter().any(|report| matches!(report, Report::RowsLost { pg: PgId(1), .. })));
    let (disk, map) = rig.crash(|_, _| true);
    let report = check(&disk, &map, &[], false);
    assert!(report.findings.iter().any(|finding| finding.what.contains("lost")), "{report:?}");
}
