//! One behaviour after the other, without crashes in bad moments.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{BlockRange, Body, ChunkIndex, LayerId, PgId, RequestId, Run, SessionId};
use azekura_store::{Completion, ReadError, Repair};

#[test]
fn what_is_committed_is_read_and_survives_a_restart() {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, 0, 5, filled(1, 3), 3);
    rig.write(1, 10, 0, 6, filled(2, 1), 1);
    rig.write(2, 11, 3, 0, filled(3, 1), 1);
    let expected = rig.read(1, 10, 0, 0, 16).unwrap();
    assert_eq!(expected[5 * 4096..6 * 4096], bytes_of(&filled(1, 3), 3)[..4096]);
    assert_eq!(expected[6 * 4096..7 * 4096], bytes_of(&filled(2, 1), 1)[..]);
    assert_eq!(expected[7 * 4096..8 * 4096], bytes_of(&filled(1, 3), 3)[8192..]);
    rig.check_accounts();
    let (disk, map) = rig.crash(|_, _| false);
    let mut rig = Rig::open(&tiny(), disk, map).unwrap();
    // The last write of each group is durable, but the log does not say that it was committed.
    assert_eq!(rig.store.group(PgId(1)).committed, sequence(1));
    assert_eq!(rig.store.prepared(PgId(1)).count(), 1);
    rig.store.commit(PgId(1), sequence(2));
    rig.store.commit(PgId(2), sequence(1));
    assert_eq!(rig.read(1, 10, 0, 0, 16).unwrap(), expected);
    assert_eq!(rig.read(2, 11, 3, 0, 1).unwrap(), bytes_of(&filled(3, 1), 1));
    rig.check_accounts();
}

#[test]
fn a_commit_that_a_checkpoint_saved_is_known_after_a_restart() {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, 0, 5, filled(1, 3), 3);
    rig.checkpoint();
    let (disk, map) = rig.crash(|_, _| false);
    let rig = Rig::open(&tiny(), disk, map).unwrap();
    assert_eq!(rig.store.group(PgId(1)).committed, sequence(1));
    assert_eq!(rig.store.prepared(PgId(1)).count(), 0);
}

#[test]
fn a_prepared_write_is_not_read_until_committed() {
    let mut rig = Rig::format(&tiny());
    let write = rig.next_write(1, 10, 0, 0, filled(1, 1), 1);
    rig.store.append(5, write);
    assert_eq!(rig.store.prepared(PgId(1)).next().map(|p| p.durable), Some(false));
    rig.settle();
    assert!(matches!(rig.done[..], [Completion::Durable { token: 5 }]));
    rig.done.clear();
    assert_eq!(rig.store.prepared(PgId(1)).next().map(|p| p.durable), Some(true));
    assert_eq!(rig.read(1, 10, 0, 0, 1).unwrap(), vec![0; 4096]);
    rig.store.read_prepared(6, PgId(1), sequence(1));
    rig.settle();
    match rig.done.pop() {
        Some(Completion::Prepared { token: 6, result }) => assert_eq!(result, Ok(filled(1, 1))),
        other => panic!("{other:?}"),
    }
    rig.store.commit(PgId(1), sequence(1));
    assert_eq!(rig.read(1, 10, 0, 0, 1).unwrap(), bytes_of(&filled(1, 1), 1));
    rig.store.read_prepared(6, PgId(1), sequence(1));
    assert!(matches!(
        rig.store.next_completion(),
        Some(Completion::Prepared { result: Err(ReadError::NotPrepared), .. })
    ));
}

#[test]
fn a_commit_before_the_write_is_durable_is_seen_by_later_reads() {
    let mut rig = Rig::format(&tiny());
    let write = rig.next_write(1, 10, 0, 0, filled(1, 1), 1);
    rig.store.append(5, write);
    rig.store.commit(PgId(1), sequence(1));
    assert_eq!(rig.read(1, 10, 0, 0, 1).unwrap(), bytes_of(&filled(1, 1), 1));
}

