//! Targets of several logical units: made, changed and deleted (docs/decisions/0060-logical-units.md).
//!
//! Every change of a target moves the counter `targets`: so a volume is in one target at most, however many change at
//! once, and whoever deletes a volume knows whether it is in one.

use std::collections::BTreeMap;

use super::projects::check_project_name;
use super::volumes::{check_name, missing};
use super::{require, without};
use crate::{
    AttachmentsRecord, Found, Halt, ISCSI_NAME_MAX, Key, Kind, MetaError, Model, Outcome, Records, Step, TARGETS,
    TargetRecord, Txn, Unknown, VolumeRecord, project_of, units_iscsi_name,
};

/// The most targets that a cluster has: every node keeps all of them in memory.
pub const TARGETS_MAX: usize = 10_000;
/// Numbers of units: from 0 to 255, which all hosts know (the peripheral method, SAM-5 section 4.7.7.2).
pub const LUNS_MAX: u16 = 256;

/// Units that one change adds at most: each is a condition of its transaction, and etcd takes 128 of those
/// (`--max-txn-ops`).
const UNITS_AT_ONCE_MAX: usize = 100;

/// A volume that is to be a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSpec {
    /// The volume's name.
    pub volume: String,
    /// Its number; `None`: the next one.
    pub lun: Option<u16>,
}

/// A target that can't be so, and what to do; an empty text: nothing.
fn refused(name: &str, reason: String, hint: &str) -> MetaError {
    let hint = (!hint.is_empty()).then(|| hint.to_owned());
    MetaError::InvalidTarget { name: name.to_owned(), reason, hint }
}

/// Checks a target's name: as those of volumes, with the project before it where that is not the default one.
fn check_target_name(name: &str) -> Result<(), MetaError> {
    let Some((project, rest)) = name.split_once('/') else { return check_name(Kind::Target, name) };
    check_project_name(project)?;
    check_name(Kind::Target, rest)
}

/// Gives volumes numbers that no unit of the target has ever had.
fn give_numbers(record: &mut TargetRecord, units: &[UnitSpec]) -> Result<(), MetaError> {
    for UnitSpec { volume, lun } in units {
        let number = lun.unwrap_or(record.next);
        if number < record.next {
            let reason = format!(
                "{number} was given before, or passed over, and hosts may still take it for another disk: numbers from {} on \
                 are free",
                record.next
            );
            return Err(refused(&record.name, reason, "without --lun it gets the next one"));
        }
        if number >= LUNS_MAX {
            let reason =
                format!("the number {number} is beyond {}, which is the last one; each is given once", LUNS_MAX - 1);
            return Err(refused(&record.name, reason, "'azekura target create' makes another target"));
        }
        record.units.insert(number, volume.clone());
        record.next = number + 1;
    }
    Ok(())
}

/// A target's name, for people to fill in, in the project of a volume.
fn beside(volume: &str) -> String {
    volume.split_once('/').map_or_else(|| "NAME".to_owned(), |(project, _)| format!("{project}/NAME"))
}

