//! Damaged blocks: written anew from a good copy, or reported.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::Action;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Copies with blocks 1 to 9 written, of which the second is away and lacks block `lacks`.
fn one_away(copies: u32, lacks: u16) -> Cluster {
    let mut cluster = Cluster::new(copies);
    (1..=9).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    cluster.isolate(1);
    cluster.write(blocks(10, lacks, 1)).unwrap();
    cluster.pass(3 * SECOND);
    cluster
}

#[test]
fn damaged_blocks_are_written_anew_from_a_good_copy() {
    let mut cluster = Cluster::new(2);
    (1..=9).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    cluster.beat();
    cluster.damaged = [(device(0), 3), (device(1), 5)].into();
    cluster.group(0).found_damaged(LAYER, ChunkIndex(0), BlockIndex(3));
    cluster.run(device(0));
    cluster.group(1).found_damaged(LAYER, ChunkIndex(0), BlockIndex(5));
    cluster.run(device(1));
    cluster.settle();
    assert!(cluster.damaged.is_empty(), "{:?}", cluster.damaged);
    assert_eq!(cluster.mended, [(device(0), BlockIndex(3)), (device(1), BlockIndex(5))].into());
    assert_eq!(cluster.mended_for_readers, cluster.mended, "no scrub tells of them");
    assert_eq!(cluster.map(0), cluster.map(1));
    assert_eq!((cluster.map(0)[&(ChunkIndex(0), 3)], cluster.map(1)[&(ChunkIndex(0), 5)]), (3, 5));
}

#[test]
fn a_block_that_nobody_can_give_keeps_no_copy_out() {
    for needed in [false, true] {
        let mut cluster = one_away(2, if needed { 3 } else { 20 });
        assert_eq!(cluster.config.in_sync, [device(0)].into());
        // The blocks before and behind it have changed, too.
        [(11, 2), (12, 4), (13, 0)].into_iter().for_each(|(n, at)| cluster.write(blocks(n, at, 1)).unwrap());
        cluster.settle();
        cluster.damaged = [(device(0), 3)].into();
        let read = cluster.blocks_read;
        cluster.heal();
        cluster.pass(4 * SECOND);
        assert_eq!(cluster.map(1)[&(ChunkIndex(0), 2)], 11, "the rest is there");
        assert_eq!(cluster.config.in_sync.len(), 2);
        assert_eq!(cluster.damaged.contains(&(device(1), 3)), needed, "it does not pass off what it had before");
        assert!(cluster.blocks_read - read < 3 * CHUNK_BLOCKS as u64, "it is not read again and again");
        // Whoever writes the block mends it.
        cluster.write(blocks(14, 3, 1)).unwrap();
        cluster.damaged.clear();
        cluster.pass(8 * SECOND);
        assert_eq!(cluster.config.in_sync.len(), 2);
        assert_eq!(cluster.map(0), cluster.map(1));
    }
}

#[test]
fn who_misses_a_block_takes_it_from_who_has_it_and_not_the_other_way_round() {
    let mut cluster = one_away(2, 3);
    cluster.damaged = [(device(0), 3)].into();
    cluster.heal();
    cluster.pass(8 * SECOND);
    assert!(cluster.config.in_sync.len() == 2 && cluster.damaged.contains(&(device(1), 3)));
    // The other one reigns now; and what could not be read for a while was not bad.
    cluster.isolate(0);
    for _ in 0..60 {
        cluster.tick_all(SECOND / 10);
        while cluster.decide_without(device(0)) {}
    }
    cluster.write(blocks(11, 4, 1)).unwrap();
    cluster.damaged.remove(&(device(0), 3));
    cluster.heal();
    cluster.pass(12 * SECOND);
    assert_eq!((cluster.primary(), cluster.config.in_sync.len()), (1, 2));
    assert_eq!(cluster.map(0)[&(ChunkIndex(0), 3)], 10, "it is not lost because another has lost it");
    cluster.group(1).found_damaged(LAYER, ChunkIndex(0), BlockIndex(3));
    cluster.run(device(1));
    cluster.pass(2 * SECOND);
    assert!(cluster.damaged.is_empty(), "it was mended");
    assert_eq!(cluster.map(0), cluster.map(1));
}

#[test]
fn a_block_that_a_device_refuses_for_a_while_is_not_lost() {
    let mut cluster = one_away(2, 3);
    cluster.refused = [(device(0), 3)].into();
    cluster.heal();
    cluster.pass(30 * SECOND);
    assert_eq!(cluster.config.in_sync, [device(0)].into(), "the device may give it later");
    assert!(cluster.damaged.is_empty(), "nothing was called lost");
    cluster.refused.clear();
    cluster.pass(10 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2);
    assert_eq!(cluster.map(0), cluster.map(1));
}

