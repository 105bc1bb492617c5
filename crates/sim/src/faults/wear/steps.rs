//! What happens to devices, and what may be asked of them then.

use super::LATE;
use crate::cue::Cue;
use crate::faults::matrix::Column;
use crate::kernel::device::Device;
use crate::plan::Mode;
use crate::world::World;
use azekura_base::DeviceId;
use azekura_replica::{AckRule, GroupConfig, GroupState};
use std::time::Duration;

/// In mode `devices`, the most time until the next thing happens to a device, in milliseconds.
const OFTEN_MS_MAX: u64 = 6000;

impl World {
    /// Something happens to a device, and the next such thing is planned.
    pub(crate) fn wear_devices(&mut self) {
        if !self.works() {
            return;
        }
        let (least_ms, most_ms) = Column::Failing.pause_ms();
        let most_ms = if self.plan.mode == Mode::Devices { OFTEN_MS_MAX } else { most_ms };
        let next = self.scene.wear.random.spread_millis(least_ms, most_ms);
        self.cue_at(self.now + next, Cue::Wear);
        if !self.is_calm_over() {
            return;
        }
        let roll = self.scene.wear.random.below(100);
        let kind = Column::Failing.strike(roll)(self);
        self.count(kind);
        self.trace.step(self.now, 0xfb, || format!("fault: {kind}"));
    }

    /// After a lie, nothing else happens until all groups have found out: the promise goes no further. True when that
    /// is over, or was not.
    pub(in crate::faults) fn is_calm_over(&mut self) -> bool {
        if self.scene.wear.calm && self.has_lost_writes() && self.is_whole() {
            self.trace.remark(self.now, || "the lie has been found out".into());
            self.set_calm(false);
            self.drain_liars();
        }
        !self.scene.wear.calm
    }

    /// While all is calm, the configuration store answers at once.
    pub(in crate::faults) fn set_calm(&mut self, calm: bool) {
        self.scene.wear.calm = calm;
        self.configuration.is_quick = calm;
    }

    /// All members of all groups are in sync, and all of them follow.
    pub(in crate::faults) fn is_whole(&self) -> bool {
        let groups = &self.configuration.view().groups;
        if groups.values().any(|config| config.in_sync != config.members) {
            return false;
        }
        let steady = |state| matches!(state, GroupState::Active | GroupState::Following);
        let mut copies = 0;
        for node in self.nodes() {
            let of_members = node
                .groups()
                .filter(|group| groups.get(&group.pg).is_some_and(|config| config.members.contains(&group.device)));
            copies += of_members.filter(|group| steady(group.state)).count();
        }
        copies == groups.values().map(|config| config.members.len()).sum::<usize>()
    }

    /// Nothing acknowledged is gone when this device is.
    pub(in crate::faults) fn may_lose(&self, device: DeviceId) -> bool {
        let groups = &self.configuration.view().groups;
        groups.iter().all(|(pg, config)| {
            let proposed = self.proposals(*pg).filter(|next| next.version == config.version + 1);
            std::iter::once(config).chain(proposed).all(|config| self.survives(config, device))
        })
    }

    fn survives(&self, config: &GroupConfig, device: DeviceId) -> bool {
        let in_sync = &config.in_sync;
        if !in_sync.contains(&device) {
            // What a device has lost that lied, only a copy may have that was left behind since.
            return in_sync.iter().any(|other| self.is_sound(*other));
        }
        let gone = in_sync.iter().filter(|other| **other == device || !self.is_sound(**other)).count();
        match config.ack {
            AckRule::All => gone < in_sync.len(),
            // One copy may lack what is acknowledged.
            AckRule::Majority | AckRule::EachSite => gone == 1 && in_sync.len() > 1,
        }
    }

    /// The device keeps what it has, and gives it.
    pub(in crate::faults) fn is_sound(&self, device: DeviceId) -> bool {
        let sound = |device: &Device| {
            let answers = !device.refuses.is_on(self.now) && !device.silent.is_on(self.now);
            answers && !device.hurt && !device.lied && !device.retired && !device.is_unproven()
        };
        self.devices.get(&device).is_some_and(sound) && !self.is_out(device)
    }

    /// A device that may be lost, if there is one.
    pub(in crate::faults) fn pick_expendable(&mut self) -> Option<DeviceId> {
        let expendable = self.devices.keys().filter(|id| self.is_sound(**id) && self.may_lose(**id));
        let expendable: Vec<DeviceId> = expendable.copied().collect();
        (!expendable.is_empty()).then(|| *self.scene.wear.random.pick(&expendable))
    }

    /// Nodes complain by right: a device has refused something, or lied. What one had lost, others may have noted as
    /// lost while nobody else was there to give it, and find it when it is there again, long after that device.
    pub(crate) fn complaints_are_right(&self) -> bool {
        self.scene.wear.has_lied || self.devices.values().any(|device| device.hurt || device.lied)
    }

    /// A device has lied, and blocks of it may be damaged.
    pub(crate) fn has_liar(&self) -> bool {
        self.devices.values().any(|device| device.lied)
    }

    /// Operations may fail by right: the device of a copy that is in sync refuses to read, or has just done so, or has
    /// lied and may be damaged. A gateway that does not know yet of other copies has nobody else to ask. `since`: when
    /// the operation was asked for; what it waits for beside the part that has failed may take its time.
    pub(crate) fn may_fail(&self, since: Duration) -> bool {
        let refuses = |device: &DeviceId| {
            self.devices.get(device).is_some_and(|device| {
                let until = device.refuses.reads_until;
                device.lied || until > Duration::ZERO && since < until.saturating_add(LATE)
            })
        };
        self.configuration.view().groups.values().any(|config| config.in_sync.iter().any(refuses))
    }
}
