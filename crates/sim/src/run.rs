//! One run, from the start of all processes to the last look at what they hold.

use crate::cue::Cue;
use crate::faults::guests;
use crate::plan::{Mode, QUIET_MAX, WORKLOAD_MAX};
use crate::report::{Report, Violation};
use crate::workloads::rekeys;
use crate::world::World;
use azekura_base::NodeId;
use std::time::Duration;

impl World {
    /// Runs the whole plan.
    pub(crate) fn run(mut self) -> Result<Report, Violation> {
        self.start_all();
        let clients = if self.scene.fsx.on { 0 } else { self.scene.clients.count() };
        for client in 0..clients {
            self.cue_at(Duration::from_millis(client as u64), Cue::Client(client));
        }
        self.cue_at(Duration::from_millis(500), Cue::Fault);
        if self.plan.devices_hang {
            self.cue_at(Duration::from_millis(1500), Cue::Hang);
        }
        if self.plan.new_logs {
            self.cue_at(Duration::from_millis(500), Cue::Initialise);
        }
        if self.scene.faults.guests.on {
            self.cue_at(guests::FIRST_AT, Cue::Guests);
        }
        if self.holders().on {
            self.cue_at(Duration::from_millis(700), Cue::Usurp);
        }
        if self.reservers().on {
            self.cue_at(Duration::from_millis(600), Cue::Preempt);
        }
        if self.scene.faults.rekeys.on {
            self.cue_at(rekeys::FIRST_AT, Cue::Rekey);
        }
        self.cue_at(Duration::from_millis(700), Cue::Scrub);
        if self.has_operator() {
            self.cue_at(Duration::from_millis(900), Cue::Wear);
            self.operate_at(Duration::from_millis(900));
        }
        if self.scene.snapshots.on || self.scene.fsx.on {
            self.cue_at(Duration::from_millis(600), Cue::Snapshot);
            self.leader_at(Duration::from_millis(600));
        }
        if self.scene.lost.on {
            self.lose_the_class();
        }
        if self.scene.fsx.on {
            self.work_fsx();
        } else {
            self.run_until(WORKLOAD_MAX, |world| world.scene.clients.all_issued());
        }
        if self.plan.mode == Mode::Slow {
            self.let_slow_copies_in();
        }
        self.stop_working();
        self.end_faults();
        let limit = self.now + QUIET_MAX;
        self.run_until(limit, |world| !world.configuration.is_restoring());
        self.trace.remark(self.now, || "no more operations or faults".into());
        self.quiet_down();
        if self.plan.mode != Mode::Flips {
            self.trace.remark(self.now, || "all nodes crash once more".into());
            self.crash_in_the_end();
            self.scene.snapshots.clearing = true;
            self.quiet_down();
            self.check_sessions();
        }
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.collect_statistics(node));
        let operations = self.scene.clients.issued + self.scene.fsx.steps();
        self.end(operations)
    }

    fn start_all(&mut self) {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.start(node));
    }
}
