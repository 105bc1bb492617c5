//! Byte layouts on the device (docs/formats/log.md). All numbers are little-endian.

mod batch;
mod entry;
mod summary;
mod superblock;

pub(crate) use batch::{Batch, BatchHeader, BatchKind, header_blocks, stated_header_blocks};
pub(crate) use entry::{Entries, EntryHead, EntryView, Kind};
pub(crate) use summary::{Contents, Frame, Summary, SummaryBuilder, footer_blocks, summary_blocks};
pub(crate) use superblock::Superblock;

// Headers are read and written as structures in memory; their order of bytes is the machine's.
const _: () = assert!(cfg!(target_endian = "little"), "the formats need a little-endian machine");
