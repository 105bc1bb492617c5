//! What is wrong with the files of open devices although the process goes on: somebody has deleted one, which nobody
//! would notice before the next start, or their file system has no room for the map to grow.

use azekura_base::{DeviceId, Size};
use rustix::fs::statvfs;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

/// They are looked at so often.
const INTERVAL: Duration = Duration::from_secs(10);
/// What a device's folder has besides its description.
const FILES: [&str; 2] = ["log", "map.redb"];
/// A file system with less room than this, bytes, is as good as full.
const ROOM_MIN: u64 = 32 << 20;

/// What people are told of devices with something wrong.
pub type Wrong = BTreeMap<DeviceId, String>;

/// Looks at a device's files again and again, for as long as somebody wants to know.
pub(crate) async fn look(id: DeviceId, folder: Box<Path>, wrong: watch::Sender<Wrong>) {
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        interval.tick().await;
        let here = folder.clone();
        // A disk that hangs keeps no more than this waiting.
        let said = spawn_blocking(move || what_is_wrong(id, &here)).await.ok().flatten();
        wrong.send_if_modified(|all| match said {
            Some(said) => all.insert(id, said.clone()).is_none_or(|before| before != said),
            None => all.remove(&id).is_some(),
        });
    }
}

fn what_is_wrong(id: DeviceId, folder: &Path) -> Option<String> {
    match gone(folder) {
        Some(file) => Some(deleted(id, &folder.join(file))),
        None => room(folder).filter(|room| *room < ROOM_MIN).map(|room| full(folder, room)),
    }
}

/// The first of the files that is not there. What can't be found out is taken to be there.
fn gone(folder: &Path) -> Option<&'static str> {
    let is_gone = |file: &&str| {
        let found = std::fs::symlink_metadata(folder.join(file));
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    FILES.into_iter().find(is_gone)
}

/// What the folder's file system has left, bytes.
fn room(folder: &Path) -> Option<u64> {
    let found = statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

fn deleted(id: DeviceId, file: &Path) -> String {
    format!(
        "{} was deleted; the node still has it open, and what the device holds is gone when the node stops: do not stop \
         it, and move its copies to other devices ('azekura device drain {id}')",
        file.display()
    )
}

fn full(folder: &Path, room: u64) -> String {
    format!(
        "the file system of {} has {} left: the device's map can't grow there, and the device stops when it has to; make \
         room on it",
        folder.display(),
        Size::new(room)
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_that_is_gone_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for file in FILES {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        assert_eq!(gone(folder.path()), None);
        std::fs::remove_file(folder.path().join("map.redb")).unwrap();
        assert_eq!(gone(folder.path()), Some("map.redb"));
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert_eq!(gone(folder.path()), Some("log"));
        let said = what_is_wrong(DeviceId(3), folder.path()).unwrap();
        assert!(said.contains("log was deleted") && said.contains("azekura device drain 3"), "{said}");
    }
}
