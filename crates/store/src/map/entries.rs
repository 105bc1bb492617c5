//! The entries of a leaf: where its blocks are, as compact as the chunk is empty.
//!
//! Most chunks of a large thin volume have few blocks, so an entry takes memory only where a block has contents: a bit
//! for each block says which have, and their entries lie packed in block order. To find one is to count the bits
//! before its own.

use crate::map::leaf::Entry;
use azekura_base::CHUNK_BLOCKS;
use std::ops::{Index, Range};

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = CHUNK_BLOCKS / WORD_BITS;
/// What a block without contents has.
static NOWHERE: Entry = Entry { address: 0, checksum: 0, length: 0, flags: 0 };
/// Entries for which room is made at once when there is none left: this number, or one in so many of those there are.
const ROOM_MIN: usize = 4;
const ROOM_SHARE: usize = 8;

/// One entry a block of a chunk; only those of blocks that have contents take memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries {
    /// A bit for each block, the lowest first: it has an entry in `packed`.
    present: [u64; WORDS],
    /// How many bits are set before each word. Each write to a chunk looks for its entries; counting all bits before
    /// them was a fortieth of the processor time of a random write.
    before: [u16; WORDS],
    /// The entries of those blocks, in block order.
    packed: Vec<Entry>,
}

impl Entries {
    /// The entries of a chunk in which every block has `entry`.
    #[must_use]
    pub fn all(entry: Entry) -> Entries {
        match entry.has_contents() {
            true => Entries::of_words([u64::MAX; WORDS], vec![entry; CHUNK_BLOCKS]),
            false => Entries::default(),
        }
    }

    /// From a bitmap, the lowest bit first, and the entries of the blocks whose bits are set.
    ///
    /// # Panics
    /// When there are not as many entries as bits.
    pub(crate) fn packed(bitmap: &[u8; CHUNK_BLOCKS / 8], packed: Vec<Entry>) -> Entries {
        let mut present = [0; WORDS];
        for (word, bytes) in present.iter_mut().zip(bitmap.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Entries::of_words(present, packed)
    }

    fn of_words(present: [u64; WORDS], packed: Vec<Entry>) -> Entries {
        let mut before = [0; WORDS];
        let mut bits = 0;
        for (before, word) in before.iter_mut().zip(present) {
            *before = bits;
            bits += word.count_ones() as u16;
        }
        assert_eq!(usize::from(bits), packed.len(), "an entry for each bit");
        Entries { present, before, packed }
    }

    /// A bit for each block, the lowest first: it has contents.
    pub(crate) fn bitmap(&self) -> [u8; CHUNK_BLOCKS / 8] {
        let mut bitmap = [0; CHUNK_BLOCKS / 8];
        for (bytes, word) in bitmap.as_chunks_mut::<8>().0.iter_mut().zip(self.present) {
            *bytes = word.to_le_bytes();
        }
        bitmap
    }

    /// Memory that the entries take beyond the value itself, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.packed.capacity() * size_of::<Entry>()
    }

    /// Blocks that have contents.
    #[must_use]
    pub fn count(&self) -> usize {
        self.packed.len()
    }

