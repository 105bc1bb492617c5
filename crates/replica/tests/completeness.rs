//! How complete a copy says that it is, while it is brought up to date.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use bytes::Bytes;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// The copy is cut off until it is left behind, and a block is written meanwhile.
fn leave_behind(cluster: &mut Cluster, n: u32, request: u64) {
    cluster.isolate(n);
    cluster.write(blocks(request, request as u16, 1)).unwrap();
    cluster.pass(2 * SECOND);
    assert!(!cluster.config.in_sync.contains(&device(n)));
}

/// Two copies. The second has been in sync for a moment, was left behind once more, and is being brought up to date.
/// Gives the configuration of that moment, of which it has not heard.
fn learning_again() -> (Cluster, GroupConfig) {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 1, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    leave_behind(&mut cluster, 1, 2);
    cluster.deaf.insert(device(1));
    cluster.heal();
    cluster.pass(2 * SECOND);
    let in_sync = cluster.config.clone();
    assert!(in_sync.in_sync.contains(&device(1)));
    leave_behind(&mut cluster, 1, 3);
    cluster.heal();
    cluster.tick_all(TICK);
    while cluster.deliver(device(0), device(1)) || cluster.persist(device(1)) {}
    assert_eq!(cluster.group(1).committed(), Sequence(3), "it has jumped");
    assert_eq!(cluster.map(1).len(), 2, "and lacks a block");
    (cluster, in_sync)
}

#[test]
fn a_copy_that_lost_repairs_after_late_news_says_so() {
    let (mut cluster, in_sync) = learning_again();
    cluster.group(1).configure(in_sync);
    cluster.run(device(1));
    while cluster.persist(device(1)) {}
    let disk = cluster.disk(1);
    cluster.deaf.clear();
    cluster.pass(2 * SECOND);
    assert_eq!((cluster.config.in_sync.len(), cluster.map(1)), (2, cluster.map(0)));
    // The device has lost the end of its log, which it had called durable: the repair is gone.
    cluster.lose_the_end(1, disk);
    assert_eq!(cluster.map(1).len(), 2);
    cluster.pass(3 * SECOND);
    assert_eq!((cluster.config.in_sync.len(), cluster.map(1)), (2, cluster.map(0)));
}

#[test]
fn a_copy_that_lacks_repairs_is_not_whole_for_late_news() {
    let (mut cluster, in_sync) = learning_again();
    cluster.group(1).configure(in_sync);
    cluster.run(device(1));
    assert!(!cluster.group(1).is_whole(), "layers must not be merged here yet");
    cluster.deaf.clear();
    cluster.pass(2 * SECOND);
    assert!(cluster.group(1).is_whole());
}

#[test]
fn a_copy_that_has_everything_is_complete() {
    let (mut cluster, _) = learning_again();
    cluster.deaf.clear();
    cluster.pass(2 * SECOND);
    let disk = cluster.disk(1);
    let repaired = cluster.repaired;
    assert!(cluster.group(0).is_whole() && cluster.group(1).is_whole());
    cluster.lose_the_end(1, disk);
    assert!(!cluster.group(1).is_whole(), "its primary has not told what it lacks");
    cluster.pass(3 * SECOND);
    assert!(cluster.group(1).is_whole());
    assert_eq!((cluster.config.in_sync.len(), cluster.repaired), (2, repaired), "there was nothing to repair");
}

/// Its device's map was made from the log alone: an old block is there again, and one that was trimmed.
fn rebuilt(cluster: &mut Cluster, n: u32) {
    let mut disk = cluster.disk(n);
    disk.unproven = true;
    disk.map.insert((ChunkIndex(0), 1), Bytes::from(vec![9; BLOCK_SIZE]));
    disk.map.insert((ChunkIndex(0), 7), Bytes::from(vec![9; BLOCK_SIZE]));
    cluster.lose_the_end(n, disk);
}

#[test]
fn a_copy_with_a_rebuilt_map_is_compared_with_the_primarys() {
    for ack in [AckRule::All, AckRule::Majority] {
        let mut cluster = Cluster::with_rule(3, ack, &[]);
        (1..=6).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
        cluster.settle();
        cluster.beat();
        rebuilt(&mut cluster, 1);
        assert_eq!(cluster.read(1, 1), Err(IoStatus::Redirect), "{ack:?}: no reader has anything of it");
        cluster.pass(5 * SECOND);
        assert_eq!((cluster.config.in_sync.len(), cluster.primary()), (3, 0), "{ack:?}");
        assert_eq!(cluster.map(1), cluster.map(0), "{ack:?}");
        assert!(cluster.repaired <= 3, "{ack:?}: {} blocks were sent", cluster.repaired);
        assert!(!cluster.disk(1).unproven && cluster.group(1).is_whole(), "{ack:?}");
    }
}

