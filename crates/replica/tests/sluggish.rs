//! Copies that make every write durable, and take much longer for it than the others.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use std::time::Duration;

/// Writes one block after the other, each of which takes copy 1 so many ticks and the others none.
fn write_slowly(cluster: &mut Cluster, first: u64, count: u64, ticks: u32) {
    (first..first + count).for_each(|n| write_once(cluster, n, 1, ticks));
}

/// The class demands so many copies at least.
fn demand(cluster: &mut Cluster, copies_min: u32) {
    cluster.config.copies_min = copies_min;
    cluster.config.version += 1;
    (0..cluster.copies.len() as u32).for_each(|n| cluster.inform(n));
}

/// A write that takes copy `slow` so many ticks and the others none. Who is told to ask again does.
fn write_once(cluster: &mut Cluster, n: u64, slow: u32, ticks: u32) {
    cluster.hanging.insert(device(slow));
    cluster.write(blocks(n, 1, 1)).unwrap();
    cluster.settle();
    cluster.pass(TICK * ticks);
    cluster.hanging.remove(&device(slow));
    cluster.settle();
    for _ in 0..20 {
        match cluster.answered.get(&RequestId(n)) {
            Some(Ok(())) => return,
            Some(Err(IoStatus::Redirect)) => cluster.write(blocks(n, 1, 1)).unwrap(),
            other => assert_eq!(other, None, "write {n}"),
        }
        cluster.pass(TICK);
    }
    panic!("write {n} is not answered");
}

/// Writes until copy 0, the primary, has handed over. The time that this took; `None` when it has not for a minute.
fn until_handed_over(cluster: &mut Cluster, ticks: u32) -> Option<Duration> {
    let start = cluster.now;
    let mut n = 100;
    while cluster.now < start + Duration::from_secs(60) {
        n += 1;
        write_once(cluster, n, 0, ticks);
        if cluster.primary() != 0 {
            return Some(cluster.now - start);
        }
    }
    None
}

/// The copies that were reported to people as slow.
fn reported_slow(cluster: &Cluster) -> Vec<DeviceId> {
    let slow = |reported: &Action| match reported {
        Action::TooSlow(slow, time) => {
            assert!(*time >= Duration::from_millis(200), "{time:?}");
            Some(*slow)
        }
        _ => None,
    };
    cluster.reported.iter().filter_map(slow).collect()
}

