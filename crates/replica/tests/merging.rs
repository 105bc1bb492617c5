//! Writes of parts of blocks: read, merged, and ordered as whole blocks, atomically.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_wire::{Expected, WriteRequest};

fn byte(cluster: &Cluster, at: usize) -> u8 {
    let block = BlockIndex((at / BLOCK_SIZE) as u16);
    cluster.contents(device(0), ChunkIndex(0), block)[at % BLOCK_SIZE]
}

#[test]
fn both_edges_keep_what_the_write_does_not_cover() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 4)).unwrap();
    cluster.settle();
    cluster.write(bytes(2, 4000, 9000)).unwrap();
    assert_eq!(cluster.edges.len(), 2);
    cluster.settle();
    let expected = |at| if (4000..13000).contains(&at) { 2 } else { 1 };
    assert!((0..4 * BLOCK_SIZE).all(|at| byte(&cluster, at) == expected(at)));
    cluster.beat();
    assert_eq!(cluster.contents(device(1), ChunkIndex(0), BlockIndex(0))[4001], 2, "secondaries get whole blocks");
}

#[test]
fn one_block_is_read_once_and_blocks_never_written_are_zeros() {
    let mut cluster = Cluster::new(1);
    cluster.write(bytes(1, 100, 10)).unwrap();
    assert_eq!(cluster.edges.len(), 1);
    cluster.settle();
    assert_eq!((byte(&cluster, 99), byte(&cluster, 100), byte(&cluster, 109), byte(&cluster, 110)), (0, 1, 1, 0));
}

#[test]
fn only_the_edge_that_is_covered_in_part_is_read() {
    for (offset, len, block) in [(0, 5000, 1), (5000, 7288, 1)] {
        let mut cluster = Cluster::new(1);
        cluster.write(bytes(1, offset, len)).unwrap();
        let edges: Vec<_> = cluster.edges.iter().map(|edge| edge.2).collect();
        assert_eq!(edges, [BlockIndex(block)]);
    }
}

#[test]
fn merges_of_one_block_do_not_lose_each_other() {
    let mut cluster = Cluster::new(2);
    for n in 1..=8 {
        cluster.write(bytes(n, n as u32 * 512 - 512, 512)).unwrap();
    }
    assert_eq!(cluster.edges.len(), 1, "the others wait");
    cluster.settle();
    assert!((0..BLOCK_SIZE).all(|at| byte(&cluster, at) as usize == at / 512 + 1));
    assert_eq!(cluster.answered.len(), 8);
}

#[test]
fn a_merge_waits_for_the_commit_of_what_it_reads_and_holds_later_writes_back() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.write(bytes(2, 0, 512)).unwrap();
    assert!(cluster.edges.is_empty(), "the block's last write is not committed");
    while cluster.edges.is_empty() {
        let moved = cluster.persist(device(0))
            | cluster.persist(device(1))
            | cluster.deliver(device(0), device(1))
            | cluster.deliver_answer(device(0), device(1));
        assert!(moved);
    }
    cluster.write(blocks(3, 0, 1)).unwrap();
    assert_eq!(cluster.group(0).prepared(), Sequence(1), "a whole block waits behind the merge");
    cluster.write(blocks(4, 1, 1)).unwrap();
    assert_eq!(cluster.group(0).prepared(), Sequence(2), "another block does not");
    cluster.settle();
    assert_eq!(cluster.order(0), [1, 4, 2, 3].map(RequestId));
    assert!((0..BLOCK_SIZE).all(|at| byte(&cluster, at) == 3));
}

#[test]
fn a_parked_write_that_its_gateway_gave_up_does_not_come_after_the_next_one() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.write(bytes(2, 0, 512)).unwrap();
    cluster.write(blocks(3, 0, 2)).unwrap();
    assert_eq!(cluster.group(0).prepared(), Sequence(1), "one is merged, the other waits for that");
    let mut next = blocks(4, 1, 1);
    next.oldest = RequestId(4);
    cluster.write(next).unwrap();
    cluster.settle();
    assert_eq!(cluster.order(0), [1, 4].map(RequestId));
    assert_eq!((byte(&cluster, 0), byte(&cluster, BLOCK_SIZE)), (1, 4));
}

