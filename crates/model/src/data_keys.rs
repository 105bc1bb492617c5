//! Data keys of encrypted volumes, wrapped (docs/formats/data-keys.md).

use azekura_base::{KeyId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::{Model, Unknown};

/// What a node's record says that it understands when it can serve encrypted volumes.
pub const ENCRYPTION: &str = "encryption";
/// What a node's record says that it understands when it knows other providers than [`FILE_PROVIDER`].
pub const KEY_PROVIDERS: &str = "key-providers";
/// What a node's record says that it understands when it knows [`CSI_PROVIDER`].
pub const CSI_KEYS: &str = "csi-keys";
/// The provider of keys that are wrapped with a secret of the volume's own: whoever uses the volume brings it.
pub const CSI_PROVIDER: &str = "csi";
/// The provider that all nodes know which can serve encrypted volumes.
pub const FILE_PROVIDER: &str = "file";

/// The key of a volume, its snapshots and its clones. What is here opens nothing without the key of a provider, which
/// is not in the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataKeyRecord {
    /// Its number.
    pub id: KeyId,
    /// The key, and those that take its place later; one so far.
    pub generations: Vec<WrappedKey>,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// One data key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WrappedKey {
    /// Its number, from 0 on.
    pub number: u8,
    /// Who has the key that it is wrapped with: `file`, `vault`, `kmip` or `csi`.
    pub provider: String,
    /// The data key, wrapped, in the provider's own form.
    pub wrapped: String,
    /// 16 bytes of an HMAC-SHA-256 under the data key, in hexadecimal digits: a wrong key is noticed before anything is
    /// read or written.
    pub check: String,
    /// When it was made, RFC 3339.
    pub created: String,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// By whom a data key is wrapped, and what came of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapping {
    /// The provider's name.
    pub provider: String,
    /// The data key, wrapped, in the provider's own form.
    pub wrapped: String,
}

impl WrappedKey {
    /// By whom it is wrapped.
    #[must_use]
    pub fn wrapping(&self) -> Wrapping {
        Wrapping { provider: self.provider.clone(), wrapped: self.wrapped.clone() }
    }
}

impl DataKeyRecord {
    /// The key that writes are encrypted with. A record without one can't be read.
    #[must_use]
    pub fn current(&self) -> Option<&WrappedKey> {
        self.generations.last()
    }
}

/// Who uses a data key, and is about to end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyUser<'a> {
    /// A volume.
    Volume(VolumeId),
    /// A volume's snapshot of this name.
    Snapshot(VolumeId, &'a str),
}

impl Model {
    /// Whether a data key has other users than `ends`. What can't be read may be one.
    pub(crate) fn uses_key_without(&self, key: KeyId, ends: KeyUser<'_>) -> bool {
        let unread = |name: &String| ["volumes/", "snapshots/", "layers/"].iter().any(|kind| name.contains(kind));
        if self.problems.keys().any(unread) {
            return true;
        }
        let goes = |volume: VolumeId| matches!(ends, KeyUser::Volume(ends) if ends == volume);
        let volumes = self.volumes.values().any(|volume| volume.key == Some(key) && !goes(volume.id));
        volumes
            || self.snapshots.iter().any(|((volume, name), snapshot)| {
                let goes = matches!(ends, KeyUser::Snapshot(of, ends) if of == *volume && ends == name);
                !goes && self.layers.get(&snapshot.layer).is_none_or(|layer| layer.key == Some(key))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_volumes_own_secret_is_as_the_document_has_it() {
        let golden = include_str!("../tests/golden/data_key_csi.json");
        let record: DataKeyRecord = serde_json::from_str(golden).unwrap();
        assert_eq!(record.current().map(|key| key.provider.as_str()), Some(CSI_PROVIDER));
        assert_eq!(format!("{}\n", serde_json::to_string_pretty(&record).unwrap()), golden);
        let wrapped = &record.current().unwrap().wrapped;
        assert!(include_str!("../../../docs/formats/data-keys.md").contains(wrapped.as_str()));
    }

    #[test]
    fn a_record_is_as_the_document_has_it() {
        let golden = include_str!("../tests/golden/data_key.json");
        let record: DataKeyRecord = serde_json::from_str(golden).unwrap();
        assert_eq!((record.id, record.current().map(|key| key.provider.as_str())), (KeyId(5), Some("file")));
        assert_eq!(format!("{}\n", serde_json::to_string_pretty(&record).unwrap()), golden);
        let document = include_str!("../../../docs/formats/data-keys.md");
        let shown: Vec<&str> = document.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        assert!(shown.join("\n").ends_with(golden.trim_end()), "docs/formats/data-keys.md shows another record");
    }
}
