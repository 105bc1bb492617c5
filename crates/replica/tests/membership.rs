//! Fail-over, copies that are left behind, and their return.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_silent_primary_is_replaced_and_nothing_acknowledged_is_lost() {
    let mut cluster = Cluster::new(2);
    (1..=5).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    cluster.beat();
    let dead = cluster.kill(0);
    cluster.pass(GRACE + SECOND);
    assert_eq!((cluster.primary(), cluster.state(1)), (1, GroupState::Active));
    assert_eq!(cluster.config.in_sync, [device(1)].into());
    cluster.write(blocks(6, 1, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(6)], Ok(()));
    assert_eq!((cluster.read(1, 1), cluster.read(1, 5)), (Ok(6), Ok(5)));
    cluster.revive(0, dead);
    cluster.pass(2 * SECOND);
    assert_eq!((cluster.primary(), cluster.config.in_sync.len()), (1, 2));
    assert_eq!(cluster.state(0), GroupState::Following);
    assert_eq!(cluster.map(0), cluster.map(1));
    assert_eq!(cluster.repaired, 1, "one block was changed while it was away");
}

#[test]
fn a_primary_that_is_cut_off_serves_nobody_before_another_can_reign() {
    let mut cluster = Cluster::new(3);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    // The connections are gone, and the configuration does not reach the primary.
    cluster.isolate(0);
    let start = cluster.now;
    let mut other = None;
    while other.is_none() {
        cluster.now += TICK;
        let now = cluster.now;
        for n in 1..3 {
            cluster.group(n).tick(now);
            cluster.run(device(n));
        }
        if cluster.config.primary != device(0) {
            other = Some(now);
        }
        cluster.decide_without(device(0));
        for n in 1..3 {
            if cluster.config.primary == device(n) {
                assert!(cluster.now >= start + GRACE, "a promise was broken");
                assert_eq!(cluster.read(0, 0), Err(IoStatus::Redirect), "two primaries");
            }
        }
    }
    cluster.write_to(0, blocks(2, 0, 1));
    cluster.persist(device(0));
    assert!(!cluster.answered.contains_key(&RequestId(2)), "nothing is committed without the others");
}

#[test]
fn a_silent_secondary_is_left_behind_and_comes_back_with_what_changed() {
    let mut cluster = Cluster::new(2);
    (1..=100).for_each(|n| cluster.write(blocks(n, 3 * n as u16, 2)).unwrap());
    cluster.settle();
    cluster.isolate(1);
    cluster.write(blocks(101, 30, 1)).unwrap();
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.answered[&RequestId(101)], Ok(()), "writes go on without it");
    assert_eq!(cluster.config.in_sync, [device(0)].into());
    assert_eq!(cluster.read(1, 0), Err(IoStatus::Redirect), "it answers nobody");
    (102..=104).for_each(|n| cluster.write(blocks(n, 500 + n as u16, 1)).unwrap());
    cluster.write(zeros(105, 90, 4)).unwrap();
    cluster.pass(SECOND);
    cluster.heal();
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2);
    assert_eq!(cluster.map(0), cluster.map(1));
    assert!(cluster.repaired <= 8, "{} blocks for 8 changed ones", cluster.repaired);
}

#[test]
fn a_secondary_that_takes_too_long_is_left_behind_although_it_is_alive() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    while cluster.deliver(device(0), device(1)) {}
    assert!(cluster.persist(device(0)));
    for _ in 0..40 {
        cluster.tick_all(TICK);
        cluster.beat();
    }
    assert!(cluster.decide());
    assert_eq!(cluster.config.in_sync, [device(0)].into());
    cluster.tick_all(2 * LEASE);
    assert_eq!(cluster.answered[&RequestId(1)], Ok(()));
}

