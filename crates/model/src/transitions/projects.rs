//! Projects: made, changed, deleted, and what they have counted (docs/decisions/0037-who-may.md).
//!
//! What a project has stands in its record. Every change that makes, changes or deletes a volume or a snapshot of it
//! writes that record in the same transaction, if nobody else has meanwhile: so the number is never wrong, and a quota
//! is never passed, however many create at once.

use std::collections::{BTreeMap, BTreeSet};

use azekura_base::VolumeId;
use serde_json::{Value, json};

use super::volumes::{check_name, missing};
use crate::projects::QuotaKind;
use crate::{
    DEFAULT_PROJECT, Halt, Key, Kind, MetaError, Outcome, ProjectQuota, ProjectRecord, ProjectUse, Records,
    SnapshotRecord, Step, Txn, Unknown, VolumeRecord, class_shown, named, project_of,
};

/// The most projects that a cluster has: every node keeps all of them in memory.
pub const PROJECTS_MAX: usize = 10_000;
/// Longest name: it stands in the names of volumes.
const PROJECT_NAME_MAX: usize = 63;

/// A project to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectSpec {
    /// Its unique name.
    pub name: String,
    /// The storage classes of its volumes; `None`: all.
    pub classes: Option<BTreeSet<String>>,
    /// As much as it may have.
    pub quota: ProjectQuota,
}

/// A change of a project: what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectChange {
    /// The storage classes of its new volumes; `Some(None)`: all.
    pub classes: Option<Option<BTreeSet<String>>>,
    /// The sum of its volumes' sizes, bytes.
    pub bytes: Option<Option<u64>>,
    /// Its volumes.
    pub volumes: Option<Option<u64>>,
    /// Its snapshots.
    pub snapshots: Option<Option<u64>>,
    /// The sum of its volumes' limits, requests a second.
    pub iops: Option<Option<u64>>,
}

/// Checks a project's name: as other names, but shorter, and not that of the project that is always there.
pub fn check_project_name(name: &str) -> Result<(), MetaError> {
    check_name(Kind::Project, name)?;
    let reason = if name == DEFAULT_PROJECT {
        "it is always there, and its volumes are named without it".to_owned()
    } else if name.len() > PROJECT_NAME_MAX {
        format!("it has more than {PROJECT_NAME_MAX} characters")
    } else {
        return Ok(());
    };
    Err(MetaError::InvalidName { kind: Kind::Project, name: name.to_owned(), reason })
}

fn check_classes(name: &str, classes: Option<&BTreeSet<String>>) -> Result<(), MetaError> {
    if classes.is_none_or(|classes| !classes.is_empty()) {
        return Ok(());
    }
    let reason = "without any storage class it could have no volume".to_owned();
    Err(MetaError::InvalidProject { name: name.to_owned(), reason })
}

/// Makes a project. `created`: the time, RFC 3339.
///
/// # Errors
/// When its name can't be or is taken, there are [`PROJECTS_MAX`], or nodes run a version that keeps none apart.
pub fn create_project(records: &Records<'_>, spec: &ProjectSpec, created: &str) -> Outcome<ProjectRecord> {
    check_project_name(&spec.name)?;
    check_classes(&spec.name, spec.classes.as_ref())?;
    let record = ProjectRecord {
        name: spec.name.clone(),
        classes: spec.classes.clone(),
        quota: spec.quota,
        used: ProjectUse::default(),
        created: created.to_owned(),
        unknown: Unknown::default(),
    };
    // Whoever registers a node moves the counter.
    let [found, nodes] = records.find_all([&Key::Project(&spec.name), &Key::Counter("nodes")])?;
    match found.record::<ProjectRecord>()? {
        // Ours, of an attempt whose answer was lost.
        Some(there) if records.is_uncertain() && there == record => {
            return Ok(Step::Done(record, found.mod_revision()));
        }
        Some(_) => return Err(MetaError::Exists { kind: Kind::Project, name: spec.name.clone() }.into()),
        None => {}
    }
    let model = records.model(nodes.mod_revision())?;
    let refused = |reason| MetaError::InvalidProject { name: spec.name.clone(), reason };
    let older = model.ignoring_projects();
    if !older.is_empty() {
        let older = named(older);
        let reason = format!("these nodes run a version that would serve its volumes to anybody: {older}");
        return Err(refused(reason).into());
    }
    if model.projects.len() >= PROJECTS_MAX {
        return Err(refused(format!("there are {PROJECTS_MAX}, which is as many as may be")).into());
    }
    Ok(Step::Run(Txn::new().when_as(&found).when_as(&nodes).put(&found.key, &record), record))
}

