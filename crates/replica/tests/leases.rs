//! Who gets a lease to answer readers, and whose promise counts.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_replica::*;
use std::time::Duration;

/// The change may stand, and a primary that has read it waits for no reader there.
#[test]
fn a_copy_that_is_left_out_by_a_change_in_doubt_gets_no_lease_for_readers() {
    let mut cluster = Cluster::new(3);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    assert!(cluster.read(1, 0).is_ok() && cluster.read(2, 0).is_ok());
    cluster.store_away = true;
    cluster.isolate(1);
    cluster.write(blocks(2, 0, 1)).unwrap();
    cluster.pass(Duration::from_millis(1300));
    assert!(cluster.decide_in_silence(), "a copy that is silent while a write waits is left out");
    assert_eq!(cluster.config.in_sync, [device(0), device(2)].into());
    cluster.heal();
    cluster.settle();
    cluster.beat();
    assert!(cluster.read(2, 0).is_ok(), "others keep theirs");
    assert!(cluster.read(1, 0).is_err());
}

/// The claim may stand, and who claims the group next takes this copy out without waiting for its readers.
#[test]
fn a_copy_that_claims_the_group_answers_no_reader() {
    let mut cluster = Cluster::new(3);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    cluster.store_away = true;
    cluster.isolate(1);
    cluster.pass(Duration::from_millis(1700));
    assert!(cluster.decide_in_silence());
    assert_eq!(cluster.primary(), 1);
    cluster.heal();
    cluster.settle();
    cluster.beat();
    assert!(cluster.read(1, 0).is_err(), "it follows the former primary, and may have been followed by another");
    cluster.store_away = false;
    cluster.inform(1);
    cluster.inform(0);
    cluster.inform(2);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(cluster.state(1), GroupState::Active);
}

#[test]
fn a_promise_to_an_earlier_reign_counts_for_no_later_one() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.pass(Duration::from_secs(1));
    let sent = cluster.now;
    for (from, to) in [(0, 1), (1, 0)] {
        cluster.pass(Duration::from_millis(200));
        assert!(cluster.group(from).hand_over(device(to)));
        cluster.run(device(from));
        cluster.settle();
        cluster.tick_all(TICK);
        cluster.settle();
        assert_eq!(cluster.primary(), to);
    }
    assert!(cluster.read(0, 0).is_err(), "nobody has promised anything yet");
    let now = cluster.now;
    cluster.group(0).heartbeat_ok(device(1), sent, false, now);
    assert!(cluster.read(0, 0).is_err(), "that was a promise for the first reign");
    cluster.beat();
    assert!(cluster.read(0, 0).is_ok());
}