#[test]
fn nothing_is_committed_without_a_copy_that_may_still_answer_readers() {
    let mut cluster = Cluster::new(2);
    cluster.isolate(1);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.persist(device(0));
    let until = cluster.now + LEASE;
    while cluster.now + TICK < until + LEASE {
        cluster.tick_all(TICK);
        cluster.decide();
        let acknowledged = cluster.answered.contains_key(&RequestId(1));
        let stale = cluster.read(1, 0) == Ok(0);
        assert!(!(acknowledged && stale), "acknowledged, and still zeros to a reader");
        if acknowledged {
            return;
        }
    }
    panic!("never acknowledged");
}

#[test]
fn a_new_empty_copy_gets_everything() {
    let mut cluster = Cluster::new(2);
    (1..=50).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    cluster.config.version += 1;
    cluster.config.members.insert(device(2));
    let config = cluster.config.clone();
    (0..2).for_each(|n| cluster.group(n).configure(config.clone()));
    cluster.add(device(2));
    cluster.heal();
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 3);
    assert_eq!(cluster.map(2), cluster.map(0));
    cluster.write(blocks(51, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    assert_eq!(cluster.read(2, 0), Ok(51));
}

#[test]
fn writes_go_on_while_a_copy_is_brought_up_to_date_and_it_has_the_latest() {
    let mut cluster = Cluster::new(2);
    let mut number = 0;
    let mut write = |cluster: &mut Cluster, n: u64| {
        for _ in 0..n {
            number += 1;
            cluster.write(blocks(number, (number * 7 % 300) as u16, 1 + (number % 3) as u16)).unwrap();
        }
    };
    write(&mut cluster, 50);
    cluster.settle();
    cluster.isolate(1);
    write(&mut cluster, 100);
    cluster.pass(2 * SECOND);
    cluster.heal();
    for _ in 0..60 {
        write(&mut cluster, 3);
        cluster.tick_all(TICK / 4);
        for _ in 0..3 {
            cluster.load(device(0));
            cluster.load(device(1));
            for n in 0..2 {
                cluster.persist(device(n));
            }
            cluster.deliver(device(0), device(1));
            cluster.deliver_answer(device(0), device(1));
        }
    }
    cluster.pass(3 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2);
    assert_eq!(cluster.map(0), cluster.map(1));
}

#[test]
fn a_copy_that_dies_while_it_learns_goes_on_from_there() {
    let mut cluster = Cluster::new(2);
    (1..=20).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    cluster.isolate(1);
    cluster.write(blocks(21, 42, 1)).unwrap();
    cluster.pass(2 * SECOND);
    (22..=220).for_each(|n| cluster.write(blocks(n, n as u16 * 2, 1)).unwrap());
    cluster.settle();
    for rounds in 1..30 {
        cluster.heal();
        cluster.tick_all(TICK);
        for _ in 0..rounds {
            cluster.deliver(device(0), device(1));
            cluster.persist(device(1));
            cluster.deliver_answer(device(0), device(1));
            cluster.load(device(0));
            cluster.load(device(1));
        }
        cluster.restart(1, 1);
        cluster.isolate(1);
    }
    let before = cluster.repaired;
    cluster.heal();
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2);
    assert_eq!(cluster.map(0), cluster.map(1));
    assert!(cluster.repaired - before < 200, "what it has is not sent again: {before} {}", cluster.repaired);
}

#[test]
fn below_the_minimum_of_copies_nothing_is_written_and_reads_go_on() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.config.version += 1;
    cluster.config.copies_min = 2;
    let config = cluster.config.clone();
    (0..2).for_each(|n| cluster.group(n).configure(config.clone()));
    let dead = cluster.kill(1);
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2, "nobody wants anything: no copy is left behind for nothing");
    assert_eq!(cluster.state(0), GroupState::ReadOnly, "what it would be");
    assert_eq!(cluster.read(0, 0), Err(IoStatus::Redirect));
    cluster.pass(2 * TICK);
    assert_eq!(cluster.state(0), GroupState::ReadOnly);
    cluster.write(blocks(2, 0, 1)).unwrap();
    assert_eq!(cluster.answered[&RequestId(2)], Err(IoStatus::ReadOnly));
    assert_eq!(cluster.read(0, 0), Ok(1));
    cluster.revive(1, dead);
    cluster.pass(2 * SECOND);
    cluster.write(blocks(2, 0, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(2)], Ok(()));
}

