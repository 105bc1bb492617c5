//! Data keys come with the first volume that is encrypted with them, and go with their last user
//! (docs/decisions/0038-encrypted-volumes.md).

use azekura_base::{KeyGeneration, KeyId};

use super::volumes::missing;
use super::{require, without};
use crate::data_keys::KeyUser;
use crate::{
    CSI_KEYS, CSI_PROVIDER, DataKeyRecord, ENCRYPTION, FILE_PROVIDER, Halt, KEY_GENERATIONS, KEY_PROVIDERS, Key, Kind,
    MetaError, Model, Outcome, Records, Step, Txn, VolumeRecord, WrappedKey, Wrapping,
};

/// Why a data key gets no further generation.
pub const ALL_IN_USE: &str =
    "all of its 16 generations are in use: delete old snapshots, and try again when it is rekeyed";

/// A data key of its own for a clone.
#[derive(Clone, Debug, PartialEq)]
pub struct CloneKey {
    /// The key, as [`DataKeyRecord::for_clone`] makes it.
    pub record: DataKeyRecord,
    /// The revision of the source's key that it was made of: nothing that the snapshot needs came or went since.
    pub since: i64,
}

/// The beginning of a change that makes a clone with a key of its own, of what is encrypted with `source`.
pub(super) fn make_clone_key(records: &Records<'_>, source: Option<KeyId>, key: &CloneKey) -> Result<Txn, Halt> {
    let refused = |reason: String| Halt::from(MetaError::NotEncrypted { reason });
    let source = source.ok_or_else(|| refused(NOTHING_TO_REKEY.to_owned()))?;
    if let Some(older) = without(records.known_model(), KEY_GENERATIONS) {
        return Err(refused(format!("these nodes run a version that knows one data key a volume: {older}")));
    }
    let [found, cluster] = records.find_all([&Key::DataKey(source), &Key::Cluster])?;
    if found.mod_revision() != key.since {
        return Err(MetaError::KeyChanged { key: source }.into());
    }
    require(make_key(records, Some(&key.record))?.when_as(&found), &cluster, KEY_GENERATIONS)
}

/// Why a clone gets no data key of its own.
pub const NOTHING_TO_REKEY: &str = "its source is not encrypted, so there is no data key to be another one than";

/// The beginning of a change that makes a volume with this new key, or one without.
pub(super) fn make_key(records: &Records<'_>, key: Option<&DataKeyRecord>) -> Result<Txn, Halt> {
    let Some(key) = key else { return Ok(Txn::new()) };
    // A node that does not know of keys would serve what copies hold, and write what must be encrypted.
    if let Some(older) = without(records.known_model(), ENCRYPTION) {
        let reason = format!("these nodes run a version that can't encrypt: {older}");
        return Err(MetaError::NotEncrypted { reason }.into());
    }
    if let Some(reason) = key.current().and_then(|key| unknown_provider(records.known_model(), &key.provider)) {
        return Err(MetaError::NotEncrypted { reason }.into());
    }
    let name = Key::DataKey(key.id).to_string();
    Ok(Txn::new().when_absent(&name).put(&name, key))
}

/// Why no key may be wrapped by this provider: on older nodes nobody could say by which option its volumes come back.
fn unknown_provider(model: &Model, provider: &str) -> Option<String> {
    let understood = match provider {
        FILE_PROVIDER => return None,
        CSI_PROVIDER => CSI_KEYS,
        _ => KEY_PROVIDERS,
    };
    let older = without(model, understood)?;
    let known = if understood == CSI_KEYS { "no volumes' own secrets" } else { "key files alone" };
    Some(format!("these nodes run a version that knows {known}, not '{provider}': {older}"))
}

