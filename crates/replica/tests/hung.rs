//! Copies whose device neither completes what it is asked for nor fails it.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn clusters() -> [Cluster; 4] {
    [
        Cluster::new(2),
        Cluster::new(3),
        Cluster::with_rule(3, AckRule::Majority, &[]),
        Cluster::with_rule(4, AckRule::EachSite, &["east", "west", "east", "west"]),
    ]
}

#[test]
fn a_primary_whose_device_hangs_is_replaced_without_it() {
    for mut cluster in clusters() {
        let copies = cluster.copies.len();
        cluster.write(blocks(1, 1, 1)).unwrap();
        cluster.settle();
        cluster.hanging.insert(device(0));
        (2..=4).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
        cluster.settle();
        assert_eq!(cluster.answered.get(&RequestId(2)), None, "the primary holds everything that is acknowledged");
        cluster.hang(0, true);
        cluster.pass(5 * TICK);
        assert_ne!(cluster.primary(), 0, "{:?}", cluster.config);
        assert!(!cluster.config.in_sync.contains(&device(0)), "{:?}", cluster.config);
        (2..=5).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
        cluster.settle();
        assert!((1..=5).all(|n| cluster.answered[&RequestId(n)] == Ok(())), "{:?}", cluster.answered);
        assert_eq!(cluster.history.len(), 5, "each once");
        cluster.pass(20 * SECOND);
        assert_eq!(cluster.config.in_sync.len(), copies - 1, "it is not taken back while its device hangs");
        cluster.hang(0, false);
        cluster.pass(10 * SECOND);
        assert_eq!(cluster.config.in_sync.len(), copies);
        (0..copies as u32).for_each(|n| assert_eq!(cluster.map(n), cluster.map(cluster.primary())));
    }
}

#[test]
fn nobody_waits_for_a_secondary_whose_device_hangs() {
    for mut cluster in clusters() {
        let copies = cluster.copies.len();
        cluster.write(blocks(1, 1, 1)).unwrap();
        cluster.settle();
        cluster.pass(5 * TICK);
        cluster.hanging.insert(device(1));
        cluster.write(blocks(2, 2, 1)).unwrap();
        cluster.settle();
        cluster.hang(1, true);
        assert_eq!(cluster.read(1, 1), Err(IoStatus::Redirect));
        cluster.settle();
        assert_eq!(cluster.answered[&RequestId(2)], Ok(()), "without any time passing");
        assert_eq!((cluster.primary(), cluster.config.in_sync.len()), (0, copies - 1));
        cluster.pass(SECOND);
        assert_eq!(cluster.read(0, 1), Ok(1));
        cluster.pass(20 * SECOND);
        assert_eq!(cluster.config.in_sync.len(), copies - 1, "it is not taken back while its device hangs");
        cluster.hang(1, false);
        cluster.pass(10 * SECOND);
        assert_eq!(cluster.config.in_sync.len(), copies);
        assert_eq!(cluster.map(1), cluster.map(0));
    }
}

#[test]
fn a_copy_that_nobody_has_missed_is_asked_again() {
    for mut cluster in clusters() {
        cluster.pass(10 * SECOND);
        let version = cluster.config.version;
        cluster.hang(1, true);
        cluster.pass(20 * SECOND);
        cluster.hang(1, false);
        cluster.pass(6 * SECOND);
        assert_eq!((cluster.config.version, cluster.state(0)), (version, GroupState::Active));
        assert_eq!(cluster.state(1), GroupState::Following);
        cluster.write(blocks(1, 1, 1)).unwrap();
        cluster.settle();
        assert_eq!(cluster.answered[&RequestId(1)], Ok(()));
    }
}

#[test]
fn a_copy_whose_device_hangs_does_not_take_over() {
    let mut cluster = Cluster::new(3);
    cluster.hang(1, true);
    cluster.pass(SECOND);
    let stopped = cluster.kill(0);
    cluster.pass(5 * SECOND);
    assert_eq!(cluster.primary(), 2, "copy 1 would have been first");
    cluster.revive(0, stopped);
    cluster.hang(1, false);
    cluster.pass(20 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 3);
    // Nobody else is there: it waits until the device answers.
    let mut cluster = Cluster::new(2);
    cluster.hang(1, true);
    let _stopped = cluster.kill(0);
    cluster.pass(10 * SECOND);
    assert_eq!(cluster.primary(), 0);
    cluster.hang(1, false);
    cluster.pass(3 * SECOND);
    assert_eq!((cluster.primary(), cluster.state(1)), (1, GroupState::Active));
}

