//! Groups that change hands: planned stops, claims and what was promised before them; copies that take leave.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_primary_hands_over_without_losing_what_is_under_way() {
    let mut cluster = Cluster::new(3);
    (1..=3).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    assert!(cluster.group(0).hand_over(device(2)));
    cluster.run(device(0));
    cluster.settle();
    cluster.beat();
    assert_eq!((cluster.primary(), cluster.state(2)), (2, GroupState::Active));
    (1..=3).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    assert!((1..=3).all(|n| cluster.answered[&RequestId(n)] == Ok(())), "{:?}", cluster.answered);
    assert_eq!(cluster.history.len(), 3, "each once");
    assert_eq!(cluster.config.in_sync.len(), 3);
}

#[test]
fn copies_that_take_leave_are_not_waited_for() {
    let mut cluster = Cluster::new(3);
    cluster.write(blocks(1, 0, 1)).unwrap();
    assert!(!cluster.group(1).leave());
    cluster.run(device(1));
    cluster.deliver_answer(device(0), device(1));
    cluster.settle();
    assert_eq!(cluster.config.in_sync, [device(0), device(2)].into(), "without any time passing");
    assert_eq!(cluster.answered[&RequestId(1)], Ok(()));
    for _ in 0..60 {
        cluster.tick_all(TICK);
        cluster.beat();
    }
    assert!(cluster.group(0).leave());
    cluster.run(device(0));
    cluster.settle();
    cluster.beat();
    assert_eq!(cluster.primary(), 2);
    assert!(!cluster.group(0).leave());
    cluster.run(device(0));
    cluster.settle();
    assert_eq!(cluster.config.in_sync.len(), 2, "nobody wants anything");
    cluster.write(blocks(2, 0, 1)).unwrap();
    cluster.tick_all(TICK);
    cluster.settle();
    assert_eq!(cluster.config.in_sync, [device(2)].into());
    assert_eq!(cluster.answered[&RequestId(2)], Ok(()));
    assert!(!cluster.group(2).leave(), "the last one just stops");
    assert_eq!(cluster.read(0, 0), Err(IoStatus::Redirect));
}

#[test]
fn a_copy_that_has_taken_leave_is_not_taken_back_before_its_process_has_ended() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    assert!(cluster.group(1).leave());
    cluster.run(device(1));
    cluster.pass(5 * TICK);
    assert_eq!(cluster.config.in_sync, [device(0)].into(), "it would be waited for when it ends");
    let stopped = cluster.kill(1);
    cluster.write(blocks(2, 0, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(2)], Ok(()), "without any time passing");
    cluster.revive(1, stopped);
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2);
}

#[test]
fn a_copy_that_has_taken_leave_and_is_there_for_long_is_taken_back() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    // As one says whose device was to be given up, and is not after all.
    let (pg, epoch) = (cluster.group(0).id(), cluster.config.epoch);
    cluster.group(0).peer_leaving(device(1), azekura_wire::Leaving { pg, device: device(1), epoch });
    cluster.run(device(0));
    cluster.write(blocks(2, 0, 1)).unwrap();
    cluster.pass(SECOND);
    assert_eq!(cluster.config.in_sync, [device(0)].into());
    cluster.pass(8 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2);
}

#[test]
fn a_busy_primary_hands_over_and_stops_when_it_is_not_needed_any_more() {
    let mut cluster = Cluster::new(3);
    (1..=3).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.settle();
    let version = cluster.config.version;
    assert!(cluster.group(0).leave());
    cluster.run(device(0));
    cluster.deliver(device(0), device(1));
    assert!(cluster.group(0).leave(), "its successor has yet to claim the group");
    assert!(cluster.decide());
    assert_eq!((cluster.config.version, cluster.primary()), (version + 1, 1));
    assert!(cluster.group(0).leave(), "its successor has not said its first word");
    cluster.settle();
    assert!(cluster.group(0).leave(), "writes need it");
    cluster.run(device(0));
    cluster.settle();
    assert_eq!(cluster.config.in_sync, [device(1), device(2)].into());
    assert!(!cluster.group(0).leave());
    let _dead = cluster.kill(0);
    cluster.settle();
    cluster.beat();
    assert_eq!(cluster.state(1), GroupState::Active, "without any time passing");
    cluster.write(blocks(4, 4, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(4)], Ok(()));
}

