//! Data keys come with the first volume that is encrypted with them, and go with their last user
//! (docs/decisions/0038-encrypted-volumes.md).

use azekura_base::KeyId;

use super::without;
use crate::data_keys::KeyUser;
use crate::{
    CSI_KEYS, CSI_PROVIDER, DataKeyRecord, ENCRYPTION, FILE_PROVIDER, Halt, KEY_PROVIDERS, Key, MetaError, Model,
    Outcome, Records, Step, Txn, Wrapping,
};

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
    match record.generations.last_mut() {
        Some(generation) if generation.wrapping() == *from => {
            (generation.provider, generation.wrapped) = (to.provider.clone(), to.wrapped.clone());
        }
        // An attempt whose answer was lost.
        Some(generation) if generation.wrapping() == *to => return Ok(Step::Done(true, found.mod_revision())),
        _ => return Ok(Step::Done(false, found.mod_revision())),
    }
    let name = Key::DataKey(key).to_string();
    Ok(Step::Run(Txn::new().when_as(&found).put(&name, &record), true))
}
