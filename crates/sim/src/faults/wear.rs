//! What happens to devices: they are lost, refuse, lie, are drained and replaced. Never so much that acknowledged
//! writes could be gone by right: of every group, enough copies that are in sync stay as they are.

mod steps;

use crate::kernel::random::Random;
use azekura_base::DeviceId;
use std::time::Duration;

/// Operations that were asked for within this time of a refusal's end may be spoilt by it.
const LATE: Duration = Duration::from_secs(1);

/// Draws what happens to devices.
pub(crate) struct Wear {
    pub(crate) random: Random,
    /// A disk has lied, and not all groups have found out.
    pub(crate) calm: bool,
    /// A disk loses writes, or has just done so.
    pub(super) losing: Option<Losing>,
    /// A disk has lied in this run, or is about to.
    pub(super) has_lied: bool,
}

impl Wear {
    pub(crate) fn new(random: Random) -> Wear {
        Wear { random, calm: false, losing: None, has_lied: false }
    }

    /// A disk loses writes, or is in use that has lost some.
    pub(crate) fn loses(&self) -> bool {
        self.losing.is_some()
    }
}

/// A disk that loses writes, or has lost some.
#[derive(Clone, Copy, Debug)]
pub(super) struct Losing {
    pub(super) device: DeviceId,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Writes are being lost, until then at most.
    Under(End, Duration),
    /// It is used as it is until then, and its process may start anew afterwards.
    Used { until: Duration, crashes: bool },
}

/// What comes after the last write that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The device's node crashes.
    Crash,
    /// All nodes do.
    CrashOfAll,
    /// The process goes on for a while, and then crashes or not.
    Work,
}
