//! Who has a disk: mounts, swap, and processes that have it open.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// O_WRONLY and O_RDWR, by which a process may write.
const WRITES: i32 = libc::O_WRONLY | libc::O_RDWR;
/// So many names are enough to find out who it is.
const NAMES_MAX: usize = 8;

/// Processes that have the disk with this number open; `writes`: to write. Of those of other users this process sees
/// what it may see.
fn processes(proc: &Path, number: u64, writes: bool) -> Vec<(u32, String)> {
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut pids: Vec<u32> = fs::read_dir(proc).into_iter().flatten().flatten().filter_map(pid).collect();
    pids.sort_unstable();
    let has = |pid: &u32| {
        let folder = proc.join(pid.to_string());
        let files = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
        files.into_iter().any(|file| {
            let is_it = fs::metadata(file.path())
                .is_ok_and(|found| found.file_type().is_block_device() && found.rdev() == number);
            is_it && (!writes || may_write(&folder.join("fdinfo").join(file.file_name())))
        })
    };
    let name = |pid: u32| {
        let name = fs::read_to_string(proc.join(pid.to_string()).join("comm")).unwrap_or_default();
        (pid, format!("process {pid} ({})", name.trim()))
    };
    pids.into_iter().filter(has).map(name).collect()
}

/// What the kernel says of an open file (proc(5), fdinfo).
fn may_write(info: &Path) -> bool {
    let text = fs::read_to_string(info).unwrap_or_default();
    let flags = text.lines().find_map(|line| i32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    flags.is_some_and(|flags| flags & WRITES != 0)
}

/// Another process that has the disk with this number open to write.
pub(super) fn writer(proc: &Path, number: u64) -> Option<String> {
    processes(proc, number, true).into_iter().find(|(pid, _)| *pid != std::process::id()).map(|(_, name)| name)
}

/// Where the disk with this number is mounted, and whether it is swap.
fn mounts(proc: &Path, number: u64) -> Vec<String> {
    let text = |name: &str| fs::read_to_string(proc.join(name)).unwrap_or_default();
    let device = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let mounted = text("self/mountinfo");
    let mounted = mounted.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(2);
        (words.next()? == device).then(|| words.nth(1).map(|point| format!("mounted at {point}")))?
    });
    let swaps = text("swaps");
    let is_it = |path: &str| fs::metadata(path).is_ok_and(|file| file.rdev() == number);
    let swaps = swaps.lines().skip(1).filter(|line| line.split_whitespace().next().is_some_and(is_it));
    mounted.chain(swaps.map(|_| "swap".to_owned())).collect()
}

/// All that is known of who has the disk with this number; `made`: what the kernel has made of it.
pub(super) fn all(proc: &Path, number: u64, made: Vec<String>) -> Vec<String> {
    let processes = processes(proc, number, false).into_iter().map(|(_, name)| name);
    made.into_iter().chain(mounts(proc, number)).chain(processes).take(NAMES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mounted_disk_is_found_by_its_number() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir_all(proc.path().join("self")).unwrap();
        let lines = "36 35 8:3 / /mnt/a rw - ext4 /dev/sda3 rw\n37 35 8:33 / /mnt/b rw - ext4 /dev/sdc1 rw\n";
        fs::write(proc.path().join("self/mountinfo"), lines).unwrap();
        assert_eq!(all(proc.path(), rustix::fs::makedev(8, 3), vec!["md0".into()]), ["md0", "mounted at /mnt/a"]);
        assert!(all(proc.path(), rustix::fs::makedev(8, 4), Vec::new()).is_empty());
    }

    #[test]
    fn the_flags_of_an_open_file_tell_who_may_write() {
        let folder = tempfile::tempdir().unwrap();
        let info = folder.path().join("3");
        for (flags, writes) in [("0100000", false), ("0100001", true), ("0140002", true), ("", false)] {
            fs::write(&info, format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t9\n")).unwrap();
            assert_eq!(may_write(&info), writes, "{flags}");
        }
    }
}
