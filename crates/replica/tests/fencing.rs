//! What keeps copies that can't hear each other, or the configuration, from contradicting each other.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use azekura_wire::Learn;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_primary_that_another_may_replace_lets_nobody_answer_readers() {
    let mut cluster = Cluster::new(3);
    cluster.beat();
    assert_eq!(cluster.read(2, 0), Ok(0));
    // The second copy is cut off from both others and could reign; they hear each other, and no configuration.
    cluster.isolate(1);
    for _ in 0..30 {
        cluster.tick_all(TICK);
        cluster.beat();
    }
    assert_eq!(cluster.read(0, 0), Err(IoStatus::Redirect));
    assert_eq!(cluster.read(2, 0), Err(IoStatus::Redirect));
}

#[test]
fn a_copy_leaves_the_configuration_only_when_it_answers_no_reader() {
    let mut cluster = Cluster::new(2);
    cluster.beat();
    cluster.isolate(1);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.persist(device(0));
    for _ in 0..30 {
        cluster.tick_all(TICK);
        while cluster.decide() {}
        let left = !cluster.config.in_sync.contains(&device(1));
        assert!(!left || cluster.read(1, 0) == Err(IoStatus::Redirect), "it answers readers");
        if left {
            return;
        }
    }
    panic!("it was never left behind");
}

#[test]
fn a_copy_that_the_configuration_may_name_is_not_given_up_unheard() {
    let mut cluster = Cluster::new(2);
    cluster.isolate(1);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.pass(3 * SECOND);
    assert_eq!(cluster.config.in_sync, [device(0)].into());
    cluster.heal();
    for _ in 0..200 {
        cluster.tick_all(TICK / 10);
        for n in 0..2 {
            while cluster.persist(device(n)) || cluster.load(device(n)) {}
            while cluster.deliver(device(n), device(1 - n)) || cluster.deliver_answer(device(n), device(1 - n)) {}
        }
        cluster.beat();
        // The copy is named in sync; its primary hears that its proposal was refused, and not what stands.
        if cluster.decide_unheard() {
            break;
        }
    }
    assert!(cluster.config.in_sync.contains(&device(1)), "{:?}", cluster.config);
    cluster.isolate(1);
    for _ in 0..30 {
        cluster.tick_all(TICK);
    }
    cluster.write(blocks(2, 1, 1)).unwrap();
    while cluster.persist(device(0)) {}
    assert!(!cluster.answered.contains_key(&RequestId(2)), "acknowledged without a copy that could reign");
}

#[test]
fn a_copy_that_learns_answers_no_reader() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    assert_eq!(cluster.read(1, 0), Ok(1));
    let (epoch, base) = (cluster.group(0).epoch(), Sequence(5));
    let note = bytes::Bytes::new();
    let note_checksum = checksum(&note);
    let learn = Learn { pg: PG, device: device(1), epoch, since: Sequence(1), base, note_checksum, note };
    cluster.group(1).learn(Client::Conn(99), learn).unwrap();
    cluster.run(device(1));
    assert_eq!(cluster.read(1, 0), Err(IoStatus::Redirect));
}

#[test]
fn a_duplicate_of_an_answered_write_is_not_applied() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    let mut second = blocks(2, 0, 1);
    second.oldest = RequestId(2);
    cluster.write(second).unwrap();
    cluster.settle();
    // The first was sent twice, and its duplicate was long on its way.
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    assert_eq!(cluster.read(0, 0), Ok(2));
    assert_eq!(cluster.history.len(), 2);
}

#[test]
fn a_copy_is_in_sync_only_when_it_has_kept_which_writes_are_applied() {
    let mut cluster = Cluster::new(2);
    cluster.isolate(1);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.pass(3 * SECOND);
    cluster.notes_wait = true;
    cluster.heal();
    cluster.pass(3 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 1);
    cluster.save_notes();
    cluster.pass(3 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2);
}

#[test]
fn a_write_that_is_sent_again_is_applied_once_however_many_others_have_written() {
    let mut cluster = Cluster::new(2);
    let of = |node: u32, request: u64, block: u16| {
        let session = SessionId::new(Endpoint::first(NodeId(node)), 1);
        azekura_wire::WriteRequest { session, ..blocks(request, block, 1) }
    };
    cluster.write(of(1, 1, 0)).unwrap();
    cluster.settle();
    for node in 2..400 {
        cluster.write(of(node, 2, 0)).unwrap();
        cluster.settle();
    }
    let before = cluster.history.len();
    cluster.write(of(1, 1, 0)).unwrap();
    cluster.settle();
    assert_eq!((cluster.read(0, 0), cluster.history.len()), (Ok(2), before));
}

