//! Cuts: a new head layer is put into the place of a volume's, and what was its head becomes a snapshot
//! (docs/decisions/0011-snapshots.md). Beginning, finishing and calling off are one change each, for all volumes of the
//! cut.

use azekura_base::{LayerId, NodeId};

use super::projects::Accounts;
use super::volumes::check_name;
use crate::{
    AttachmentsRecord, CutRecord, Found, Halt, Key, Kind, LayerRecord, LayerState, MetaError, Outcome, Records,
    SnapshotOrigin, SnapshotRecord, Step, Txn, Unknown, VOLUME_SNAPSHOTS_MAX, VolumeRecord,
};

/// Most volumes that are cut at one instant: a transaction of etcd takes 128 operations.
pub const CUT_VOLUMES_MAX: usize = 24;

/// A volume to be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeCut {
    /// Its name.
    pub volume: String,
    /// Name of the snapshot that its head becomes.
    pub snapshot: String,
    /// Why it is made.
    pub origin: SnapshotOrigin,
    /// When the snapshot ends by itself, seconds since 1970.
    pub expires: Option<u64>,
    /// The snapshot that the volume goes back to, also in size; `None`: it stays what it is.
    pub back_to: Option<String>,
    /// Only while nobody has the volume attached.
    pub unattached: bool,
}

impl VolumeCut {
    /// A snapshot of the present.
    #[must_use]
    pub fn snapshot(volume: &str, snapshot: &str, origin: SnapshotOrigin) -> VolumeCut {
        VolumeCut {
            volume: volume.to_owned(),
            snapshot: snapshot.to_owned(),
            origin,
            expires: None,
            back_to: None,
            unattached: false,
        }
    }
}

/// A cut that has begun.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// Its id.
    pub id: String,
    /// What is cut, with the volumes' records as the cut has left them.
    pub volumes: Vec<(VolumeCut, VolumeRecord)>,
    /// The revision in which it began.
    pub revision: i64,
}

/// What a finished cut has made.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapped {
    /// The snapshots, in the order of the volumes.
    pub snapshots: Vec<SnapshotRecord>,
    /// The volumes.
    pub volumes: Vec<VolumeRecord>,
    /// The revision in which it was finished, or a later one.
    pub revision: i64,
}

/// What a beginning cut has made of its volumes' records.
type Begun = Vec<(VolumeCut, VolumeRecord)>;
/// The snapshots and the volumes of a finished cut.
type Finished = (Vec<SnapshotRecord>, Vec<VolumeRecord>);

/// A snapshot and its layer, with the keys that they were found under.
pub(super) type FoundSnapshot = ((Found, SnapshotRecord), (Found, LayerRecord));

/// Begins a cut under a new id: from then on, groups that know of it take nothing for the volumes' heads. `now`:
/// seconds since 1970, and nanoseconds.
///
/// # Errors
/// When a volume or a snapshot to go back to is missing, or there is no room for one more.
pub fn begin_cut(
    records: &Records<'_>,
    id: &str,
    node: NodeId,
    volumes: &[VolumeCut],
    now: (u64, u32),
) -> Outcome<Begun> {
    for cut in volumes {
        check_name(Kind::Snapshot, &cut.snapshot)?;
    }
    if volumes.len() > CUT_VOLUMES_MAX {
        return Err(MetaError::TooManyVolumes { count: volumes.len(), most: CUT_VOLUMES_MAX }.into());
    }
    let found = find_volumes(records, volumes)?;
    if found.iter().all(|(_, record)| record.cut.as_ref().is_some_and(|cut| cut.id == id)) {
        // Ours, of an attempt whose answer was lost.
        let revision = found.iter().map(|(found, _)| found.mod_revision()).max().unwrap_or(0);
        let begun = volumes.iter().cloned().zip(found.into_iter().map(|(_, record)| record));
        return Ok(Step::Done(begun.collect(), revision));
    }
    if found.iter().any(|(_, record)| record.cut.is_some()) {
        // Another one will be over soon: it is finished, or called off.
        return Ok(Step::Again);
    }
    let layers = records.find(&Key::Counter("layers"))?;
    let first = layers.next_id()?;
    let mut txn = Txn::new().when_as(&layers);
    let mut begun = Vec::with_capacity(found.len());
    let mut accounts = Accounts::default();
    for (index, (cut, (found, mut record))) in volumes.iter().zip(found).enumerate() {
        check_room(records, &record)?;
        accounts.snapshots(&record.name, 1, 0);
        let next = LayerId(first + index as u64);
        let mut parent = record.head;
        if let Some(name) = &cut.back_to {
            let (snapshot, layer) = find_snapshot(records, &record, name)?;
            parent = snapshot.1.layer;
            accounts.changed(&record, &VolumeRecord { size_bytes: snapshot.1.size_bytes, ..record.clone() });
            // Whoever merges the layer has to see that it carries one more.
            txn = txn.when_as(&snapshot.0).when_as(&layer.0).put(&layer.0.key, &layer.1);
        }
        record.cut = Some(CutRecord { id: id.to_owned(), next, node, seconds: now.0, nanos: now.1 });
        let layer =
            LayerRecord::new(next, record.id, Some(parent), LayerState::Next, &record.class).with_key(record.key);
        let layer_key = Key::Layer(next).to_string();
        txn = txn.when_as(&found).when_absent(&layer_key).put(&found.key, &record).put(&layer_key, &layer);
        begun.push((cut.clone(), record));
    }
    // Before any write waits for it; what counts is what there is when it is finished.
    accounts.check(records)?;
    Ok(Step::Run(txn.put(&layers.key, &(first + volumes.len() as u64)), begun))
}

