//! Groups that do not answer: what waits for them, for how long, and that nobody else does.

use crate::*;
use azekura_base::{Endpoint, Generation, IoStatus, LayerId, NodeId, PgId, RequestId, SessionId, VolumeId};
use azekura_wire::{Message, ReadDone, WriteDone, WriteRequest};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const HOME: Endpoint = Endpoint::first(NodeId(1));
const FAR: Endpoint = Endpoint::first(NodeId(2));
const OTHER: Endpoint = Endpoint::first(NodeId(3));
const HELD: Generation = Generation(4);
const BOUND: Duration = Duration::from_secs(30);

fn volume(id: u64, group: u32, io_timeout: Option<Duration>) -> VolumeView {
    VolumeView {
        id: VolumeId(id),
        name: format!("v{id}"),
        size: 32 << 30,
        logical_block: azekura_base::LogicalBlock::Bytes512,
        layer: LayerId(id),
        cut: None,
        read_only: false,
        io_timeout,
        groups: [PgId(group)].into(),
        group_offset: 0,
        key: None,
        limits: None,
    }
}

fn groups(first: Endpoint) -> BTreeMap<PgId, GroupView> {
    let group = |primary, copies: &[Endpoint]| GroupView { primary, copies: copies.to_vec(), primary_reads: false };
    BTreeMap::from([(PgId(0), group(first, &[FAR, OTHER])), (PgId(1), group(HOME, &[HOME]))])
}

/// `v1` to `v9` lie in group 0, whose primary is [`FAR`], `v10` in group 1, which is at home.
fn gateway(io_timeout: Option<Duration>) -> Gateway {
    let mut gateway = Gateway::new(HOME, SessionId(9));
    let volumes = (1..=9).map(|id| volume(id, 0, io_timeout)).chain([volume(10, 1, io_timeout)]);
    gateway.configure(volumes.map(|volume| (volume.name.clone(), Arc::new(volume))).collect(), groups(FAR));
    gateway
}

fn elect(gateway: &mut Gateway, primary: Endpoint) {
    let volumes = gateway.volumes().clone();
    gateway.configure(volumes, groups(primary));
}

fn write(len: usize) -> Op {
    Op::Write { offset: 0, bytes: Bytes::from(vec![1; len]) }
}

type Sent = Vec<(Endpoint, Message)>;
type Ended = Vec<(u64, Outcome)>;

/// What was sent, and which requests ended.
fn effects(gateway: &mut Gateway) -> (Sent, Ended) {
    let (mut sent, mut ended) = (Vec::new(), Vec::new());
    while let Some(effect) = gateway.next_effect() {
        match effect {
            Effect::Send(node, message) => sent.push((node, message)),
            Effect::Complete(token, outcome) => ended.push((token, outcome)),
            Effect::Rekeyed(..) => panic!("nobody has asked for it"),
        }
    }
    (sent, ended)
}

fn writes(sent: Sent) -> Vec<WriteRequest> {
    let write = |(_, message)| if let Message::Write(write) = message { Some(write) } else { None };
    sent.into_iter().filter_map(write).collect()
}

fn done(write: &WriteRequest, result: Result<(), IoStatus>) -> Message {
    Message::WriteDone(WriteDone { pg: write.pg, request: write.request, result })
}

fn failed(token: u64) -> (u64, Outcome) {
    (token, Outcome::Failed(IoStatus::Io))
}

/// Runs time in steps of half a second; gives the second in which each request ended.
fn pass(gateway: &mut Gateway, from_s: u64, to_s: u64) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for half in from_s * 2..to_s * 2 {
        gateway.tick(Duration::from_millis(half * 500));
        all.extend(effects(gateway).1.into_iter().map(|(token, _)| (token, half / 2)));
    }
    all
}

#[test]
fn a_group_that_does_not_answer_holds_up_no_other_group() {
    let mut gateway = gateway(None);
    gateway.submit(1, "v1", HELD, write(4096), Duration::ZERO);
    for round in 0..5_000 {
        assert!(gateway.has_room("v10"), "round {round}");
        gateway.submit(2, "v10", HELD, write(4096), Duration::ZERO);
        let (sent, _) = effects(&mut gateway);
        let [write] = &writes(sent)[..] else { panic!() };
        assert_eq!((write.pg, write.request, write.oldest), (PgId(1), RequestId(round + 1), RequestId(round + 1)));
        gateway.answer(HOME, done(write, Ok(())), Duration::ZERO);
        assert_eq!(effects(&mut gateway).1, [(2, Outcome::Done)]);
    }
}

