//! Files of open devices that somebody has deleted. The process still has them open and goes on, so nothing else would
//! be noticed before its next start, when they are gone.

use azekura_base::DeviceId;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

/// They are looked for so often.
const INTERVAL: Duration = Duration::from_secs(10);
/// What a device's folder has besides its description.
const FILES: [&str; 2] = ["log", "map.redb"];

/// Devices with files that are gone, and what people are told of each.
pub type Deleted = BTreeMap<DeviceId, String>;

/// Looks for a device's files again and again, for as long as somebody wants to know.
pub(crate) async fn look(id: DeviceId, folder: Box<Path>, deleted: watch::Sender<Deleted>) {
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        interval.tick().await;
        let here = folder.clone();
        // A disk that hangs keeps no more than this waiting.
        let gone = spawn_blocking(move || gone(&here)).await;
        let said = gone.ok().flatten().map(|file| what(id, &folder.join(file)));
        deleted.send_if_modified(|all| match said {
            Some(said) => all.insert(id, said.clone()).is_none_or(|before| before != said),
            None => all.remove(&id).is_some(),
        });
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

fn what(id: DeviceId, file: &Path) -> String {
    format!(
        "{} was deleted; the node still has it open, and what the device holds is gone when the node stops: do not stop \
         it, and move its copies to other devices ('azekura device drain {id}')",
        file.display()
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
        let said = what(DeviceId(3), &folder.path().join("log"));
        assert!(said.contains("log was deleted") && said.contains("azekura device drain 3"), "{said}");
    }
}
