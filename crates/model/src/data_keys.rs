//! Data keys of encrypted volumes, wrapped (docs/formats/data-keys.md).

use azekura_base::{KeyGeneration, KeyId, LayerId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::{Model, Unknown};

/// What a node's record says that it understands when it can serve encrypted volumes.
pub const ENCRYPTION: &str = "encryption";
/// What a node's record says that it understands when it knows other providers than [`FILE_PROVIDER`].
pub const KEY_PROVIDERS: &str = "key-providers";
/// What a node's record says that it understands when it knows [`CSI_PROVIDER`].
pub const CSI_KEYS: &str = "csi-keys";
/// What a node's record says that it understands when blocks may be under several generations of a data key.
pub const KEY_GENERATIONS: &str = "key-generations";
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
    /// The keys that blocks may be encrypted under, the newest last: one, unless another one takes its place.
    pub generations: Vec<WrappedKey>,
    /// The one of them that writes are encrypted with; `None`: the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writing: Option<KeyGeneration>,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// One data key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WrappedKey {
    /// Which generation it is.
    pub number: KeyGeneration,
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
        match self.writing {
            Some(writing) => self.generations.iter().find(|generation| generation.number == writing),
            None => self.generations.last(),
        }
    }

    /// A data key of its own for a clone of what has this one: the clone's blocks are under the keys that are here,
    /// which `copies` has wrapped for the number `id`, until `newest` has taken their place. `None`: all generations
    /// are in use, or `copies` are not those of this record.
    #[must_use]
    pub fn for_clone(&self, id: KeyId, copies: Vec<WrappedKey>, newest: WrappedKey) -> Option<DataKeyRecord> {
        let numbers = |keys: &[WrappedKey]| keys.iter().map(|key| key.number).collect::<Vec<_>>();
        let taken = numbers(&self.generations);
        let number = taken.last()?.free_after(&taken).filter(|_| numbers(&copies) == taken)?;
        let generations = copies.into_iter().chain([WrappedKey { number, ..newest }]).collect();
        Some(DataKeyRecord { id, generations, writing: None, unknown: Unknown::default() })
    }

    /// The newest key, if there are former ones: it takes their place.
    #[must_use]
    pub fn newest_of_several(&self) -> Option<&WrappedKey> {
        self.generations.last().filter(|_| self.generations.len() > 1)
    }
}

/// Who has blocks under former generations of a data key, while another one takes their place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormerKeys {
    /// Volumes that may show such blocks.
    pub volumes: Vec<VolumeId>,
    /// Layers of snapshots that may.
    pub snapshots: Vec<LayerId>,
    /// Something can't be read that may have some.
    pub unread: bool,
}

impl FormerKeys {
    /// Nobody has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.snapshots.is_empty() && !self.unread
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
    /// A volume, a snapshot or a layer can't be read, and may use any key.
    fn has_unread_key_users(&self) -> bool {
        let unread = |name: &String| ["volumes/", "snapshots/", "layers/"].iter().any(|kind| name.contains(kind));
        self.problems.keys().any(unread)
    }

    /// Who may have blocks under other generations of a data key than `newest`.
    #[must_use]
    pub fn former_keys(&self, key: KeyId, newest: KeyGeneration) -> FormerKeys {
        let volumes = self.volumes.values().filter(|volume| volume.key == Some(key) && volume.rekeyed != Some(newest));
        let layers = self.snapshots.values().filter_map(|snapshot| self.layers.get(&snapshot.layer));
        let snapshots = layers.filter(|layer| layer.key == Some(key) && layer.rekeyed != Some(newest));
        FormerKeys {
            volumes: volumes.map(|volume| volume.id).collect(),
            snapshots: snapshots.map(|layer| layer.id).collect(),
            unread: self.has_unread_key_users()
                || self.snapshots.values().any(|snapshot| !self.layers.contains_key(&snapshot.layer)),
        }
    }

    /// The generations of a data key that its volumes and snapshots say they are under.
    pub(crate) fn rekeyed_to(&self, key: KeyId) -> impl Iterator<Item = KeyGeneration> + '_ {
        let volumes = self.volumes.values().filter(move |volume| volume.key == Some(key)).map(|volume| volume.rekeyed);
        let layers = self.layers.values().filter(move |layer| layer.key == Some(key)).map(|layer| layer.rekeyed);
        volumes.chain(layers).flatten()
    }

    /// Whether a data key has other users than `ends`. What can't be read may be one.
    pub(crate) fn uses_key_without(&self, key: KeyId, ends: KeyUser<'_>) -> bool {
        if self.has_unread_key_users() {
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
