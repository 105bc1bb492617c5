//! An encrypted volume: what leaves the gateway, and what of it comes back.

use crate::*;
use azekura_base::{
    BLOCK_SIZE, Body, CHUNK_SIZE, Checksums, Endpoint, Extent, Generation, IoStatus, KeyId, LayerId, NodeId, PgId,
    SessionId, VolumeId, block_checksums, checksum,
};
use azekura_cipher::{UNIT_SIZE, VolumeKey, VolumeKeys};
use azekura_wire::{Message, ReadDone, WriteDone, WriteRequest};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const HOME: Endpoint = Endpoint::first(NodeId(1));
pub(crate) const KEY: KeyId = KeyId(5);
pub(crate) const HELD: Generation = Generation(4);

fn key() -> VolumeKey {
    VolumeKey::new(&std::array::from_fn(|at| at as u8)).unwrap()
}

fn keyring(key: Result<VolumeKey, String>) -> Arc<Keyring> {
    Arc::new(BTreeMap::from([(KEY, key.map(|key| Arc::new(VolumeKeys::first(Arc::new(key)))))]))
}

/// A gateway with an encrypted volume `v` of 32 MiB, in one group, which is here.
pub(crate) fn gateway(keys: Arc<Keyring>) -> Gateway {
    let mut gateway = Gateway::new(HOME, SessionId(9));
    let volume = VolumeView {
        id: VolumeId(1),
        name: "v".into(),
        size: 32 << 20,
        logical_block: azekura_base::LogicalBlock::Bytes512,
        layer: LayerId(1),
        cut: None,
        read_only: false,
        io_timeout: None,
        groups: [PgId(0)].into(),
        group_offset: 0,
        key: Some(KEY),
        limits: None,
    };
    let group = GroupView { primary: HOME, copies: vec![HOME], primary_reads: false };
    gateway.configure(BTreeMap::from([("v".into(), Arc::new(volume))]), BTreeMap::from([(PgId(0), group)]));
    gateway.set_keys(keys);
    gateway
}

fn writes(gateway: &mut Gateway, op: Op) -> Vec<WriteRequest> {
    gateway.submit(7, "v", HELD, op, Duration::ZERO);
    let mut writes = Vec::new();
    while let Some(effect) = gateway.next_effect() {
        let write = match effect {
            Effect::Send(HOME, Message::Write(write)) => write,
            Effect::Complete(7, Outcome::Done) => continue,
            other => panic!("{other:?}"),
        };
        let done = Message::WriteDone(WriteDone { pg: write.pg, request: write.request, result: Ok(()) });
        gateway.answer(HOME, done, Duration::ZERO);
        writes.push(write);
    }
    writes
}

/// What a client sees when copies hold `extents` from `offset` on.
fn read(gateway: &mut Gateway, offset: u64, len: u64, extents: Vec<Extent>) -> Vec<u8> {
    gateway.submit(8, "v", HELD, Op::Read { offset, len }, Duration::ZERO);
    let Some(Effect::Send(HOME, Message::Read(read))) = gateway.next_effect() else { panic!("it is not asked for") };
    let done = Message::ReadDone(ReadDone { request: read.request, result: Ok(extents) });
    gateway.answer(HOME, done, Duration::ZERO);
    let Some(Effect::Complete(8, Outcome::Read(pieces))) = gateway.next_effect() else { panic!("it is not answered") };
    let mut seen = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Data(bytes) => seen.extend_from_slice(&bytes),
            Piece::Zero(len) => seen.resize(seen.len() + len, 0),
        }
    }
    seen
}

fn data(bytes: &[u8]) -> Extent {
    let checksums: Checksums = block_checksums(bytes).collect();
    Extent::Data { bytes: Bytes::copy_from_slice(bytes), checksums }
}

fn text(len: usize) -> Vec<u8> {
    b"a secret of whoever wrote it; ".iter().copied().cycle().take(len).collect()
}