#[test]
fn a_block_that_a_device_refuses_for_good_is_taken_from_another_copy_or_lost() {
    for copies in [2, 3] {
        let mut cluster = one_away(copies, 3);
        cluster.refused = [(device(0), 3)].into();
        cluster.heal();
        cluster.pass(590 * SECOND);
        assert!(!cluster.config.in_sync.contains(&device(1)));
        cluster.pass(30 * SECOND);
        assert_eq!(cluster.config.in_sync.len(), copies as usize);
        if copies == 2 {
            assert_eq!(cluster.damaged, [(device(1), 3)].into(), "it is lost");
        } else {
            assert!(cluster.damaged.is_empty() && cluster.refused.is_empty(), "the third copy had it");
            assert_eq!(cluster.map(0), cluster.map(1));
        }
    }
}

#[test]
fn a_block_without_a_good_copy_is_reported_and_holds_nothing_up() {
    let mut cluster = Cluster::new(2);
    (1..=9).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    cluster.beat();
    cluster.damaged = [(device(0), 3), (device(1), 3)].into();
    cluster.group(0).found_damaged(LAYER, ChunkIndex(0), BlockIndex(3));
    cluster.run(device(0));
    cluster.pass(SECOND);
    let unrepairable = |reported: &Action| {
        matches!(reported, Action::NoGoodCopy { range: BlockRange { first: BlockIndex(3), .. }, .. })
    };
    assert!(cluster.reported.iter().any(unrepairable), "{:?}", cluster.reported);
    cluster.write(blocks(10, 3, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(10)], Ok(()));
}

#[test]
fn a_copy_comes_back_although_a_block_of_its_source_is_damaged() {
    let mut cluster = Cluster::new(3);
    (1..=9).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    cluster.beat();
    cluster.isolate(2);
    cluster.write(blocks(10, 10, 1)).unwrap();
    cluster.pass(2 * SECOND);
    (11..=20).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    cluster.damaged = [(device(cluster.primary()), 12)].into();
    cluster.heal();
    cluster.pass(3 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 3);
    assert!(cluster.damaged.is_empty());
    assert_eq!(cluster.map(2), cluster.map(0));
}

#[test]
fn no_write_waits_for_the_mending_of_a_block_by_a_copy_that_is_gone() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 3, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    cluster.group(0).found_damaged(LAYER, ChunkIndex(0), BlockIndex(3));
    cluster.run(device(0));
    cluster.write(blocks(2, 3, 1)).unwrap();
    assert_eq!(cluster.order(0), [1].map(RequestId), "the block is being asked for");
    // It hears nothing and says nothing, and its connection stays: it is left behind.
    let now = cluster.now;
    for step in 1..=60 {
        cluster.group(0).tick(now + step * Duration::from_millis(50));
        cluster.run(device(0));
        cluster.persist(device(0));
        cluster.decide();
    }
    assert_eq!(cluster.order(0), [1, 2].map(RequestId), "it is not waited for");
}

#[test]
fn a_chunk_of_which_a_copy_knows_nothing_is_written_anew_around_what_is_damaged_elsewhere() {
    for broken in [0, 1] {
        let mut cluster = Cluster::new(2);
        (1..=99).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
        cluster.settle();
        cluster.beat();
        cluster.damaged = (1..=99).map(|n| (device(broken), n)).collect();
        cluster.damaged.insert((device(1 - broken), 40));
        cluster.group(broken).found_unknown(BlockRange::chunk(LAYER, ChunkIndex(0)));
        cluster.run(device(broken));
        cluster.pass(20 * SECOND);
        assert_eq!(cluster.damaged, [(device(0), 40), (device(1), 40)].into());
        assert_eq!(cluster.map(0), cluster.map(1));
    }
}

/// A block of which the only copy in sync knows nothing may be there as it should be on a copy that comes back, and
/// nobody can tell: that copy does not give it up. A new copy has nothing to give up.
#[test]
fn a_block_that_nobody_knows_is_lost_for_a_new_copy_alone() {
    let mut cluster = one_away(2, 4);
    cluster.know_nothing(0, 3);
    cluster.heal();
    cluster.pass(40 * SECOND);
    assert_eq!(cluster.config.in_sync, [device(0)].into());
    assert_eq!(cluster.damaged, [(device(0), 3)].into(), "what it had is still there");
    assert_eq!(cluster.map(1)[&(ChunkIndex(0), 4)], 10, "the rest came");
    // Whoever writes the block ends that.
    cluster.write(blocks(11, 3, 1)).unwrap();
    cluster.damaged.clear();
    cluster.pass(10 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2);
    assert_eq!(cluster.map(0), cluster.map(1));

    let mut cluster = one_away(2, 4);
    cluster.know_nothing(0, 3);
    cluster.config.version += 1;
    cluster.config.members.insert(device(2));
    let config = cluster.config.clone();
    (0..2).for_each(|n| cluster.group(n).configure(config.clone()));
    cluster.add(device(2));
    cluster.connect(device(0), device(2));
    cluster.connect(device(2), device(0));
    cluster.pass(40 * SECOND);
    assert_eq!(cluster.config.in_sync, [device(0), device(2)].into());
    assert!(cluster.damaged.contains(&(device(2), 3)));
}