/// The records of volumes that are to be units, which have to be there, of the target's project, and in no target.
fn check_volumes(records: &Records<'_>, model: &Model, target: &str, units: &[UnitSpec]) -> Result<Vec<Found>, Halt> {
    if units.len() > UNITS_AT_ONCE_MAX {
        let reason = format!("{} volumes are more than the {UNITS_AT_ONCE_MAX} that one change takes", units.len());
        return Err(
            refused(target, reason, &format!("add the others to it: azekura target add {target} VOLUME")).into()
        );
    }
    let keys: Vec<Key<'_>> = units.iter().map(|unit| Key::Volume(&unit.volume)).collect();
    let found = records.find_each(&keys)?;
    for (index, (found, UnitSpec { volume, .. })) in found.iter().zip(units).enumerate() {
        if found.record::<VolumeRecord>()?.is_none() {
            return Err(missing(Kind::Volume, volume).into());
        }
        if project_of(volume) != project_of(target) {
            let reason = format!("the volume '{volume}' is of another project: a target's volumes are of its own");
            let hint = format!(
                "name a volume of the target's project, or make a target in the volume's: azekura target create {} \
                 --volume {volume}",
                beside(volume)
            );
            return Err(refused(target, reason, &hint).into());
        }
        if units[..index].iter().any(|before| before.volume == *volume) {
            return Err(refused(target, format!("the volume '{volume}' is named twice"), "name it once").into());
        }
        if let Some((other, number)) = model.unit_of(volume) {
            let reason = format!(
                "the volume '{volume}' is unit {number} of the target '{other}' already, and a volume is in one at most"
            );
            let hint = format!(
                "take it from there first, which ends it for hosts that use it so: azekura target remove {other} {volume}; \
                 or make a clone of it a unit here ('azekura volume clone')"
            );
            return Err(refused(target, reason, &hint).into());
        }
    }
    Ok(found)
}

/// The change itself: the target, if nobody has changed any meanwhile, nor its new volumes.
fn put(target: &Found, counter: &Found, volumes: &[Found], record: &TargetRecord) -> Result<Txn, Halt> {
    let mut txn = Txn::new().when_as(target).when_as(counter).put(&target.key, record);
    for volume in volumes {
        txn = txn.when_as(volume);
    }
    Ok(txn.put(&counter.key, &(counter.next_id()? + 1)))
}

/// Makes a target. `created`: the time, RFC 3339.
///
/// # Errors
/// When its name can't be or is taken, a volume can't be a unit of it, or nodes run a version that knows no targets.
pub fn create_target(records: &Records<'_>, name: &str, units: &[UnitSpec], created: &str) -> Outcome<TargetRecord> {
    check_target_name(name)?;
    if units_iscsi_name(name).is_none() {
        return Err(refused(
            name,
            format!("its iSCSI name would have more than {ISCSI_NAME_MAX} bytes"),
            "choose a shorter name",
        )
        .into());
    }
    let keys = [Key::Target(name), Key::Counter("targets"), Key::Counter("nodes"), Key::Cluster];
    let [target, counter, nodes, cluster] = records.find_all(keys.each_ref())?;
    let mut record = TargetRecord {
        name: name.to_owned(),
        units: BTreeMap::new(),
        next: 0,
        created: created.to_owned(),
        unknown: Unknown::default(),
    };
    give_numbers(&mut record, units)?;
    match target.record::<TargetRecord>()? {
        // Ours, of an attempt whose answer was lost.
        Some(there) if records.is_uncertain() && there == record => {
            return Ok(Step::Done(record, target.mod_revision()));
        }
        Some(_) => return Err(MetaError::Exists { kind: Kind::Target, name: name.to_owned() }.into()),
        None => {}
    }
    let model = records.model(counter.mod_revision().max(nodes.mod_revision()))?;
    if let Some(older) = without(model, TARGETS) {
        return Err(refused(
            name,
            format!("these nodes run a version that knows no targets: {older}"),
            "update these nodes first",
        )
        .into());
    }
    if model.targets.len() >= TARGETS_MAX {
        return Err(
            refused(name, format!("there are {TARGETS_MAX}, which is as many as may be"), "delete some first").into()
        );
    }
    let volumes = check_volumes(records, model, name, units)?;
    // A version that knows none would leave a deleted volume in it.
    let txn = require(put(&target, &counter, &volumes, &record)?.when_as(&nodes), &cluster, TARGETS)?;
    Ok(Step::Run(txn, record))
}