#[test]
fn an_epoch_drops_the_tail_for_good() {
    let mut rig = Rig::format(&tiny());
    rig.store.start_epoch(1, PgId(1), epoch(1), sequence(0));
    for value in 1..=4 {
        let write = rig.next_write(1, 10, 0, value, filled(u64::from(value), 1), 1);
        rig.store.append(1, write);
    }
    rig.settle();
    rig.store.start_epoch(2, PgId(1), epoch(2), sequence(2));
    rig.settle();
    let write = rig.next_write(1, 10, 0, 9, filled(9, 1), 1);
    assert_eq!(write.header.sequence, sequence(3));
    rig.store.append(3, write);
    rig.settle();
    rig.store.commit(PgId(1), sequence(3));
    rig.checkpoint();
    let check = |rig: &mut Rig| {
        assert_eq!(rig.read(1, 10, 0, 1, 1).unwrap(), bytes_of(&filled(1, 1), 1));
        assert_eq!(rig.read(1, 10, 0, 2, 1).unwrap(), bytes_of(&filled(2, 1), 1));
        assert_eq!(rig.read(1, 10, 0, 3, 2).unwrap(), vec![0; 8192]);
        assert_eq!(rig.read(1, 10, 0, 9, 1).unwrap(), bytes_of(&filled(9, 1), 1));
        rig.check_accounts();
    };
    check(&mut rig);
    let (disk, map) = rig.crash(|_, _| false);
    let mut rig = Rig::open(&tiny(), disk, map).unwrap();
    assert_eq!(rig.store.group(PgId(1)).epoch, epoch(2));
    check(&mut rig);
}

#[test]
fn dropped_writes_that_wait_are_never_written() {
    let mut rig = Rig::format(&tiny());
    rig.store.start_epoch(1, PgId(1), epoch(1), sequence(0));
    rig.settle();
    rig.done.clear();
    // As a copy that is brought up to date over and over, and whose device is slow.
    for round in 1..=50 {
        for value in 1..=4 {
            let write = rig.next_write(1, 10, 0, value, filled(u64::from(value), 1), 1);
            rig.store.append(10 * round + u64::from(value), write);
        }
        let other = rig.next_write(2, 11, 1, 0, filled(round, 1), 1);
        rig.store.append(10 * round, other);
        rig.store.start_epoch(10 * round + 5, PgId(1), epoch(1 + round), sequence(1));
        // The first write of the first round is kept, and those of the other group.
        assert_eq!(rig.store.statistics().records_waiting, 1 + 2 * round);
    }
    rig.settle();
    let (dropped, durable): (Vec<_>, Vec<_>) =
        rig.done.drain(..).partition(|done| matches!(done, Completion::Dropped { .. }));
    assert_eq!((dropped.len(), durable.len()), (50 * 4 - 1, 50 * 2 + 1));
    assert_eq!(rig.store.group(PgId(1)).prepared_end, sequence(1));
    rig.check_accounts();
}

#[test]
fn zeros_give_space_back() {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, 0, 0, filled(1, 16), 16);
    assert_eq!(rig.store.space().live, 16 * 4096);
    rig.write(1, 10, 0, 4, Body::Zero, 8);
    assert_eq!(rig.store.space().live, 8 * 4096);
    assert_eq!(rig.read(1, 10, 0, 4, 8).unwrap(), vec![0; 8 * 4096]);
    rig.store.status(7, PgId(1), LayerId(10), ChunkIndex(0));
    let runs: Vec<Run> = match rig.store.next_completion() {
        Some(Completion::Status { token: 7, result }) => result.unwrap(),
        other => panic!("{other:?}"),
    };
    let runs: Vec<_> = runs.iter().map(|r| (r.count, r.is_data())).collect();
    assert_eq!(runs, [(4, true), (8, false), (4, true), (1008, false)]);
    rig.check_accounts();
}