/// Changes a project. A quota may be less than what is used: then nothing more is made.
///
/// # Errors
/// When it is missing, or the change makes no sense.
pub fn change_project(records: &Records<'_>, name: &str, change: &ProjectChange) -> Outcome<ProjectRecord> {
    let found = records.find(&Key::Project(name))?;
    let before: ProjectRecord = found.record()?.ok_or_else(|| missing(Kind::Project, name))?;
    let mut record = before.clone();
    if let Some(classes) = &change.classes {
        check_classes(name, classes.as_ref())?;
        record.classes.clone_from(classes);
    }
    let quota = &mut record.quota;
    quota.bytes = change.bytes.unwrap_or(quota.bytes);
    quota.volumes = change.volumes.unwrap_or(quota.volumes);
    quota.snapshots = change.snapshots.unwrap_or(quota.snapshots);
    quota.iops = change.iops.unwrap_or(quota.iops);
    let unlimited = record.used.unlimited;
    if before.quota.iops.is_none() && record.quota.iops.is_some() && unlimited > 0 {
        let reason = format!(
            "{unlimited} of its volumes have no limit of requests, which a quota of those would count: azekura volume limit \
             NAME --iops N"
        );
        return Err(MetaError::InvalidProject { name: name.to_owned(), reason }.into());
    }
    if record == before {
        return Ok(Step::Done(record, found.mod_revision()));
    }
    Ok(Step::Run(Txn::new().when_as(&found).put(&found.key, &record), record))
}

/// Deletes a project that has neither volumes nor grants.
///
/// # Errors
/// When it is missing, or has some.
pub fn delete_project(records: &Records<'_>, name: &str) -> Outcome<()> {
    let [found, grants] = records.find_all([&Key::Project(name), &Key::Counter("grants")])?;
    let Some(record) = found.record::<ProjectRecord>()? else {
        if records.is_uncertain() {
            return Ok(Step::Done((), 0));
        }
        return Err(missing(Kind::Project, name).into());
    };
    // Every grant that is made moves the counter.
    let model = records.model(grants.mod_revision())?;
    let granted: Vec<&str> =
        model.grants.values().filter(|grant| grant.project == name).map(|grant| grant.name.as_str()).collect();
    let in_use = |what| MetaError::ProjectInUse { project: name.to_owned(), what };
    if record.used.volumes > 0 {
        let volumes = record.used.volumes;
        return Err(in_use(format!("{volumes} volume{}", if volumes == 1 { "" } else { "s" })).into());
    }
    if !granted.is_empty() {
        return Err(in_use(format!("grants: {}", named(granted))).into());
    }
    Ok(Step::Run(Txn::new().when_as(&found).when_as(&grants).delete(&found.key), ()))
}

/// Counts what comes and what goes in a project.
///
/// # Errors
/// When something grows that would be more than the quota then. What is too much already may shrink.
fn settle(project: &mut ProjectRecord, more: ProjectUse, less: ProjectUse) -> Result<(), MetaError> {
    let after = project.used.plus(more).minus(less);
    for kind in QuotaKind::ALL {
        let (used, wanted) = (kind.used(&project.used), kind.used(&after));
        let Some(quota) = kind.quota(&project.quota).filter(|quota| wanted > used && wanted > *quota) else {
            continue;
        };
        return Err(MetaError::Quota { project: project.name.clone(), kind, quota, used, more: wanted - used });
    }
    if project.quota.iops.is_some() && after.unlimited > project.used.unlimited {
        let name = &project.name;
        let reason = format!("the project '{name}' has a quota of requests, so each of its volumes has a limit");
        return Err(MetaError::InvalidLimits { reason });
    }
    project.used = after;
    Ok(())
}

