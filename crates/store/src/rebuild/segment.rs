//! One segment of the log, read without a map: which life of it the blocks are of, and the entries of its batches.
//!
//! What stands in a segment is believed as far as it follows from its first header: a summary, or a batch further on,
//! may be left over from an earlier use of the segment.

use crate::effect::DeviceError;
use crate::log::format::{Batch, BatchHeader, BatchKind, Summary, footer_blocks, stated_header_blocks};
use crate::map::Entry;
use crate::options::{Identity, SUPERBLOCK_AREA_BLOCKS};
use crate::tools::{Inspector, ReadDevice, SuperblockInfo};
use azekura_base::{BLOCK_SIZE, Checksum, PageBuf, checksum};
use bytes::Bytes;
use std::cell::Cell;

/// The youngest generations are walked header by header. A crash may have left a summary, and batches on their way,
/// that a later incarnation has given up, and only the last of the log can have been on its way.
const WALKED_GENERATIONS: u64 = 3;

/// A device that is read segment by segment. A block that it refuses counts as one that is not whole.
#[derive(Debug)]
pub(super) struct LogReader<D> {
    log: Inspector<D>,
    pub identity: Identity,
    pub segments: u32,
    pub segment_blocks: u32,
    unreadable: Cell<u64>,
}

/// The first header of a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub segment: u32,
    pub header: BatchHeader,
    /// The segment holds moved blocks, and is not in the chain.
    pub apart: bool,
}

impl Head {
    /// The segment is one of the last ones, where the highest generation is `newest`.
    pub fn is_young(&self, newest: u64) -> bool {
        self.header.generation.saturating_add(WALKED_GENERATIONS) > newest
    }
}

/// A batch: where its payload begins, and its entries.
#[derive(Debug)]
pub(super) struct FoundBatch {
    pub sequence: u64,
    pub payload: u32,
    pub entries: Bytes,
}

/// What is in a segment.
#[derive(Debug)]
pub(super) struct FoundSegment {
    pub head: Head,
    /// Nothing is missing: the segment ends with its summary, or holds moved blocks of before the end of the log.
    pub is_whole: bool,
    /// Of the last batch.
    pub last: BatchHeader,
    /// When a batch of the segment was made, the log was on stable storage up to here.
    pub durable: u64,
    pub batches: Vec<FoundBatch>,
}

impl FoundSegment {
    pub fn generation(&self) -> u64 {
        self.head.header.generation
    }
}

impl<D: ReadDevice> LogReader<D> {
    pub fn new(log: Inspector<D>) -> LogReader<D> {
        let SuperblockInfo { segments, segment_blocks, .. } = log.superblock();
        LogReader { identity: log.identity(), log, segments, segment_blocks, unreadable: Cell::new(0) }
    }

