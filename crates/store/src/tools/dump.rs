//! What is in the log, batch by batch, for people and tools.

use crate::effect::{DeviceError, OpenError};
use crate::log::format::{Batch, BatchKind, Entries, Kind, Summary, Superblock, footer_blocks};
use crate::options::{Identity, Options, SUPERBLOCK_AREA_BLOCKS};
use azekura_base::BLOCK_SIZE;
use bytes::Bytes;
use serde::Serialize;

/// A device that can be read.
pub trait ReadDevice {
    /// Exactly the `len` bytes from `offset` on; both are multiples of 4096.
    ///
    /// # Errors
    /// When the device refuses.
    fn read(&self, offset: u64, len: usize) -> Result<Bytes, DeviceError>;
}

/// A device whose superblock has been read.
#[derive(Debug)]
pub struct Inspector<D> {
    device: D,
    superblock: Superblock,
}

/// What the superblock says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SuperblockInfo {
    /// The cluster, as 32 hexadecimal digits.
    pub cluster: String,
    /// The device.
    pub device: u32,
    /// The number drawn when it was formatted.
    pub instance: u64,
    /// Segments.
    pub segments: u32,
    /// Blocks in a segment.
    pub segment_blocks: u32,
}

/// What is in one segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SegmentInfo {
    /// The segment.
    pub segment: u32,
    /// Its generation; absent when it holds no batch.
    pub generation: Option<u64>,
    /// The segment ends with a summary that is whole.
    pub summary: bool,
    /// It holds moved blocks, and is not in the chain of the log.
    pub apart: bool,
    /// Its batches, in order.
    pub batches: Vec<BatchInfo>,
}

/// One batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BatchInfo {
    /// Where in the segment it is.
    pub block: u32,
    /// Its log sequence.
    pub sequence: u64,
    /// The incarnation that wrote it.
    pub incarnation: u64,
    /// The log was durable up to here when it was made.
    pub durable: u64,
    /// Header blocks.
    pub header_blocks: u32,
    /// Payload blocks.
    pub payload_blocks: u32,
    /// Every payload block matches its checksum.
    pub payload_whole: bool,
    /// The batch is the segment's summary.
    pub summary: bool,
    /// Its records.
    pub records: Vec<RecordInfo>,
}

/// One record. Fields that a kind does not use are zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordInfo {
    /// `write`, `write-zero`, `repair`, `repair-zero`, `relocate`, `epoch`, `note`, `drop-layer`, `write-again`,
    /// `mark`, `complete`, `forget-group`, `merge-layer`, `moved` or `relocated`.
    pub kind: &'static str,
    /// The placement group.
    pub pg: u32,
    /// The epoch.
    pub epoch: u64,
    /// The sequence in the group; of a note, its version.
    pub sequence: u64,
    /// The group's commit point.
    pub commit: u64,
    /// The client session.
    pub session: u64,
    /// The request in the session.
    pub request: u64,
    /// The layer.
    pub layer: u64,
    /// The chunk.
    pub chunk: u32,
    /// The first block in the chunk.
    pub first: u16,
    /// Blocks.
    pub count: u16,
    /// The block address of the payload, or to which blocks were moved; 0 without one.
    pub address: u32,
    /// Where blocks were before that were moved; 0 for other kinds.
    pub old_address: u32,
}

impl<D: ReadDevice> Inspector<D> {
    /// Reads the superblock.
    ///
    /// # Errors
    /// When there is none, or the superblock is damaged or of an unknown version.
    pub fn open(device: D) -> Result<Inspector<D>, OpenError> {
        let bytes = device.read(0, Superblock::BYTES).map_err(OpenError::Device)?;
        Ok(Inspector { superblock: Superblock::decode(&bytes)?, device })
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Whose device it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.superblock.identity
    }

    /// Options with the device's geometry and default limits.
    #[must_use]
    pub fn options(&self) -> Options {
        let Superblock { segments, segment_blocks, .. } = self.superblock;
        Options { segments, segment_blocks, ..Options::default() }
    }