/// Whether a project's new volumes may be of this class.
fn check_class(project: &ProjectRecord, class: &str) -> Result<(), MetaError> {
    let Some(classes) = project.classes.as_ref().filter(|classes| !classes.contains(class)) else { return Ok(()) };
    let classes: Vec<&str> = classes.iter().map(String::as_str).collect();
    let reason = format!("the project '{}' may use these alone: {}", project.name, classes.join(", "));
    Err(MetaError::InvalidClass { name: class.to_owned(), reason })
}

/// Whether a project may have a new volume of this class, that counts so much, as things are.
///
/// # Errors
/// When not, and what it may have.
pub fn check_volume(project: &ProjectRecord, class: &str, more: ProjectUse) -> Result<(), MetaError> {
    check_class(project, class)?;
    settle(&mut project.clone(), more, ProjectUse::default())
}

/// What comes and goes in one transaction.
#[derive(Debug, Default)]
pub(super) struct Accounts(BTreeMap<String, Account>);

#[derive(Debug, Default)]
struct Account {
    more: ProjectUse,
    less: ProjectUse,
    /// The classes of new volumes.
    classes: BTreeSet<String>,
}

impl Accounts {
    /// The account of a volume's project; none is kept of the default one.
    fn of(&mut self, volume: &str) -> Option<&mut Account> {
        let project = project_of(volume);
        (project != DEFAULT_PROJECT).then(|| self.0.entry(project.to_owned()).or_default())
    }

    /// A volume is made.
    pub(super) fn made(&mut self, volume: &VolumeRecord) {
        if let Some(account) = self.of(&volume.name) {
            account.more = account.more.plus(ProjectUse::of(volume));
            account.classes.insert(class_shown(&volume.class).to_owned());
        }
    }

    /// A volume is deleted, with so many snapshots.
    pub(super) fn gone(&mut self, volume: &VolumeRecord, snapshots: usize) {
        if let Some(account) = self.of(&volume.name) {
            account.less = account.less.plus(ProjectUse::of(volume));
        }
        self.snapshots(&volume.name, 0, snapshots);
    }

    /// A volume gets another size, or other limits.
    pub(super) fn changed(&mut self, before: &VolumeRecord, after: &VolumeRecord) {
        if let Some(account) = self.of(&after.name) {
            account.more = account.more.plus(ProjectUse::of(after));
            account.less = account.less.plus(ProjectUse::of(before));
        }
    }

    /// Snapshots of a volume are made, and deleted.
    pub(super) fn snapshots(&mut self, volume: &str, made: usize, deleted: usize) {
        if let Some(account) = self.of(volume) {
            account.more = account.more.plus(ProjectUse::of_snapshots(made as u64));
            account.less = account.less.plus(ProjectUse::of_snapshots(deleted as u64));
        }
    }

    /// Adds what the projects have then to a change.
    ///
    /// # Errors
    /// When a project is missing, or would have more than it may.
    pub(super) fn settle(self, records: &Records<'_>, mut txn: Txn) -> Result<Txn, Halt> {
        let keys: Vec<Key<'_>> = self.0.keys().map(|project| Key::Project(project)).collect();
        if keys.is_empty() {
            return Ok(txn);
        }
        for (found, (project, account)) in records.find_each(&keys)?.into_iter().zip(&self.0) {
            let Some(mut record) = found.record::<ProjectRecord>()? else {
                if account.more.volumes > account.less.volumes {
                    return Err(missing(Kind::Project, project).into());
                }
                // Somebody has removed the record: what is left can be deleted all the same.
                continue;
            };
            account.classes.iter().try_for_each(|class| check_class(&record, class))?;
            settle(&mut record, account.more, account.less)?;
            // Also where both come to the same: others count on it that nothing has come or gone.
            txn = txn.when_as(&found).put(&found.key, &record);
        }
        Ok(txn)
    }

