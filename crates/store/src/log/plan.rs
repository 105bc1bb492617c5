//! Which records a batch takes.

use crate::log::format::{EntryHead, SummaryBuilder, header_blocks};
use crate::log::queue::Item;
use crate::options::Options;
use crate::segments::Link;

/// The segment being written.
#[derive(Debug)]
pub(super) struct Head {
    pub link: Link,
    /// The next block to write.
    pub block: u32,
    /// It was opened out of the reserve: for what cleaning moves, or for a TRIM with the data before it.
    pub reserved: bool,
    pub summary: SummaryBuilder,
}

/// Which records a batch takes.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Records of clients.
    pub clients: usize,
    /// Records of the cleaner's.
    pub moves: usize,
    /// Records of blocks that were moved into segments of their own.
    pub moved: usize,
    /// Of the last of the cleaner's records it takes so many blocks only.
    pub cut: Option<u16>,
    pub payload: u32,
    pub entries_bytes: usize,
}

impl Plan {
    /// There is room for a record in the batch, and in the segment.
    pub fn has_room(&self, item: &Item, head: &Head, options: &Options) -> bool {
        let blocks = self.payload + item.payload_blocks();
        (self.is_empty() || blocks <= options.batch_blocks_max)
            && self.records() < options.batch_records_max as usize
            && self.fits(item, head, options.segment_blocks)
    }

    fn fits(&self, item: &Item, head: &Head, segment_blocks: u32) -> bool {
        self.fits_with(item.payload_blocks(), item.entry_bytes(), head, segment_blocks)
    }

    fn fits_with(&self, payload: u32, entry_bytes: usize, head: &Head, segment_blocks: u32) -> bool {
        let entries_bytes = self.entries_bytes + entry_bytes;
        let blocks = header_blocks(entries_bytes) + self.payload + payload;
        head.block + blocks + head.summary.blocks_with(entries_bytes) <= segment_blocks
    }

    pub fn take_client(&mut self, item: &Item) {
        self.take(item.payload_blocks(), item.entry_bytes());
        self.clients += 1;
    }

    pub fn take_move(&mut self, item: &Item) {
        self.take(item.payload_blocks(), item.entry_bytes());
        self.moves += 1;
    }

    pub fn take_moved(&mut self, item: &Item) {
        self.take(item.payload_blocks(), item.entry_bytes());
        self.moved += 1;
    }

    fn take(&mut self, payload: u32, entry_bytes: usize) {
        self.payload += payload;
        self.entries_bytes += entry_bytes;
    }

    /// Takes the blocks of a move that still fit into the segment, if it is too large as a whole: clients' records must
    /// stay in one piece, so the end of a segment can be too small for them; a move fills it.
    pub fn take_part_of(&mut self, item: &Item, head: &Head, options: &Options) {
        self.cut = self.part_of(item, head, options);
        if let Some(blocks) = self.cut {
            self.take(u32::from(blocks), EntryHead::BYTES + usize::from(blocks) * 4);
            self.moves += 1;
        }
    }

    fn part_of(&self, item: &Item, head: &Head, options: &Options) -> Option<u16> {
        let Item::Relocate(moved) = item else { return None };
        let room = options.batch_blocks_max.saturating_sub(self.payload);
        let count = moved.range.count;
        let most = if self.is_empty() { count } else { count.min(room.min(u32::from(u16::MAX)) as u16) };
        if self.fits(item, head, options.segment_blocks) || self.records() >= options.batch_records_max as usize {
            return None;
        }
        let fits = |blocks: u16| {
            self.fits_with(u32::from(blocks), EntryHead::BYTES + usize::from(blocks) * 4, head, options.segment_blocks)
        };
        let (mut fit, mut too_many) = (0, most + 1);
        while fit + 1 < too_many {
            let middle = fit + (too_many - fit) / 2;
            *(if fits(middle) { &mut fit } else { &mut too_many }) = middle;
        }
        (fit > 0).then_some(fit)
    }

    /// All of them.
    pub fn records(&self) -> usize {
        self.clients + self.moves + self.moved
    }

    pub fn is_empty(&self) -> bool {
        self.records() == 0
    }
}
