//! What recovery can't read as a whole it reads again in pieces, down to single blocks.
//!
//! Many drives answer a read of a sector with an error when power failed while it was being written, until somebody
//! writes it. Such a block was never acknowledged, and is one that is not whole. A device that refuses for a moment
//! must not be taken for one with bad blocks, since recovery would end the log before them: so a block counts as
//! unreadable only if it was refused, then the superblock could be read, then the block was refused again, and then the
//! superblock could be read again.

use crate::effect::DeviceError;
use azekura_base::{BLOCK_SIZE, PageBuf};
use bytes::Bytes;
use std::collections::BTreeSet;

/// Blocks of the pieces that are tried first.
const PIECE_BLOCKS: u32 = 64;
/// Unreadable blocks in one read beyond which the device counts as broken: each costs as long as the drive tries.
pub(super) const UNREADABLE_BLOCKS_MAX: usize = 256;

/// What is to be read next, as an address and blocks; or how it ended.
#[derive(Debug)]
pub(super) enum Next {
    Read(u32, u32),
    /// All of it, with zeros in the place of the unreadable blocks, and which those are, counted from the first block.
    Done(Bytes, BTreeSet<u32>),
    Failed(DeviceError),
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Everything, in smaller and smaller pieces.
    Pieces,
    /// The superblock's copy of this number, to see whether the device reads at all; `last` the second time.
    Control { copy: u32, last: bool },
    /// The bad blocks once more.
    Again,
}

/// A read that is done in pieces.
#[derive(Debug)]
pub(super) struct Rereading {
    address: u32,
    bytes: PageBuf,
    /// Pieces to read, the next one last: first block, counted from `address`, and blocks.
    todo: Vec<(u32, u32)>,
    bad: BTreeSet<u32>,
    stage: Stage,
}

impl Rereading {
    /// Of `blocks` blocks from `address` on, which could not be read at once.
    pub fn new(address: u32, blocks: u32) -> Rereading {
        let piece = |first: u32| (first, PIECE_BLOCKS.min(blocks - first));
        let mut todo: Vec<_> = (0..blocks).step_by(PIECE_BLOCKS as usize).map(piece).collect();
        todo.reverse();
        let bytes = PageBuf::zeroed(blocks as usize * BLOCK_SIZE);
        Rereading { address, bytes, todo, bad: BTreeSet::new(), stage: Stage::Pieces }
    }

    /// The first piece.
    pub fn first(&self) -> (u32, u32) {
        let (first, blocks) = self.todo.last().copied().unwrap_or_default();
        (self.address + first, blocks)
    }

    /// What was asked for last has been read, or was refused.
    pub fn read(&mut self, result: Result<Bytes, DeviceError>) -> Next {
        match (&self.stage, result) {
            (Stage::Control { last: true, .. }, Ok(_)) => return self.end(),
            (Stage::Control { last: false, .. }, Ok(_)) => {
                self.stage = Stage::Again;
                self.todo = self.bad.iter().rev().map(|block| (*block, 1)).collect();
            }
            (Stage::Control { copy: 0, last }, Err(_)) => self.stage = Stage::Control { copy: 1, last: *last },
            (Stage::Control { .. }, Err(error)) => return Next::Failed(error),
            (Stage::Pieces | Stage::Again, result) => {
                if let Err(error) = self.took_piece(result) {
                    return Next::Failed(error);
                }
                if self.todo.is_empty() {
                    if self.bad.is_empty() {
                        return self.end();
                    }
                    self.stage = Stage::Control { copy: 0, last: self.stage == Stage::Again };
                }
            }
        }
        if let Stage::Control { copy, .. } = self.stage {
            return Next::Read(copy, 1);
        }
        let (address, blocks) = self.first();
        Next::Read(address, blocks)
    }

    fn took_piece(&mut self, result: Result<Bytes, DeviceError>) -> Result<(), DeviceError> {
        let Some((first, blocks)) = self.todo.pop() else { return Ok(()) };
        match result {
            Ok(bytes) => {
                let at = first as usize * BLOCK_SIZE;
                self.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
                self.bad.remove(&first);
            }
            Err(error) if blocks == 1 => {
                self.bad.insert(first);
                if self.bad.len() > UNREADABLE_BLOCKS_MAX {
                    return Err(error);
                }
            }
            Err(_) => self.todo.extend((first..first + blocks).rev().map(|block| (block, 1))),
        }
        Ok(())
    }

    fn end(&mut self) -> Next {
        let bytes = std::mem::replace(&mut self.bytes, PageBuf::new(0));
        Next::Done(bytes.freeze(), std::mem::take(&mut self.bad))
    }
}