/// Makes a volume a unit of a target. The same volume under the same number again is fine.
///
/// # Errors
/// When the target or the volume is missing, or it can't be a unit of it.
pub fn add_unit(records: &Records<'_>, name: &str, unit: &UnitSpec) -> Outcome<TargetRecord> {
    let [target, counter] = records.find_all([&Key::Target(name), &Key::Counter("targets")])?;
    let mut record: TargetRecord = target.record()?.ok_or_else(|| missing(Kind::Target, name))?;
    if let Some((number, _)) = record.units.iter().find(|(_, volume)| **volume == unit.volume)
        && unit.lun.is_none_or(|lun| lun == *number)
    {
        return Ok(Step::Done(record, target.mod_revision()));
    }
    let model = records.model(counter.mod_revision())?;
    let volumes = check_volumes(records, model, name, std::slice::from_ref(unit))?;
    give_numbers(&mut record, std::slice::from_ref(unit))?;
    Ok(Step::Run(put(&target, &counter, &volumes, &record)?, record))
}

/// Takes a unit from a target; its number is not given again. `force`: also while the volume is attached.
///
/// # Errors
/// When there is no such target or unit, or it is in use.
pub fn remove_unit(records: &Records<'_>, name: &str, lun: u16, force: bool) -> Outcome<TargetRecord> {
    let [target, counter] = records.find_all([&Key::Target(name), &Key::Counter("targets")])?;
    let mut record: TargetRecord = target.record()?.ok_or_else(|| missing(Kind::Target, name))?;
    let Some(volume) = record.units.remove(&lun) else {
        if records.is_uncertain() {
            return Ok(Step::Done(record, target.mod_revision()));
        }
        return Err(refused(
            name,
            format!("it has no unit {lun}"),
            &format!("'azekura target show {name}' shows its units"),
        )
        .into());
    };
    let attachments = if force { None } else { unused(records, &volume, "taken from its target")? };
    let txn = put(&target, &counter, attachments.as_slice(), &record)?;
    Ok(Step::Run(txn, record))
}

/// Deletes a target. Its volumes stay. `force`: also while they are attached.
///
/// # Errors
/// When it is missing, or a volume of it is in use.
pub fn delete_target(records: &Records<'_>, name: &str, force: bool) -> Outcome<()> {
    let [target, counter] = records.find_all([&Key::Target(name), &Key::Counter("targets")])?;
    let Some(record) = target.record::<TargetRecord>()? else {
        if records.is_uncertain() {
            return Ok(Step::Done((), 0));
        }
        return Err(missing(Kind::Target, name).into());
    };
    let mut txn = Txn::new().when_as(&target).when_as(&counter).delete(&target.key);
    for volume in record.units.values().filter(|_| !force) {
        if let Some(attachments) = unused(records, volume, "taken from its target")? {
            txn = txn.when_as(&attachments);
        }
    }
    Ok(Step::Run(txn.put(&counter.key, &(counter.next_id()? + 1)), ()))
}

/// A volume's attachments, of which none stands; `None`: there is no such volume.
fn unused(records: &Records<'_>, volume: &str, what: &'static str) -> Result<Option<Found>, Halt> {
    let Some(record) = records.find(&Key::Volume(volume))?.record::<VolumeRecord>()? else { return Ok(None) };
    let found = records.find(&Key::Attachments(record.id))?;
    if found.record::<AttachmentsRecord>()?.is_some_and(|now| !now.attachments.is_empty()) {
        return Err(MetaError::InUse { volume: volume.to_owned(), what }.into());
    }
    Ok(Some(found))
}

/// Takes a volume that is deleted from its target, in the same change.
pub(super) fn forget_volume(records: &Records<'_>, txn: Txn, volume: &str) -> Result<Txn, Halt> {
    let counter = records.find(&Key::Counter("targets"))?;
    let model = records.model(counter.mod_revision())?;
    // Whoever puts it into one moves the counter.
    let txn = txn.when_as(&counter);
    let Some((name, _)) = model.unit_of(volume) else { return Ok(txn) };
    let target = records.find(&Key::Target(name))?;
    let Some(mut record) = target.record::<TargetRecord>()? else { return Ok(txn) };
    record.units.retain(|_, other| other != volume);
    Ok(txn.when_as(&target).put(&target.key, &record).put(&counter.key, &(counter.next_id()? + 1)))
}
