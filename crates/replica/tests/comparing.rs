//! Writes that are carried out where the volume holds what they expect (docs/decisions/0055-compare-and-write.md).

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::LEASE;

fn byte(cluster: &Cluster, at: usize) -> u8 {
    cluster.contents(device(0), ChunkIndex(0), BlockIndex(0))[at]
}

/// A cluster whose first block holds 1.
fn cluster(copies: u32) -> Cluster {
    let mut cluster = Cluster::new(copies);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster
}

#[test]
fn what_is_as_expected_is_replaced_and_what_is_beside_it_stays() {
    let mut cluster = cluster(2);
    cluster.write(compared(2, 512, 512, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(2)], Ok(()));
    assert_eq!([511, 512, 1023, 1024].map(|at| byte(&cluster, at)), [1, 2, 2, 1]);
    cluster.write(compared(3, 0, BLOCK_SIZE as u32, 2)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(3)], Err(IoStatus::Miscompare(0)));
    cluster.write(compared(4, 4096, 4096, 0)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(4)], Ok(()), "a whole block, never written: zeros");
    assert_eq!(cluster.order(0), [1, 2, 4].map(RequestId));
}

#[test]
fn what_differs_is_told_and_left_and_takes_no_place_in_the_order() {
    let mut cluster = cluster(2);
    cluster.write(bytes(2, 700, 5)).unwrap();
    cluster.write(compared(3, 512, 512, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(3)], Err(IoStatus::Miscompare(188)));
    assert_eq!(cluster.order(0), [1, 2].map(RequestId));
    // Nobody may have heard of that: asked again, it is compared again, with what is there by then.
    cluster.write(blocks(4, 0, 1)).unwrap();
    cluster.write(compared(3, 512, 512, 4)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(3)], Ok(()));
    assert_eq!(cluster.order(0), [1, 2, 4, 3].map(RequestId));
}

#[test]
fn of_those_that_expect_the_same_one_is_carried_out() {
    let mut cluster = cluster(2);
    for request in 2..10 {
        cluster.write(compared(request, 0, 512, 1)).unwrap();
    }
    cluster.settle();
    let done = (2..10).filter(|request| cluster.answered[&RequestId(*request)] == Ok(()));
    assert_eq!(done.count(), 1);
    assert_eq!(cluster.answered.values().filter(|answer| **answer == Err(IoStatus::Miscompare(0))).count(), 7);
}

#[test]
fn other_writes_wait_while_it_reads() {
    let mut cluster = cluster(2);
    cluster.write(compared(2, 0, 512, 1)).unwrap();
    cluster.write(blocks(3, 0, 1)).unwrap();
    assert_eq!((cluster.edges.len(), cluster.group(0).prepared()), (1, Sequence(1)));
    cluster.settle();
    assert_eq!(cluster.order(0), [1, 2, 3].map(RequestId));
}

#[test]
fn one_that_is_asked_for_again_is_carried_out_once() {
    let mut cluster = cluster(2);
    cluster.write(compared(2, 0, 512, 1)).unwrap();
    cluster.write(compared(2, 0, 512, 1)).unwrap();
    cluster.settle();
    cluster.answered.clear();
    // The answer was lost: what it expected is not there any more, and all the same it has happened.
    cluster.write(compared(2, 0, 512, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(2)], Ok(()));
    assert_eq!(cluster.order(0), [1, 2].map(RequestId));
}

#[test]
fn nothing_is_told_to_differ_without_a_lease() {
    let mut cluster = cluster(3);
    cluster.write(compared(2, 0, 512, 9)).unwrap();
    assert_eq!(cluster.edges.len(), 1);
    cluster.now += LEASE;
    let now = cluster.now;
    cluster.group(0).advance(now);
    while cluster.load_edge() {}
    assert_eq!(cluster.answered[&RequestId(2)], Err(IoStatus::Redirect));
}

#[test]
fn what_can_not_be_compared_as_one_is_refused() {
    let mut cluster = cluster(1);
    assert!(cluster.write(compared(2, 4000, 200, 1)).is_err(), "it lies in two blocks");
    let mut short = compared(3, 0, 512, 1);
    short.expected.as_mut().unwrap().bytes.truncate(511);
    assert!(cluster.write(short).is_err());
    let mut damaged = compared(4, 0, 512, 1);
    damaged.expected.as_mut().unwrap().checksum.0 ^= 1;
    assert!(cluster.write(damaged).is_err());
    assert!(cluster.edges.is_empty());
}

#[test]
fn zeros_that_are_written_over_zeros_take_no_space() {
    let mut cluster = Cluster::new(2);
    // What is written is the last byte of the request's number.
    cluster.write(compared(256, 0, BLOCK_SIZE as u32, 0)).unwrap();
    // Also where the last bytes that were not zeros are overwritten.
    cluster.write(bytes(257, BLOCK_SIZE as u32, 512)).unwrap();
    cluster.write(bytes(512, BLOCK_SIZE as u32, 512)).unwrap();
    cluster.settle();
    assert_eq!(cluster.order(0), [256, 257, 512].map(RequestId));
    let takes_space = |n: u64| cluster.key_of(0, Sequence(n)).is_some();
    assert_eq!([1, 2, 3].map(takes_space), [false, true, false]);
}
