//! When faults are over everything comes to rest: what was begun ends, everything can be read, and copies are equal.

use crate::cue::Cue;
use crate::plan::{Mode, QUIET_MAX};
use crate::report::Invariant;
use crate::workloads::snapshots::CLEARING_MAX;
use crate::world::World;
use azekura_base::DeviceId;
use azekura_gateway::ANSWER_WAIT;
use azekura_replica::{AckRule, GroupState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often the copies are looked at while they settle.
pub(crate) const SETTLE_STEP: Duration = Duration::from_millis(50);
/// From this share of live blocks on, in percent, a copy on a device of segments and batches as small as these can't
/// take what it lacks: each batch has a header, and what is left of a segment may be too little for the next.
const NEARLY_FULL_PERCENT: u64 = 85;
/// And from this one on there is no room for what has been let in already. A device in use takes nothing from clients
/// then.
const FULL_PERCENT: u64 = 95;

impl World {
    /// Everything that was begun ends, everything can be read, and the copies are equal.
    pub(crate) fn quiet_down(&mut self) {
        self.let_copies_stay(false);
        // What hosts have left behind comes no more, or copies would be compared while it is written.
        self.notice_abandoned(Duration::ZERO);
        let limit = self.now + QUIET_MAX + self.giving_up_max();
        let idle = World::is_idle;
        // What was sent to a device that kept silent, while there were faults, is asked for again by then.
        let soon = self.now + ANSWER_WAIT + SETTLE_STEP;
        let (is_idle, asked_again) = (self.run_until(soon, idle), self.asked_again());
        if !is_idle && !self.run_until(limit, idle) {
            let (clients, layers) = (self.scene.clients.describe(), self.describe_layers());
            let what = format!("not done after {QUIET_MAX:?}: {clients}; {}; {layers}", self.describe_groups());
            return self.does_not_end(what);
        }
        let asked_again = self.asked_again().saturating_sub(asked_again);
        if asked_again > 0 && !self.has_too_small_a_device() {
            // Nothing is in their way any more: whoever had them has forgotten them.
            let what = format!("{asked_again} parts of requests had to be asked for again; {}", self.describe_groups());
            return self.violate(Invariant::Liveness, what);
        }
        while !self.settled() {
            let step = self.now + SETTLE_STEP;
            self.run_until(step, |_| false);
            if self.is_over() {
                return;
            }
            if self.now > limit {
                let what = format!("groups do not settle: {}; {}", self.describe_groups(), self.describe_operator());
                return self.does_not_end(what);
            }
        }
        self.let_copies_stay(true);
        if self.scene.fsx.on {
            self.fsx_compare_everywhere();
        }
        let readers = if self.scene.fsx.on { Vec::new() } else { self.endpoints() };
        for at in readers {
            self.read_snapshots(at);
            self.relay_reads_all(at);
            self.read_everything(at);
            let limit = self.now + QUIET_MAX + self.queueing_max() + self.giving_up_max();
            if !self.run_until(limit, |world| {
                world.scene.clients.idle() && world.cuts.idle() && world.scene.snapshots.idle()
            }) {
                let what = format!("final reads are not done: {}", self.scene.clients.describe());
                return self.violate(Invariant::Liveness, what);
            }
        }
        if (self.scene.snapshots.on || self.scene.fsx.on) && self.scene.snapshots.clearing {
            if self.scene.fsx.on {
                self.fsx_clear();
            }
            self.cue_at(self.now, Cue::Snapshot);
            let limit = self.now + CLEARING_MAX;
            if !self.run_until(limit, World::layers_are_gone) {
                let what = format!("layers do not go: {}; {}", self.describe_layers(), self.describe_groups());
                return self.does_not_end(what);
            }
            self.scene.snapshots.clearing = false;
            if self.scene.fsx.on {
                self.fsx_compare_everywhere();
                self.fsx_count_space();
            }
        }
        self.wait_for_mending();
        self.scrub_everything();
        self.check_accounts();
        self.let_copies_answer(AckRule::All);
        self.compare_copies();
        self.let_copies_answer(self.plan.ack);
        self.record_unanswered();
        self.check_history();
    }

    /// All processes are up, and nothing is under way.
    fn is_idle(&self) -> bool {
        self.endpoints().into_iter().all(|at| self.ready_life(at).is_some())
            && self.scene.clients.idle()
            && self.holders().idle()
            && self.reservers().idle()
            && self.cuts.idle()
            && self.scene.snapshots.idle()
            && self.scene.lost.idle()
            && self.is_rekeyed()
            && !self.has_planned_stop()
    }

    /// Where leaves of the map decay, the groups write blocks anew of which a copy knows nothing.
    fn wait_for_mending(&mut self) {
        if self.plan.mode != Mode::Flips {
            return;
        }
        let unknown = |world: &World| -> Vec<DeviceId> {
            let ids = world.devices.keys().copied();
            ids.filter(|id| world.store_of(*id).is_some_and(|store| store.has_unknown_blocks())).collect()
        };
        let limit = self.now + QUIET_MAX + self.giving_up_max();
        if !self.run_until(limit, |world| unknown(world).is_empty()) {
            let what = format!("chunks of {:?} have blocks of which nothing is known", unknown(self));
            self.violate(Invariant::Liveness, what);
        }
    }

    /// All copies are where they should be, all members of all groups are in sync, follow their primaries and have
    /// committed the same; former members have given up their copies.
    fn settled(&self) -> bool {
        let groups = &self.configuration.view().groups;
        if !self.devices_rest() || self.configuration.is_restoring() || !self.copies_are_home() {
            return false;
        }
        let is_left = |device: &DeviceId| self.is_out(*device);
        if groups.values().any(|config| config.in_sync != config.members || !config.leaving.iter().all(is_left)) {
            return false;
        }
        let mut ends = BTreeMap::new();
        let mut copies = 0;
        for node in self.nodes() {
            for group in node.groups() {
                if !groups.get(&group.pg).is_some_and(|config| config.members.contains(&group.device)) {
                    continue;
                }
                copies += 1;
                let end = *ends.entry(group.pg).or_insert(group.committed);
                let steady = matches!(group.state, GroupState::Active | GroupState::Following);
                if !steady || group.committed != end || group.prepared != end {
                    return false;
                }
            }
        }
        copies == groups.values().map(|config| config.members.len()).sum::<usize>()
    }

    /// Parts of requests that gateways have asked for again.
    fn asked_again(&self) -> u64 {
        self.nodes().map(|node| node.gateway().asked_again()).sum()
    }

    /// A device is full of what volumes and snapshots hold; or a copy that is not in sync lies on one that is nearly
    /// so: it can't take what it lacks. Devices, volumes and snapshots are drawn without regard to each other.
    pub(crate) fn has_too_small_a_device(&self) -> bool {
        let groups = self.configuration.view().groups.values();
        let lacking: BTreeSet<DeviceId> =
            groups.flat_map(|config| config.members.difference(&config.in_sync)).copied().collect();
        self.devices.iter().any(|(id, device)| {
            let space = self.store_of(*id).map(|store| store.space());
            let limit = if lacking.contains(id) { NEARLY_FULL_PERCENT } else { FULL_PERCENT };
            // No segment with blocks of a leaf that is lost with its count can be cleaned: on devices as small as these
            // that may be most segments.
            let locked = device.uncounted && lacking.contains(id);
            locked || space.is_some_and(|space| space.live * 100 >= space.capacity * limit)
        })
    }

    /// Something does not end that has to, unless it lacks room. To give something back takes room, too.
    fn does_not_end(&mut self, what: String) {
        if !self.has_too_small_a_device() {
            return self.violate(Invariant::Liveness, what);
        }
        // What could be read was right, at least.
        self.trace.remark(self.now, || "a device is too small for its copies: no end is waited for".into());
        self.count("device too small for its copies");
        self.check_accounts();
        self.record_unanswered();
        self.check_history();
    }
}
