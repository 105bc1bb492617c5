//! A copy whose device is slow, and nothing else, is left behind where enough others stay (docs/decisions/0021).

use crate::kernel::device::{Crawl, Device};
use crate::report::Invariant;
use crate::world::World;
use azekura_base::{DeviceId, Endpoint, PgId, Sequence};
use azekura_replica::{AckRule, GroupConfig};
use std::collections::BTreeMap;
use std::time::Duration;

/// So many copies stay in sync when one is left behind.
const STAYING_MIN: usize = 2;
/// Writes to a group come so often that its slow copies are measured.
const WRITES_WITHIN: Duration = Duration::from_secs(2);
/// By then a slow copy is left behind: twice the time after which that is due, and time to measure and to hand over.
const LEFT_WITHIN: Duration = Duration::from_secs(25);

/// For how long groups have waited for slow copies that they could do without.
#[derive(Default)]
pub(crate) struct SlowCopies {
    waiting: BTreeMap<(PgId, DeviceId), Waiting>,
}

struct Waiting {
    since: Duration,
    /// How far the group was when it had last gone on, and when that was.
    prepared: Sequence,
    went_on: Duration,
}

impl World {
    /// Looks how long groups that are written to have waited for slow copies.
    pub(crate) fn check_slow_copies(&mut self) {
        let now = self.now;
        let before = std::mem::take(&mut self.scene.faults.slow_copies.waiting);
        for (pg, device) in self.slow_copies() {
            let Some(prepared) = self.prepared_by_primary(pg) else { continue };
            let Waiting { since, prepared: last, went_on } = before
                .get(&(pg, device))
                .map_or(Waiting { since: now, prepared, went_on: now }, |waiting| Waiting { ..*waiting });
            let went_on = if prepared > last { now } else { went_on };
            if now > went_on + WRITES_WITHIN {
                continue;
            }
            self.scene.faults.slow_copies.waiting.insert((pg, device), Waiting { since, prepared, went_on });
            if now > since + LEFT_WITHIN {
                let what = format!("{pg:?} has waited for {device:?}, which is slow, since {since:?}");
                self.violate(Invariant::Liveness, what);
            }
        }
    }

    /// Copies in sync on slow devices, of groups that wait for all copies and have enough without them.
    fn slow_copies(&self) -> Vec<(PgId, DeviceId)> {
        let is_slow = |device: &Device| device.silent.crawl == Crawl::Tenths && self.now < device.silent.crawls_until;
        let can_spare = |config: &GroupConfig| {
            config.ack == AckRule::All && config.in_sync.len() > STAYING_MIN.max(config.copies_min as usize)
        };
        let groups = self.configuration.view().groups.iter().filter(|(_, config)| can_spare(config));
        let copies = groups.flat_map(|(pg, config)| config.in_sync.iter().map(|device| (*pg, *device)));
        copies.filter(|(_, device)| self.devices.get(device).is_some_and(is_slow)).collect()
    }

    fn prepared_by_primary(&self, pg: PgId) -> Option<Sequence> {
        let primary = self.configuration.view().groups.get(&pg)?.primary;
        let (node, shard) = (self.node_of(primary), self.shard_of(primary));
        let node = self.node_at(Endpoint { node, shard })?;
        node.groups().find(|group| (group.pg, group.device) == (pg, primary)).map(|group| group.prepared)
    }
}
