//! Requests that take several steps at the gateway: what is read decides what is written.
//!
//! ```text
//!   copy:   read ──► write, or zero
//!   or:     read a window ──► compare-and-write each block that changes ──► next window
//!                                  └── it has changed meanwhile: read that block again ──┘
//! ```

use azekura_base::{BLOCK_SIZE, IoStatus, PageBuf, is_zero};
use azekura_gateway::{Op, Outcome, Piece};
use bytes::Bytes;
use std::collections::VecDeque;

/// Bytes that are read at a time of what is combined.
const WINDOW_BYTES: usize = 128 << 10;
/// Steps of one request that are under way at a time.
const STEPS_MAX: usize = 16;
/// How often a block that others keep changing is read anew before the request fails.
const TRIES_MAX: u8 = 64;

/// What a step was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Reads what is to be written elsewhere, and writes it.
    Copy,
    /// Reads what is to be written from the export of the session's branch of this number.
    CopyFrom(u32),
    /// Reads bytes from this place of the request's own on, which it has been so often before.
    Look(usize, u8),
    /// Combines the bytes at this place, which had been read so often before.
    Change(usize, u8),
}

/// What is to be done at the gateway of a block that changes.
#[derive(Debug)]
pub(crate) struct Change {
    at: usize,
    expected: Bytes,
    bytes: Bytes,
    tries: u8,
}

/// A request under way that takes several steps.
#[derive(Debug)]
pub(crate) enum Work {
    /// Copies a range to another place.
    Copy {
        /// The session's branch whose export it is read from; `None`: it is the same one.
        branch: Option<u32>,
        from: u64,
        to: u64,
        len: u64,
        /// What was read and is to be written.
        read: Option<Vec<Piece>>,
        has_begun: bool,
        ends: Ends,
    },
    /// Sets the bits of `bytes` in what is there, block by block.
    Or {
        offset: u64,
        bytes: Bytes,
        /// Up to here all is read.
        at: usize,
        changes: VecDeque<Change>,
        again: VecDeque<(usize, u8)>,
        ends: Ends,
    },
}

/// Steps under way, and why there are to be no more.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    under_way: usize,
    failed: Option<IoStatus>,
}

impl Work {
    /// A copy of `len` bytes, from the export that the session's branch of this number has opened, if that is another.
    pub fn copy(branch: Option<u32>, from: u64, to: u64, len: u64) -> Work {
        Work::Copy { branch, from, to, len, read: None, has_begun: false, ends: Ends::default() }
    }

    /// A combination with `bytes`.
    pub fn or(offset: u64, bytes: Bytes) -> Work {
        let (changes, again) = (VecDeque::new(), VecDeque::new());
        Work::Or { offset, bytes, at: 0, changes, again, ends: Ends::default() }
    }

    fn ends(&mut self) -> &mut Ends {
        match self {
            Work::Copy { ends, .. } | Work::Or { ends, .. } => ends,
        }
    }

    /// The next step that can be taken now.
    pub fn next_step(&mut self) -> Option<(Step, Op)> {
        if self.ends().failed.is_some() {
            return None;
        }
        let next = match self {
            Work::Copy { branch, from, to, len, read, has_begun, .. } => match read.take() {
                Some(pieces) => Some((Step::Copy, write(*to, pieces))),
                None if !std::mem::replace(has_begun, true) => {
                    let step = branch.map_or(Step::Copy, Step::CopyFrom);
                    Some((step, Op::Read { offset: *from, len: *len }))
                }
                None => None,
            },
            Work::Or { offset, bytes, at, changes, again, ends } => {
                if ends.under_way >= STEPS_MAX {
                    None
                } else if let Some(Change { at, expected, bytes, tries }) = changes.pop_front() {
                    let offset = *offset + at as u64;
                    Some((Step::Change(at, tries), Op::CompareAndWrite { offset, expected, bytes }))
                } else if let Some((at, tries)) = again.pop_front() {
                    let len = block_at(*offset, at, bytes.len()) as u64;
                    Some((Step::Look(at, tries), Op::Read { offset: *offset + at as u64, len }))
                } else if ends.under_way == 0 && *at < bytes.len() {
                    let (begin, len) = (*at, WINDOW_BYTES.min(bytes.len() - *at));
                    *at += len;
                    // Windows end where blocks do, so that each block is compared as one.
                    if *at < bytes.len() {
                        *at -= (*offset as usize + *at) % BLOCK_SIZE;
                    }
                    Some((Step::Look(begin, 0), Op::Read { offset: *offset + begin as u64, len: (*at - begin) as u64 }))
                } else {
                    None
                }
            }
        };
        self.ends().under_way += usize::from(next.is_some());
        next
    }

