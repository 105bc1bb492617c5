//! Damage and mix-ups: each gives a clear error or a safe refusal, never wrong data.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{BlockIndex, BlockRange, DeviceId, LayerId, PgId};
use azekura_store::{
    CheckpointBatch, Completion, DeviceError, Done, Effect, Entry, Failure, Identity, InMemoryMap, Inspector, LeafKey,
    MapError, OpenError, ReadError, SavedLeaf, SavedMap, Severity, Store, check,
};

/// A store with some history, closed.
fn closed(writes: u64) -> (Disk, InMemoryMap) {
    let mut rig = Rig::format(&tiny());
    for value in 1..=writes {
        rig.write(1, 10, (value % 3) as u32, (value % 11) as u16, filled(value, 3), 3);
    }
    rig.crash(|_, _| false)
}

fn open_as(identity: Identity, disk: Disk, map: InMemoryMap) -> Option<OpenError> {
    let root = map.root().unwrap().unwrap();
    let store = Store::open(tiny(), identity, root);
    let mut rig = Rig::around(store, disk, map);
    rig.settle();
    rig.done.into_iter().find_map(|c| match c {
        Completion::Recovered(result) => result.err(),
        _ => None,
    })
}

#[test]
fn a_device_or_map_of_somebody_else_is_refused() {
    let (disk, map) = closed(3);
    let other = Identity { cluster: 1, ..IDENTITY };
    assert!(matches!(open_as(other, disk.clone(), map.clone()), Some(OpenError::Identity(_))));
    let other = Identity { device: DeviceId(8), ..IDENTITY };
    assert!(matches!(open_as(other, disk.clone(), map.clone()), Some(OpenError::Identity(_))));

    // The map of this device, but formatted again.
    let again = Store::format(&tiny(), &Identity { instance: 43, ..IDENTITY }).unwrap();
    let mut swapped = disk.clone();
    swapped.write(again.offset, &again.pieces.concat());
    assert!(matches!(open_as(IDENTITY, swapped, map.clone()), Some(OpenError::Identity(_))));
    assert!(open_as(IDENTITY, disk, map).is_none());
}

#[test]
fn a_device_of_the_former_version_is_refused_with_the_way_out() {
    let (mut disk, map) = closed(3);
    for copy in [0, 4096] {
        disk.image[copy + 8] = 2;
    }
    let error = open_as(IDENTITY, disk, map).unwrap();
    assert_eq!(error, OpenError::Version(2));
    assert!(error.to_string().contains("formatted again"), "{error}");
}

#[test]
fn a_device_without_superblock_is_refused_and_one_copy_is_enough() {
    let (disk, map) = closed(3);
    let mut blank = disk.clone();
    blank.image[..8192].fill(0);
    assert_eq!(open_as(IDENTITY, blank, map.clone()), Some(OpenError::NotFormatted));
    let mut half = disk.clone();
    half.image[20] ^= 4;
    assert_eq!(open_as(IDENTITY, half.clone(), map.clone()), None);
    half.image[4096 + 20] ^= 4;
    assert!(matches!(open_as(IDENTITY, half, map), Some(OpenError::Damaged(_))));
}

#[test]
fn another_geometry_is_refused() {
    let (disk, map) = closed(3);
    let root = map.root().unwrap().unwrap();
    let options = azekura_store::Options { segments: 15, ..tiny() };
    let store = Store::open(options, IDENTITY, root);
    let mut rig = Rig::around(store, disk, map);
    rig.settle();
    assert!(matches!(rig.done[..], [Completion::Recovered(Err(OpenError::Options(_)))]));
}