    /// What the superblock says.
    #[must_use]
    pub fn superblock(&self) -> SuperblockInfo {
        SuperblockInfo {
            cluster: format!("{:032x}", self.superblock.identity.cluster),
            device: self.superblock.identity.device.0,
            instance: self.superblock.identity.instance,
            segments: self.superblock.segments,
            segment_blocks: self.superblock.segment_blocks,
        }
    }

    /// What is in `segment`, as far as whole batches follow each other from its start.
    ///
    /// # Errors
    /// When the device refuses, or has no such segment.
    pub fn segment(&self, segment: u32) -> Result<SegmentInfo, DeviceError> {
        let Superblock { segments, segment_blocks, identity } = self.superblock;
        if segment >= segments {
            return Err(DeviceError(format!("there is no segment {segment}: the device has {segments}")));
        }
        let base = SUPERBLOCK_AREA_BLOCKS + segment * segment_blocks;
        let len = segment_blocks as usize * BLOCK_SIZE;
        let bytes = self.device.read(u64::from(base) * BLOCK_SIZE as u64, len)?;
        let mut info = SegmentInfo { segment, generation: None, summary: false, apart: false, batches: Vec::new() };
        let (mut block, mut last) = (0, None);
        while block < segment_blocks {
            let Some(batch) = Batch::decode(&bytes[block as usize * BLOCK_SIZE..], &identity) else { break };
            let header = &batch.header;
            let generation = info.generation.unwrap_or(header.generation);
            let fits = (header.segment, header.block, header.generation) == (segment, block, generation);
            // Behind the last batch there may be some of an earlier use of the segment.
            let follows = match batch.kind {
                BatchKind::Records => !info.apart,
                BatchKind::Moves => (block == 0 || info.apart) && header.follows_moves(last.as_ref()),
                BatchKind::Summary => false,
            };
            if !fits || !follows {
                break;
            }
            (info.generation, last) = (Some(generation), Some(*header));
            info.apart = batch.kind == BatchKind::Moves;
            info.batches.push(batch_info(&batch, base + block + header.header_blocks, batch.payload_is_whole()));
            block += header.blocks();
        }
        let summary = footer_blocks(&bytes[len - BLOCK_SIZE..], segment_blocks).and_then(|blocks| {
            let at = (segment_blocks - blocks) as usize * BLOCK_SIZE;
            Summary::decode(&bytes.slice(at..), &identity)
        });
        if let Some(summary) = summary.filter(|s| Some(s.header.generation) == info.generation) {
            info.summary = true;
            let batch = Batch { header: summary.header, kind: BatchKind::Summary, entries: &[], payload: &[] };
            info.batches.push(batch_info(&batch, 0, true));
        }
        Ok(info)
    }

    /// All segments in order, as far as the device gives them.
    pub fn segments(&self) -> impl Iterator<Item = Result<SegmentInfo, DeviceError>> + '_ {
        (0..self.superblock.segments).map(|segment| self.segment(segment))
    }
}

fn batch_info(batch: &Batch<'_>, payload_address: u32, payload_whole: bool) -> BatchInfo {
    let header = &batch.header;
    let mut address = payload_address;
    let records = Entries::new(batch.entries).map(|entry| {
        let blocks = entry.payload_blocks();
        let relocated = matches!(entry.kind, Kind::Relocate | Kind::Moved | Kind::Relocated);
        let record = RecordInfo {
            kind: entry.kind.name(),
            pg: entry.head.pg,
            epoch: entry.head.epoch,
            sequence: entry.head.sequence,
            commit: entry.head.commit,
            session: if relocated { 0 } else { entry.head.session },
            request: if relocated { 0 } else { entry.head.request },
            layer: entry.head.layer,
            chunk: entry.head.chunk,
            first: entry.head.first,
            count: entry.head.count,
            address: match entry.kind {
                Kind::Moved => entry.head.request as u32,
                _ if blocks > 0 => address,
                _ => 0,
            },
            old_address: if relocated { entry.head.session as u32 } else { 0 },
        };
        address += blocks;
        record
    });
    BatchInfo {
        block: header.block,
        sequence: header.sequence,
        incarnation: header.incarnation,
        durable: header.durable,
        header_blocks: header.header_blocks,
        payload_blocks: header.payload_blocks,
        payload_whole,
        summary: batch.kind == BatchKind::Summary,
        records: records.collect(),
    }
}
