//! Ack rules that do not wait for every copy: what is acknowledged when, and that a new primary always finds it.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A write becomes durable on these copies, and they say so.
fn reach(cluster: &mut Cluster, copies: &[u32]) {
    while cluster.persist(device(0)) {}
    for n in copies {
        while cluster.deliver(device(0), device(*n)) {}
        while cluster.persist(device(*n)) {}
        while cluster.deliver_answer(device(0), device(*n)) {}
    }
}

#[test]
fn a_majority_is_enough_and_the_primary_is_part_of_it() {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    cluster.write(blocks(1, 0, 1)).unwrap();
    reach(&mut cluster, &[]);
    assert!(cluster.answered.is_empty(), "one of three");
    reach(&mut cluster, &[2]);
    assert_eq!(cluster.answered[&RequestId(1)], Ok(()));
    cluster.write(blocks(2, 1, 1)).unwrap();
    for n in [1, 2] {
        while cluster.deliver(device(0), device(n)) {}
        while cluster.persist(device(n)) {}
        while cluster.deliver_answer(device(0), device(n)) {}
    }
    assert!(!cluster.answered.contains_key(&RequestId(2)), "the primary can't read what it has not got");
    reach(&mut cluster, &[]);
    assert_eq!(cluster.answered[&RequestId(2)], Ok(()));
}

#[test]
fn each_site_has_what_is_acknowledged() {
    let mut cluster = Cluster::with_rule(4, AckRule::EachSite, &["here", "here", "here", "there"]);
    cluster.write(blocks(1, 0, 1)).unwrap();
    reach(&mut cluster, &[1, 2]);
    assert!(cluster.answered.is_empty(), "not there");
    reach(&mut cluster, &[3]);
    assert_eq!(cluster.answered[&RequestId(1)], Ok(()));
    cluster.write(blocks(2, 0, 1)).unwrap();
    reach(&mut cluster, &[3]);
    assert!(!cluster.answered.contains_key(&RequestId(2)), "one of three here");
    reach(&mut cluster, &[2]);
    assert_eq!(cluster.answered[&RequestId(2)], Ok(()));
}

#[test]
fn only_the_primary_answers_readers() {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    assert_eq!(cluster.read(0, 0), Ok(1));
    for n in [1, 2] {
        assert_eq!(cluster.read(n, 0), Err(IoStatus::Redirect));
        assert_eq!(cluster.state(n), GroupState::Following);
    }
}

#[test]
fn a_primary_serves_while_a_majority_follows_it_and_no_longer() {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.isolate(2);
    for _ in 0..15 {
        cluster.tick_all(TICK);
        cluster.beat();
    }
    assert_eq!(cluster.read(0, 0), Ok(1));
    cluster.isolate(1);
    for _ in 0..15 {
        cluster.tick_all(TICK);
        cluster.beat();
    }
    assert_eq!(cluster.read(0, 0), Err(IoStatus::Redirect));
}

#[test]
fn a_new_primary_waits_for_the_copy_that_may_have_what_it_lacks() {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.isolate(1);
    cluster.write(blocks(2, 1, 1)).unwrap();
    reach(&mut cluster, &[2]);
    assert_eq!(cluster.answered[&RequestId(2)], Ok(()));
    // The copy that lacks it is alone; then the one that has it comes, and has to reign.
    cluster.isolate(2);
    let _dead = cluster.kill(0);
    cluster.pass(5 * SECOND);
    assert!((1..3).all(|n| !cluster.group(n).is_primary()), "neither has heard enough");
    let goes_on = |state| matches!(state, GroupState::Active | GroupState::Idle(_) | GroupState::ReadOnly);
    assert!((1..3).all(|n| !goes_on(cluster.state(n))), "nor says that it would go on");
    cluster.heal();
    cluster.pass(3 * SECOND);
    assert_eq!(cluster.primary(), 2);
    assert_eq!(cluster.order(2), [RequestId(1), RequestId(2)]);
    assert_eq!(cluster.read(2, 1), Ok(2));
    assert_eq!(cluster.map(1), cluster.map(2));
}

#[test]
fn a_copy_that_lags_holds_nothing_up_and_comes_back() {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    cluster.isolate(2);
    (1..=20).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    reach(&mut cluster, &[1]);
    assert!((1..=20).all(|n| cluster.answered[&RequestId(n)] == Ok(())), "without any time passing");
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.config.in_sync, [device(0), device(1)].into());
    // Two that are left of three are both waited for.
    cluster.write(blocks(21, 0, 1)).unwrap();
    reach(&mut cluster, &[]);
    assert!(!cluster.answered.contains_key(&RequestId(21)));
    cluster.heal();
    cluster.pass(3 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 3);
    assert_eq!(cluster.map(2), cluster.map(0));
}

#[test]
fn a_hand_over_goes_to_a_copy_that_lacks_nothing() {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    (1..=3).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    reach(&mut cluster, &[2]);
    assert!(cluster.group(0).leave());
    cluster.run(device(0));
    cluster.settle();
    cluster.beat();
    assert_eq!((cluster.primary(), cluster.state(2)), (2, GroupState::Active));
    assert_eq!(cluster.order(2).len(), 3);
    let _dead = cluster.kill(0);
    cluster.write(blocks(4, 4, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(4)], Ok(()), "without any time passing");
}

#[test]
fn a_write_that_nobody_was_promised_gives_way() {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.pass(SECOND);
    // The primary alone has the second write; the others go on without it.
    let dead = {
        cluster.write(blocks(2, 0, 1)).unwrap();
        while cluster.persist(device(0)) {}
        cluster.kill(0)
    };
    cluster.pass(3 * SECOND);
    cluster.write(blocks(3, 0, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(3)], Ok(()));
    cluster.revive(0, dead);
    cluster.pass(5 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 3);
    assert_eq!(cluster.map(0), cluster.map(1));
    assert!(!cluster.answered.contains_key(&RequestId(2)));
}

/// A copy that came back and has not heard yet that it is in sync is not sure to be complete when it starts again. All
/// the same it may be the only one left of those that acknowledged a write.
#[test]
fn what_only_a_doubtful_copy_has_is_not_lost() {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    cluster.isolate(2);
    cluster.write(blocks(2, 1, 1)).unwrap();
    cluster.pass(3 * SECOND);
    assert!(!cluster.config.in_sync.contains(&device(2)));
    cluster.deaf.insert(device(2));
    cluster.heal();
    cluster.pass(3 * SECOND);
    assert!(cluster.config.in_sync.contains(&device(2)));
    cluster.write(blocks(3, 2, 1)).unwrap();
    reach(&mut cluster, &[2]);
    assert_eq!(cluster.answered[&RequestId(3)], Ok(()));
    // The power fails. The primary of then stays away.
    let _dead = cluster.kill(0);
    cluster.restart(1, 0);
    cluster.restart(2, 0);
    cluster.deaf.clear();
    cluster.heal();
    cluster.pass(10 * SECOND);
    let primary = cluster.primary();
    assert_eq!(cluster.state(primary), GroupState::Active);
    assert!(cluster.order(primary).contains(&RequestId(3)), "{:?}", cluster.order(primary));
    // It was brought up to date again, and both have everything.
    assert_eq!((cluster.config.in_sync.len(), cluster.map(1)), (2, cluster.map(2)));
    assert_eq!(primary, 1, "the copy that is sure to be complete reigns");
}