#[test]
fn a_dropped_layer_gives_all_space_back() {
    let mut rig = Rig::format(&tiny());
    for chunk in 0..20 {
        rig.write(1, 10, chunk, 0, filled(1, 4), 4);
        rig.write(1, 11, chunk, 0, filled(2, 1), 1);
    }
    rig.checkpoint();
    rig.store.drop_layer(9, LayerId(10));
    rig.settle();
    assert_eq!(rig.store.space().live, 20 * 4096);
    assert_eq!(rig.read(1, 10, 3, 0, 4).unwrap(), vec![0; 4 * 4096]);
    rig.check_accounts();
    let (disk, map) = rig.crash(|_, _| false);
    let mut rig = Rig::open(&tiny(), disk, map).unwrap();
    assert_eq!(rig.read(1, 10, 3, 0, 4).unwrap(), vec![0; 4 * 4096]);
    rig.check_accounts();
}

#[test]
fn a_child_layer_reads_its_parent_and_accounts_for_its_own_blocks_only() {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, 0, 0, filled(1, 4), 4);
    rig.store.set_parent(LayerId(11), LayerId(10));
    rig.store.set_parent(LayerId(12), LayerId(11));
    assert_eq!(rig.read(1, 12, 0, 0, 4).unwrap(), bytes_of(&filled(1, 4), 4));
    rig.write(1, 12, 0, 1, filled(2, 1), 1);
    rig.write(1, 12, 0, 3, Body::Zero, 1);
    assert_eq!(rig.store.space().live, 5 * 4096);
    let own = rig.read(1, 12, 0, 0, 4).unwrap();
    assert_eq!(own[..4096], bytes_of(&filled(1, 4), 4)[..4096]);
    assert_eq!(own[4096..8192], bytes_of(&filled(2, 1), 1)[..]);
    assert_eq!(own[12288..], [0; 4096]);
    assert_eq!(rig.read(1, 11, 0, 0, 4).unwrap(), bytes_of(&filled(1, 4), 4));
    rig.check_accounts();
}

#[test]
fn a_copy_is_visible_once_durable_and_in_order() {
    let mut rig = Rig::format(&tiny());
    rig.store.start_epoch(1, PgId(1), epoch(3), sequence(50));
    assert_eq!(rig.store.group(PgId(1)).prepared_end, sequence(50));
    let copy = |body: Body, count: u16| Repair {
        pg: PgId(1),
        sequence: sequence(50),
        range: BlockRange { layer: LayerId(10), chunk: ChunkIndex(0), first: azekura_base::BlockIndex(2), count },
        body,
    };
    rig.store.append(2, copy(filled(5, 4), 4));
    let write = rig.next_write(1, 10, 0, 3, filled(6, 1), 1);
    rig.store.append(3, write);
    rig.settle();
    rig.store.commit(PgId(1), sequence(51));
    let check = |rig: &mut Rig| {
        let got = rig.read(1, 10, 0, 2, 4).unwrap();
        assert_eq!(got[..4096], bytes_of(&filled(5, 4), 4)[..4096]);
        assert_eq!(got[4096..8192], bytes_of(&filled(6, 1), 1)[..]);
        rig.check_accounts();
    };
    check(&mut rig);
    let (disk, map) = rig.crash(|_, _| false);
    let mut rig = Rig::open(&tiny(), disk, map).unwrap();
    assert_eq!(rig.store.group(PgId(1)).committed, sequence(50));
    rig.store.commit(PgId(1), sequence(51));
    check(&mut rig);
}

#[test]
fn notes_are_kept() {
    let mut rig = Rig::format(&tiny());
    rig.store.set_note(1, PgId(1), bytes::Bytes::from_static(b"first"));
    rig.settle();
    rig.store.begin_checkpoint(|_| Some(bytes::Bytes::from_static(b"second")));
    rig.settle();
    let (disk, map) = rig.crash(|_, _| false);
    let mut rig = Rig::open(&tiny(), disk, map).unwrap();
    assert_eq!(rig.store.note(PgId(1)), "second");
    rig.store.set_note(1, PgId(1), bytes::Bytes::from_static(b"third"));
    rig.settle();
    let (disk, map) = rig.crash(|_, _| false);
    let rig = Rig::open(&tiny(), disk, map).unwrap();
    assert_eq!(rig.store.note(PgId(1)), "third");
}

