//! Blocks that are known to have been given up since their segment was opened: the cleaner need not ask who owns them.
//!
//! Nobody's data hangs on these bits. They are not saved, and what they don't know is asked for; when a segment is
//! empty its accounts say.

use crate::map::LiveRight;
use crate::options::Options;
use crate::segments::Segments;

/// The bits of all segments may take one in so many parts of the memory for leaves, besides.
const MEMORY_SHARE: usize = 16;
const WORD_BITS: u32 = u64::BITS;

/// See the module's description.
#[derive(Debug)]
pub(super) struct GivenUp {
    /// By segment, once a block of it was given up: a bit for each block, the lowest first.
    bitmaps: Vec<Option<Box<[u64]>>>,
    /// Words of a bitmap.
    words: usize,
    /// How many bitmaps there may be besides those that there are: a segment that gets none has its blocks asked for.
    left: usize,
}

impl GivenUp {
    pub fn new(options: &Options) -> GivenUp {
        let words = options.segment_blocks.div_ceil(WORD_BITS) as usize;
        let left = options.leaf_cache_bytes_max / MEMORY_SHARE / (words * size_of::<u64>()).max(1);
        GivenUp { bitmaps: vec![None; options.segments as usize], words, left }
    }

    fn add(&mut self, segment: u32, block: u32) {
        let bitmap = &mut self.bitmaps[segment as usize];
        if bitmap.is_none() {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
        }
        let bitmap = bitmap.get_or_insert_with(|| vec![0; self.words].into());
        bitmap[(block / WORD_BITS) as usize] |= 1 << (block % WORD_BITS);
    }

    fn has(&self, segment: u32, block: u32) -> bool {
        let bitmap = self.bitmaps[segment as usize].as_ref();
        bitmap.is_some_and(|bitmap| bitmap[(block / WORD_BITS) as usize] & (1 << (block % WORD_BITS)) != 0)
    }

    /// Nothing is known of the segment any more: it is to be written anew, say.
    pub fn forget(&mut self, segment: u32) {
        self.left += usize::from(self.bitmaps[segment as usize].take().is_some());
    }
}

impl Segments {
    /// No leaf owns the block at `address` any more, and none will before its segment is opened anew.
    pub fn is_given_up(&mut self, _right: LiveRight, address: u32) {
        if let Some((segment, block)) = self.locate(address) {
            self.given_up.add(segment, block);
        }
    }

    /// All of these blocks of one segment are known to have been given up.
    pub fn are_given_up(&self, address: u32, blocks: u32) -> bool {
        let place = self.locate(address);
        place.is_some_and(|(segment, first)| (first..first + blocks).all(|block| self.given_up.has(segment, block)))
    }

    /// All blocks of the segment are to be asked for again.
    pub fn forget_given_up(&mut self, segment: u32) {
        self.given_up.forget(segment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_memory_for_is_not_known() {
        // Two words a segment, and memory for two segments.
        let options = Options { segments: 4, segment_blocks: 100, leaf_cache_bytes_max: 512, ..Options::default() };
        let mut given_up = GivenUp::new(&options);
        for segment in 0..4 {
            given_up.add(segment, 99);
        }
        let known = |given_up: &GivenUp| (0..4).filter(|segment| given_up.has(*segment, 99)).collect::<Vec<u32>>();
        assert_eq!(known(&given_up), [0, 1]);
        assert!(!given_up.has(0, 98));
        given_up.forget(0);
        given_up.forget(0);
        for segment in [2, 3] {
            given_up.add(segment, 99);
        }
        assert_eq!(known(&given_up), [1, 2]);
    }
}
