//! The node's key, `identity/node.key` in its data folder: PKCS#8 in DER, mode 0600. Who has it is the node
//! (docs/decisions/0037-who-may.md). Beside it lie the secrets that nodes share ([`IdentityFolder`]).

use crate::disk::files::{replace_secret, sync_folder};
use anyhow::{Context, Result, anyhow};
use azekura_control::Secrets;
use azekura_transport::NodeKey;
use std::fs::{DirBuilder, Permissions, set_permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The key that a data folder has; makes one when there is none.
///
/// # Errors
/// When there is something else in its place, or a new one can't be written.
pub fn node_key(data: &Path) -> Result<NodeKey> {
    let folder = data.join("identity");
    let path = folder.join("node.key");
    match std::fs::read(&path) {
        Ok(bytes) => {
            close_to_others(&path)?;
            NodeKey::from_pkcs8(&bytes).map_err(|error| {
                anyhow!(
                    "{} is damaged ({error}); restore it from a backup, or move it away and start the node once with \
                     --replace-key",
                    path.display()
                )
            })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make(data, &folder, &path).with_context(|| format!("can't write {}", path.display()))
        }
        Err(error) => Err(error).with_context(|| format!("can't read {}", path.display())),
    }
}

fn make(data: &Path, folder: &Path, path: &Path) -> Result<NodeKey> {
    let key = NodeKey::generate()?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    replace_secret(path, &key.to_pkcs8())?;
    sync_folder(data)?;
    Ok(key)
}

/// The folder with the node's key, for the control plane's secrets: PEM, mode 0600.
#[derive(Debug)]
pub struct IdentityFolder(pub PathBuf);

impl IdentityFolder {
    /// That of a data folder. It is there once [`node_key`] was asked for.
    #[must_use]
    pub fn of(data: &Path) -> IdentityFolder {
        IdentityFolder(data.join("identity"))
    }
}

impl Secrets for IdentityFolder {
    fn read(&self, name: &str) -> io::Result<Option<String>> {
        match std::fs::read_to_string(self.0.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        replace_secret(&self.0.join(name), text.as_bytes())
    }
}

/// A key that others can read is theirs as well: it is closed, and somebody is told.
fn close_to_others(path: &Path) -> Result<()> {
    let mode = std::fs::metadata(path).with_context(|| format!("can't look at {}", path.display()))?.mode();
    if mode & 0o077 != 0 {
        tracing::warn!(
            "{} had mode {:04o}: others on this machine could read the node's key. It has 0600 now; if somebody may have \
             read it, move it away and start the node once with --replace-key",
            path.display(),
            mode & 0o7777
        );
        set_permissions(path, Permissions::from_mode(0o600))
            .with_context(|| format!("can't give {} mode 0600", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_folder_keeps_its_key_to_itself() {
        let data = tempfile::tempdir().unwrap();
        let first = node_key(data.path()).unwrap().name().unwrap();
        assert_eq!(node_key(data.path()).unwrap().name().unwrap(), first);
        let path = data.path().join("identity/node.key");
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(node_key(data.path()).unwrap().name().unwrap(), first);
        assert_eq!(mode(&path), 0o600);
        std::fs::remove_file(&path).unwrap();
        assert_ne!(node_key(data.path()).unwrap().name().unwrap(), first);
    }

    #[test]
    fn secrets_lie_beside_the_key_and_are_as_closed() {
        let data = tempfile::tempdir().unwrap();
        node_key(data.path()).unwrap();
        let folder = IdentityFolder::of(data.path());
        assert_eq!(folder.read("a.pem").unwrap(), None);
        for text in ["one", "two"] {
            folder.write("a.pem", text).unwrap();
            assert_eq!(folder.read("a.pem").unwrap().as_deref(), Some(text));
        }
        assert_eq!(mode(&data.path().join("identity/a.pem")), 0o600);
    }

    #[test]
    fn what_is_no_key_is_not_replaced() {
        let data = tempfile::tempdir().unwrap();
        node_key(data.path()).unwrap();
        let path = data.path().join("identity/node.key");
        replace_secret(&path, b"no key").unwrap();
        let refused = node_key(data.path()).unwrap_err().to_string();
        assert!(refused.contains("node.key is damaged"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"no key");
    }
}
