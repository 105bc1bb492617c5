//! Writes that were given up: what other gateways of the process do until those can't be applied any more.

use crate::*;
use azekura_base::{Body, Endpoint, Generation, IoStatus, LayerId, NodeId, PgId, SessionId, Shard, VolumeId};
use azekura_wire::{Message, WriteDone, WriteRequest};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

const ONE: Endpoint = Endpoint { node: NodeId(1), shard: Shard(0) };
const TWO: Endpoint = Endpoint { node: NodeId(1), shard: Shard(1) };
const FAR: Endpoint = Endpoint::first(NodeId(2));
const HELD: Generation = Generation(4);
const BOUND: Duration = Duration::from_secs(30);

fn volume(id: u64, io_timeout: Option<Duration>) -> Arc<VolumeView> {
    Arc::new(VolumeView {
        id: VolumeId(id),
        name: format!("v{id}"),
        size: 1 << 30,
        logical_block: azekura_base::LogicalBlock::Bytes512,
        layer: LayerId(id),
        cut: None,
        read_only: false,
        io_timeout,
        groups: [PgId(0)].into(),
        group_offset: 0,
        key: None,
        limits: None,
    })
}

fn configure(gateway: &mut Gateway, volumes: &[Arc<VolumeView>]) {
    let groups = BTreeMap::from([(PgId(0), GroupView { primary: FAR, copies: vec![FAR], primary_reads: false })]);
    gateway.configure(volumes.iter().map(|volume| (volume.name.clone(), volume.clone())).collect(), groups);
}

/// Two gateways of a process. `v1` and `v2` fail after a while, `v3` waits for ever.
fn gateways() -> [Gateway; 2] {
    let unsettled = Arc::new(Unsettled::default());
    [(ONE, 7), (TWO, 8)].map(|(me, session)| {
        let mut gateway = Gateway::new(me, SessionId(session));
        gateway.share(unsettled.clone());
        configure(&mut gateway, &[volume(1, Some(BOUND)), volume(2, Some(BOUND)), volume(3, None)]);
        gateway.link_up(FAR);
        gateway
    })
}

fn submit(gateway: &mut Gateway, token: u64, volume: &str, now: Duration) -> Vec<WriteRequest> {
    submit_under(gateway, token, volume, HELD, now)
}

fn submit_under(gateway: &mut Gateway, token: u64, volume: &str, held: Generation, now: Duration) -> Vec<WriteRequest> {
    gateway.submit(token, volume, held, Op::Write { offset: 0, bytes: Bytes::from(vec![1; 4096]) }, now);
    sent(gateway)
}

fn effects(gateway: &mut Gateway) -> (Vec<WriteRequest>, Vec<(u64, Outcome)>) {
    let (mut sent, mut ended) = (Vec::new(), Vec::new());
    while let Some(effect) = gateway.next_effect() {
        match effect {
            Effect::Send(_, Message::Write(write)) => sent.push(write),
            Effect::Send(..) | Effect::Rekeyed(..) => {}
            Effect::Complete(token, outcome) => ended.push((token, outcome)),
        }
    }
    (sent, ended)
}

fn sent(gateway: &mut Gateway) -> Vec<WriteRequest> {
    effects(gateway).0
}

/// Of which volumes writes were sent.
fn volumes(writes: &[WriteRequest]) -> Vec<VolumeId> {
    writes.iter().map(|write| write.volume).collect()
}

fn answer(gateway: &mut Gateway, write: &WriteRequest, result: Result<(), IoStatus>, now: Duration) {
    let done = WriteDone { pg: write.pg, request: write.request, result };
    gateway.answer(FAR, Message::WriteDone(done), now);
}

/// Lets time pass until the write that was sent is given up; gives what settles it, if that was sent.
fn give_up(gateway: &mut Gateway, token: u64) -> (Duration, Vec<WriteRequest>) {
    for half in 1..200 {
        let now = Duration::from_millis(half * 500);
        gateway.tick(now);
        let (sent, ended) = effects(gateway);
        if !ended.is_empty() {
            assert_eq!(ended, [(token, Outcome::Failed(IoStatus::Io))]);
            return (now, sent);
        }
    }
    panic!("nothing was given up");
}

#[test]
fn another_gateway_waits_until_what_was_given_up_is_settled() {
    let [mut one, mut two] = gateways();
    let former = submit(&mut one, 1, "v1", Duration::ZERO).remove(0);
    let (now, settles) = give_up(&mut one, 1);
    let [settle] = &settles[..] else { panic!("{}", settles.len()) };
    assert!(settle.request > former.request && settle.oldest > former.request);
    assert_eq!(settle.body, Body::Zero);
    assert!(u64::from(settle.chunk.0) * azekura_base::CHUNK_SIZE as u64 >= azekura_base::VOLUME_SIZE_MAX);

    assert!(one.unsettled().has(VolumeId(1)) && two.unsettled().has(VolumeId(1)) && !two.unsettled().has(VolumeId(2)));
    assert_eq!(volumes(&submit(&mut two, 2, "v1", now)), []);
    // Other volumes of the group don't notice, and neither does the gateway itself.
    assert_eq!(submit(&mut two, 3, "v2", now).len(), 1);
    let next = submit(&mut one, 4, "v1", now).remove(0);
    assert!(next.oldest > former.request);
    // A refusal settles nothing, and neither does an error.
    answer(&mut one, settle, Err(IoStatus::Redirect), now);
    two.tick(now + RETRY_INTERVAL);
    assert_eq!(volumes(&sent(&mut two)), []);
    answer(&mut one, settle, Err(IoStatus::Io), now);

    let mut later = now + Duration::from_secs(1);
    one.tick(later);
    let again = sent(&mut one).pop().unwrap();
    let again = if again.request == settle.request {
        answer(&mut one, &again, Err(IoStatus::Io), later);
        later += Duration::from_secs(1);
        one.tick(later);
        sent(&mut one).pop().unwrap()
    } else {
        again
    };
    assert_eq!(again.body, Body::Zero);
    two.tick(later);
    assert_eq!(volumes(&sent(&mut two)), []);
    answer(&mut one, &again, Ok(()), later);
    assert!(!two.unsettled().has(VolumeId(1)));
    assert!(two.next_tick().is_some());
    two.tick(later + RETRY_INTERVAL);
    assert_eq!(sent(&mut two).len(), 1);
}

