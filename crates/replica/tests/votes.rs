//! A copy that has agreed to follow a new epoch never helps an older primary again, also not after a restart.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use std::time::Duration;

/// Copy 1 claims the group while copy 0, the primary, can reach neither it nor the configuration store. Ends when copy
/// 2 has answered copy 1 and the configuration names both of these, before copy 2 has recorded the new epoch.
fn voted(rule: AckRule) -> Cluster {
    let mut cluster = Cluster::with_rule(3, rule, &["a", "b", "b"]);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    let before = cluster.config.epoch;
    cluster.disconnect(device(0), device(1));
    cluster.disconnect(device(1), device(0));
    for _ in 0..60 {
        cluster.tick_all(TICK);
        cluster.beat();
        while cluster.decide_without(device(0)) {}
        while cluster.deliver(device(1), device(2)) {
            if cluster.group(1).config().epoch > before && cluster.config.in_sync.len() == 2 {
                return cluster;
            }
        }
        while cluster.persist(device(1)) {}
        while cluster.deliver_answer(device(1), device(2)) {}
    }
    panic!("copy 1 gathers copy 2: {:?}", cluster.config);
}

/// The former primary, which knows of nothing, dials copy 2 again and goes on with it.
fn former_primary_asks(cluster: &mut Cluster) {
    cluster.connect(device(0), device(2));
    cluster.connect(device(2), device(0));
    for _ in 0..5 {
        while cluster.deliver(device(0), device(2)) {}
        while cluster.persist(device(2)) {}
        while cluster.deliver_answer(device(0), device(2)) {}
        cluster.tick_all(TICK);
        cluster.beat();
    }
}

fn a_vote_survives_a_restart(rule: AckRule) {
    let mut cluster = voted(rule);
    cluster.restart(2, 0);
    former_primary_asks(&mut cluster);
    cluster.write_to(0, blocks(2, 1, 1));
    while cluster.persist(device(0)) {}
    former_primary_asks(&mut cluster);
    let acknowledged = cluster.answered.get(&RequestId(2)) == Some(&Ok(()));
    assert_eq!(cluster.read(0, 0), Err(IoStatus::Redirect), "nobody who counts is bound to it");
    cluster.heal();
    cluster.pass(Duration::from_secs(15));
    let applied = cluster.history.values().any(|(_, request)| *request == RequestId(2));
    assert!(applied || !acknowledged, "an acknowledged write is lost");
    assert!(!acknowledged, "a primary of the past has acknowledged a write");
    assert_eq!((cluster.primary(), cluster.config.in_sync.len()), (1, 3));
    assert!((0..3).all(|n| cluster.map(n) == cluster.map(1)));
}

#[test]
fn a_vote_survives_a_restart_under_majority() {
    a_vote_survives_a_restart(AckRule::Majority);
}

#[test]
fn a_vote_survives_a_restart_under_each_site() {
    a_vote_survives_a_restart(AckRule::EachSite);
}

/// What an earlier process of the copy may have promised to the former primary still holds: the new one waits it out.
#[test]
fn a_restarted_copy_makes_the_new_primary_wait_for_what_it_may_have_promised() {
    let mut cluster = voted(AckRule::Majority);
    cluster.restart(2, 0);
    cluster.connect(device(1), device(2));
    cluster.connect(device(2), device(1));
    let restarted = cluster.now;
    while !cluster.group(1).is_primary() {
        cluster.tick_all(TICK);
        for _ in 0..5 {
            while cluster.decide_without(device(0)) {}
            for n in [1, 2] {
                while cluster.persist(device(n)) {}
            }
            while cluster.deliver(device(1), device(2)) {}
            while cluster.deliver_answer(device(1), device(2)) {}
        }
        assert!(cluster.now < restarted + Duration::from_secs(10), "it opens");
    }
    assert!(cluster.now >= restarted + GRACE, "the promise of the process before had not run out");
}

/// What should never come about: the configuration was set back, and a copy has committed three writes that the group
/// has forgotten. The other copy, which was in sync then, reigns alone.
fn set_back() -> Cluster {
    let mut cluster = Cluster::new(2);
    cluster.isolate(1);
    (1..=3).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.pass(Duration::from_secs(3));
    assert_eq!((cluster.committed(0), cluster.config.in_sync.len()), (3, 1));
    let (version, epoch) = (cluster.config.version + 1, cluster.config.epoch.next());
    let in_sync = [device(1)].into();
    let away = [(device(0), Sequence(0))].into();
    cluster.config = GroupConfig {
        version,
        epoch,
        primary: device(1),
        primary_incarnation: None,
        in_sync,
        away,
        ..cluster.config.clone()
    };
    cluster.inform(0);
    cluster.inform(1);
    cluster.pass(Duration::from_secs(3));
    assert!(cluster.group(1).is_primary());
    cluster.history.clear();
    cluster
}

#[test]
fn a_copy_that_has_committed_more_than_its_primary_is_left_alone_and_people_are_told() {
    let mut cluster = set_back();
    cluster.heal();
    cluster.pass(Duration::from_secs(5));
    assert_eq!((cluster.primary(), cluster.state(1)), (1, GroupState::CopyAhead(device(0))));
    assert_eq!((cluster.committed(0), cluster.order(0).len()), (3, 3), "nothing of it is dropped");
}

/// The primary has ordered as many writes by then, and their places come right behind what the copy holds.
#[test]
fn a_copy_that_is_ahead_takes_nothing_that_comes_behind_its_refusal() {
    let mut cluster = set_back();
    (4..=7).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.heal();
    cluster.tick_all(TICK);
    while cluster.deliver(device(1), device(0)) {}
    cluster.pass(Duration::from_secs(1));
    assert_eq!((cluster.group(0).prepared(), cluster.committed(0)), (Sequence(3), 3));
}

