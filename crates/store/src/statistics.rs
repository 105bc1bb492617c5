//! How full the store is, and what it has done.

/// How full the device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes that clients can store.
    pub capacity: u64,
    /// Bytes of blocks that the map reaches.
    pub live: u64,
    /// The same, with what is on its way to the device.
    pub used: u64,
    /// Bytes of the segments that are not free: live blocks, and what cleaning has yet to win back.
    pub occupied: u64,
    /// Segments that can be written to at once.
    pub free_segments: u32,
    /// All segments.
    pub segments: u32,
    /// Segments' worth of space that is neither free nor live: what cleaning could win.
    pub cleaning_backlog: u32,
    /// No more data should be accepted.
    pub full: bool,
    /// Less than a tenth of the capacity is left.
    pub near_full: bool,
}

/// Counters since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Batches written.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of log written: headers, payloads and summaries.
    pub log_bytes: u64,
    /// Payload blocks of client records.
    pub client_blocks: u64,
    /// Payload blocks of relocations.
    pub moved_blocks: u64,
    /// Those of them that went into segments of their own.
    pub moved_apart_blocks: u64,
    /// Those of them that a read found scattered, and that were put together.
    pub gathered_blocks: u64,
    /// Segments that the cleaner has emptied.
    pub cleaned_segments: u64,
    /// Checkpoints saved.
    pub checkpoints: u64,
    /// Leaves saved.
    pub checkpoint_leaves: u64,
    /// Bytes of leaf images handed to the saved map, before its own overhead.
    pub checkpoint_bytes: u64,
    /// Lookups that found their leaf in memory.
    pub leaf_hits: u64,
    /// Lookups that had to load a leaf.
    pub leaf_misses: u64,
    /// Memory in leaves, in bytes.
    pub leaf_bytes: u64,
    /// Blocks read from the read cache.
    pub cache_hits: u64,
    /// Blocks read that were not in it.
    pub cache_misses: u64,
    /// Memory in the read cache, in bytes.
    pub cache_bytes: u64,
    /// Reads from the device.
    pub device_reads: u64,
    /// Blocks whose contents did not match their checksum.
    pub checksum_errors: u64,
    /// Bytes of log that a restart would replay now.
    pub replay_bytes: u64,
    /// Batch writes in flight now.
    pub batches_in_flight: u64,
    /// Records that wait to be put into a batch now.
    pub records_waiting: u64,
}
