//! Time passes, and everything moves as long as it can.

use super::{Cluster, device};
use azekura_base::DeviceId;
use azekura_replica::*;
use std::time::Duration;

impl Cluster {
    /// Time passes for everybody, in small steps, with heartbeats; whatever can move moves.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            for me in self.copies.keys().copied().collect::<Vec<_>>() {
                let now = self.now;
                let group = &mut self.copies.get_mut(&me).unwrap().group;
                group.tick(now);
                group.allow_resync(true);
                self.run(me);
            }
            self.settle();
            self.beat();
            self.settle();
        }
    }

    /// The first copy misses the second: that one's connections are gone, or, where these stay, it says nothing.
    pub fn lose_second(&mut self, disconnects: bool) {
        if disconnects {
            return self.isolate(1);
        }
        let now = self.now;
        (1..=20).for_each(|step| self.group(0).tick(now + step * Duration::from_millis(50)));
        self.run(device(0));
    }

    /// One step of everything, as long as anything moves.
    pub fn settle(&mut self) {
        let all: Vec<DeviceId> = self.copies.keys().copied().collect();
        for _ in 0..10_000 {
            let mut moved = self.decide() | self.load_edge();
            for from in &all {
                moved |= self.persist(*from) | self.load(*from);
                for to in &all {
                    moved |= self.deliver(*from, *to) | self.deliver_answer(*from, *to);
                }
            }
            if !moved {
                return;
            }
        }
        panic!("it does not settle");
    }

    /// Two exchanges of heartbeats: promises to the primaries, then leases to readers.
    pub fn beat(&mut self) {
        self.beat_once();
        self.beat_once();
    }

    pub(super) fn beat_once(&mut self) {
        let now = self.now;
        for me in self.copies.keys().copied().collect::<Vec<_>>() {
            let group = &self.copies[&me].group;
            let (epoch, committed, low_watermark) = (group.epoch(), group.committed(), group.low_watermark());
            let followers: Vec<(DeviceId, bool)> = group.followers(now).collect();
            for (to, reads) in followers {
                if !self.conns.contains_key(&(me, to)) {
                    continue;
                }
                if reads {
                    self.copies.get_mut(&me).unwrap().group.heartbeat_sent(to, now);
                }
                let lease = if reads { now + LEASE } else { Duration::ZERO };
                if self.copies.get_mut(&to).unwrap().group.heartbeat(epoch, committed, low_watermark, lease, now) {
                    self.copies.get_mut(&me).unwrap().group.heartbeat_ok(to, now, false, now);
                }
                self.run(to);
                self.run(me);
            }
        }
    }

    /// Time passes, and nothing else happens than that everybody notices.
    pub fn tick_all(&mut self, time: Duration) {
        self.now += time;
        for me in self.copies.keys().copied().collect::<Vec<_>>() {
            let now = self.now;
            let group = &mut self.copies.get_mut(&me).unwrap().group;
            group.tick(now);
            group.allow_resync(true);
            self.run(me);
        }
    }
}
