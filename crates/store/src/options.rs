//! What a store is told when it is made or opened.

use crate::log::format::{EntryHead, header_blocks, summary_blocks};
use crate::segments::{CLEANER_SEGMENTS, ZERO_SEGMENTS};
use azekura_base::{BLOCK_SIZE, CHUNK_BLOCKS, DeviceId};

/// Blocks at the start of a device that belong to the superblock (1 MiB, so that segments stay aligned to it).
pub const SUPERBLOCK_AREA_BLOCKS: u32 = 256;

/// Whether more of a new device's log is being initialised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialisation {
    /// It is: data that needs more segments than there are waits, for a moment.
    GoesOn,
    /// It is not: the device is taken to be so small, and is full when what is initialised is.
    Halted,
}

/// Geometry and limits of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Segments on the device. Fixed at format; may only grow afterwards.
    pub segments: u32,
    /// Blocks in a segment. Fixed at format.
    pub segment_blocks: u32,
    /// Payload blocks that one batch takes; a larger record stands alone in its batch.
    pub batch_blocks_max: u32,
    /// Records that one batch takes.
    pub batch_records_max: u32,
    /// Batch writes on their way to the device at once.
    pub batches_in_flight_max: u32,
    /// Memory for leaves of the map, in bytes. Appending pauses while unsaved leaves alone fill it.
    pub leaf_cache_bytes_max: usize,
    /// Memory for cached blocks, in bytes; 0 switches the read cache off.
    pub read_cache_bytes_max: usize,
    /// Share of the device that clients never get, in percent: what cleaning needs to stay cheap.
    pub cleaning_reserve_percent: u32,
    /// Blocks that the cleaner holds in memory at once.
    pub cleaning_blocks_in_flight_max: u32,
    /// A client's read of at least so many blocks that lie scattered over the device has them put together (decision
    /// 0063); 0: none has.
    pub gathered_read_blocks_min: u16,
    /// Blocks that wait to be put together, at most.
    pub gathering_blocks_max: u32,
    /// Bytes of log after which a leaf's changes are saved, so that a restart replays about as much. Appending pauses
    /// when a restart would replay twice as much.
    pub replay_bytes_max: u64,
    /// Leaves that one checkpoint saves at most.
    pub checkpoint_leaves_max: usize,
    /// Memory of the leaves that one checkpoint saves, in bytes: one leaf more at most. Memory is what bounds a
    /// checkpoint, not the number of leaves (decision 0035).
    pub checkpoint_bytes_max: usize,
    /// Writes are flushed to stable storage before they count as durable. False only for devices whose cache
    /// survives a power loss.
    pub flush: bool,
}

impl Options {
    /// Options for a device of `bytes` bytes, with 32 MiB segments and the default limits. Of a device larger than
    /// block addresses reach (16 TiB), they use the first 16 TiB.
    #[must_use]
    pub fn for_device(bytes: u64) -> Options {
        let blocks = bytes / BLOCK_SIZE as u64;
        let options = Options::default();
        let blocks = blocks.min(u64::from(u32::MAX)).saturating_sub(u64::from(SUPERBLOCK_AREA_BLOCKS));
        let segments = blocks / u64::from(options.segment_blocks);
        Options { segments: segments as u32, ..options }
    }

