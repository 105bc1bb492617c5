//! Volumes: made, grown and deleted by one transaction each.

use std::sync::Arc;

use azekura_base::{BLOCK_SIZE, LayerId, VOLUME_SIZE_MAX, VolumeId};

use tokio::time::Instant;

use super::{Attempt, MetaClient, OPERATION_TIMEOUT, Try, encode, random_uuid};
use crate::client::Txn;
use crate::error::{Kind, MetaError};
use crate::model::{
    AttachmentsRecord, ClassRecord, Key, LayerRecord, LayerState, Model, Unknown, VolumeAccess, VolumeRecord,
};
use crate::time::now_rfc3339;

/// Longest name.
const NAME_LENGTH_MAX: usize = 127;

/// What a volume's deletion may end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeDeletion {
    /// Attachments that stand; else they are in the way.
    pub attached: bool,
    /// Its snapshots; else they are in the way.
    pub snapshots: bool,
}

/// A volume to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Its unique name.
    pub name: String,
    /// Its size: a multiple of 4096 bytes, at most 64 TiB.
    pub size_bytes: u64,
    /// Its storage class, which must have groups.
    pub class: String,
    /// How many may use it at once.
    pub access: VolumeAccess,
}

impl VolumeSpec {
    /// Whether such a volume can be: its name and its size.
    pub fn check(&self) -> Result<(), MetaError> {
        check_name(Kind::Volume, &self.name)?;
        check_size(self.size_bytes)
    }
}

/// Checks a name: letters, digits, `.`, `_`, `-`, beginning with a letter or digit, so that it can stand in URLs, paths
/// and export names.
pub(super) fn check_name(kind: Kind, name: &str) -> Result<(), MetaError> {
    let reason = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > NAME_LENGTH_MAX {
        format!("it has more than {NAME_LENGTH_MAX} characters")
    } else if let Some(bad) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !"._-".contains(*c)) {
        format!("it contains {bad:?}")
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        "it does not begin with a letter or digit".to_owned()
    } else {
        return Ok(());
    };
    Err(MetaError::InvalidName { kind, name: name.to_owned(), reason })
}

/// Whether a volume can have this size.
pub fn check_size(size_bytes: u64) -> Result<(), MetaError> {
    let reason = if size_bytes == 0 {
        "it would be empty"
    } else if size_bytes > VOLUME_SIZE_MAX {
        "the largest volume has 64 TiB"
    } else if !size_bytes.is_multiple_of(BLOCK_SIZE as u64) {
        "sizes are multiples of 4096 bytes"
    } else {
        return Ok(());
    };
    Err(MetaError::InvalidSize { size_bytes, reason: reason.to_owned() })
}

/// What all volumes need when they are full: the sum of size times copies.
#[must_use]
pub fn promised_bytes(model: &Model) -> u128 {
    let copies = |class: &str| model.classes.get(class).map_or(1, |class| class.copies);
    model.volumes.values().map(|volume| u128::from(volume.size_bytes) * u128::from(copies(&volume.class))).sum()
}

/// Sum of the sizes of the devices in use.
#[must_use]
pub fn usable_capacity_bytes(model: &Model) -> u128 {
    let used = model.devices.values().filter(|device| device.is_sound());
    used.map(|device| u128::from(device.capacity_bytes)).sum()
}

/// Refuses `more_bytes` of volume if the class's overcommit limit would be passed.
pub fn check_overcommit(model: &Model, class: &ClassRecord, more_bytes: u64) -> Result<(), MetaError> {
    let requested_bytes = u128::from(more_bytes) * u128::from(class.copies);
    let promised_bytes = promised_bytes(model);
    let capacity_bytes = usable_capacity_bytes(model);
    let limit_bytes = (capacity_bytes as f64 * class.overcommit_ratio) as u128;
    if promised_bytes + requested_bytes <= limit_bytes {
        return Ok(());
    }
    Err(MetaError::Overcommit {
        requested_bytes,
        promised_bytes,
        limit_bytes,
        capacity_bytes,
        ratio: class.overcommit_ratio,
    })
}

fn missing(kind: Kind, name: &str) -> MetaError {
    MetaError::NotFound { kind, name: name.to_owned() }
}

