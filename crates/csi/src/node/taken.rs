//! Volumes that were taken from this machine while it had them staged: Kubernetes has given the machine up.
//!
//! The kernel's NVMe/TCP connects again for as long as the device is there, since a node may restart at any time. So
//! who writes to such a volume would wait for ever and could not be ended, nor could his container, and nobody would
//! unstage the volume. When it was taken for good, its device is taken away: whoever waits gets an error.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use azekura_api::VolumeView;
use tonic::Status;

use super::Node;
use super::machine::status;
use crate::Outcome;

/// Staged volumes are looked at so often.
const PAUSE: Duration = Duration::from_secs(5);
/// A volume is taken that was so in so many looks: the node that answers may be behind the others.
const LOOKS: u32 = 4;

/// The volume is published to this node.
fn is_published_to(volume: &VolumeView, node: &str) -> bool {
    volume.attachments.iter().any(|entry| entry.pinned && entry.node_name == node)
}

impl Node {
    /// The notes of volumes that were staged by this driver; other volumes of the machine are somebody else's.
    fn notes(&self) -> PathBuf {
        self.state.join("staged")
    }

    fn note(&self, volume: &str) -> PathBuf {
        let folder = azekura_attach::folder(&self.state, volume);
        self.notes().join(folder.file_name().unwrap_or_default())
    }

    pub(super) fn note_staged(&self, volume: &str) -> Outcome<()> {
        let noted = fs::create_dir_all(self.notes()).and_then(|()| fs::write(self.note(volume), volume));
        noted.map_err(|error| Status::internal(format!("can't write {}: {error}", self.note(volume).display())))
    }

    pub(super) fn is_noted(&self, volume: &str) -> bool {
        self.note(volume).exists()
    }

    pub(super) fn forget_staged(&self, volume: &str) -> Outcome<()> {
        match fs::remove_file(self.note(volume)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Status::internal(format!("can't remove {}: {error}", self.note(volume).display())))
            }
            _ => Ok(()),
        }
    }

    /// The cluster says that the volume is not published to this machine's node. What the cluster does not say is no.
    pub(super) fn is_taken(&self, volume: &str) -> bool {
        match self.cluster.volume(volume) {
            Ok(Some(shown)) => !is_published_to(&shown, &self.name),
            // It was deleted.
            Ok(None) => true,
            Err(error) => {
                tracing::debug!(volume, "can't tell whose volume '{volume}' is: {}", error.message());
                false
            }
        }
    }

    /// Takes away the device of a volume that is not this machine's any more.
    pub(super) fn cut(&self, volume: &str) -> Outcome<()> {
        if self.devices.cut(volume).map_err(status)? {
            tracing::warn!(
                volume,
                "volume '{volume}' is not published to {} any more, which had it staged: its device is taken away, and \
                 its containers get errors",
                self.name
            );
        }
        Ok(())
    }

    fn staged_volumes(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.notes()) else { return Vec::new() };
        entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok()).collect()
    }

    /// Looks at all staged volumes. `seen` says in how many looks before this each was taken, one after the other.
    fn look(&self, seen: &BTreeMap<String, u32>) -> BTreeMap<String, u32> {
        let mut taken = BTreeMap::new();
        for volume in self.staged_volumes() {
            if !self.is_taken(&volume) {
                continue;
            }
            let looks = seen.get(&volume).copied().unwrap_or(0) + 1;
            // A call that holds the volume may be one that waits for its device. Once that is gone, whatever device the
            // volume gets here is not the driver's.
            if looks >= LOOKS
                && let Err(error) = self.cut(&volume).and_then(|()| self.forget_staged(&volume))
            {
                tracing::warn!(volume, "can't take the device of '{volume}' away: {}", error.message());
            }
            taken.insert(volume, looks);
        }
        taken
    }

    /// Looks at staged volumes for as long as the process runs.
    pub(crate) async fn watch(self) {
        let mut seen = BTreeMap::new();
        loop {
            tokio::time::sleep(PAUSE).await;
            let (node, before) = (self.clone(), std::mem::take(&mut seen));
            seen = tokio::task::spawn_blocking(move || node.look(&before)).await.unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_client_that_came_by_itself_is_no_publication() {
        let shown = |attachments: &[(&str, bool)]| -> VolumeView {
            let attachment = |(node, pinned): &(&str, bool)| {
                json!({ "node": 1, "node_name": node, "generation": 1, "shared": false, "pinned": pinned,
                        "in_use": true, "since": "" })
            };
            serde_json::from_value(json!({
                "name": "v", "id": 1, "uuid": "", "size_bytes": 4096, "class": "c", "copies": 2, "access": "exclusive",
                "generation": 1, "attachments": attachments.iter().map(attachment).collect::<Vec<_>>(),
                "fence_due": false, "ack_rule": "all", "created": "",
            }))
            .unwrap()
        };
        assert!(is_published_to(&shown(&[("n1", true)]), "n1"));
        assert!(is_published_to(&shown(&[("n2", true), ("n1", true)]), "n1"));
        assert!(!is_published_to(&shown(&[("n2", true)]), "n1"));
        assert!(!is_published_to(&shown(&[("n1", false)]), "n1"));
        assert!(!is_published_to(&shown(&[]), "n1"));
    }
}
