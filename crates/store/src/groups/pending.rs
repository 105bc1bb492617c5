//! Writes that are not applied yet, and where records are.

use crate::segments::Segments;
use azekura_base::{Checksums, Prepared};
use bytes::Bytes;

/// Where a record is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The batch's log sequence.
    pub log: u64,
    /// Block address of the first payload block; 0 when there is none.
    pub address: u32,
    pub segment: u32,
    pub generation: u64,
}

impl Place {
    /// Blocks of a write that is not applied yet are here.
    pub fn pin(self, segments: &mut Segments, count: u16) {
        if self.address != 0 {
            segments.pin(self.segment, u32::from(count));
        }
    }

    /// The write is applied, or dropped for good.
    pub fn unpin(self, segments: &mut Segments, count: u16) {
        if self.address != 0 {
            segments.unpin(self.segment, u32::from(count));
        }
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
    pub place: Option<Place>,
    /// The log generation of the record itself, which may have been moved since; 0 until it is in a batch.
    pub origin: u64,
    /// The payload, until it is durable.
    pub bytes: Option<Bytes>,
    pub applied: bool,
}

impl Pending {
    /// The write is dropped for good.
    pub fn unpin(&self, segments: &mut Segments) {
        if let Some(place) = self.place {
            place.unpin(segments, self.info.header.range.count);
        }
    }
}
