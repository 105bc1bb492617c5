//! A group's configuration: what the cluster agrees on.

use azekura_base::{AckRule, DeviceId, Epoch, Sequence};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A group's configuration, as the cluster agrees on it. The configuration changes by compare-and-swap only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// Raised by one at every change: what compare-and-swap compares.
    pub version: u64,
    /// Raised whenever another process becomes primary.
    pub epoch: Epoch,
    /// The copy that orders writes.
    pub primary: DeviceId,
    /// The incarnation of the primary's process; `None` until a process on that device has claimed the group.
    pub primary_incarnation: Option<u64>,
    /// The copies that hold every acknowledged write; contains the primary.
    pub in_sync: BTreeSet<DeviceId>,
    /// Copies that were in sync and are not any more: each still held everything up to here.
    pub away: BTreeMap<DeviceId, Sequence>,
    /// All devices that are to have a copy.
    pub members: BTreeSet<DeviceId>,
    /// Devices that were to have one, and have perhaps not given it up yet.
    pub leaving: BTreeSet<DeviceId>,
    /// With fewer copies in sync than this, nothing is written.
    pub copies_min: u32,
    /// When a write is acknowledged. Never changes.
    pub ack: AckRule,
    /// Copies that the group is to have. Never changes.
    pub copies: u32,
    /// The sites of devices, where the rule asks for them.
    pub sites: BTreeMap<DeviceId, Arc<str>>,
}

impl GroupConfig {
    /// A new group on `members`, all in sync because all are empty.
    #[must_use]
    pub fn new(primary: DeviceId, members: BTreeSet<DeviceId>) -> GroupConfig {
        GroupConfig {
            version: 1,
            epoch: Epoch(1),
            primary,
            primary_incarnation: None,
            in_sync: members.clone(),
            away: BTreeMap::new(),
            copies: members.len() as u32,
            members,
            leaving: BTreeSet::new(),
            copies_min: 1,
            ack: AckRule::All,
            sites: BTreeMap::new(),
        }
    }

    /// The device is to have a copy, or has one that writes wait for.
    #[must_use]
    pub fn needs(&self, device: DeviceId) -> bool {
        self.members.contains(&device) || self.in_sync.contains(&device)
    }

    /// Enough copies are in sync for writing.
    pub(crate) fn is_writable(&self) -> bool {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::acknowledges_on_any() {
            return true;
        }
        self.in_sync.len() >= self.copies_min as usize
    }

    /// This configuration with the next version, to be changed and proposed.
    pub(crate) fn next(&self) -> GroupConfig {
        GroupConfig { version: self.version + 1, ..self.clone() }
    }

    /// Takes a copy out of the in-sync set; the copy holds everything up to `complete`.
    pub(crate) fn remove(&mut self, device: DeviceId, complete: Sequence) {
        self.in_sync.remove(&device);
        if self.members.contains(&device) {
            self.away.insert(device, complete);
        }
    }
}