/// Finishes a cut whose volumes' groups have all stopped: what was to be the head is the head, and what it was is a
/// snapshot.
///
/// # Errors
/// When the cut was called off, a volume is in use that must not be, or a snapshot of the name is there.
pub fn finish_cut(records: &Records<'_>, cut: &Cut) -> Outcome<Finished> {
    let wishes: Vec<VolumeCut> = cut.volumes.iter().map(|(wish, _)| wish.clone()).collect();
    let keys: Vec<Key<'_>> =
        cut.volumes.iter().map(|(wish, record)| Key::Snapshot(record.id, &wish.snapshot)).collect();
    let taken = records.find_each(&keys)?.into_iter().map(|found| Ok((found.record()?, found)));
    let taken: Vec<(Option<SnapshotRecord>, Found)> = taken.collect::<Result<_, MetaError>>()?;
    if taken.iter().all(|(record, _)| record.as_ref().is_some_and(|record| record.cut == cut.id)) {
        // Done, by an attempt of ours whose answer was lost.
        let revision = taken.iter().map(|(_, found)| found.mod_revision()).max().unwrap_or(0);
        let volumes = find_volumes(records, &wishes)?.into_iter().map(|(_, record)| record);
        let snapshots = taken.into_iter().filter_map(|(record, _)| record).collect();
        return Ok(Step::Done((snapshots, volumes.collect()), revision));
    }
    let mut txn = Txn::new();
    let (mut snapshots, mut volumes) = (Vec::new(), Vec::new());
    let mut accounts = Accounts::default();
    let found = find_volumes(records, &wishes)?;
    for ((wish, volume), (there, snapshot_key)) in wishes.iter().zip(found).zip(taken) {
        if there.is_some() {
            let name = format!("{}@{}", volume.1.name, wish.snapshot);
            return Err(MetaError::Exists { kind: Kind::Snapshot, name }.into());
        }
        let before = volume.1.clone();
        let (more, snapshot, record) = finish_one(records, txn, &cut.id, wish, volume)?;
        accounts.snapshots(&record.name, 1, 0);
        accounts.changed(&before, &record);
        txn = more.when_absent(&snapshot_key.key).put(&snapshot_key.key, &snapshot);
        snapshots.push(snapshot);
        volumes.push(record);
    }
    Ok(Step::Run(accounts.settle(records, note_snapshots(txn))?, (snapshots, volumes)))
}

