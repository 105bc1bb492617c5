//! Storage classes: made, changed, and deleted with their groups.

use azekura_base::{LogicalBlock, PgId};

use super::volumes::{check_logical_block, check_name, missing};
use super::{require, without};
use crate::{
    AckRule, CLASS_HOMES, ClassHome, ClassRecord, FailureDomain, IO_TIMEOUT_DEFAULT_SECONDS, Key, Kind, MetaError,
    Model, OWN_GROUPS, Outcome, Records, Step, Txn, Unknown, class_shown, is_own,
};

/// Overcommit ratio of a class that names none.
pub const DEFAULT_OVERCOMMIT_RATIO: f64 = 4.0;
/// I/O timeouts that a class may have, in seconds.
const IO_TIMEOUTS: std::ops::RangeInclusive<u64> = 1..=86_400;
/// Most copies of a block.
const COPIES_MAX: u32 = 16;

/// A storage class to make.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSpec {
    /// Its unique name.
    pub name: String,
    /// Copies of every block, 1 to 16.
    pub copies: u32,
    /// What two copies never share.
    pub failure_domain: FailureDomain,
    /// When a write is acknowledged.
    pub ack_rule: AckRule,
    /// With fewer in-sync copies a group is read-only; 1 to `copies`.
    pub copies_min: u32,
    /// Volumes' copies may sum up to this multiple of the devices' capacity; at least 0.1.
    pub overcommit_ratio: f64,
    /// Seconds that a request waits for a group which does not serve it, 1 to 86,400; `None`: for ever.
    pub io_timeout_seconds: Option<u64>,
    /// Its new volumes are encrypted, each with a key of its own.
    pub encrypt: bool,
    /// The logical block of its new volumes.
    pub logical_block: LogicalBlock,
    /// Where one copy of every block is to be, which serves the requests; `None`: wherever there is room.
    pub home: Option<ClassHome>,
    /// Each of its volumes has groups of its own, whose home is where the volume is attached.
    pub home_attached: bool,
}

impl ClassSpec {
    /// A class with this many copies on different hosts, acknowledged by all in-sync copies, writable with one.
    #[must_use]
    pub fn new(name: &str, copies: u32) -> ClassSpec {
        ClassSpec {
            name: name.to_owned(),
            copies,
            failure_domain: FailureDomain::Host,
            ack_rule: AckRule::All,
            copies_min: 1,
            overcommit_ratio: DEFAULT_OVERCOMMIT_RATIO,
            io_timeout_seconds: Some(IO_TIMEOUT_DEFAULT_SECONDS),
            encrypt: false,
            logical_block: LogicalBlock::default(),
            home: None,
            home_attached: false,
        }
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), MetaError> {
        check_name(Kind::Class, &self.name)?;
        let reason = if !(1..=COPIES_MAX).contains(&self.copies) {
            format!("copies must be 1 to {COPIES_MAX}, not {}", self.copies)
        } else if !(1..=self.copies).contains(&self.copies_min) {
            format!("minimum copies must be 1 to {} (its copies), not {}", self.copies, self.copies_min)
        } else if self.ack_rule == AckRule::Majority && self.copies < 3 {
            format!(
                "a majority of {} copies is all of them: use the ack rule 'all', or three copies or more",
                self.copies
            )
        } else if self.ack_rule == AckRule::EachSite && self.copies < 2 {
            "one copy is in one site: use the ack rule 'all', or more copies".to_owned()
        } else if self.home.is_some() && self.home_attached {
            "its home is either a place, or where each volume is attached".to_owned()
        } else if let Some(reason) = self.home.as_ref().and_then(ClassHome::flaw) {
            reason
        } else if let Some(reason) = class_limits(self.overcommit_ratio, self.io_timeout_seconds) {
            reason
        } else {
            return Ok(());
        };
        Err(MetaError::InvalidClass { name: self.name.clone(), reason })
    }

    /// Its record, without groups. `created`: the time, RFC 3339.
    #[must_use]
    pub fn record(&self, created: &str) -> ClassRecord {
        ClassRecord {
            name: self.name.clone(),
            copies: self.copies,
            failure_domain: self.failure_domain,
            ack_rule: self.ack_rule,
            copies_min: self.copies_min,
            overcommit_ratio: self.overcommit_ratio,
            io_timeout_seconds: self.io_timeout_seconds,
            encrypt: self.encrypt,
            logical_block_bytes: self.logical_block,
            home: self.home.clone(),
            home_attached: self.home_attached,
            parent: None,
            groups: Vec::new(),
            plan: None,
            deleted: false,
            created: created.to_owned(),
            unknown: Unknown::default(),
        }
    }
}

/// Makes a storage class; its groups come with its first volume. `created`: the time, RFC 3339, the same in every
/// attempt.
///
/// # Errors
/// When the class makes no sense, or its name is taken.
pub fn create_class(records: &Records<'_>, spec: &ClassSpec, created: &str) -> Outcome<ClassRecord> {
    spec.check()?;
    // A leader of another version would give the copies other homes.
    if let Some(older) = spec.home.as_ref().and_then(|_| without(records.known_model(), CLASS_HOMES)) {
        let reason = format!("these nodes run a version that knows no homes of classes: {older}");
        return Err(MetaError::InvalidClass { name: spec.name.clone(), reason }.into());
    }
    if let Some(older) = without(records.known_model(), OWN_GROUPS).filter(|_| spec.home_attached) {
        let reason = format!("these nodes run a version that knows no volumes with groups of their own: {older}");
        return Err(MetaError::InvalidClass { name: spec.name.clone(), reason }.into());
    }
    // One of another version would make volumes of other blocks in it.
    check_logical_block(records.known_model(), spec.logical_block)?;
    let record = spec.record(created);
    let [found, cluster] = records.find_all([&Key::Class(&spec.name), &Key::Cluster])?;
    match found.record::<ClassRecord>()? {
        // Ours, of an attempt whose answer was lost.
        Some(existing) if records.is_uncertain() && existing == record => {
            Ok(Step::Done(existing, found.mod_revision()))
        }
        Some(_) => Err(MetaError::Exists { kind: Kind::Class, name: spec.name.clone() }.into()),
        None => {
            let txn = Txn::new().when_as(&found).put(&found.key, &record);
            let txn = if spec.home_attached { require(txn, &cluster, OWN_GROUPS)? } else { txn };
            Ok(Step::Run(txn, record))
        }
    }
}

