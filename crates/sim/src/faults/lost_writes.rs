//! A disk calls a few writes done and keeps nothing of them, or a part, while those before and after them are there.
//!
//! The process that runs notices only when it reads such a block again. One that opens the log does, too, when
//! something behind the gap proves that it was durable: then the device is refused, as a damaged one. Without any proof
//! the log ends at the gap, and the device has forgotten as much as one that lies about its flushes.
//!
//! A gap and an absent copy are two faults. So nothing else happens, but what clients, scrubs and drains do, until the
//! device is refused, or somebody takes it away.

use crate::faults::wear::{End, Losing, Stage};
use crate::world::World;
use azekura_base::DeviceId;
use std::time::Duration;

/// So many writes after the last that was lost prove that it had been durable: more than batches can be in flight,
/// twice.
const PROOF_WRITES: u64 = 16;
/// If there is nothing to lose, or no proof, by then, the node crashes as it is.
const PATIENCE: Duration = Duration::from_secs(5);

impl World {
    /// One disk begins to lose writes.
    pub(super) fn lose_writes(&mut self) -> &'static str {
        let Some(device) = self.pick_liar() else { return "nothing" };
        let random = &mut self.scene.wear.random;
        let (skip, writes) = (random.below(20), random.between(1, 5));
        let end = match random.below(100) {
            0..30 => End::Crash,
            30..50 => End::CrashOfAll,
            _ => End::Work,
        };
        self.trace.step(self.now, u64::from(device.0), || {
            format!("{device:?} loses {writes} writes after {skip}, then: {end:?}")
        });
        if let Some(device) = self.devices.get_mut(&device) {
            device.disk.lose(skip, writes);
            (device.hurt, device.lied, device.lost_writes) = (true, true, true);
        }
        self.scene.wear.losing = Some(Losing { device, stage: Stage::Under(end, self.now + PATIENCE) });
        self.set_calm(true);
        "disk that loses writes"
    }

    /// True when no disk loses writes, and none is in use that has.
    pub(super) fn has_lost_writes(&mut self) -> bool {
        let Some(Losing { device, stage }) = self.scene.wear.losing else { return true };
        let (works, now) = (self.works(), self.now);
        let Some(state) = self.devices.get_mut(&device) else {
            self.scene.wear.losing = None; // Its node could not open it.
            return true;
        };
        let is_over = |until| !works || now >= until;
        match stage {
            Stage::Under(end, until) => {
                let (left, kept) = state.disk.losing();
                if !is_over(until) && (left > 0 || end == End::Work && kept < PROOF_WRITES) {
                    return false;
                }
                state.disk.stop_losing();
                let is_proven = end == End::Work && left == 0 && kept >= PROOF_WRITES;
                if !is_proven {
                    self.trace.remark(self.now, || format!("power fails after {device:?} has lost writes"));
                    self.crash_shortly((end != End::CrashOfAll).then(|| self.node_of(device)));
                }
                if self.scene.wear.random.chance(50) {
                    self.drain_device(device);
                }
                self.use_on(device, is_proven);
            }
            Stage::Used { until, crashes: true } if is_over(until) => {
                self.trace.remark(self.now, || format!("power fails long after {device:?} has lost writes"));
                self.crash_shortly(Some(self.node_of(device)));
                self.use_on(device, false);
            }
            Stage::Used { until, .. } if is_over(until) && self.is_whole() && self.may_lose(device) => {
                self.trace.remark(self.now, || format!("somebody takes {device:?} away"));
                let node = self.node_of(device);
                self.crash(node);
                self.lose_device(device);
                let back = self.now + self.scene.wear.random.spread_millis(1, 1000);
                self.start_at(back, node);
            }
            Stage::Used { .. } => {}
        }
        false
    }

    /// Nobody has found out, or nobody minds, for a while.
    fn use_on(&mut self, device: DeviceId, may_crash: bool) {
        let until = self.now + self.scene.wear.random.spread_millis(100, 10_000);
        let crashes = may_crash && self.scene.wear.random.chance(50);
        self.scene.wear.losing = Some(Losing { device, stage: Stage::Used { until, crashes } });
    }
}
