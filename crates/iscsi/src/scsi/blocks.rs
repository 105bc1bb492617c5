//! Commands on ranges of logical blocks (SBC-3 section 5).

use super::opcodes as op;
use super::sense::Sense;
use super::{COMPARED_BLOCKS_MAX, Cdb, Disk, PARAMETERS_MAX, Plan, Range, TRANSFER_BYTES_MAX, Use, VERIFY_BYTES_MAX};

/// The first block and the number of blocks of a command.
fn place(cdb: Cdb<'_>) -> (u64, u64) {
    match cdb.opcode() >> 5 {
        // Zero stands for 256 blocks (SBC-3 section 5.7).
        0 => (cdb.number(1, 3) & 0x1f_ffff, if cdb.0[4] == 0 { 256 } else { u64::from(cdb.0[4]) }),
        1 | 2 => (cdb.number(2, 4), cdb.number(7, 2)),
        5 => (cdb.number(2, 4), cdb.number(6, 4)),
        _ if cdb.opcode() == op::COMPARE_AND_WRITE => (cdb.number(2, 8), u64::from(cdb.0[13])),
        _ => (cdb.number(2, 8), cdb.number(10, 4)),
    }
}

/// These blocks, if the disk has them.
pub(crate) fn range(disk: &Disk, first: u64, count: u64) -> Result<Range, Sense> {
    let end = first.checked_add(count).filter(|end| *end <= disk.blocks).ok_or(Sense::OUT_OF_RANGE)?;
    let block = u64::from(disk.block_bytes());
    Ok(Range { offset: first * block, len: (end - first) * block })
}

/// What a command that names a range, or all of the disk, comes to.
pub(crate) fn plan_blocks(disk: &Disk, cdb: Cdb<'_>) -> Plan {
    try_plan(disk, cdb).unwrap_or_else(Plan::Check)
}

fn try_plan(disk: &Disk, cdb: Cdb<'_>) -> Result<Plan, Sense> {
    let opcode = cdb.opcode();
    if !op::is_known(opcode) {
        return Err(Sense::OPCODE);
    }
    let (first, count) = place(cdb);
    let is_six = opcode >> 5 == 0;
    match opcode {
        op::READ_6 | op::READ_10 | op::READ_12 | op::READ_16 => {
            if !is_six {
                unprotected(cdb)?;
            }
            let range = transfer(disk, first, count)?;
            Ok(if range.len == 0 { Plan::good() } else { Plan::Read(range) })
        }
        op::WRITE_6 | op::WRITE_10 | op::WRITE_12 | op::WRITE_16 => write(disk, cdb, !is_six, first, count),
        op::WRITE_VERIFY_10 | op::WRITE_VERIFY_12 | op::WRITE_VERIFY_16 => {
            // What is written is durable and has a checksum: there is nothing more to verify (SBC-3 section 5.43).
            if cdb.0[1] >> 1 & 3 > 1 {
                return Err(Sense::FIELD);
            }
            write(disk, cdb, true, first, count)
        }
        op::COMPARE_AND_WRITE if disk.compares || disk.is_read_only => compare_and_write(disk, cdb, first, count),
        op::ORWRITE_16 if disk.compares || disk.is_read_only => or_write(disk, cdb, first, count),
        op::VERIFY_10 | op::VERIFY_12 | op::VERIFY_16 => verify(disk, cdb, first, count),
        op::PREFETCH_10 | op::PREFETCH_16 => {
            let count = if count == 0 { disk.blocks.saturating_sub(first) } else { count };
            let range = range(disk, first, count)?;
            Ok(if range.len == 0 { Plan::good() } else { Plan::Cache(range) })
        }
        op::SYNCHRONIZE_CACHE_10 | op::SYNCHRONIZE_CACHE_16 => {
            range(disk, first, count)?;
            Ok(Plan::Flush)
        }
        op::WRITE_SAME_10 | op::WRITE_SAME_16 => write_same(disk, cdb, first, count),
        op::UNMAP => {
            writable(disk)?;
            // Anchored blocks there are none of (SBC-3 section 5.28).
            if cdb.has(1, 1) {
                return Err(Sense::FIELD);
            }
            let bytes = u32::from(cdb.u16(7));
            match bytes {
                0 => Ok(Plan::good()),
                1..8 => Err(Sense::LIST_LENGTH),
                _ if bytes > PARAMETERS_MAX => Err(Sense::LIST_LENGTH),
                _ => Ok(Plan::Take(bytes, Use::Unmap)),
            }
        }
        _ => Err(Sense::OPCODE),
    }
}

