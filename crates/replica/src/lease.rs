//! Durations of the failure detector (decision 0004). Only durations are compared between machines, never clocks.
//!
//! A primary's heartbeat carries its own stamp and echoes the secondary's last one. The secondary's answer promises to
//! follow nobody else for [`GRACE`] from its receipt, so the primary may serve for [`LEASE`] < GRACE from the moment
//! it *sent* the heartbeat. The secondary may serve reads for LEASE from the moment it sent the stamp that the
//! primary echoes, so a primary that has sent no heartbeat for LEASE knows that the secondary has stopped.

use crate::group::{Group, Role};
use std::time::Duration;

/// Time between two heartbeats to one node.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);
/// How long a lease allows serving.
pub const LEASE: Duration = Duration::from_millis(1000);
/// How long a secondary follows nobody but the primary that it last heard.
pub const GRACE: Duration = Duration::from_millis(1500);

const _: () = assert!(HEARTBEAT_INTERVAL.as_millis() * 3 < LEASE.as_millis());
const _: () = assert!(LEASE.as_millis() < GRACE.as_millis());

impl Group {
    /// The clock may have stood still (decision 0022), so nothing is known of the time that has passed since the leases
    /// of this copy began: they are over, as primary and for readers.
    pub fn void_leases(&mut self) {
        match &mut self.role {
            Role::Primary(primary) => {
                primary.peers.values_mut().for_each(|peer| peer.lease_until = Duration::ZERO);
            }
            Role::Secondary(secondary) => secondary.lease_until = Duration::ZERO,
        }
    }
}
