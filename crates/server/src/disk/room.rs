//! The room that a device needs on its file system: asked for before anything is made, and reserved for what grows
//! later.

use anyhow::{Context, Result, ensure};
use azekura_base::Size;
use std::fs::OpenOptions;
use std::path::Path;

/// Smallest device.
pub const SIZE_MIN: u64 = 320 << 20;
/// The map of a full device takes some 0.4 % of it: images of 16 KiB for each 4 MiB. One in so many bytes is reserved,
/// so that there is also room for what a transaction writes before it gives up what it replaces.
const MAP_SHARE: u64 = 200;
/// And so much for a device of any size.
const MAP_MIN: u64 = 16 << 20;
/// And so much for what else a node writes beside its devices: the embedded configuration server's database, the copy
/// of the configuration, and notes of devices.
const NODE_FILES: u64 = 32 << 20;

/// Refuses a device of `size` bytes that is smaller than any can be.
///
/// # Errors
/// Says how large one is at least.
pub fn check_size(size: u64) -> Result<()> {
    ensure!(
        size >= SIZE_MIN,
        "--device-size {} is too small for a device: at least {} are needed",
        Size::new(size),
        Size::new(SIZE_MIN)
    );
    Ok(())
}

/// Bytes to be kept for the map of a device of `size` bytes.
#[must_use]
pub fn map_bytes(size: u64) -> u64 {
    size / MAP_SHARE + MAP_MIN
}

/// Refuses to make `count` devices of `size` bytes where there is no room for them. `path` is the folder they come
/// into, or the nearest that there is.
///
/// # Errors
/// Says how much is needed, how much there is, and what to do.
pub fn check(path: &Path, size: u64, count: u32) -> Result<()> {
    let (existing, free) = free(path)?;
    enough(existing, free, size, count)
}

/// Refuses a device of `size` bytes on a disk of its own where there is no room for its map.
///
/// # Errors
/// Says how much is needed, and how much there is.
pub fn check_map(path: &Path, size: u64) -> Result<()> {
    let (existing, free) = free(path)?;
    let needed = map_bytes(size).saturating_add(NODE_FILES);
    ensure!(
        needed <= free,
        "there is no room in {} for the map of a disk of {}: {} are needed with the node's own files, and {} are free",
        existing.display(),
        Size::new(size),
        Size::new(needed),
        Size::new(free)
    );
    Ok(())
}

/// The nearest folder that there is, and the bytes that are free there.
fn free(path: &Path) -> Result<(&Path, u64)> {
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    let system = rustix::fs::statvfs(existing)
        .with_context(|| format!("can't tell how much room there is in {}", existing.display()))?;
    Ok((existing, system.f_bavail.saturating_mul(system.f_frsize)))
}

fn enough(path: &Path, free: u64, size: u64, count: u32) -> Result<()> {
    let each = size.saturating_add(map_bytes(size));
    let count = u64::from(count.max(1));
    // The largest size for which there would be room, in whole MiB.
    let for_devices = free.saturating_sub(NODE_FILES);
    let most = ((for_devices / count).saturating_sub(MAP_MIN) / (MAP_SHARE + 1) * MAP_SHARE) >> 20;
    // A size that would be refused is no way out.
    let smaller = if most >= SIZE_MIN >> 20 {
        format!("make room, or give a --device-size of at most {most}MiB")
    } else {
        format!("make room: a device has at least {}MiB", SIZE_MIN >> 20)
    };
    ensure!(
        each.checked_mul(count).is_some_and(|needed| needed <= for_devices),
        "there is no room in {} for {count} device(s) of {}: each takes {} with its map, the node's own files up to {}, \
         and {} are free; {smaller}",
        path.display(),
        Size::new(size),
        Size::new(each),
        Size::new(NODE_FILES),
        Size::new(free)
    );
    Ok(())
}

/// Reserves the room for the map of a device of `size` bytes, behind the end of the file: the file does not look
/// larger, and when it grows others can't have taken what it needs. What it has already counts.
///
/// # Errors
/// When there is no room, or the file can't be opened. A file system that can't reserve room is none.
pub fn reserve_map(path: &Path, size: u64) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, map_bytes(size)) {
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_map_db::CheckpointDb;
    use azekura_store::SavedMap;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_size_that_fits_is_named() {
        let (path, free) = (Path::new("/data"), 574 << 20);
        let error = enough(path, free, 2 << 30, 1).unwrap_err().to_string();
        let most: u64 = error.rsplit(' ').next().unwrap().trim_end_matches("MiB").parse().unwrap();
        assert!((500..574).contains(&most), "{error}");
        let left = free - (most << 20) - map_bytes(most << 20);
        assert!(left >= 32 << 20, "{left} bytes are left for the database of the configuration and notes");
        enough(path, free, most << 20, 1).unwrap();
        enough(path, free, (most + 4) << 20, 1).unwrap_err();
        enough(path, free, (most << 20) / 2, 2).unwrap_err();
        enough(path, free, u64::MAX, u32::MAX).unwrap_err();
        for free in [0, 300 << 20] {
            let error = enough(path, free, 1 << 30, 1).unwrap_err().to_string();
            assert!(error.ends_with("make room: a device has at least 320MiB"), "{error}");
        }
    }

    #[test]
    fn room_for_the_map_is_reserved_and_stays_so() {
        let folder = std::env::temp_dir().join(format!("azekura-room-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("map.redb");
        let size = 512 << 20;
        let allocated = || std::fs::metadata(&path).unwrap().blocks() * 512;
        let map = CheckpointDb::open(&path).unwrap();
        let len = std::fs::metadata(&path).unwrap().len();
        reserve_map(&path, size).unwrap();
        assert!(allocated() >= map_bytes(size) && len == std::fs::metadata(&path).unwrap().len());
        drop(map);
        assert!(CheckpointDb::open(&path).unwrap().root().unwrap().is_none());
        reserve_map(&path, size).unwrap();
        assert!(allocated() >= map_bytes(size), "also where it was given up");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
