//! How long a host may be silent (Base section 3.9). The front end keeps the time.

use crate::completion::Status;
use std::time::Duration;

/// KAS: steps of the timeout, in units of 100 ms.
pub const STEPS: u16 = 10;

/// The keep-alive timeout of a controller: any command is a sign of life (traffic based keep-alive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// None when it is off.
    timeout: Option<Duration>,
}

impl KeepAlive {
    /// CTRATT bit 6: traffic based keep-alive.
    pub const ATTRIBUTE: u32 = 1 << 6;

    /// With KATO of Connect or of Set Features, in milliseconds, rounded up to the controller's steps; 0 turns it off.
    ///
    /// # Errors
    /// When it is longer than can be said.
    pub fn new(timeout_ms: u32) -> Result<KeepAlive, Status> {
        let rounded = timeout_ms.checked_next_multiple_of(u32::from(STEPS) * 100).ok_or(Status::KEEP_ALIVE_INVALID)?;
        Ok(KeepAlive { timeout: (rounded > 0).then(|| Duration::from_millis(u64::from(rounded))) })
    }

    /// The timeout that is kept, in milliseconds; 0 when it is off.
    #[must_use]
    pub fn timeout_ms(&self) -> u32 {
        self.timeout.map_or(0, |timeout| timeout.as_millis() as u32)
    }

    /// How long the host may be silent, unless it is off.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}
