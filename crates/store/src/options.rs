//! What a store is told when it is made or opened.

use azekura_base::{BLOCK_SIZE, CHUNK_BLOCKS, DeviceId};

/// Blocks at the start of a device that belong to the superblock (1 MiB, so that segments stay aligned to it).
pub const SUPERBLOCK_AREA_BLOCKS: u32 = 256;

/// Geometry and limits of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Segments on the device. Fixed at format; may only grow afterwards.
    pub segments: u32,
    /// Blocks in a segment. Fixed at format.
    pub segment_blocks: u32,
    /// Payload blocks that one batch collects; a larger record stands alone in its batch.
    pub batch_blocks_max: u32,
    /// Records that one batch collects.
    pub batch_records_max: u32,
    /// Batch writes on their way to the device at once.
    pub batches_in_flight_max: u32,
    /// Memory for leaves of the map, in bytes. Appending pauses while unsaved leaves alone fill it.
    pub leaf_cache_bytes_max: usize,
    /// Memory for cached blocks, in bytes; 0 switches the read cache off.
    pub read_cache_bytes_max: usize,
    /// Share of the device that clients never get, in percent: what garbage collection needs to stay cheap.
    pub gc_reserve_percent: u32,
    /// Blocks that garbage collection holds in memory at once.
    pub gc_blocks_in_flight_max: u32,
    /// Bytes of log after which a leaf's changes are saved: bounds what a restart has to replay.
    pub replay_bytes_max: u64,
    /// Leaves that one checkpoint saves at most.
    pub checkpoint_leaves_max: usize,
    /// Writes are flushed to stable storage before they count as durable. False only for devices whose cache
    /// survives a power loss.
    pub flush: bool,
}

impl Options {
    /// Options for a device of `bytes` bytes, with 32 MiB segments and the default limits.
    #[must_use]
    pub fn for_device(bytes: u64) -> Options {
        let blocks = bytes / BLOCK_SIZE as u64;
        let segments = blocks.saturating_sub(u64::from(SUPERBLOCK_AREA_BLOCKS)) / 8192;
        Options { segments: u32::try_from(segments).unwrap_or(u32::MAX), ..Options::default() }
    }

    /// Bytes of the device that the store uses.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        (u64::from(SUPERBLOCK_AREA_BLOCKS) + u64::from(self.segments) * u64::from(self.segment_blocks))
            * BLOCK_SIZE as u64
    }

    /// Bytes of one segment.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.segment_blocks) * BLOCK_SIZE as u64
    }

    /// What is wrong with these options, if anything.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let blocks = u64::from(SUPERBLOCK_AREA_BLOCKS) + u64::from(self.segments) * u64::from(self.segment_blocks);
        if self.segments < SEGMENTS_MIN {
            return Some(format!("{} segments are too few: at least {SEGMENTS_MIN} are needed", self.segments));
        }
        if blocks > u64::from(u32::MAX) {
            return Some(format!("{blocks} blocks are more than a block address can name (16 TiB)"));
        }
        if self.segment_blocks < SEGMENT_BLOCKS_MIN {
            return Some(format!("segments of {} blocks are too small", self.segment_blocks));
        }
        if self.batch_blocks_max == 0 || self.batch_records_max == 0 || self.batches_in_flight_max == 0 {
            return Some("a batch limit is zero".into());
        }
        if self.gc_reserve_percent >= 100 {
            return Some("the reserve leaves no room for data".into());
        }
        None
    }

    /// The largest number of blocks that one record may carry on this geometry.
    #[must_use]
    pub fn record_blocks_max(&self) -> u32 {
        (self.segment_blocks / 4).min(CHUNK_BLOCKS as u32)
    }
}

/// Fewest segments of a store.
pub const SEGMENTS_MIN: u32 = 8;
/// Fewest blocks in a segment.
pub const SEGMENT_BLOCKS_MIN: u32 = 16;

impl Default for Options {
    fn default() -> Options {
        Options {
            segments: 256,
            segment_blocks: 8192,
            batch_blocks_max: 512,
            batch_records_max: 512,
            batches_in_flight_max: 8,
            leaf_cache_bytes_max: 64 << 20,
            read_cache_bytes_max: 32 << 20,
            gc_reserve_percent: 10,
            gc_blocks_in_flight_max: 512,
            replay_bytes_max: 512 << 20,
            checkpoint_leaves_max: 1024,
            flush: true,
        }
    }
}

/// Whose device this is. It is in the superblock and in every batch header, so that a device or a piece of one that
/// ended up in the wrong place is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: u128,
    /// The device.
    pub device: DeviceId,
    /// A number drawn at random when the device was formatted: tells this log from an earlier one in the same place.
    pub instance: u64,
}
