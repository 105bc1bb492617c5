//! What a volume's clients may ask for in a second.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most that the clients of a volume may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoLimits {
    /// Requests a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes read and written, a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// What was not asked for in so many seconds may be asked for later, all at once.
    #[serde(default)]
    pub burst_seconds: u32,
}

/// The fewest requests a second that a volume can be limited to. An initiator with 128 commands waits 13 s for the
/// last of them; Linux gives up a command after 30 s.
pub const LIMIT_IOPS_MIN: u64 = 10;
/// The most: more than any volume does.
pub const LIMIT_IOPS_MAX: u64 = 10_000_000;
/// The fewest bytes a second (1 MiB). The longest request has 32 MiB, and is not to take longer than a client waits.
pub const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// The most (100 GiB).
pub const LIMIT_BYTES_MAX: u64 = 100 << 30;
/// The longest burst, seconds.
pub const LIMIT_BURST_SECONDS_MAX: u32 = 3600;

impl IoLimits {
    /// True when nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.iops.is_none() && self.bytes_per_second.is_none()
    }

    /// Why these are no limits for a volume, if so.
    ///
    /// # Errors
    /// The reason, for people.
    pub fn check(&self) -> Result<(), String> {
        let out = |value: Option<u64>, least, most| value.is_some_and(|v| !(least..=most).contains(&v));
        if out(self.iops, LIMIT_IOPS_MIN, LIMIT_IOPS_MAX) {
            return Err(format!("a volume may do {LIMIT_IOPS_MIN} to {LIMIT_IOPS_MAX} requests a second"));
        }
        if out(self.bytes_per_second, LIMIT_BYTES_MIN, LIMIT_BYTES_MAX) {
            return Err("a volume may move 1MiB to 100GiB a second".to_owned());
        }
        if self.burst_seconds > LIMIT_BURST_SECONDS_MAX {
            return Err(format!("a burst saves at most {LIMIT_BURST_SECONDS_MAX} seconds"));
        }
        if self.is_none() && self.burst_seconds > 0 {
            return Err("a burst needs a limit".to_owned());
        }
        Ok(())
    }

    /// For how long what is not asked for is saved.
    #[must_use]
    pub fn burst(&self) -> Duration {
        Duration::from_secs(u64::from(self.burst_seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_can_be() {
        let limits = |iops, bytes_per_second, burst_seconds| IoLimits {
            iops: Some(iops).filter(|iops| *iops != 1),
            bytes_per_second: Some(bytes_per_second).filter(|bytes| *bytes != 1),
            burst_seconds,
        };
        // One stands for none.
        for good in [limits(1, 1, 0), limits(10, 1, 0), limits(1, 1 << 20, 3600), limits(10_000_000, 100 << 30, 1)] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        for bad in [
            limits(0, 1, 0),
            limits(9, 1, 0),
            limits(10_000_001, 1, 0),
            limits(1, (1 << 20) - 1, 0),
            limits(1, (100 << 30) + 1, 0),
            limits(10, 1, 3601),
            limits(1, 1, 1),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
