//! A device that takes no time and keeps no payload, so that it may be larger than memory.

use azekura_base::{BLOCK_SIZE, PageBuf};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The block is kept as it is.
const WHOLE: u64 = u64::MAX;
/// Of a batch of the chain, which nobody reads while the store runs: its segment's summary has the same.
const KIND_RECORDS: u8 = 1;

/// A device of blocks of which most repeat one word of 8 bytes: only that word is kept of them.
#[derive(Default)]
pub struct Device {
    words: Vec<u64>,
    /// Headers and summaries, without their zeros.
    whole: BTreeMap<usize, Box<[u8]>>,
}

impl Device {
    pub fn new(bytes: u64) -> Device {
        Device { words: vec![0; bytes as usize / BLOCK_SIZE], whole: BTreeMap::new() }
    }

    /// Writes a batch: its header is the first piece, of a summary all of them are kept.
    pub fn write(&mut self, offset: u64, pieces: &[Bytes]) {
        let mut at = offset as usize / BLOCK_SIZE;
        let kind = pieces[0][10];
        for (index, piece) in pieces.iter().enumerate() {
            for block in piece.chunks_exact(BLOCK_SIZE) {
                if self.words[at] == WHOLE {
                    self.whole.remove(&at);
                }
                self.words[at] = match repeated(block) {
                    Some(word) => word,
                    None if index == 0 && kind == KIND_RECORDS => 0,
                    None => {
                        self.whole.insert(at, without_zeros(block));
                        WHOLE
                    }
                };
                at += 1;
            }
        }
    }

    pub fn read(&self, offset: u64, len: usize) -> Bytes {
        let mut buf = PageBuf::new(len);
        for (at, block) in (offset as usize / BLOCK_SIZE..).zip(buf.chunks_exact_mut(BLOCK_SIZE)) {
            match self.whole.get(&at).filter(|_| self.words[at] == WHOLE) {
                Some(kept) => with_zeros(kept, block),
                None => block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&self.words[at].to_le_bytes())),
            }
        }
        buf.freeze()
    }
}

/// The word that the block consists of.
fn repeated(block: &[u8]) -> Option<u64> {
    let is_same = block[8..] == block[..BLOCK_SIZE - 8];
    is_same.then(|| u64::from_le_bytes(block[..8].try_into().expect("there are 8 bytes")))
}

/// For each 8 bytes, one that says which of them are not zero, and those.
fn without_zeros(block: &[u8]) -> Box<[u8]> {
    let mut kept = Vec::new();
    for bytes in block.chunks_exact(8) {
        let mask = (0..8).filter(|n| bytes[*n] != 0).fold(0u8, |mask, n| mask | 1 << n);
        kept.push(mask);
        kept.extend(bytes.iter().filter(|byte| **byte != 0));
    }
    kept.into()
}

fn with_zeros(kept: &[u8], block: &mut [u8]) {
    let mut kept = kept.iter().copied();
    for bytes in block.chunks_exact_mut(8) {
        let mask = kept.next().unwrap_or(0);
        for (n, byte) in bytes.iter_mut().enumerate() {
            *byte = if mask & 1 << n == 0 { 0 } else { kept.next().unwrap_or(0) };
        }
    }
}