/// Flips a bit in each 512-byte sector of the log in turn. A flip in a header or a summary either is harmless or makes
/// opening fail, except in the last batches, which can't be told from a torn write. A flip in a payload is found at
/// the read. Nothing else may happen.
#[test]
fn a_flipped_bit_anywhere_loses_no_acknowledged_write_in_silence() {
    let (disk, map) = closed(60);
    let expected = {
        let mut rig = Rig::open(&tiny(), disk.clone(), map.clone()).unwrap();
        rig.store.commit(PgId(1), sequence(60));
        (0..3).map(|chunk| rig.read(1, 10, chunk, 0, 16).unwrap()).collect::<Vec<_>>()
    };
    let window = u64::from(tiny().batches_in_flight_max) + 1;
    let (mut refused, mut detected, mut shortened) = (0, 0, 0);
    let start = 256 * 4096;
    for at in (start..disk.image.len()).step_by(512) {
        if disk.image[at..at + 512].iter().all(|b| *b == 0) {
            continue;
        }
        let mut damaged = disk.clone();
        damaged.image[at + (at / 512) % 512] ^= 0x10;
        let mut rig = match Rig::open(&tiny(), damaged, map.clone()) {
            Ok(rig) => rig,
            Err(OpenError::Damaged(_)) => {
                refused += 1;
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        rig.check_accounts();
        let end = rig.store.group(PgId(1)).prepared_end;
        assert!(end.0 + window >= 60, "{} acknowledged writes are lost without a word", 60 - end.0);
        if end.0 < 60 {
            shortened += 1;
            continue;
        }
        rig.store.commit(PgId(1), end);
        for chunk in 0..3 {
            for block in 0..16 {
                match rig.read(1, 10, chunk, block, 1) {
                    Ok(bytes) => {
                        let from = usize::from(block) * 4096;
                        assert!(bytes == expected[chunk as usize][from..from + 4096]);
                    }
                    Err(ReadError::Checksum { block: bad }) => {
                        assert_eq!(bad, BlockIndex(block));
                        detected += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
    assert!(refused > 20 && detected > 20 && shortened > 0, "{refused} {detected} {shortened}");
}

/// As with flipped bits: whatever block can't be read, the device opens, or is refused because something proves that
/// the block was durable and is needed.
#[test]
fn an_unreadable_block_anywhere_loses_no_acknowledged_write_in_silence() {
    let (disk, map) = closed(60);
    let window = u64::from(tiny().batches_in_flight_max) + 1;
    let (mut refused, mut detected, mut shortened, mut whole) = (0, 0, 0, 0);
    for block in 0..disk.image.len() / 4096 {
        if block > 1 && disk.image[block * 4096..(block + 1) * 4096].iter().all(|b| *b == 0) {
            continue;
        }
        let mut damaged = disk.clone();
        damaged.unreadable.insert(block);
        let mut rig = match Rig::open(&tiny(), damaged, map.clone()) {
            Ok(rig) => rig,
            Err(OpenError::Damaged(why)) => {
                assert!(why.contains("1 blocks can't be read") || why.contains("went on in segment"), "{why}");
                refused += 1;
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        rig.check_accounts();
        let end = rig.store.group(PgId(1)).prepared_end;
        assert!(end.0 + window >= 60, "{} acknowledged writes are lost without a word", 60 - end.0);
        shortened += u32::from(end.0 < 60);
        rig.store.commit(PgId(1), end);
        let failed = (0..3).filter(|chunk| rig.read(1, 10, *chunk, 0, 16).is_err()).count();
        *(if failed > 0 { &mut detected } else { &mut whole }) += 1;
        // The log goes on over it.
        for value in 0..60 {
            rig.write(1, 10, (value % 3) as u32, (value % 11) as u16, filled(value, 3), 3);
        }
        assert!((0..3).all(|chunk| rig.read(1, 10, chunk, 0, 11).is_ok()));
    }
    assert!(refused > 20 && detected > 10 && shortened > 0 && whole > 5, "{refused} {detected} {shortened} {whole}");
}

/// What is taken for unreadable is not written any more: a device that refuses for a while is not opened without its
/// tail.
#[test]
fn a_device_that_refuses_for_a_while_is_not_taken_for_one_with_unreadable_blocks() {
    let (disk, map) = closed(60);
    let mut opened = 0;
    for from in 0..24 {
        for reads in 1..12 {
            let mut store = Store::open(tiny(), IDENTITY, map.root().unwrap().unwrap());
            let mut map = map.clone();
            let (mut asked, mut ended) = (0, None);
            while ended.is_none() {
                while let Some(effect) = store.next_effect() {
                    let (io, done) = match effect {
                        Effect::Read { io, offset, len } => {
                            asked += 1;
                            let refuses = (from..from + reads).contains(&(asked - 1));
                            let refusal = Err(DeviceError("Input/output error".into()));
                            (io, Done::Read(if refuses { refusal } else { disk.try_read(offset, len) }))
                        }
                        Effect::Flush { io } => (io, Done::Flushed(Ok(()))),
                        effect => map.perform(effect).unwrap(),
                    };
                    store.done(io, done);
                }
                if let Some(Completion::Recovered(result)) = store.next_completion() {
                    ended = Some(result);
                }
            }
            match ended.unwrap() {
                Ok(()) => {
                    opened += 1;
                    assert_eq!(store.group(PgId(1)).prepared_end, sequence(60));
                }
                Err(OpenError::Device(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(opened > 20, "{opened}");
}

#[test]
fn a_failed_write_stops_the_store_for_good() {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, 0, 0, filled(1, 1), 1);
    rig.done.clear();
    for token in 0..2 {
        let write = rig.next_write(1, 10, 0, 0, filled(2 + token, 1), 1);
        rig.store.append(token, write);
        rig.store.pump();
    }
    let mut ios = Vec::new();
    while let Some(effect) = rig.store.next_effect() {
        if let Effect::Write { io, .. } = effect {
            ios.push(io);
        }
    }
    assert_eq!(ios.len(), 2);
    let error = DeviceError("no such luck".into());
    rig.store.done(ios[0], Done::Written(Err(error.clone())));
    rig.store.done(ios[1], Done::Written(Ok(())));
    rig.store.pump();
    let told: Vec<_> = std::iter::from_fn(|| rig.store.next_completion()).collect();
    assert!(matches!(&told[..], [Completion::Failed(Failure::Device(e))] if *e == error), "{told:?}");
    let write = rig.next_write(1, 10, 0, 0, filled(4, 1), 1);
    rig.store.append(9, write);
    rig.store.pump();
    assert!(rig.store.next_effect().is_none());
    // What was committed before can still be read.
    assert_eq!(rig.read(1, 10, 0, 0, 1).unwrap(), bytes_of(&filled(1, 1), 1));
}

#[test]
fn a_failed_read_is_told_and_the_store_goes_on() {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, 0, 0, filled(1, 1), 1);
    rig.done.clear();
    rig.store.read(
        5,
        PgId(1),
        BlockRange {
            layer: azekura_base::LayerId(10),
            chunk: azekura_base::ChunkIndex(0),
            first: BlockIndex(0),
            count: 1,
        },
    );
    rig.take_effects();
    let (io, ..) = rig.reads_waiting.remove(0);
    rig.store.done(io, Done::Read(Err(DeviceError("bad sector".into()))));
    assert!(matches!(
        rig.store.next_completion(),
        Some(Completion::Read { token: 5, result: Err(ReadError::Device(_)) })
    ));
    assert_eq!(rig.read(1, 10, 0, 0, 1).unwrap(), bytes_of(&filled(1, 1), 1));
}

#[test]
fn a_leaf_that_cannot_be_loaded_fails_the_read_alone() {
    let mut rig = Rig::format(&tiny());
    for chunk in 0..20 {
        rig.write(1, 10, chunk, 0, filled(1, 1), 1);
    }
    rig.settle_map();
    (0..6).for_each(|_| rig.checkpoint());
    let (disk, map) = rig.crash(|_, _| false);
    // Replay asks for leaves; memory has room for a few, and after others this one is not among them.
    let options = azekura_store::Options { leaf_cache_bytes_max: 2_000, ..tiny() };
    let mut rig = Rig::open(&options, disk, map).unwrap();
    (3..20).for_each(|chunk| drop(rig.read(1, 10, chunk, 0, 1).unwrap()));
    let chunk = azekura_base::ChunkIndex(2);
    rig.store.read(5, PgId(1), BlockRange { layer: azekura_base::LayerId(10), chunk, first: BlockIndex(0), count: 1 });
    rig.take_effects();
    let Some(Effect::LoadLeaves { io, .. }) = rig.map_waiting.pop() else { panic!("no leaf was asked for") };
    rig.store.done(io, Done::Leaves(Err(MapError::Refused("rotten".into()))));
    assert!(matches!(rig.store.next_completion(), Some(Completion::Read { token: 5, result: Err(ReadError::Map(_)) })));
    assert_eq!(rig.read(1, 10, 2, 0, 1).unwrap(), bytes_of(&filled(1, 1), 1));
}

#[test]
fn a_check_of_a_healthy_device_finds_nothing_and_changes_nothing() {
    let (disk, map) = closed(60);
    let report = check(&disk, &map, &[], true);
    assert_eq!(report.findings, []);
    assert!(report.is_clean() && report.blocks_verified == report.live_blocks && report.live_blocks > 20);
    assert_eq!(report, check(&disk, &map, &[], true));
}

#[test]
fn a_check_finds_a_bad_block() {
    let (mut disk, map) = closed(60);
    let want = bytes_of(&filled(59, 3), 3);
    let at = disk.image.windows(4096).step_by(4096).position(|w| w == &want[..4096]).unwrap();
    disk.image[at * 4096 + 100] ^= 1;
    let report = check(&disk, &map, &[], true);
    assert_eq!(report.errors, 1, "{report:?}");
    assert!(report.findings[0].severity == Severity::Error && report.findings[0].what.contains("checksum"));
    assert!(check(&disk, &map, &[], false).is_clean());
}

/// Three layers, each on the one before, that share blocks; the middle one has none of its own in the first chunk.
fn closed_with_layers() -> (Disk, InMemoryMap) {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, 0, 0, filled(1, 8), 8);
    rig.write(1, 10, 1, 0, filled(2, 8), 8);
    rig.store.set_parent(LayerId(11), LayerId(10));
    rig.write(1, 11, 1, 2, filled(3, 2), 2);
    rig.checkpoint();
    rig.store.set_parent(LayerId(12), LayerId(11));
    rig.write(1, 12, 0, 4, filled(4, 1), 1);
    rig.write(1, 12, 1, 3, filled(5, 1), 1);
    rig.checkpoint();
    rig.crash(|_, _| true)
}

#[test]
fn a_check_knows_which_layer_owns_a_block() {
    let (disk, map) = closed_with_layers();
    let lies_on = |layer: u64, parent: u64| (LayerId(layer), LayerId(parent));
    let report = check(&disk, &map, &[lies_on(11, 10), lies_on(12, 11)], true);
    assert_eq!((report.findings.clone(), report.live_blocks), (vec![], 20), "{report:?}");
    // A tree that is not this device's.
    let report = check(&disk, &map, &[lies_on(11, 10)], true);
    let found: Vec<_> = report.findings.iter().map(|finding| &finding.what[..]).collect();
    let orphan = |chunk: u32| format!("layer 12 chunk {chunk} block 0 is inherited from nobody");
    assert_eq!(found, [orphan(0), orphan(1)]);
}

#[test]
fn a_check_finds_a_block_with_two_owners() {
    let (disk, mut map) = closed_with_layers();
    let key = LeafKey { layer: LayerId(12), chunk: azekura_base::ChunkIndex(0), pg: PgId(1) };
    let Some(SavedLeaf::Whole(leaf)) = map.load_leaves(&[key]).unwrap().pop() else { panic!("no leaf") };
    let mut leaf = (*leaf).clone();
    assert!(!leaf.entries[0].is_own());
    let own = Entry { flags: 0, ..leaf.entries[0] };
    leaf.entries.set(0, own);
    let root = map.root().unwrap().unwrap().root;
    let (segments, removed, layers, merged_owners_gone, merged_owners) = (vec![], vec![], vec![], vec![], vec![]);
    let leaves = vec![(key, std::sync::Arc::new(leaf))];
    map.checkpoint(CheckpointBatch { root, segments, leaves, removed, layers, merged_owners_gone, merged_owners })
        .unwrap();
    let report = check(&disk, &map, &[(LayerId(11), LayerId(10)), (LayerId(12), LayerId(11))], false);
    assert!(report.findings.iter().any(|f| f.what.contains("belongs to another leaf, too")), "{report:?}");
}

#[test]
fn a_check_finds_a_segment_that_is_not_what_it_should_be() {
    let (mut disk, map) = closed(60);
    let segment = 64 * 4096;
    disk.image[256 * 4096..256 * 4096 + segment].fill(0x55);
    let report = check(&disk, &map, &[], true);
    assert!(report.warnings > 0, "{report:?}");
}

#[test]
fn the_dump_shows_every_record() {
    let (disk, _) = closed(60);
    let inspector = Inspector::open(&disk).unwrap();
    assert_eq!(inspector.superblock().device, 7);
    let mut sequences = Vec::new();
    for segment in inspector.segments() {
        for batch in segment.unwrap().batches {
            assert!(batch.payload_whole);
            sequences.extend(batch.records.iter().filter(|r| r.kind == "write").map(|r| r.sequence));
        }
    }
    assert_eq!(sequences, (1..=60).collect::<Vec<u64>>());
}