#[test]
fn a_primary_whose_device_hangs_before_its_epoch_is_open_makes_room() {
    let mut cluster = Cluster::new(3);
    cluster.write(blocks(1, 1, 1)).unwrap();
    cluster.settle();
    assert!(cluster.group(0).hand_over(device(1)));
    cluster.run(device(0));
    cluster.hanging.insert(device(1));
    cluster.settle();
    assert_eq!((cluster.primary(), cluster.state(1)), (1, GroupState::Opening));
    cluster.hang(1, true);
    cluster.pass(5 * SECOND);
    assert!(cluster.primary() != 1 && cluster.group(cluster.primary()).is_primary(), "{:?}", cluster.config);
    cluster.write(blocks(2, 2, 1)).unwrap();
    cluster.pass(SECOND);
    assert_eq!(cluster.answered[&RequestId(2)], Ok(()));
}

#[test]
fn the_last_copy_that_is_in_sync_waits_for_its_device() {
    let mut cluster = Cluster::new(2);
    let _stopped = cluster.kill(1);
    cluster.write(blocks(1, 1, 1)).unwrap();
    cluster.pass(5 * SECOND);
    assert_eq!(cluster.config.in_sync, [device(0)].into());
    cluster.hanging.insert(device(0));
    cluster.write(blocks(2, 2, 1)).unwrap();
    cluster.hang(0, true);
    cluster.pass(20 * SECOND);
    assert_eq!(cluster.answered.get(&RequestId(2)), None);
    assert_eq!(cluster.read(0, 1), Ok(1));
    cluster.hang(0, false);
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(2)], Ok(()));
}

/// Two copies, both of which are demanded, and a write that waits for the device of one, which hangs.
fn both_demanded(hangs: u32) -> Cluster {
    let mut cluster = Cluster::new(2);
    cluster.config.copies_min = 2;
    cluster.config.version += 1;
    (0..2).for_each(|n| cluster.inform(n));
    cluster.pass(SECOND);
    cluster.hanging.insert(device(hangs));
    cluster.write(blocks(1, 1, 1)).unwrap();
    cluster.hang(hangs, true);
    cluster.pass(2 * SECOND);
    assert_eq!((cluster.primary(), cluster.config.in_sync.len()), (0, 2), "all wait for the device");
    cluster
}

#[test]
fn where_too_few_copies_would_stay_all_wait_for_the_device() {
    for hangs in [0, 1] {
        let mut cluster = both_demanded(hangs);
        assert_eq!(cluster.answered.get(&RequestId(1)), None);
        cluster.hang(hangs, false);
        cluster.settle();
        assert_eq!(cluster.answered[&RequestId(1)], Ok(()));
        cluster.pass(SECOND);
        assert_eq!(cluster.state(1), GroupState::Following);
    }
}

#[test]
fn a_copy_whose_device_is_out_of_service_is_not_waited_for_however_few_are_left() {
    for out in [0, 1] {
        let mut cluster = both_demanded(out);
        cluster.take_out(out, true);
        cluster.pass(SECOND / 2);
        let other = 1 - out;
        assert_eq!((cluster.primary(), cluster.config.in_sync.len()), (other, 1), "{:?}", cluster.config);
        assert_eq!(cluster.state(other), GroupState::ReadOnly);
        cluster.write(blocks(2, 2, 1)).unwrap();
        cluster.settle();
        assert_eq!(cluster.answered[&RequestId(2)], Err(IoStatus::ReadOnly));
        cluster.take_out(out, false);
        cluster.hang(out, false);
        cluster.pass(10 * SECOND);
        assert_eq!(cluster.config.in_sync.len(), 2, "{:?}", cluster.config);
        cluster.write(blocks(3, 3, 1)).unwrap();
        cluster.settle();
        assert_eq!(cluster.answered[&RequestId(3)], Ok(()));
        cluster.pass(SECOND);
        assert_eq!(cluster.map(0), cluster.map(1));
    }
}
