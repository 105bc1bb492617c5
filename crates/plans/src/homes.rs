//! Placement groups go where they should be: away from nodes that stay dead, from devices that have failed and from
//! devices that are drained, and their fair share to new devices.
//!
//! Only the members of a group change here, by compare-and-swap. The group's primary then brings new members up to
//! date and lets former ones go when the group has as many copies as before; who reigns and who is in sync is its
//! business alone. Since every round starts from what is, a round may stop anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use azekura_base::{DeviceId, NodeId, PgId};
use azekura_model::transitions::groups::replace_group;
use azekura_model::{
    ClassRecord, DeviceRecord, DeviceState, FailureKind, GroupRecord, MetaError, Model, Txn, class_shown,
};

use crate::placement::{Candidate, candidates_where, place};

/// Since when nodes have been absent, and devices of living nodes out of service, as this leader has seen it. A new
/// leader counts anew: copies are moved later then, never sooner. Times are those of a clock that nobody sets.
#[derive(Debug, Default)]
pub struct Absences {
    nodes: BTreeMap<NodeId, Duration>,
    devices: BTreeMap<DeviceId, Duration>,
}

impl Absences {
    /// The groups whose members are to change now.
    pub fn step(&mut self, model: &Model, now: Duration) -> Vec<Move> {
        self.look(model, now);
        self.moves(model, now)
    }

    /// The same, by what was seen before.
    #[must_use]
    pub fn moves(&self, model: &Model, now: Duration) -> Vec<Move> {
        let lost = patience(model).map(|patience| self.lost(model, patience, now));
        step(model, &lost.unwrap_or_default())
    }

    /// Notes who is absent at `now`.
    pub fn look(&mut self, model: &Model, now: Duration) {
        self.nodes.retain(|node, _| model.nodes.contains_key(node) && !model.alive.contains_key(node));
        for node in model.nodes.keys().filter(|node| !model.alive.contains_key(node)) {
            self.nodes.entry(*node).or_insert(now);
        }
        let is_out = |device: &DeviceId| model.devices.get(device).is_some_and(|device| !device.is_served());
        self.devices.retain(|device, _| is_out(device));
        for device in model.devices.keys().filter(|device| is_out(device)) {
            self.devices.entry(*device).or_insert(now);
        }
    }

    /// Devices whose copies count as lost: out of service or on a node that is absent, for at least `patience`, or gone
    /// for good.
    #[must_use]
    pub fn lost(&self, model: &Model, patience: Duration, now: Duration) -> BTreeSet<DeviceId> {
        let over = |since: Option<&Duration>| since.is_some_and(|since| now.saturating_sub(*since) >= patience);
        let lost = model.devices.values().filter(|device| {
            device.is_lost() || over(self.devices.get(&device.id)) || over(self.nodes.get(&device.node))
        });
        lost.map(|device| device.id).collect()
    }

    /// When the next node or device will have been absent for `patience`.
    #[must_use]
    pub fn next(&self, patience: Option<Duration>, now: Duration) -> Option<Duration> {
        let patience = patience?;
        let since = self.nodes.values().chain(self.devices.values());
        since.filter_map(|since| since.checked_add(patience)).filter(|due| *due > now).min()
    }
}

/// The settings' patience with absent nodes and failed devices; without one, nothing of theirs is given up.
#[must_use]
pub fn patience(model: &Model) -> Option<Duration> {
    model.settings().rehome_after_seconds.map(Duration::from_secs)
}

/// Why a group moves, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A copy is lost.
    Repair,
    /// A device is to be emptied.
    Drain,
    /// A device has more than its share.
    Balance,
}

/// A group's members to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Why.
    pub reason: Reason,
    /// The group.
    pub group: PgId,
    /// Its members.
    pub members: Vec<DeviceId>,
}

impl Move {
    /// The change of the group's record, as the model has it; `None`: it is not there.
    #[must_use]
    pub fn change(&self, model: &Model) -> Option<Txn> {
        let record = model.groups.get(&self.group)?;
        Some(replace_group(&record.with_members(&self.members), record.mod_revision))
    }
}

/// The moves to begin now. `lost`: devices whose copies count as lost.
#[must_use]
pub fn step(model: &Model, lost: &BTreeSet<DeviceId>) -> Vec<Move> {
    let under_way = model.groups.values().filter(|group| is_moving(model, group)).count();
    let mut room = (model.settings().moves_at_once as usize).saturating_sub(under_way);
    let mut moves: Vec<Move> = model.classes.values().flat_map(|class| class_moves(model, class, lost)).collect();
    moves.sort_by_key(|wanted| wanted.reason);
    moves.retain(|wanted| {
        // Which devices a closed group's copies are on is not known.
        if model.groups.get(&wanted.group).is_none_or(|group| group.closed.is_some()) {
            return false;
        }
        if wanted.reason == Reason::Repair {
            return true;
        }
        let settled = model.groups.get(&wanted.group).is_some_and(|group| group.is_settled());
        let begins = settled && room > 0;
        room -= usize::from(begins);
        begins
    });
    moves
}