    /// Blocks that the device refused.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.get()
    }

    /// The block address of a place in a segment.
    pub fn address(&self, segment: u32, block: u32) -> u32 {
        SUPERBLOCK_AREA_BLOCKS + segment * self.segment_blocks + block
    }

    /// The segment of a block address; `None` for one outside of all segments.
    pub fn segment_of(&self, address: u32) -> Option<u32> {
        let segment = address.checked_sub(SUPERBLOCK_AREA_BLOCKS)? / self.segment_blocks;
        (segment < self.segments).then_some(segment)
    }

    /// The block that an entry names is on the device as its checksum says.
    pub fn is_whole(&self, entry: &Entry) -> bool {
        let read = self.log.device().read(u64::from(entry.address) * BLOCK_SIZE as u64, BLOCK_SIZE);
        read.is_ok_and(|bytes| checksum(&bytes) == Checksum(entry.checksum))
    }

    fn try_read(&self, segment: u32, block: u32, blocks: u32) -> Result<Bytes, DeviceError> {
        let offset = u64::from(self.address(segment, block)) * BLOCK_SIZE as u64;
        self.log.device().read(offset, blocks as usize * BLOCK_SIZE)
    }

    /// Blocks of a segment; zeros in the place of those that can't be read.
    fn read(&self, segment: u32, block: u32, blocks: u32) -> Bytes {
        if let Ok(bytes) = self.try_read(segment, block, blocks) {
            return bytes;
        }
        let mut bytes = PageBuf::zeroed(blocks as usize * BLOCK_SIZE);
        for (index, place) in (0..blocks).zip(bytes.chunks_exact_mut(BLOCK_SIZE)) {
            match self.try_read(segment, block + index, 1) {
                Ok(read) => place.copy_from_slice(&read),
                Err(_) => self.unreadable.set(self.unreadable.get() + 1),
            }
        }
        bytes.freeze()
    }

    /// The header blocks at a place of a segment, if one begins there.
    fn header_at(&self, segment: u32, block: u32) -> Option<Bytes> {
        let first = self.read(segment, block, 1);
        let blocks = stated_header_blocks(&first).filter(|blocks| *blocks <= self.segment_blocks - block)?;
        if blocks == 1 { Some(first) } else { Some(self.read(segment, block, blocks)) }
    }

    /// The first header of a segment; `None` where no segment of this log begins.
    pub fn head(&self, segment: u32) -> Option<Head> {
        let bytes = self.header_at(segment, 0)?;
        let batch = Batch::decode(&bytes, &self.identity)?;
        let apart = match batch.kind {
            BatchKind::Records => false,
            BatchKind::Moves => true,
            BatchKind::Summary => return None,
        };
        let header = batch.header;
        let fits = (header.segment, header.block) == (segment, 0) && header.blocks() <= self.segment_blocks;
        (fits && (!apart || header.sequence == 1)).then_some(Head { segment, header, apart })
    }

    /// All that is in the segment of `head`, where `newest` is the highest generation of all.
    pub fn contents(&self, head: &Head, newest: u64) -> FoundSegment {
        let is_young = head.is_young(newest);
        if head.apart {
            return self.walk_moves(head, is_young);
        }
        match self.summary(head).filter(|_| !is_young) {
            Some(summary) => from_summary(head, &summary),
            None => self.walk(head),
        }
    }

    /// The summary of this life of a segment.
    fn summary(&self, head: &Head) -> Option<Summary> {
        let footer = self.read(head.segment, self.segment_blocks - 1, 1);
        let blocks = footer_blocks(&footer, self.segment_blocks)?;
        let at = self.segment_blocks - blocks;
        let summary = Summary::decode(&self.read(head.segment, at, blocks), &self.identity)?;
        self.fits(head, &summary).then_some(summary)
    }

    fn fits(&self, head: &Head, summary: &Summary) -> bool {
        let (first, header) = (&head.header, &summary.header);
        (header.segment, header.generation) == (first.segment, first.generation)
            && header.block + header.blocks() == self.segment_blocks
            && (summary.first_sequence, summary.first_previous) == (first.sequence, first.previous)
            && first.sequence.checked_add(u64::from(summary.batches)) == Some(header.sequence)
            && self.frames_fit(summary)
    }

    /// The batches that a summary tells of lie one behind the other, in front of the summary.
    fn frames_fit(&self, summary: &Summary) -> bool {
        let mut end = 0u32;
        let in_order = summary.frames().all(|(frame, _)| {
            let blocks = frame.header_blocks.checked_add(frame.payload_blocks);
            let next = blocks.and_then(|blocks| frame.block.checked_add(blocks));
            let follows = frame.block >= end;
            end = next.unwrap_or(u32::MAX);
            follows && end <= summary.header.block
        });
        in_order && summary.batches > 0
    }

    /// Follows the headers of a segment of the chain, and looks at the payloads of the last ones.
    fn walk(&self, head: &Head) -> FoundSegment {
        let bytes = self.read(head.segment, 0, self.segment_blocks);
        let (mut found, mut block, mut durable): (Vec<(BatchHeader, bool)>, u32, u64) = (Vec::new(), 0, 0);
        let mut batches = Vec::new();
        while let Some(batch) = bytes.get(block as usize * BLOCK_SIZE..).filter(|bytes| !bytes.is_empty()) {
            let Some(batch) = Batch::decode(batch, &self.identity) else { break };
            let header = batch.header;
            let fits = (header.segment, header.block, header.generation)
                == (head.segment, block, head.header.generation)
                && batch.kind == BatchKind::Records
                && block.checked_add(header.blocks()).is_some_and(|end| end <= self.segment_blocks);
            let follows = found.last().is_none_or(|(last, _)| follows(&header, last));
            if !fits || !follows {
                break;
            }
            found.push((header, batch.payload_is_whole()));
            let (payload, entries) = (block + header.header_blocks, Bytes::copy_from_slice(batch.entries));
            batches.push(FoundBatch { sequence: header.sequence, payload, entries });
            durable = durable.max(header.durable);
            block += header.blocks();
        }
        // A payload that is not whole ends the log, unless it is known to have been on stable storage (log.md, 4).
        let torn = found.iter().position(|(header, whole)| !whole && header.sequence > durable);
        let summary = self
            .summary(head)
            .filter(|summary| torn.is_none() && found.last().is_some_and(|(last, _)| follows(&summary.header, last)));
        let is_whole = summary.is_some();
        let kept = torn.unwrap_or(found.len());
        batches.truncate(kept);
        let last = summary.map(|summary| summary.header).or(kept.checked_sub(1).map(|last| found[last].0));
        FoundSegment { head: *head, is_whole, last: last.unwrap_or(head.header), durable, batches }
    }

    /// Follows the headers of a segment of moved blocks.
    fn walk_moves(&self, head: &Head, is_young: bool) -> FoundSegment {
        let (mut last, mut block, mut batches): (Option<BatchHeader>, u32, _) = (None, 0, Vec::new());
        while block < self.segment_blocks {
            let Some(bytes) = self.header_at(head.segment, block) else { break };
            let Some(batch) = Batch::decode(&bytes, &self.identity) else { break };
            let header = batch.header;
            let end = block.checked_add(header.blocks()).filter(|end| *end <= self.segment_blocks);
            let fits = batch.kind == BatchKind::Moves
                && (header.segment, header.block, header.generation) == (head.segment, block, head.header.generation)
                && header.follows_moves(last.as_ref());
            let Some(end) = end.filter(|_| fits) else { break };
            let (payload, entries) = (block + header.header_blocks, Bytes::copy_from_slice(batch.entries));
            batches.push(FoundBatch { sequence: header.sequence, payload, entries });
            (last, block) = (Some(header), end);
        }
        FoundSegment { head: *head, is_whole: !is_young, last: last.unwrap_or(head.header), durable: 0, batches }
    }
}

/// `header` is the batch behind `last` in the chain.
fn follows(header: &BatchHeader, last: &BatchHeader) -> bool {
    last.sequence.checked_add(1) == Some(header.sequence)
        && header.previous == last.crc
        && header.incarnation >= last.incarnation
}

fn from_summary(head: &Head, summary: &Summary) -> FoundSegment {
    let batches = (head.header.sequence..).zip(summary.contents());
    let batches = batches.map(|(sequence, (payload, entries))| FoundBatch { sequence, payload, entries });
    let (last, durable) = (summary.header, summary.header.durable);
    FoundSegment { head: *head, is_whole: true, last, durable, batches: batches.collect() }
}
