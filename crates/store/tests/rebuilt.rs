//! A map that is made from the log alone: of any history it holds nothing that is not compared, and a comparison with
//! another copy brings it level.

use crate::common::*;
use crate::model::actions::{Action, action};
use crate::model::state::{CHUNKS, GROUPS, group_of};
use crate::model::world::World;
use crate::model::{config, roomy, small};
use azekura_base::{BLOCK_SIZE, BlockIndex, Body, Checksum, ChunkIndex, LayerId, PgId, Sequence, checksum};
use azekura_store::{
    InMemoryMap, KnownLayers, LeafImage, LeafKey, Mark, OpenError, Options, Rebuild, RebuildReport, RebuildSettings,
    Repair, SavedMap,
};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// Blocks of a chunk that histories write to.
const BLOCKS: u16 = 32;

/// What the configuration knows where these layers are, from the oldest to the head, each on the one before.
pub fn known(living: &[u64], parents: &BTreeMap<u64, u64>, newest: u64) -> KnownLayers {
    KnownLayers {
        living: living.iter().map(|layer| LayerId(*layer)).collect(),
        parents: parents.iter().map(|(layer, parent)| (LayerId(*layer), LayerId(*parent))).collect(),
        merging: BTreeMap::new(),
        newest: LayerId(newest),
    }
}

pub fn settings(layers: KnownLayers, options: &Options) -> RebuildSettings {
    RebuildSettings {
        layers,
        groups: (0..GROUPS).map(PgId).collect(),
        accepted: BTreeSet::new(),
        segments_ready: options.segments,
        memory_bytes: 1 << 30,
    }
}

pub fn rebuild(disk: &Disk, settings: &RebuildSettings) -> Result<(InMemoryMap, RebuildReport), OpenError> {
    let mut rebuild = Rebuild::new(disk, settings, &mut |_, _, _| {})?;
    let mut map = InMemoryMap::new();
    rebuild.save(&mut map, &mut |_, _, _| {}).unwrap();
    Ok((map, rebuild.report()))
}

/// A store over a map that was rebuilt.
fn open(options: &Options, disk: Disk, map: InMemoryMap, parents: &BTreeMap<u64, u64>) -> Rig {
    let parents: Vec<(u64, u64)> = parents.iter().map(|(layer, parent)| (*layer, *parent)).collect();
    let rig = Rig::open_with(options, disk, map, |store| {
        parents.iter().for_each(|(layer, parent)| store.set_parent(LayerId(*layer), LayerId(*parent)));
    });
    rig.unwrap()
}

/// Every block that a leaf owns is on the device, once.
pub fn check_blocks(disk: &Disk, map: &InMemoryMap) {
    let mut owned = BTreeSet::new();
    for (key, leaf) in map.leaves() {
        for (block, entry) in leaf.entries.present().filter(|(_, entry)| entry.is_own() && !entry.is_lost()) {
            let bytes = disk.read(u64::from(entry.address) * BLOCK_SIZE as u64, BLOCK_SIZE);
            assert_eq!(checksum(&bytes), Checksum(entry.checksum), "block {block} of {key:?} is not what was written");
            assert!(owned.insert(entry.address), "block {block} of {key:?} has two owners");
        }
    }
}

/// All that is live in the store has been saved: some leaves with each checkpoint.
fn save_all(rig: &mut Rig) {
    (0..20).for_each(|_| rig.checkpoint());
}

/// Brings a rebuilt copy level with a complete one as a group does: what the complete one has leaves of is compared,
/// and sent where it differs. Gives how many blocks were sent.
fn compare(source: &mut Rig, target: &mut Rig, living: &BTreeSet<u64>) -> u64 {
    compare_merging(source, target, living, &[])
}

/// What a primary compares: the chunks that it has leaves of. That of a layer that is being merged stands for its
/// child's.
fn compared(source: &Rig, merging: &[(u64, u64)]) -> BTreeSet<LeafKey> {
    let heir = |mut layer: LayerId| {
        while let Some((_, into)) = merging.iter().find(|(merged, _)| *merged == layer.0) {
            layer = LayerId(*into);
        }
        layer
    };
    source.map.leaves().map(|(key, _)| LeafKey { layer: heir(key.layer), ..key }).collect()
}