fn refusal(gateway: &mut Gateway, op: Op) -> IoStatus {
    gateway.submit(9, "v", HELD, op, Duration::ZERO);
    match gateway.next_effect() {
        Some(Effect::Complete(9, Outcome::Failed(status))) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_ciphertext_leaves_and_its_checksums_are_of_that() {
    let mut gateway = gateway(keyring(Ok(key())));
    let plain = text(3 * BLOCK_SIZE);
    // Over the border of two chunks.
    let offset = (CHUNK_SIZE - BLOCK_SIZE) as u64;
    let sent = writes(&mut gateway, Op::Write { offset, bytes: Bytes::from(plain.clone()) });
    assert_eq!(sent.iter().map(|write| write.len as usize / BLOCK_SIZE).collect::<Vec<_>>(), [1, 2]);
    let mut held = Vec::new();
    for write in &sent {
        let Body::Data { bytes, checksums } = &write.body else { panic!("it is data") };
        assert!(block_checksums(bytes).eq(checksums.iter().copied()));
        held.extend_from_slice(bytes);
    }
    assert!(!held.windows(8).any(|seen| seen == &plain[..8]));
    let mut opened = vec![0; held.len()];
    key().decrypt(offset / UNIT_SIZE as u64, &held, &mut opened);
    assert!(opened == plain, "the tweak is the unit's place in the volume, not in the chunk");
    let second = read(&mut gateway, CHUNK_SIZE as u64, 2 * BLOCK_SIZE as u64, vec![data(&held[BLOCK_SIZE..])]);
    assert!(second == plain[BLOCK_SIZE..]);
}

#[test]
fn each_block_that_is_touched_has_a_checksum_of_its_own() {
    let mut gateway = gateway(keyring(Ok(key())));
    let unit = UNIT_SIZE as u64;
    for (first, units, expected) in [(0, 8, vec![8]), (6, 2, vec![2]), (6, 3, vec![2, 1]), (1, 17, vec![7, 8, 2])] {
        let bytes = Bytes::from(text(units * UNIT_SIZE));
        let sent = writes(&mut gateway, Op::Write { offset: first * unit, bytes });
        let Body::Data { bytes, checksums } = &sent[0].body else { panic!("it is data") };
        let mut rest = &bytes[..];
        for (units, sum) in expected.iter().zip(checksums.iter()) {
            let (block, behind) = rest.split_at(units * UNIT_SIZE);
            assert_eq!(*sum, checksum(block), "{units} units from {first} on");
            rest = behind;
        }
        assert!(rest.is_empty() && checksums.len() == expected.len());
    }
}

#[test]
fn equal_bytes_in_two_places_are_not_equal_on_copies() {
    let mut gateway = gateway(keyring(Ok(key())));
    let sent = writes(&mut gateway, Op::Write { offset: 0, bytes: Bytes::from(vec![7; 2 * BLOCK_SIZE]) });
    let Body::Data { bytes, .. } = &sent[0].body else { panic!("it is data") };
    let units: std::collections::BTreeSet<&[u8]> = bytes.chunks(UNIT_SIZE).collect();
    assert_eq!(units.len(), 2 * BLOCK_SIZE / UNIT_SIZE);
}

#[test]
fn zeros_take_no_space_and_stay_zeros() {
    let mut gateway = gateway(keyring(Ok(key())));
    let whole = writes(&mut gateway, Op::Write { offset: 0, bytes: Bytes::from(vec![0; BLOCK_SIZE]) });
    assert_eq!(whole[0].body, Body::Zero);
    let (offset, len) = (UNIT_SIZE as u64, BLOCK_SIZE as u64);
    let parts = writes(&mut gateway, Op::Zero { offset, len });
    for write in &parts {
        let Body::Data { bytes, .. } = &write.body else { panic!("parts of blocks are data") };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
    assert_eq!(parts.len(), 2);
    assert_eq!(read(&mut gateway, 0, 8192, vec![Extent::Zero { count: 2 }]), vec![0; 8192]);
}

/// A primary merges units without a key (`crates/replica/src/primary/merge.rs`): bytes over bytes, zeros where nothing
/// was written.
#[test]
fn parts_of_a_block_are_merged_as_ciphertext_with_holes() {
    let mut gateway = gateway(keyring(Ok(key())));
    let (mut held, mut wanted) = (vec![0; BLOCK_SIZE], vec![0; BLOCK_SIZE]);
    let at = |block: usize, unit: usize| (block * BLOCK_SIZE + unit * UNIT_SIZE) as u64;
    for (unit, count) in [(1, 1), (4, 2), (5, 2)] {
        let plain: Vec<u8> = text(count * UNIT_SIZE).iter().map(|byte| byte ^ unit as u8).collect();
        let sent = writes(&mut gateway, Op::Write { offset: at(6, unit), bytes: Bytes::from(plain.clone()) });
        let Body::Data { bytes, .. } = &sent[0].body else { panic!("it is data") };
        let place = unit * UNIT_SIZE..(unit + count) * UNIT_SIZE;
        assert_eq!(u64::from(sent[0].offset), at(6, unit));
        held[place.clone()].copy_from_slice(bytes);
        wanted[place].copy_from_slice(&plain);
    }
    assert!(read(&mut gateway, at(6, 0), BLOCK_SIZE as u64, vec![data(&held)]) == wanted);
    // And of a part of it.
    let len = 3 * UNIT_SIZE as u64;
    assert!(read(&mut gateway, at(6, 4), len, vec![data(&held)]) == wanted[4 * UNIT_SIZE..7 * UNIT_SIZE]);
    let zeroed = writes(&mut gateway, Op::Zero { offset: at(6, 4), len: UNIT_SIZE as u64 });
    let Body::Data { bytes, .. } = &zeroed[0].body else { panic!("it is data") };
    held[4 * UNIT_SIZE..5 * UNIT_SIZE].copy_from_slice(bytes);
    wanted[4 * UNIT_SIZE..5 * UNIT_SIZE].fill(0);
    assert!(read(&mut gateway, at(6, 0), BLOCK_SIZE as u64, vec![data(&held)]) == wanted);
}

#[test]
fn what_cuts_a_unit_is_refused() {
    let mut gateway = gateway(keyring(Ok(key())));
    for (offset, len) in [(1, 512), (512, 100), (256, 256)] {
        assert_eq!(refusal(&mut gateway, Op::Read { offset, len }), IoStatus::Invalid);
        assert_eq!(refusal(&mut gateway, Op::Zero { offset, len }), IoStatus::Invalid);
        let bytes = Bytes::from(vec![1; len as usize]);
        assert_eq!(refusal(&mut gateway, Op::Write { offset, bytes }), IoStatus::Invalid);
    }
    gateway.submit(7, "v", HELD, Op::Trim { offset: 1, len: 512 }, Duration::ZERO);
    assert!(matches!(gateway.next_effect(), Some(Effect::Complete(7, Outcome::Done))), "a trim has no bytes");
}

#[test]
fn without_the_key_nothing_is_served_and_the_reason_is_told() {
    let mut gateway = gateway(keyring(Err("the key file is away".into())));
    assert_eq!(refusal(&mut gateway, Op::Read { offset: 0, len: 4096 }), IoStatus::Io);
    let trims = writes(&mut gateway, Op::Trim { offset: 0, len: 4096 });
    assert_eq!(trims[0].body, Body::Zero, "to make a volume smaller takes no key");
    let view = Arc::clone(&gateway.volumes()["v"]);
    let why = view.why_sealed(gateway.keys()).unwrap();
    assert!(why.contains("'v' is encrypted") && why.contains("the key file is away"), "{why}");
    assert!(view.why_sealed(&Keyring::new()).is_some());
    gateway.set_keys(keyring(Ok(key())));
    assert_eq!(view.why_sealed(gateway.keys()), None);
    assert_eq!(VolumeView { key: None, ..(*view).clone() }.why_sealed(&Keyring::new()), None);
    assert_eq!(writes(&mut gateway, Op::Write { offset: 0, bytes: Bytes::from(text(4096)) }).len(), 1);
}

#[test]
fn what_is_under_way_goes_on_with_the_key_that_it_had() {
    let mut gateway = gateway(keyring(Ok(key())));
    let plain = text(BLOCK_SIZE);
    let mut held = vec![0; BLOCK_SIZE];
    key().encrypt(0, &plain, &mut held);
    gateway.submit(8, "v", HELD, Op::Read { offset: 0, len: 4096 }, Duration::ZERO);
    let Some(Effect::Send(_, Message::Read(read))) = gateway.next_effect() else { panic!("it is not asked for") };
    gateway.set_keys(Arc::default());
    let done = Message::ReadDone(ReadDone { request: read.request, result: Ok(vec![data(&held)]) });
    gateway.answer(HOME, done, Duration::ZERO);
    let Some(Effect::Complete(8, Outcome::Read(pieces))) = gateway.next_effect() else { panic!("it is not answered") };
    assert_eq!(pieces, [Piece::Data(Bytes::from(plain))]);
}

#[test]
fn what_is_expected_is_compared_as_it_is_held() {
    let mut gateway = gateway(keyring(Ok(key())));
    let mut plain = vec![7; 2 * UNIT_SIZE];
    plain[UNIT_SIZE..].fill(0);
    let (offset, new) = (4096 + UNIT_SIZE as u64, Bytes::from(vec![0; 2 * UNIT_SIZE]));
    let op = || Op::CompareAndWrite { offset, expected: plain.clone().into(), bytes: new.clone() };
    let [write] = &writes(&mut gateway, op())[..] else { panic!("it is one") };
    let expected = write.expected.as_ref().unwrap();
    let as_held = writes(&mut gateway, Op::Write { offset, bytes: plain.clone().into() });
    let Body::Data { bytes: mut held, .. } = as_held[0].body.clone() else { panic!("it is data") };
    assert_ne!(held, plain);
    assert_eq!(expected.first_difference(&held), None);
    // Zeros that nobody has written are not encrypted.
    held = [&held[..UNIT_SIZE], &[0; UNIT_SIZE]].concat().into();
    assert_eq!(expected.first_difference(&held), None);
    held = [&[0; UNIT_SIZE], &held[UNIT_SIZE..]].concat().into();
    assert!(expected.first_difference(&held).is_some(), "zeros in the place of data");
    // Which byte of a unit differs, nobody knows.
    gateway.submit(9, "v", HELD, op(), Duration::ZERO);
    let Some(Effect::Send(HOME, Message::Write(write))) = gateway.next_effect() else { panic!("it is not asked for") };
    let result = Err(IoStatus::Miscompare(700));
    gateway.answer(
        HOME,
        Message::WriteDone(WriteDone { pg: write.pg, request: write.request, result }),
        Duration::ZERO,
    );
    let told = gateway.next_effect();
    assert!(matches!(told, Some(Effect::Complete(9, Outcome::Failed(IoStatus::Miscompare(512))))), "{told:?}");
}
