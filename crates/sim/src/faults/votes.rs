//! A copy's process ends after its vote for a new primary and before the new epoch is recorded, while the former
//! primary, which reaches neither its successor nor the configuration store, still reaches that copy.

use crate::cue::Cue;
use crate::faults::drawn::Watched;
use crate::kernel::process::Life;
use crate::world::World;
use azekura_replica::AckRule;
use azekura_wire::Message;
use std::time::Duration;

/// How long clients ask for nothing before the primary is parted from its successor: both have the same by then.
const LULL: Duration = Duration::from_millis(500);

impl World {
    /// Such a fault is possible, and its turn. Where every write waits for all copies the former primary can do nothing
    /// alone.
    pub(super) fn is_time_for_votes(&mut self) -> bool {
        let percent = self.plan.directed_percent;
        let possible = self.plan.ack != AckRule::All && self.plan.mode.has_partitions() && !self.is_lull();
        possible && self.scene.faults.directed.chance(percent)
    }

    /// Clients wait for a moment that would not come while they work.
    pub(crate) fn is_lull(&self) -> bool {
        self.scene.faults.watched.as_ref().is_some_and(|watched| self.now < watched.until)
    }

    /// Looks for a group whose primary is soon to be parted from one of its secondaries and from the store.
    pub(super) fn forget_a_vote(&mut self) -> &'static str {
        let groups: Vec<_> = self.configuration.view().groups.iter().filter(|(_, c)| c.in_sync.len() > 2).collect();
        if groups.is_empty() {
            return "nothing";
        }
        let (pg, config) = *self.scene.faults.directed.pick(&groups);
        let others: Vec<_> = config.in_sync.iter().filter(|device| **device != config.primary).collect();
        let successor = self.scene.faults.directed.pick(&others);
        let node = |device| self.devices.get(device).map(|device| device.node);
        let (Some(former), Some(successor)) = (node(&config.primary), node(successor)) else { return "nothing" };
        let until = self.now + LULL + self.scene.faults.directed.spread_millis(3000, 9000);
        self.scene.faults.watched = Some(Watched { pg: *pg, former, successor, until });
        self.cue_at(self.now + LULL, Cue::Part);
        "forgotten vote"
    }

    /// The primary loses its successor and the store.
    pub(crate) fn part_for_votes(&mut self) {
        let Some(Watched { former, successor, until, .. }) = self.scene.faults.watched else { return };
        self.cut(former, successor, until);
        self.cut(successor, former, until);
        self.configuration.lose(former, until);
    }

    /// A process sends a message: perhaps the one with which a new primary, who has the votes, opens its epoch.
    pub(crate) fn watch_votes(&mut self, life: Life, message: &Message) {
        let Message::NewEpoch(news) = message else { return };
        let now = self.now;
        let expected = |watched: &mut Watched| {
            now < watched.until && watched.pg == news.pg && watched.former != life.node && news.opens_at.is_some()
        };
        let voter = self.devices.get(&news.device).and_then(|device| self.process_on(device.node));
        if let Some(voter) = voter
            && self.scene.faults.watched.take_if(expected).is_some()
        {
            let after = self.scene.faults.directed.micros(1, 3000);
            self.cue_at(now + after, Cue::Kill(voter));
        }
    }

    /// The process that has voted ends, if it still runs, and another one starts soon.
    pub(crate) fn kill(&mut self, life: Life) {
        if self.is_alive(life) {
            let time = self.scene.faults.directed.spread_millis(1, 300);
            self.crash_for(life.node, time);
        }
    }
}