#[test]
fn a_full_window_holds_up_no_reader() {
    let mut gateway = gateway(None);
    gateway.link_up(FAR);
    for token in 0..WRITE_WINDOW + 100 {
        assert!(gateway.has_room("v1"));
        gateway.submit(token, "v1", HELD, Op::Zero { offset: 0, len: 4096 }, Duration::ZERO);
    }
    assert_eq!(effects(&mut gateway).0.len() as u64, WRITE_WINDOW);
    assert!(gateway.has_room("v1"));
    gateway.submit(0, "v1", HELD, Op::Read { offset: 0, len: 4096 }, Duration::ZERO);
    assert!(matches!(&effects(&mut gateway).0[..], [(FAR, Message::Read(_))]));
}

#[test]
fn what_stuck_volumes_hold_leaves_room_for_others() {
    let mut gateway = gateway(None);
    let fill = |gateway: &mut Gateway, name: &str| {
        let before = gateway.in_flight_bytes();
        while gateway.has_room(name) {
            gateway.submit(1, name, HELD, write(64 << 10), Duration::ZERO);
        }
        gateway.in_flight_bytes() - before
    };
    let shares: Vec<usize> = (1..=9).map(|id| fill(&mut gateway, &format!("v{id}"))).collect();
    assert_eq!(shares[0], IN_FLIGHT_BYTES_MAX / 2, "one alone");
    assert_eq!(shares[1], IN_FLIGHT_BYTES_MAX / 4, "half of what is left");
    assert!(shares.iter().all(|share| *share >= VOLUME_BYTES_MIN), "{shares:?}");
    assert_eq!(fill(&mut gateway, "v10"), VOLUME_BYTES_MIN);
    assert!(gateway.in_flight_bytes() <= IN_FLIGHT_BYTES_MAX + 10 * VOLUME_BYTES_MIN);
}

#[test]
fn a_volume_that_waits_takes_no_more_than_a_part() {
    let mut gateway = gateway(None);
    gateway.submit(1, "v1", HELD, write(VOLUME_BYTES_STUCK_MAX / 2), Duration::ZERO);
    pass(&mut gateway, 0, 3);
    assert!(gateway.has_room("v1"), "its other groups may serve");
    gateway.submit(2, "v1", HELD, write(VOLUME_BYTES_STUCK_MAX / 2), Duration::from_secs(3));
    assert!(!gateway.has_room("v1"));
    assert!(gateway.has_room("v2") && gateway.has_room("v10"));
    gateway.link_up(FAR);
    let (sent, _) = effects(&mut gateway);
    gateway.answer(FAR, done(&writes(sent)[0], Ok(())), Duration::from_secs(3));
    assert!(gateway.has_room("v1"));
}

#[test]
fn without_a_link_a_request_fails_after_its_time_and_is_not_sent_again() {
    let mut gateway = gateway(Some(BOUND));
    gateway.submit(1, "v1", HELD, write(4096), Duration::ZERO);
    gateway.submit(2, "v1", HELD, Op::Read { offset: 0, len: 4096 }, Duration::ZERO);
    let ended = pass(&mut gateway, 0, 100);
    assert_eq!(ended, [(1, 30), (2, 30)]);
    gateway.link_up(FAR);
    assert!(effects(&mut gateway).0.is_empty());
    assert_eq!((gateway.in_flight(), gateway.in_flight_bytes()), (0, 0));
    // The next write says that nobody waits for the one before.
    gateway.submit(3, "v1", HELD, write(4096), Duration::from_secs(100));
    let (sent, _) = effects(&mut gateway);
    assert_eq!(writes(sent)[0].oldest, RequestId(2));
}

#[test]
fn a_class_may_wait_for_ever() {
    let mut gateway = gateway(None);
    gateway.submit(1, "v1", HELD, write(4096), Duration::ZERO);
    assert_eq!(pass(&mut gateway, 0, 1000), []);
    gateway.link_up(FAR);
    assert_eq!(effects(&mut gateway).0.len(), 1);
}

#[test]
fn a_request_that_is_refused_fails_after_its_time_whatever_the_refusals_are() {
    for refusal in [IoStatus::ReadOnly, IoStatus::Redirect, IoStatus::Stale] {
        let mut gateway = gateway(Some(BOUND));
        gateway.link_up(FAR);
        gateway.submit(1, "v1", HELD, write(4096), Duration::ZERO);
        let (mut sent, mut ended) = effects(&mut gateway);
        let (mut now, mut tries) = (Duration::ZERO, 0);
        while ended.is_empty() {
            for write in writes(sent) {
                tries += 1;
                gateway.answer(FAR, done(&write, Err(refusal)), now);
            }
            now += Duration::from_millis(10);
            gateway.tick(now);
            (sent, ended) = effects(&mut gateway);
        }
        assert_eq!(ended, [failed(1)]);
        assert!((BOUND..BOUND + Duration::from_secs(1)).contains(&now), "{refusal:?}: {now:?}");
        assert!((60..400).contains(&tries), "{tries} tries: the longer it waits, the less often it is tried");
    }
}

