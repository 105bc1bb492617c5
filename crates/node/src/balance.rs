//! What is decided over all groups of a shard: when they look for silent copies, how many bring copies up to date at
//! once, and which hand over to the shard that writes to them.

use crate::node::Node;
use crate::throttle::{Throttle, ThrottleReport};
use azekura_base::{DeviceId, Endpoint, PgId};
use azekura_replica::{Client, Group, ScrubKind, TICK};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU8;
use std::time::Duration;

/// Groups of a node that bring copies up to date at once: its shards have equal parts, and each at least one (0008,
/// point 1).
const RESYNCS_MAX: usize = 4;
/// Groups of a node that are scrubbed at once, likewise.
const SCRUBS_MAX: usize = 2;
/// How often it is decided how much the background may move.
const GRANT_INTERVAL: Duration = Duration::from_millis(10);
/// How often writers are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Writes in that time that make a group worth a hand-over.
const WRITES_MIN: u32 = 8;
/// Share of them, in percent, that must come from one shard.
const SHARE_MIN: u32 = 80;
/// A group is not handed over again before.
const HAND_OVER_INTERVAL: Duration = Duration::from_secs(30);
/// Groups handed over at once: their writes wait for a moment while the other copy begins to reign.
const HAND_OVERS_MAX: usize = 8;

/// When what is due.
#[derive(Debug)]
pub(crate) struct Balance {
    next: Duration,
    count_at: Duration,
    /// Groups that were handed over, and until when they stay.
    settled_until: BTreeMap<PgId, Duration>,
    /// Groups that wait for their scrub.
    to_scrub: BTreeMap<PgId, ScrubKind>,
    scrubbing: BTreeSet<PgId>,
    /// Groups with work in the background, as of the last tick.
    background: Vec<(PgId, DeviceId)>,
    throttle: Throttle,
    grant_at: Duration,
    resyncs_max: usize,
    scrubs_max: usize,
}

impl Balance {
    pub(crate) fn new(now: Duration) -> Balance {
        Balance {
            next: now,
            count_at: now + COUNT_INTERVAL,
            settled_until: BTreeMap::new(),
            to_scrub: BTreeMap::new(),
            scrubbing: BTreeSet::new(),
            background: Vec::new(),
            throttle: Throttle::new(now),
            grant_at: now,
            resyncs_max: RESYNCS_MAX,
            scrubs_max: SCRUBS_MAX,
        }
    }

    /// This is for one of so many shards of a node.
    pub(crate) fn set_shards(&mut self, shards: NonZeroU8) {
        let share = |all: usize| (all / usize::from(shards.get())).max(1);
        (self.resyncs_max, self.scrubs_max) = (share(RESYNCS_MAX), share(SCRUBS_MAX));
        self.throttle.set_shards(shards);
    }

    pub(crate) fn next(&self) -> Duration {
        if self.background.is_empty() { self.next } else { self.next.min(self.grant_at) }
    }

    /// A client's request was answered after this time.
    pub(crate) fn answered(&mut self, time: Duration) {
        self.throttle.answered(time);
    }

    pub(crate) fn scrub_ended(&mut self, pg: PgId) {
        self.scrubbing.remove(&pg);
    }
}

impl Node {
    /// Lets time pass for all groups, if it is due.
    pub(crate) fn tick_groups(&mut self) {
        if self.now < self.balance.next {
            return;
        }
        self.balance.next = self.now + TICK;
        let mut resyncs: usize = self.groups.values().map(|group| group.resyncs().count()).sum();
        for (key, group) in &mut self.groups {
            let active = group.resyncs().count();
            let wishes = group.learners().count();
            let start = wishes > active && resyncs < self.balance.resyncs_max;
            resyncs += if start { wishes - active } else { 0 };
            group.allow_resync(start);
            group.tick(self.now);
            group.drain_write_times().for_each(|time| self.balance.throttle.answered(time));
            self.awake.push_back(*key);
        }
        self.start_scrubs();
        let works = self.groups.iter().filter(|(_, group)| group.has_background());
        self.balance.background = works.map(|(key, _)| *key).collect();
        self.balance.grant_at = self.now;
        if self.now >= self.balance.count_at {
            self.balance.count_at = self.now + COUNT_INTERVAL;
            self.hand_over_groups();
        }
    }