    /// A step has ended so.
    pub fn ended(&mut self, step: Step, outcome: Outcome) {
        self.ends().under_way -= 1;
        match (self, step, outcome) {
            (Work::Copy { read, .. }, Step::Copy | Step::CopyFrom(_), Outcome::Read(pieces)) => *read = Some(pieces),
            (Work::Or { again, .. }, Step::Change(at, tries), Outcome::Failed(IoStatus::Miscompare(_)))
                if tries < TRIES_MAX =>
            {
                again.push_back((at, tries + 1));
            }
            // It is to be asked again.
            (work, Step::Change(..), Outcome::Failed(IoStatus::Miscompare(_))) => work.fail(IoStatus::Stale),
            (Work::Or { offset, bytes, changes, .. }, Step::Look(at, tries), Outcome::Read(pieces)) => {
                let held = joined(pieces);
                changes.extend(combine(*offset, at, &held, bytes, tries));
            }
            (work, _, Outcome::Failed(status)) => work.fail(status),
            _ => {}
        }
    }

    fn fail(&mut self, status: IoStatus) {
        self.ends().failed.get_or_insert(status);
    }

    /// How all of it ended, if it has: nothing of it is under way any more.
    pub fn outcome(&mut self) -> Option<Outcome> {
        if self.ends().under_way > 0 {
            return None;
        }
        if let Some(status) = self.ends().failed {
            return Some(Outcome::Failed(status));
        }
        let is_done = match self {
            Work::Copy { read, has_begun, .. } => *has_begun && read.is_none(),
            Work::Or { bytes, at, changes, again, .. } => *at == bytes.len() && changes.is_empty() && again.is_empty(),
        };
        is_done.then_some(Outcome::Done)
    }

    /// Nobody waits for it any more: no step is taken that has not been.
    pub fn give_up(&mut self) {
        self.fail(IoStatus::Gone);
    }
}

/// Bytes of a request at `at` up to the end of their block.
fn block_at(offset: u64, at: usize, end: usize) -> usize {
    let in_block = ((offset + at as u64) % BLOCK_SIZE as u64) as usize;
    (BLOCK_SIZE - in_block).min(end - at)
}

/// The blocks of what was read from `at` on that change when the bits of `bytes` are set in it.
fn combine(offset: u64, at: usize, held: &Bytes, bytes: &Bytes, tries: u8) -> Vec<Change> {
    let (mut changes, mut done) = (Vec::new(), 0);
    while done < held.len() {
        let len = block_at(offset, at + done, at + held.len());
        let (expected, bits) = (held.slice(done..done + len), &bytes[at + done..at + done + len]);
        if expected.iter().zip(bits).any(|(held, bits)| held | bits != *held) {
            let bytes = expected.iter().zip(bits).map(|(held, bits)| held | bits).collect();
            changes.push(Change { at: at + done, expected, bytes, tries });
        }
        done += len;
    }
    changes
}

/// What writes what was read: zeros take no space.
fn write(offset: u64, pieces: Vec<Piece>) -> Op {
    let len = |piece: &Piece| match piece {
        Piece::Data(bytes) => bytes.len() as u64,
        Piece::Zero(len) => *len as u64,
    };
    let is_zeros = pieces.iter().all(|piece| match piece {
        Piece::Data(bytes) => is_zero(bytes),
        Piece::Zero(_) => true,
    });
    if is_zeros {
        Op::Zero { offset, len: pieces.iter().map(len).sum() }
    } else {
        Op::Write { offset, bytes: joined(pieces) }
    }
}

