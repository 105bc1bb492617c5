//! Whether the saved map does anything at all.

use std::time::Duration;

/// The saved map is given up when it has done nothing for so long while it was asked for something (0015).
pub(super) const MAP_PATIENCE: Duration = Duration::from_secs(10);
/// Longer between two ticks counts as this long: the whole process may have stood still, and the map with it (0015).
const TICK_MAX: Duration = Duration::from_secs(1);

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    /// What the saved map has been asked for and has not done.
    under_way: u32,
    /// How long the map has done nothing of what was asked.
    silent: Duration,
}

impl Watchdog {
    pub fn asked(&mut self) {
        self.under_way += 1;
    }

    pub fn done(&mut self) {
        self.under_way -= 1;
        self.silent = Duration::ZERO;
    }

    /// Time passes. True when it is to be given up.
    pub fn tick(&mut self, passed: Duration) -> bool {
        if self.under_way > 0 {
            self.silent += passed.min(TICK_MAX);
        }
        self.silent >= MAP_PATIENCE
    }
}
