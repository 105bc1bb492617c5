//! Reads that the primary's device refuses: another copy gives the blocks.

use crate::support::*;
use azekura_base::*;

/// Three copies of which, under `majority`, the primary alone answers readers, and can't give block 3; nor can the
/// copies `unable`. A client has asked for it.
fn asked_of_who_cannot(unable: &[u32]) -> Cluster {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    cluster.write(blocks(7, 3, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    cluster.refused = unable.iter().chain(&[0]).map(|n| (device(*n), 3)).collect();
    cluster.ask(0, 3);
    assert_eq!(cluster.answer(), None, "it is asked for elsewhere");
    cluster
}

#[test]
fn what_the_primary_cannot_read_comes_from_another_copy() {
    for unable in [&[][..], &[1], &[2]] {
        let mut cluster = asked_of_who_cannot(unable);
        cluster.settle();
        assert_eq!(cluster.answer(), Some(Ok(7)));
    }
}

#[test]
fn what_no_copy_can_read_is_an_error() {
    let mut cluster = asked_of_who_cannot(&[1, 2]);
    cluster.settle();
    assert_eq!(cluster.answer(), Some(Err(IoStatus::Io)));
}

#[test]
fn a_copy_that_lags_behind_is_not_asked_for_what_it_lacks() {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    cluster.settle();
    cluster.beat();
    // The first secondary's device has yet to write what the others have acknowledged.
    cluster.hanging = [device(1)].into();
    cluster.write(blocks(7, 3, 1)).unwrap();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(7)], Ok(()));
    cluster.refused = [(device(0), 3)].into();
    cluster.ask(0, 3);
    cluster.settle();
    assert_eq!(cluster.answer(), Some(Ok(7)));
    // Of the others, one can't either, and the one that lags behind may have the block later: it is worth a while.
    cluster.refused.insert((device(2), 3));
    cluster.ask(0, 3);
    cluster.settle();
    assert_eq!(cluster.answer(), Some(Err(IoStatus::Redirect)));
    cluster.hanging.clear();
    cluster.settle();
    cluster.ask(0, 3);
    cluster.settle();
    assert_eq!(cluster.answer(), Some(Ok(7)));
}

#[test]
fn only_so_many_blocks_are_asked_for_elsewhere_at_a_time() {
    let mut cluster = asked_of_who_cannot(&[]);
    let whole = BlockRange::chunk(LAYER, ChunkIndex(0));
    cluster.group(0).read_failed(GATEWAY, RequestId(10), whole);
    cluster.run(device(0));
    assert_eq!(cluster.answer(), Some(Err(IoStatus::Redirect)), "with the one before it is too much");
    cluster.settle();
    assert_eq!(cluster.answer(), Some(Ok(7)));
    cluster.group(0).read_failed(GATEWAY, RequestId(10), whole);
    cluster.run(device(0));
    cluster.settle();
    assert_eq!(cluster.answer(), Some(Ok(0)), "one alone may be as large as any");
}

#[test]
fn no_reader_waits_for_a_copy_that_is_gone() {
    for leaves in [false, true] {
        let mut cluster = asked_of_who_cannot(&[]);
        cluster.lose_second(leaves);
        assert_eq!(cluster.answer(), Some(Err(IoStatus::Redirect)), "it is to be sent again");
    }
}

#[test]
fn readers_ask_again_when_the_reign_ends() {
    let mut cluster = asked_of_who_cannot(&[]);
    assert!(cluster.group(0).leave());
    cluster.run(device(0));
    // The question, and then the hand over.
    cluster.deliver(device(0), device(1));
    cluster.deliver(device(0), device(1));
    assert!(cluster.decide());
    assert_eq!(cluster.primary(), 1);
    assert_eq!(cluster.answer(), Some(Err(IoStatus::Redirect)));
    cluster.settle();
    cluster.beat();
    assert_eq!(cluster.read(1, 3), Ok(7));
}

#[test]
fn a_secondary_sends_its_reader_elsewhere() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(7, 3, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    cluster.refused = [(device(1), 3)].into();
    assert_eq!(cluster.read(1, 3), Err(IoStatus::Io));
    assert_eq!(cluster.read(0, 3), Ok(7));
}
