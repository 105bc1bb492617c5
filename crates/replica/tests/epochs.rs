//! Restarts, epochs and leases: nothing acknowledged is lost, nothing stale is read.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use azekura_wire::{Learn, Message, NewEpoch, NewEpochOk};
use std::time::Duration;

#[test]
fn a_secondary_that_restarts_keeps_its_tail_and_gets_only_the_rest() {
    let mut cluster = Cluster::new(2);
    (1..=5).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    (0..4).for_each(|_| assert!(cluster.deliver(device(0), device(1))));
    cluster.restart(1, 3);
    cluster.prepares.clear();
    cluster.reconnect(1);
    cluster.settle();
    assert_eq!(cluster.prepares, [(device(1), Sequence(4)), (device(1), Sequence(5))]);
    assert_eq!(cluster.answered.len(), 5);
    assert_eq!(cluster.state(1), GroupState::WithoutPrimary, "a lease does not outlive the process");
    cluster.beat();
    assert_eq!(cluster.state(1), GroupState::Following);
    assert_eq!(cluster.order(1), cluster.order(0));
}

#[test]
fn a_primary_that_restarts_commits_its_tail_before_anybody_reads() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(1)], Ok(()), "acknowledged, and no log knows that it is committed");
    cluster.restart(0, 0);
    assert_eq!((cluster.committed(0), cluster.group(0).prepared()), (0, Sequence(1)));
    cluster.reconnect(0);
    // The secondary follows the new epoch and has the whole tail; the primary does not know that yet.
    assert!(cluster.decide());
    assert!(cluster.deliver(device(0), device(1)));
    cluster.beat();
    assert_eq!(cluster.read(0, 0), Err(IoStatus::Redirect), "zeros would be stale");
    assert_eq!(cluster.read(1, 0), Err(IoStatus::Redirect), "zeros would be stale");
    cluster.settle();
    cluster.beat();
    assert_eq!((cluster.read(0, 0), cluster.read(1, 0)), (Ok(1), Ok(1)));
}

#[test]
fn a_primary_that_restarts_again_and_again_never_runs_ahead_of_its_secondary() {
    for steps in 0..12 {
        let mut cluster = Cluster::new(2);
        (1..=2).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
        while cluster.persist(device(0)) {}
        for _ in 0..3 {
            cluster.restart(0, usize::MAX);
            cluster.reconnect(0);
            for _ in 0..steps {
                let _ = cluster.decide()
                    || cluster.persist(device(0))
                    || cluster.deliver(device(0), device(1))
                    || cluster.persist(device(1))
                    || cluster.deliver_answer(device(0), device(1));
            }
        }
        // What a process that never got as far as recording its epoch may have promised is waited out.
        cluster.pass(GRACE + LEASE);
        assert_eq!(cluster.state(0), GroupState::Active, "after {steps} steps");
        assert_eq!((cluster.committed(0), cluster.committed(1)), (2, 2));
    }
}