fn compare_merging(source: &mut Rig, target: &mut Rig, living: &BTreeSet<u64>, merging: &[(u64, u64)]) -> u64 {
    let mut sent = 0;
    for pg in (0..GROUPS).map(PgId) {
        let committed = source.store.group(pg).committed.max(target.store.group(pg).committed);
        let epoch = source.store.group(pg).epoch.max(target.store.group(pg).epoch).next();
        assert!(target.store.group(pg).unproven && target.store.group(pg).complete == Sequence::ZERO);
        target.store.rejoin(1, pg, epoch, committed);
        let leaves = compared(source, merging);
        for key in leaves.iter().filter(|key| key.pg == pg && living.contains(&key.layer.0)) {
            sent += compare_chunk(source, target, key, committed);
        }
        target.store.set_complete(4, pg);
        target.settle();
        assert!(!target.store.group(pg).unproven, "the log says that it is complete");
    }
    sent
}

fn compare_chunk(source: &mut Rig, target: &mut Rig, key: &LeafKey, sequence: Sequence) -> u64 {
    let LeafKey { layer, chunk, pg } = *key;
    let mut sent = 0;
    for block in 0..BLOCKS {
        let wanted = source.read(pg.0, layer.0, chunk.0, block, 1).unwrap();
        if target.read(pg.0, layer.0, chunk.0, block, 1).is_ok_and(|have| have == wanted) {
            continue;
        }
        let body = if azekura_base::is_zero(&wanted) { Body::Zero } else { held(&wanted) };
        let range = azekura_base::BlockRange { layer, chunk, first: BlockIndex(block), count: 1 };
        target.store.append(2, Repair { pg, sequence, range, body });
        target.settle();
        sent += 1;
    }
    target.store.append(3, Mark { pg, sequence, layer, chunk });
    target.settle();
    sent
}

/// What a history has come to.
struct Outcome {
    rebuilt: u64,
    sent: u64,
}

fn check_history(options: &Options, actions: &[Action], warm: u64) -> Outcome {
    let (mut world, mut crashes) = (World::new(options.clone()), 0);
    if warm > 0 {
        world.warm(warm);
    }
    for action in actions {
        // A group whose end is over is on no other copy's side here. What is lost has no contents to compare.
        if !matches!(action, Action::Forget { .. } | Action::Lose { .. }) {
            world.act(action);
        }
        // A group goes on in a new epoch when a primary has started anew, and what it had committed stays so, whatever
        // this copy has forgotten of that.
        if matches!(action, Action::Crash { .. }) {
            crashes += 1;
            for pg in 0..GROUPS {
                let end = world.store().group(PgId(pg)).prepared_end;
                world.start_epoch(pg, crashes * 10_000, end.0);
                world.look();
            }
        }
    }
    world.settle();
    let living: BTreeSet<u64> = world.layers.iter().chain(&world.clones).copied().collect();
    let (tree, newest) = (world.tree.clone(), world.next_layer - 1);
    let merging: Vec<(u64, u64)> = world.merging.iter().map(|(layer, into, _)| (*layer, *into)).collect();
    let rig = world.rig();
    save_all(rig);
    let living_layers: Vec<u64> = living.iter().copied().collect();
    let mut layers = known(&living_layers, &tree, newest);
    layers.merging = merging.iter().map(|(layer, into)| (LayerId(*layer), LayerId(*into))).collect();
    let settings = settings(layers, options);
    let (map, report) = rebuild(&rig.disk, &settings).unwrap();
    check_blocks(&rig.disk, &map);
    // With hardly any memory it comes to the same.
    let parts = RebuildSettings { memory_bytes: 1, ..settings.clone() };
    assert_eq!(rebuild(&rig.disk, &parts).unwrap().1, report);
    let mut copy = open(options, rig.disk.clone(), map.clone(), &tree);
    copy.check_accounts();
    check_leaves(rig, &mut copy, &map, (&living, &merging[..]));
    let sent = compare_merging(rig, &mut copy, &living, &merging);
    let same = |source: &mut Rig, copy: &mut Rig| {
        for layer in &living {
            for chunk in 0..CHUNKS {
                let pg = group_of(chunk);
                let wanted = source.read(pg, *layer, chunk, 0, BLOCKS).unwrap();
                let have = copy.read(pg, *layer, chunk, 0, BLOCKS).unwrap();
                if wanted != have {
                    let key = LeafKey { layer: LayerId(*layer), chunk: ChunkIndex(chunk), pg: PgId(pg) };
                    tell_records(&source.disk, &key);
                    println!("{:?}", source.map.leaves().map(|(key, _)| key).collect::<Vec<_>>());
                }
                assert!(wanted == have, "layer {layer} chunk {chunk} differs");
            }
        }
    };
    same(rig, &mut copy);
    copy.settle_map();
    copy.check_accounts();
    let (disk, map) = copy.crash(|_, _| false);
    let mut copy = open(options, disk, map, &tree);
    same(rig, &mut copy);
    assert!((0..GROUPS).all(|pg| !copy.store.group(PgId(pg)).unproven));
    Outcome { rebuilt: report.live_blocks, sent }
}

