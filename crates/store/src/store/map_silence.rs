//! How long the saved map has done nothing of what it was asked for.

use std::time::Duration;

/// Longer between two ticks counts as this long: the whole process may have stood still, and the map with it (0015).
const TICK_MAX: Duration = Duration::from_secs(1);

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct MapSilence {
    /// What the saved map has been asked for and has not done.
    under_way: u32,
    /// How long the map has done nothing of what was asked.
    silent: Duration,
}

impl MapSilence {
    pub fn asked(&mut self) {
        self.under_way += 1;
    }

    pub fn done(&mut self) {
        self.under_way -= 1;
        self.silent = Duration::ZERO;
    }

    /// Time passes.
    pub fn tick(&mut self, passed: Duration) {
        if self.under_way > 0 {
            self.silent += passed.min(TICK_MAX);
        }
    }

    /// How long it lasts.
    pub fn length(&self) -> Duration {
        self.silent
    }
}
