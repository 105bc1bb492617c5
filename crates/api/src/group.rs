//! Placement groups, and how far their copies are brought up to date.

use azekura_base::{DeviceId, PgId};
use serde::{Deserialize, Serialize};

use crate::GroupScrubs;

/// How a placement group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GroupHealth {
    /// Every copy is in sync and on a living node.
    Healthy,
    /// It serves with fewer copies than its class wants, or will at the next request, or brings one up to date.
    Degraded,
    /// It serves reads only: fewer copies than its class's minimum are there.
    ReadOnly,
    /// It does not serve: its primary is away or not ready.
    Unavailable,
}

/// A placement group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupView {
    /// Its number.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub id: PgId,
    /// Its class.
    pub class: String,
    /// The epoch of its primary.
    pub epoch: u64,
    /// The device that orders its writes.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub primary: DeviceId,
    /// Devices that hold every acknowledged write.
    #[cfg_attr(test, schemars(with = "Vec<u32>"))]
    pub in_sync: Vec<DeviceId>,
    /// Devices that are to hold a copy.
    #[cfg_attr(test, schemars(with = "Vec<u32>"))]
    pub members: Vec<DeviceId>,
    /// How it is.
    pub health: GroupHealth,
    /// What the primary says about it; empty while its node does not answer.
    pub state: String,
    /// The newest committed write, as far as its primary says.
    pub committed: u64,
    /// When it was scrubbed.
    pub scrub: GroupScrubs,
}

/// Copies that are being made or brought up to date.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResyncStatus {
    /// Groups that lack a copy on a living device, or are getting one.
    pub groups: usize,
    /// Of those, the ones whose copy is being sent now; the others wait for their turn.
    pub groups_active: usize,
    /// Chunks that the active ones have to compare.
    pub chunks: u64,
    /// Of those, the ones that are done.
    pub chunks_done: u64,
    /// Payload bytes sent for them.
    pub bytes: u64,
    /// The active ones.
    pub copies: Vec<ResyncView>,
}

/// One copy that is being brought up to date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResyncView {
    /// The group.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub group: PgId,
    /// The device that gets the copy.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub device: DeviceId,
    /// Chunks to compare; 0 until they are listed.
    pub chunks: u64,
    /// Of those, the ones that are done.
    pub chunks_done: u64,
    /// Payload bytes sent.
    pub bytes: u64,
}
