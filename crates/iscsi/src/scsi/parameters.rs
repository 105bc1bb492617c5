//! Parameter lists that come with commands.

use super::blocks::range;
use super::sense::Sense;
use super::{Disk, Range, UNMAP_BYTES_MAX, UNMAP_DESCRIPTORS_MAX};

/// What UNMAP is to unmap (SBC-3 section 5.28.2). A descriptor that is not whole is passed over.
///
/// # Errors
/// When there are too many, or one goes beyond the disk.
pub fn unmap(disk: &Disk, bytes: &[u8]) -> Result<Vec<Range>, Sense> {
    let (header, rest) = bytes.split_at_checked(8).ok_or(Sense::LIST_LENGTH)?;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let descriptors = rest[..len.min(rest.len())].as_chunks::<16>().0;
    if descriptors.len() > usize::from(UNMAP_DESCRIPTORS_MAX) {
        return Err(Sense::PARAMETER);
    }
    let mut ranges = Vec::new();
    for descriptor in descriptors {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        let range = range(disk, number(&descriptor[..8]), number(&descriptor[8..12]))?;
        if range.len > 0 {
            ranges.push(range);
        }
    }
    let bytes: u64 = ranges.iter().map(|range| range.len).sum();
    if bytes > u64::from(UNMAP_BYTES_MAX) { Err(Sense::PARAMETER) } else { Ok(ranges) }
}
