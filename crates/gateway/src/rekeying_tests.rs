//! Blocks under former keys: they are read with those, changed on their way, and get the key that is written with.

use crate::ciphers_tests::{HELD, HOME, KEY, gateway};
use crate::*;
use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Body, CHUNK_BLOCKS, Checksums, ChunkIndex, Extent, IoStatus, KeyGeneration,
    KeyId, Run, VolumeId, block_checksums,
};
use azekura_cipher::{UNIT_SIZE, VolumeKey, VolumeKeys};
use azekura_wire::{Message, ReadDone, StatusDone, WriteDone, WriteRequest};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

const CHUNK: ChunkIndex = ChunkIndex(0);

fn generation(number: u8) -> KeyGeneration {
    KeyGeneration::new(number).unwrap()
}

/// The key that generation `number` has: always the same one.
fn key(number: u8) -> Arc<VolumeKey> {
    static KEYS: OnceLock<Vec<Arc<VolumeKey>>> = OnceLock::new();
    let new = |number: u8| Arc::new(VolumeKey::new(&std::array::from_fn(|at| at as u8 ^ number << 4)).unwrap());
    KEYS.get_or_init(|| (0..8).map(new).collect())[usize::from(number)].clone()
}

/// The generations of these numbers, of which one is written with.
fn keys(numbers: &[u8], writing: u8) -> Arc<Keyring> {
    let keys = numbers.iter().map(|number| (generation(*number), key(*number))).collect();
    let keys = VolumeKeys::new(keys, generation(writing)).unwrap();
    Arc::new(BTreeMap::from([(KEY, Ok(Arc::new(keys)))]))
}

/// What copies hold of the first chunk: each block, encrypted, and the key that it is under.
type Held = BTreeMap<u16, (Vec<u8>, KeyGeneration)>;

/// What somebody else does to that.
type Change = Box<dyn FnOnce(&mut Held)>;

/// A gateway, and the one group that it writes to.
struct Rig {
    gateway: Gateway,
    held: Held,
    /// What is done right before the group looks at a write for the nth time.
    before_write: BTreeMap<usize, Change>,
    writes: usize,
    outcomes: Vec<(u64, Outcome)>,
    rekeyed: Vec<(u64, Result<Rekeyed, IoStatus>)>,
}

impl Rig {
    fn new(ring: Arc<Keyring>) -> Rig {
        let gateway = gateway(ring);
        let (outcomes, rekeyed) = (Vec::new(), Vec::new());
        Rig { gateway, held: BTreeMap::new(), before_write: BTreeMap::new(), writes: 0, outcomes, rekeyed }
    }

    /// Has the group answer all that is asked of it.
    fn run(&mut self) {
        let mut steps = 0;
        while let Some(effect) = self.gateway.next_effect() {
            steps += 1;
            assert!(steps < 10_000, "it goes in circles");
            let message = match effect {
                Effect::Complete(token, outcome) => {
                    self.outcomes.push((token, outcome));
                    continue;
                }
                Effect::Rekeyed(token, result) => {
                    self.rekeyed.push((token, result));
                    continue;
                }
                Effect::Send(_, message) => message,
            };
            let answer = match message {
                Message::Write(write) => {
                    self.writes += 1;
                    if let Some(change) = self.before_write.remove(&self.writes) {
                        change(&mut self.held);
                    }
                    let result = self.write(&write);
                    Message::WriteDone(WriteDone { pg: write.pg, request: write.request, result })
                }
                Message::Read(read) => {
                    Message::ReadDone(ReadDone { request: read.request, result: Ok(self.extents(&read.range)) })
                }
                Message::Status(status) => {
                    let run = |block| Run { count: 1, data: self.held.get(&block).map(|(_, key)| *key) };
                    let runs = (0..CHUNK_BLOCKS as u16).map(run).collect();
                    Message::StatusDone(StatusDone { request: status.request, result: Ok(runs) })
                }
                other => panic!("{other:?}"),
            };
            self.gateway.answer(HOME, answer, Duration::ZERO);
        }
    }