#[test]
fn a_merge_that_is_asked_for_again_happens_once() {
    let mut cluster = Cluster::new(2);
    cluster.write(bytes(1, 0, 512)).unwrap();
    cluster.write(bytes(2, 512, 512)).unwrap();
    cluster.write(bytes(1, 0, 512)).unwrap();
    cluster.write(bytes(2, 512, 512)).unwrap();
    cluster.settle();
    assert_eq!(cluster.order(0), [1, 2].map(RequestId));
}

#[test]
fn a_block_that_cannot_be_read_fails_the_merge_and_nothing_else() {
    let mut cluster = Cluster::new(1);
    cluster.write(bytes(1, 10, 8000)).unwrap();
    cluster.write(blocks(2, 0, 1)).unwrap();
    let (me, merge, block, _) = cluster.edges.pop_front().unwrap();
    cluster.group(0).edge_loaded(merge, block, Err(IoStatus::Io));
    cluster.run(me);
    assert_eq!(cluster.answered[&RequestId(1)], Err(IoStatus::Io));
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(2)], Ok(()), "what waited goes on");
    assert_eq!(cluster.order(0), [2].map(RequestId));
}

/// A write of bytes 10 to 109 of a block whose contents are 1, which the primary can't read; and two more writes.
fn unreadable_edge(copies: u32) -> Cluster {
    let mut cluster = Cluster::new(copies);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.settle();
    cluster.beat();
    cluster.write(bytes(2, 10, 100)).unwrap();
    let (me, merge, block, _) = cluster.edges.pop_front().unwrap();
    cluster.group(0).edge_loaded(merge, block, Err(IoStatus::Io));
    cluster.run(me);
    cluster.write(bytes(3, 0, 20)).unwrap();
    cluster.write(blocks(4, 9, 1)).unwrap();
    cluster
}

#[test]
fn an_edge_that_the_primary_cannot_read_comes_from_another_copy() {
    let mut cluster = unreadable_edge(3);
    // The first that is asked can't read it either.
    cluster.damaged = [(device(1), 0)].into();
    cluster.settle();
    assert_eq!(cluster.order(0), [1, 4, 2, 3].map(RequestId), "what touches the block waits, and nothing else");
    assert_eq!([0, 19, 20, 109, 110].map(|at| byte(&cluster, at)), [3, 3, 2, 2, 1]);
}

#[test]
fn an_edge_that_no_copy_can_read_fails_its_write_and_nothing_else() {
    let mut cluster = unreadable_edge(3);
    cluster.damaged = [(device(1), 0), (device(2), 0)].into();
    cluster.settle();
    assert_eq!(cluster.answered[&RequestId(2)], Err(IoStatus::Io));
    assert_eq!(cluster.order(0), [1, 4, 3].map(RequestId));
}

#[test]
fn a_write_does_not_wait_for_an_edge_from_a_copy_that_is_gone() {
    for leaves in [false, true] {
        let mut cluster = unreadable_edge(2);
        cluster.lose_second(leaves);
        assert_eq!(cluster.answered.get(&RequestId(2)), Some(&Err(IoStatus::Redirect)), "it is to be sent again");
        assert_eq!(cluster.edges.len(), 1, "the next write of the block goes on");
    }
}

/// The edge that is asked for is this one, under this generation of a key.
fn edge_is(cluster: &mut Cluster, value: u8, key: KeyGeneration) {
    let (me, merge, block, _) = cluster.edges.pop_front().unwrap();
    let Body::Data { bytes, checksums } = Body::data(vec![value; BLOCK_SIZE].into()).under(key) else { unreachable!() };
    cluster.group(0).edge_loaded(merge, block, Ok(Extent::Data { bytes, checksums }));
    cluster.run(me);
}

fn under(write: WriteRequest, key: KeyGeneration) -> WriteRequest {
    WriteRequest { body: write.body.under(key), ..write }
}

