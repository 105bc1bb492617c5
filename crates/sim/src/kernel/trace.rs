//! The record of a run: a hash over all steps, and their text on demand.

use std::time::Duration;

/// See the module's description.
pub(crate) struct Trace {
    on: bool,
    hash: u64,
    pub(crate) steps: u64,
}

impl Trace {
    pub(crate) fn new(on: bool) -> Trace {
        Trace { on, hash: 0xcbf2_9ce4_8422_2325, steps: 0 }
    }

    /// One step: `what` must tell it from others at the same time.
    pub(crate) fn step(&mut self, now: Duration, what: u64, text: impl FnOnce() -> String) {
        self.steps += 1;
        for part in [now.as_nanos() as u64, what] {
            self.hash = (self.hash ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        if self.on {
            println!("{:>14.6}  {}", now.as_secs_f64(), text());
        }
    }

    /// Text only.
    pub(crate) fn remark(&self, now: Duration, text: impl FnOnce() -> String) {
        if self.on {
            println!("{:>14.6}  {}", now.as_secs_f64(), text());
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}