    /// What a primary does with a write (`crates/replica/src/primary/merge.rs`).
    fn write(&mut self, write: &WriteRequest) -> Result<(), IoStatus> {
        assert_eq!((write.chunk, write.attachment), (CHUNK, HELD));
        let range = BlockRange::of_bytes(write.layer, write.chunk, write.offset, write.len);
        let Body::Data { bytes, checksums } = &write.body else {
            range.each().for_each(|block| drop(self.held.remove(&block.0)));
            return Ok(());
        };
        let (start, end) = (write.offset as usize, (write.offset + write.len) as usize);
        for block in range.each() {
            let place = usize::from(block.0) * BLOCK_SIZE;
            let is_whole = start <= place && end >= place + BLOCK_SIZE;
            let zeros = vec![0; BLOCK_SIZE];
            let (held, key) = match self.held.get(&block.0) {
                Some((held, key)) => (held, Some(*key)),
                None => (&zeros, None),
            };
            let other = |wanted: KeyGeneration| key.is_some_and(|key| key != wanted);
            if !is_whole && other(checksums.key()) || write.expected.as_ref().is_some_and(|e| other(e.key)) {
                return Err(IoStatus::OtherKey);
            }
            if let Some(expected) = &write.expected
                && let Some(at) = expected.first_difference(&held[start - place..end - place])
            {
                return Err(IoStatus::Miscompare(at));
            }
        }
        for block in range.each() {
            let place = usize::from(block.0) * BLOCK_SIZE;
            let (from, to) = (start.max(place), end.min(place + BLOCK_SIZE));
            let (held, key) = self.held.entry(block.0).or_insert((vec![0; BLOCK_SIZE], checksums.key()));
            *key = checksums.key();
            held[from - place..to - place].copy_from_slice(&bytes[from - start..to - start]);
        }
        Ok(())
    }

    fn extents(&self, range: &BlockRange) -> Vec<Extent> {
        let extent = |block: BlockIndex| match self.held.get(&block.0) {
            Some((bytes, key)) => {
                let checksums: Checksums = block_checksums(bytes).collect();
                Extent::Data { bytes: Bytes::copy_from_slice(bytes), checksums: checksums.under(*key) }
            }
            None => Extent::Zero { count: 1 },
        };
        range.each().map(extent).collect()
    }

    fn ask(&mut self, op: Op) -> Outcome {
        self.gateway.submit(7, "v", HELD, op, Duration::ZERO);
        self.run();
        let (token, outcome) = self.outcomes.pop().expect("it is answered");
        assert!(token == 7 && self.outcomes.is_empty());
        outcome
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let op = Op::Write { offset: offset as u64, bytes: Bytes::copy_from_slice(bytes) };
        assert_eq!(self.ask(op), Outcome::Done);
    }

    fn get(&mut self, offset: usize, len: usize) -> Vec<u8> {
        let Outcome::Read(pieces) = self.ask(Op::Read { offset: offset as u64, len: len as u64 }) else {
            panic!("it is not read");
        };
        let bytes = |piece| match piece {
            Piece::Data(bytes) => bytes.to_vec(),
            Piece::Zero(len) => vec![0; len],
        };
        pieces.into_iter().flat_map(bytes).collect()
    }

    fn rekey(&mut self, most: u32) -> Result<Rekeyed, IoStatus> {
        self.gateway.rekey(3, (VolumeId(1), HELD), (CHUNK, generation(1)), most, Duration::ZERO);
        self.run();
        let (token, result) = self.rekeyed.pop().expect("it is answered");
        assert!(token == 3 && self.rekeyed.is_empty() && self.outcomes.is_empty());
        result
    }

    fn key_of(&self, block: u16) -> Option<u8> {
        self.held.get(&block).map(|(_, key)| key.number())
    }
}

fn text(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 3) as u8 ^ seed).collect()
}

/// Four blocks under key 0, and a fifth of which one unit was written.
fn under_a_former_key() -> (Rig, Vec<u8>) {
    let mut rig = Rig::new(keys(&[0], 0));
    let mut plain = text(1, 5 * BLOCK_SIZE);
    plain[4 * BLOCK_SIZE + UNIT_SIZE..].fill(0);
    rig.put(0, &plain[..4 * BLOCK_SIZE + UNIT_SIZE]);
    rig.gateway.set_keys(keys(&[0, 1], 1));
    (rig, plain)
}

