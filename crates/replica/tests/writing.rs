//! The write path: durable everywhere, then committed; retried and applied once.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use std::time::Duration;

const R1: RequestId = RequestId(1);

#[test]
fn a_write_is_answered_when_every_copy_has_it_durable_and_not_before() {
    let mut cluster = Cluster::new(3);
    cluster.write(blocks(1, 5, 2)).unwrap();
    assert!(cluster.persist(device(0)));
    for secondary in [device(1), device(2)] {
        assert!(cluster.answered.is_empty(), "not every copy has it");
        assert!(cluster.deliver(device(0), secondary));
        assert!(!cluster.deliver_answer(device(0), secondary), "a secondary answers when it is durable");
        assert!(cluster.persist(secondary));
        assert!(cluster.deliver_answer(device(0), secondary));
    }
    assert_eq!(cluster.answered[&R1], Ok(()));
    assert_eq!((cluster.committed(0), cluster.committed(1)), (1, 0), "secondaries hear of it later");
    assert_eq!(cluster.read(0, 5), Ok(1));
    assert_eq!(cluster.read(1, 5), Err(IoStatus::Redirect), "it may be committed: only the primary knows");
    assert_eq!(cluster.read(1, 7), Ok(0), "other blocks are read from any copy");
    cluster.beat();
    assert_eq!(cluster.read(1, 5), Ok(1));
}

#[test]
fn the_primarys_own_disk_counts_too() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.deliver(device(0), device(1));
    cluster.persist(device(1));
    cluster.deliver_answer(device(0), device(1));
    assert!(cluster.answered.is_empty());
    cluster.persist(device(0));
    assert_eq!(cluster.answered[&R1], Ok(()));
}

#[test]
fn a_single_copy_commits_alone() {
    let mut cluster = Cluster::new(1);
    cluster.write(blocks(1, 0, 1)).unwrap();
    assert!(cluster.answered.is_empty());
    cluster.settle();
    assert_eq!(cluster.answered[&R1], Ok(()));
}

#[test]
fn what_a_broken_connection_lost_is_sent_again_and_only_that() {
    let mut cluster = Cluster::new(2);
    (1..=4).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    (0..2).for_each(|_| assert!(cluster.deliver(device(0), device(1))));
    (0..2).for_each(|_| assert!(cluster.persist(device(1))));
    cluster.connect(device(0), device(1));
    cluster.prepares.clear();
    cluster.settle();
    assert_eq!(cluster.prepares, [(device(1), Sequence(3)), (device(1), Sequence(4))]);
    assert!((1..=4).all(|n| cluster.answered[&RequestId(n)] == Ok(())));
    cluster.beat();
    assert_eq!(cluster.order(0), cluster.order(1));
}

#[test]
fn appends_under_way_when_a_connection_breaks_are_not_appended_twice() {
    let mut cluster = Cluster::new(2);
    (1..=3).for_each(|n| cluster.write(blocks(n, 0, 1)).unwrap());
    (0..3).for_each(|_| assert!(cluster.deliver(device(0), device(1))));
    // Nothing of it is durable yet: the secondary says so, and is sent everything again.
    cluster.connect(device(0), device(1));
    cluster.settle();
    assert_eq!(cluster.answered.len(), 3);
    assert_eq!(cluster.committed(0), 3);
    cluster.beat();
    assert_eq!(cluster.order(1), cluster.order(0));
}

#[test]
fn prepares_of_an_older_connection_are_ignored() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    let header = WriteHeader {
        pg: PG,
        epoch: cluster.config.epoch,
        sequence: Sequence(1),
        commit: Sequence(0),
        session: SESSION,
        request: R1,
        range: BlockRange::block(LAYER, ChunkIndex(0), BlockIndex(0)),
    };
    let prepare = azekura_wire::Prepare { device: device(1), oldest: R1, header, body: Body::Zero };
    cluster.group(1).prepare(Client::Conn(12345), prepare, false).unwrap();
    assert_eq!(cluster.group(1).prepared(), Sequence(0));
    cluster.settle();
    assert_eq!(cluster.group(1).prepared(), Sequence(1));
}

