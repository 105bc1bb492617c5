//! How much memory the maps of a node's devices may take.

use anyhow::ensure;
use azekura_base::Size;
use azekura_map_db::CheckpointDb;
use azekura_store::MapError;
use std::path::Path;

/// Memory for the map of one device, at the least: below it every write would wait for its leaf.
pub const MAP_BYTES_MIN: u64 = 2 << 20;
/// What the map of one device gets unless somebody says less, however small the machine is.
const MAP_BYTES_USUAL: u64 = 64 << 20;
/// Blocks that were read lately have no more of each device, in bytes.
const READ_CACHE_BYTES_MAX: usize = 16 << 20;
/// Pages of the database of a device's map have so much memory, in bytes.
const DATABASE_CACHE_BYTES_MIN: usize = 16 << 20;
const DATABASE_CACHE_BYTES_MAX: usize = 64 << 20;
/// Unless somebody says how much, maps get one in so many parts of the machine's memory (decision 0035).
const SHARE: u64 = 16;

/// Memory for the map of each of `devices` devices, in bytes: a part of what was said, or of the machine's memory.
///
/// # Errors
/// When what was said is too little for so many.
pub fn map_bytes(said: Option<u64>, devices: usize) -> anyhow::Result<u64> {
    let devices = devices.max(1) as u64;
    let Some(said) = said else {
        let share = machine_bytes().map_or(0, |bytes| bytes / SHARE / devices);
        return Ok(share.max(MAP_BYTES_USUAL));
    };
    ensure!(
        said / devices >= MAP_BYTES_MIN,
        "--memory {} is too little for the map{} of {devices} device{}: give at least {} MiB",
        Size::new(said),
        if devices == 1 { "" } else { "s" },
        if devices == 1 { "" } else { "s" },
        (MAP_BYTES_MIN * devices) >> 20
    );
    Ok(said / devices)
}

/// Memory for blocks of a device that were read lately, where its map has `map_bytes`, in bytes. What clients read
/// again is in their own memory, mostly: here are the blocks that they write parts of, and what several of them read.
#[must_use]
pub fn read_cache_bytes(map_bytes: u64) -> usize {
    usize::try_from(map_bytes / 4).unwrap_or(usize::MAX).min(READ_CACHE_BYTES_MAX)
}

/// Memory for pages of the database that a device's map is, where the map has `map_bytes`, in bytes. A checkpoint reads
/// the pages that it changes, and one thread does that: the map of some 200 GiB of sparse data is in the most that
/// there is, which is taken only as pages come.
fn database_cache_bytes(map_bytes: u64) -> usize {
    let share = usize::try_from(map_bytes / 4).unwrap_or(usize::MAX);
    share.clamp(DATABASE_CACHE_BYTES_MIN, DATABASE_CACHE_BYTES_MAX)
}

/// Opens the database at `path`, or makes it, where the device's map has `map_bytes` of memory.
///
/// # Errors
/// As [`CheckpointDb::open`].
pub fn open_map(path: &Path, map_bytes: u64) -> Result<CheckpointDb, MapError> {
    CheckpointDb::open_with(path, database_cache_bytes(map_bytes))
}

/// The machine's memory, or what this process's container may have of it, in bytes; `None` when nobody says.
fn machine_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
    let machine = total(&read("/proc/meminfo"))?;
    // A container sees its own group at the root: cgroup v2, v1. Without a limit there is "max", or a huge number.
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    Some(limits.iter().filter_map(|path| read(path).trim().parse().ok()).fold(machine, u64::min))
}

/// `MemTotal` of /proc/meminfo (proc_meminfo(5)), in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn memory_is_divided_among_devices_and_too_little_is_refused() {
        assert_eq!(map_bytes(Some(256 << 20), 4).unwrap(), 64 << 20);
        assert_eq!(map_bytes(Some(8 << 20), 0).unwrap(), 8 << 20);
        let error = map_bytes(Some(5 << 20), 3).unwrap_err().to_string();
        assert!(error.contains("at least 6 MiB"), "{error}");
        assert!(map_bytes(None, 50).unwrap() >= MAP_BYTES_USUAL);
    }

    #[test]
    fn blocks_that_were_read_have_a_part_of_what_the_map_has() {
        assert_eq!(read_cache_bytes(8 << 20), 2 << 20);
        assert_eq!([64 << 20, 64 << 30].map(read_cache_bytes), [16 << 20; 2]);
    }

    #[test]
    fn pages_of_the_database_have_a_part_of_what_the_map_has() {
        assert_eq!([2 << 20, 64 << 20].map(database_cache_bytes), [16 << 20; 2]);
        assert_eq!([128 << 20, 64 << 30].map(database_cache_bytes), [32 << 20, 64 << 20]);
    }

    #[test]
    fn the_memory_of_the_machine_is_in_meminfo() {
        assert_eq!(total("MemTotal:       24684120 kB\nMemFree:        21737800 kB\n"), Some(24_684_120 << 10));
        for nonsense in
            ["", "MemTotal:", "MemTotal: kB", "MemTotal: -1 kB", "MemTotal: 1 MB", "MemTotal: 99999999999999999999 kB"]
        {
            assert_eq!(total(nonsense), None, "{nonsense}");
        }
        assert!(machine_bytes().is_some_and(|bytes| bytes > 0));
    }
}