#[test]
fn blocks_are_read_with_the_key_that_each_has() {
    let (mut rig, mut plain) = under_a_former_key();
    let new = text(2, 2 * BLOCK_SIZE);
    rig.put(BLOCK_SIZE, &new);
    plain[BLOCK_SIZE..3 * BLOCK_SIZE].copy_from_slice(&new);
    assert_eq!(
        (0..6).map(|block| rig.key_of(block)).collect::<Vec<_>>(),
        [Some(0), Some(1), Some(1), Some(0), Some(0), None]
    );
    assert!(rig.get(0, 5 * BLOCK_SIZE) == plain);
    assert!(rig.get(BLOCK_SIZE - UNIT_SIZE, 2 * UNIT_SIZE) == plain[BLOCK_SIZE - UNIT_SIZE..BLOCK_SIZE + UNIT_SIZE]);
}

#[test]
fn a_part_of_a_block_under_a_former_key_is_written_all_the_same() {
    for (offset, len) in [(UNIT_SIZE, UNIT_SIZE), (BLOCK_SIZE - UNIT_SIZE, BLOCK_SIZE + 2 * UNIT_SIZE)] {
        let (mut rig, mut plain) = under_a_former_key();
        let new = text(9, len);
        rig.put(offset, &new);
        plain[offset..offset + len].copy_from_slice(&new);
        assert!(rig.get(0, 5 * BLOCK_SIZE) == plain, "{len} bytes at {offset}");
        let touched = offset / BLOCK_SIZE..=(offset + len - 1) / BLOCK_SIZE;
        for block in 0..5 {
            assert_eq!(rig.key_of(block), Some(u8::from(touched.contains(&usize::from(block)))));
        }
        assert_eq!(rig.gateway.in_flight(), 0);
        assert_eq!(rig.gateway.in_flight_bytes(), 0);
    }
}

#[test]
fn zeros_of_a_part_and_comparisons_meet_former_keys_too() {
    let (mut rig, mut plain) = under_a_former_key();
    let zero = Op::Zero { offset: UNIT_SIZE as u64, len: UNIT_SIZE as u64 };
    assert_eq!(rig.ask(zero), Outcome::Done);
    plain[UNIT_SIZE..2 * UNIT_SIZE].fill(0);
    let compare = |expected: &[u8], bytes: Vec<u8>| Op::CompareAndWrite {
        offset: BLOCK_SIZE as u64,
        expected: Bytes::copy_from_slice(expected),
        bytes: bytes.into(),
    };
    let other = rig.ask(compare(&text(77, UNIT_SIZE), text(5, UNIT_SIZE)));
    assert_eq!(other, Outcome::Failed(IoStatus::Miscompare(0)));
    let same = plain[BLOCK_SIZE..BLOCK_SIZE + UNIT_SIZE].to_vec();
    assert_eq!(rig.ask(compare(&same, text(5, UNIT_SIZE))), Outcome::Done);
    plain[BLOCK_SIZE..BLOCK_SIZE + UNIT_SIZE].copy_from_slice(&text(5, UNIT_SIZE));
    assert!(rig.get(0, 5 * BLOCK_SIZE) == plain);
}

#[test]
fn a_chunk_gets_the_key_that_is_written_with() {
    let (mut rig, plain) = under_a_former_key();
    assert_eq!(rig.rekey(3), Ok(Rekeyed { moved: 3, left: 2 }));
    assert_eq!(rig.rekey(3), Ok(Rekeyed { moved: 2, left: 0 }));
    assert_eq!(rig.rekey(3), Ok(Rekeyed { moved: 0, left: 0 }));
    assert!((0..5).all(|block| rig.key_of(block) == Some(1)) && rig.key_of(5).is_none());
    // The former one is not needed any more.
    rig.gateway.set_keys(keys(&[1], 1));
    assert!(rig.get(0, 5 * BLOCK_SIZE) == plain);
}

