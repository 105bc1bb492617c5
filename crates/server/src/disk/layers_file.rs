//! The tree of layers, beside a device's log: what an offline check has to know, since only the configuration tells
//! which layer lies on which. Written before the data plane hears of a change.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use azekura_base::{DeviceId, LayerId};
use tokio::task::JoinHandle;

/// Name of the file in a device's folder: a JSON list of pairs, a layer and the layer below it.
const NAME: &str = "layers.json";

/// Longest wait for a folder to take the file. Everything that a node is to learn of the cluster waits for that, so a
/// device that hangs is passed over.
const PATIENCE: Duration = Duration::from_millis(300);

/// The file in one device's folder, kept as new as the device allows.
pub struct Note {
    device: DeviceId,
    folder: PathBuf,
    /// What the file says, or could not be made to say.
    parents: Option<BTreeMap<LayerId, LayerId>>,
    /// A device that hangs has not taken it yet.
    writing: Option<JoinHandle<()>>,
}

impl Note {
    /// The file in a device's folder, of which nothing is known.
    #[must_use]
    pub fn new(device: DeviceId, folder: PathBuf) -> Note {
        Note { device, folder, parents: None, writing: None }
    }

    /// Writes the tree if the file says something else, in [`PATIENCE`] or later. To be called again with every change
    /// of the configuration.
    pub async fn keep(&mut self, parents: &BTreeMap<LayerId, LayerId>) {
        if self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) || self.parents.as_ref() == Some(parents)
        {
            return;
        }
        self.parents = Some(parents.clone());
        let (device, folder, parents) = (self.device, self.folder.clone(), parents.clone());
        let work = move || {
            if let Err(error) = write(&folder, &parents) {
                tracing::warn!(device = %device, "can't note the layers in {}: {error}", folder.display());
            }
        };
        let mut writing = tokio::task::spawn_blocking(work);
        if tokio::time::timeout(PATIENCE, &mut writing).await.is_err() {
            let folder = self.folder.display();
            tracing::warn!(device = %device, "{folder} does not answer: the layers are noted there later");
            self.writing = Some(writing);
        }
    }
}

/// Writes the tree into a device's folder, all of it or nothing, durably.
///
/// # Errors
/// When the file can't be written; the former one stays.
pub fn write(folder: &Path, parents: &BTreeMap<LayerId, LayerId>) -> io::Result<()> {
    let pairs: Vec<(LayerId, LayerId)> = parents.iter().map(|(layer, parent)| (*layer, *parent)).collect();
    crate::disk::files::replace(&folder.join(NAME), &serde_json::to_vec(&pairs)?)
}

/// Reads it back; a device that was never told of layers has none.
///
/// # Errors
/// When there is a file that can't be read.
pub fn read(folder: &Path) -> io::Result<Vec<(LayerId, LayerId)>> {
    let bytes = match std::fs::read(folder.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        bytes => bytes?,
    };
    let pairs: Vec<(LayerId, LayerId)> = serde_json::from_slice(&bytes)?;
    match pairs.iter().find(|(layer, parent)| layer == parent) {
        Some((layer, _)) => Err(io::Error::other(format!("layer {layer} lies on itself"))),
        None => Ok(pairs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = std::env::temp_dir().join(format!("azekura-layers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let _ = std::fs::remove_file(folder.join(NAME));
        assert_eq!(read(&folder).unwrap(), []);
        let parents = BTreeMap::from([(LayerId(3), LayerId(1)), (LayerId(9), LayerId(3))]);
        write(&folder, &parents).unwrap();
        assert_eq!(read(&folder).unwrap(), [(LayerId(3), LayerId(1)), (LayerId(9), LayerId(3))]);
        write(&folder, &BTreeMap::new()).unwrap();
        assert_eq!(read(&folder).unwrap(), []);
        for bad in ["", "{}", "[[1]]", "[[2,2]]", "[[1,-1]]"] {
            crate::disk::files::replace(&folder.join(NAME), bad.as_bytes()).unwrap();
            assert!(read(&folder).is_err(), "{bad}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
