//! The configuration store loses its state and is restored from an older backup, while nodes run or are stopped
//! (docs/decisions/0019-restored-configuration.md).
//!
//! Processes that run notice at different times, and end. Then an operator says that the configuration was restored:
//! groups stay closed until every device has said, in a process that started since, what it holds. What nodes remember
//! of layers and volumes is not lost here; `azekura-meta` has its own tests of that.

use crate::cue::Cue;
use crate::kernel::process::Life;
use crate::plan::Lie;
use crate::report::Invariant;
use crate::world::World;
use azekura_base::{DeviceId, NodeId, PgId};
use azekura_replica::{Heard, Held, reopen};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often it is looked whether all devices have spoken.
const LOOK_STEP: Duration = Duration::from_millis(100);
/// A backup is younger than this share of the time, in percent, when another is made instead of a restore.
const NEWER_BACKUP_PERCENT: u64 = 30;
/// Nothing shows that a group was opened with the older configuration, in so many percent of restores.
const ONE_HISTORY_PERCENT: u64 = 70;

impl World {
    /// A backup is made, or restored.
    pub(super) fn back_up_or_restore(&mut self) -> &'static str {
        let random = &mut self.random;
        if !self.configuration.has_backup() || self.configuration.is_closed() || random.chance(NEWER_BACKUP_PERCENT) {
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
        self.configuration.close_as_of_backup(lives.iter().map(|life| life.process()).collect(), self.now);
        for life in lives {
            let time = self.random.spread_millis(1, 3000);
            self.exit_at(self.now + time, life);
        }
        self.cue_at(self.now + LOOK_STEP, Cue::Reopen);
        "configuration restored"
    }

    /// Opens the closed groups when all devices have spoken.
    pub(crate) fn reopen_groups(&mut self) {
        if !self.configuration.is_closed() {
            return;
        }
        let Some(said) = self.holdings() else {
            self.cue_at(self.now + LOOK_STEP, Cue::Reopen);
            return;
        };
        let one_history = self.random.chance(ONE_HISTORY_PERCENT);
        for (pg, config) in self.configuration.closed() {
            let held = said.iter().filter_map(|(device, groups)| Some((*device, *groups.get(&pg)?)));
            let heard = Heard { held: held.collect(), without: BTreeSet::new(), one_history };
            match reopen(&config, &heard) {
                Ok(next) => {
                    self.trace.step(self.now, next.version, || format!("{pg:?} opens again: {next:?} of {heard:?}"));
                    self.configuration.reopen(pg, next);
                }
                Err(contradiction) => {
                    let what = format!("{pg:?} can't open again: {contradiction:?} of {heard:?}");
                    return self.violate(Invariant::Liveness, what);
                }
            }
        }
        self.inform_all();
    }

    /// What each device holds of each group; `None` while one has not spoken.
    fn holdings(&self) -> Option<BTreeMap<DeviceId, BTreeMap<PgId, Held>>> {
        let mut said = BTreeMap::new();
        for (id, device) in &self.devices {
            let life = self.process_on(device.node)?;
            if self.configuration.is_former(life) {
                return None;
            }
            let store = self.store_of(*id)?;
            let groups = store.groups().filter(|(pg, state)| !store.is_forgetting(*pg) && state.epoch.0 > 0);
            let held = groups.map(|(pg, state)| {
                let (epoch, committed) = (state.epoch, state.committed);
                (pg, Held { epoch, committed, prepared: state.prepared_end, complete: state.complete })
            });
            said.insert(*id, held.collect());
        }
        Some(said)
    }
}
