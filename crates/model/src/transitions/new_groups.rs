//! A class's groups, made with its first volume: ids are reserved, the groups are written, and then the class gets
//! them. There may be more of them than one change can hold, so another client may take up what one has left.

use azekura_base::PgId;

use super::groups::NewGroup;
use super::volumes::missing;
use crate::{ClassRecord, Found, GroupPlan, GroupRecord, Key, Kind, MetaError, Model, Outcome, Records, Step, Txn};

/// Groups of one class.
pub const GROUPS_PER_CLASS_MAX: u32 = 8_192;

/// Where a class's groups go.
pub type Place<'a> = &'a (dyn Fn(&Model, &ClassRecord, u32) -> Result<Vec<NewGroup>, MetaError> + Sync);

/// What is next for a class's groups.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupsPlanned {
    /// It has them.
    Made(Vec<PgId>),
    /// They are to be written: [`write_groups`], then [`give_groups`].
    ToWrite(GroupPlan),
}

impl GroupPlan {
    /// The ids of the groups; `None`: the plan makes no sense.
    #[must_use]
    pub fn ids(&self) -> Option<Vec<PgId>> {
        let end = self.first.0.checked_add(self.count)?;
        (1..=GROUPS_PER_CLASS_MAX).contains(&self.count).then(|| (self.first.0..end).map(PgId).collect())
    }
}

fn class_to_fill(found: &Found, name: &str) -> Result<ClassRecord, MetaError> {
    let record: Option<ClassRecord> = found.record()?;
    record.filter(|class| !class.deleted).ok_or_else(|| missing(Kind::Class, name))
}

/// Reserves `count` ids for a class's groups, unless it has groups or a plan of some: an interrupted creation is taken
/// up where it stopped.
///
/// # Errors
/// When the class is missing, or `place` finds no place for so many.
pub fn plan_groups(records: &Records<'_>, class: &str, count: u32, place: Place<'_>) -> Outcome<GroupsPlanned> {
    let count = count.clamp(1, GROUPS_PER_CLASS_MAX);
    let [found, counter] = records.find_all([&Key::Class(class), &Key::Counter("groups")])?;
    let mut record = class_to_fill(&found, class)?;
    if !record.groups.is_empty() {
        return Ok(Step::Done(GroupsPlanned::Made(record.groups), found.mod_revision()));
    }
    if let Some(plan) = record.plan {
        if plan.ids().is_none() {
            let reason = "its plan of groups makes no sense".to_owned();
            return Err(MetaError::Broken { key: found.key, reason }.into());
        }
        return Ok(Step::Done(GroupsPlanned::ToWrite(plan), found.mod_revision()));
    }
    // Placement first: a cluster that is too small must not leave a plan behind.
    place(records.known_model(), &record, count)?;
    let first = counter.next_id()?;
    let end = first + u64::from(count);
    let broken = || MetaError::Broken { key: counter.key.clone(), reason: format!("{end} is no valid id") };
    u32::try_from(end).map_err(|_| broken())?;
    let plan = GroupPlan { first: PgId(u32::try_from(first).map_err(|_| broken())?), count };
    record.plan = Some(plan.clone());
    let txn = Txn::new().when_as(&found).when_as(&counter).put(&found.key, &record).put(&counter.key, &end);
    Ok(Step::Run(txn, GroupsPlanned::ToWrite(plan)))
}

/// The records of planned groups. `now`: seconds since 1970.
///
/// # Errors
/// When `place` finds no place for so many.
pub fn planned_groups(
    records: &Records<'_>,
    class: &str,
    plan: &GroupPlan,
    now: u64,
    place: Place<'_>,
) -> Outcome<Vec<GroupRecord>> {
    let found = records.find(&Key::Class(class))?;
    let placed = place(records.known_model(), &class_to_fill(&found, class)?, plan.count)?;
    let groups = plan.ids().into_iter().flatten().zip(placed).map(|(id, new)| new.into_record(id, class, now));
    Ok(Step::Done(groups.collect(), found.mod_revision()))
}

/// Writes those of some planned groups that are not there yet, at most 100. Another client that took up the same plan
/// may have written some: its groups are as good. Nothing happens when the plan is over: then [`plan_groups`] tells.
///
/// # Errors
/// When the class's record can't be read.
pub fn write_groups(records: &Records<'_>, class: &str, plan: &GroupPlan, groups: &[GroupRecord]) -> Outcome<()> {
    let class = records.find(&Key::Class(class))?;
    if class.record::<ClassRecord>()?.is_none_or(|class| class.deleted || class.plan.as_ref() != Some(plan)) {
        return Ok(Step::Done((), class.mod_revision()));
    }
    let keys: Vec<Key<'_>> = groups.iter().map(|group| Key::Group(group.id)).collect();
    let found = records.find_each(&keys)?;
    let absent = groups.iter().zip(&found).filter(|(_, found)| found.kv.is_none());
    let txn = absent.fold(Txn::new(), |txn, (group, found)| txn.when_as(found).put(&found.key, group));
    Ok(if txn.writes().is_empty() { Step::Done((), class.mod_revision()) } else { Step::Run(txn.when_as(&class), ()) })
}

/// Gives planned groups, which are all there, to their class. Nothing happens when the plan is over: [`plan_groups`]
/// tells what is.
///
/// # Errors
/// When the class's record can't be read.
pub fn give_groups(records: &Records<'_>, class: &str, plan: &GroupPlan) -> Outcome<()> {
    let found = records.find(&Key::Class(class))?;
    let record = found.record::<ClassRecord>()?.filter(|record| !record.deleted && record.plan.as_ref() == Some(plan));
    let Some(record) = record else { return Ok(Step::Done((), found.mod_revision())) };
    let filled = ClassRecord { plan: None, groups: plan.ids().unwrap_or_default(), ..record };
    Ok(Step::Run(Txn::new().when_as(&found).put(&found.key, &filled), ()))
}

#[cfg(test)]
#[path = "new_groups_tests.rs"]
mod tests;