#[test]
fn a_new_primary_is_another_chance_but_not_for_ever() {
    let mut gateway = gateway(Some(BOUND));
    gateway.submit(1, "v1", HELD, write(4096), Duration::ZERO);
    assert_eq!(pass(&mut gateway, 0, 29), []);
    elect(&mut gateway, OTHER);
    assert_eq!(pass(&mut gateway, 29, 58), []);
    let mut ended = Vec::new();
    for (at, primary) in [(58, FAR), (87, OTHER), (116, FAR)] {
        elect(&mut gateway, primary);
        ended.extend(pass(&mut gateway, at, at + 29));
    }
    assert_eq!(ended, [(1, 116)]);
}

#[test]
fn what_waits_among_many_at_a_group_that_answers_does_not_fail() {
    let mut gateway = gateway(Some(BOUND));
    gateway.link_up(FAR);
    gateway.submit(1, "v1", HELD, write(4096), Duration::ZERO);
    effects(&mut gateway);
    for second in 1..120 {
        let now = Duration::from_secs(second);
        gateway.tick(now);
        assert_eq!(effects(&mut gateway).1, [], "second {second}");
        gateway.submit(2, "v2", HELD, Op::Write { offset: 4 << 20, bytes: Bytes::from(vec![1; 512]) }, now);
        let (sent, _) = effects(&mut gateway);
        let other = writes(sent).into_iter().find(|write| write.volume == VolumeId(2)).unwrap();
        gateway.answer(FAR, done(&other, Ok(())), now);
        assert_eq!(effects(&mut gateway).1, [(2, Outcome::Done)]);
    }
    assert_eq!(pass(&mut gateway, 120, 200), [(1, 149)], "then the group falls silent");
}

#[test]
fn a_long_trim_may_take_longer_than_a_request_waits() {
    let mut gateway = gateway(Some(BOUND));
    gateway.link_up(FAR);
    gateway.submit(1, "v1", HELD, Op::Trim { offset: 0, len: 32 << 30 }, Duration::ZERO);
    let (mut sent, mut ended) = effects(&mut gateway);
    let (mut now, mut refused) = (Duration::ZERO, false);
    while ended.is_empty() {
        now += Duration::from_millis(50);
        // Of every second one the primary says that it has too many.
        let mut taken = writes(std::mem::take(&mut sent)).into_iter();
        for next in taken.by_ref().take(8) {
            refused = !refused;
            gateway.answer(FAR, done(&next, if refused { Err(IoStatus::Redirect) } else { Ok(()) }), now);
        }
        gateway.tick(now);
        let (more, over) = effects(&mut gateway);
        sent = taken.map(|write| (FAR, Message::Write(write))).chain(more).collect();
        ended = over;
    }
    assert_eq!(ended, [(1, Outcome::Done)]);
    assert!(now > 3 * BOUND, "{now:?}");
}

#[test]
fn a_read_that_a_copy_does_not_answer_goes_to_another() {
    let mut gateway = gateway(None);
    [FAR, OTHER].into_iter().for_each(|node| gateway.link_up(node));
    gateway.submit(1, "v1", HELD, Op::Read { offset: 0, len: 4096 }, Duration::ZERO);
    let (mut asked, mut requests) = (Vec::new(), BTreeSet::new());
    for half in 0..120 {
        gateway.tick(Duration::from_millis(half * 500));
        for (node, message) in effects(&mut gateway).0 {
            let Message::Read(read) = message else { panic!("{message:?}") };
            asked.push((half / 2, node));
            requests.insert(read.request);
        }
    }
    assert_eq!(asked, [(0, FAR), (3, OTHER), (23, FAR), (26, OTHER)]);
    let request = requests.pop_first().filter(|_| requests.is_empty()).expect("it has one number");
    let extents = vec![azekura_base::Extent::Zero { count: 1 }];
    let answer = Message::ReadDone(ReadDone { request, result: Ok(extents) });
    gateway.answer(OTHER, answer, Duration::from_secs(60));
    assert_eq!(effects(&mut gateway).1, [(1, Outcome::Read(vec![Piece::Zero(4096)]))]);
}