#[test]
fn a_primary_with_a_rebuilt_map_is_replaced_by_another_copy() {
    for ack in [AckRule::All, AckRule::Majority] {
        let mut cluster = Cluster::with_rule(3, ack, &[]);
        (1..=6).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
        cluster.settle();
        cluster.beat();
        rebuilt(&mut cluster, 0);
        cluster.pass(8 * SECOND);
        assert_ne!(cluster.primary(), 0, "{ack:?}");
        assert_eq!(cluster.config.in_sync.len(), 3, "{ack:?}");
        assert!((0..3).all(|n| cluster.map(n) == cluster.map(cluster.primary())), "{ack:?}");
        assert_eq!(cluster.map(0).get(&(ChunkIndex(0), 1)), Some(&1), "{ack:?}");
    }
}

#[test]
fn a_copy_with_a_rebuilt_map_serves_nobody_alone_and_leaves_nobody_behind() {
    let mut cluster = Cluster::new(2);
    (1..=6).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    cluster.beat();
    let primary = cluster.kill(0);
    rebuilt(&mut cluster, 1);
    cluster.pass(30 * SECOND);
    assert_eq!(cluster.state(1), GroupState::Unproven);
    assert_eq!(cluster.read(1, 1), Err(IoStatus::Redirect));
    assert_eq!((cluster.config.in_sync.len(), cluster.primary()), (2, 0), "the other may come back");
    cluster.revive(0, primary);
    cluster.pass(8 * SECOND);
    assert_eq!((cluster.config.in_sync.len(), cluster.map(1)), (2, cluster.map(0)));
    assert_eq!(cluster.read(0, 1), Ok(1));
}

#[test]
fn a_primary_with_a_rebuilt_map_leaves_nobody_behind_either() {
    let mut cluster = Cluster::new(2);
    (1..=6).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    cluster.beat();
    let other = cluster.kill(1);
    // The configuration calls it the primary.
    rebuilt(&mut cluster, 0);
    cluster.pass(30 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2, "the other may come back");
    assert!(cluster.read(0, 1).is_err());
    cluster.revive(1, other);
    cluster.pass(15 * SECOND);
    assert_eq!((cluster.primary(), cluster.config.in_sync.len()), (1, 2));
    assert_eq!(cluster.map(0), cluster.map(1));
}

#[test]
fn a_copy_with_a_rebuilt_map_of_a_group_that_nobody_has_written_to_lacks_nothing() {
    for ack in [AckRule::All, AckRule::Majority] {
        let mut cluster = Cluster::with_rule(3, ack, &[]);
        cluster.settle();
        cluster.beat();
        let mut disk = cluster.disk(1);
        disk.unproven = true;
        cluster.lose_the_end(1, disk);
        cluster.pass(5 * SECOND);
        assert!(!cluster.disk(1).unproven && cluster.group(1).is_whole(), "{ack:?}");
    }
}

/// One of three copies has acknowledged a write with the primary, has lost its map, and the primary is gone.
#[test]
fn a_copy_with_a_rebuilt_map_is_no_majority() {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    cluster.write(blocks(1, 1, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    // Copy 2 hears of nothing, and the write is acknowledged by the two others.
    for other in [0, 1] {
        cluster.disconnect(device(2), device(other));
        cluster.disconnect(device(other), device(2));
    }
    cluster.write(blocks(2, 1, 1)).unwrap();
    for _ in 0..4 {
        while cluster.deliver(device(0), device(1)) || cluster.persist(device(1)) || cluster.persist(device(0)) {}
        while cluster.deliver_answer(device(0), device(1)) {}
    }
    assert_eq!(cluster.answered.get(&RequestId(2)), Some(&Ok(())));
    let primary = cluster.kill(0);
    let mut disk = cluster.disk(1);
    // What the log shows is older.
    (disk.unproven, disk.committed) = (true, Sequence(1));
    disk.writes.retain(|sequence, _| *sequence <= Sequence(1));
    disk.map.insert((ChunkIndex(0), 1), Bytes::from(vec![1; BLOCK_SIZE]));
    cluster.lose_the_end(1, disk);
    cluster.heal();
    cluster.pass(20 * SECOND);
    assert!([1, 2].iter().all(|n| cluster.read(*n, 1).is_err()), "what is acknowledged may be on the other one alone");
    cluster.revive(0, primary);
    cluster.pass(15 * SECOND);
    let now = cluster.primary();
    assert_eq!(cluster.read(now, 1), Ok(2));
    assert!((0..3).all(|n| cluster.map(n) == cluster.map(now)));
}
