//! Snapshots: their records, the cut that makes one, and a volume's protection (docs/decisions/0011-snapshots.md).

use azekura_base::{Generation, LayerId, NodeId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::Unknown;

/// Most snapshots that a volume has.
pub const VOLUME_SNAPSHOTS_MAX: usize = 1_024;

/// Why a snapshot was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotOrigin {
    /// Somebody asked for it.
    Person,
    /// The volume's protection makes one every so often, and thins them.
    Schedule,
    /// It keeps what the volume was before it was reverted.
    Revert,
    /// It keeps what was cut off when the volume was made smaller.
    Resize,
    /// A clone of the present was made from it.
    Clone,
}

impl std::fmt::Display for SnapshotOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SnapshotOrigin::Person => "person",
            SnapshotOrigin::Schedule => "schedule",
            SnapshotOrigin::Revert => "revert",
            SnapshotOrigin::Resize => "resize",
            SnapshotOrigin::Clone => "clone",
        })
    }
}

/// A volume as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// The volume.
    pub volume: VolumeId,
    /// Its name, unique among the volume's.
    pub name: String,
    /// The layer with its blocks.
    pub layer: LayerId,
    /// The volume's size at that time, bytes.
    pub size_bytes: u64,
    /// When it was asked for, seconds since 1970.
    pub seconds: u64,
    /// And nanoseconds.
    #[serde(default)]
    pub nanos: u32,
    /// Why it was made.
    pub origin: SnapshotOrigin,
    /// The cut that made it: snapshots of several volumes at one instant have the same.
    pub cut: String,
    /// The volume's attachments at that time: while they stay the same and nobody has the volume, nothing is written.
    #[serde(default)]
    pub generation: Generation,
    /// It is deleted at this time, seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// A new head is being put into the place of a volume's: until it is there or the cut is called off, groups that know
/// of it take no writes of the volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CutRecord {
    /// 128 random bits; those of several volumes at one instant have the same.
    pub id: String,
    /// The layer that will be the head.
    pub next: LayerId,
    /// The node that does it.
    pub node: NodeId,
    /// Since when, seconds since 1970.
    pub seconds: u64,
    /// And nanoseconds.
    #[serde(default)]
    pub nanos: u32,
}

/// From an age on, one snapshot in so long a time is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thinning {
    /// One for each of these times, seconds.
    pub every_seconds: u64,
    /// As far back as this, seconds.
    pub keep_seconds: u64,
}

/// Snapshots that come and go by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectionRecord {
    /// Pause between two, seconds.
    pub every_seconds: u64,
    /// All are kept for so long, seconds.
    pub keep_seconds: u64,
    /// And then fewer and fewer.
    #[serde(default)]
    pub then: Vec<Thinning>,
}