#[test]
fn a_heartbeat_that_overtakes_a_repair_does_no_harm() {
    let mut cluster = Cluster::new(2);
    (1..=9).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    cluster.beat();
    cluster.damaged = [(device(1), 5)].into();
    // Writes to other blocks are durable on both copies, and the primary has not heard so.
    (10..=12).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    while cluster.persist(device(0)) || cluster.deliver(device(0), device(1)) || cluster.persist(device(1)) {}
    cluster.group(1).found_damaged(LAYER, ChunkIndex(0), BlockIndex(5));
    let damaged = azekura_wire::Damaged {
        pg: PG,
        device: device(1),
        epoch: cluster.group(1).epoch(),
        range: BlockRange::block(LAYER, ChunkIndex(0), BlockIndex(5)),
    };
    cluster.group(0).damaged(device(1), damaged);
    cluster.run(device(0));
    while cluster.load(device(0)) {}
    // The repair is on its way with what was committed before them; then they are committed, and heartbeats say so.
    while cluster.deliver_answer(device(0), device(1)) {}
    assert_eq!((cluster.committed(0), cluster.committed(1)), (12, 9));
    cluster.beat();
    assert_eq!(cluster.committed(1), 12);
    cluster.settle();
    assert!(cluster.damaged.is_empty());
    assert_eq!(cluster.map(0), cluster.map(1));
    cluster.restart(1, usize::MAX);
    cluster.reconnect(1);
    cluster.pass(SECOND);
    assert_eq!(cluster.map(0), cluster.map(1));
}

/// A copy that is brought up to date takes a repair for none, since the layer is going for all that it knows; and goes
/// on acknowledging what is written.
#[test]
fn a_repair_that_a_copy_has_dropped_is_asked_for_again_while_writes_go_on() {
    let mut cluster = one_away(2, 3);
    cluster.gone_repairs = 1;
    cluster.heal();
    for n in 11..=40 {
        cluster.write(blocks(n, 500, 1)).unwrap();
        cluster.pass(SECOND / 2);
    }
    assert_eq!((cluster.gone_repairs, cluster.config.in_sync.len()), (0, 2));
    assert_eq!(cluster.map(0), cluster.map(1));
}

/// The second copy's block 5 is damaged, its primary knows, and the connection breaks at each step from there.
#[test]
fn the_mending_of_another_copys_block_outlives_its_connection() {
    for step in 0..4 {
        let mut cluster = Cluster::new(2);
        (1..=9).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
        cluster.settle();
        cluster.beat();
        cluster.damaged = [(device(1), 5)].into();
        if step == 0 {
            // A write of the block is under way.
            cluster.write(blocks(10, 5, 1)).unwrap();
        }
        cluster.group(1).found_damaged(LAYER, ChunkIndex(0), BlockIndex(5));
        cluster.run(device(1));
        while cluster.deliver_answer(device(0), device(1)) {}
        if step >= 2 {
            while cluster.load(device(0)) {}
        }
        if step >= 3 {
            while cluster.deliver(device(0), device(1)) {}
        }
        cluster.disconnect(device(0), device(1));
        while cluster.load(device(0)) | cluster.persist(device(0)) {}
        cluster.tick_all(SECOND / 10);
        if step >= 3 {
            // Its device had not got it.
            cluster.restart(1, 0);
            cluster.damaged.insert((device(1), 5));
        }
        cluster.reconnect(1);
        cluster.pass(SECOND);
        assert!(cluster.damaged.is_empty(), "{step}");
        assert_eq!(cluster.map(0), cluster.map(1));
        assert_eq!(cluster.mended, [(device(1), BlockIndex(5))].into());
    }
}

/// There is always a write of the block on its way, so it could never be read for the copy.
#[test]
fn a_block_that_is_written_without_a_break_keeps_no_copy_out() {
    let mut cluster = one_away(2, 3);
    cluster.heal();
    cluster.write(blocks(11, 3, 1)).unwrap();
    for n in 12..=150 {
        cluster.write(blocks(n, 3, 1)).unwrap();
        cluster.tick_all(SECOND / 10);
        cluster.beat();
        cluster.persist(device(0));
        while cluster.deliver(device(0), device(1))
            | cluster.persist(device(1))
            | cluster.deliver_answer(device(0), device(1))
            | cluster.load(device(0))
            | cluster.load(device(1))
            | cluster.decide()
        {}
    }
    assert_eq!(cluster.config.in_sync.len(), 2);
    cluster.pass(SECOND);
    assert!((11..=150).all(|n| cluster.answered.get(&RequestId(n)) == Some(&Ok(()))), "nothing is held for long");
    assert_eq!(cluster.map(0), cluster.map(1));
}

/// A block that a device refused once is not one that it has refused ever since.
#[test]
fn a_block_that_a_device_refuses_now_and_then_is_not_lost() {
    let mut cluster = one_away(2, 3);
    for _ in 0..2 {
        cluster.refused = [(device(0), 3)].into();
        cluster.heal();
        cluster.pass(10 * SECOND);
        assert!(cluster.damaged.is_empty(), "nothing was called lost");
        cluster.isolate(1);
        cluster.refused.clear();
        cluster.pass(700 * SECOND);
    }
    cluster.heal();
    cluster.pass(10 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2);
    assert_eq!(cluster.map(0), cluster.map(1));
}
