//! A copy that was away is brought up to date from another one; a group that has moved away leaves nothing.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{BlockIndex, BlockRange, Body, ChunkIndex, LayerId, PgId, Sequence};
use azekura_store::{ChangedChunk, ChunkDigest, Mark, Repair, Report};

const PG: PgId = PgId(1);

fn report(rig: &mut Rig) -> Report {
    rig.settle();
    rig.reports.pop().expect("a report comes")
}

/// All chunks that changed after `after`, in pages of `limit`.
fn changed(rig: &mut Rig, after: u64, limit: usize) -> Vec<ChangedChunk> {
    let (mut chunks, mut from) = (Vec::new(), None);
    loop {
        rig.store.changed_since(7, PG, sequence(after), from, limit);
        let Report::Changed { token: 7, result } = report(rig) else { panic!("not the list") };
        let page = result.unwrap();
        chunks.extend(page.chunks);
        from = page.next;
        if from.is_none() {
            return chunks;
        }
    }
}

fn digest(rig: &mut Rig, layer: LayerId, chunk: ChunkIndex) -> ChunkDigest {
    rig.store.digest(8, PG, layer, chunk);
    match report(rig) {
        Report::Digest { token: 8, result } => result.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn copy(layer: LayerId, chunk: ChunkIndex, first: BlockIndex, count: u16, body: Body, upto: Sequence) -> Repair {
    Repair { pg: PG, sequence: upto, range: BlockRange { layer, chunk, first, count }, body }
}

/// Brings `target` up to date from `source`, and gives how many blocks had to be sent.
fn resync(source: &mut Rig, target: &mut Rig) -> usize {
    let upto = source.store.group(PG).committed;
    let epoch = target.store.group(PG).epoch.next();
    target.store.rejoin(1, PG, epoch, upto);
    let complete = target.store.group(PG).complete;
    let mut sent = 0;
    for ChangedChunk { layer, chunk, modified } in changed(source, complete.0, 3) {
        let (wanted, have) = (digest(source, layer, chunk), digest(target, layer, chunk));
        assert_eq!(wanted.modified, Some(modified));
        for (first, count) in wanted.differing(&have) {
            for block in first.0..first.0 + count {
                let bytes = source.read(PG.0, layer.0, chunk.0, block, 1).unwrap();
                let zero = azekura_base::is_zero(&bytes);
                let body = if zero { Body::Zero } else { held(&bytes) };
                target.store.append(2, copy(layer, chunk, BlockIndex(block), 1, body, upto));
                sent += 1;
            }
        }
        target.store.append(3, Mark { pg: PG, sequence: modified, layer, chunk });
        target.settle();
    }
    target.store.set_complete(4, PG);
    target.settle();
    sent
}

fn contents(rig: &mut Rig, layer: u64) -> Vec<Vec<u8>> {
    (0..8).map(|chunk| rig.read(PG.0, layer, chunk, 0, 24).unwrap()).collect()
}

fn reopen(rig: Rig) -> Rig {
    let (disk, map) = rig.crash(|_, _| false);
    Rig::open_with(&tiny(), disk, map, |store| store.set_parent(LayerId(11), LayerId(10))).unwrap()
}

#[test]
fn only_what_differs_is_sent_and_a_third_copy_can_follow() {
    let mut copies: Vec<Rig> = (0..3).map(|_| Rig::format(&tiny())).collect();
    for copy in &mut copies {
        copy.store.set_parent(LayerId(11), LayerId(10));
        for chunk in 0..6 {
            copy.write(1, 10, chunk, 0, filled(u64::from(chunk) + 1, 8), 8);
        }
    }
    // The first copy goes on alone: overwrites, zeros, a snapshot.
    let first = &mut copies[0];
    first.write(1, 10, 2, 3, filled(50, 2), 2);
    first.write(1, 10, 4, 0, Body::Zero, 8);
    first.write(1, 11, 5, 1, filled(51, 1), 1);
    first.write(1, 11, 7, 9, filled(52, 1), 1);
    first.checkpoint();
    let [first, second, third] = &mut copies[..] else { panic!() };
    assert_eq!(resync(first, second), 2 + 8 + 1 + 1);
    // The second has it all, also after a restart, and is a source for the third.
    let mut second = reopen(std::mem::replace(second, Rig::format(&tiny())));
    assert_eq!(second.store.group(PG).complete, second.store.group(PG).committed);
    assert_eq!(resync(&mut second, third), 12);
    for layer in [10, 11] {
        assert_eq!(contents(&mut second, layer), contents(first, layer));
        assert_eq!(contents(third, layer), contents(first, layer));
    }
    second.check_accounts();
    third.check_accounts();
    // Blocks that the layers share are stored once.
    assert_eq!(third.store.space().live, first.store.space().live);
}

#[test]
fn a_copy_from_scratch_shares_what_layers_share() {
    let mut source = Rig::format(&tiny());
    source.store.set_parent(LayerId(11), LayerId(10));
    source.write(1, 10, 0, 0, filled(1, 12), 12);
    source.write(1, 11, 0, 3, filled(2, 1), 1);
    source.write(1, 11, 0, 4, Body::Zero, 1);
    let mut target = Rig::format(&tiny());
    target.store.set_parent(LayerId(11), LayerId(10));
    assert_eq!(resync(&mut source, &mut target), 12 + 2);
    let mut target = reopen(target);
    for layer in [10, 11] {
        assert_eq!(contents(&mut target, layer), contents(&mut source, layer));
    }
    target.check_accounts();
}

#[test]
fn a_copy_is_incomplete_until_it_is_told_over_restarts() {
    let mut rig = Rig::format(&tiny());
    for value in 1..=4 {
        rig.write(1, 10, 0, 0, filled(value, 1), 1);
    }
    rig.store.rejoin(1, PG, epoch(5), sequence(20));
    rig.settle();
    assert_eq!(rig.store.group(PG).complete, sequence(4));
    let mut rig = reopen(rig);
    assert_eq!((rig.store.group(PG).committed, rig.store.group(PG).complete), (sequence(20), sequence(4)));
    // A second attempt after more has happened.
    rig.store.rejoin(1, PG, epoch(6), sequence(30));
    rig.checkpoint();
    let mut rig = reopen(rig);
    assert_eq!((rig.store.group(PG).committed, rig.store.group(PG).complete), (sequence(30), sequence(4)));
    rig.store.set_complete(2, PG);
    rig.settle();
    let mut rig = reopen(rig);
    assert_eq!(rig.store.group(PG).complete, sequence(30));
    rig.write(1, 10, 0, 0, filled(9, 1), 1);
    assert_eq!(rig.store.group(PG).complete, sequence(31));
}

#[test]
fn a_forgotten_group_gives_all_its_space_back_and_can_come_again() {
    let mut rig = Rig::format(&tiny());
    for chunk in 0..12 {
        rig.write(1, 10, chunk, 0, filled(1, 4), 4);
        rig.write(2, 10, 100 + chunk, 0, filled(2, 1), 1);
    }
    let write = rig.next_write(1, 10, 0, 0, filled(3, 1), 1);
    rig.store.append(1, write);
    rig.store.forget_group(2, PG);
    assert!(rig.store.is_forgetting(PG));
    // It dies in the middle.
    rig.store.pump();
    rig.take_effects();
    while !rig.disk.waiting.is_empty() {
        rig.finish_write(0);
    }
    rig.take_effects();
    let mut rig = reopen(rig);
    rig.settle();
    assert!(rig.reports.contains(&Report::Forgotten { pg: PG }) || !rig.store.is_forgetting(PG));
    rig.store.commit(PgId(2), sequence(12));
    rig.settle();
    assert_eq!(rig.store.space().live, 12 * 4096);
    assert_eq!(rig.store.group(PG).committed, sequence(0));
    assert!(changed(&mut rig, 0, 10).is_empty());
    rig.check_accounts();
    rig.store.rejoin(1, PG, epoch(9), sequence(100));
    rig.store.append(2, copy(LayerId(10), ChunkIndex(0), BlockIndex(5), 1, filled(7, 1), sequence(100)));
    rig.settle();
    let mut rig = reopen(rig);
    assert_eq!(rig.read(1, 10, 0, 0, 5).unwrap(), vec![0; 5 * 4096]);
    assert_eq!(rig.read(1, 10, 0, 5, 1).unwrap(), bytes_of(&filled(7, 1), 1));
}

#[test]
fn a_group_of_which_a_resting_device_has_nothing_is_forgotten() {
    for tick in [0, 1] {
        let mut rig = Rig::format(&tiny());
        rig.store.forget_group(1, PG);
        // Nobody writes; the store is looked at as an event loop does.
        for turn in 0..20 {
            rig.store.tick(std::time::Duration::from_millis(turn * 100 * tick));
            rig.store.pump();
            if rig.store.checkpoint_due() {
                rig.store.begin_checkpoint(|_| None);
            }
            rig.take_effects();
            while !rig.disk.waiting.is_empty() {
                rig.finish_write(0);
            }
            while !rig.map_waiting.is_empty() {
                rig.finish_map(0);
            }
            rig.take_effects();
        }
        assert!(rig.reports.contains(&Report::Forgotten { pg: PG }), "{}", rig.store.describe());
    }
}