#[test]
fn a_slow_copy_is_left_behind_and_taken_back_when_it_keeps_pace() {
    let mut cluster = Cluster::new(3);
    write_slowly(&mut cluster, 1, 30, 3);
    assert_eq!(cluster.config.in_sync.len(), 3, "not at once");
    write_slowly(&mut cluster, 31, 15, 3);
    assert_eq!(cluster.config.in_sync, [device(0), device(2)].into());
    assert_eq!(reported_slow(&cluster), [device(1)]);
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
fn a_slow_copy_stays_where_the_class_demands_it() {
    for (copies, ticks) in [(2, 12), (3, 3), (3, 12)] {
        let mut cluster = Cluster::new(copies);
        demand(&mut cluster, copies);
        write_slowly(&mut cluster, 1, 60, ticks);
        assert_eq!(cluster.config.in_sync.len(), copies as usize, "{copies} copies, {ticks} ticks");
        assert_eq!(cluster.committed(0), 60, "all writes are acknowledged, as slow as they are");
        assert_eq!(reported_slow(&cluster), [], "nothing is done, and nothing said");
        demand(&mut cluster, copies - 1);
        write_slowly(&mut cluster, 61, 20, ticks);
        assert!(!cluster.config.in_sync.contains(&device(1)), "{copies} copies, {ticks} ticks");
        assert_eq!(cluster.config.in_sync.len(), copies as usize - 1);
    }
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
    assert_eq!(reported_slow(&cluster), []);
}

#[test]
fn a_slow_primary_hands_over_and_is_waited_for_no_more() {
    let clusters = [
        (Cluster::new(2), 12),
        (Cluster::new(3), 3),
        (Cluster::with_rule(3, AckRule::Majority, &[]), 3),
        (Cluster::with_rule(4, AckRule::EachSite, &["east", "west", "east", "west"]), 3),
    ];
    for (mut cluster, ticks) in clusters {
        let copies = cluster.copies.len();
        let took = until_handed_over(&mut cluster, ticks).expect("it hands over");
        assert!((10..=13).contains(&took.as_secs()), "{took:?}");
        cluster.pass(TICK * 5);
        assert!(!cluster.config.in_sync.contains(&device(0)), "{:?}", cluster.config);
        assert_eq!(reported_slow(&cluster), [device(0)], "once");
        let epoch = cluster.config.epoch;
        cluster.hanging.insert(device(0));
        for n in 1000..1010 {
            cluster.write(blocks(n, 1, 1)).unwrap();
            cluster.pass(TICK);
            assert_eq!(cluster.answered[&RequestId(n)], Ok(()), "nobody waits for it");
        }
        cluster.hanging.clear();
        cluster.pass(Duration::from_secs(20));
        assert_eq!(cluster.config.in_sync.len(), copies - 1, "not at once");
        cluster.pass(Duration::from_secs(40));
        assert_eq!((cluster.config.in_sync.len(), cluster.config.epoch), (copies, epoch));
        (0..copies as u32).for_each(|n| assert_eq!(cluster.map(n), cluster.map(cluster.primary())));
    }
}

#[test]
fn a_slow_primary_stays_where_all_would_wait_for_it_still() {
    assert_eq!(until_handed_over(&mut Cluster::new(2), 5), None, "it is borne");
    let mut cluster = Cluster::new(2);
    demand(&mut cluster, 2);
    assert_eq!(until_handed_over(&mut cluster, 12), None, "the class demands both");
    // Two of three are in sync, and both are a majority's part.
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    cluster.isolate(2);
    cluster.write(blocks(1, 1, 1)).unwrap();
    cluster.pass(Duration::from_secs(5));
    assert_eq!((cluster.primary(), cluster.config.in_sync.len()), (0, 2));
    assert_eq!(until_handed_over(&mut cluster, 12), None);
}

#[test]
fn primaries_that_are_all_slow_do_not_hand_over_in_turns() {
    let mut cluster = Cluster::new(2);
    let (start, first) = (cluster.now, cluster.config.epoch);
    let mut n = 0;
    while cluster.now < start + Duration::from_secs(200) {
        n += 1;
        // Whoever reigns is the slow one.
        let slow = cluster.primary();
        write_once(&mut cluster, n, slow, 12);
    }
    let turns = cluster.config.epoch.0 - first.0;
    assert!((1..=200 / 30).contains(&turns), "{turns} in 200 s");
    // All of them are slow.
    let mut cluster = Cluster::new(3);
    let first = cluster.config.epoch;
    for n in 1..40 {
        cluster.hanging = (0..3).map(device).collect();
        cluster.write(blocks(n, 1, 1)).unwrap();
        cluster.pass(TICK * 12);
        cluster.hanging.clear();
        cluster.settle();
    }
    assert_eq!((cluster.config.epoch, cluster.config.in_sync.len()), (first, 3));
}

#[test]
fn a_slow_primary_whose_successor_is_gone_reigns_on() {
    let mut cluster = Cluster::new(2);
    cluster.store_away = true;
    assert_eq!(until_handed_over(&mut cluster, 12), None);
    let _stopped = cluster.kill(1);
    cluster.store_away = false;
    cluster.pass(Duration::from_secs(2));
    write_once(&mut cluster, 1000, 0, 12);
    cluster.pass(Duration::from_secs(2));
    assert_eq!((cluster.primary(), cluster.state(0)), (0, GroupState::Active));
    assert_eq!(cluster.config.in_sync, [device(0)].into());
}

#[test]
fn a_primary_that_is_cut_off_is_not_slow() {
    let mut cluster = Cluster::new(3);
    cluster.write(bytes(1, 2 * BLOCK_SIZE as u32 + 512, 5000)).unwrap();
    cluster.isolate(0);
    cluster.write(blocks(2, 0, 1)).unwrap();
    for milliseconds in [200, 730, 610, 620, 440, 970, 650, 1080] {
        cluster.tick_all(Duration::from_millis(milliseconds));
    }
    cluster.heal();
    cluster.pass(Duration::from_secs(15));
    assert_eq!(cluster.config.in_sync.len(), 3, "nothing keeps it away");
}

/// The successor's first record would take its device as long, and nobody could write meanwhile.
#[test]
fn a_slow_copy_is_not_handed_the_group() {
    let mut cluster = Cluster::new(3);
    cluster.write(blocks(1, 1, 1)).unwrap();
    cluster.pass(TICK * 5);
    cluster.hanging.insert(device(1));
    cluster.write(blocks(2, 1, 1)).unwrap();
    cluster.pass(TICK * 9);
    assert!(!cluster.group(0).hand_over(device(1)), "its answer is long overdue");
    cluster.hanging.clear();
    cluster.pass(TICK);
    for n in 3..40 {
        cluster.write(blocks(n, 1, 1)).unwrap();
        cluster.pass(TICK);
    }
    assert!(cluster.group(0).hand_over(device(1)), "it has caught up");
}
