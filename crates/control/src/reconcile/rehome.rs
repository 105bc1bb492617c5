//! Placement groups go where they should be: away from nodes that stay dead, from devices that have failed and from
//! devices that are drained, and their fair share to new devices.
//!
//! Only the members of a group change here, by compare-and-swap. The group's primary then brings new members up to
//! date and lets former ones go when the group has as many copies as before; who reigns and who is in sync is its
//! business alone. Since every round starts from what is, a round may stop anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use azekura_base::{DeviceId, NodeId, PgId};
use azekura_meta::MetaClient;
use azekura_meta::cluster::CasOutcome;
use azekura_model::{ClassRecord, DeviceRecord, DeviceState, FailureKind, GroupRecord, MetaError, Model};
use tokio::time::Instant;

use crate::placement::{Candidate, candidates_where, place};

/// Since when nodes have been absent, and devices of living nodes out of service, as this leader has seen it. A new
/// leader counts anew: copies are moved later then, never sooner.
#[derive(Debug, Default)]
pub(super) struct Absences {
    nodes: BTreeMap<NodeId, Instant>,
    devices: BTreeMap<DeviceId, Instant>,
}

impl Absences {
    /// Notes who is absent at `now`.
    pub(super) fn look(&mut self, model: &Model, now: Instant) {
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
    fn lost(&self, model: &Model, patience: Duration, now: Instant) -> BTreeSet<DeviceId> {
        let over = |since: Option<&Instant>| since.is_some_and(|since| now.duration_since(*since) >= patience);
        let lost = model.devices.values().filter(|device| {
            let for_good = device.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Lost);
            for_good || over(self.devices.get(&device.id)) || over(self.nodes.get(&device.node))
        });
        lost.map(|device| device.id).collect()
    }

    /// When the next node or device will have been absent for `patience`.
    pub(super) fn next(&self, patience: Option<Duration>, now: Instant) -> Option<Instant> {
        let patience = patience?;
        let since = self.nodes.values().chain(self.devices.values());
        since.filter_map(|since| since.checked_add(patience)).filter(|due| *due > now).min()
    }
}

/// The settings' patience with absent nodes and failed devices; without one, nothing of theirs is given up.
pub(super) fn patience(model: &Model) -> Option<Duration> {
    model.settings().rehome_after_seconds.map(Duration::from_secs)
}

/// Why a group moves, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// A copy is lost.
    Repair,
    /// A device is to be emptied.
    Drain,
    /// A device has more than its share.
    Balance,
}

/// A group's members to be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Move {
    reason: Reason,
    group: PgId,
    members: Vec<DeviceId>,
}

/// Changes the members of as many groups as may move now.
pub(super) async fn reconcile(
    meta: &MetaClient,
    model: &Model,
    absences: &mut Absences,
    now: Instant,
) -> Result<(), MetaError> {
    absences.look(model, now);
    let lost = patience(model).map(|patience| absences.lost(model, patience, now)).unwrap_or_default();
    let moves = plan(model, &lost);
    let mut moved = [0; 3];
    for Move { reason, group, members } in moves {
        // Which devices a closed group's copies are on is not known.
        let Some(record) = model.groups.get(&group).filter(|record| record.closed.is_none()) else { continue };
        match meta.update_group(&record.with_members(&members), record.mod_revision).await? {
            CasOutcome::Updated { .. } => moved[reason as usize] += 1,
            // Its primary was faster; the next round looks again.
            CasOutcome::Conflict { .. } => {}
        }
    }
    let [repaired, drained, balanced] = moved;
    if repaired > 0 {
        tracing::info!(
            "{repaired} groups get new homes for copies of nodes that stay away or devices that have failed"
        );
    }
    if drained + balanced > 0 {
        tracing::debug!("{drained} groups leave drained devices, {balanced} move for balance");
    }
    Ok(())
}

/// The moves to begin now. `lost`: devices whose copies count as lost.
fn plan(model: &Model, lost: &BTreeSet<DeviceId>) -> Vec<Move> {
    let under_way = model.groups.values().filter(|group| is_moving(model, group)).count();
    let mut room = (model.settings().moves_at_once as usize).saturating_sub(under_way);
    let mut moves: Vec<Move> = model.classes.values().flat_map(|class| class_moves(model, class, lost)).collect();
    moves.sort_by_key(|wanted| wanted.reason);
    moves.retain(|wanted| {
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

#[cfg(test)]
#[path = "rehome_tests.rs"]
mod tests;
