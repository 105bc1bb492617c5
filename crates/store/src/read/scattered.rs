//! A large read that finds its blocks scattered over the device.

use crate::map::LeafKey;
use crate::segments::Segments;
use azekura_base::{BlockIndex, Extent};

/// Blocks that lie one after the other, on average, below which it is worth while to put them together: where a disk
/// gives so many at a time, it gives near all that it can.
const RUN_BLOCKS: usize = 8;

/// What was read, and where it lies.
#[derive(Debug)]
pub(crate) struct Scattered {
    /// Whose leaf has led there.
    pub key: LeafKey,
    /// The first block that was read.
    pub first: BlockIndex,
    /// What was read, when all of it is here.
    pub extents: Vec<Extent>,
    /// Where each extent with data lies, and the generation of the segment there when it was asked for.
    places: Vec<(u32, u64)>,
    blocks: usize,
}

impl Scattered {
    pub fn new(key: LeafKey, first: BlockIndex) -> Scattered {
        Scattered { key, first, extents: Vec::new(), places: Vec::new(), blocks: 0 }
    }

    /// So many blocks lie at this address, one after the other.
    pub fn add(&mut self, segments: &Segments, address: u32, blocks: usize) {
        let generation = segments.get(segments.segment_of(address)).generation;
        self.places.push((address, generation));
        self.blocks += blocks;
    }

    /// Blocks with data.
    pub fn blocks(&self) -> u32 {
        self.blocks as u32
    }

    /// There are enough pieces, and they are small.
    pub fn is_worthwhile(&self) -> bool {
        self.places.len() > 1 && self.places.len() * RUN_BLOCKS > self.blocks
    }

    /// The blocks with data: the first of each run, its address, the generation of the segment there, and the run.
    pub fn runs(&self) -> impl Iterator<Item = (BlockIndex, u32, u64, &Extent)> {
        let mut block = self.first.0;
        let mut places = self.places.iter();
        self.extents.iter().filter_map(move |extent| {
            let first = BlockIndex(block);
            block += extent.count();
            let Extent::Data { .. } = extent else { return None };
            places.next().map(|(address, generation)| (first, *address, *generation, extent))
        })
    }
}
