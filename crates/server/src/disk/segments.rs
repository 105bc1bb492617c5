//! The segments of a log's file: which of them have been in use, and how one is written with zeros.

use anyhow::{Context, Result};
use azekura_base::{BLOCK_SIZE, PageBuf};
use azekura_store::{Options, SUPERBLOCK_AREA_BLOCKS};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Bytes written with one call.
const WRITE_BYTES: usize = 4 << 20;

/// Byte offset of a segment's first block.
fn start_of(segment: u32, options: &Options) -> u64 {
    u64::from(SUPERBLOCK_AREA_BLOCKS) * BLOCK_SIZE as u64 + u64::from(segment) * options.segment_bytes()
}

/// A segment has been in use: it begins with a batch.
///
/// # Errors
/// When the device can't be read.
pub fn is_written(log: &File, segment: u32, options: &Options) -> Result<bool> {
    let mut block = PageBuf::new(BLOCK_SIZE);
    log.read_exact_at(&mut block, start_of(segment, options)).context("can't read the device")?;
    Ok(block.iter().any(|byte| *byte != 0))
}

/// Writes a segment with zeros, and calls `written` with the time that each write took.
///
/// # Errors
/// When the device can't be written.
pub fn write_zeros(log: &File, segment: u32, options: &Options, mut written: impl FnMut(Duration)) -> Result<()> {
    let zeros = PageBuf::zeroed(WRITE_BYTES);
    let mut at = start_of(segment, options);
    let end = start_of(segment + 1, options);
    while at < end {
        let len = (end - at).min(WRITE_BYTES as u64) as usize;
        let started = Instant::now();
        log.write_all_at(&zeros[..len], at).context("can't write to the device")?;
        written(started.elapsed());
        at += len as u64;
    }
    Ok(())
}