#[test]
fn a_primary_says_whom_it_would_go_on_without() {
    let mut cluster = Cluster::new(3);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    let dead = cluster.kill(2);
    assert_eq!(cluster.state(0), GroupState::WaitingForCopy(device(2)), "it may be back at once");
    cluster.pass(2 * SECOND);
    assert_eq!((cluster.state(0), cluster.config.in_sync.len()), (GroupState::Idle(device(2)), 3));
    assert_eq!(cluster.read(0, 0), Err(IoStatus::Redirect));
    cluster.pass(2 * TICK);
    assert_eq!((cluster.read(0, 0), cluster.state(0)), (Ok(1), GroupState::Active));
    assert_eq!(cluster.config.in_sync, [device(0), device(1)].into());
    // One that is not in sync is no reason to wait.
    cluster.revive(2, dead);
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.state(0), GroupState::Active);
}

#[test]
fn a_primary_that_has_not_opened_its_epoch_says_whom_it_would_go_on_without() {
    let mut cluster = Cluster::new(2);
    cluster.kill(1);
    cluster.restart(0, 0);
    cluster.pass(SECOND);
    assert_eq!(cluster.state(0), GroupState::WaitingForCopy(device(1)), "it may be starting");
    cluster.pass(3 * SECOND);
    assert_eq!((cluster.state(0), cluster.config.in_sync.len()), (GroupState::Idle(device(1)), 2));
    assert_eq!(cluster.read(0, 0), Err(IoStatus::Redirect));
    cluster.pass(2 * TICK);
    assert_eq!((cluster.read(0, 0), cluster.state(0)), (Ok(0), GroupState::Active));
    assert_eq!(cluster.config.in_sync, [device(0)].into());
}

#[test]
fn a_primary_that_is_needed_and_cannot_go_on_does_not_say_that_it_would() {
    let mut cluster = Cluster::new(2);
    cluster.kill(1);
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.state(0), GroupState::Idle(device(1)));
    cluster.store_away = true;
    assert_eq!(cluster.read(0, 0), Err(IoStatus::Redirect));
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.state(0), GroupState::WaitingForCopy(device(1)));
    cluster.store_away = false;
    cluster.pass(2 * TICK);
    assert_eq!(cluster.state(0), GroupState::Active);
}

#[test]
fn a_tail_that_two_copies_have_outlives_the_primary_and_one_of_them() {
    let mut cluster = Cluster::new(3);
    (1..=4).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    assert!((1..=4).all(|n| cluster.answered[&RequestId(n)] == Ok(())));
    // Nobody but the primary knows that they are committed. It dies; its successor dies while it gathers.
    cluster.kill(0);
    for _ in 0..20 {
        cluster.tick_all(TICK);
    }
    while cluster.decide() {}
    let next = cluster.primary();
    let last = 3 - next;
    while cluster.deliver(device(next), device(last)) {}
    cluster.kill(next);
    cluster.pass(3 * SECOND);
    assert_eq!(cluster.primary(), last);
    assert_eq!(cluster.order(last), (1..=4).map(RequestId).collect::<Vec<_>>());
}

#[test]
fn nobody_waits_for_a_copy_that_is_gone_before_it_has_joined() {
    let mut without = 0;
    for moment in 0..20 {
        let mut cluster = Cluster::new(2);
        cluster.write(blocks(1, 0, 1)).unwrap();
        cluster.settle();
        let stopped = cluster.kill(1);
        cluster.write(blocks(2, 0, 1)).unwrap();
        cluster.pass(3 * SECOND);
        assert_eq!(cluster.config.in_sync, [device(0)].into());
        // It comes back, and is killed again.
        cluster.revive(1, stopped);
        for _ in 0..moment {
            cluster.tick_all(TICK / 4);
            cluster.group(0).allow_resync(true);
            cluster.run(device(0));
            while cluster.deliver(device(0), device(1)) {}
            let _ = cluster.persist(device(1)) | cluster.load(device(1)) | cluster.load(device(0));
            while cluster.deliver_answer(device(0), device(1)) {}
        }
        let _dead = cluster.kill(1);
        cluster.write(blocks(3, 0, 1)).unwrap();
        cluster.settle();
        // Unless it is in sync by now.
        let answered = cluster.answered.contains_key(&RequestId(3));
        assert!(answered || cluster.config.in_sync.len() == 2, "at moment {moment}");
        without += usize::from(answered);
    }
    assert!(without > 5);
}