#[test]
fn what_is_under_another_key_is_not_merged() {
    let mut cluster = Cluster::new(2);
    cluster.beat();
    let second = KeyGeneration::FIRST.next();
    cluster.write(under(bytes(1, 512, 512), second)).unwrap();
    edge_is(&mut cluster, 9, KeyGeneration::FIRST);
    assert_eq!(cluster.answered[&RequestId(1)], Err(IoStatus::OtherKey));
    // The edges of this one are under different keys: neither will do.
    cluster.write(under(bytes(2, 512, 2 * BLOCK_SIZE as u32), second)).unwrap();
    edge_is(&mut cluster, 9, second);
    edge_is(&mut cluster, 9, KeyGeneration::FIRST);
    assert_eq!(cluster.answered[&RequestId(2)], Err(IoStatus::OtherKey));
    cluster.settle();
    assert_eq!(cluster.order(0), []);
    // What comes of a merge is under the key of its parts, and a block that was never written has none.
    cluster.write(under(bytes(3, 512, 512), second)).unwrap();
    edge_is(&mut cluster, 9, second);
    cluster.write(under(bytes(4, 7 * BLOCK_SIZE as u32, 512), second)).unwrap();
    let (me, merge, block, _) = cluster.edges.pop_front().unwrap();
    cluster.group(0).edge_loaded(merge, block, Ok(Extent::Zero { count: 1 }));
    cluster.run(me);
    cluster.settle();
    assert_eq!(cluster.order(0), [3, 4].map(RequestId));
    let keys: Vec<_> = (1..=2).map(|sequence| cluster.key_of(1, Sequence(sequence))).collect();
    assert_eq!(keys, [Some(second), Some(second)]);
}

#[test]
fn a_block_gets_another_key_if_it_holds_what_was_read() {
    let mut cluster = Cluster::new(1);
    let (first, second) = (KeyGeneration::FIRST, KeyGeneration::FIRST.next());
    let moved = |request, expected: u8, from| {
        let held = Expected::new(vec![expected; BLOCK_SIZE].into(), 0).under(from);
        under(WriteRequest { expected: Some(Box::new(held)), ..blocks(request, 0, 1) }, second)
    };
    cluster.write(moved(1, 7, first)).unwrap();
    edge_is(&mut cluster, 8, first);
    assert_eq!(cluster.answered[&RequestId(1)], Err(IoStatus::Miscompare(0)), "somebody has written to it");
    cluster.write(moved(2, 7, first)).unwrap();
    edge_is(&mut cluster, 7, second);
    assert_eq!(cluster.answered[&RequestId(2)], Err(IoStatus::OtherKey), "the same bytes, and other contents");
    cluster.write(moved(3, 7, first)).unwrap();
    edge_is(&mut cluster, 7, first);
    cluster.settle();
    assert_eq!((cluster.order(0), cluster.key_of(0, Sequence(1))), (vec![RequestId(3)], Some(second)));
}

/// One write after the other of whole blocks is committed, and there is always another one on its way.
fn keep_writing(cluster: &mut Cluster, from: u64, write: impl Fn(u64) -> WriteRequest) {
    for n in from..from + 30 {
        cluster.write(write(n)).unwrap();
        let _ = (cluster.persist(device(0)), cluster.deliver(device(0), device(1)), cluster.persist(device(1)));
        let _ = (cluster.deliver_answer(device(0), device(1)), cluster.load_edge());
    }
}

#[test]
fn a_merge_gets_its_turn_although_whole_blocks_keep_coming() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.write(bytes(2, 0, 512)).unwrap();
    keep_writing(&mut cluster, 3, |n| blocks(n, 0, 1));
    assert_eq!(cluster.answered.get(&RequestId(2)), Some(&Ok(())));
}

#[test]
fn a_write_of_two_blocks_gets_its_turn_although_each_is_merged_again_and_again() {
    let mut cluster = Cluster::new(2);
    cluster.write(bytes(1, 0, 512)).unwrap();
    cluster.write(blocks(2, 0, 2)).unwrap();
    keep_writing(&mut cluster, 3, |n| bytes(n, (n % 2) as u32 * BLOCK_SIZE as u32, 512));
    assert_eq!(cluster.answered.get(&RequestId(2)), Some(&Ok(())));
}