#[test]
fn what_only_a_secondary_has_is_committed_when_the_primary_has_lost_it() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.deliver(device(0), device(1));
    cluster.persist(device(1));
    cluster.restart(0, 0);
    cluster.reconnect(0);
    cluster.settle();
    // The secondary may have been told to acknowledge it, had there been more time: it reigns now.
    assert_eq!(cluster.primary(), 1);
    cluster.write(blocks(2, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    let both = [1, 2].map(RequestId);
    assert_eq!((cluster.order(0), cluster.order(1)), (both.to_vec(), both.to_vec()));
}

#[test]
fn writes_retried_after_a_restart_are_applied_once() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.write(blocks(2, 0, 1)).unwrap();
    cluster.settle();
    // Both copies restart: request 1 is known from the log to be committed, 2 is in the tail.
    cluster.restart(1, usize::MAX);
    cluster.restart(0, usize::MAX);
    cluster.answered.clear();
    cluster.reconnect(0);
    cluster.settle();
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.write(blocks(2, 0, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.order(0), [1, 2].map(RequestId));
    assert!((1..=2).all(|n| cluster.answered[&RequestId(n)] == Ok(())), "{:?}", cluster.answered);
}

#[test]
fn a_note_keeps_what_is_committed() {
    let mut cluster = Cluster::new(1);
    (1..=3).for_each(|n| cluster.write(blocks(n, 0, 1)).unwrap());
    cluster.settle();
    let note = cluster.group(0).note();
    let recovered = Recovered { epoch: Epoch(2), committed: Sequence(3), note, ..Recovered::default() };
    let mut group = Group::new(PG, device(0), 99, cluster.config.clone(), recovered, cluster.now);
    group.proposal_done(cluster.config.version + 1, true);
    group.write(GATEWAY, blocks(2, 0, 1), false).unwrap();
    let answers = std::iter::from_fn(|| group.next_action());
    let answer = Action::AnswerWrite(GATEWAY, RequestId(2), Ok(()));
    assert!(answers.into_iter().any(|action| action == answer));
}

#[test]
fn leases_end_by_themselves() {
    let mut cluster = Cluster::new(2);
    assert_eq!((cluster.read(0, 0), cluster.read(1, 0)), (Ok(0), Ok(0)));
    cluster.now += LEASE;
    assert_eq!(cluster.read(0, 0), Err(IoStatus::Redirect), "somebody else may be primary");
    assert_eq!(cluster.read(1, 0), Err(IoStatus::Redirect), "writes may be committed without this copy");
    assert_eq!(cluster.state(1), GroupState::WithoutPrimary);
    cluster.beat();
    assert_eq!((cluster.read(0, 0), cluster.read(1, 0)), (Ok(0), Ok(0)));
}

#[test]
fn a_heartbeat_of_another_epoch_gives_no_lease() {
    let mut cluster = Cluster::new(2);
    let (epoch, later) = (cluster.config.epoch, cluster.now + Duration::from_secs(100));
    assert!(!cluster.group(1).heartbeat(Epoch(epoch.0 - 1), Sequence(0), Sequence(0), later, Duration::ZERO));
    assert!(!cluster.group(1).heartbeat(epoch.next(), Sequence(0), Sequence(0), later, Duration::ZERO));
    cluster.now += LEASE;
    assert_eq!(cluster.read(1, 0), Err(IoStatus::Redirect));
}

#[test]
fn an_older_primary_is_refused() {
    let mut cluster = Cluster::new(2);
    let old = NewEpoch {
        pg: PG,
        device: device(1),
        epoch: Epoch(1),
        committed: Sequence(0),
        opens_at: None,
        recorded: Epoch(1),
        ended: Epoch(0),
    };
    cluster.group(1).new_epoch(Client::Conn(99), old);
    let epoch = cluster.config.epoch;
    let refusal = NewEpochOk {
        pg: PG,
        device: device(1),
        epoch,
        prepared: Sequence(0),
        open: false,
        full: false,
        recorded: epoch,
        committed: Sequence(0),
    };
    let action = cluster.group(1).next_action();
    assert_eq!(action, Some(Action::Answer(Client::Conn(99), Message::NewEpochOk(refusal))));
    assert_eq!(cluster.group(1).epoch(), epoch);
}

/// Its own log knows no later epoch than the one that it is asked for; the configuration does.
#[test]
fn an_older_primary_is_refused_after_a_restart() {
    for rule in [AckRule::All, AckRule::Majority] {
        let mut cluster = Cluster::with_rule(3, rule, &[]);
        cluster.write(blocks(1, 0, 1)).unwrap();
        cluster.settle();
        let (old, base) = (cluster.config.epoch, Sequence(1));
        assert_eq!(cluster.disk(1).epoch, old);
        cluster.config.epoch = old.next();
        cluster.config.version += 1;
        cluster.config.primary = device(2);
        let news = |epoch| NewEpoch {
            pg: PG,
            device: device(1),
            epoch,
            committed: base,
            opens_at: None,
            recorded: epoch,
            ended: Epoch(0),
        };
        let (note, note_checksum) = (bytes::Bytes::new(), checksum(&[]));
        let learn = Learn { pg: PG, device: device(1), epoch: old, since: base, base, note_checksum, note };
        for is_learn in [false, true] {
            cluster.restart(1, 0);
            while cluster.group(1).next_action().is_some() {}
            match is_learn {
                false => cluster.group(1).new_epoch(Client::Conn(99), news(old)),
                true => cluster.group(1).learn(Client::Conn(99), learn.clone()).unwrap(),
            }
            let answer = cluster.group(1).next_action();
            let Some(Action::Answer(Client::Conn(99), Message::NewEpochOk(refusal))) = answer else {
                panic!("{rule:?}, to learn: {is_learn}: {answer:?}")
            };
            assert_eq!((refusal.epoch, refusal.open), (old.next(), false), "what it would follow");
            assert_eq!(cluster.group(1).next_action(), None, "nothing is recorded");
        }
    }
}

#[test]
fn a_newer_primary_makes_the_older_step_down() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    let epoch = cluster.config.epoch.next();
    let version = cluster.config.version + 1;
    let config =
        GroupConfig { version, epoch, primary: device(1), primary_incarnation: Some(77), ..cluster.config.clone() };
    cluster.group(0).configure(config);
    cluster.run(device(0));
    assert_eq!(cluster.answered[&RequestId(1)], Err(IoStatus::Redirect), "the client asks again elsewhere");
    assert!(!cluster.group(0).is_primary());
    assert_eq!(cluster.read(0, 0), Err(IoStatus::Redirect));
}

#[test]
fn a_refused_proposal_is_made_anew_with_a_later_epoch() {
    let mut cluster = Cluster::new(2);
    cluster.restart(0, 0);
    // Somebody else was faster: an earlier life of this process.
    cluster.config.epoch = cluster.config.epoch.next();
    cluster.reconnect(0);
    cluster.settle();
    cluster.beat();
    assert_eq!(cluster.state(0), GroupState::Active);
    assert_eq!(cluster.group(1).epoch(), cluster.config.epoch);
}

#[test]
fn a_copy_that_has_lost_its_data_is_noticed() {
    let mut cluster = Cluster::new(2);
    (1..=3).for_each(|n| cluster.write(blocks(n, 0, 1)).unwrap());
    cluster.settle();
    cluster.restart(1, 0);
    let empty = Group::new(PG, device(1), 99, cluster.config.clone(), Recovered::default(), cluster.now);
    *cluster.group(1) = empty;
    cluster.reconnect(1);
    let epoch = cluster.config.epoch;
    let lost = NewEpochOk {
        pg: PG,
        device: device(1),
        epoch,
        prepared: Sequence(0),
        open: true,
        full: false,
        recorded: epoch,
        committed: Sequence(0),
    };
    cluster.group(0).new_epoch_ok(device(1), lost);
    assert_eq!(cluster.state(0), GroupState::CopyLost(device(1)));
}

#[test]
fn a_copy_that_is_given_up_sends_its_clients_away() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.write(bytes(2, 5000, 10)).unwrap();
    cluster.write(bytes(3, 5000, 10)).unwrap();
    cluster.group(0).close();
    cluster.run(device(0));
    assert!((1..=3).all(|n| cluster.answered[&RequestId(n)] == Err(IoStatus::Redirect)), "{:?}", cluster.answered);
}