#[test]
fn a_refused_claim_leaves_a_secondary_where_it_was() {
    let mut cluster = Cluster::new(2);
    cluster.store_away = true;
    cluster.isolate(1);
    for _ in 0..25 {
        cluster.tick_all(TICK);
    }
    cluster.heal();
    cluster.settle();
    // Somebody else was faster.
    cluster.config.version += 1;
    cluster.store_away = false;
    cluster.settle();
    cluster.beat();
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(1)], Ok(()), "without any time passing");
    assert_eq!((cluster.primary(), cluster.state(1)), (0, GroupState::Following));
}

/// The control plane gives a group other members.
fn rehome(cluster: &mut Cluster, members: &[u32]) {
    let members = members.iter().map(|n| device(*n)).collect();
    let former = cluster.config.members.union(&cluster.config.in_sync).copied();
    let former: Vec<DeviceId> = former.collect();
    cluster.config.version += 1;
    cluster.config.leaving.extend(former);
    cluster.config.leaving = cluster.config.leaving.difference(&members).copied().collect();
    cluster.config.away.retain(|device, _| members.contains(device));
    cluster.config.members = members;
    let config = cluster.config.clone();
    let all: Vec<DeviceId> = cluster.copies.keys().copied().collect();
    for n in all.iter().map(|device| device.0 - 1) {
        cluster.group(n).configure(config.clone());
        cluster.run(device(n));
    }
}

#[test]
fn a_copy_leaves_only_when_its_replacement_is_in_sync() {
    let mut cluster = Cluster::new(2);
    (1..=50).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    rehome(&mut cluster, &[0, 2]);
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.config.in_sync, [device(0), device(1)].into(), "its replacement is not there");
    cluster.add(device(2));
    cluster.heal();
    (51..=60).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.config.in_sync, [device(0), device(2)].into());
    assert_eq!((cluster.primary(), cluster.config.leaving.len()), (0, 1));
    assert_eq!(cluster.map(2), cluster.map(0));
    assert_eq!(cluster.state(1), GroupState::OutOfSync);
    assert!(cluster.read(1, 1).is_err(), "it answers nobody");
    cluster.write(blocks(61, 0, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(61)], Ok(()));
}

#[test]
fn an_idle_group_does_not_wait_for_a_copy_that_has_been_given_up() {
    let mut cluster = Cluster::new(2);
    cluster.settle();
    // The other copy's device has failed for good, and the primary begins a new reign with nothing to commit.
    cluster.kill(1);
    cluster.restart(0, usize::MAX);
    cluster.pass(5 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2, "nobody wants anything: the copy may come back");
    cluster.add(device(2));
    cluster.heal();
    rehome(&mut cluster, &[0, 2]);
    cluster.pass(5 * SECOND);
    assert_eq!(cluster.config.in_sync, [device(0), device(2)].into());
    assert_eq!(cluster.state(0), GroupState::Active);
    (1..=5).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    cluster.beat();
    assert_eq!(cluster.answered.len(), 5);
    assert_eq!(cluster.map(2), cluster.map(0));
}

#[test]
fn a_primary_that_is_to_leave_hands_over_and_goes() {
    let mut cluster = Cluster::new(2);
    (1..=50).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    rehome(&mut cluster, &[1, 2]);
    cluster.add(device(2));
    cluster.heal();
    let mut request = 50;
    for _ in 0..30 {
        cluster.pass(SECOND / 10);
        request += 1;
        cluster.write(blocks(request, request as u16, 1)).unwrap();
    }
    cluster.pass(SECOND);
    assert_eq!(cluster.config.in_sync, [device(1), device(2)].into());
    assert_eq!((cluster.primary(), cluster.state(1)), (1, GroupState::Active));
    assert_eq!(cluster.map(1), cluster.map(2));
    let unanswered = (51..=request).filter(|n| !cluster.answered.contains_key(&RequestId(*n))).count();
    assert_eq!(unanswered, 0, "every write was answered: acknowledged, or sent to another primary");
}

