//! Volumes: made, grown and deleted by one change each.

use azekura_base::{BLOCK_SIZE, DeviceId, IoLimits, LayerId, LogicalBlock, PgId, VOLUME_SIZE_MAX, VolumeId};

use super::data_keys;
use super::projects::{Accounts, check_project_name, use_revision};
use super::targets::forget_volume;
use super::{require, without};
use crate::data_keys::KeyUser;
use crate::{
    AttachmentsRecord, ClassHome, ClassRecord, DataKeyRecord, Found, Halt, Key, Kind, LOGICAL_BLOCKS, LayerRecord,
    LayerState, MetaError, Model, Outcome, Records, Step, Txn, Unknown, VolumeAccess, VolumeRecord, class_shown,
};

/// Longest name.
const NAME_LENGTH_MAX: usize = 127;

/// What a volume's deletion may end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeDeletion {
    /// Attachments that stand; others are in the way.
    pub attached: crate::Ending,
    /// Its snapshots; else they are in the way.
    pub snapshots: bool,
}

/// A volume to make.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeSpec {
    /// Its unique name.
    pub name: String,
    /// Its size: a multiple of 4096 bytes, at most 64 TiB.
    pub size_bytes: u64,
    /// What clients count its blocks in.
    pub logical_block: LogicalBlock,
    /// Its storage class, which must have groups.
    pub class: String,
    /// How many may use it at once.
    pub access: VolumeAccess,
    /// Its data key, where it is to be encrypted: a new one.
    pub key: Option<DataKeyRecord>,
    /// What its clients may ask for in a second.
    pub limits: Option<IoLimits>,
}

impl VolumeSpec {
    /// Whether such a volume can be: its name, its size and its limits.
    pub fn check(&self) -> Result<(), MetaError> {
        check_volume_name(&self.name)?;
        check_limits(self.limits.as_ref())?;
        check_size(self.size_bytes)
    }
}