#[test]
fn a_copy_of_a_busy_group_stops_when_it_is_not_needed_any_more() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    assert!(cluster.group(1).leave());
    cluster.run(device(1));
    // Until the configuration says otherwise, writes need it.
    cluster.deliver_answer(device(0), device(1));
    cluster.write(blocks(2, 0, 1)).unwrap();
    assert!(cluster.group(1).leave());
    assert!(cluster.decide());
    assert_eq!(cluster.config.in_sync, [device(0)].into());
    assert!(!cluster.group(1).leave());
}

#[test]
fn a_successor_that_never_hears_of_it_leaves_the_group_to_its_primary() {
    let mut cluster = Cluster::new(2);
    assert!(cluster.group(0).hand_over(device(1)));
    cluster.run(device(0));
    cluster.connect(device(0), device(1));
    assert_eq!(cluster.read(0, 0), Ok(0), "it serves on");
    cluster.pass(2 * SECOND);
    assert_eq!((cluster.primary(), cluster.state(0)), (0, GroupState::Active));
    let epoch = cluster.config.epoch;
    assert_eq!(cluster.group(0).epoch(), epoch);
    assert!(cluster.group(0).hand_over(device(1)), "it may be tried again");
}

#[test]
fn a_hand_over_without_the_configuration_store_stops_nobody() {
    for ack in [AckRule::All, AckRule::Majority] {
        let mut cluster = Cluster::with_rule(3, ack, &[]);
        cluster.store_away = true;
        assert!(cluster.group(0).hand_over(device(1)));
        cluster.run(device(0));
        for n in 1..=50 {
            cluster.write(blocks(n, n as u16, 1)).unwrap();
            cluster.pass(TICK);
            assert_eq!(cluster.answered[&RequestId(n)], Ok(()));
            assert_eq!(cluster.read(0, n as u16), Ok(n as u8), "after {n} ticks");
        }
        cluster.store_away = false;
        cluster.pass(TICK);
        assert_eq!((cluster.primary(), cluster.state(1)), (1, GroupState::Active), "within a tick");
        cluster.write(blocks(51, 0, 1)).unwrap();
        cluster.settle();
        assert_eq!((cluster.answered[&RequestId(51)], cluster.read(1, 7)), (Ok(()), Ok(7)));
        assert_eq!(cluster.config.in_sync.len(), 3);
    }
}

#[test]
fn what_was_on_its_way_at_a_hand_over_comes_to_the_successor() {
    for ack in [AckRule::All, AckRule::Majority] {
        let mut cluster = Cluster::with_rule(3, ack, &[]);
        assert!(cluster.group(0).hand_over(device(1)));
        cluster.run(device(0));
        assert!(cluster.deliver(device(0), device(1)));
        (1..=9).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
        while cluster.persist(device(0)) {}
        assert!(cluster.deliver(device(0), device(1)));
        // The claim stands, and the former primary has answered before the rest of its writes arrives.
        assert!(cluster.decide_without(device(0)));
        assert!(cluster.deliver(device(1), device(0)) && cluster.deliver_answer(device(1), device(0)));
        assert!(cluster.read(0, 0).is_err(), "it has stopped");
        cluster.settle();
        cluster.beat();
        assert_eq!((cluster.primary(), cluster.state(1)), (1, GroupState::Active));
        assert_eq!(cluster.order(1), (1..=9).map(RequestId).collect::<Vec<_>>());
        (1..=9).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
        assert!((1..=9).all(|n| cluster.answered[&RequestId(n)] == Ok(())), "each once");
        assert_eq!(cluster.history.len(), 9);
    }
}