#[test]
fn what_a_client_has_written_meanwhile_stays() {
    let (mut rig, mut plain) = under_a_former_key();
    let mut other = Rig::new(keys(&[0, 1], 1));
    other.put(2 * BLOCK_SIZE, &text(33, BLOCK_SIZE));
    let written = other.held[&2].clone();
    // Between the read of the block and the write under the other key.
    rig.before_write.insert(rig.writes + 1, Box::new(move |held| drop(held.insert(2, written))));
    let gone = Box::new(|held: &mut BTreeMap<u16, _>| drop(held.remove(&3)));
    rig.before_write.insert(rig.writes + 2, gone);
    assert_eq!(rig.rekey(99), Ok(Rekeyed { moved: 3, left: 2 }));
    assert_eq!(rig.rekey(99), Ok(Rekeyed { moved: 0, left: 0 }));
    plain[2 * BLOCK_SIZE..3 * BLOCK_SIZE].copy_from_slice(&text(33, BLOCK_SIZE));
    plain[3 * BLOCK_SIZE..4 * BLOCK_SIZE].fill(0);
    assert!(rig.get(0, 5 * BLOCK_SIZE) == plain);
}

/// Another gateway knows the next key already, and has written with it.
#[test]
fn nobody_moves_a_block_back() {
    let (mut rig, mut plain) = under_a_former_key();
    rig.put(0, &plain[..BLOCK_SIZE]);
    rig.gateway.set_keys(keys(&[0, 1], 0));
    let new = text(4, BLOCK_SIZE);
    // From a block under 1 to one under 0.
    rig.put(2 * UNIT_SIZE, &new);
    plain[2 * UNIT_SIZE..2 * UNIT_SIZE + BLOCK_SIZE].copy_from_slice(&new);
    assert_eq!([0, 1, 2].map(|block| rig.key_of(block)), [Some(1), Some(1), Some(0)]);
    assert!(rig.get(0, 5 * BLOCK_SIZE) == plain);
    assert_eq!(rig.rekey(9), Err(IoStatus::OtherKey), "0 is what is written with here");
}

#[test]
fn a_block_under_a_key_that_is_not_here_yet_is_waited_for() {
    let (mut rig, plain) = under_a_former_key();
    rig.put(0, &plain[..BLOCK_SIZE]);
    rig.gateway.set_keys(keys(&[0], 0));
    rig.gateway.submit(8, "v", HELD, Op::Read { offset: 0, len: 4096 }, Duration::ZERO);
    rig.run();
    assert!(rig.outcomes.is_empty());
    rig.gateway.set_keys(keys(&[0, 1], 1));
    rig.gateway.tick(Duration::from_secs(1));
    rig.run();
    let (_, Outcome::Read(pieces)) = rig.outcomes.pop().unwrap() else { panic!("it is not read") };
    assert_eq!(pieces, [Piece::Data(Bytes::from(plain[..BLOCK_SIZE].to_vec()))]);
}

/// Numbers of generations are used again: what was read under one is not decrypted with a later key of that number.
#[test]
fn a_block_that_may_be_under_either_of_two_keys_is_read_again() {
    let (mut rig, plain) = under_a_former_key();
    rig.gateway.submit(8, "v", HELD, Op::Read { offset: 0, len: 4096 }, Duration::ZERO);
    let Some(Effect::Send(_, Message::Read(read))) = rig.gateway.next_effect() else { panic!("it is not asked for") };
    let answer = ReadDone { request: read.request, result: Ok(rig.extents(&read.range)) };
    // Many rotations later 0 is another key, under which the block is now.
    let later = VolumeKeys::new(vec![(generation(1), key(1)), (generation(0), key(7))], generation(0)).unwrap();
    let mut moved = vec![0; BLOCK_SIZE];
    key(7).encrypt(0, &plain[..BLOCK_SIZE], &mut moved);
    rig.held.insert(0, (moved, generation(0)));
    rig.gateway.set_keys(Arc::new(BTreeMap::from([(KEY, Ok(Arc::new(later)))])));
    rig.gateway.answer(HOME, Message::ReadDone(answer), Duration::ZERO);
    rig.run();
    assert!(rig.outcomes.is_empty());
    rig.gateway.tick(Duration::from_secs(1));
    rig.run();
    let (_, Outcome::Read(pieces)) = rig.outcomes.pop().unwrap() else { panic!("it is not read") };
    assert_eq!(pieces, [Piece::Data(Bytes::from(plain[..BLOCK_SIZE].to_vec()))]);
}