/// Checks a name: letters, digits, `.`, `_`, `-`, beginning with a letter or digit, so that it can stand in URLs, paths
/// and export names.
pub fn check_name(kind: Kind, name: &str) -> Result<(), MetaError> {
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

/// Checks a volume's name: `NAME`, or `PROJECT/NAME` where that is not the default project.
pub fn check_volume_name(name: &str) -> Result<(), MetaError> {
    let Some((project, rest)) = name.split_once('/') else { return check_name(Kind::Volume, name) };
    check_project_name(project)?;
    check_name(Kind::Volume, rest)?;
    if name.len() <= NAME_LENGTH_MAX {
        return Ok(());
    }
    let reason = format!("it has more than {NAME_LENGTH_MAX} characters with its project");
    Err(MetaError::InvalidName { kind: Kind::Volume, name: name.to_owned(), reason })
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

/// Whether all nodes know volumes of this logical block.
pub fn check_logical_block(model: &Model, block: LogicalBlock) -> Result<(), MetaError> {
    if block.is_default() {
        return Ok(());
    }
    let older = without(model, LOGICAL_BLOCKS);
    older.map_or(Ok(()), |nodes| Err(MetaError::UnknownLogicalBlock { bytes: block.bytes(), nodes }))
}

fn check_limits(limits: Option<&IoLimits>) -> Result<(), MetaError> {
    limits.map_or(Ok(()), IoLimits::check).map_err(|reason| MetaError::InvalidLimits { reason })
}

/// What all volumes need when they are full: the sum of size times copies.
#[must_use]
pub fn promised_bytes(model: &Model) -> u128 {
    let copies = |class: &str| model.classes.get(class).map_or(1, |class| class.copies);
    model.volumes.values().map(|volume| u128::from(volume.size_bytes) * u128::from(copies(&volume.class))).sum()
}

/// Sum of what clients can store on the devices in use.
#[must_use]
pub fn usable_capacity_bytes(model: &Model) -> u128 {
    let used = model.devices.values().filter(|device| device.is_sound());
    used.map(|device| u128::from(device.usable_bytes())).sum()
}

/// Refuses a class that has groups whose copies were all given up, with the volumes that it had.
fn check_groups(model: &Model, class: &ClassRecord) -> Result<(), MetaError> {
    let removed = |device: &DeviceId| model.devices.get(device).is_some_and(|device| device.removed);
    let given_up = |pg: &&PgId| model.groups.get(pg).is_some_and(|group| group.in_sync.iter().all(removed));
    match class.groups.iter().filter(given_up).count() {
        0 => Ok(()),
        groups => Err(MetaError::GroupsGivenUp { class: class_shown(&class.name).to_owned(), groups }),
    }
}

/// Refuses `more_bytes` of volume if the class's overcommit limit would be passed.
pub fn check_overcommit(model: &Model, class: &ClassRecord, more_bytes: u64) -> Result<(), MetaError> {
    let requested_bytes = u128::from(more_bytes) * u128::from(class.copies);
    let promised_bytes = promised_bytes(model);
    let capacity_bytes = usable_capacity_bytes(model);
    let all = Room { promised_bytes, capacity_bytes };
    all.check(requested_bytes, class, None)?;
    // The home of a volume's own groups goes where there is room: that is the leader's business.
    let home = class.home.as_ref().filter(|_| class.parent.is_none());
    home.map_or(Ok(()), |home| Room::of(model, home).check(u128::from(more_bytes), class, Some(home)))
}

/// What may be promised of some devices, and what is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Sum of what all volumes need there when they are full, bytes.
    pub promised_bytes: u128,
    /// Sum of what clients can store on the devices in use, bytes.
    pub capacity_bytes: u128,
}

impl Room {
    /// That of a home: the devices there, and one copy of each volume of the classes that are at home there.
    #[must_use]
    pub fn of(model: &Model, home: &ClassHome) -> Room {
        let is_there = |class: &str| {
            let class = model.classes.get(class).and_then(|class| class.home.as_ref());
            class.is_some_and(|other| home.contains(other))
        };
        let promised = model.volumes.values().filter(|volume| is_there(&volume.class));
        let devices = model.devices.values().filter(|device| {
            let node = model.nodes.get(&device.node);
            device.is_sound() && node.is_some_and(|node| node.is_at(home))
        });
        Room {
            promised_bytes: promised.map(|volume| u128::from(volume.size_bytes)).sum(),
            capacity_bytes: devices.map(|device| u128::from(device.usable_bytes())).sum(),
        }
    }

    fn check(self, requested_bytes: u128, class: &ClassRecord, home: Option<&ClassHome>) -> Result<(), MetaError> {
        let Room { promised_bytes, capacity_bytes } = self;
        let ratio = class.overcommit_ratio;
        let limit_bytes = (capacity_bytes as f64 * ratio) as u128;
        if promised_bytes + requested_bytes <= limit_bytes {
            return Ok(());
        }
        let home = home.cloned().map(Box::new);
        Err(MetaError::Overcommit { requested_bytes, promised_bytes, limit_bytes, capacity_bytes, ratio, home })
    }
}

pub(super) fn missing(kind: Kind, name: &str) -> MetaError {
    MetaError::NotFound { kind, name: name.to_owned() }
}

/// The class's record whose policy a new volume with these groups of its own has; nothing for groups that belong to
/// nobody. While the volume is made, that class may not be deleted.
fn parent_of(records: &Records<'_>, own: &ClassRecord) -> Result<Option<Found>, Halt> {
    let Some(parent) = &own.parent else { return Ok(None) };
    let found = records.find(&Key::Class(parent))?;
    let stands = found.record::<ClassRecord>()?.is_some_and(|class| !class.deleted);
    if stands { Ok(Some(found)) } else { Err(missing(Kind::Class, parent).into()) }
}

/// Makes a volume with an empty head layer. `uuid`: its random identity, the same in every attempt; `created`: the
/// time, RFC 3339.
///
/// # Errors
/// When the name is taken, the class is missing or has no groups, or too much would be promised.
pub fn create_volume(records: &Records<'_>, spec: &VolumeSpec, uuid: &str, created: &str) -> Outcome<VolumeRecord> {
    spec.check()?;
    let keys = [
        Key::Volume(&spec.name),
        Key::Class(&spec.class),
        // Every change of a volume moves this counter: promises are added one after the other, and a model that has
        // seen its last change knows all volumes.
        Key::Counter("volumes"),
        Key::Counter("layers"),
        Key::Cluster,
    ];
    let [volume, class, volumes, layers, cluster] = records.find_all(keys.each_ref())?;
    match volume.record::<VolumeRecord>()? {
        // Ours, of an attempt whose answer was lost.
        Some(existing) if existing.uuid == *uuid => return Ok(Step::Done(existing, volume.mod_revision())),
        Some(_) => return Err(MetaError::Exists { kind: Kind::Volume, name: spec.name.clone() }.into()),
        None => {}
    }
    let policy: Option<ClassRecord> = class.record()?;
    let policy = policy.filter(|class| !class.deleted).ok_or_else(|| missing(Kind::Class, &spec.class))?;
    if policy.groups.is_empty() {
        return Err(MetaError::NoGroups { class: spec.class.clone() }.into());
    }
    let parent = parent_of(records, &policy)?;
    let model = records.model(volumes.mod_revision())?;
    check_groups(model, &policy)?;
    check_overcommit(model, &policy, spec.size_bytes)?;
    check_logical_block(records.known_model(), spec.logical_block)?;
    let id = volumes.next_id()?;
    let layer = layers.next_id()?;
    let record = VolumeRecord {
        id: VolumeId(id),
        uuid: uuid.to_owned(),
        name: spec.name.clone(),
        size_bytes: spec.size_bytes,
        logical_block_bytes: spec.logical_block,
        class: spec.class.clone(),
        head: LayerId(layer),
        group_offset: (id % policy.groups.len() as u64) as u32,
        access: spec.access,
        created: created.to_owned(),
        cut: None,
        protection: None,
        source: None,
        key: spec.key.as_ref().map(|key| key.id),
        rekeyed: None,
        reverts: 0,
        limits: spec.limits,
        unknown: Unknown::default(),
    };
    let mut accounts = Accounts::default();
    accounts.made(&record);
    let head = LayerRecord::new(LayerId(layer), record.id, None, LayerState::Head, &spec.class).with_key(record.key);
    let head_key = Key::Layer(head.id).to_string();
    let txn = data_keys::make_key(records, spec.key.as_ref())?
        .when_absent(&volume.key)
        .when_absent(&head_key)
        .when_as(&class)
        .when_as(&volumes)
        .when_as(&layers)
        .put(&volume.key, &record)
        .put(&head_key, &head)
        .put(&volumes.key, &(id + 1))
        .put(&layers.key, &(layer + 1));
    let txn = parent.iter().fold(txn, Txn::when_as);
    // A version that takes its blocks for others would give its clients what is elsewhere.
    let txn = if spec.logical_block.is_default() { txn } else { require(txn, &cluster, LOGICAL_BLOCKS)? };
    Ok(Step::Run(accounts.settle(records, txn)?, record))
}

/// Deletes the volume of this name and number. Its layer stays as "deleted" until every device has dropped it, and its
/// snapshots until the leader has deleted them. Nothing happens when it is gone already.
///
/// # Errors
/// When attachments or snapshots are in the way.
pub fn delete_volume(records: &Records<'_>, name: &str, wanted: VolumeId, deletion: &VolumeDeletion) -> Outcome<()> {
    let [volume, volumes] = records.find_all([&Key::Volume(name), &Key::Counter("volumes")])?;
    let Some(record) = volume.record::<VolumeRecord>()?.filter(|record| record.id == wanted) else {
        // Gone: by an attempt of ours, or by somebody who wanted the same.
        return Ok(Step::Done((), 0));
    };
    let [attachments, head] = records.find_all([&Key::Attachments(wanted), &Key::Layer(record.head)])?;
    let stays = |now: AttachmentsRecord| !now.attachments.iter().all(|entry| deletion.attached.allows(entry));
    if attachments.record::<AttachmentsRecord>()?.is_some_and(stays) {
        return Err(MetaError::InUse { volume: name.to_owned(), what: "deleted" }.into());
    }
    // A snapshot that is made later changes the volume's record, and one that is deleted what the project has.
    let known = volume.mod_revision().max(use_revision(records, name)?);
    let count = records.model(known)?.snapshots_of(wanted).count();
    if !deletion.snapshots && count > 0 {
        return Err(MetaError::HasSnapshots { volume: name.to_owned(), count }.into());
    }
    let mut accounts = Accounts::default();
    accounts.gone(&record, count);
    let mut txn = Txn::new()
        .when_as(&volume)
        .when_as(&volumes)
        .when_as(&attachments)
        .delete(&volume.key)
        .delete(&attachments.key)
        // Whatever it is by now: a change of it names the volume's record.
        .delete(&Key::Reservations(wanted).to_string())
        .put(&volumes.key, &volumes.next_id()?);
    if let Some(cut) = &record.cut {
        txn = txn.delete(&Key::Layer(cut.next).to_string());
    }
    if let Some(mut layer) = head.record::<LayerRecord>()? {
        layer.state = LayerState::Deleted;
        txn = txn.when_as(&head).put(&head.key, &layer);
    }
    let txn = data_keys::forget_key(records, txn, record.key, KeyUser::Volume(wanted))?;
    let txn = forget_volume(records, txn, name)?;
    Ok(Step::Run(accounts.settle(records, txn)?, ()))
}

/// Gives a volume another size, bytes. The same size again is fine; a smaller one is refused unless `may_shrink`.
///
/// # Errors
/// When the volume is missing, or the size can't be.
pub fn resize_volume(records: &Records<'_>, name: &str, size_bytes: u64, may_shrink: bool) -> Outcome<VolumeRecord> {
    check_size(size_bytes)?;
    let [volume, volumes] = records.find_all([&Key::Volume(name), &Key::Counter("volumes")])?;
    let mut record: VolumeRecord = volume.record()?.ok_or_else(|| missing(Kind::Volume, name))?;
    if record.size_bytes == size_bytes {
        return Ok(Step::Done(record, volume.mod_revision()));
    }
    if size_bytes < record.size_bytes && !may_shrink {
        let (name, from_bytes) = (name.to_owned(), record.size_bytes);
        return Err(MetaError::ShrinkRefused { name, from_bytes, to_bytes: size_bytes }.into());
    }
    let model = records.model(volumes.mod_revision())?;
    let class = model.classes.get(&record.class).ok_or_else(|| missing(Kind::Class, &record.class))?;
    check_overcommit(model, class, size_bytes.saturating_sub(record.size_bytes))?;
    let before = record.clone();
    record.size_bytes = size_bytes;
    let mut accounts = Accounts::default();
    accounts.changed(&before, &record);
    let txn = Txn::new().when_as(&volume).when_as(&volumes).put(&volume.key, &record);
    let txn = accounts.settle(records, txn)?;
    Ok(Step::Run(txn.put(&volumes.key, &volumes.next_id()?), record))
}

/// Sets what a volume's clients may ask for in a second; `None`: whatever they like. Every node that knows of it heeds
/// it from its next request on.
///
/// # Errors
/// When the volume is missing, or the limits can't be.
pub fn limit_volume(records: &Records<'_>, name: &str, limits: Option<&IoLimits>) -> Outcome<VolumeRecord> {
    check_limits(limits)?;
    let [volume, volumes] = records.find_all([&Key::Volume(name), &Key::Counter("volumes")])?;
    let mut record: VolumeRecord = volume.record()?.ok_or_else(|| missing(Kind::Volume, name))?;
    if record.limits.as_ref() == limits {
        return Ok(Step::Done(record, volume.mod_revision()));
    }
    let before = record.clone();
    record.limits = limits.copied();
    let mut accounts = Accounts::default();
    accounts.changed(&before, &record);
    let txn = Txn::new().when_as(&volume).when_as(&volumes).put(&volume.key, &record);
    let txn = accounts.settle(records, txn)?;
    Ok(Step::Run(txn.put(&volumes.key, &volumes.next_id()?), record))
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
        for good in ["v", "p/v", &format!("{}/{}", "p".repeat(63), "v".repeat(63))] {
            assert!(check_volume_name(good).is_ok(), "{good}");
        }
        let long = [format!("{}/v", "p".repeat(64)), format!("p/{}", "v".repeat(126))];
        for bad in ["p/", "/v", "p/q/v", "p//v", "default/v", "../v", "p/..", &long[0], &long[1]] {
            assert!(check_volume_name(bad).is_err(), "{bad}");
        }
        assert!(check_size(4096).is_ok() && check_size(VOLUME_SIZE_MAX).is_ok());
        for bad in [0, 1, 4097, VOLUME_SIZE_MAX + 4096, u64::MAX] {
            assert!(check_size(bad).is_err(), "{bad}");
        }
    }
}