/// Both copies never answer at once, whatever they answer.
fn one_primary(cluster: &mut Cluster) -> bool {
    let now = cluster.now;
    let serving = [cluster.group(0).is_serving(now), cluster.group(1).is_serving(now)];
    assert_ne!(serving, [true, true], "two primaries");
    serving[1]
}

#[test]
fn a_successor_that_the_former_primary_does_not_hear_waits_its_promise_out() {
    for ack in [AckRule::All, AckRule::Majority] {
        let mut cluster = Cluster::with_rule(3, ack, &[]);
        cluster.write(blocks(1, 1, 1)).unwrap();
        cluster.settle();
        cluster.beat();
        assert!(cluster.group(0).hand_over(device(1)));
        cluster.run(device(0));
        assert!(cluster.deliver(device(0), device(1)));
        assert!(cluster.decide_without(device(0)));
        cluster.isolate(0);
        let since = cluster.now;
        while !one_primary(&mut cluster) {
            assert!(cluster.now < since + 4 * SECOND, "it never reigns");
            cluster.tick_all(TICK);
            let _ = cluster.read(1, 1); // Somebody wants something.
            for (from, to) in [(1, 2), (2, 1)] {
                while cluster.deliver(device(from), device(to)) || cluster.deliver_answer(device(from), device(to)) {}
            }
            (1..3).for_each(|n| while cluster.persist(device(n)) {});
            cluster.decide_without(device(0));
            cluster.beat();
        }
        assert_eq!(cluster.read(1, 1), Ok(1));
    }
}

#[test]
fn a_claim_that_waits_for_the_store_does_not_stop_the_group() {
    let mut cluster = Cluster::new(2);
    cluster.store_away = true;
    // For a while they do not hear each other.
    cluster.isolate(1);
    for _ in 0..25 {
        cluster.tick_all(TICK);
    }
    assert!(cluster.read(0, 0).is_err());
    cluster.heal();
    cluster.settle();
    cluster.beat();
    for n in 1..=20 {
        cluster.write(blocks(n, n as u16, 1)).unwrap();
        cluster.pass(TICK);
        assert_eq!(cluster.answered[&RequestId(n)], Ok(()));
    }
    assert_eq!(cluster.read(0, 3), Ok(3));
    // The claim is made after all: it names a copy that has promised to follow another.
    assert!(cluster.decide_in_silence());
    cluster.store_away = false;
    assert_eq!((cluster.primary(), cluster.config.in_sync.len()), (1, 1));
    let version = cluster.config.version;
    cluster.group(1).proposal_done(version, true);
    cluster.run(device(1));
    let since = cluster.now;
    while !one_primary(&mut cluster) {
        assert!(cluster.now < since + 2 * SECOND, "it never reigns");
        cluster.tick_all(TICK);
        while cluster.persist(device(1)) {}
    }
    assert!(cluster.now >= since + LEASE);
    assert_eq!(cluster.order(1).len(), 20, "everything acknowledged");
    cluster.inform(0);
    cluster.pass(3 * SECOND);
    assert_eq!((cluster.config.in_sync.len(), cluster.map(0)), (2, cluster.map(1)));
}

#[test]
fn a_process_that_starts_keeps_the_promises_of_the_one_before_although_it_may_reign() {
    let mut cluster = Cluster::new(2);
    cluster.store_away = true;
    cluster.isolate(1);
    for _ in 0..25 {
        cluster.tick_all(TICK);
    }
    cluster.heal();
    cluster.settle();
    cluster.beat();
    assert_eq!(cluster.read(0, 0), Ok(0));
    assert!(cluster.decide_in_silence());
    cluster.store_away = false;
    // It promises once more, and dies; the next process is told that it reigns, alone.
    cluster.restart(1, 0);
    cluster.decide_without(device(0));
    while cluster.persist(device(1)) {}
    let since = cluster.now;
    while !one_primary(&mut cluster) {
        assert!(cluster.now < since + 2 * SECOND, "it never reigns");
        cluster.tick_all(TICK);
        while cluster.persist(device(1)) {}
    }
    assert!(cluster.now >= since + LEASE);
}

