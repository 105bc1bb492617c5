//! The configuration store loses its state and is restored from an older backup, while nodes run or are stopped
//! (docs/decisions/0019-restored-configuration.md).
//!
//! Processes that run notice at different times, and end. Then an operator says that the configuration was restored:
//! groups stay closed until every device has said, in a process that started since, what it holds. All of that is done
//! by the transitions and plans of `azekura_model` and `azekura_plans`. What nodes remember of layers and volumes is
//! not lost here; `azekura-meta` has its own tests of that.

use crate::cluster::configuration::Lacks;
use crate::cue::Cue;
use crate::kernel::process::Life;
use crate::plan::{Lie, Mode};
use crate::report::Invariant;
use crate::world::World;
use azekura_base::{DeviceId, NodeId, PgId};
use azekura_model::transitions::restored::tell_holdings;
use azekura_model::{HeldRecord, HoldingsRecord};
use azekura_plans::restored;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often it is looked whether all devices have spoken.
const LOOK_STEP: Duration = Duration::from_millis(100);
/// A backup is younger than this share of the time, in percent, when another is made instead of a restore.
const NEWER_BACKUP_PERCENT: u64 = 30;
/// The operator has a node's copy of the configuration, in so many percent of restores: then nothing shows that a group
/// was opened with the older configuration.
const COPY_PERCENT: u64 = 70;

impl World {
    /// A backup is made, or restored.
    pub(super) fn back_up_or_restore(&mut self) -> &'static str {
        let random = &mut self.random;
        if !self.configuration.has_backup() || self.configuration.is_restoring() || random.chance(NEWER_BACKUP_PERCENT)
        {
            self.configuration.back_up();
            return "backup of the configuration";
        }
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let lives: Vec<Life> = nodes.iter().filter_map(|node| self.process_on(*node)).collect();
        if self.plan.lie == Some(Lie::OlderConfiguration) {
            self.configuration.go_back();
            self.crash_everything();
            return "older configuration";
        }
        let lacks = match self.plan.mode {
            Mode::Snapshots | Mode::Fsx => Lacks::NewestGroups,
            _ if self.random.chance(COPY_PERCENT) => Lacks::Nothing,
            _ => Lacks::Newest,
        };
        let running: BTreeSet<(NodeId, u64)> = lives.iter().map(|life| life.process()).collect();
        if let Err(error) = self.configuration.restore(lacks, running, self.now) {
            self.violate(Invariant::Protocol, format!("the configuration can't be restored: {error}"));
        }
        self.depose();
        for life in lives {
            let time = self.random.spread_millis(1, 3000);
            self.exit_at(self.now + time, life);
        }
        self.cue_at(self.now + LOOK_STEP, Cue::Reopen);
        "configuration restored"
    }

    /// Opens the closed groups when all devices have spoken.
    pub(crate) fn reopen_groups(&mut self) {
        if !self.configuration.is_restoring() {
            return;
        }
        self.cue_at(self.now + LOOK_STEP, Cue::Reopen);
        self.tell_holdings();
        let model = self.configuration.model().clone();
        let plans = restored::step(&model);
        for plan in &plans {
            self.trace.step(self.now, 0x0e, || format!("after the restore: {plan:?}"));
            self.carry_out(&model, plan);
        }
        let closed = self.configuration.model().groups.values().find_map(|group| {
            let why = group.closed.as_ref()?.problem.clone()?;
            Some(format!("{:?} can't open again: {why}", group.id))
        });
        if let Some(what) = closed {
            self.violate(Invariant::Liveness, what);
            return;
        }
        if !self.configuration.is_restoring() && !self.has_operator() {
            self.level_groups();
        }
        if !plans.is_empty() {
            self.inform_all();
        }
    }

    /// Each device that has not spoken says what it holds, once its process runs what the restored configuration says.
    fn tell_holdings(&mut self) {
        let Some(life) = self.configuration.restored_life().map(str::to_owned) else { return };
        let silent: Vec<DeviceId> = restored::awaited(self.configuration.model());
        for id in silent {
            if let Some(groups) = self.held_by(id) {
                let holdings =
                    HoldingsRecord { device: id, life: life.clone(), groups, unknown_layers: BTreeMap::new() };
                self.configuration.change(&tell_holdings(&holdings));
            }
        }
    }

    /// What a device holds of each group; `None` while it can't say.
    fn held_by(&self, id: DeviceId) -> Option<BTreeMap<PgId, HeldRecord>> {
        let life = self.process_on(self.devices.get(&id)?.node)?;
        let hears = !self.configuration.is_former(life)
            && self.configuration.away(life.node, self.now).is_none()
            && self
                .lives_of(life)
                .iter()
                .all(|life| self.configuration.known_by(*life) >= self.configuration.restored_revision());
        let store = self.store_of(id).filter(|_| hears)?;
        let groups = store.groups().filter(|(pg, state)| !store.is_forgetting(*pg) && state.epoch.0 > 0);
        let held = groups.map(|(pg, state)| {
            let (epoch, committed) = (state.epoch, state.committed);
            (pg, HeldRecord { epoch, committed, prepared: state.prepared_end, complete: state.complete })
        });
        Some(held.collect())
    }
}