    /// No block has contents.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    fn has(&self, block: usize) -> bool {
        self.present[block / WORD_BITS] & (1 << (block % WORD_BITS)) != 0
    }

    /// How many blocks before this one have contents.
    fn rank(&self, block: usize) -> usize {
        let (word, bit) = (block / WORD_BITS, block % WORD_BITS);
        usize::from(self.before[word]) + (self.present[word] & ((1 << bit) - 1)).count_ones() as usize
    }

    /// Turns a block's bit over.
    fn flip(&mut self, block: usize) {
        let (word, bit) = (block / WORD_BITS, block % WORD_BITS);
        self.present[word] ^= 1 << bit;
        let set = self.present[word] & (1 << bit) != 0;
        for before in &mut self.before[word + 1..] {
            *before = if set { *before + 1 } else { *before - 1 };
        }
    }

    /// Gives a block an entry; one without contents takes its entry away.
    ///
    /// # Panics
    /// When a chunk has no such block.
    pub fn set(&mut self, block: usize, entry: Entry) {
        self.replace(block, entry);
    }

    /// Gives a block an entry, as `set` does, and gives back the one that the block had.
    ///
    /// # Panics
    /// When a chunk has no such block.
    pub fn replace(&mut self, block: usize, entry: Entry) -> Entry {
        let at = self.rank(block);
        match (self.has(block), entry.has_contents()) {
            (true, true) => std::mem::replace(&mut self.packed[at], entry),
            (true, false) => {
                self.flip(block);
                self.packed.remove(at)
            }
            (false, true) => {
                if self.packed.len() == self.packed.capacity() {
                    let room = (self.packed.len() / ROOM_SHARE).max(ROOM_MIN);
                    self.packed.reserve_exact(room.min(CHUNK_BLOCKS - self.packed.len()));
                }
                self.flip(block);
                self.packed.insert(at, entry);
                NOWHERE
            }
            (false, false) => NOWHERE,
        }
    }

    /// Takes all entries away.
    pub fn clear(&mut self) {
        *self = Entries::default();
    }

    /// The blocks that have contents, in order, with their entries.
    pub fn present(&self) -> impl Iterator<Item = (usize, &Entry)> {
        let words = self.present.iter().enumerate();
        let blocks = words.flat_map(|(word, bits)| Bits(*bits).map(move |bit| word * WORD_BITS + bit));
        blocks.zip(&self.packed)
    }

    /// The address of a block that is not among those of `addresses`, if there is one.
    ///
    /// All entries are looked at together, without a branch for each: this is done for each leaf that is loaded.
    pub(crate) fn address_outside(&self, addresses: &Range<u32>) -> Option<u32> {
        let length = addresses.end - addresses.start;
        let is_outside = |entry: &Entry| entry.is_allocated() & (entry.address.wrapping_sub(addresses.start) >= length);
        let is_any = self.packed.iter().fold(false, |any, entry| any | is_outside(entry));
        if is_any { self.packed.iter().find(|entry| is_outside(entry)).map(|entry| entry.address) } else { None }
    }

    /// The entries of blocks that have contents, to be changed; they keep having some.
    pub(crate) fn present_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.packed.iter_mut()
    }

    /// All entries of a chunk, in block order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.of(0..CHUNK_BLOCKS)
    }

    /// The entries of some blocks, in order.
    pub fn of(&self, blocks: Range<usize>) -> impl Iterator<Item = &Entry> {
        let mut next = if blocks.is_empty() { 0 } else { self.rank(blocks.start) };
        blocks.map(move |block| {
            if !self.has(block) {
                return &NOWHERE;
            }
            next += 1;
            &self.packed[next - 1]
        })
    }
}

impl Index<usize> for Entries {
    type Output = Entry;

    fn index(&self, block: usize) -> &Entry {
        if self.has(block) { &self.packed[self.rank(block)] } else { &NOWHERE }
    }
}

/// The set bits of a word, the lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::Checksum;
    use proptest::prelude::*;

    fn change() -> impl Strategy<Value = (usize, u32)> {
        (prop_oneof![0..CHUNK_BLOCKS, 0..70usize, CHUNK_BLOCKS - 70..CHUNK_BLOCKS], 0..4u32)
    }

    proptest! {
        #[test]
        fn entries_are_an_array_of_entries(
            changes in prop::collection::vec(change(), 0..600),
            start in 0..CHUNK_BLOCKS,
            len in 0..CHUNK_BLOCKS,
        ) {
            let mut array = vec![Entry::default(); CHUNK_BLOCKS];
            let mut entries = Entries::default();
            for (block, address) in changes {
                let entry = if address == 0 { Entry::default() } else { Entry::own(address, Checksum(address)) };
                array[block] = entry;
                entries.set(block, entry);
            }
            prop_assert!(entries.iter().eq(&array));
            prop_assert!((0..CHUNK_BLOCKS).all(|block| entries[block] == array[block]));
            let range = start..(start + len).min(CHUNK_BLOCKS);
            prop_assert!(entries.of(range.clone()).eq(&array[range]));
            let with_contents = array.iter().enumerate().filter(|(_, entry)| entry.has_contents());
            prop_assert!(entries.present().eq(with_contents));
            let outside = array.iter().map(|entry| entry.address).find(|address| [1, 3].contains(address));
            prop_assert_eq!(entries.address_outside(&(2..3)), outside);
            let packed = entries.present().map(|(_, entry)| *entry).collect();
            prop_assert_eq!(&Entries::packed(&entries.bitmap(), packed), &entries);
        }
    }
}
