//! Properties of a controller (Base section 3.1.3), and what a host does by setting them: enable, reset, shut down
//! (Base sections 3.5.2, 3.6.2 and 3.7.2).

use crate::completion::Status;
use crate::identify::{ControllerType, VERSION};

/// Controller Capabilities.
pub const CAP: u32 = 0x00;
/// Version.
pub const VS: u32 = 0x08;
/// Controller Configuration.
pub const CC: u32 = 0x14;
/// Controller Status.
pub const CSTS: u32 = 0x1c;

/// CAP.TO: how long enabling, a reset or a shutdown takes at the most, in units of 500 ms (60 s). Long enough for
/// requests that wait for a group whose primary is missed.
pub const TIMEOUT_STEPS: u8 = 120;

const READY: u32 = 1;
const FATAL: u32 = 2;
const SHUTTING_DOWN: u32 = 1 << 2;
const SHUT_DOWN: u32 = 2 << 2;
const SHUTDOWN: u32 = 3 << 2;

/// What follows from a property that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    No,
    /// The controller takes commands.
    Enabled,
    /// All queues end, and what was asked for on them: [`Properties::quiet`] is owed.
    Ends,
}

/// The properties of one controller.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    controller_type: ControllerType,
    entries_max: u16,
    configuration: u32,
    status: u32,
    /// [`Properties::quiet`] is owed.
    ends: bool,
}

impl Properties {
    /// Those of a new controller, whose queues have at most so many entries (2 at least).
    #[must_use]
    pub fn new(controller_type: ControllerType, entries_max: u16) -> Properties {
        Properties { controller_type, entries_max: entries_max.max(2), configuration: 0, status: 0, ends: false }
    }

    /// The controller takes commands other than Fabrics.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status & READY != 0 && self.configuration & 1 != 0 && self.status & (FATAL | SHUTDOWN) == 0
    }

    /// The value of a property that has 8 bytes, or 4.
    ///
    /// # Errors
    /// When there is none of that size at this offset.
    pub fn get(&self, offset: u32, is_long: bool) -> Result<u64, Status> {
        match (offset, is_long) {
            // MQES, 0's based; CQR, as queues of fabrics are contiguous; TO; CSS, the NVM command set.
            (CAP, true) => Ok(u64::from(self.entries_max - 1) | 1 << 16 | u64::from(TIMEOUT_STEPS) << 24 | 1 << 37),
            (VS, false) => Ok(u64::from(VERSION)),
            (CC, false) => Ok(u64::from(self.configuration)),
            (CSTS, false) => Ok(u64::from(self.status)),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Sets a property.
    ///
    /// # Errors
    /// When there is none of that size at this offset that can be set.
    pub fn set(&mut self, offset: u32, is_long: bool, value: u64) -> Result<Change, Status> {
        if offset != CC || is_long {
            return Err(Status::INVALID_FIELD);
        }
        let (before, now) = (self.configuration, value as u32);
        self.configuration = now;
        let (was_enabled, is_enabled) = (before & 1 != 0, now & 1 != 0);
        // SHN: a normal shutdown, or an abrupt one, which here is the same.
        let wants_shutdown = now >> 14 & 3 != 0 && before >> 14 & 3 == 0;
        if was_enabled && !is_enabled {
            let already = std::mem::replace(&mut self.ends, true);
            return Ok(if already { Change::No } else { Change::Ends });
        }
        if wants_shutdown {
            self.status = self.status & !SHUTDOWN | SHUTTING_DOWN;
            let already = std::mem::replace(&mut self.ends, true);
            return Ok(if already { Change::No } else { Change::Ends });
        }
        if is_enabled && !was_enabled {
            // While an earlier reset is not over, the host may not (Base section 3.1.3.5); nor with what is not there.
            if self.ends || !self.is_possible() {
                self.status |= FATAL;
                return Ok(Change::No);
            }
            self.status = READY;
            return Ok(Change::Enabled);
        }
        Ok(Change::No)
    }

    /// Pages of 4 KiB, round robin, the NVM command set, and entries of the sizes that there are.
    fn is_possible(&self) -> bool {
        let cc = self.configuration;
        let has_sizes = cc >> 16 & 0xf == 6 && cc >> 20 & 0xf == 4;
        cc >> 4 & 0x3ff == 0 && (has_sizes || self.controller_type == ControllerType::Discovery)
    }

    /// The controller can't go on (CFS): until it is reset it takes no commands.
    pub fn fail(&mut self) {
        self.status |= FATAL;
    }

    /// Nothing that was asked for before [`Change::Ends`] can change anything any more.
    ///
    /// # Panics
    /// When none is owed.
    pub fn quiet(&mut self) {
        assert!(std::mem::take(&mut self.ends), "nothing was to end");
        if self.status & SHUTDOWN == SHUTTING_DOWN {
            self.status = self.status & !SHUTDOWN | SHUT_DOWN;
        }
        if self.configuration & 1 == 0 {
            // A reset clears all, a shutdown too.
            (self.status, self.configuration) = (0, 0);
        }
    }
}
