//! Who gets a lease to answer readers, and whose promise counts.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
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

/// A copy's leave crosses a question of its primary, and the copy goes on after all: the primary does not know that it
/// may answer readers again. Nobody has written for a while, so it is not left behind before the next write.
#[test]
fn a_copy_whose_leave_has_crossed_a_question_answers_no_reader_with_what_is_old() {
    for leased_before in [false, true] {
        let mut cluster = Cluster::new(3);
        cluster.write(blocks(1, 0, 1)).unwrap();
        cluster.settle();
        cluster.pass(Duration::from_secs(6));
        cluster.connect(device(0), device(1));
        for _ in 0..9 {
            cluster.now += TICK;
            let now = cluster.now;
            cluster.group(0).tick(now);
            cluster.run(device(0));
        }
        // The first of two questions is answered; the second is on its way.
        assert!(cluster.deliver(device(0), device(1)));
        assert!(cluster.deliver_answer(device(0), device(1)));
        if !leased_before {
            cluster.hang(1, true);
            cluster.hang(1, false);
        }
        cluster.beat();
        if leased_before {
            // What the primary has just sent is not there yet when the copy takes leave.
            cluster.hang(1, true);
            cluster.hang(1, false);
        }
        assert!(cluster.deliver(device(0), device(1)), "the second question");
        if leased_before {
            let (epoch, committed, now) = (cluster.group(0).epoch(), cluster.group(0).committed(), cluster.now);
            assert!(cluster.group(1).heartbeat(epoch, committed, committed, now + LEASE, now));
            assert!(cluster.read(1, 0).is_ok());
        }
        while cluster.deliver_answer(device(0), device(1)) {}
        cluster.beat();
        cluster.write(blocks(2, 0, 1)).unwrap();
        for _ in 0..30 {
            // The copy hears nothing more of what is written.
            cluster.tick_all(TICK / 10);
            while cluster.decide()
                | cluster.persist(device(0))
                | cluster.deliver(device(0), device(2))
                | cluster.persist(device(2))
                | cluster.deliver_answer(device(0), device(2))
            {}
            let acknowledged = cluster.answered.get(&RequestId(2)) == Some(&Ok(()));
            assert!(!acknowledged || cluster.read(1, 0) != Ok(1), "{leased_before}: acknowledged, and not read");
        }
    }
}