    /// Hands out what the background may move now, in equal parts.
    pub(crate) fn grant_background(&mut self) {
        let Balance { background, throttle, grant_at, .. } = &mut self.balance;
        if self.now < *grant_at {
            return;
        }
        *grant_at = self.now + GRANT_INTERVAL;
        let mut used = 0;
        for key in background.iter() {
            used += self.groups.get_mut(key).map_or(0, Group::take_background_use);
        }
        throttle.used(used);
        throttle.advance(self.now, !background.is_empty());
        let grant = throttle.grant().map(|bytes| bytes / background.len().max(1) as u64);
        for key in background.iter() {
            if let Some(group) = self.groups.get_mut(key) {
                group.advance(self.now);
                group.allow_background(grant);
                self.awake.push_back(*key);
            }
        }
    }

    /// How the background is held back.
    #[must_use]
    pub fn throttle(&self) -> ThrottleReport {
        self.balance.throttle.report()
    }

    /// Compares all copies of a group, in its turn, if this node is its primary; [`crate::Effect::Scrubbed`] ends it.
    /// Of two kinds that wait, the deep one is done. Void while the group is being scrubbed.
    pub fn scrub(&mut self, pg: PgId, kind: ScrubKind) {
        if !self.balance.scrubbing.contains(&pg) {
            let waits = self.balance.to_scrub.entry(pg).or_insert(kind);
            *waits = kind.max(*waits);
        }
    }

    fn start_scrubs(&mut self) {
        let groups = &self.groups;
        let goes_on = |pg: &PgId| {
            let mut copies = groups.range((*pg, DeviceId(0))..=(*pg, DeviceId(u32::MAX)));
            copies.any(|(_, group)| group.scrubbing().is_some())
        };
        self.balance.scrubbing.retain(goes_on);
        while self.balance.scrubbing.len() < self.balance.scrubs_max {
            let Some((pg, kind)) = self.balance.to_scrub.pop_first() else { return };
            for (key, group) in self.groups.range_mut((pg, DeviceId(0))..=(pg, DeviceId(u32::MAX))) {
                if group.scrub(kind) {
                    self.balance.scrubbing.insert(pg);
                    self.awake.push_back(*key);
                }
            }
        }
    }

    /// The process is about to end: hands over what it is primary of and takes leave of the other primaries. To be
    /// called again until it gives 0, the number of groups that still wait for something.
    pub fn leave(&mut self) -> usize {
        let mut busy = 0;
        for (key, group) in &mut self.groups {
            busy += usize::from(group.leave());
            self.awake.push_back(*key);
        }
        busy
    }

    /// Hands groups over to the shards that most of their writes come from, where these have a copy in sync: a write
    /// then needs half as many messages.
    fn hand_over_groups(&mut self) {
        let now = self.now;
        self.balance.settled_until.retain(|_, until| now < *until);
        let keys: Vec<(PgId, DeviceId)> = self.groups.keys().copied().collect();
        let mut handed = 0;
        for key in keys {
            let Some(group) = self.groups.get_mut(&key) else { continue };
            let writers = group.take_writers();
            let total: u32 = writers.values().sum();
            let Some((writer, most)) = writers.into_iter().max_by_key(|(_, writes)| *writes) else { continue };
            let settled = self.balance.settled_until.contains_key(&key.0);
            if total < WRITES_MIN || most * 100 < total * SHARE_MIN || settled || handed >= HAND_OVERS_MAX {
                continue;
            }
            let Some(at) = self.writer_at(writer) else { continue };
            let config = self.groups[&key].config();
            let stays = config.in_sync.intersection(&config.members);
            let to = stays.copied().find(|device| self.view.devices.get(device) == Some(&at));
            if let Some(to) = to
                && at != self.identity.endpoint
                && self.groups.get_mut(&key).is_some_and(|group| group.hand_over(to))
            {
                handed += 1;
                self.balance.settled_until.insert(key.0, now + HAND_OVER_INTERVAL);
                self.awake.push_back(key);
            }
        }
    }

    fn writer_at(&self, writer: Client) -> Option<Endpoint> {
        match writer {
            Client::Own => Some(self.identity.endpoint),
            Client::Conn(_) => self.peer_of(writer),
        }
    }
}