#[test]
fn a_block_under_a_key_that_is_not_here_keeps_a_pass_from_ending() {
    let (mut rig, _) = under_a_former_key();
    let block = vec![9; BLOCK_SIZE];
    rig.held.insert(9, (block, generation(7)));
    assert_eq!(rig.rekey(99), Err(IoStatus::OtherKey));
}

#[test]
fn nobody_writes_for_a_client_that_is_gone() {
    let (mut rig, plain) = under_a_former_key();
    let op = Op::Write { offset: UNIT_SIZE as u64, bytes: text(9, UNIT_SIZE).into() };
    rig.gateway.submit(8, "v", HELD, op, Duration::ZERO);
    let Some(Effect::Send(_, Message::Write(write))) = rig.gateway.next_effect() else { panic!("it is not sent") };
    let refused = WriteDone { pg: write.pg, request: write.request, result: Err(IoStatus::OtherKey) };
    rig.gateway.answer(HOME, Message::WriteDone(refused), Duration::ZERO);
    rig.gateway.orphan(8);
    rig.run();
    assert_eq!(rig.outcomes.pop(), Some((8, Outcome::Failed(IoStatus::Fenced))));
    assert!(rig.get(0, 5 * BLOCK_SIZE) == plain);
    assert_eq!((rig.gateway.in_flight(), rig.gateway.in_flight_bytes()), (0, 0));
}

#[test]
fn what_waits_for_another_key_ends_with_its_attachment() {
    let (mut rig, _) = under_a_former_key();
    let op = Op::Write { offset: UNIT_SIZE as u64, bytes: text(9, UNIT_SIZE).into() };
    rig.gateway.submit(8, "v", HELD, op, Duration::ZERO);
    let Some(Effect::Send(_, Message::Write(write))) = rig.gateway.next_effect() else { panic!("it is not sent") };
    let refused = WriteDone { pg: write.pg, request: write.request, result: Err(IoStatus::OtherKey) };
    rig.gateway.answer(HOME, Message::WriteDone(refused), Duration::ZERO);
    rig.gateway.end_attachments(|_, attachment| attachment == HELD);
    while let Some(effect) = rig.gateway.next_effect() {
        if let Effect::Complete(token, outcome) = effect {
            rig.outcomes.push((token, outcome));
        }
    }
    assert_eq!(rig.outcomes, [(8, Outcome::Failed(IoStatus::Fenced))]);
    assert_eq!((rig.gateway.in_flight(), rig.gateway.in_flight_bytes()), (0, 0));
}

#[test]
fn without_the_keys_or_the_volume_nothing_is_moved() {
    let (mut rig, _) = under_a_former_key();
    rig.gateway.set_keys(Arc::new(BTreeMap::from([(KEY, Err("it is away".to_owned()))])));
    assert_eq!(rig.rekey(9), Err(IoStatus::Io));
    rig.gateway.configure(BTreeMap::new(), BTreeMap::new());
    assert_eq!(rig.rekey(9), Err(IoStatus::Gone));
}

#[test]
fn what_is_on_its_way_counts_as_written_under_its_key() {
    let mut rig = Rig::new(keys(&[0], 0));
    let used = |rig: &Rig| {
        let used = rig.gateway.key_use(KEY);
        (used.newest.map(KeyGeneration::number), used.writes.map(KeyGeneration::number))
    };
    assert_eq!(used(&rig), (Ok(0), Some(0)));
    let write = |at: usize| Op::Write { offset: (at * UNIT_SIZE) as u64, bytes: text(9, UNIT_SIZE).into() };
    rig.gateway.submit(8, "v", HELD, write(1), Duration::ZERO);
    rig.gateway.set_keys(keys(&[0, 1], 1));
    assert_eq!(used(&rig), (Ok(1), Some(0)));
    let Some(Effect::Send(_, Message::Write(sent))) = rig.gateway.next_effect() else { panic!("it is not sent") };
    let refused = WriteDone { pg: sent.pg, request: sent.request, result: Err(IoStatus::OtherKey) };
    rig.gateway.set_keys(keys(&[0, 1], 0));
    rig.gateway.answer(HOME, Message::WriteDone(refused), Duration::ZERO);
    rig.gateway.set_keys(keys(&[0, 1], 1));
    assert_eq!(used(&rig).1, Some(0), "it waits for a block that gets the former key");
    rig.run();
    assert_eq!(used(&rig), (Ok(1), Some(1)));
    rig.gateway.set_keys(Arc::new(BTreeMap::from([(KEY, Err("it is away".to_owned()))])));
    assert_eq!(used(&rig), (Err("it is away".to_owned()), None));
    assert_eq!(rig.gateway.key_use(KeyId(6)).writes, None);
}

