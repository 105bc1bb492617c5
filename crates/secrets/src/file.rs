//! The KEK in a file on each node (docs/formats/data-keys.md).

use crate::keks::{KEY_BYTES, Keks};
use crate::lines::lines;
use crate::{DataKey, KekMark, KeyPlace, KeyProvider, SecretsError, hex, private_file};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The longest file that is read, bytes: hundreds of versions.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The KEK is in a file, which is read anew each time: who mends it need not start the node again, and no memory keeps
/// it.
#[derive(Clone, Debug)]
pub struct FileProvider {
    path: PathBuf,
}

impl FileProvider {
    /// Its name in records.
    pub const NAME: &'static str = "file";

    /// The one with this file, which is not looked at yet.
    #[must_use]
    pub fn new(path: &Path) -> FileProvider {
        FileProvider { path: path.to_owned() }
    }

    fn read(&self) -> Result<Keks, SecretsError> {
        let text = private_file::read("the key file", &self.path, FILE_BYTES_MAX)?;
        let mut keys = BTreeMap::new();
        for line in lines(&text) {
            let malformed = |line, reason| SecretsError::Malformed { path: self.path.clone(), line, reason };
            let (at, version, key) = line.map_err(|(at, reason)| malformed(at, reason))?;
            let key = hex::read(key)
                .filter(|key| key.len() == KEY_BYTES)
                .ok_or_else(|| malformed(at, "the key has not 64 hexadecimal digits"))?;
            if keys.insert(version, key).is_some() {
                return Err(malformed(at, "the version was there before"));
            }
        }
        if keys.is_empty() {
            return Err(SecretsError::Empty { path: self.path.clone() });
        }
        Ok(Keks { from: format!("the key file {}", self.path.display()), keys })
    }
}

impl KeyProvider for FileProvider {
    fn name(&self) -> &'static str {
        FileProvider::NAME
    }

    fn wrap(&self, place: KeyPlace, key: &DataKey) -> Result<String, SecretsError> {
        self.read()?.wrap(place, key)
    }

    fn unwrap(&self, wrapped: &[(KeyPlace, &str)]) -> Result<Vec<Result<DataKey, SecretsError>>, SecretsError> {
        let keks = self.read()?;
        Ok(wrapped.iter().map(|(place, wrapped)| keks.unwrap(*place, wrapped)).collect())
    }

    fn keks(&self, cluster: u128) -> Result<Vec<KekMark>, SecretsError> {
        Ok(self.read()?.marks(cluster))
    }
}

#[cfg(test)]
mod tests;
