//! Writes that are not applied yet, and where records are.

use crate::segments::Segments;
use azekura_base::{Checksums, Prepared};
use bytes::Bytes;

/// Where a record is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The batch's log sequence.
    pub log: u64,
    /// Block address of the record's first block, if it has any.
    pub payload: Option<u32>,
    pub segment: u32,
    pub generation: u64,
}

impl Place {
    /// Block address of the record's first block.
    ///
    /// # Panics
    /// When it has none.
    pub fn address(self) -> u32 {
        self.payload.expect("a record with blocks says where they are")
    }

    /// Blocks of a write that is not applied yet are here.
    pub fn pin(self, segments: &mut Segments, count: u16) {
        if self.payload.is_some() {
            segments.pin(self.segment, u32::from(count));
        }
    }

    /// The write is applied, or dropped for good.
    pub fn unpin(self, segments: &mut Segments, count: u16) {
        if self.payload.is_some() {
            segments.unpin(self.segment, u32::from(count));
        }
    }
}

/// Where a write is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// Its blocks, which may have been moved.
    pub place: Place,
    /// The log generation of the record itself.
    pub origin: u64,
}

impl Written {
    /// The write is where its record is.
    pub fn at(place: Place) -> Written {
        Written { place, origin: place.generation }
    }
}

/// A write that is not applied yet: prepared, or committed and waiting for its leaf or for the device.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub info: Prepared,
    /// Names this append, so that a dropped write is not taken for a later one with the same sequence.
    pub id: u64,
    pub checksums: Option<Checksums>,
    /// Absent until the record is in a batch.
    pub written: Option<Written>,
    /// The payload, until it is durable.
    pub bytes: Option<Bytes>,
    pub applied: bool,
}

impl Pending {
    /// The write is dropped for good.
    pub fn unpin(&self, segments: &mut Segments) {
        if let Some(written) = self.written {
            written.place.unpin(segments, self.info.header.range.count);
        }
    }
}