impl MetaClient {
    /// Makes a volume with an empty head layer.
    pub async fn create_volume(&self, spec: &VolumeSpec) -> Result<VolumeRecord, MetaError> {
        spec.check()?;
        let uuid = random_uuid();
        let created = now_rfc3339();
        let keys = [
            Key::Volume(&spec.name),
            Key::Class(&spec.class),
            // Every change of a volume moves this counter: promises are added one after the other, and a model that
            // has seen its last change knows all volumes.
            Key::Counter("volumes"),
            Key::Counter("layers"),
        ];
        let _one_at_a_time = self.inner.creating.lock().await;
        let (keys, uuid, created) = (&keys, &uuid, &created);
        self.settle("creating the volume", |Try { deadline, .. }| async move {
            let [volume, class, volumes, layers] = self.get_all(keys.each_ref(), deadline).await?;
            match volume.record::<VolumeRecord>()? {
                // Ours, of an attempt whose answer was lost.
                Some(existing) if existing.uuid == *uuid => return Ok(Attempt::Done(existing)),
                Some(_) => return Err(MetaError::Exists { kind: Kind::Volume, name: spec.name.clone() }),
                None => {}
            }
            let policy: Option<ClassRecord> = class.record()?;
            let policy = policy.filter(|class| !class.deleted).ok_or_else(|| missing(Kind::Class, &spec.class))?;
            if policy.groups.is_empty() {
                return Err(MetaError::NoGroups { class: spec.class.clone() });
            }
            let model = self.model_at(volumes.mod_revision()).await?;
            check_overcommit(&model, &policy, spec.size_bytes)?;
            let id = volumes.next_id()?;
            let layer = layers.next_id()?;
            let record = VolumeRecord {
                id: VolumeId(id),
                uuid: uuid.clone(),
                name: spec.name.clone(),
                size_bytes: spec.size_bytes,
                class: spec.class.clone(),
                head: LayerId(layer),
                group_offset: (id % policy.groups.len() as u64) as u32,
                access: spec.access,
                created: created.clone(),
                cut: None,
                protection: None,
                source: None,
                unknown: Unknown::default(),
            };
            let head = LayerRecord {
                id: LayerId(layer),
                volume: record.id,
                parent: None,
                state: LayerState::Head,
                into: None,
                class: spec.class.clone(),
                unknown: Unknown::default(),
            };
            let head_key = Key::Layer(head.id).to_string();
            let txn = Txn::new()
                .when_absent(&volume.key)
                .when_absent(&head_key)
                .when_unchanged(&class.key, class.mod_revision())
                .when_unchanged(&volumes.key, volumes.mod_revision())
                .when_unchanged(&layers.key, layers.mod_revision())
                .put(&volume.key, encode(&record))
                .put(&head_key, encode(&head))
                .put(&volumes.key, encode(&(id + 1)))
                .put(&layers.key, encode(&(layer + 1)));
            self.commit(txn, record).await
        })
        .await
    }

    /// A model that holds every change of volumes made before this call, by whatever node.
    pub async fn model_of_volumes(&self) -> Result<Arc<Model>, MetaError> {
        let [volumes] = self.get_all([&Key::Counter("volumes")], Instant::now() + OPERATION_TIMEOUT).await?;
        self.model_at(volumes.mod_revision()).await
    }