#[test]
fn all_copies_move_at_once_and_nothing_is_lost() {
    let mut cluster = Cluster::new(2);
    (1..=50).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    rehome(&mut cluster, &[2, 3]);
    cluster.add(device(2));
    cluster.add(device(3));
    cluster.heal();
    cluster.pass(3 * SECOND);
    assert_eq!(cluster.config.in_sync, [device(2), device(3)].into());
    assert_eq!(cluster.map(2), cluster.map(3));
    assert_eq!(cluster.read(cluster.primary(), 7), Ok(7));
    assert_eq!(cluster.config.leaving, [device(0), device(1)].into(), "noted until their devices have given them up");
}

#[test]
fn a_copy_that_learns_and_is_no_member_any_more_does_not_join() {
    let mut cluster = Cluster::new(2);
    (1..=50).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    rehome(&mut cluster, &[0, 1, 2]);
    cluster.add(device(2));
    cluster.heal();
    // So far that it has been asked for nothing but the last step.
    for _ in 0..8 {
        cluster.tick_all(TICK);
        for _ in 0..40 {
            for (from, to) in [(0, 1), (0, 2)] {
                cluster.deliver(device(from), device(to));
                cluster.deliver_answer(device(from), device(to));
            }
            (0..3).for_each(|n| {
                cluster.persist(device(n));
                cluster.load(device(n));
            });
        }
        cluster.beat();
    }
    assert!(!cluster.config.in_sync.contains(&device(2)));
    rehome(&mut cluster, &[0, 1]);
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.config.in_sync, [device(0), device(1)].into());
}

#[test]
fn a_copy_that_is_to_go_takes_leave_and_no_write_waits_for_its_lease() {
    let mut cluster = Cluster::new(4);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    assert_eq!(cluster.read(1, 0), Ok(1));
    // Two are to go, and one of the members to be is not there: only one may.
    rehome(&mut cluster, &[0, 3, 4]);
    cluster.tick_all(TICK);
    cluster.settle();
    assert_eq!(cluster.config.in_sync, [device(0), device(2), device(3)].into());
    cluster.write(blocks(2, 0, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(2)], Ok(()), "without any time passing");
    assert!(cluster.read(1, 0).is_err());
    cluster.beat();
    assert_eq!(cluster.read(2, 0), Ok(2));
}

/// A write that was acknowledged before a copy that learns was waited for is durable on it when it is named in sync.
#[test]
fn a_copy_joins_with_everything_that_was_acknowledged_before() {
    let mut cluster = Cluster::new(3);
    cluster.isolate(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.pass(3 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2);
    // The copy is brought up to date but for the word that its note is kept.
    cluster.notes_wait = true;
    cluster.heal();
    cluster.pass(SECOND);
    cluster.write(blocks(2, 1, 1)).unwrap();
    while cluster.deliver(device(0), device(1)) || cluster.deliver(device(0), device(2)) {}
    while cluster.persist(device(0)) || cluster.persist(device(1)) {}
    while cluster.deliver_answer(device(0), device(1)) {}
    assert_eq!(cluster.answered.get(&RequestId(2)), Some(&Ok(())), "nothing waits for a copy that learns");
    cluster.save_notes();
    while cluster.deliver_answer(device(0), device(2)) {}
    cluster.beat();
    cluster.tick_all(TICK);
    cluster.decide();
    assert!(!cluster.config.in_sync.contains(&device(2)), "an acknowledged write is not on its disk yet");
    while cluster.persist(device(2)) {}
    cluster.pass(SECOND);
    assert_eq!((cluster.config.in_sync.len(), cluster.map(2)), (3, cluster.map(0)));
}