    /// Whether it could be done as things are.
    ///
    /// # Errors
    /// As those of [`Accounts::settle`].
    pub(super) fn check(self, records: &Records<'_>) -> Result<(), Halt> {
        self.settle(records, Txn::new()).map(drop)
    }
}

/// A revision from which on the same volumes and snapshots are in a volume's project; 0: nobody counts them.
pub(super) fn use_revision(records: &Records<'_>, volume: &str) -> Result<i64, Halt> {
    let project = project_of(volume);
    if project == DEFAULT_PROJECT {
        return Ok(0);
    }
    Ok(records.find(&Key::Project(project))?.mod_revision())
}

/// Counts what all projects have, in a configuration that was put together of several: what their records say may be of
/// another time.
pub(super) fn recount(values: &mut BTreeMap<String, Value>) {
    let mut uses = BTreeMap::<String, ProjectUse>::new();
    let mut projects = BTreeMap::<VolumeId, String>::new();
    let read = |value: &Value| serde_json::from_value::<VolumeRecord>(value.clone()).ok();
    for (name, value) in values.iter() {
        let Some(Key::Volume(name)) = Key::parse(name.as_bytes()) else { continue };
        let project = project_of(name).to_owned();
        let Some(volume) = read(value).filter(|_| project != DEFAULT_PROJECT) else { continue };
        let sum = uses.entry(project.clone()).or_default();
        *sum = sum.plus(ProjectUse::of(&volume));
        projects.insert(volume.id, project);
    }
    for (name, value) in values.iter() {
        let Some(Key::Snapshot(volume, _)) = Key::parse(name.as_bytes()) else { continue };
        let Some(project) = projects.get(&volume) else { continue };
        if serde_json::from_value::<SnapshotRecord>(value.clone()).is_ok() {
            let sum = uses.entry(project.clone()).or_default();
            *sum = sum.plus(ProjectUse::of_snapshots(1));
        }
    }
    for (name, value) in values.iter_mut() {
        let (Some(Key::Project(project)), Value::Object(record)) = (Key::parse(name.as_bytes()), value) else {
            continue;
        };
        record.insert("used".to_owned(), json!(uses.get(project).copied().unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_told_with_what_is_used() {
        let golden = include_str!("../../tests/golden/project.json");
        let project: ProjectRecord = serde_json::from_str(golden).unwrap();
        let one = |bytes| ProjectUse { bytes, volumes: 1, ..ProjectUse::default() };
        let limited = ProjectUse { iops: 10, ..one(4096) };
        settle(&mut project.clone(), limited, ProjectUse::default()).unwrap();
        for (more, told) in [
            (ProjectUse { iops: 10, ..one(1 << 41) }, "may have 1TiB of volumes, has 30GiB of volumes"),
            (ProjectUse { iops: 9_500, ..one(4096) }, "may have 10000 requests/s of limits, has 600 requests/s"),
            (ProjectUse { unlimited: 1, ..one(4096) }, "each of its volumes has a limit"),
            (ProjectUse::of_snapshots(8), "may have 10 snapshots, has 3 snapshots, and would have 8 snapshots more"),
        ] {
            let error = settle(&mut project.clone(), more, ProjectUse::default()).unwrap_err().to_string();
            assert!(error.contains(told), "{told}: {error}");
        }
        let mut full = project;
        full.quota = ProjectQuota { bytes: Some(1), volumes: Some(0), snapshots: Some(0), iops: Some(0) };
        settle(&mut full, ProjectUse::default(), one(4096)).expect("what is too much may shrink");
    }
}
