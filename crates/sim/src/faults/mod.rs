//! Faults: what goes wrong, one file a kind.

mod connections;
mod crashes;
mod flips;
mod slowness;

use crate::Mode;
use crate::events::Event;
use crate::random::Random;
use crate::world::World;
use azekura_base::DeviceId;
use std::collections::BTreeMap;

/// Draws faults.
pub(crate) struct Faults {
    pub(crate) random: Random,
    /// Faults so far, by kind.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// The device whose blocks decay, in that mode.
    pub(crate) decaying: DeviceId,
}

impl World {
    /// A fault happens, and the next one is planned.
    pub(crate) fn fault(&mut self) {
        if !self.working {
            return;
        }
        let kind = match (self.plan.mode, self.faults.random.below(100)) {
            (Mode::Calm, _) => return,
            (Mode::Connections, 0..60) | (Mode::Crash, 0..35) => self.break_some_connection(),
            (Mode::Connections, 60..80) | (Mode::Crash, 35..45) => self.slow_a_link(),
            (Mode::Connections, 80..) | (Mode::Crash, 45..55) => self.slow_a_disk(),
            (Mode::Crash, 55..85) => self.crash_one(),
            (Mode::Crash, 85..) => self.crash_all(),
            (Mode::Flips, 0..90) => self.flip_a_bit(),
            (Mode::Flips, 90..) => self.break_some_connection(),
        };
        *self.faults.counts.entry(kind).or_default() += 1;
        self.trace.step(self.now, 0xfa, || format!("fault: {kind}"));
        let next = match self.plan.mode {
            Mode::Flips => self.faults.random.spread_millis(100, 3000),
            _ => self.faults.random.spread_millis(20, 2000),
        };
        self.queue.push(self.now + next, Event::Fault);
    }
}
