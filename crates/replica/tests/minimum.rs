//! `copies_min`: nothing is acknowledged that is on fewer copies, whatever path it came by.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Copies of a class that demands `copies_min` of them, with one write done.
fn with_minimum(copies: u32, ack: AckRule, copies_min: u32) -> Cluster {
    let mut cluster = Cluster::with_rule(copies, ack, &[]);
    cluster.config.version += 1;
    cluster.config.copies_min = copies_min;
    for n in 0..copies {
        cluster.inform(n);
    }
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    assert_eq!(cluster.answered[&RequestId(1)], Ok(()));
    cluster
}

fn is_acknowledged(cluster: &Cluster, request: u64) -> bool {
    cluster.answered.get(&RequestId(request)) == Some(&Ok(()))
}

#[test]
fn what_was_under_way_when_a_copy_was_lost_is_not_acknowledged_on_too_few() {
    let mut cluster = with_minimum(2, AckRule::All, 2);
    (2..=9).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    let dead = cluster.kill(1);
    cluster.pass(3 * SECOND);
    assert_eq!((cluster.config.in_sync.len(), cluster.state(0)), (1, GroupState::ReadOnly));
    assert!((2..=9).all(|n| !is_acknowledged(&cluster, n)), "they are on one copy: {:?}", cluster.answered);
    assert_eq!(cluster.answered[&RequestId(2)], Err(IoStatus::ReadOnly));
    assert_eq!((cluster.read(0, 0), cluster.read(0, 2)), (Ok(1), Ok(2)), "whoever waits may see it early");
    cluster.revive(1, dead);
    cluster.pass(5 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2);
    (2..=9).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    assert!((2..=9).all(|n| is_acknowledged(&cluster, n)), "they are on both now");
    assert_eq!(cluster.order(0).len(), 9, "each is applied once");
    assert_eq!(cluster.map(0), cluster.map(1));
}

#[test]
fn what_a_new_primary_finds_is_not_acknowledged_on_too_few() {
    let mut cluster = with_minimum(2, AckRule::All, 2);
    cluster.write(blocks(2, 2, 1)).unwrap();
    while cluster.deliver(device(0), device(1)) {}
    while cluster.persist(device(1)) {}
    let dead = cluster.kill(0);
    cluster.pass(5 * SECOND);
    assert_eq!((cluster.primary(), cluster.config.in_sync.len()), (1, 1));
    // The gateway asks again, before and after the new primary's process has ended once more.
    cluster.write(blocks(2, 2, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered.get(&RequestId(2)), Some(&Err(IoStatus::ReadOnly)));
    cluster.restart(1, usize::MAX);
    cluster.pass(3 * SECOND);
    cluster.write(blocks(2, 2, 1)).unwrap();
    cluster.settle();
    assert!(!is_acknowledged(&cluster, 2), "it is on one copy: {:?}", cluster.answered);
    cluster.revive(0, dead);
    cluster.pass(8 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2, "{:?}", cluster.config);
    cluster.write(blocks(2, 2, 1)).unwrap();
    cluster.settle();
    assert!(is_acknowledged(&cluster, 2));
    assert_eq!((cluster.order(1).len(), cluster.map(0)), (2, cluster.map(1)), "once, and on both");
}

#[test]
fn what_waits_for_a_merge_is_sent_back_when_there_are_too_few() {
    let mut cluster = with_minimum(2, AckRule::All, 2);
    // One reads the edges of its blocks, one waits for it.
    cluster.write(bytes(2, 512, 512)).unwrap();
    cluster.write(bytes(3, 1024, 512)).unwrap();
    let _dead = cluster.kill(1);
    for _ in 0..30 {
        cluster.tick_all(TICK);
        let _ = cluster.read(0, 5); // Somebody wants something.
        while cluster.decide() {}
    }
    assert_eq!(cluster.config.in_sync.len(), 1);
    cluster.settle();
    for request in [2, 3] {
        assert_eq!(cluster.answered.get(&RequestId(request)), Some(&Err(IoStatus::ReadOnly)));
    }
    assert_eq!(cluster.order(0), [RequestId(1)]);
}

#[test]
fn a_majority_of_two_is_too_few_where_three_are_demanded() {
    let mut cluster = with_minimum(3, AckRule::Majority, 3);
    cluster.write(blocks(2, 2, 1)).unwrap();
    while cluster.persist(device(0)) {}
    while cluster.deliver(device(0), device(1)) {}
    while cluster.persist(device(1)) {}
    while cluster.deliver_answer(device(0), device(1)) {}
    assert!(!is_acknowledged(&cluster, 2), "it is on two copies");
    cluster.settle();
    assert!(is_acknowledged(&cluster, 2));
}

#[test]
fn a_write_that_waits_is_not_refused_for_want_of_space_when_it_is_sent_again() {
    let mut cluster = Cluster::new(1);
    cluster.write(bytes(1, 512, 512)).unwrap();
    cluster.write(bytes(2, 1024, 512)).unwrap();
    cluster.group(0).set_full(true);
    // The answers were lost with a connection.
    cluster.write(bytes(1, 512, 512)).unwrap();
    cluster.write(bytes(2, 1024, 512)).unwrap();
    assert!(cluster.answered.is_empty(), "both are applied later: {:?}", cluster.answered);
    cluster.settle();
    assert!([1, 2].iter().all(|n| is_acknowledged(&cluster, *n)));
    cluster.write(blocks(3, 0, 1)).unwrap();
    assert_eq!(cluster.answered.get(&RequestId(3)), Some(&Err(IoStatus::NoSpace)));
}
