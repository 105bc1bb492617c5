//! One request after the other, and what its parts meet.

use crate::*;
use azekura_base::{
    ChunkIndex, Endpoint, Generation, IoStatus, LayerId, NodeId, PgId, RequestId, SessionId, Shard, VolumeId,
};
use azekura_wire::{Message, ReadDone, WriteDone};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

const HOME: Endpoint = Endpoint::first(NodeId(1));
const FAR: Endpoint = Endpoint::first(NodeId(2));
/// The attachment that clients ask under.
const HELD: Generation = Generation(4);

fn gateway() -> Gateway {
    gateway_with(Some(IO_TIMEOUT_DEFAULT))
}

fn gateway_with(io_timeout: Option<Duration>) -> Gateway {
    let mut gateway = Gateway::new(HOME, SessionId(9));
    let volume = VolumeView {
        id: VolumeId(1),
        name: "v".into(),
        size: 32 << 30,
        logical_block: azekura_base::LogicalBlock::Bytes512,
        layer: LayerId(1),
        cut: None,
        read_only: false,
        io_timeout,
        groups: [PgId(0), PgId(1)].into(),
        group_offset: 1,
        key: None,
        limits: None,
    };
    let group = |primary, copies: &[Endpoint]| GroupView { primary, copies: copies.to_vec(), primary_reads: false };
    let groups = BTreeMap::from([(PgId(0), group(FAR, &[HOME, FAR])), (PgId(1), group(FAR, &[FAR]))]);
    gateway.configure(BTreeMap::from([("v".into(), Arc::new(volume))]), groups);
    gateway
}