/// Has requests of the volume fail when they have waited for so long.
fn fails_after(rig: &mut Rig, bound: Duration) {
    let view = VolumeView { io_timeout: Some(bound), ..(*rig.gateway.volumes()["v"]).clone() };
    let group = GroupView { primary: HOME, copies: vec![HOME], primary_reads: false };
    let groups = view.groups.iter().map(|pg| (*pg, group.clone())).collect();
    rig.gateway.configure(BTreeMap::from([("v".into(), Arc::new(view))]), groups);
}

/// Lets time pass until the gateway has sent another write. Requests that end meanwhile have failed.
fn next_write(rig: &mut Rig, now: &mut Duration) -> WriteRequest {
    for _ in 0..1000 {
        match rig.gateway.next_effect() {
            Some(Effect::Send(_, Message::Write(write))) => return write,
            Some(Effect::Complete(_, outcome)) => assert_eq!(outcome, Outcome::Failed(IoStatus::Io)),
            Some(effect) => panic!("{effect:?}"),
            None => {
                *now += Duration::from_millis(500);
                rig.gateway.tick(*now);
            }
        }
    }
    panic!("nothing is sent");
}

/// What was given up may still be applied: the key that it is under is needed until that is no longer so.
#[test]
fn what_was_given_up_counts_as_written_under_its_key_until_it_is_settled() {
    for ends in [true, false] {
        let mut rig = Rig::new(keys(&[0], 0));
        fails_after(&mut rig, Duration::from_secs(2));
        let writes = |rig: &Rig| rig.gateway.key_use(KEY).writes.map(KeyGeneration::number);
        let write = || Op::Write { offset: 0, bytes: text(9, BLOCK_SIZE).into() };
        let mut now = Duration::ZERO;
        rig.gateway.submit(8, "v", HELD, write(), now);
        let former = next_write(&mut rig, &mut now);
        rig.gateway.set_keys(keys(&[0, 1], 1));
        let settles = next_write(&mut rig, &mut now);
        assert!(settles.body == Body::Zero && settles.oldest > former.request, "it is given up");
        assert_eq!((rig.gateway.in_flight(), writes(&rig)), (0, Some(0)));
        // Another one, under the next key, does not make that later.
        rig.gateway.submit(9, "v", HELD, write(), now);
        next_write(&mut rig, &mut now);
        rig.gateway.tick(now + Duration::from_secs(9));
        now += Duration::from_secs(9);
        assert_eq!((rig.gateway.in_flight(), writes(&rig)), (0, Some(0)));
        assert_eq!(rig.gateway.key_use(KeyId(6)).writes, None, "another key");
        if ends {
            rig.gateway.end_attachments(|_, attachment| attachment == HELD);
        } else {
            let done = |write: &WriteRequest, result| {
                Message::WriteDone(WriteDone { pg: write.pg, request: write.request, result })
            };
            // It does not settle what was given up after it.
            rig.gateway.answer(HOME, done(&settles, Ok(())), now);
            assert_eq!(writes(&rig), Some(0));
            let settles = loop {
                let write = next_write(&mut rig, &mut now);
                if write.body == Body::Zero && write.request > settles.request {
                    break write;
                }
            };
            rig.gateway.answer(HOME, done(&settles, Ok(())), now);
        }
        assert_eq!(writes(&rig), Some(1));
    }
}
