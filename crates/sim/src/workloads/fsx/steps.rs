//! Operations, one after the other.

use super::PATIENCE;
use crate::plan::WORKLOAD_MAX;
use crate::report::Invariant;
use crate::world::World;

impl World {
    /// Does operations, one after the other, until enough are done.
    pub(crate) fn work_fsx(&mut self) {
        while self.scene.fsx.steps < self.plan.operations && self.works() && self.now < WORKLOAD_MAX && !self.is_over()
        {
            // While a cut is under way, as much as possible is to happen.
            let pause_ms_max = if self.scene.fsx.cutting.is_some() { 2 } else { 100 };
            let pause = self.scene.fsx.random.spread_millis(1, pause_ms_max);
            let until = self.now + pause;
            self.run_until(until, |_| false);
            self.fsx_learn_of_cut();
            self.fsx_step();
            self.check_accounts();
        }
        self.fsx_finish_cut();
        self.report.done += self.scene.fsx.steps;
    }

    /// Something of an operation, for people.
    pub(super) fn fsx_say(&mut self, what: impl FnOnce() -> String) {
        let step = self.scene.fsx.steps;
        self.trace.step(self.now, step, || format!("fsx {step}: {}", what()));
    }

    /// Waits until something is so. Faults end when that takes too long; if it is not so soon afterwards, that is a
    /// violation. False then, or if there was another.
    pub(super) fn fsx_wait(&mut self, what: &str, done: impl Fn(&World) -> bool) -> bool {
        let limit = self.now + PATIENCE;
        if self.run_until(limit, &done) {
            return true;
        }
        if !self.is_over() && self.works() {
            self.trace.remark(self.now, || format!("fsx: faults end, since this has not come to pass: {what}"));
            self.stop_working();
            self.end_faults();
            let limit = self.now + crate::plan::QUIET_MAX;
            if self.run_until(limit, &done) {
                return true;
            }
        }
        if !self.is_over() {
            let (groups, layers) = (self.describe_groups(), self.describe_layers());
            let what = format!("operation {}: not so in time: {what}; {groups}; {layers}", self.scene.fsx.steps);
            self.violate(Invariant::Liveness, what);
        }
        false
    }
}
