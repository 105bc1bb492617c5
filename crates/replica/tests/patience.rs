//! Copies that are well are not left behind: what a primary has not heard for its own sake, or has not asked for, says
//! nothing of them.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// The primary's process stands still while a write waits. The first thing that it hears afterwards is that one copy
/// takes leave; what the others have said is behind that.
#[test]
fn a_copy_that_takes_leave_after_a_stall_of_the_primary_takes_no_other_along() {
    let mut cluster = Cluster::new(3);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    cluster.write(blocks(2, 0, 1)).unwrap();
    cluster.group(1).leave();
    cluster.run(device(1));
    cluster.now += 5 * SECOND;
    let now = cluster.now;
    cluster.group(0).advance(now);
    while cluster.deliver_answer(device(0), device(1)) {}
    assert!(cluster.decide(), "nobody waits for the copy that takes leave");
    assert_eq!(cluster.config.in_sync, [device(0), device(2)].into());
}

/// A primary's process stands still for longer than a copy may be slow, while one copy has a write to make durable.
#[test]
fn a_stall_of_the_primary_makes_no_copy_slow() {
    for answers_first in [false, true] {
        let mut cluster = Cluster::new(3);
        (1..=20).for_each(|n| {
            cluster.write(blocks(n, 0, 1)).unwrap();
            cluster.settle();
            cluster.pass(TICK);
        });
        cluster.hanging.insert(device(1));
        cluster.write(blocks(21, 0, 1)).unwrap();
        cluster.settle();
        // For a moment it is slower than the others.
        cluster.pass(3 * TICK);
        cluster.hanging.remove(&device(1));
        cluster.now += 15 * SECOND;
        if answers_first {
            let now = cluster.now;
            cluster.group(0).advance(now);
            cluster.settle();
        }
        for n in 22..=40 {
            cluster.tick_all(TICK);
            cluster.settle();
            cluster.write(blocks(n, 0, 1)).unwrap();
            cluster.settle();
            cluster.pass(9 * TICK);
            assert_eq!(cluster.config.in_sync.len(), 3, "{answers_first} {n}");
        }
        assert!(cluster.reported.is_empty(), "{:?}", cluster.reported);
    }
}

/// A new primary waits three seconds for the first word of a copy that is gone. The other one has said how far it is at
/// once, and nobody has asked it anything since.
#[test]
fn a_new_primary_that_waits_for_a_copy_in_vain_keeps_those_that_have_answered() {
    for rule in [AckRule::All, AckRule::Majority] {
        let mut cluster = Cluster::with_rule(4, rule, &[]);
        cluster.write(blocks(1, 0, 1)).unwrap();
        cluster.settle();
        cluster.beat();
        drop(cluster.kill(0));
        drop(cluster.kill(3));
        for _ in 0..80 {
            cluster.pass(TICK);
            let _ = (cluster.read(1, 0), cluster.read(2, 0));
            assert!(cluster.config.in_sync.is_superset(&[device(1), device(2)].into()), "{rule:?} {:?}", cluster.now);
        }
        assert_eq!(cluster.state(cluster.primary()), GroupState::Active);
        assert_eq!(cluster.config.in_sync, [device(1), device(2)].into(), "{rule:?}");
    }
}

/// What a new primary has prepared before, and can't read for a moment, another copy is sent when it can be read.
#[test]
fn a_prepared_write_that_could_not_be_read_is_read_again() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.restart(0, 1);
    cluster.unreadable_logs = [device(0)].into();
    cluster.reconnect(0);
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.committed(0), 0);
    cluster.unreadable_logs.clear();
    cluster.pass(SECOND / 2);
    assert_eq!((cluster.state(0), cluster.config.in_sync.len()), (GroupState::Active, 2));
    assert_eq!((cluster.committed(0), cluster.map(0)), (1, cluster.map(1)));
}
