//! Scrubs while everything goes on: whatever happens to the cluster, copies that are in sync never differ.

use crate::cue::Cue;
use crate::plan::Mode;
use crate::report::Invariant;
use crate::world::World;
use azekura_base::PgId;
use azekura_node::{ScrubSeen, ScrubWish};
use azekura_replica::{ScrubKind, ScrubReport};

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
            let unseen = ScrubSeen::default();
            self.tell(life, |node| node.scrub(pg, ScrubWish { kind, deep: unseen, light: unseen }));
        }
        self.cue_at(self.now + next, Cue::Scrub);
    }

    /// A primary has scrubbed its group.
    pub(crate) fn check_scrub(&mut self, pg: PgId, report: &ScrubReport) {
        self.report.scrubs += 1;
        self.trace.remark(self.now, || format!("{pg:?} is scrubbed: {report:?}"));
        if report.differing > 0 {
            self.violate(Invariant::CopiesEqual, format!("a scrub of {pg:?} has found {report:?}"));
        }
    }
}