/// Places alone would say that the copy lacks something: its first writes are others than the group's.
#[test]
fn a_copy_that_was_ahead_is_left_alone_when_the_group_has_written_as_much() {
    let mut cluster = set_back();
    cluster.heal();
    cluster.pass(Duration::from_secs(1));
    (11..=20).for_each(|n| cluster.write(blocks(n, n as u16, 1)).unwrap());
    cluster.pass(Duration::from_secs(30));
    assert_eq!((cluster.committed(1), cluster.state(1)), (10, GroupState::CopyAhead(device(0))));
    assert_eq!((cluster.committed(0), cluster.map(0).len()), (3, 3), "it is as it was");
}

/// A secondary must not drop what it has prepared in an older epoch beyond the place at which the new one begins.
#[test]
fn a_copy_that_holds_more_than_the_epoch_begins_with_says_so() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 1, 1)).unwrap();
    while cluster.deliver(device(0), device(1)) {}
    while cluster.persist(device(1)) {}
    let (epoch, recorded) = (cluster.config.epoch.next(), cluster.config.epoch);
    let opens_at = Some(Sequence(0));
    let (committed, ended) = (Sequence(0), recorded);
    let news = azekura_wire::NewEpoch { pg: PG, device: device(1), epoch, committed, opens_at, recorded: epoch, ended };
    let from = Client::Conn(77);
    cluster.group(1).new_epoch(from, news);
    let mut answers = std::iter::from_fn(|| cluster.group(1).next_action());
    let said = answers.find_map(|action| match action {
        Action::Answer(to, azekura_wire::Message::NewEpochOk(ok)) if to == from => Some((ok.prepared, ok.open)),
        Action::StartEpoch { .. } => panic!("it forgets what it holds"),
        _ => None,
    });
    assert_eq!(said, Some((Sequence(1), false)));
}

/// Copy 2 is invited to reign and hears late that its claim stands; until then it promises copy 0 to follow nobody
/// else. Copy 1, which does not hear copy 0, has claimed the next epoch meanwhile.
fn a_claimant_keeps_its_promise(rule: AckRule) {
    let mut cluster = Cluster::with_rule(3, rule, &["a", "a", "b"]);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.tick_all(TICK);
    cluster.beat();
    cluster.disconnect(device(0), device(1));
    cluster.disconnect(device(1), device(0));
    assert!(cluster.group(0).hand_over(device(2)));
    cluster.run(device(0));
    while cluster.deliver(device(0), device(2)) {}
    assert!(cluster.decide_in_silence(), "copy 2 claims");
    let claimed = cluster.config.version;
    cluster.inform(1);
    while !cluster.decide_in_silence() {
        cluster.tick_all(TICK);
        cluster.beat();
    }
    assert_eq!(cluster.primary(), 1, "copy 1 claims the epoch behind it");
    cluster.group(2).proposal_done(claimed, true);
    cluster.run(device(2));
    cluster.disconnect(device(0), device(2));
    cluster.disconnect(device(2), device(0));
    cluster.group(1).proposal_done(claimed + 1, true);
    cluster.run(device(1));
    let cut_off = cluster.now;
    while !cluster.group(1).is_primary() {
        for _ in 0..5 {
            while cluster.deliver(device(1), device(2)) {}
            while cluster.persist(device(1)) | cluster.persist(device(2)) {}
            while cluster.deliver_answer(device(1), device(2)) {}
            while cluster.decide_without(device(0)) {}
        }
        cluster.beat();
        let now = cluster.now;
        let serving: Vec<u32> = (0..3).filter(|n| cluster.group(*n).is_serving(now)).collect();
        assert!(serving.len() < 2, "{serving:?} serve at once");
        cluster.tick_all(TICK);
        assert!(cluster.now < cut_off + Duration::from_secs(10), "it opens");
    }
    assert!(cluster.now >= cut_off + GRACE, "the promise of copy 2 had not run out");
}

#[test]
fn a_claimant_keeps_its_promise_under_majority() {
    a_claimant_keeps_its_promise(AckRule::Majority);
}

#[test]
fn a_claimant_keeps_its_promise_under_each_site() {
    a_claimant_keeps_its_promise(AckRule::EachSite);
}

/// The primary that a copy follows begins anew on the same connection, as one does that brings the copy up to date,
/// when the copy knows of a newer epoch: it is refused, and what it sends after that is nothing to complain of.
#[test]
fn what_a_refused_primary_sends_next_is_left_over() {
    let mut cluster = Cluster::new(2);
    let (epoch, from) = (cluster.config.epoch.next(), Client::Conn(77));
    let (pg, device, committed) = (PG, device(1), Sequence(0));
    let news = azekura_wire::NewEpoch {
        pg,
        device,
        epoch,
        committed,
        opens_at: None,
        recorded: epoch,
        ended: Epoch::BEFORE_ALL,
    };
    cluster.group(1).new_epoch(from, news);
    cluster.config.version += 1;
    cluster.config.epoch = epoch.next();
    cluster.inform(1);
    cluster.group(1).new_epoch(from, news);
    let header = WriteHeader {
        pg,
        epoch,
        sequence: Sequence(9),
        commit: Sequence(0),
        session: SESSION,
        request: RequestId(1),
        range: BlockRange::block(LAYER, ChunkIndex(0), BlockIndex(0)),
    };
    let prepare = azekura_wire::Prepare { device, oldest: RequestId(0), header, body: Body::Zero };
    assert_eq!(cluster.group(1).prepare(from, prepare, false), Ok(()));
}
