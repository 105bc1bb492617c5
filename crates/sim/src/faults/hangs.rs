//! Devices hang: they neither do what they are asked for nor refuse it, for a moment or for so long that their nodes do
//! without them. Or they crawl: each write takes seconds, or so long that only a comparison with other devices tells.

use crate::cue::Cue;
use crate::kernel::device::{Crawl, Device, Silence};
use crate::plan::{Mode, SLOW_MAX};
use crate::world::World;
use azekura_base::DeviceId;
use azekura_replica::{AckRule, GroupConfig};
use std::time::Duration;

/// So many copies stay in sync when one is left behind for its slowness.
const STAYING_MIN: usize = 2;
/// How often it is looked whether the next device may hang, where that happens to one at a time.
const LOOK_MS: u64 = 500;

impl World {
    /// A device hangs, perhaps, and the next such thing is planned.
    pub(crate) fn hang_devices(&mut self) {
        if !self.works() {
            return;
        }
        let alone = self.plan.mode == Mode::Hangs;
        if alone {
            self.check_slow_copies();
        }
        let next = if alone { Duration::from_millis(LOOK_MS) } else { self.scene.hangs.spread_millis(1000, 40_000) };
        self.cue_at(self.now + next, Cue::Hang);
        let now = self.now;
        // What a device was asked for while it crawled still takes seconds when that is over: with a second device that
        // hangs meanwhile it would be two at a time. So it would while the copies on a device stay away that has only
        // just begun to answer: then the other device has the only ones.
        let trouble = |device: &Device| device.silent.is_on(now) || now < device.crawls_until(now) || device.avoided;
        let hangs = self.devices.values().any(trouble);
        if self.scene.wear.calm || alone && (hangs || !self.is_whole()) {
            return;
        }
        let kind = self.hang_a_device();
        self.count(kind);
        self.trace.step(now, 0xfc, || format!("fault: {kind}"));
    }

    fn hang_a_device(&mut self) -> &'static str {
        let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
        let random = &mut self.scene.hangs;
        let (id, kind) = (*random.pick(&ids), random.below(100));
        let until = self.now + random.spread_millis(500, 60_000);
        let Some(device) = self.devices.get_mut(&id) else { return "nothing" };
        let what = match kind {
            0..50 => {
                (device.silent.reads_until, device.silent.writes_until) = (until, until);
                "device that hangs"
            }
            50..75 => {
                device.silent.writes_until = until;
                "device on which writes hang"
            }
            75..88 => {
                (device.silent.crawls_until, device.silent.crawl) = (until, Crawl::Seconds);
                "device that crawls"
            }
            _ => {
                (device.silent.crawls_until, device.silent.crawl) = (until, Crawl::Tenths);
                "device that is slow"
            }
        };
        self.answers_at(until, id);
        self.trace.step(self.now, u64::from(id.0), || format!("{id:?}: {what} until {until:?}"));
        what
    }

    /// For so long an operation may wait for devices that have crawled since it was asked for. One that is slow may
    /// become a primary's just then: it takes as long again to begin its reign.
    pub(crate) fn slowness_borne(&self, since: Duration) -> Duration {
        let crawls = self.devices.values().filter(|device| device.crawls_until(self.now) > since);
        let borne = |device: &Device| match device.silent.crawl {
            Crawl::Seconds => SLOW_MAX,
            Crawl::Tenths => SLOW_MAX * 2,
        };
        crawls.map(borne).max().unwrap_or_default()
    }

    /// A device has been slow since then that a group must wait for: a class that demands all copies that are in sync,
    /// or a copy of each site, has nobody to leave behind (docs/decisions/0021).
    pub(crate) fn waits_for_a_slow_copy(&self, since: Duration) -> bool {
        let slow = |device: &DeviceId| {
            self.devices
                .get(device)
                .is_some_and(|device| device.silent.crawl == Crawl::Tenths && device.crawls_until(self.now) > since)
        };
        let demanded = |config: &GroupConfig| {
            config.ack != AckRule::All || config.in_sync.len() <= (config.copies_min as usize).max(STAYING_MIN)
        };
        let groups = &self.configuration.view().groups;
        groups.values().any(|config| config.in_sync.iter().any(slow) && demanded(config))
    }

    /// All devices answer again.
    pub(crate) fn end_hangs(&mut self) {
        let now = self.now;
        let hung: Vec<DeviceId> =
            self.devices.iter().filter(|(_, device)| device.silent.is_on(now)).map(|(id, _)| *id).collect();
        for id in hung {
            if let Some(device) = self.devices.get_mut(&id) {
                let Silence { reads_until, writes_until, crawls_until, .. } = &mut device.silent;
                [reads_until, writes_until, crawls_until].into_iter().for_each(|until| *until = now.min(*until));
            }
            self.device_answers(id);
        }
    }
}
