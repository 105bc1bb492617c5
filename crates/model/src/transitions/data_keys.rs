//! Data keys come with the first volume that is encrypted with them, and go with their last user
//! (docs/decisions/0038-encrypted-volumes.md).

use azekura_base::KeyId;

use crate::data_keys::KeyUser;
use crate::{DataKeyRecord, ENCRYPTION, Halt, Key, MetaError, Outcome, Records, Step, Txn};

/// The beginning of a change that makes a volume with this new key, or one without.
pub(super) fn make_key(records: &Records<'_>, key: Option<&DataKeyRecord>) -> Result<Txn, Halt> {
    let Some(key) = key else { return Ok(Txn::new()) };
    // A node that does not know of keys would serve what copies hold, and write what must be encrypted.
    let nodes = records.known_model().nodes.values();
    let older: Vec<&str> = nodes
        .filter(|node| !node.removed && !node.understands.contains(ENCRYPTION))
        .map(|node| node.name.as_str())
        .collect();
    if !older.is_empty() {
        let reason = format!("these nodes run a version that can't encrypt: {}", crate::named(older));
        return Err(MetaError::NotEncrypted { reason }.into());
    }
    let name = Key::DataKey(key.id).to_string();
    Ok(Txn::new().when_absent(&name).put(&name, key))
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
/// When the record can't be read.
pub fn rewrap_key(records: &Records<'_>, key: KeyId, from: &str, to: &str) -> Outcome<bool> {
    let found = records.find(&Key::DataKey(key))?;
    let Some(mut record) = found.record::<DataKeyRecord>()? else { return Ok(Step::Done(false, found.mod_revision())) };
    let wrapped = record.generations.last_mut().map(|generation| &mut generation.wrapped);
    match wrapped {
        Some(wrapped) if wrapped == from => to.clone_into(wrapped),
        // An attempt whose answer was lost.
        Some(wrapped) if wrapped == to => return Ok(Step::Done(true, found.mod_revision())),
        _ => return Ok(Step::Done(false, found.mod_revision())),
    }
    let name = Key::DataKey(key).to_string();
    Ok(Step::Run(Txn::new().when_as(&found).put(&name, &record), true))
}