/// All that was read, as one: copied, where it came in several pieces.
fn joined(pieces: Vec<Piece>) -> Bytes {
    if let [Piece::Data(bytes)] = &pieces[..] {
        return bytes.clone();
    }
    let len = |piece: &Piece| match piece {
        Piece::Data(bytes) => bytes.len(),
        Piece::Zero(len) => *len,
    };
    let mut buf = PageBuf::zeroed(pieces.iter().map(len).sum());
    let mut at = 0;
    for piece in &pieces {
        if let Piece::Data(bytes) = piece {
            buf[at..at + bytes.len()].copy_from_slice(bytes);
        }
        at += len(piece);
    }
    buf.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Carries out a step.
    fn perform(volume: &mut [u8], op: Op) -> Outcome {
        let at = |offset: u64, len: usize| offset as usize..offset as usize + len;
        match op {
            Op::Read { offset, len } => {
                let bytes = Bytes::copy_from_slice(&volume[at(offset, len as usize)]);
                let half = bytes.len() / 2;
                Outcome::Read(vec![Piece::Data(bytes.slice(..half)), Piece::Data(bytes.slice(half..))])
            }
            Op::Write { offset, bytes } => {
                volume[at(offset, bytes.len())].copy_from_slice(&bytes);
                Outcome::Done
            }
            Op::Zero { offset, len } => {
                volume[at(offset, len as usize)].fill(0);
                Outcome::Done
            }
            Op::CompareAndWrite { offset, expected, bytes } => {
                assert!(offset as usize % BLOCK_SIZE + bytes.len() <= BLOCK_SIZE, "it lies in one block");
                let held = &mut volume[at(offset, bytes.len())];
                if *held != expected[..] {
                    return Outcome::Failed(IoStatus::Miscompare(0));
                }
                held.copy_from_slice(&bytes);
                Outcome::Done
            }
            other => panic!("{other:?} is no step"),
        }
    }

    #[test]
    fn what_is_copied_is_read_and_written_and_zeros_take_no_space() {
        let mut volume = [[7_u8; 4096], [0; 4096], [1; 4096], [2; 4096]].concat();
        for (from, byte) in [(0, 7), (4096, 0)] {
            let mut work = Work::copy(None, from, 8192, 4096);
            assert_eq!(work.outcome(), None);
            for is_zeros in [false, byte == 0] {
                let (step, op) = work.next_step().unwrap();
                assert!(work.next_step().is_none() && work.outcome().is_none());
                assert_eq!(matches!(op, Op::Zero { .. }), is_zeros);
                let outcome = perform(&mut volume, op);
                work.ended(step, outcome);
            }
            assert_eq!((work.outcome(), &volume[8192..12288]), (Some(Outcome::Done), &[byte; 4096][..]));
        }
    }

    #[test]
    fn a_copy_that_nobody_waits_for_writes_nothing() {
        let mut work = Work::copy(Some(3), 0, 4096, 4096);
        let (step, _) = work.next_step().unwrap();
        assert_eq!(step, Step::CopyFrom(3));
        work.give_up();
        assert_eq!(work.outcome(), None, "its read is under way");
        work.ended(step, Outcome::Read(vec![Piece::Zero(4096)]));
        assert!(work.next_step().is_none());
        assert_eq!(work.outcome(), Some(Outcome::Failed(IoStatus::Gone)));
    }

    #[test]
    fn a_block_that_always_changes_is_given_up_at_last() {
        let mut work = Work::or(0, Bytes::from_static(&[1; 512]));
        let mut steps = 0;
        while let Some((step, op)) = work.next_step() {
            steps += 1;
            let outcome = match op {
                Op::Read { len, .. } => Outcome::Read(vec![Piece::Zero(len as usize)]),
                _ => Outcome::Failed(IoStatus::Miscompare(3)),
            };
            work.ended(step, outcome);
        }
        assert_eq!(work.outcome(), Some(Outcome::Failed(IoStatus::Stale)));
        assert_eq!(steps, 2 * (usize::from(TRIES_MAX) + 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Two requests set bits at a time, and a third client sets one in between; steps end in any order. Every bit
        /// is set that was asked for, and no other one.
        #[test]
        fn bits_of_several_are_all_set(
            offset in 0..5000_u64, len in 1..300_000_usize, bits in [1..=255_u8, 1..=255_u8],
            order in proptest::collection::vec(any::<usize>(), 1..40), noise in 0..20_u8,
        ) {
            let mut volume = vec![0_u8; offset as usize + len + 4096];
            let mut works = bits.map(|bits| Work::or(offset, vec![bits; len].into()));
            let mut under_way = Vec::new();
            let (mut turn, mut noises) = (0, noise);
            loop {
                for (number, work) in works.iter_mut().enumerate() {
                    while let Some((step, op)) = work.next_step() {
                        under_way.push((number, step, op));
                    }
                }
                if under_way.is_empty() {
                    break;
                }
                prop_assert!(under_way.len() <= 2 * STEPS_MAX);
                let pick = order[turn % order.len()] % under_way.len();
                turn += 1;
                let (number, step, op) = under_way.swap_remove(pick);
                if noises > 0 && matches!(op, Op::CompareAndWrite { .. }) {
                    // Somebody else sets the highest bit, between the reading and the writing.
                    noises -= 1;
                    volume[offset as usize + len / 2] |= 0x80;
                }
                let outcome = perform(&mut volume, op);
                works[number].ended(step, outcome);
            }
            for work in &mut works {
                prop_assert_eq!(work.outcome(), Some(Outcome::Done));
            }
            let range = offset as usize..offset as usize + len;
            let mut expected = vec![0; volume.len()];
            expected[range].fill((bits[0] | bits[1]) & 0x7f);
            let is_set = volume[offset as usize + len / 2] & 0x80 != 0;
            prop_assert!(is_set || noises == noise, "a bit of somebody else is lost");
            volume.iter_mut().for_each(|byte| *byte &= 0x7f);
            prop_assert!(volume == expected);
        }
    }
}
