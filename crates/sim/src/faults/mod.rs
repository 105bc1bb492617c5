//! Faults: what goes wrong, one file a kind. Which of them happen in which mode says [`matrix`].

mod configuration;
mod connections;
mod crashes;
mod drains;
pub(crate) mod drawn;
mod flips;
pub(crate) mod guests;
mod hangs;
mod initialising;
pub(crate) mod keys;
mod lost_writes;
mod lying;
mod matrix;
mod members;
mod partitions;
mod policy;
mod rebuilt;
mod refusals;
mod replaced;
mod restores;
mod slowness;
mod stalls;
mod stops;
mod votes;
pub(crate) mod wear;
mod wipes;

pub use matrix::fault_matrix;

use crate::cue::Cue;
use crate::world::World;
use azekura_base::NodeId;
use matrix::Column;
use std::time::Duration;

/// How often it is looked whether all is calm.
const CALM_STEP: Duration = Duration::from_millis(100);

/// So many of the faults are backups and restores of the configuration, in percent, where there are any.
const GOES_BACK_PERCENT: u64 = 25;

impl World {
    /// A fault happens, and the next one is planned.
    pub(crate) fn fault(&mut self) {
        if !self.works() || self.scene.faults.over {
            return;
        }
        if !self.is_calm_over() {
            self.cue_at(self.now + CALM_STEP, Cue::Fault);
            return;
        }
        let directed = self.is_time_for_votes();
        let goes_back = self.plan.goes_back && self.random.chance(GOES_BACK_PERCENT);
        let (column, roll) = (Column::of(self.plan.faults), self.random.below(100));
        let kind = match column {
            _ if directed => self.forget_a_vote(),
            _ if goes_back => self.back_up_or_restore(),
            None => return,
            Some(column) => column.strike(roll)(self),
        };
        self.count(kind);
        self.trace.step(self.now, 0xfa, || format!("fault: {kind}"));
        let (least_ms, most_ms) = column.unwrap_or(Column::Connections).pause_ms();
        let next = self.random.spread_millis(least_ms, most_ms);
        self.cue_at(self.now + next, Cue::Fault);
    }

    /// Links are whole, the configuration store is there, and everybody runs.
    pub(crate) fn end_faults(&mut self) {
        self.end_calm();
        self.heal_links();
        self.end_guests();
        self.end_keys();
        self.configuration.come_back();
        self.end_hangs();
        self.inform_all();
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        for node in nodes {
            self.start_at(self.now, node);
        }
        self.replace_devices();
    }
}
