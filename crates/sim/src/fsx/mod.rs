//! Everything that there is to do with volumes, one operation at a time, against a model: reads and writes of any
//! alignment, zeros, trims, snapshots of one volume and of several, reverts, clones, other sizes, deletions. Every read
//! is compared with the model at once.
//!
//! There is one client, which attaches each volume to the node that it uses it through, and fences what a dead node may
//! have left under way, as the control plane does. Whatever has come to an unknown end by then is read, and known from
//! there on. So the model is exact, whatever happens to the cluster.
//!
//! A cut may be under way while the client goes on: what the snapshots hold then is the state after some of the
//! operations, of all volumes together, and not less than was acknowledged when the cut was asked for.
//!
//! - [`model`]: what volumes and snapshots must hold.
//! - [`client`]: attachments, requests, and how they end.
//! - [`draw`]: which operation is next.
//! - [`admin`]: operations on volumes as wholes.
//! - [`reuse`]: names that another volume has had.
//! - [`compare`]: everything is read, and space is counted.

mod admin;
pub(crate) mod client;
mod compare;
mod draw;
mod model;
mod reuse;

use crate::Mode;
use crate::contents::SECTOR_SIZE;
use crate::plan::{Plan, WORKLOAD_MAX};
use crate::random::Random;
use crate::world::World;
use admin::Cutting;
use azekura_base::NodeId;
use azekura_node::ClusterView;
use client::{Requests, Volume};
use model::Image;
use reuse::Stray;
use std::collections::BTreeMap;
use std::time::Duration;

/// A snapshot.
struct Kept {
    image: Image,
    /// The revision that it is there since.
    since: u64,
}

/// The client, and the model.
pub(crate) struct Fsx {
    pub(crate) on: bool,
    random: Random,
    volumes: BTreeMap<String, Volume>,
    /// By their whole names.
    snapshots: BTreeMap<String, Kept>,
    requests: Requests,
    cutting: Option<Cutting>,
    /// The only node that snapshots are read through.
    reader: Option<NodeId>,
    /// Whoever has a volume open that is deleted, and sectors of what has its name now.
    stray: Option<Stray>,
    /// Operations so far.
    steps: u64,
    named: u64,
}

impl Fsx {
    pub(crate) fn new(plan: &Plan, view: &ClusterView, random: Random) -> Fsx {
        let on = plan.mode == Mode::Fsx;
        let volumes = view.volumes.values().filter(|_| on);
        let volumes = volumes.map(|volume| {
            let image = Image::new(volume.size / SECTOR_SIZE as u64);
            (volume.name.clone(), Volume::new(volume.id, image, view.revision))
        });
        Fsx {
            on,
            random,
            volumes: volumes.collect(),
            snapshots: BTreeMap::new(),
            requests: Requests::default(),
            cutting: None,
            reader: None,
            stray: None,
            steps: 0,
            named: 0,
        }
    }

    /// Operations so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// A name that nothing has had.
    fn new_name(&mut self, kind: &str) -> String {
        self.named += 1;
        format!("{kind}{}", self.named)
    }
}

impl World {
    /// Does operations, one after the other, until enough are done.
    pub(crate) fn work_fsx(&mut self) {
        while self.fsx.steps < self.plan.operations
            && self.working
            && self.now < WORKLOAD_MAX
            && self.violation.is_none()
        {
            // While a cut is under way, as much as possible is to happen.
            let pause_ms_max = if self.fsx.cutting.is_some() { 2 } else { 100 };
            let pause = self.fsx.random.spread_millis(1, pause_ms_max);
            let until = self.now + pause;
            self.run_until(until, |_| false);
            self.fsx_learn_of_cut();
            self.fsx_step();
            self.check_accounts();
        }
        self.fsx_finish_cut();
        self.report.done += self.fsx.steps;
    }

    /// Something of an operation, for people.
    fn fsx_say(&mut self, what: impl FnOnce() -> String) {
        let step = self.fsx.steps;
        self.trace.step(self.now, step, || format!("fsx {step}: {}", what()));
    }

    /// Waits until something is so. Faults end when that takes too long; if it is not so soon afterwards, that is a
    /// violation. False then, or if there was another.
    fn fsx_wait(&mut self, what: &str, done: impl Fn(&World) -> bool) -> bool {
        let limit = self.now + PATIENCE;
        if self.run_until(limit, &done) {
            return true;
        }
        if self.violation.is_none() && self.working {
            self.trace.remark(self.now, || format!("fsx: faults end, since this has not come to pass: {what}"));
            self.working = false;
            self.end_faults();
            let limit = self.now + crate::plan::QUIET_MAX;
            if self.run_until(limit, &done) {
                return true;
            }
        }
        if self.violation.is_none() {
            let (groups, layers) = (self.describe_groups(), self.describe_layers());
            let what = format!("operation {}: not so in time: {what}; {groups}; {layers}", self.fsx.steps);
            self.violate(crate::Invariant::Liveness, what);
        }
        false
    }
}

/// How long the client waits while faults happen.
const PATIENCE: Duration = Duration::from_secs(120);