#[test]
fn a_write_does_not_pass_over_one_that_was_given_up_before_it() {
    let [mut one, _] = gateways();
    let waits = submit(&mut one, 1, "v3", Duration::ZERO).remove(0);
    let former = submit(&mut one, 2, "v1", Duration::ZERO).remove(0);
    let (now, again) = give_up(&mut one, 2);
    assert!(again.iter().all(|write| write.volume == VolumeId(3)), "{:?}", volumes(&again));
    // Its `oldest` would be that of the write which waits for ever.
    assert_eq!(volumes(&submit(&mut one, 3, "v1", now)), []);
    assert_eq!(submit(&mut one, 4, "v2", now).len(), 1);
    answer(&mut one, &waits, Ok(()), now);
    let writes = sent(&mut one);
    assert_eq!(writes.len(), 2);
    assert!(writes.iter().all(|write| write.oldest > former.request && write.volume == VolumeId(1)));
}

#[test]
fn nothing_is_left_to_settle_of_what_has_ended() {
    for ends in [true, false] {
        let [mut one, mut two] = gateways();
        submit(&mut one, 1, "v1", Duration::ZERO);
        let (now, _) = give_up(&mut one, 1);
        assert_eq!(volumes(&submit(&mut two, 2, "v1", now)), []);
        if ends {
            one.end_attachments(|id, attachment| id == VolumeId(1) && attachment == HELD);
        } else {
            configure(&mut one, &[volume(2, Some(BOUND))]);
        }
        assert!(!two.unsettled().has(VolumeId(1)));
        two.tick(now + RETRY_INTERVAL);
        assert_eq!(sent(&mut two).len(), 1);
        assert_eq!(one.next_tick(), None);
    }
}

#[test]
fn nobody_passes_a_write_whose_client_is_gone() {
    let [mut one, mut two] = gateways();
    let now = Duration::ZERO;
    let former = submit(&mut one, 1, "v1", now).remove(0);
    one.orphan(1);
    assert!(two.unsettled().has(VolumeId(1)));
    for gateway in [&mut one, &mut two] {
        assert_eq!(volumes(&submit(gateway, 2, "v1", now)), []);
        assert_eq!(volumes(&submit(gateway, 3, "v2", now)), [VolumeId(2)]);
    }
    // It goes on: who said goodbye may count on it.
    answer(&mut one, &former, Ok(()), now);
    assert!(!two.unsettled().has(VolumeId(1)));
    assert_eq!(volumes(&sent(&mut one)), [VolumeId(1)]);
    two.tick(now + RETRY_INTERVAL);
    assert_eq!(volumes(&sent(&mut two)), [VolumeId(1)]);
}

#[test]
fn writes_without_a_client_do_not_wait_for_each_other() {
    let [mut one, mut two] = gateways();
    let now = Duration::ZERO;
    // More than the windows: what has no number yet is without a client, too.
    for gateway in [&mut one, &mut two] {
        for token in 0..WRITE_WINDOW + 10 {
            gateway.submit(token, "v1", HELD, Op::Zero { offset: 0, len: 4096 }, now);
        }
        (0..WRITE_WINDOW + 10).for_each(|token| gateway.orphan(token));
    }
    for _ in 0..4 {
        for gateway in [&mut one, &mut two] {
            let writes = sent(gateway);
            writes.iter().for_each(|write| answer(gateway, write, Ok(()), now));
            gateway.tick(now + RETRY_INTERVAL);
        }
    }
    assert!(!one.unsettled().has(VolumeId(1)));
    assert_eq!((one.in_flight(), two.in_flight()), (0, 0));
}

#[test]
fn a_write_without_a_client_that_is_given_up_is_settled_first() {
    let [mut one, two] = gateways();
    submit(&mut one, 1, "v1", Duration::ZERO);
    one.orphan(1);
    let (now, settles) = give_up(&mut one, 1);
    assert!(two.unsettled().has(VolumeId(1)));
    answer(&mut one, &settles[0], Ok(()), now);
    assert!(!two.unsettled().has(VolumeId(1)));
}

#[test]
fn what_was_given_up_under_a_later_attachment_is_settled_when_an_earlier_one_ends() {
    let [mut one, _] = gateways();
    submit(&mut one, 1, "v1", Duration::ZERO);
    let (now, settles) = give_up(&mut one, 1);
    assert_eq!(settles[0].attachment, HELD);
    submit_under(&mut one, 2, "v1", Generation(9), now);
    let later = now + BOUND + BOUND;
    one.tick(later);
    assert!(effects(&mut one).1.contains(&(2, Outcome::Failed(IoStatus::Io))));
    one.end_attachments(|_, attachment| attachment == HELD);
    one.tick(later + Duration::from_secs(1));
    let settle = sent(&mut one).pop().unwrap();
    assert_eq!((settle.attachment, &settle.body), (Generation(9), &Body::Zero));
    answer(&mut one, &settle, Ok(()), later + Duration::from_secs(1));
    assert!(!one.unsettled().has(VolumeId(1)));
}
