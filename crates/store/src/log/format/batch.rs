//! A batch: one write of a header and the payloads of its records.

use super::entry::Entries;
use crate::options::Identity;
use azekura_base::{BLOCK_SIZE, PageBuf, checksum};
use bytemuck::{Pod, Zeroable};
use bytes::Bytes;

const MAGIC: [u8; 8] = *b"AZKBATCH";
/// Of the log, in the superblock and in each batch.
pub(super) const LOG_VERSION: u16 = 3;

/// Bytes of the fixed part of a batch header.
pub(crate) const HEADER_BYTES: usize = size_of::<BatchHeader>();

/// What a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum BatchKind {
    /// Records.
    Records = 1,
    /// The summary of the segment that it ends.
    Summary = 2,
    /// Moved blocks, in a segment that is not in the chain.
    Moves = 3,
}

/// The fixed part of a batch header, 112 bytes.
#[derive(Debug, Clone, Copy, Pod, Zeroable, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct BatchHeader {
    pub magic: [u8; 8],
    pub version: u16,
    pub kind: u16,
    /// CRC-32C of all header blocks, with this field zero.
    pub crc: u32,
    pub cluster: [u8; 16],
    pub device: u32,
    /// The header checksum of the batch before this one.
    pub previous: u32,
    pub instance: u64,
    pub incarnation: u64,
    pub sequence: u64,
    /// All batches up to this sequence were durable when this one was made.
    pub durable: u64,
    /// The segment's generation.
    pub generation: u64,
    pub segment: u32,
    /// Where in the segment the header is.
    pub block: u32,
    pub header_blocks: u32,
    pub payload_blocks: u32,
    pub entries: u32,
    /// Bytes after the fixed part: entries, or the summary's head.
    pub entries_bytes: u32,
    pub reserved: [u64; 1],
}

/// Header blocks of a batch whose entries take `entries_bytes`.
pub(crate) fn header_blocks(entries_bytes: usize) -> u32 {
    (HEADER_BYTES + entries_bytes).div_ceil(BLOCK_SIZE) as u32
}

/// How many blocks the header has that starts `bytes`, by itself: nothing says that it is whole.
pub(crate) fn stated_header_blocks(bytes: &[u8]) -> Option<u32> {
    let header: BatchHeader = bytemuck::pod_read_unaligned(bytes.get(..HEADER_BYTES)?);
    (header.magic == MAGIC && header.version == LOG_VERSION).then_some(header.header_blocks)
}

impl BatchHeader {
    pub fn new(kind: BatchKind, identity: &Identity) -> BatchHeader {
        BatchHeader {
            magic: MAGIC,
            version: LOG_VERSION,
            kind: kind as u16,
            cluster: identity.cluster.to_le_bytes(),
            device: identity.device.0,
            instance: identity.instance,
            ..BatchHeader::zeroed()
        }
    }

    /// The header blocks, with the checksum filled in.
    pub fn encode(&mut self, entries: &[u8]) -> Bytes {
        self.entries_bytes = entries.len() as u32;
        self.header_blocks = header_blocks(entries.len());
        self.crc = 0;
        let mut buf = PageBuf::new(self.header_blocks as usize * BLOCK_SIZE);
        buf[..HEADER_BYTES].copy_from_slice(bytemuck::bytes_of(self));
        buf[HEADER_BYTES..HEADER_BYTES + entries.len()].copy_from_slice(entries);
        buf[HEADER_BYTES + entries.len()..].fill(0);
        self.crc = checksum(&buf).0;
        buf[12..16].copy_from_slice(&self.crc.to_le_bytes());
        buf.freeze()
    }

    /// This batch of moved blocks is the next one in its segment behind `last`, or the first.
    pub fn follows_moves(&self, last: Option<&BatchHeader>) -> bool {
        let Some(last) = last else { return self.sequence == 1 };
        self.sequence == last.sequence + 1
            && self.previous == last.crc
            && (self.incarnation, self.generation) == (last.incarnation, last.generation)
    }

    /// Blocks of the whole batch.
    pub fn blocks(&self) -> u32 {
        self.header_blocks + self.payload_blocks
    }
}

/// A batch whose header is whole; its payload has not been looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub header: BatchHeader,
    pub kind: BatchKind,
    /// The bytes after the fixed header.
    pub entries: &'a [u8],
    /// Payload blocks; empty when they are not all in the bytes at hand.
    pub payload: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The batch of `identity` whose header starts `bytes`. `None`: there is none that is whole.
    pub fn decode(bytes: &'a [u8], identity: &Identity) -> Option<Batch<'a>> {
        let header: BatchHeader = bytemuck::pod_read_unaligned(bytes.get(..HEADER_BYTES)?);
        if header.magic != MAGIC
            || header.version != LOG_VERSION
            || header.cluster != identity.cluster.to_le_bytes()
            || header.device != identity.device.0
            || header.instance != identity.instance
        {
            return None;
        }
        let kind = match header.kind {
            1 => BatchKind::Records,
            2 => BatchKind::Summary,
            3 => BatchKind::Moves,
            _ => return None,
        };
        let entries_bytes = header.entries_bytes as usize;
        let header_bytes = (header.header_blocks as usize).checked_mul(BLOCK_SIZE)?;
        if header_bytes < HEADER_BYTES.checked_add(entries_bytes)? {
            return None;
        }
        let blocks = bytes.get(..header_bytes)?;
        let crc = checksum(&blocks[..12]);
        let crc = azekura_base::checksum_append(crc, &[0; 4]);
        let crc = azekura_base::checksum_append(crc, &blocks[16..]);
        if crc.0 != header.crc {
            return None;
        }
        let entries = &blocks[HEADER_BYTES..HEADER_BYTES + entries_bytes];
        if kind != BatchKind::Summary && !Entries::new(entries).are_whole(header.entries, header.payload_blocks) {
            return None;
        }
        let payload_bytes = (header.payload_blocks as usize).checked_mul(BLOCK_SIZE)?;
        let payload = bytes.get(header_bytes..header_bytes.checked_add(payload_bytes)?).unwrap_or(&[]);
        Some(Batch { header, kind, entries, payload })
    }

    /// The payload is here and is what was written.
    pub fn payload_is_whole(&self) -> bool {
        if self.payload.len() != self.header.payload_blocks as usize * BLOCK_SIZE {
            return false;
        }
        let mut at = 0;
        Entries::new(self.entries).all(|entry| {
            let bytes = entry.payload_blocks() as usize * BLOCK_SIZE;
            let payload = &self.payload[at..at + bytes];
            at += bytes;
            entry.payload_is_whole(payload)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::DeviceId;

    #[test]
    fn of_moved_blocks_only_the_very_next_batch_follows() {
        let identity = Identity { cluster: 1, device: DeviceId(1), instance: 1 };
        let of = |sequence| BatchHeader {
            sequence,
            incarnation: 3,
            generation: 9,
            ..BatchHeader::new(BatchKind::Moves, &identity)
        };
        let first = BatchHeader { crc: 77, ..of(1) };
        let next = BatchHeader { previous: 77, ..of(2) };
        assert!(first.follows_moves(None) && !next.follows_moves(None));
        assert!(next.follows_moves(Some(&first)));
        // Left over from an earlier use of the segment, or from a life that a crash has ended.
        for other in [
            BatchHeader { previous: 78, ..next },
            BatchHeader { incarnation: 2, ..next },
            BatchHeader { generation: 8, ..next },
            BatchHeader { sequence: 3, ..next },
        ] {
            assert!(!other.follows_moves(Some(&first)), "{other:?}");
        }
    }
}