#[test]
fn a_write_that_is_asked_for_again_is_applied_once() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.write(blocks(1, 0, 1)).unwrap();
    assert_eq!(cluster.group(0).prepared(), Sequence(1), "while it is prepared");
    cluster.settle();
    cluster.write(blocks(2, 0, 1)).unwrap();
    cluster.settle();
    cluster.answered.clear();
    cluster.write(blocks(1, 0, 1)).unwrap();
    assert_eq!(cluster.answered[&R1], Ok(()), "after it was committed");
    assert_eq!(cluster.committed(0), 2);
    assert_eq!(cluster.read(0, 0), Ok(2), "the newer write stays");
}

#[test]
fn damaged_and_malformed_requests_close_the_connection() {
    let mut cluster = Cluster::new(2);
    let mut damaged = blocks(1, 0, 2);
    if let Body::Data { bytes, .. } = &mut damaged.body {
        let mut flipped = bytes.to_vec();
        flipped[5000] ^= 1;
        *bytes = flipped.into();
    }
    assert_eq!(cluster.write(damaged.clone()), Err(Mismatch::Checksum));
    cluster.group(0).write(GATEWAY, damaged, true).expect("what never left memory is not checked again");
    let mut long = blocks(2, 1023, 1);
    long.len += 1;
    assert_eq!(cluster.write(long), Err(Mismatch::Request));
    let mut short = zeros(3, 0, 1);
    short.len = 100;
    assert_eq!(cluster.write(short), Err(Mismatch::Request));
    let mut empty = zeros(4, 0, 1);
    empty.len = 0;
    assert_eq!(cluster.write(empty), Err(Mismatch::Request));
}

#[test]
fn a_full_copy_takes_zeros_and_no_data() {
    for full in [0, 1] {
        let mut cluster = Cluster::new(2);
        match full {
            0 => cluster.group(0).set_full(true),
            _ => {
                let now = cluster.now;
                cluster.group(0).heartbeat_ok(device(1), now, true, now);
            }
        }
        cluster.write(blocks(1, 0, 1)).unwrap();
        assert_eq!(cluster.answered[&R1], Err(IoStatus::NoSpace));
        cluster.write(zeros(2, 0, 1)).unwrap();
        cluster.settle();
        assert_eq!(cluster.answered[&RequestId(2)], Ok(()));
    }
}

#[test]
fn the_queue_of_prepared_writes_has_an_end() {
    let mut cluster = Cluster::new(2);
    (1..=PENDING_WRITES_MAX as u64 + 3).for_each(|n| cluster.write(zeros(n, 0, 1)).unwrap());
    let refused = cluster.answered.values().filter(|answer| **answer == Err(IoStatus::Redirect)).count();
    assert_eq!(refused, 3);
}

#[test]
fn secondaries_send_writers_to_the_primary() {
    let mut cluster = Cluster::new(2);
    cluster.group(1).write(GATEWAY, blocks(1, 0, 1), false).unwrap();
    cluster.run(device(1));
    assert_eq!(cluster.answered[&R1], Err(IoStatus::Redirect));
}

#[test]
fn a_copy_that_is_asked_twice_while_its_log_is_slow_answers_once() {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &["a", "a", "a"]);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    cluster.write(blocks(2, 1, 1)).unwrap();
    assert!(cluster.deliver(device(0), device(1)));
    // The connection breaks while this write is on its way to the log, and on the next one the primary asks again after
    // some time: the answer to its first question is still to come.
    cluster.connect(device(0), device(1));
    while cluster.deliver(device(0), device(1)) {}
    for _ in 0..9 {
        cluster.tick_all(TICK);
    }
    let mut asked = 0;
    while cluster.deliver(device(0), device(1)) {
        asked += 1;
    }
    assert!(asked > 0, "it is asked again");
    while cluster.deliver_answer(device(0), device(1)) {}
    for n in 3..=5 {
        cluster.write(blocks(n, n as u16, 1)).unwrap();
        while cluster.deliver(device(0), device(1)) {}
        cluster.persist(device(1));
        while cluster.deliver_answer(device(0), device(1)) {}
    }
    cluster.pass(Duration::from_secs(10));
    assert_eq!(cluster.map(1), cluster.map(0));
    assert_eq!(cluster.map(1).len(), 5);
}
