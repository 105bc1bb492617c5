//! How complete a copy says that it is, while it is brought up to date.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// The copy is cut off until it is left behind, and a block is written meanwhile.
fn leave_behind(cluster: &mut Cluster, n: u32, request: u64) {
    cluster.isolate(n);
    cluster.write(blocks(request, request as u16, 1)).unwrap();
    cluster.pass(2 * SECOND);
    assert!(!cluster.config.in_sync.contains(&device(n)));
}

/// Two copies. The second has been in sync for a moment, was left behind once more, and is being brought up to date.
/// Gives the configuration of that moment, of which it has not heard.
fn learning_again() -> (Cluster, GroupConfig) {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 1, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    leave_behind(&mut cluster, 1, 2);
    cluster.deaf.insert(device(1));
    cluster.heal();
    cluster.pass(2 * SECOND);
    let in_sync = cluster.config.clone();
    assert!(in_sync.in_sync.contains(&device(1)));
    leave_behind(&mut cluster, 1, 3);
    cluster.heal();
    cluster.tick_all(TICK);
    while cluster.deliver(device(0), device(1)) || cluster.persist(device(1)) {}
    assert_eq!(cluster.group(1).committed(), Sequence(3), "it has jumped");
    assert_eq!(cluster.map(1).len(), 2, "and lacks a block");
    (cluster, in_sync)
}

#[test]
fn a_copy_that_lost_repairs_after_late_news_says_so() {
    let (mut cluster, in_sync) = learning_again();
    cluster.group(1).configure(in_sync);
    cluster.run(device(1));
    while cluster.persist(device(1)) {}
    let disk = cluster.disk(1);
    cluster.deaf.clear();
    cluster.pass(2 * SECOND);
    assert_eq!((cluster.config.in_sync.len(), cluster.map(1)), (2, cluster.map(0)));
    // The device has lost the end of its log, which it had called durable: the repair is gone.
    cluster.lose_the_end(1, disk);
    assert_eq!(cluster.map(1).len(), 2);
    cluster.pass(3 * SECOND);
    assert_eq!((cluster.config.in_sync.len(), cluster.map(1)), (2, cluster.map(0)));
}

#[test]
fn a_copy_that_lacks_repairs_is_not_whole_for_late_news() {
    let (mut cluster, in_sync) = learning_again();
    cluster.group(1).configure(in_sync);
    cluster.run(device(1));
    assert!(!cluster.group(1).is_whole(), "layers must not be merged here yet");
    cluster.deaf.clear();
    cluster.pass(2 * SECOND);
    assert!(cluster.group(1).is_whole());
}

#[test]
fn a_copy_that_has_everything_is_complete() {
    let (mut cluster, _) = learning_again();
    cluster.deaf.clear();
    cluster.pass(2 * SECOND);
    let disk = cluster.disk(1);
    let repaired = cluster.repaired;
    assert!(cluster.group(0).is_whole() && cluster.group(1).is_whole());
    cluster.lose_the_end(1, disk);
    assert!(!cluster.group(1).is_whole(), "its primary has not told what it lacks");
    cluster.pass(3 * SECOND);
    assert!(cluster.group(1).is_whole());
    assert_eq!((cluster.config.in_sync.len(), cluster.repaired), (2, repaired), "there was nothing to repair");
}
