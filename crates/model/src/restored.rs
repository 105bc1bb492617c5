//! What the configuration says after it was restored from a backup (docs/decisions/0019-restored-configuration.md).

use std::collections::{BTreeMap, BTreeSet};

use azekura_base::{DeviceId, Epoch, LayerId, PgId, Sequence};
use serde::{Deserialize, Serialize};

/// A node has proof that the configuration went back. While one such record is there, no node serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoubtRecord {
    /// The node's name.
    pub node: String,
    /// What it has found.
    pub reason: String,
    /// The life of the configuration that it has seen.
    pub life: String,
    /// The highest revision that it has seen.
    pub revision: i64,
    /// When, RFC 3339.
    pub since: String,
}

/// Somebody has said that the configuration was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredRecord {
    /// When, RFC 3339.
    pub at: String,
    /// The records are being changed: until all of them are, no node starts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub under_way: bool,
    /// Devices that need not say what they hold: nobody waits for them, and what they hold does not count.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub without: BTreeSet<DeviceId>,
}

/// A group that is closed until all devices have said what they hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedRecord {
    /// Nothing shows that the group was opened with the configuration that was restored before somebody said so: copies
    /// differ only in how far they are.
    pub one_history: bool,
    /// Why it stays closed although all devices have spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What a device holds of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRecord {
    /// The last epoch that is recorded.
    pub epoch: Epoch,
    /// Everything up to here is committed.
    pub committed: Sequence,
    /// The last prepared write.
    pub prepared: Sequence,
    /// Nothing is missing up to here.
    pub complete: Sequence,
}

/// What a device holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingsRecord {
    /// The device.
    pub device: DeviceId,
    /// The life of the configuration in which it was said.
    pub life: String,
    /// What it holds of groups.
    pub groups: BTreeMap<PgId, HeldRecord>,
    /// Layers that it has blocks of and that the configuration does not know, and what each lies on as far as its node
    /// knows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_layers: BTreeMap<LayerId, Option<LayerId>>,
}
