//! Copies that acknowledge every write, and take much longer for it than the others.

#![allow(clippy::unwrap_used)]

mod support;

use azekura_base::*;
use azekura_replica::*;
use support::*;

/// Writes one block after the other, each of which takes copy 1 so many ticks and the others none.
fn write_slowly(cluster: &mut Cluster, first: u64, count: u64, ticks: u32) {
    for n in first..first + count {
        cluster.hanging.insert(device(1));
        cluster.write(blocks(n, 1, 1)).unwrap();
        cluster.settle();
        cluster.pass(TICK * ticks);
        cluster.hanging.remove(&device(1));
        cluster.settle();
        assert_eq!(cluster.answered[&RequestId(n)], Ok(()), "write {n}");
    }
}

#[test]
fn a_slow_copy_is_left_behind_and_taken_back_when_it_keeps_pace() {
    let mut cluster = Cluster::new(3);
    write_slowly(&mut cluster, 1, 30, 3);
    assert_eq!(cluster.config.in_sync.len(), 3, "not at once");
    write_slowly(&mut cluster, 31, 15, 3);
    assert_eq!(cluster.config.in_sync, [device(0), device(2)].into());
    for n in 46..200 {
        write_slowly(&mut cluster, n, 1, 3);
        assert_eq!(cluster.config.in_sync.len(), 2, "at write {n}");
    }
    for n in 200..260 {
        write_slowly(&mut cluster, n, 1, 0);
        cluster.pass(TICK);
    }
    assert_eq!(cluster.config.in_sync.len(), 3);
    assert_eq!(cluster.map(1), cluster.map(0));
}

#[test]
fn the_last_two_copies_wait_for_each_other_unless_it_is_unbearable() {
    let mut cluster = Cluster::new(2);
    write_slowly(&mut cluster, 1, 60, 5);
    assert_eq!(cluster.config.in_sync.len(), 2);
    write_slowly(&mut cluster, 61, 20, 12);
    assert_eq!(cluster.config.in_sync, [device(0)].into());
}

#[test]
fn a_copy_is_compared_with_the_others() {
    let mut cluster = Cluster::new(3);
    for n in 1..60 {
        cluster.hanging = (0..3).map(device).collect();
        cluster.write(blocks(n, 1, 1)).unwrap();
        cluster.pass(TICK * 3);
        cluster.hanging.clear();
        cluster.settle();
    }
    assert_eq!(cluster.config.in_sync.len(), 3, "all are slow");
}
