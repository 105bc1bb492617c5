//! A disk has a cache that it denies: when its power fails, some of what it has called durable last is not there, in
//! the log and in the saved map.
//!
//! What is promised then (docs/decisions/0005): the other copies that are in sync have everything, and a group does not
//! begin before they have been compared. That holds as long as they can be reached in the time that a copy waits for
//! others, so nothing else happens until all groups are whole again.

use super::CALM_STEP;
use crate::plan::QUIET_MAX;
use crate::world::World;
use azekura_base::{DeviceId, NodeId};
use std::time::Duration;

/// Nodes come back within this time: sooner than anybody takes over from one that is missed.
const BACK_MS_MAX: u64 = 200;

/// Where disks lose writes, they do so in so many percent of lies.
const LOST_WRITES_PERCENT: u64 = 60;

impl World {
    /// The end of a run: everything that is durable is still there after one more crash of all nodes.
    pub(crate) fn crash_in_the_end(&mut self) {
        let lies = self.has_operator() && self.scene.wear.random.chance(50);
        if !lies || self.lie_about_flushes() == "nothing" {
            self.crash_everything();
        }
        self.end_calm();
    }

    /// Waits until a lie is found out.
    pub(crate) fn end_calm(&mut self) {
        if self.scene.wear.calm {
            let limit = self.now + QUIET_MAX;
            while !self.has_lost_writes() && self.now < limit {
                let step = self.now + CALM_STEP;
                self.run_until(step, |_| false);
            }
            self.run_until(limit, World::is_whole);
            self.set_calm(false);
        }
    }

    /// A device that may lie: everything is whole and well, and the others of its groups have what it has.
    pub(super) fn pick_liar(&mut self) -> Option<DeviceId> {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let awake = |node: &NodeId| {
            // Of its process, no shard stands still alone either.
            let lives = self.lives_on(*node);
            let works = !lives.is_empty() && lives.iter().all(|life| self.stalled(*life).is_none());
            works && self.configuration.away(*node, self.now).is_none()
        };
        if !nodes.iter().all(awake) || self.has_planned_stop() || !self.is_whole() {
            return None;
        }
        let id = self.pick_expendable()?;
        self.scene.wear.has_lied = true;
        self.heal_links();
        self.devices.values_mut().for_each(|device| device.slow = (1, Duration::ZERO));
        Some(id)
    }

    /// A disk lies about its flushes, or, where that is asked for, loses single writes.
    pub(super) fn lie_somehow(&mut self) -> &'static str {
        if self.plan.writes_lost && self.scene.wear.random.chance(LOST_WRITES_PERCENT) {
            self.lose_writes()
        } else {
            self.lie_about_flushes()
        }
    }

    /// One node loses power, or all of them, and one disk lies.
    pub(super) fn lie_about_flushes(&mut self) -> &'static str {
        let Some(id) = self.pick_liar() else { return "nothing" };
        let all = self.scene.wear.random.chance(60);
        if let Some(device) = self.devices.get_mut(&id) {
            device.lies = true;
        }
        self.set_calm(true);
        self.trace.step(self.now, u64::from(id.0), || format!("power fails, and {id:?} lies"));
        self.crash_shortly((!all).then(|| self.node_of(id)));
        if all { "crash of all nodes with a lying disk" } else { "crash with a lying disk" }
    }

    /// A node loses power, or all of them do, and is back before anybody misses it.
    pub(super) fn crash_shortly(&mut self, only: Option<NodeId>) {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        for node in nodes {
            if only.is_none_or(|only| only == node) {
                self.crash(node);
                let back = self.now + self.scene.wear.random.spread_millis(1, BACK_MS_MAX);
                self.start_at(back, node);
            }
        }
    }
}