/// A copy is on its way to a living device, or one that is not wanted any more is still there.
fn is_moving(model: &Model, group: &GroupRecord) -> bool {
    let comes = |device: &DeviceId| !group.in_sync.contains(device) && model.is_device_alive(*device);
    group.members.iter().any(comes) || group.in_sync.iter().any(|device| !group.members.contains(device))
}

/// All moves that a class's groups need, whenever.
fn class_moves(model: &Model, class: &ClassRecord, lost: &BTreeSet<DeviceId>) -> Vec<Move> {
    let groups: Vec<&GroupRecord> =
        class.groups.iter().filter_map(|id| model.groups.get(id)).map(|group| &group.record).collect();
    if groups.len() != class.groups.len() {
        // A record can't be read, which the status tells. Without it nobody knows who has how much.
        return Vec::new();
    }
    let current: Vec<Vec<DeviceId>> = groups.iter().map(|group| group.members.clone()).collect();
    let candidates = homes(model, class, lost);
    let count = groups.len() as u32;
    let Ok(placed) = place(&candidates, class.copies, count, &class.name, &current) else {
        // Too few failure domains are left: everything stays where it is until there are more.
        return Vec::new();
    };
    let move_of = |(group, members): (&&GroupRecord, Vec<DeviceId>)| {
        let removed: Vec<DeviceId> = group.members.iter().filter(|d| !members.contains(d)).copied().collect();
        let added: Vec<DeviceId> = members.iter().filter(|d| !group.members.contains(d)).copied().collect();
        let possible = members.len() == class.copies as usize && added.iter().all(|device| group.admits(*device));
        let reason = removed.iter().map(|device| reason(model, *device, lost)).min();
        // A group without a former member has fewer members than copies: that is to be mended, too.
        let reason = reason.or((!added.is_empty()).then_some(Reason::Repair))?;
        possible.then_some(Move { reason, group: group.id, members })
    };
    groups.iter().zip(placed).filter_map(move_of).collect()
}

fn reason(model: &Model, device: DeviceId, lost: &BTreeSet<DeviceId>) -> Reason {
    match model.devices.get(&device) {
        Some(record) if is_lost(record, lost) => Reason::Repair,
        Some(record) if is_emptied(record) => Reason::Drain,
        Some(_) => Reason::Balance,
        None => Reason::Repair,
    }
}

fn is_lost(device: &DeviceRecord, lost: &BTreeSet<DeviceId>) -> bool {
    device.state == DeviceState::Down || lost.contains(&device.id)
}

/// The device serves, and is to lose its copies to others: it is drained, or has too many errors.
fn is_emptied(device: &DeviceRecord) -> bool {
    let failing = device.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Failing);
    device.state == DeviceState::Draining || failing
}

/// The devices that a class's copies may be on. Those of a node that is absent, or out of service, but not for long,
/// keep theirs.
fn homes(model: &Model, class: &ClassRecord, lost: &BTreeSet<DeviceId>) -> Vec<Candidate> {
    candidates_where(model, class, |device| {
        let usable = !is_lost(device, lost) && !is_emptied(device);
        usable.then(|| model.is_device_alive(device.id))
    })
}

/// Whether a device counts where a drain is asked for: it is in use, and its node serves it.
#[must_use]
pub fn takes_drained(model: &Model, device: &DeviceRecord) -> bool {
    device.is_sound() && model.alive.contains_key(&device.node)
}

/// Whether enough failure domains are left for every class with copies on these devices when they are drained. `what`:
/// what people call them.
///
/// # Errors
/// When too few are left.
pub fn check_drain(model: &Model, what: &str, devices: &[DeviceId]) -> Result<(), MetaError> {
    for class in model.classes.values() {
        let holds =
            |id: &PgId| model.groups.get(id).is_some_and(|group| devices.iter().any(|device| group.needs(*device)));
        if !class.groups.iter().any(holds) {
            continue;
        }
        let stays =
            |device: &DeviceRecord| (takes_drained(model, device) && !devices.contains(&device.id)).then_some(true);
        let rest = candidates_where(model, class, stays);
        let domains: BTreeSet<u32> = rest.iter().map(|candidate| candidate.domain).collect();
        if domains.len() < class.copies as usize {
            let reason = format!(
                "storage class '{}' keeps {} copies on different {domain}s, and only {} {domain}(s) with devices in \
                 service would be left",
                class_shown(&class.name),
                class.copies,
                domains.len(),
                domain = class.failure_domain,
            );
            return Err(MetaError::DrainRefused { what: what.to_owned(), reason });
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "homes_tests.rs"]
mod tests;
