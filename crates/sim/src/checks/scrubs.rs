//! Scrubs while everything goes on: whatever happens to the cluster, copies that are in sync never differ. And once
//! more when everything rests and blocks have decayed again: a deep scrub leaves nothing damaged, whatever happens to
//! connections at its beginning.

use crate::cue::Cue;
use crate::plan::{Mode, QUIET_MAX};
use crate::report::Invariant;
use crate::world::World;
use azekura_base::PgId;
use azekura_node::{ScrubSeen, ScrubWish};
use azekura_replica::{ScrubKind, ScrubReport};
use std::time::Duration;

/// What has ended is told by then.
const TOLD_WITHIN: Duration = Duration::from_millis(50);
/// Bits that flip before the last scrub.
const LAST_FLIPS: usize = 12;
/// What is not scrubbed yet is asked for so often: who was asked may be primary no more.
const ASK_STEP: Duration = Duration::from_secs(2);
/// Ends of connections notice within this time that they break.
const NOTICE_MS_MAX: u64 = 300;

impl World {
    /// Somebody wants a group scrubbed, and soon another one.
    pub(crate) fn scrub_some_group(&mut self) {
        let scrubbed = [Mode::Flips, Mode::Devices, Mode::Snapshots, Mode::Fsx, Mode::All];
        if !self.works() || !scrubbed.contains(&self.plan.mode) {
            return;
        }
        let groups: Vec<PgId> = self.configuration.group_ids();
        let random = &mut self.random;
        let pg = *random.pick(&groups);
        // Where blocks decay, they are looked for, too.
        let deep = match self.plan.mode {
            Mode::Flips => random.chance(30),
            _ => self.plan.devices_fail && self.scene.wear.random.chance(30),
        };
        let kind = if deep { ScrubKind::Deep } else { ScrubKind::Light };
        let next = random.spread_millis(500, 5000);
        for life in self.lives() {
            self.tell(life, |node| node.scrub(pg, wish(kind)));
        }
        self.cue_at(self.now + next, Cue::Scrub);
    }

    /// Where blocks decay, and one device's alone: some more do, everything is scrubbed, and connections break at its
    /// beginning.
    pub(crate) fn scrub_everything(&mut self) {
        if self.plan.mode != Mode::Flips || self.plan.devices_fail {
            return;
        }
        let is_scrubbing = |world: &World| world.nodes().any(|node| node.groups().any(|group| group.scrub.is_some()));
        let limit = self.now + QUIET_MAX;
        self.run_until(limit, |world| !is_scrubbing(world));
        // What has ended is told, too.
        let told = self.now + TOLD_WITHIN;
        self.run_until(told, |_| false);
        let flips = (0..LAST_FLIPS).filter(|_| self.flip_a_bit() != "nothing").count();
        self.trace.remark(self.now, || format!("{flips} more bits flip, and everything is scrubbed"));
        self.scene.faults.last_scrub.left = self.configuration.group_ids().into_iter().collect();
        for conn in self.network().whole() {
            let random = &mut self.scene.faults.last_scrub.random;
            let notice = [0; 2].map(|_| random.spread_millis(1, NOTICE_MS_MAX));
            self.break_conn(conn, notice);
        }
        let limit = self.now + QUIET_MAX + self.giving_up_max();
        while !self.scene.faults.last_scrub.left.is_empty() {
            for pg in self.scene.faults.last_scrub.left.clone() {
                for life in self.lives() {
                    self.tell(life, |node| node.scrub(pg, wish(ScrubKind::Deep)));
                }
            }
            let step = self.now + ASK_STEP;
            self.run_until(step, |world| world.scene.faults.last_scrub.left.is_empty());
            if self.is_over() {
                return;
            }
            if self.now > limit {
                let left = self.scene.faults.last_scrub.left.clone();
                return self
                    .violate(Invariant::Liveness, format!("{left:?} are not scrubbed; {}", self.describe_groups()));
            }
        }
        self.scene.faults.last_scrub.done = true;
    }

    /// Blocks of copies may be damaged by right: they decay and were not scrubbed since, or a device has lied.
    pub(crate) fn may_be_damaged(&self) -> bool {
        self.plan.mode == Mode::Flips && !self.scene.faults.last_scrub.done || self.has_liar()
    }

    /// A primary has scrubbed its group.
    pub(crate) fn check_scrub(&mut self, pg: PgId, report: &ScrubReport) {
        self.report.scrubs += 1;
        self.trace.remark(self.now, || format!("{pg:?} is scrubbed: {report:?}"));
        if report.kind == ScrubKind::Deep && report.unreadable == 0 {
            self.scene.faults.last_scrub.left.remove(&pg);
        }
        if report.differing > 0 {
            self.violate(Invariant::CopiesEqual, format!("a scrub of {pg:?} has found {report:?}"));
        }
    }
}

/// Somebody who knows of no scrub before wants one.
fn wish(kind: ScrubKind) -> ScrubWish {
    let unseen = ScrubSeen::default();
    ScrubWish { kind, deep: unseen, light: unseen }
}