/// What of a storage class can be changed without moving a copy; `None` leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassChange {
    /// See [`ClassSpec::overcommit_ratio`].
    pub overcommit_ratio: Option<f64>,
    /// See [`ClassSpec::io_timeout_seconds`]; `Some(None)`: for ever.
    pub io_timeout_seconds: Option<Option<u64>>,
}

/// Changes a storage class; gives it as it is then.
///
/// # Errors
/// When the class is missing, or can't be so.
pub fn change_class(records: &Records<'_>, name: &str, change: ClassChange) -> Outcome<ClassRecord> {
    let found = records.find(&Key::Class(name))?;
    let before: Option<ClassRecord> = found.record()?;
    let before = before.filter(|class| !class.deleted && !is_own(name)).ok_or_else(|| missing(Kind::Class, name))?;
    let ClassChange { overcommit_ratio, io_timeout_seconds } = change;
    let class = ClassRecord {
        overcommit_ratio: overcommit_ratio.unwrap_or(before.overcommit_ratio),
        io_timeout_seconds: io_timeout_seconds.unwrap_or(before.io_timeout_seconds),
        ..before.clone()
    };
    if let Some(reason) = class_limits(class.overcommit_ratio, class.io_timeout_seconds) {
        return Err(MetaError::InvalidClass { name: name.to_owned(), reason }.into());
    }
    if class == before {
        return Ok(Step::Done(class, found.mod_revision()));
    }
    Ok(Step::Run(Txn::new().when_as(&found).put(&found.key, &class), class))
}

/// Why a class can't have this overcommit ratio or this I/O timeout.
fn class_limits(overcommit_ratio: f64, io_timeout_seconds: Option<u64>) -> Option<String> {
    if !(0.1..=1e6).contains(&overcommit_ratio) {
        return Some(format!("the overcommit ratio must be 0.1 to 1000000, not {overcommit_ratio}"));
    }
    let seconds = io_timeout_seconds.filter(|seconds| !IO_TIMEOUTS.contains(seconds))?;
    Some(format!("the I/O timeout must be 1 s to 86,400 s, or never, not {seconds} s"))
}

/// Begins to delete a storage class that has no volumes, or what a volume had of its own: it takes none from then on.
/// Gives its groups, which go next ([`delete_groups`]); then the class itself does ([`finish_class_deletion`]). Can be
/// begun again.
///
/// # Errors
/// When the class is missing or in use.
pub fn begin_class_deletion(records: &Records<'_>, name: &str) -> Outcome<Vec<PgId>> {
    let [found, volumes] = records.find_all([&Key::Class(name), &Key::Counter("volumes")])?;
    let record: ClassRecord = found.record()?.ok_or_else(|| missing(Kind::Class, name))?;
    let model = records.model(found.mod_revision().max(volumes.mod_revision()))?;
    check_unused(model, name)?;
    let of_class = model.groups.values().filter(|group| group.class == name).map(|group| group.id);
    let mut groups: Vec<PgId> = of_class.collect();
    groups.extend(record.groups.iter().filter(|pg| !model.groups.contains_key(pg)));
    let txn = Txn::new().when_as(&found).when_as(&volumes).put(&found.key, &ClassRecord { deleted: true, ..record });
    Ok(Step::Run(txn, groups))
}

/// Deletes groups of a class that is being deleted, whether they are there or not: nobody changes them any more.
pub fn delete_groups(groups: &[PgId]) -> Txn {
    groups.iter().fold(Txn::new(), |txn, pg| txn.delete(&Key::Group(*pg).to_string()))
}

/// Removes the record of a class whose groups are gone.
///
/// # Errors
/// When the record can't be read.
pub fn finish_class_deletion(records: &Records<'_>, name: &str) -> Outcome<()> {
    let found = records.find(&Key::Class(name))?;
    if !found.record::<ClassRecord>()?.is_some_and(|record| record.deleted) {
        return Ok(Step::Done((), found.mod_revision()));
    }
    Ok(Step::Run(Txn::new().when_as(&found).delete(&found.key), ()))
}

/// Refuses what would take volumes' data away.
fn check_unused(model: &Model, class: &str) -> Result<(), MetaError> {
    let is_of = |other: &str| other == class || class_shown(other) == class;
    let volumes = model.volumes.values().filter(|volume| is_of(&volume.class));
    let volumes: Vec<String> = volumes.map(|volume| volume.name.clone()).collect();
    let layers = model.layers.values().filter(|layer| is_of(&layer.class)).count();
    if volumes.is_empty() && layers == 0 {
        return Ok(());
    }
    Err(MetaError::ClassInUse { class: class.to_owned(), volumes, layers })
}

#[cfg(test)]
#[path = "classes_tests.rs"]
mod tests;
