//! Groups that a volume has of its own: made before the volume, changed with the class and the home, deleted after the
//! last volume and the last layer.

use super::classes::{begin_class_deletion, delete_groups};
use super::volumes::missing;
use crate::own_groups::is_own;
use crate::{ClassRecord, Key, Kind, Outcome, Records, Step, Txn};

/// Groups deleted by one change; etcd takes 128 operations.
const GROUPS_PER_TXN: usize = 100;

/// Makes the record of a volume's own groups, without groups, for a volume of the class `parent`. `created`: the time,
/// RFC 3339.
///
/// # Errors
/// When the class is missing, or gives its volumes no groups of their own.
pub fn create_own(records: &Records<'_>, parent: &str, name: &str, created: &str) -> Outcome<ClassRecord> {
    debug_assert!(is_own(name));
    let [class, own] = records.find_all([&Key::Class(parent), &Key::Class(name)])?;
    let policy = class.record::<ClassRecord>()?.filter(|class| !class.deleted && class.home_attached);
    let policy = policy.ok_or_else(|| missing(Kind::Class, parent))?;
    if let Some(existing) = own.record::<ClassRecord>()? {
        // Ours, of an attempt whose answer was lost: the name is random.
        return Ok(Step::Done(existing, own.mod_revision()));
    }
    let record = ClassRecord {
        name: name.to_owned(),
        home_attached: false,
        parent: Some(parent.to_owned()),
        groups: Vec::new(),
        plan: None,
        created: created.to_owned(),
        ..policy
    };
    Ok(Step::Run(Txn::new().when_as(&class).when_as(&own).put(&own.key, &record), record))
}

/// One step of the deletion of groups that no volume and no layer needs: no volume can have them from the first on, a
/// hundred of them go with each, and the record with the last. Gives whether something has changed.
///
/// # Errors
/// When there are volumes or layers again, or a record can't be read.
pub fn delete_own(records: &Records<'_>, name: &str) -> Outcome<bool> {
    let found = records.find(&Key::Class(name))?;
    let Some(record) = found.record::<ClassRecord>()?.filter(|class| class.parent.is_some()) else {
        return Ok(Step::Done(false, found.mod_revision()));
    };
    if !record.deleted {
        return Ok(match begin_class_deletion(records, name)? {
            Step::Done(_, revision) => Step::Done(false, revision),
            Step::Run(txn, _) => Step::Run(txn, true),
            Step::Again => Step::Again,
        });
    }
    // Nobody makes groups for it any more.
    let model = records.model(found.mod_revision())?;
    let groups = model.groups.values().filter(|group| group.class == name).map(|group| group.id);
    let groups: Vec<_> = groups.take(GROUPS_PER_TXN).collect();
    let txn = if groups.is_empty() { Txn::new().delete(&found.key) } else { delete_groups(&groups) };
    Ok(Step::Run(txn.when_as(&found), true))
}

#[cfg(test)]
#[path = "own_groups_tests.rs"]
mod tests;