#[test]
fn a_process_whose_successor_has_written_is_refused() {
    let mut cluster = Cluster::new(2);
    let of = |incarnation: u64, request: u64| {
        let session = SessionId::new(Endpoint::first(NodeId(1)), incarnation);
        azekura_wire::WriteRequest { session, ..blocks(request, 0, 1) }
    };
    for write in [of(1, 1), of(2, 2)] {
        cluster.write(write).unwrap();
        cluster.settle();
    }
    cluster.write(of(1, 3)).unwrap();
    cluster.settle();
    assert_eq!((cluster.answered[&RequestId(3)], cluster.read(0, 0)), (Err(IoStatus::Fenced), Ok(2)));
}

fn write_of(node: u32, request: u64, block: u16) -> azekura_wire::WriteRequest {
    let session = SessionId::new(Endpoint::first(NodeId(node)), 1);
    azekura_wire::WriteRequest { session, ..blocks(request, block, 1) }
}

/// Numbers below five have been given; these nodes have a record.
fn roll(nodes: &[u32]) -> Arc<NodeRoll> {
    Arc::new(NodeRoll::new(5, nodes.iter().copied().map(NodeId).collect()))
}

#[test]
fn a_fourth_gateway_waits_where_three_are_remembered_until_one_has_left() {
    let mut cluster = Cluster::new(2);
    for n in 0..2 {
        cluster.group(n).limit_sessions(3);
        cluster.group(n).follow_nodes(roll(&[1, 2, 3, 4]));
    }
    for node in 1..5 {
        cluster.write(write_of(node, node.into(), 0)).unwrap();
        cluster.settle();
    }
    assert!((1..4).all(|request| cluster.answered[&RequestId(request)] == Ok(())));
    assert_eq!(cluster.answered[&RequestId(4)], Err(IoStatus::Redirect));
    (0..2).for_each(|n| cluster.group(n).follow_nodes(roll(&[1, 2, 4])));
    assert_eq!(cluster.group(1).sessions(), 2);
    cluster.write(write_of(4, 4, 0)).unwrap();
    cluster.settle();
    assert_eq!((cluster.answered[&RequestId(4)], cluster.history.len()), (Ok(()), 4));
}

#[test]
fn what_comes_of_a_node_that_has_left_is_refused_also_when_it_is_committed() {
    let mut cluster = Cluster::new(2);
    cluster.write(write_of(2, 1, 0)).unwrap();
    cluster.settle();
    cluster.write(write_of(1, 2, 0)).unwrap();
    cluster.settle();
    cluster.beat();
    // The secondary has not heard of it, and goes on to know which writes are committed.
    cluster.group(0).follow_nodes(roll(&[1, 3, 4]));
    assert_eq!((cluster.group(0).sessions(), cluster.group(1).sessions()), (1, 2));
    cluster.answered.clear();
    cluster.write(write_of(2, 1, 0)).unwrap();
    cluster.settle();
    assert_eq!((cluster.answered[&RequestId(1)], cluster.history.len()), (Err(IoStatus::Fenced), 2));
    cluster.beat();
    assert_eq!(cluster.read(0, 0), Ok(2));
}

#[test]
fn what_is_ordered_when_its_node_leaves_is_committed_and_not_remembered() {
    let mut cluster = Cluster::new(2);
    cluster.write(write_of(2, 1, 0)).unwrap();
    cluster.group(0).follow_nodes(roll(&[1, 3, 4]));
    cluster.settle();
    assert_eq!((cluster.answered[&RequestId(1)], cluster.history.len(), cluster.group(0).sessions()), (Ok(()), 1, 0));
}

#[test]
fn a_damaged_note_is_refused() {
    let mut cluster = Cluster::new(2);
    let (epoch, base) = (cluster.group(0).epoch(), Sequence(5));
    let note = bytes::Bytes::from_static(b"another");
    let note_checksum = checksum(b"note");
    let learn = Learn { pg: PG, device: device(1), epoch, since: Sequence(1), base, note_checksum, note };
    assert_eq!(cluster.group(1).learn(Client::Conn(99), learn), Err(azekura_replica::Mismatch::Checksum));
}