/// A change by which `user` ends: its key goes as well, where nobody else has it.
pub(super) fn forget_key(records: &Records<'_>, txn: Txn, key: Option<KeyId>, user: KeyUser<'_>) -> Result<Txn, Halt> {
    let Some(key) = key else { return Ok(txn) };
    // Every change of volumes and of snapshots moves these: of two users that end at once one sees the other's end.
    let [volumes, snapshots] = records.find_all([&Key::Counter("volumes"), &Key::Counter("snapshots")])?;
    let model = records.model(volumes.mod_revision().max(snapshots.mod_revision()))?;
    let txn = txn.when_as(&volumes).when_as(&snapshots);
    Ok(if model.uses_key_without(key, user) { txn } else { txn.delete(&Key::DataKey(key).to_string()) })
}

/// Puts what wraps a data key anew in the place of what wrapped it. Gives whether the key was still wrapped by that.
///
/// # Errors
/// When the record can't be read, or a node runs a version that does not know the provider.
pub fn rewrap_key(records: &Records<'_>, key: KeyId, from: &Wrapping, to: &Wrapping) -> Outcome<bool> {
    if let Some(reason) = unknown_provider(records.known_model(), &to.provider) {
        return Err(MetaError::NotRewrapped { reason }.into());
    }
    let found = records.find(&Key::DataKey(key))?;
    let Some(mut record) = found.record::<DataKeyRecord>()? else { return Ok(Step::Done(false, found.mod_revision())) };
    // What was wrapped twice is not the same twice: there is one at most.
    match record.generations.iter_mut().find(|generation| generation.wrapping() == *from) {
        Some(generation) => (generation.provider, generation.wrapped) = (to.provider.clone(), to.wrapped.clone()),
        None => {
            // An attempt whose answer was lost.
            let is_done = record.generations.iter().any(|generation| generation.wrapping() == *to);
            return Ok(Step::Done(is_done, found.mod_revision()));
        }
    }
    let name = Key::DataKey(key).to_string();
    Ok(Step::Run(Txn::new().when_as(&found).put(&name, &record), true))
}

/// Adds a generation to a volume's data key, which takes the place of the others by and by: of the volume, its clones
/// and what is made of them. Gives the generation as it was added.
///
/// # Errors
/// When the volume is missing or not encrypted, another one is on its way, or nodes would not understand it.
pub fn add_generation(records: &Records<'_>, key: KeyId, new: &WrappedKey) -> Outcome<KeyGeneration> {
    let refused = |reason: String| Halt::from(MetaError::NotRotated { reason });
    if let Some(older) = without(records.known_model(), KEY_GENERATIONS) {
        return Err(refused(format!("these nodes run a version that knows one data key a volume: {older}")));
    }
    if let Some(reason) = unknown_provider(records.known_model(), &new.provider) {
        return Err(refused(reason));
    }
    // Who cuts or clones a volume moves these: what it says of its generations is read together.
    let [found, volumes, snapshots, cluster] =
        records.find_all([&Key::DataKey(key), &Key::Counter("volumes"), &Key::Counter("snapshots"), &Key::Cluster])?;
    let Some(mut record) = found.record::<DataKeyRecord>()? else {
        return Err(refused("its data key is not in the configuration any more".to_owned()));
    };
    if let Some(ours) = record.generations.iter().find(|generation| generation.wrapping() == new.wrapping()) {
        // An attempt whose answer was lost.
        return Ok(Step::Done(ours.number, found.mod_revision()));
    }
    let Some(last) = record.generations.last().map(|generation| generation.number) else {
        return Err(refused("its record has no key".to_owned()));
    };
    if record.writing.is_some() {
        return Err(refused(format!("its generation {last} is still on its way to all nodes")));
    }
    let model = records.model(volumes.mod_revision().max(snapshots.mod_revision()))?;
    let mut taken: Vec<KeyGeneration> = record.generations.iter().map(|generation| generation.number).collect();
    taken.extend(model.rekeyed_to(key));
    let number = last.free_after(&taken).ok_or_else(|| refused(ALL_IN_USE.to_owned()))?;
    record.writing = Some(last);
    record.generations.push(WrappedKey { number, ..new.clone() });
    let txn = Txn::new().when_as(&found).when_as(&volumes).when_as(&snapshots);
    let txn = require(txn, &cluster, KEY_GENERATIONS)?;
    Ok(Step::Run(txn.put(&Key::DataKey(key).to_string(), &record), number))
}