#[test]
fn a_flipped_bit_is_never_read_as_data() {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, 0, 0, filled(1, 4), 4);
    let want = bytes_of(&filled(1, 4), 4);
    let at = rig.disk.image.windows(4096).step_by(4096).position(|w| w == &want[8192..12288]).unwrap();
    rig.disk.image[at * 4096 + 17] ^= 1;
    match rig.read(1, 10, 0, 0, 4) {
        Err(ReadError::Checksum { block }) => assert_eq!(block.0, 2),
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.store.statistics().checksum_errors, 1);
    assert_eq!(rig.read(1, 10, 0, 0, 2).unwrap(), want[..8192]);
}

#[test]
fn modified_chunks_are_listed_from_memory_and_from_the_saved_map() {
    let mut rig = Rig::format(&tiny());
    for chunk in 0..30 {
        rig.write(1, 10, chunk, 0, filled(1, 1), 1);
    }
    rig.checkpoint();
    rig.write(1, 10, 4, 0, filled(1, 1), 1);
    rig.store.modified_since(3, PgId(1), sequence(28));
    rig.settle();
    match rig.done.pop() {
        Some(Completion::Modified { token: 3, result }) => {
            let listed: Vec<_> = result.unwrap().iter().map(|(_, chunk, modified)| (chunk.0, modified.0)).collect();
            assert_eq!(listed, [(4, 31), (28, 29), (29, 30)]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_of_many_segments_is_replayed_from_summaries() {
    let mut rig = Rig::format(&tiny());
    for round in 0..80 {
        rig.write(1, 10, 0, (round % 10) as u16, filled(round, 5), 5);
    }
    let expected = rig.read(1, 10, 0, 0, 20).unwrap();
    assert!(rig.store.statistics().log_bytes > 4 * 64 * 4096);
    let (disk, map) = rig.crash(|_, _| false);
    let mut rig = Rig::open(&tiny(), disk, map).unwrap();
    rig.store.commit(PgId(1), sequence(80));
    assert_eq!(rig.read(1, 10, 0, 0, 20).unwrap(), expected);
    rig.check_accounts();
}

#[test]
fn requests_committed_by_replay_are_named_until_a_note_is_given() {
    let mut rig = Rig::format(&tiny());
    (0..20).for_each(|n| rig.write(1, 10, 0, n * 4, filled(1, 4), 4));
    let mut want = Vec::new();
    // Nobody gives a note: each process ends before its group is there.
    for opening in 0..4 {
        let (disk, map) = rig.crash(|_, _| false);
        rig = Rig::open(&tiny(), disk, map).unwrap();
        let committed = rig.store.group(PgId(1)).committed;
        let names: Vec<_> = rig.store.replayed_requests(PgId(1)).collect();
        if opening == 0 {
            assert!(committed >= sequence(19), "committed up to {committed}");
            want = (0..committed.0).map(|n| (SessionId(1), RequestId(n))).collect();
        }
        assert_eq!(names, want, "after opening {opening}");
        rig.checkpoint();
        assert_eq!(rig.store.statistics().replay_bytes, 64 * 4096, "replay begins behind most of the writes");
    }
    rig.store.begin_checkpoint(|_| Some(bytes::Bytes::from_static(b"names them")));
    rig.settle();
    let (disk, map) = rig.crash(|_, _| false);
    let rig = Rig::open(&tiny(), disk, map).unwrap();
    let found_again: Vec<_> = rig.store.replayed_requests(PgId(1)).collect();
    assert!(found_again.len() < 16 && want.ends_with(&found_again), "{found_again:?}");
}
