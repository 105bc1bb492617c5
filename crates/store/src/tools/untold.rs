//! Live blocks in segments of moved blocks of which no whole header tells: the cleaner does not find them.

use crate::map::Leaf;
use crate::segments::Segments;
use crate::tools::dump::SegmentInfo;
use std::collections::BTreeMap;
use std::ops::Range;

/// Segments of moved blocks, with the blocks that their headers tell of.
#[derive(Debug, Default)]
pub(super) struct Untold {
    /// By segment: which of its blocks, and how many live ones are beside them.
    segments: BTreeMap<u32, (Vec<Range<u32>>, u32)>,
}

impl Untold {
    /// A segment of moved blocks, as far as its headers are whole.
    pub fn add_segment(&mut self, info: &SegmentInfo) {
        let payload = info.batches.iter().map(|batch| {
            let first = batch.block + batch.header_blocks;
            first..first + batch.payload_blocks
        });
        self.segments.insert(info.segment, (payload.collect(), 0));
    }

    /// A leaf, some blocks of which are perhaps in such segments.
    pub fn add_leaf(&mut self, segments: &Segments, leaf: &Leaf) {
        for (_, entry) in leaf.entries.present().filter(|(_, entry)| entry.is_allocated() && entry.is_own()) {
            let Some((segment, block)) = segments.locate(entry.address) else { continue };
            let Some((told, untold)) = self.segments.get_mut(&segment) else { continue };
            *untold += u32::from(!told.iter().any(|range| range.contains(&block)));
        }
    }

    /// What is to be said of them.
    pub fn findings(&self) -> impl Iterator<Item = String> {
        self.segments.iter().filter(|(_, (_, untold))| *untold > 0).map(|(segment, (_, untold))| {
            format!("segment {segment} has {untold} live blocks behind its last whole header: they can't be moved")
        })
    }
}
