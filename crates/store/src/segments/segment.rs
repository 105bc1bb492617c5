//! One segment: what it is used for, and what is in it.

use std::time::Duration;

/// What a segment is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Holds nothing that anyone needs.
    Free,
    /// Is being written.
    Open,
    /// Is full.
    Sealed,
    /// Becomes free when the checkpoint in progress is saved.
    Freeing,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub generation: u64,
    pub state: State,
    /// Blocks in it that leaves own.
    pub live: u32,
    /// Blocks in it that *saved* leaves own, as of the last checkpoint begun.
    pub saved_live: u32,
    /// Blocks in it of writes that are not applied to the map yet.
    pub pins: u32,
    /// Other records in it that are not applied yet: replay has to find them.
    pub holds: u32,
    /// It is not in the chain: it holds moved blocks, and the chain says which. Not known any more once it is opened
    /// again behind all of their records.
    pub apart: bool,
    /// Blocks that the cleaner is moving out of it.
    pub leaving: u32,
    /// Device reads in flight.
    pub readers: u32,
    /// The cleaner found something in the segment that is not what was written: left alone until then, when it may have
    /// been mended or overwritten.
    pub alone_until: Duration,
}

impl Segment {
    /// Blocks that keep the segment from being freed.
    pub fn needed(&self) -> u32 {
        self.live + self.pins
    }

    /// Blocks of a segment that these fill when they are moved, at worst. A write that is not committed yet is moved in
    /// one piece, so the ends of segments stay empty: three quarters are filled where records have the largest size.
    pub fn when_moved(&self) -> u32 {
        self.needed() + self.pins / 2
    }
}

/// One segment of the part of the log that a replay would read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub segment: u32,
    pub generation: u64,
    pub first_sequence: u64,
    pub first_previous: u32,
}

/// Free segments that only cleaning may open.
pub(crate) const CLEANER_SEGMENTS: u32 = 3;
/// Free segments beyond those that only records without payload may open: zeros and dropped layers win space (0016).
pub(crate) const ZERO_SEGMENTS: u32 = 2;
