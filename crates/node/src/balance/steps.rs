//! What a shard decides over all its groups.

use super::{Balance, COUNT_INTERVAL, nearness};
use crate::effect::ScrubWish;
use crate::node::Node;
use crate::throttle::ThrottleReport;
use azekura_base::{DeviceId, Endpoint, PgId};
use azekura_replica::{Client, Group, TICK};
use std::time::Duration;

/// How often it is decided how much the background may move.
const GRANT_INTERVAL: Duration = Duration::from_millis(10);
/// Writes in that time that make a group worth a hand-over.
const WRITES_MIN: u32 = 8;
/// A group is not handed over again before.
const HAND_OVER_INTERVAL: Duration = Duration::from_secs(30);
/// Groups handed over at once: their writes wait for a moment while the other copy begins to reign.
const HAND_OVERS_MAX: usize = 8;

impl Node {
    /// Lets time pass for all groups, if it is due.
    pub(crate) fn tick_groups(&mut self) {
        if self.now < self.balance.next {
            return;
        }
        self.balance.next = self.now + TICK;
        let mut resyncs: usize = self.copies.groups.values().map(|group| group.resyncs().count()).sum();
        for (key, group) in &mut self.copies.groups {
            let active = group.resyncs().count();
            let wishes = group.learners().count();
            let start = wishes > active && resyncs < self.balance.resyncs_max;
            resyncs += if start { wishes - active } else { 0 };
            group.allow_resync(start);
            group.tick(self.now);
            group.drain_write_times().for_each(|time| self.balance.throttle.answered(time));
            self.copies.awake.push_back(*key);
        }
        self.start_scrubs();
        let works = self.copies.groups.iter().filter(|(_, group)| group.has_background());
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
            used += self.copies.groups.get_mut(key).map_or(0, Group::take_background_use);
        }
        throttle.used(used);
        let busy = !background.is_empty();
        let waiting = busy && self.copies.groups.values().any(Group::keeps_writes_waiting);
        throttle.advance(self.now, busy, waiting);
        let grant = throttle.grant().map(|bytes| bytes / background.len().max(1) as u64);
        for key in background.iter() {
            if let Some(group) = self.copies.groups.get_mut(key) {
                group.advance(self.now);
                group.allow_background(grant);
                self.copies.awake.push_back(*key);
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
    pub fn scrub(&mut self, pg: PgId, wish: ScrubWish) {
        if !self.balance.scrubbing.contains_key(&pg) {
            let waits = self.balance.to_scrub.entry(pg).or_insert(wish);
            *waits = waits.and(wish);
        }
    }

    fn start_scrubs(&mut self) {
        let groups = &self.copies.groups;
        let goes_on = |pg: &PgId, _: &mut ScrubWish| {
            let mut copies = groups.range((*pg, DeviceId(0))..=(*pg, DeviceId(u32::MAX)));
            copies.any(|(_, group)| group.scrubbing().is_some())
        };
        self.balance.scrubbing.retain(goes_on);
        while self.balance.scrubbing.len() < self.balance.scrubs_max {
            let Some((pg, wish)) = self.balance.to_scrub.pop_first() else { return };
            for (key, group) in self.copies.groups.range_mut((pg, DeviceId(0))..=(pg, DeviceId(u32::MAX))) {
                if group.scrub(wish.kind) {
                    self.balance.scrubbing.insert(pg, wish);
                    self.copies.awake.push_back(*key);
                }
            }
        }
    }

    /// The process is about to end: hands over what it is primary of and takes leave of the other primaries. To be
    /// called again until it gives 0, the number of groups that still wait for something.
    pub fn leave(&mut self) -> usize {
        let mut busy = 0;
        for (key, group) in &mut self.copies.groups {
            busy += usize::from(group.leave());
            self.copies.awake.push_back(*key);
        }
        busy
    }

    /// Hands groups over to the shards that most of their writes come from, where these have a copy in sync: a write
    /// then needs half as many messages. Else to a copy in the rack or in the site of those shards: writes and reads
    /// then cross to other racks and sites only for the other copies.
    fn hand_over_groups(&mut self) {
        let now = self.now;
        self.balance.settled_until.retain(|_, until| now < *until);
        let keys: Vec<(PgId, DeviceId)> = self.copies.groups.keys().copied().collect();
        let mut handed = 0;
        for key in keys {
            let Some(group) = self.copies.groups.get_mut(&key) else { continue };
            let writers = group.take_writers();
            let total: u32 = writers.values().sum();
            let settled = self.balance.settled_until.contains_key(&key.0);
            if total < WRITES_MIN || settled || handed >= HAND_OVERS_MAX {
                continue;
            }
            let writers = writers.into_iter().filter_map(|(writer, writes)| Some((self.writer_at(writer)?, writes)));
            let writers: Vec<(Endpoint, u32)> = writers.collect();
            if let Some(to) = self.nearer(key, &writers, total)
                && self.copies.groups.get_mut(&key).is_some_and(|group| group.hand_over(to))
            {
                handed += 1;
                self.balance.settled_until.insert(key.0, now + HAND_OVER_INTERVAL);
                self.copies.awake.push_back(key);
            }
        }
    }

    /// The copy in sync of a group that is nearer than this one to where most of its writes come from.
    fn nearer(&self, key: (PgId, DeviceId), writers: &[(Endpoint, u32)], total: u32) -> Option<DeviceId> {
        let view = &self.directory.view;
        let config = self.copies.groups.get(&key)?.config();
        let stays = config.in_sync.intersection(&config.members);
        let copies: Vec<(DeviceId, Endpoint)> =
            stays.filter_map(|device| Some((*device, *view.devices.get(device)?))).collect();
        nearness::nearer(view, self.identity.endpoint, &copies, writers, total)
    }

    fn writer_at(&self, writer: Client) -> Option<Endpoint> {
        match writer {
            Client::Own => Some(self.identity.endpoint),
            Client::Conn(_) => self.peer_of(writer),
        }
    }
}