/// The safety of it: a leaf that is not compared shows what the complete copy shows.
fn check_leaves(
    source: &mut Rig,
    copy: &mut Rig,
    map: &InMemoryMap,
    (living, merging): (&BTreeSet<u64>, &[(u64, u64)]),
) {
    let saved = compared(source, merging);
    let rebuilt: Vec<(LeafKey, LeafImage)> = map.leaves().map(|(key, leaf)| (key, leaf.clone())).collect();
    for (key, _) in rebuilt.iter().filter(|(key, _)| !saved.contains(key)) {
        assert!(living.contains(&key.layer.0), "{key:?} is of a layer that is not there any more");
        let (pg, layer, chunk) = (key.pg.0, key.layer.0, key.chunk.0);
        let wanted = source.read(pg, layer, chunk, 0, BLOCKS).unwrap();
        let have = copy.read(pg, layer, chunk, 0, BLOCKS).unwrap();
        if wanted != have {
            tell_records(&source.disk, key);
        }
        assert!(wanted == have, "{key:?} has come back, and nobody compares it");
    }
}

fn histories(options: &Options, cases: u32, warm: u64, least_saved: u64) {
    let (rebuilt, sent) = (Cell::new(0), Cell::new(0));
    let mut runner = proptest::test_runner::TestRunner::new(config(cases));
    let result = runner.run(&prop::collection::vec(action(), 200..700), |actions| {
        let outcome = check_history(options, &actions, warm);
        rebuilt.set(rebuilt.get() + outcome.rebuilt);
        sent.set(sent.get() + outcome.sent);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}\n{runner}"));
    let (rebuilt, sent) = (rebuilt.get(), sent.get());
    println!("{rebuilt} blocks were found in the logs, {sent} had to be sent all the same");
    assert!(rebuilt >= sent * least_saved, "{sent} blocks were sent, of {rebuilt}");
}

#[test]
fn any_history_is_rebuilt_and_brought_level() {
    histories(&tiny(), 60, 0, 1);
}

#[test]
fn any_history_of_a_device_that_cleans_is_rebuilt_and_brought_level() {
    histories(&small(), 40, 0, 1);
}

#[test]
fn any_history_of_a_device_that_moves_blocks_apart_is_rebuilt_and_brought_level() {
    histories(&roomy(), 30, 600, 1);
}

/// A device whose log has not gone round yet: nothing is missing.
fn wide() -> Options {
    Options { segments: 96, ..tiny() }
}

#[test]
fn of_a_log_that_is_whole_nothing_has_to_be_sent_but_its_end() {
    let mut rig = Rig::format(&wide());
    for round in 0..40u64 {
        let chunk = (round % 6) as u32;
        rig.write(group_of(chunk), 1, chunk, (round % 16) as u16, filled(round + 1, 2), 2);
    }
    rig.write(0, 1, 0, 4, Body::Zero, 3);
    // The group's next write says that this one was committed.
    for chunk in 0..3 {
        rig.write(group_of(chunk), 1, chunk, 30, filled(99, 1), 1);
    }
    // The segment that is open has no summary: fill it.
    for round in 0..64u64 {
        rig.write(0, 1, 0, 20, filled(1000 + round, 8), 8);
    }
    save_all(&mut rig);
    let none = BTreeMap::new();
    let settings = settings(known(&[1], &none, 1), &wide());
    let (map, report) = rebuild(&rig.disk, &settings).unwrap();
    assert_eq!((report.ambiguous_blocks, report.segments_given_up), (0, 0));
    let mut copy = open(&wide(), rig.disk.clone(), map, &none);
    let sent = compare(&mut rig, &mut copy, &BTreeSet::from([1]));
    // The last write of each group: nothing says that it was committed.
    assert!(sent <= 10, "{sent} blocks were sent");
}

/// The record of a trim is in a segment that was written anew since, and the block that it gave up is not.
#[test]
fn a_block_whose_trim_is_forgotten_comes_back_and_is_taken_away_by_the_comparison() {
    let options = Options { segments: 12, segment_blocks: 64, ..tiny() };
    let mut rig = Rig::format(&options);
    // Both are in one segment, and one of them stays.
    rig.write(0, 1, 0, 0, filled(1, 1), 1);
    rig.write(0, 1, 0, 1, filled(2, 12), 12);
    rig.write(0, 1, 3, 0, filled(3, 1), 1);
    for round in 0..12u64 {
        rig.write(1, 1, 1, 0, filled(10 + round, 8), 8);
    }
    rig.write(0, 1, 0, 0, Body::Zero, 1);
    for round in 0..160u64 {
        rig.write(1, 1, 1, 0, filled(100 + round, 8), 8);
        if round % 16 == 0 {
            rig.checkpoint();
        }
    }
    save_all(&mut rig);
    let none = BTreeMap::new();
    let settings = settings(known(&[1], &none, 1), &options);
    let (map, _) = rebuild(&rig.disk, &settings).unwrap();
    let mut copy = open(&options, rig.disk.clone(), map, &none);
    assert_eq!(rig.read(0, 1, 0, 0, 1).unwrap(), vec![0; BLOCK_SIZE]);
    assert_eq!(copy.read(0, 1, 0, 0, 1).unwrap(), bytes_of(&filled(1, 1), 1), "the log does not know better");
    assert!(copy.store.group(PgId(0)).unproven, "and does not say that it does");
    compare(&mut rig, &mut copy, &BTreeSet::from([1]));
    assert_eq!(copy.read(0, 1, 0, 0, 1).unwrap(), vec![0; BLOCK_SIZE]);
}

#[test]
fn layers_that_are_not_there_any_more_are_left_out_and_younger_ones_are_not() {
    let options = wide();
    let mut rig = Rig::format(&options);
    for layer in [4, 5, 9] {
        rig.write(0, layer, 0, 0, filled(layer, 4), 4);
        rig.write(0, layer, 0, 10, filled(layer, 4), 4);
    }
    rig.write(0, 4, 3, 0, filled(7, 8), 8);
    fill_segment(&mut rig);
    save_all(&mut rig);
    let settings = settings(known(&[4], &BTreeMap::new(), 6), &options);
    let (map, _) = rebuild(&rig.disk, &settings).unwrap();
    let layers: BTreeSet<u64> = map.leaves().map(|(key, _)| key.layer.0).collect();
    assert_eq!(layers, BTreeSet::from([4, 9]), "layer 5 is gone, and 9 is younger than what is known");
}

#[test]
fn a_copy_that_the_configuration_does_not_have_here_is_unproven_and_has_no_blocks() {
    let options = wide();
    let mut rig = Rig::format(&options);
    rig.write(0, 4, 0, 0, filled(1, 4), 4);
    rig.write(1, 4, 1, 0, filled(2, 4), 4);
    rig.write(1, 4, 1, 8, filled(3, 4), 4);
    fill_segment(&mut rig);
    save_all(&mut rig);
    let all = settings(known(&[4], &BTreeMap::new(), 4), &options);
    let some = RebuildSettings { groups: all.groups.iter().copied().filter(|pg| *pg != PgId(1)).collect(), ..all };
    let (map, _) = rebuild(&rig.disk, &some).unwrap();
    assert!(map.leaves().all(|(key, _)| key.pg != PgId(1)));
    let copy = open(&options, rig.disk.clone(), map, &BTreeMap::new());
    copy.check_accounts();
    assert!(copy.store.group(PgId(1)).unproven, "it must not pass for a copy that is empty and has everything");
}

/// What was written until now is in segments that have summaries.
fn fill_segment(rig: &mut Rig) {
    for round in 0..40u64 {
        rig.write(2, 4, 2, 0, filled(5000 + round, 8), 8);
    }
}

#[test]
fn an_accepted_copy_has_all_that_was_durable() {
    let options = wide();
    let mut rig = Rig::format(&options);
    rig.write(0, 1, 0, 0, filled(1, 4), 4);
    rig.write(0, 1, 0, 2, filled(2, 1), 1);
    rig.write(0, 1, 0, 0, Body::Zero, 1);
    // Durable, and nothing says that it was committed: a copy that is alone has acknowledged it.
    let last = rig.next_write(0, 1, 0, 8, filled(3, 1), 1);
    let sequence = last.header.sequence;
    rig.store.append(1, last);
    rig.settle();
    let settings = settings(known(&[1], &BTreeMap::new(), 1), &options);
    let accepted = RebuildSettings { accepted: BTreeSet::from([PgId(0)]), ..settings };
    let (map, report) = rebuild(&rig.disk, &accepted).unwrap();
    assert_eq!(report.accepted, [PgId(0)]);
    let mut copy = open(&options, rig.disk.clone(), map, &BTreeMap::new());
    let group = copy.store.group(PgId(0));
    assert_eq!((group.committed, group.unproven, group.complete), (sequence, false, Sequence::ZERO));
    rig.store.commit(PgId(0), sequence);
    rig.settle();
    assert_eq!(copy.read(0, 1, 0, 0, 16).unwrap(), rig.read(0, 1, 0, 0, 16).unwrap());
    assert!(copy.store.replayed_requests(PgId(0)).count() == 4, "a gateway may ask for one of them again");
    // It goes on from there.
    copy.write(0, 1, 0, 9, filled(4, 1), 1);
    copy.check_accounts();
}

#[test]
fn what_is_missing_or_foreign_is_said() {
    let options = wide();
    let rig = Rig::format(&options);
    let settings = settings(known(&[1], &BTreeMap::new(), 1), &options);
    // Nothing was written yet: the map is that of a new device, with groups that have to be compared.
    let (map, report) = rebuild(&rig.disk, &settings).unwrap();
    assert_eq!((report.segments_with_log, report.leaves, report.groups), (0, 0, u64::from(GROUPS)));
    let root = map.root().unwrap().unwrap().root;
    assert_eq!((root.position.generation, root.position.sequence), (1, 1));
    assert!(root.groups.iter().all(|group| group.unproven));
    let blank = Disk::new(options.device_bytes());
    assert_eq!(rebuild(&blank, &settings).unwrap_err(), OpenError::NotFormatted);
}

/// A bit of a header or an entry, anywhere on the device.
fn flip(disk: &mut Disk, places: &[(prop::sample::Index, u8)]) {
    let headers: Vec<usize> = (0..disk.image.len() / BLOCK_SIZE)
        .filter(|block| {
            let bytes = &disk.image[block * BLOCK_SIZE..];
            bytes.starts_with(b"AZKBATCH") || bytes[BLOCK_SIZE - 16..].starts_with(b"AZKSUMRY")
        })
        .collect();
    for (index, value) in places {
        let block = headers[index.index(headers.len())];
        let at = block * BLOCK_SIZE + index.index(BLOCK_SIZE / 8);
        disk.image[at] ^= value | 1;
    }
}

proptest! {
    #![proptest_config(config(60))]

    /// Whatever is on the device, there is a map or an error, and the map can be opened.
    #[test]
    fn a_damaged_log_gives_a_map_without_what_was_damaged(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        unreadable in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let options = Options { segments: 12, ..tiny() };
        let mut rig = Rig::format(&options);
        for round in 0..300u64 {
            let chunk = (round % 5) as u32;
            let count = 1 + (round % 7) as u16;
            rig.write(group_of(chunk), 1, chunk, (round % 23) as u16, filled(round, count), count);
        }
        let mut disk = rig.disk.clone();
        flip(&mut disk, &places);
        // Not the superblock.
        disk.unreadable.extend(unreadable.iter().map(|index| 256 + index.index(12 * 64)));
        let settings = settings(known(&[1], &BTreeMap::new(), 1), &options);
        let (map, _) = rebuild(&disk, &settings).unwrap();
        disk.unreadable.clear();
        check_blocks(&disk, &map);
        let copy = open(&options, disk, map, &BTreeMap::new());
        copy.check_accounts();
        let keys: Vec<ChunkIndex> = copy.map.leaves().map(|(key, _)| key.chunk).collect();
        prop_assert!(keys.iter().all(|chunk| chunk.0 < 5));
    }
}

/// What the log says of the chunk, for whoever has to find out why a test fails.
fn tell_records(disk: &Disk, key: &LeafKey) {
    let disk = Disk { unreadable: BTreeSet::new(), ..disk.clone() };
    let log = azekura_store::Inspector::open(&disk).unwrap();
    for segment in log.segments().map(Result::unwrap) {
        for batch in &segment.batches {
            let of_chunk = |record: &&azekura_store::RecordInfo| {
                record.pg == key.pg.0 && (record.chunk == key.chunk.0 || record.kind == "epoch")
                    || record.kind.ends_with("-layer")
            };
            for record in batch.records.iter().filter(of_chunk) {
                println!(
                    "{} {:?} {} i{} {record:?}",
                    segment.segment, segment.generation, batch.sequence, batch.incarnation
                );
            }
        }
    }
}