/// Writes are encrypted with the newest generation of a data key from now on: all nodes have it. False when it was not
/// the newest, or is gone.
///
/// # Errors
/// When the record can't be read.
pub fn write_with_newest(records: &Records<'_>, key: KeyId, newest: KeyGeneration) -> Outcome<bool> {
    let found = records.find(&Key::DataKey(key))?;
    let record = found.record::<DataKeyRecord>()?;
    let is_newest = |record: &DataKeyRecord| record.generations.last().is_some_and(|last| last.number == newest);
    let Some(mut record) = record.filter(is_newest) else { return Ok(Step::Done(false, found.mod_revision())) };
    if record.writing.take().is_none() {
        return Ok(Step::Done(true, found.mod_revision()));
    }
    let name = Key::DataKey(key).to_string();
    Ok(Step::Run(Txn::new().when_as(&found).put(&name, &record), true))
}

/// Notes that all which a volume shows is under this generation of its data key: it was passed through when it had gone
/// back to a snapshot `reverts` times, and the key's record had this revision. False when it has gone back once more by
/// now, or the key is rotated further. A new head in between does not matter: it shows what the former one has, and
/// what is written since.
///
/// # Errors
/// When the volume is missing.
pub fn note_rekeyed(
    records: &Records<'_>,
    volume: &str,
    reverts: u32,
    (to, since): (KeyGeneration, i64),
) -> Outcome<bool> {
    let [found, volumes] = records.find_all([&Key::Volume(volume), &Key::Counter("volumes")])?;
    let mut record: VolumeRecord = found.record()?.ok_or_else(|| missing(Kind::Volume, volume))?;
    let Some(key) = record.key else { return Ok(Step::Done(false, found.mod_revision())) };
    let key = records.find(&Key::DataKey(key))?;
    let is_so = record.reverts == reverts && key.mod_revision() == since;
    if !is_so || record.rekeyed == Some(to) {
        return Ok(Step::Done(is_so, found.mod_revision()));
    }
    record.rekeyed = Some(to);
    let txn = Txn::new().when_as(&found).when_as(&key).when_as(&volumes).put(&found.key, &record);
    Ok(Step::Run(txn.put(&volumes.key, &volumes.next_id()?), true))
}

/// Forgets the former generations of a data key, if nobody has blocks under them any more: true then.
///
/// # Errors
/// When records can't be read.
pub fn forget_former(records: &Records<'_>, key: KeyId, newest: KeyGeneration) -> Outcome<bool> {
    // Every change of volumes and of snapshots moves these.
    let [found, volumes, snapshots] =
        records.find_all([&Key::DataKey(key), &Key::Counter("volumes"), &Key::Counter("snapshots")])?;
    let model = records.model(volumes.mod_revision().max(snapshots.mod_revision()))?;
    let record = found.record::<DataKeyRecord>()?;
    let is_newest = |record: &DataKeyRecord| {
        record.writing.is_none() && record.generations.last().is_some_and(|last| last.number == newest)
    };
    let Some(mut record) = record.filter(is_newest).filter(|_| model.former_keys(key, newest).is_empty()) else {
        return Ok(Step::Done(false, found.mod_revision()));
    };
    if record.generations.len() == 1 {
        return Ok(Step::Done(true, found.mod_revision()));
    }
    record.generations.retain(|generation| generation.number == newest);
    let txn = Txn::new().when_as(&found).when_as(&volumes).when_as(&snapshots);
    Ok(Step::Run(txn.put(&Key::DataKey(key).to_string(), &record), true))
}