fn effects(gateway: &mut Gateway) -> Vec<Effect> {
    std::iter::from_fn(|| gateway.next_effect()).collect()
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_write_waits_for_its_link_and_is_sent_again_with_its_number() {
    let mut gateway = gateway();
    gateway.submit(7, "v", HELD, Op::Write { offset: 0, bytes: Bytes::from(vec![1; 4096]) }, at(0));
    assert!(effects(&mut gateway).is_empty(), "there is no link");
    gateway.link_up(FAR);
    let [Effect::Send(FAR, Message::Write(first))] = &effects(&mut gateway)[..] else { panic!() };
    assert_eq!((first.pg, first.chunk), (PgId(1), ChunkIndex(0)));
    gateway.link_down(FAR);
    gateway.link_up(FAR);
    let [Effect::Send(FAR, Message::Write(again))] = &effects(&mut gateway)[..] else { panic!() };
    assert_eq!(first, again);
    let done = Message::WriteDone(WriteDone { pg: first.pg, request: first.request, result: Ok(()) });
    gateway.answer(FAR, done.clone(), at(1));
    assert!(matches!(effects(&mut gateway)[..], [Effect::Complete(7, Outcome::Done)]));
    gateway.answer(FAR, done, at(2));
    assert!(effects(&mut gateway).is_empty(), "answered once");
    assert_eq!(gateway.in_flight_bytes(), 0);
}

#[test]
fn a_read_starts_at_home_and_follows_to_the_primary() {
    let mut gateway = gateway();
    gateway.link_up(FAR);
    gateway.submit(7, "v", HELD, Op::Read { offset: 4 << 20, len: 100 }, at(0));
    let [Effect::Send(HOME, Message::Read(read))] = &effects(&mut gateway)[..] else { panic!() };
    let refusal = |request| Message::ReadDone(ReadDone { request, result: Err(IoStatus::Redirect) });
    gateway.answer(HOME, refusal(read.request), at(1));
    assert!(matches!(effects(&mut gateway)[..], [Effect::Send(FAR, Message::Read(_))]));
    gateway.answer(FAR, refusal(read.request), at(1));
    assert!(effects(&mut gateway).is_empty(), "the primary's refusal is not answered at once");
    gateway.tick(at(1) + RETRY_INTERVAL);
    assert!(matches!(effects(&mut gateway)[..], [Effect::Send(HOME, Message::Read(_))]));
    let extents = vec![azekura_base::Extent::Zero { count: 1 }];
    gateway.answer(HOME, Message::ReadDone(ReadDone { request: read.request, result: Ok(extents) }), at(20));
    let [Effect::Complete(7, Outcome::Read(pieces))] = &effects(&mut gateway)[..] else { panic!() };
    assert_eq!(pieces[..], [Piece::Zero(100)]);
}

#[test]
fn shards_of_one_node_are_two_peers_and_the_nearer_ones() {
    let mut gateway = gateway();
    let [sister, far_sister] = [HOME, FAR].map(|of| Endpoint { shard: Shard(1), ..of });
    let group = |primary, copies: &[Endpoint]| GroupView { primary, copies: copies.to_vec(), primary_reads: false };
    let groups = BTreeMap::from([(PgId(0), group(FAR, &[sister, FAR])), (PgId(1), group(far_sister, &[far_sister]))]);
    gateway.configure(gateway.volumes().clone(), groups);
    [sister, FAR].into_iter().for_each(|peer| gateway.link_up(peer));
    let chunk = azekura_base::CHUNK_SIZE as u64;
    gateway.submit(1, "v", HELD, Op::Read { offset: chunk, len: 4096 }, at(0));
    assert!(matches!(effects(&mut gateway)[..], [Effect::Send(to, _)] if to == sister), "it is on the same machine");
    gateway.submit(2, "v", HELD, Op::Read { offset: 0, len: 4096 }, at(0));
    assert!(effects(&mut gateway).is_empty(), "another shard of that node is connected, not this one");
    gateway.link_up(far_sister);
    assert!(matches!(effects(&mut gateway)[..], [Effect::Send(to, _)] if to == far_sister));
    gateway.link_down(FAR);
    assert!(effects(&mut gateway).is_empty(), "nothing was asked of that one");
    gateway.link_down(sister);
    assert!(effects(&mut gateway).is_empty(), "there is no copy left that is connected");
    gateway.link_up(FAR);
    assert!(matches!(effects(&mut gateway)[..], [Effect::Send(FAR, Message::Read(_))]));
}

#[test]
fn a_bad_copy_is_passed_over_and_the_last_one_decides() {
    let mut gateway = gateway();
    gateway.link_up(FAR);
    gateway.submit(7, "v", HELD, Op::Read { offset: 4 << 20, len: 4096 }, at(0));
    let [Effect::Send(HOME, Message::Read(read))] = &effects(&mut gateway)[..] else { panic!() };
    let bad = |request| Message::ReadDone(ReadDone { request, result: Err(IoStatus::Io) });
    gateway.answer(HOME, bad(read.request), at(1));
    assert!(matches!(effects(&mut gateway)[..], [Effect::Send(FAR, Message::Read(_))]));
    gateway.answer(FAR, bad(read.request), at(1));
    assert!(matches!(effects(&mut gateway)[..], [Effect::Complete(7, Outcome::Failed(IoStatus::Io))]));
}

#[test]
fn a_node_that_could_not_read_is_asked_again_when_it_is_the_last_one_and_has_refused_since() {
    let mut gateway = gateway();
    gateway.link_up(FAR);
    gateway.submit(7, "v", HELD, Op::Read { offset: 4 << 20, len: 4096 }, at(0));
    let [Effect::Send(HOME, Message::Read(read))] = &effects(&mut gateway)[..] else { panic!() };
    let answer = |result| Message::ReadDone(ReadDone { request: read.request, result: Err(result) });
    gateway.answer(HOME, answer(IoStatus::Io), at(1));
    assert!(matches!(effects(&mut gateway)[..], [Effect::Send(FAR, Message::Read(_))]));
    // The group goes on with a single copy, on another device of the first node, which does not reign yet.
    let group = GroupView { primary: HOME, copies: vec![HOME], primary_reads: false };
    let volumes = gateway.volumes().clone();
    gateway.configure(volumes, BTreeMap::from([(PgId(0), group)]));
    assert!(matches!(effects(&mut gateway)[..], [Effect::Send(HOME, Message::Read(_))]));
    gateway.answer(HOME, answer(IoStatus::Redirect), at(3));
    assert!(effects(&mut gateway).is_empty());
    gateway.tick(at(3) + RETRY_INTERVAL);
    assert!(matches!(effects(&mut gateway)[..], [Effect::Send(HOME, Message::Read(_))]));
}

#[test]
fn a_long_trim_keeps_to_the_window() {
    let mut gateway = gateway();
    gateway.link_up(FAR);
    gateway.submit(7, "v", HELD, Op::Trim { offset: 1, len: (32 << 30) - 1 }, at(0));
    let mut done = Vec::new();
    let mut sent = 0;
    while done.is_empty() {
        assert!(sent > 0 || !gateway.has_room("v"));
        let batch = effects(&mut gateway);
        assert!(!batch.is_empty(), "stuck after {sent}");
        for effect in batch {
            match effect {
                Effect::Send(FAR, Message::Write(write)) => {
                    sent += 1;
                    assert!(write.request.0 - write.oldest.0 < WRITE_WINDOW);
                    let done = WriteDone { pg: write.pg, request: write.request, result: Ok(()) };
                    gateway.answer(FAR, Message::WriteDone(done), at(1));
                }
                Effect::Complete(token, outcome) => done.push((token, outcome)),
                Effect::Send(..) | Effect::Rekeyed(..) => panic!("a write belongs to the primary"),
            }
        }
    }
    assert_eq!(done, [(7, Outcome::Done)]);
    assert_eq!(sent, 8192);
    assert!(gateway.has_room("v"));
}

#[test]
fn what_an_ended_attachment_has_asked_for_fails_at_once() {
    let mut gateway = gateway();
    gateway.link_up(FAR);
    let write = |len| Op::Write { offset: 0, bytes: Bytes::from(vec![1; len]) };
    gateway.submit(1, "v", HELD, write(4096), at(0));
    gateway.submit(2, "v", HELD, Op::Trim { offset: 0, len: 8 << 30 }, at(0));
    gateway.submit(3, "v", HELD, Op::Read { offset: 0, len: 4096 }, at(0));
    gateway.submit(4, "v", Generation(5), write(8192), at(0));
    drop(effects(&mut gateway));
    gateway.end_attachments(|volume, attachment| volume == VolumeId(1) && attachment == HELD);
    let mut ended = Vec::new();
    let mut sent = Vec::new();
    for effect in effects(&mut gateway) {
        match effect {
            Effect::Complete(token, outcome) => ended.push((token, outcome)),
            Effect::Send(_, Message::Write(write)) => sent.push(write.attachment),
            Effect::Send(..) | Effect::Rekeyed(..) => panic!(),
        }
    }
    let fenced = |token| (token, Outcome::Failed(IoStatus::Fenced));
    assert_eq!(ended, [fenced(1), fenced(2), fenced(3)]);
    assert_eq!(sent, [Generation(5)], "what waited for room behind the trim goes on");
    assert_eq!((gateway.in_flight(), gateway.in_flight_bytes()), (1, 8192));
    gateway.link_down(FAR);
    gateway.link_up(FAR);
    assert_eq!(effects(&mut gateway).len(), 1, "only that is sent again");
}

#[test]
fn a_primary_that_knows_better_ends_a_request() {
    let mut gateway = gateway();
    gateway.link_up(FAR);
    gateway.submit(7, "v", HELD, Op::Read { offset: 4 << 20, len: 4096 }, at(0));
    let [Effect::Send(HOME, Message::Read(read))] = &effects(&mut gateway)[..] else { panic!() };
    assert_eq!((read.volume, read.attachment), (VolumeId(1), HELD));
    let fenced = ReadDone { request: read.request, result: Err(IoStatus::Fenced) };
    gateway.answer(HOME, Message::ReadDone(fenced), at(1));
    assert!(matches!(effects(&mut gateway)[..], [Effect::Complete(7, Outcome::Failed(IoStatus::Fenced))]));
}

#[test]
fn what_nobody_answers_is_sent_again_under_its_number() {
    let mut gateway = gateway_with(None);
    gateway.link_up(FAR);
    gateway.submit(1, "v", HELD, Op::Write { offset: 0, bytes: Bytes::from(vec![1; 4096]) }, at(0));
    gateway.submit(2, "v", HELD, Op::Read { offset: 0, len: 4096 }, at(0));
    let sent = |effects: Vec<Effect>| -> Vec<(bool, RequestId)> {
        let names = effects.into_iter().map(|effect| match effect {
            Effect::Send(FAR, Message::Write(write)) => (true, write.request),
            Effect::Send(_, Message::Read(read)) => (false, read.request),
            other => panic!("{other:?}"),
        });
        names.collect()
    };
    let first = sent(effects(&mut gateway));
    assert_eq!(first.len(), 2);
    let mut again = Vec::new();
    for second in 1..=75 {
        gateway.tick(Duration::from_secs(second));
        let now = sent(effects(&mut gateway));
        assert!(now.is_empty() || now == first, "{now:?}");
        again.extend((!now.is_empty()).then_some(second));
    }
    assert_eq!((again, gateway.asked_again()), (vec![10, 30, 70], 6));
    let done = WriteDone { pg: PgId(1), request: first[0].1, result: Ok(()) };
    gateway.answer(FAR, Message::WriteDone(done), Duration::from_secs(76));
    assert!(matches!(effects(&mut gateway)[..], [Effect::Complete(1, Outcome::Done)]));
}

#[test]
fn what_lies_outside_is_refused() {
    let mut gateway = gateway();
    for op in [Op::Read { offset: 32 << 30, len: 1 }, Op::Zero { offset: u64::MAX, len: 2 }] {
        gateway.submit(1, "v", HELD, op, at(0));
        let [Effect::Complete(1, Outcome::Failed(IoStatus::Invalid))] = &effects(&mut gateway)[..] else { panic!() };
    }
    gateway.submit(1, "w", HELD, Op::Flush, at(0));
    assert!(matches!(effects(&mut gateway)[..], [Effect::Complete(1, Outcome::Failed(IoStatus::Gone))]));
}

#[test]
fn a_compare_and_write_goes_to_the_primary_with_what_it_expects() {
    let mut gateway = gateway();
    gateway.link_up(FAR);
    let op = |offset, expected: usize, bytes: usize| Op::CompareAndWrite {
        offset,
        expected: Bytes::from(vec![1; expected]),
        bytes: Bytes::from(vec![2; bytes]),
    };
    gateway.submit(7, "v", HELD, op(4608, 512, 512), at(0));
    let [Effect::Send(FAR, Message::Write(write))] = &effects(&mut gateway)[..] else { panic!() };
    let expected = write.expected.as_ref().expect("something is expected");
    assert_eq!((write.offset, write.len, &expected.bytes[..], expected.or_zeros), (4608, 512, &[1; 512][..], 0));
    assert_eq!(gateway.unanswered(SessionId(9), write.pg, write.request), None, "copies get the whole block");
    let done = WriteDone { pg: write.pg, request: write.request, result: Err(IoStatus::Miscompare(77)) };
    gateway.answer(FAR, Message::WriteDone(done), at(1));
    let [Effect::Complete(7, Outcome::Failed(IoStatus::Miscompare(77)))] = &effects(&mut gateway)[..] else { panic!() };
    assert_eq!(gateway.statistics()[&VolumeId(1)].writes.errors, 0, "an answer is no failure");
    for op in [op(4000, 512, 512), op(0, 8192, 8192), op(0, 512, 511), op(0, 0, 0)] {
        gateway.submit(8, "v", HELD, op, at(2));
        let [Effect::Complete(8, Outcome::Failed(IoStatus::Invalid))] = &effects(&mut gateway)[..] else { panic!() };
    }
}
