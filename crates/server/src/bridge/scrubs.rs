//! Which groups are due for a scrub: the primary's node looks into the configuration now and then.

use crate::args::NodeArgs;
use crate::driver::commands::Command;
use crate::driver::messages::Handles;
use azekura_base::{NodeId, PgId, Shard};
use azekura_meta::MetaClient;
use azekura_meta::time::unix_seconds;
use azekura_model::{Model, ScrubRecord, ScrubTimes};
use azekura_node::{ScrubSeen, ScrubWish};
use azekura_replica::ScrubKind;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
const HOUR: u64 = 3600;

/// Time between two scrubs of a group, seconds; without one, only what somebody asks for is scrubbed.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    deep: Option<u64>,
    light: Option<u64>,
}

impl Intervals {
    /// As the node's options say.
    pub fn of(args: &NodeArgs) -> Intervals {
        let interval = |count: u32, unit: u64| (count > 0).then(|| u64::from(count) * unit);
        Intervals { deep: interval(args.scrub_days, 24 * HOUR), light: interval(args.light_scrub_hours, HOUR) }
    }

    /// What a group with these scrubs needs at time `now`, seconds since 1970.
    fn due(self, scrub: &ScrubRecord, now: u64) -> Option<ScrubWish> {
        let is_due = |times: &ScrubTimes, interval: Option<u64>| {
            let late = interval.is_some_and(|interval| now >= times.done.saturating_add(interval));
            late || times.wanted > times.done
        };
        let kind = match (is_due(&scrub.deep, self.deep), is_due(&scrub.light, self.light)) {
            (true, _) => ScrubKind::Deep,
            (false, true) => ScrubKind::Light,
            (false, false) => return None,
        };
        let seen = |times: &ScrubTimes| ScrubSeen { wanted: times.wanted, done: times.done };
        Some(ScrubWish { kind, deep: seen(&scrub.deep), light: seen(&scrub.light) })
    }
}

/// Groups whose scrubs have ended and are not noted yet: by their records they are still due.
#[derive(Clone, Default)]
pub struct Noting(Arc<Mutex<BTreeSet<PgId>>>);

impl Noting {
    fn with<T>(&self, look: impl FnOnce(&mut BTreeSet<PgId>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The group's scrub is to be noted.
    pub fn begin(&self, pg: PgId) {
        self.with(|groups| groups.insert(pg));
    }

    /// The scrub is noted, or nobody will.
    pub fn end(&self, pg: PgId) {
        self.with(|groups| groups.remove(&pg));
    }

    fn has(&self, pg: PgId) -> bool {
        self.with(|groups| groups.contains(&pg))
    }
}

/// Hands the groups that are due to the shards of their primaries, which take them in turn, as long as the task runs;
/// but for those that are being noted.
pub fn start(client: MetaClient, shards: Handles, node: NodeId, intervals: Intervals) -> (Noting, JoinHandle<()>) {
    let noting = Noting::default();
    let known = noting.clone();
    let looking = async move {
        loop {
            tokio::time::sleep(LOOK_PAUSE).await;
            for (shard, pg, wish) in due(&client.model(), node, intervals, unix_seconds()) {
                if !known.has(pg) {
                    shards.send(shard, Command::Scrub(pg, wish));
                }
            }
        }
    };
    (noting, tokio::spawn(looking))
}

/// The groups with a primary on `node` that are due at time `now`, seconds since 1970, and the shards of the primaries.
fn due(model: &Model, node: NodeId, intervals: Intervals, now: u64) -> Vec<(Shard, PgId, ScrubWish)> {
    let groups = model.groups.values().filter_map(|group| {
        let primary = model.devices.get(&group.primary).filter(|device| device.node == node)?;
        Some((primary.shard, group.id, intervals.due(&group.scrub, now)?))
    });
    groups.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrub(deep: (u64, u64), light: (u64, u64)) -> ScrubRecord {
        let times = |(wanted, done)| ScrubTimes { wanted, done, findings: 0 };
        ScrubRecord { deep: times(deep), light: times(light), ..ScrubRecord::default() }
    }

    #[test]
    fn what_is_late_or_wanted_is_due() {
        let kind = |intervals: Intervals, scrub: &ScrubRecord, now| intervals.due(scrub, now).map(|wish| wish.kind);
        let intervals = Intervals { deep: Some(700), light: Some(100) };
        assert_eq!(kind(intervals, &scrub((0, 1000), (0, 1000)), 1099), None);
        assert_eq!(kind(intervals, &scrub((0, 1000), (0, 1000)), 1100), Some(ScrubKind::Light));
        assert_eq!(kind(intervals, &scrub((0, 1000), (0, 1650)), 1700), Some(ScrubKind::Deep));
        assert_eq!(kind(intervals, &scrub((0, 1000), (1051, 1050)), 1052), Some(ScrubKind::Light));
        assert_eq!(
            kind(intervals, &scrub((1051, 1000), (1051, 1050)), 1052),
            Some(ScrubKind::Deep),
            "it includes both"
        );
        let never = Intervals { deep: None, light: None };
        assert_eq!(kind(never, &scrub((0, 0), (0, 0)), u64::MAX), None);
        assert_eq!(kind(never, &scrub((7, 0), (0, 0)), 7), Some(ScrubKind::Deep));
    }
}
