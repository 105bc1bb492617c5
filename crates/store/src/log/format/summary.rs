//! The summary that ends a full segment: the entries of all its batches, in one place.
//!
//! The summary is itself a batch of the log, so a summary is in the chain like any other batch; its payload lies
//! against the end of the segment, so that the summary is found without knowing what comes before.

use super::batch::{Batch, BatchHeader, BatchKind, HEADER_BYTES, header_blocks};
use super::entry::Entries;
use crate::options::Identity;
use azekura_base::{BLOCK_SIZE, PageBuf, checksum};
use bytemuck::{Pod, Zeroable};
use bytes::Bytes;

const FOOTER_MAGIC: [u8; 8] = *b"AZKSUMRY";

/// Where one batch of the segment is; its encoded entries follow.
#[derive(Debug, Clone, Copy, Pod, Zeroable, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Frame {
    pub block: u32,
    pub header_blocks: u32,
    pub payload_blocks: u32,
    pub entries: u32,
    pub entries_bytes: u32,
    pub crc: u32,
}

/// What follows the fixed batch header of a summary.
#[derive(Debug, Clone, Copy, Pod, Zeroable, PartialEq, Eq)]
#[repr(C)]
struct Head {
    body_bytes: u32,
    body_crc: u32,
    batches: u32,
    /// The segment in which the log goes on.
    next_segment: u32,
    first_sequence: u64,
    first_previous: u32,
    reserved: u32,
}

/// The last 16 bytes of the segment.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Footer {
    magic: [u8; 8],
    /// Payload blocks of the summary: its header is that many blocks and one before the end.
    blocks: u32,
    crc: u32,
}

const FOOTER_BYTES: usize = size_of::<Footer>();

/// Gathers the summary of the segment that is being written.
#[derive(Debug, Default)]
pub(crate) struct SummaryBuilder {
    body: Vec<u8>,
    batches: u32,
}

impl SummaryBuilder {
    pub fn push(&mut self, header: &BatchHeader, entries: &[u8]) {
        let frame = Frame {
            block: header.block,
            header_blocks: header.header_blocks,
            payload_blocks: header.payload_blocks,
            entries: header.entries,
            entries_bytes: entries.len() as u32,
            crc: header.crc,
        };
        self.body.extend_from_slice(bytemuck::bytes_of(&frame));
        self.body.extend_from_slice(entries);
        self.batches += 1;
    }

    /// Blocks that the summary takes, header and all, once a batch with `entries_bytes` is in it.
    pub fn blocks_with(&self, entries_bytes: usize) -> u32 {
        1 + payload_blocks(self.body.len() + size_of::<Frame>() + entries_bytes)
    }

    pub fn blocks(&self) -> u32 {
        1 + payload_blocks(self.body.len())
    }

    /// The summary's two pieces. `header` comes with its place in the log; `header.block` is filled in here.
    pub fn encode(
        self,
        header: &mut BatchHeader,
        segment_blocks: u32,
        next_segment: u32,
        first_sequence: u64,
        first_previous: u32,
    ) -> [Bytes; 2] {
        let blocks = payload_blocks(self.body.len());
        header.block = segment_blocks - blocks - 1;
        header.payload_blocks = blocks;
        header.entries = 0;
        let head = Head {
            body_bytes: self.body.len() as u32,
            body_crc: checksum(&self.body).0,
            batches: self.batches,
            next_segment,
            first_sequence,
            first_previous,
            reserved: 0,
        };
        let mut payload = PageBuf::zeroed(blocks as usize * BLOCK_SIZE);
        payload[..self.body.len()].copy_from_slice(&self.body);
        let mut footer = Footer { magic: FOOTER_MAGIC, blocks, crc: 0 };
        footer.crc = checksum(bytemuck::bytes_of(&footer)).0;
        let at = payload.len() - FOOTER_BYTES;
        payload[at..].copy_from_slice(bytemuck::bytes_of(&footer));
        [header.encode(bytemuck::bytes_of(&head)), payload.freeze()]
    }
}

/// Blocks of a summary of `batches` batches with entries of so many bytes, header and all.
pub(crate) fn summary_blocks(batches: usize, entries_bytes: usize) -> u32 {
    1 + payload_blocks(batches * size_of::<Frame>() + entries_bytes)
}

fn payload_blocks(body_bytes: usize) -> u32 {
    (body_bytes + FOOTER_BYTES).div_ceil(BLOCK_SIZE) as u32
}

/// Blocks that a summary takes at the end of a segment, header and all, told from the segment's last block.
pub(crate) fn footer_blocks(last_block: &[u8], segment_blocks: u32) -> Option<u32> {
    let at = last_block.len().checked_sub(FOOTER_BYTES)?;
    let mut footer: Footer = bytemuck::pod_read_unaligned(&last_block[at..]);
    let stated = footer.crc;
    footer.crc = 0;
    let good = footer.magic == FOOTER_MAGIC && checksum(bytemuck::bytes_of(&footer)).0 == stated;
    (good && footer.blocks > 0 && footer.blocks < segment_blocks).then_some(footer.blocks + 1)
}

/// What was written into a segment: for each batch the block at which its payload begins, and its entries.
pub(crate) type Contents = Vec<(u32, Bytes)>;

/// A summary that is whole.
#[derive(Debug, Clone)]
pub(crate) struct Summary {
    pub header: BatchHeader,
    pub next_segment: u32,
    pub first_sequence: u64,
    pub first_previous: u32,
    pub batches: u32,
    body: Bytes,
}

impl Summary {
    /// The summary in `bytes`, which end with the segment. `None`: there is none that is whole.
    pub fn decode(bytes: &Bytes, identity: &Identity) -> Option<Summary> {
        let batch = Batch::decode(bytes, identity)?;
        if batch.kind != BatchKind::Summary || batch.entries.len() != size_of::<Head>() {
            return None;
        }
        debug_assert_eq!(header_blocks(size_of::<Head>()), 1);
        let head: Head = bytemuck::pod_read_unaligned(batch.entries);
        let body_bytes = head.body_bytes as usize;
        if batch.payload.len() < body_bytes + FOOTER_BYTES {
            return None;
        }
        let body = &batch.payload[..body_bytes];
        if checksum(body).0 != head.body_crc {
            return None;
        }
        let summary = Summary {
            header: batch.header,
            next_segment: head.next_segment,
            first_sequence: head.first_sequence,
            first_previous: head.first_previous,
            batches: head.batches,
            body: bytes.slice_ref(body),
        };
        let whole = summary.frames().count() == head.batches as usize;
        whole.then_some(summary)
    }

    /// What was written into the segment.
    pub fn contents(&self) -> Contents {
        self.frames()
            .map(|(frame, entries)| (frame.block + frame.header_blocks, self.body.slice_ref(entries)))
            .collect()
    }

    /// The batches of the segment: frame and entries, in order.
    pub fn frames(&self) -> impl Iterator<Item = (Frame, &[u8])> {
        let mut rest = &self.body[..];
        std::iter::from_fn(move || {
            let (frame, after) = rest.split_at_checked(size_of::<Frame>())?;
            let frame: Frame = bytemuck::pod_read_unaligned(frame);
            let (entries, after) = after.split_at_checked(frame.entries_bytes as usize)?;
            if !Entries::new(entries).are_whole(frame.entries, frame.payload_blocks) {
                return None;
            }
            rest = after;
            Some((frame, entries))
        })
    }
}

const _: () = assert!(HEADER_BYTES + size_of::<Head>() <= BLOCK_SIZE);