    /// Bytes of the device that the store uses.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        (u64::from(SUPERBLOCK_AREA_BLOCKS) + u64::from(self.segments) * u64::from(self.segment_blocks))
            * BLOCK_SIZE as u64
    }

    /// Bytes that clients can store on the whole device: what its [`crate::Space::capacity`] is once all of it has been
    /// prepared, and while none of it is damaged.
    #[must_use]
    pub fn usable_bytes(&self) -> u64 {
        capacity_bytes(self.segments, self.promised_blocks())
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
        if self.cleaning_reserve_percent >= 100 {
            return Some("the reserve leaves no room for data".into());
        }
        None
    }

    /// Payload blocks that the cleaner gets into one segment at the least: single blocks of as many leaves, each
    /// with an entry of its own, in batches half as large as they may be. Moves are cut where a segment ends, so that
    /// nothing is lost there (0016).
    pub(crate) fn packed_blocks(&self) -> u32 {
        let batch = self.batch_blocks_max.min(self.batch_records_max).min(self.cleaning_blocks_in_flight_max);
        let batch = (batch.div_ceil(2)).max(1);
        let entries_bytes = |blocks: u32| blocks as usize * (EntryHead::BYTES + size_of::<u32>());
        let fits = |payload: &u32| {
            let (full, rest) = (payload / batch, payload % batch);
            let headers = full * header_blocks(entries_bytes(batch)) + rest.min(1) * header_blocks(entries_bytes(rest));
            let batches = (full + rest.min(1)) as usize;
            headers + payload + summary_blocks(batches, entries_bytes(*payload)) <= self.segment_blocks
        };
        (1..self.segment_blocks).take_while(fits).last().unwrap_or(0)
    }

    /// Needed blocks from which on a segment is not cleaned: to pack it better would win next to nothing (0016).
    pub(crate) fn full_enough_blocks(&self) -> u32 {
        let packed = self.packed_blocks();
        packed.saturating_sub((packed / SLACK).max(1))
    }

    /// Blocks of a segment that clients may fill on average. This average is less than what the cleaner leaves alone:
    /// as long as there is no room for more, there is then a segment of which the cleaner wins some (0016).
    pub(crate) fn promised_blocks(&self) -> u32 {
        let packed = self.packed_blocks();
        let without_reserve = self.segment_blocks * (100 - self.cleaning_reserve_percent) / 100;
        without_reserve.min(self.full_enough_blocks().saturating_sub((packed / SLACK).max(1)))
    }

    /// The largest number of blocks that one record may carry on this geometry.
    #[must_use]
    pub fn record_blocks_max(&self) -> u32 {
        (self.segment_blocks / 4).min(CHUNK_BLOCKS as u32)
    }
}

/// Bytes that clients can store in so many segments, on average with so many blocks in each.
pub(crate) fn capacity_bytes(segments: u32, promised_blocks: u32) -> u64 {
    let late = segments.saturating_sub(LATE_FROM_SEGMENTS).min(LATE_SEGMENTS);
    let left_out = CLEANER_SEGMENTS + ZERO_SEGMENTS + 1 + late;
    u64::from(segments.saturating_sub(left_out)) * u64::from(promised_blocks) * BLOCK_SIZE as u64
}

/// Segments that are not promised to anybody: data that primaries elsewhere had sent before they heard that the device
/// is full must not wait for room, because what gives room back waits behind it in its group.
const LATE_SEGMENTS: u32 = 2;
/// Of a device of so few segments (not quite 2 GiB) that would be too much.
const LATE_FROM_SEGMENTS: u32 = 60;
/// One in so many of a segment's blocks is the distance between what is promised, what is packed well enough, and what
/// can be packed.
const SLACK: u32 = 32;
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
            read_cache_bytes_max: 16 << 20,
            cleaning_reserve_percent: 10,
            cleaning_blocks_in_flight_max: 512,
            gathered_read_blocks_min: 64,
            gathering_blocks_max: 2048,
            // Decision 0035 has what a longer replay wins, and what it costs at a restart.
            replay_bytes_max: 1 << 30,
            checkpoint_leaves_max: 32 << 10,
            checkpoint_bytes_max: 12 << 20,
            flush: true,
        }
    }
}

/// Whose device this is. The identity is in the superblock and in every batch header, so that a device or a piece of
/// one that ended up in the wrong place is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: u128,
    /// The device.
    pub device: DeviceId,
    /// A number drawn at random when the device was formatted: tells this log from an earlier one in the same place.
    pub instance: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_device_that_is_too_large_a_part_is_used() {
        for bytes in [16 << 40, 20_000_000_000_000, 30_720_000_000_000, u64::MAX] {
            let options = Options::for_device(bytes);
            assert_eq!(options.problem(), None);
            let left_out = (16 << 40) - options.device_bytes();
            assert!(left_out < 2 * options.segment_bytes(), "{left_out} bytes of 16 TiB are not used");
        }
        let options = Options::for_device(10 << 40);
        assert!((10 << 40) - options.device_bytes() < options.segment_bytes());
    }

    #[test]
    fn what_is_promised_can_be_packed() {
        let options = Options::default();
        assert_eq!(options.promised_blocks(), 8192 * 9 / 10, "the reserve is all that a usual device keeps");
        for (segment_blocks, batch, records) in [(16, 1, 1), (64, 4, 1), (64, 16, 16), (256, 64, 512), (8192, 512, 512)]
        {
            let options = Options {
                segment_blocks,
                batch_blocks_max: batch,
                batch_records_max: records,
                cleaning_reserve_percent: 0,
                ..Options::default()
            };
            let (promised, enough, packed) =
                (options.promised_blocks(), options.full_enough_blocks(), options.packed_blocks());
            assert!(0 < promised && promised < enough && enough < packed && packed < segment_blocks, "{options:?}");
        }
    }
}
