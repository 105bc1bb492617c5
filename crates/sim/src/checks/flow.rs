//! What is on its way is bounded, and a copy that is slower than the load gets in.

use crate::kernel::process::Life;
use crate::plan::{Mode, QUIET_MAX, WRITE_BLOCKS_MAX};
use crate::report::Invariant;
use crate::world::World;
use azekura_base::{BLOCK_SIZE, DeviceId, PgId};
use azekura_replica::AckRule;
use std::collections::BTreeSet;
use std::time::Duration;

/// What one group may have on its way to a copy that learns beside its node's window: the least share, another write, a
/// repair of twice that.
const BESIDE_LEARNING_BYTES: usize = (64 << 10) + 4 * WRITE_BLOCKS_MAX as usize * BLOCK_SIZE;
/// And to a copy that lags: the writes that are committed together.
const BESIDE_LAGGING_BYTES: usize = 12 * WRITE_BLOCKS_MAX as usize * BLOCK_SIZE;
/// Links that carry so much are slower than the load, and not so slow that whoever is behind them counts as slow.
const FAIR_BYTES_PER_SECOND: u64 = 2_000_000;
/// Records that may wait for one device: those of all clients, and some beside them.
const RECORDS_MAX: u64 = 2000;

/// Over a narrow link a heartbeat is behind no more than this: what the link has begun to take, and what comes before
/// the next border.
const BEAT_BEHIND_BYTES: u64 = 224 << 10;
/// And it takes so much time besides.
const BEAT_DELAY_MAX: Duration = Duration::from_millis(50);
/// The longest time of a link that is not slowed down.
const SLOWEST: Duration = Duration::from_millis(5);

impl World {
    /// A process has taken a turn: what it has sent without need is bounded, and so is what waits for its devices.
    pub(crate) fn check_windows(&mut self, life: Life) {
        if self.plan.mode != Mode::Slow {
            return;
        }
        let Some(node) = self.node_at(life.endpoint()) else { return };
        let (windows, groups) = (self.plan.windows, self.plan.groups as usize);
        let limit = match self.plan.ack {
            AckRule::All => windows.window_bytes + BESIDE_LEARNING_BYTES * groups,
            _ => windows.lag_bytes_max + BESIDE_LAGGING_BYTES * groups,
        };
        let over = node.windows().find(|(_, bytes)| *bytes > limit);
        let waiting = |device: &DeviceId| node.store(*device).map_or(0, |store| store.statistics().records_waiting);
        let crowded = node.device_ids().find(|device| waiting(device) > RECORDS_MAX);
        if let Some((to, bytes)) = over {
            let what = format!("{bytes} bytes are on their way from {life:?} to {to:?} that no write waits for");
            self.violate(Invariant::Bounded, what);
        } else if let Some(device) = crowded {
            self.violate(Invariant::Bounded, format!("more than {RECORDS_MAX} records wait for {device:?}"));
        }
    }

    /// Clients go on, nothing fails any more, and each copy gets in at some time although its link carries less than
    /// they write.
    pub(crate) fn let_slow_copies_in(&mut self) {
        self.scene.faults.over = true;
        self.end_faults();
        self.scene.clients.go_on();
        let limit = self.now + 2 * QUIET_MAX;
        let mut missing: BTreeSet<(PgId, DeviceId)> = BTreeSet::new();
        for (pg, config) in &self.configuration.view().groups {
            missing.extend(config.members.iter().map(|device| (*pg, *device)));
        }
        while !missing.is_empty() && !self.is_over() && self.now < limit {
            let until = self.now + crate::checks::rest::SETTLE_STEP;
            self.run_until(until, |_| false);
            let groups = &self.configuration.view().groups;
            missing.retain(|(pg, device)| groups.get(pg).is_some_and(|config| !config.in_sync.contains(device)));
        }
        self.scene.clients.stop();
        let fair = self.plan.narrow.is_some_and(|bytes| bytes >= FAIR_BYTES_PER_SECOND);
        if !missing.is_empty() && fair && self.plan.ack == AckRule::All && !self.has_too_small_a_device() {
            let what = format!("{missing:?} do not get in while clients write; {}", self.describe_groups());
            self.violate(Invariant::Liveness, what);
        }
    }

    /// A heartbeat has come over a narrow link: it was not held up by data.
    pub(crate) fn check_beat(&mut self, life: Life, sent: Duration, slowness: u32) {
        let Some(narrow) = self.network().narrow() else { return };
        let time = self.now.saturating_sub(sent);
        let behind = Duration::from_micros(BEAT_BEHIND_BYTES * 1_000_000 / narrow.bytes_per_second);
        if time > behind + BEAT_DELAY_MAX + SLOWEST * slowness {
            self.violate(Invariant::Bounded, format!("a heartbeat to {life:?} took {time:?}"));
        }
    }
}
