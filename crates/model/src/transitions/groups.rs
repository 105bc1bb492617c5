//! Placement groups: who has copies, who orders writes. A group's record is replaced only if it is still what the next
//! one was made from.

use std::collections::{BTreeMap, BTreeSet};

use azekura_base::{DeviceId, Epoch, PgId, Sequence};

use crate::{GroupRecord, Key, Model, Outcome, Records, ScrubRecord, ScrubTimes, Step, Txn, Unknown};

/// Where a new group's copies go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGroup {
    /// Its devices.
    pub members: Vec<DeviceId>,
    /// The member that orders writes.
    pub primary: DeviceId,
}

impl NewGroup {
    /// Its record. `now`: seconds since 1970; it counts as scrubbed then.
    #[must_use]
    pub fn into_record(self, id: PgId, class: &str, now: u64) -> GroupRecord {
        let new_scrub = ScrubTimes { done: now, ..ScrubTimes::default() };
        GroupRecord {
            id,
            class: class.to_owned(),
            version: 1,
            epoch: Epoch(1),
            primary_incarnation: None,
            away: BTreeMap::new(),
            scrub: ScrubRecord { deep: new_scrub, light: new_scrub, made: now, ..ScrubRecord::default() },
            primary: self.primary,
            in_sync: self.members.clone(),
            members: self.members,
            leaving: BTreeSet::new(),
            closed: None,
            unknown: Unknown::default(),
        }
    }
}

/// What a group's primary, or whoever wants to be it, proposes: only this is the data plane's to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupProposal {
    /// One more than that of the record that it was made from.
    pub version: u64,
    /// The epoch.
    pub epoch: Epoch,
    /// The primary's device.
    pub primary: DeviceId,
    /// Its process, by its incarnation; `None`: the primary is to claim the epoch.
    pub primary_incarnation: Option<u64>,
    /// Devices that hold every acknowledged write.
    pub in_sync: Vec<DeviceId>,
    /// Devices that did, and how far each had come.
    pub away: BTreeMap<DeviceId, Sequence>,
}

/// What becomes of a proposal.
#[derive(Clone, Debug, PartialEq)]
pub enum Proposed {
    /// It stands already: its confirmation was lost.
    Stands,
    /// It is void: the group is not there, or somebody else was faster.
    Void,
    /// The record to be put in the place of the one that was last changed at this revision.
    Replace(Box<GroupRecord>, i64),
}

/// What becomes of a proposal, by a model that may be old: then its revision is not the record's any more.
#[must_use]
pub fn propose(model: &Model, group: PgId, proposal: &GroupProposal) -> Proposed {
    let Some(current) = model.groups.get(&group) else { return Proposed::Void };
    let GroupProposal { version, epoch, primary, primary_incarnation, in_sync, away } = proposal.clone();
    let wanted = GroupRecord { version, epoch, primary, primary_incarnation, away, in_sync, ..current.record.clone() };
    if current.record == wanted {
        return Proposed::Stands;
    }
    if current.version + 1 != version {
        return Proposed::Void;
    }
    Proposed::Replace(Box::new(wanted), current.mod_revision)
}

/// Puts a group's record in the place of the one that was last changed at `expected_mod_revision`.
pub fn replace_group(wanted: &GroupRecord, expected_mod_revision: i64) -> Txn {
    let key = Key::Group(wanted.id).to_string();
    Txn::new().when_unchanged(&key, expected_mod_revision).put(&key, wanted)
}

/// Notes that a device has given up its copy of a group that it was to leave.
///
/// # Errors
/// When the record can't be read.
pub fn confirm_copy_forgotten(records: &Records<'_>, group: PgId, device: DeviceId) -> Outcome<()> {
    let found = records.find(&Key::Group(group))?;
    let leaves = |record: &GroupRecord| record.leaving.contains(&device);
    // A device that is wanted again, which nobody asks for before its copy is gone, must not be forgotten.
    let record = found.record::<GroupRecord>()?.filter(|record| leaves(record) && !record.needs(device));
    let Some(mut record) = record else { return Ok(Step::Done((), found.mod_revision())) };
    record.leaving.remove(&device);
    record.version += 1;
    Ok(Step::Run(Txn::new().when_as(&found).put(&found.key, &record), ()))
}