    /// Deletes a volume. Its layer stays as "deleted" until every device has dropped it, and its snapshots until the
    /// leader has deleted them.
    pub async fn delete_volume(&self, name: &str, deletion: VolumeDeletion) -> Result<(), MetaError> {
        let keys = &[Key::Volume(name), Key::Counter("volumes")];
        let [volume] = self.get_all([&keys[0]], Instant::now() + OPERATION_TIMEOUT).await?;
        let wanted = volume.record::<VolumeRecord>()?.ok_or_else(|| missing(Kind::Volume, name))?.id;
        self.settle("deleting the volume", |Try { deadline, .. }| async move {
            let [volume, volumes] = self.get_all(keys.each_ref(), deadline).await?;
            let Some(record) = volume.record::<VolumeRecord>()?.filter(|record| record.id == wanted) else {
                // Gone: by an attempt of ours, or by somebody who wanted the same.
                return Ok(Attempt::Done(()));
            };
            let attachments_key = Key::Attachments(wanted);
            let [attachments, head] = self.get_all([&attachments_key, &Key::Layer(record.head)], deadline).await?;
            let used = attachments.record::<AttachmentsRecord>()?.is_some_and(|now| !now.attachments.is_empty());
            if used && !deletion.attached {
                return Err(MetaError::InUse { volume: name.to_owned(), what: "deleted" });
            }
            if !deletion.snapshots {
                // A snapshot that is made later changes the volume's record.
                let model = self.model_at(volume.mod_revision()).await?;
                let count = model.snapshots_of(wanted).count();
                if count > 0 {
                    return Err(MetaError::HasSnapshots { volume: name.to_owned(), count });
                }
            }
            let mut txn = Txn::new()
                .when_unchanged(&volume.key, volume.mod_revision())
                .when_unchanged(&volumes.key, volumes.mod_revision())
                .when_unchanged(&attachments.key, attachments.mod_revision())
                .delete(&volume.key)
                .delete(&attachments.key)
                .put(&volumes.key, encode(&volumes.next_id()?));
            if let Some(cut) = &record.cut {
                txn = txn.delete(&Key::Layer(cut.next).to_string());
            }
            if let Some(mut layer) = head.record::<LayerRecord>()? {
                layer.state = LayerState::Deleted;
                txn = txn.when_unchanged(&head.key, head.mod_revision()).put(&head.key, encode(&layer));
            }
            self.commit(txn, ()).await
        })
        .await
    }

    /// Grows a volume. The same size again is fine; a smaller one is refused.
    pub async fn resize_volume(&self, name: &str, size_bytes: u64) -> Result<VolumeRecord, MetaError> {
        self.set_size(name, size_bytes, false).await
    }

    /// Makes a volume smaller that has nothing behind its new end.
    pub async fn shrink_volume(&self, name: &str, size_bytes: u64) -> Result<VolumeRecord, MetaError> {
        self.set_size(name, size_bytes, true).await
    }

    async fn set_size(&self, name: &str, size_bytes: u64, may_shrink: bool) -> Result<VolumeRecord, MetaError> {
        check_size(size_bytes)?;
        let keys = [Key::Volume(name), Key::Counter("volumes")];
        let _one_at_a_time = self.inner.creating.lock().await;
        let keys = &keys;
        self.settle("resizing the volume", |Try { deadline, .. }| async move {
            let [volume, volumes] = self.get_all(keys.each_ref(), deadline).await?;
            let mut record: VolumeRecord = volume.record()?.ok_or_else(|| missing(Kind::Volume, name))?;
            if record.size_bytes == size_bytes {
                return Ok(Attempt::Done(record));
            }
            if size_bytes < record.size_bytes && !may_shrink {
                return Err(MetaError::ShrinkRefused {
                    name: name.to_owned(),
                    from_bytes: record.size_bytes,
                    to_bytes: size_bytes,
                });
            }
            let model = self.model_at(volumes.mod_revision()).await?;
            let class = model.classes.get(&record.class).ok_or_else(|| missing(Kind::Class, &record.class))?;
            check_overcommit(&model, class, size_bytes.saturating_sub(record.size_bytes))?;
            record.size_bytes = size_bytes;
            let txn = Txn::new()
                .when_unchanged(&volume.key, volume.mod_revision())
                .when_unchanged(&volumes.key, volumes.mod_revision())
                .put(&volume.key, encode(&record))
                .put(&volumes.key, encode(&volumes.next_id()?));
            self.commit(txn, record).await
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes() {
        for good in ["a", "vol1", "pvc-0a.b_c", "9"] {
            assert!(check_name(Kind::Volume, good).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", "a/b", "a b", "ä", "a\n", &"a".repeat(128)] {
            assert!(check_name(Kind::Volume, bad).is_err(), "{bad}");
        }
        assert!(check_size(4096).is_ok() && check_size(VOLUME_SIZE_MAX).is_ok());
        for bad in [0, 1, 4097, VOLUME_SIZE_MAX + 4096, u64::MAX] {
            assert!(check_size(bad).is_err(), "{bad}");
        }
    }
}