/// Finishes a cut of one volume: adds to the change, and gives the snapshot and the volume as they are then.
fn finish_one(
    records: &Records<'_>,
    mut txn: Txn,
    id: &str,
    wish: &VolumeCut,
    (found, mut record): (Found, VolumeRecord),
) -> Result<(Txn, SnapshotRecord, VolumeRecord), Halt> {
    let ours = record.cut.take_if(|now| now.id == id);
    let ended = || MetaError::CutEnded { volume: record.name.clone() };
    let CutRecord { next, seconds, nanos, .. } = ours.ok_or_else(ended)?;
    let keys = [&Key::Attachments(record.id), &Key::Layer(record.head), &Key::Layer(next)];
    let [attachments, head, next_layer] = records.find_all(keys)?;
    let now: Option<AttachmentsRecord> = attachments.record()?;
    if wish.unattached {
        if now.as_ref().is_some_and(|now| !now.attachments.is_empty()) {
            return Err(MetaError::InUse { volume: record.name.clone(), what: "reverted" }.into());
        }
        txn = txn.when_as(&attachments);
    }
    let broken = |key: &str| MetaError::Broken { key: key.to_owned(), reason: "it is missing".into() };
    let mut frozen: LayerRecord = head.record()?.ok_or_else(|| broken(&head.key))?;
    let mut new_head: LayerRecord = next_layer.record()?.ok_or_else(|| broken(&next_layer.key))?;
    frozen.state = LayerState::Frozen;
    frozen.rekeyed = record.rekeyed;
    new_head.state = LayerState::Head;
    let snapshot = SnapshotRecord {
        volume: record.id,
        name: wish.snapshot.clone(),
        layer: record.head,
        size_bytes: record.size_bytes,
        seconds,
        nanos,
        origin: wish.origin,
        cut: id.to_owned(),
        generation: now.map(|now| now.generation).unwrap_or_default(),
        expires: wish.expires,
        unknown: Unknown::default(),
    };
    record.head = next;
    if let Some(name) = &wish.back_to {
        let (target, layer) = find_snapshot(records, &record, name)?;
        record.size_bytes = target.1.size_bytes;
        record.rekeyed = layer.1.rekeyed;
        record.reverts += 1;
        txn = txn.when_as(&target.0);
    }
    txn = txn.when_as(&found).when_as(&head).when_as(&next_layer);
    txn = txn.put(&found.key, &record).put(&head.key, &frozen).put(&next_layer.key, &new_head);
    Ok((txn, snapshot, record))
}

/// Calls a cut off: the volumes' heads stay. Nothing happens where it is over already.
///
/// # Errors
/// When a record can't be read.
pub fn call_off_cut(records: &Records<'_>, id: &str, volumes: &[String]) -> Outcome<()> {
    let keys: Vec<Key<'_>> = volumes.iter().map(|name| Key::Volume(name)).collect();
    let mut txn = Txn::new();
    let mut under_way = false;
    for found in records.find_each(&keys)? {
        let Some(mut record) = found.record::<VolumeRecord>()? else { continue };
        let Some(cut) = record.cut.take_if(|cut| cut.id == id) else { continue };
        under_way = true;
        txn = txn.when_as(&found).put(&found.key, &record).delete(&Key::Layer(cut.next).to_string());
    }
    Ok(if under_way { Step::Run(txn, ()) } else { Step::Done((), 0) })
}

fn check_room(records: &Records<'_>, volume: &VolumeRecord) -> Result<(), MetaError> {
    let count = records.known_model().snapshots_of(volume.id).count();
    if count < VOLUME_SNAPSHOTS_MAX {
        return Ok(());
    }
    Err(MetaError::TooManySnapshots { volume: volume.name.clone(), count })
}

fn find_volumes(records: &Records<'_>, cuts: &[VolumeCut]) -> Result<Vec<(Found, VolumeRecord)>, Halt> {
    let keys: Vec<Key<'_>> = cuts.iter().map(|cut| Key::Volume(&cut.volume)).collect();
    let not_found = |cut: &VolumeCut| MetaError::NotFound { kind: Kind::Volume, name: cut.volume.clone() };
    let record = |(found, cut): (Found, &VolumeCut)| {
        let record = found.record()?.ok_or_else(|| not_found(cut))?;
        Ok((found, record))
    };
    records.find_each(&keys)?.into_iter().zip(cuts).map(record).collect()
}

/// A snapshot of a volume, with its layer.
pub(super) fn find_snapshot(records: &Records<'_>, volume: &VolumeRecord, name: &str) -> Result<FoundSnapshot, Halt> {
    let not_found = || MetaError::NotFound { kind: Kind::Snapshot, name: format!("{}@{name}", volume.name) };
    let found = records.find(&Key::Snapshot(volume.id, name))?;
    let snapshot: SnapshotRecord = found.record()?.ok_or_else(not_found)?;
    let layer = records.find(&Key::Layer(snapshot.layer))?;
    let record = layer.record()?.ok_or_else(not_found)?;
    Ok(((found, snapshot), (layer, record)))
}

/// Every change of snapshots moves this counter: a model that has seen its last change knows all snapshots.
pub(super) fn note_snapshots(txn: Txn) -> Txn {
    txn.put(&Key::Counter("snapshots").to_string(), &1)
}
