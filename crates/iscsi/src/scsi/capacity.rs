//! What there is of a disk, and what of it holds data (SBC-3 sections 5.15, 5.16 and 5.5).

use super::sense::Sense;
use super::{Cdb, Disk, Plan, Range, STATUS_BYTES_MAX};
use azekura_base::LogicalBlock;

/// READ CAPACITY(10) (SBC-3 section 5.15).
pub(crate) fn read_10(disk: &Disk) -> Plan {
    let last = u32::try_from(disk.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
    Plan::Data([last.to_be_bytes(), disk.block_bytes().to_be_bytes()].concat())
}

/// READ CAPACITY(16) (SBC-3 section 5.16): thin, and what is not mapped reads as zeros.
pub(crate) fn read_16(disk: &Disk, cdb: Cdb<'_>) -> Plan {
    const LBPME_LBPRZ: u8 = 0xc0;
    let mut bytes = vec![0; 32];
    bytes[..8].copy_from_slice(&disk.blocks.saturating_sub(1).to_be_bytes());
    bytes[8..12].copy_from_slice(&disk.block_bytes().to_be_bytes());
    (bytes[13], bytes[14]) = (disk.block.physical_power(), LBPME_LBPRZ);
    Plan::data(bytes, cdb.u32(10))
}

/// GET LBA STATUS (SBC-3 section 5.5), before it is known.
pub(crate) fn lba_status(disk: &Disk, cdb: Cdb<'_>) -> Plan {
    let (first, room) = (cdb.number(2, 8), cdb.u32(10));
    if first >= disk.blocks {
        return Plan::Check(Sense::OUT_OF_RANGE);
    }
    let count = (disk.blocks - first).min(u64::from(disk.whole_blocks(STATUS_BYTES_MAX)));
    let block = u64::from(disk.block_bytes());
    Plan::Status(Range { offset: first * block, len: count * block }, room)
}

/// The answer to GET LBA STATUS (SBC-3 section 5.5.2): runs of bytes from `offset` on, and whether they hold data.
#[must_use]
pub fn lba_status_data(block: LogicalBlock, offset: u64, runs: &[(u64, bool)], room: u32) -> Vec<u8> {
    const DEALLOCATED: u8 = 1;
    let (header, descriptor) = (8, 16);
    let most = (room as usize).saturating_sub(header) / descriptor;
    let mut bytes = vec![0; header];
    let mut at = offset;
    let mut put = 0;
    for (len, holds_data) in runs {
        let (first, end) = (at >> block.power(), (at + len) >> block.power());
        at += len;
        if end == first {
            continue;
        }
        if put == most.max(1) {
            break;
        }
        put += 1;
        bytes.extend_from_slice(&first.to_be_bytes());
        bytes.extend_from_slice(&u32::try_from(end - first).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(&[if *holds_data { 0 } else { DEALLOCATED }, 0, 0, 0]);
    }
    let following = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&following.to_be_bytes());
    bytes.truncate(room as usize);
    bytes
}