/// The former primary, copy 0, hears nobody any more and is heard by nobody. Copy 2 comes to reign, and never beside
/// it.
fn reigns_alone(cluster: &mut Cluster) {
    cluster.isolate(0);
    let since = cluster.now;
    loop {
        let now = cluster.now;
        let serving = [0, 2].map(|n| cluster.group(n).is_serving(now));
        assert_ne!(serving, [true, true], "two primaries after {:?}", now - since);
        if serving[1] {
            return;
        }
        assert!(now < since + 4 * SECOND, "it never reigns");
        for (from, to) in [(1, 2), (2, 1)] {
            while cluster.deliver(device(from), device(to)) || cluster.deliver_answer(device(from), device(to)) {}
        }
        (1..3).for_each(|n| while cluster.persist(device(n)) {});
        while cluster.decide_without(device(0)) {}
        cluster.beat();
        cluster.tick_all(TICK);
        let _ = cluster.read(2, 1); // Somebody wants something.
    }
}

#[test]
fn a_successor_of_one_that_never_reigned_keeps_its_promise_to_the_primary_before() {
    for ack in [AckRule::All, AckRule::Majority] {
        let mut cluster = Cluster::with_rule(3, ack, &[]);
        cluster.write(blocks(1, 1, 1)).unwrap();
        cluster.settle();
        cluster.beat();
        // The primary is missed. One copy claims the group; the other hears of that before it does, and nothing more.
        // Its connections stand: who has read of a newer epoch would not follow it on others.
        while !cluster.decide_in_silence() {
            cluster.tick_all(TICK);
            cluster.lose_proposals(0);
        }
        assert_eq!((cluster.primary(), cluster.config.epoch), (1, Epoch(3)));
        cluster.inform(2);
        while !cluster.decide_in_silence() {
            cluster.tick_all(TICK);
            cluster.lose_proposals(0);
        }
        assert_eq!((cluster.primary(), cluster.config.epoch), (2, Epoch(4)));
        // The primary is back before either knows what it has become.
        if ack == AckRule::Majority {
            cluster.disconnect(device(0), device(1));
        }
        cluster.beat();
        assert!(cluster.read(0, 1) == Ok(1), "enough follow it");
        let version = cluster.config.version;
        cluster.inform(1);
        cluster.group(2).proposal_done(version, true);
        cluster.run(device(2));
        reigns_alone(&mut cluster);
        assert_eq!(cluster.read(2, 1), Ok(1));
    }
}

#[test]
fn a_copy_that_is_handed_the_group_by_one_that_never_reigned_keeps_its_promise_to_the_primary_before() {
    let mut cluster = Cluster::new(3);
    cluster.write(blocks(1, 1, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    // One copy has more than the other when the primary is missed. The other claims the group.
    cluster.write(blocks(2, 2, 1)).unwrap();
    while cluster.persist(device(0)) || cluster.deliver(device(0), device(2)) || cluster.persist(device(2)) {}
    (0..3).for_each(|n| cluster.isolate(n));
    while !cluster.decide_in_silence() {
        cluster.tick_all(TICK);
        cluster.lose_proposals(0);
    }
    assert_eq!((cluster.primary(), cluster.config.epoch), (1, Epoch(3)));
    // The primary is back before it knows that it reigns.
    for n in [1, 2] {
        cluster.connect(device(0), device(n));
        cluster.connect(device(n), device(0));
        assert!(
            cluster.deliver(device(0), device(n)) && cluster.deliver_answer(device(0), device(n)),
            "it says how far it is"
        );
    }
    cluster.beat();
    assert_eq!(cluster.read(0, 1), Ok(1), "both follow it");
    for (from, to) in [(1, 2), (2, 1)] {
        cluster.connect(device(from), device(to));
    }
    let version = cluster.config.version;
    cluster.group(1).proposal_done(version, true);
    cluster.run(device(1));
    reigns_alone(&mut cluster);
    assert_eq!((cluster.primary(), cluster.read(2, 2)), (2, Ok(2)));
}
