//! Snapshots after they were made: deleted, cloned, kept by a schedule.

use azekura_base::{LayerId, VolumeId};

use super::cuts::{find_snapshot, note_snapshots};
use super::data_keys::{CloneKey, forget_key, make_clone_key};
use super::projects::{Accounts, use_revision};
use super::volumes::{check_overcommit, check_size, check_volume_name, missing};
use crate::data_keys::KeyUser;
use crate::{
    Key, Kind, LayerRecord, LayerState, MetaError, Outcome, ProtectionRecord, Records, SnapshotRecord, Step, Txn,
    Unknown, VolumeAccess, VolumeRecord, project_of,
};

/// A volume to make from a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct CloneSpec {
    /// The snapshot's volume.
    pub volume: String,
    /// The snapshot.
    pub snapshot: String,
    /// The clone's name.
    pub name: String,
    /// Its size, bytes; at least the snapshot's. `None`: the same.
    pub size_bytes: Option<u64>,
    /// How many may use it at once; `None`: as many as the source.
    pub access: Option<VolumeAccess>,
    /// A data key of its own; `None`: the source's.
    pub key: Option<CloneKey>,
}

/// Deletes a snapshot. What only it held is given back in the background. Nothing happens when it is gone already;
/// false then.
///
/// # Errors
/// When a record can't be read.
pub fn delete_snapshot(records: &Records<'_>, volume: VolumeId, name: &str) -> Outcome<bool> {
    let found = records.find(&Key::Snapshot(volume, name))?;
    let Some(snapshot) = found.record::<SnapshotRecord>()? else { return Ok(Step::Done(records.is_uncertain(), 0)) };
    let layer = records.find(&Key::Layer(snapshot.layer))?;
    let mut accounts = Accounts::default();
    // That of a volume that is gone has been counted out with it, and the volume was there when it was made. Whether it
    // is gone says a model that knows all that the project has counted.
    if let Some(of) = records.model(found.mod_revision())?.volume_by_id(volume) {
        let counted = found.mod_revision().max(use_revision(records, &of.name)?);
        if records.model(counted)?.volume_by_id(volume).is_some() {
            accounts.snapshots(&of.name, 0, 1);
        }
    }
    let mut txn = Txn::new().when_as(&found).delete(&found.key);
    if let Some(mut record) = layer.record::<LayerRecord>()? {
        record.state = LayerState::Hidden;
        txn = txn.when_as(&layer).put(&layer.key, &record);
        txn = forget_key(records, txn, record.key, KeyUser::Snapshot(volume, name))?;
    }
    Ok(Step::Run(accounts.settle(records, note_snapshots(txn))?, true))
}

/// Makes a volume whose blocks are a snapshot's until it is written. `uuid`: the volume's random identity, the same in
/// every attempt; `created`: the time, RFC 3339.
///
/// # Errors
/// When the name is taken, the snapshot is missing or larger, or too much would be promised.
pub fn clone_snapshot(records: &Records<'_>, spec: &CloneSpec, uuid: &str, created: &str) -> Outcome<VolumeRecord> {
    check_volume_name(&spec.name)?;
    if project_of(&spec.name) != project_of(&spec.volume) {
        let CloneSpec { volume, name, .. } = spec.clone();
        return Err(MetaError::OtherProject { volume, name }.into());
    }
    let keys = [Key::Volume(&spec.name), Key::Volume(&spec.volume), Key::Counter("volumes"), Key::Counter("layers")];
    let [made, source, volumes, layers] = records.find_all(keys.each_ref())?;
    match made.record::<VolumeRecord>()? {
        // Ours, of an attempt whose answer was lost.
        Some(existing) if existing.uuid == *uuid => return Ok(Step::Done(existing, made.mod_revision())),
        Some(_) => return Err(MetaError::Exists { kind: Kind::Volume, name: spec.name.clone() }.into()),
        None => {}
    }
    let from: VolumeRecord = source.record()?.ok_or_else(|| missing(Kind::Volume, &spec.volume))?;
    let (snapshot, below) = find_snapshot(records, &from, &spec.snapshot)?;
    let size_bytes = spec.size_bytes.unwrap_or(snapshot.1.size_bytes);
    if size_bytes < snapshot.1.size_bytes {
        let (name, from_bytes) = (format!("{}@{}", from.name, spec.snapshot), snapshot.1.size_bytes);
        return Err(MetaError::ShrinkRefused { name, from_bytes, to_bytes: size_bytes }.into());
    }
    check_size(size_bytes)?;
    let model = records.model(volumes.mod_revision())?;
    let class = model.classes.get(&from.class).ok_or_else(|| missing(Kind::Class, &from.class))?;
    check_overcommit(model, class, size_bytes)?;
    let (id, layer) = (volumes.next_id()?, LayerId(layers.next_id()?));
    let with_key = match &spec.key {
        Some(key) => make_clone_key(records, below.1.key, key)?,
        None => Txn::new(),
    };
    let record = VolumeRecord {
        id: VolumeId(id),
        uuid: uuid.to_owned(),
        name: spec.name.clone(),
        size_bytes,
        // What is on it counts in these.
        logical_block_bytes: from.logical_block_bytes,
        class: from.class.clone(),
        head: layer,
        // Its chunks lie in the groups that have the source's.
        group_offset: from.group_offset,
        access: spec.access.unwrap_or(from.access),
        created: created.to_owned(),
        cut: None,
        protection: None,
        source: Some(format!("{}@{}", from.name, spec.snapshot)),
        // Its blocks are the snapshot's, and under the numbers that they have there.
        key: spec.key.as_ref().map(|key| key.record.id).or(below.1.key),
        rekeyed: below.1.rekeyed,
        reverts: 0,
        limits: from.limits,
        unknown: Unknown::default(),
    };
    let mut accounts = Accounts::default();
    accounts.made(&record);
    let head = LayerRecord::new(layer, record.id, Some(snapshot.1.layer), LayerState::Head, &from.class);
    let head = head.with_key(record.key);
    let head_key = Key::Layer(layer).to_string();
    let txn = with_key
        .when_absent(&made.key)
        .when_absent(&head_key)
        .when_as(&snapshot.0)
        .when_as(&below.0)
        .when_as(&volumes)
        .when_as(&layers)
        .put(&made.key, &record)
        .put(&head_key, &head)
        // Whoever merges the layer below has to see that it carries one more.
        .put(&below.0.key, &below.1)
        .put(&volumes.key, &(id + 1))
        .put(&layers.key, &(layer.0 + 1));
    Ok(Step::Run(accounts.settle(records, txn)?, record))
}

/// Sets how a volume's snapshots come and go by themselves; `None`: none come any more, and those that are there stay.
///
/// # Errors
/// When the volume is missing.
pub fn protect_volume(
    records: &Records<'_>,
    name: &str,
    protection: Option<&ProtectionRecord>,
) -> Outcome<VolumeRecord> {
    let [volume, volumes] = records.find_all([&Key::Volume(name), &Key::Counter("volumes")])?;
    let mut record: VolumeRecord = volume.record()?.ok_or_else(|| missing(Kind::Volume, name))?;
    if record.protection.as_ref() == protection {
        return Ok(Step::Done(record, volume.mod_revision()));
    }
    record.protection = protection.cloned();
    let txn = Txn::new().when_as(&volume).when_as(&volumes).put(&volume.key, &record);
    Ok(Step::Run(txn.put(&volumes.key, &volumes.next_id()?), record))
}