/// Protection information there is none of (SBC-3 section 4.22): commands that speak of it are refused.
fn unprotected(cdb: Cdb<'_>) -> Result<(), Sense> {
    if cdb.has(1, 0xe0) { Err(Sense::FIELD) } else { Ok(()) }
}

fn writable(disk: &Disk) -> Result<(), Sense> {
    if disk.is_read_only { Err(Sense::WRITE_PROTECTED) } else { Ok(()) }
}

/// As [`range`], of what may be read or written at a time (SBC-3 section 6.5.3).
fn transfer(disk: &Disk, first: u64, count: u64) -> Result<Range, Sense> {
    let range = range(disk, first, count)?;
    if range.len > u64::from(TRANSFER_BYTES_MAX) { Err(Sense::FIELD) } else { Ok(range) }
}

fn write(disk: &Disk, cdb: Cdb<'_>, may_protect: bool, first: u64, count: u64) -> Result<Plan, Sense> {
    if may_protect {
        unprotected(cdb)?;
    }
    let range = transfer(disk, first, count)?;
    writable(disk)?;
    Ok(if range.len == 0 { Plan::good() } else { Plan::Take(range.len as u32, Use::Write(range.offset)) })
}

/// ORWRITE(16) (SBC-3 section 5.6): made of comparing and writing, and so as it is there.
fn or_write(disk: &Disk, cdb: Cdb<'_>, first: u64, count: u64) -> Result<Plan, Sense> {
    unprotected(cdb)?;
    let range = transfer(disk, first, count)?;
    writable(disk)?;
    Ok(if range.len == 0 { Plan::good() } else { Plan::Take(range.len as u32, Use::Or(range.offset)) })
}

/// COMPARE AND WRITE (SBC-3 section 5.3). Its data are what is compared, and then what is written.
fn compare_and_write(disk: &Disk, cdb: Cdb<'_>, first: u64, count: u64) -> Result<Plan, Sense> {
    unprotected(cdb)?;
    if count > u64::from(COMPARED_BLOCKS_MAX) {
        return Err(Sense::FIELD);
    }
    let range = range(disk, first, count)?;
    writable(disk)?;
    // Of none, too, the length of the data is looked at.
    Ok(Plan::Take(2 * range.len as u32, Use::CompareAndWrite(range.offset)))
}

/// VERIFY (SBC-3 section 5.32), by its BYTCHK field.
fn verify(disk: &Disk, cdb: Cdb<'_>, first: u64, count: u64) -> Result<Plan, Sense> {
    unprotected(cdb)?;
    let by = cdb.0[1] >> 1 & 3;
    let range = if by == 0 { range(disk, first, count)? } else { transfer(disk, first, count)? };
    match by {
        0 if range.len > u64::from(VERIFY_BYTES_MAX) => Err(Sense::FIELD),
        0 | 1 | 3 if range.len == 0 => Ok(Plan::good()),
        // Each block that is read is compared with its checksum.
        0 => Ok(Plan::Scan(range)),
        1 => Ok(Plan::Take(range.len as u32, Use::Verify(range))),
        3 => Ok(Plan::Take(disk.block_bytes(), Use::VerifySame(range))),
        _ => Err(Sense::FIELD),
    }
}

/// WRITE SAME (SBC-3 section 5.44).
fn write_same(disk: &Disk, cdb: Cdb<'_>, first: u64, count: u64) -> Result<Plan, Sense> {
    const ANCHOR: u8 = 0x10;
    unprotected(cdb)?;
    let has_no_data = cdb.opcode() == op::WRITE_SAME_16 && cdb.has(1, 1);
    // Obsolete bits, and zero blocks for all up to the end: WSNZ says that there is no such thing.
    if cdb.has(1, ANCHOR | 0x06) || count == 0 {
        return Err(Sense::FIELD);
    }
    let range = transfer(disk, first, count)?;
    writable(disk)?;
    Ok(if has_no_data { Plan::Zero(range) } else { Plan::Take(disk.block_bytes(), Use::Same(range)) })
}
