//! Snapshots, what is done with them, and the protection that makes them.

use azekura_base::{LogicalBlock, SecretText};
use serde::{Deserialize, Serialize};

use crate::{EndpointView, Period, VolumeView};

/// Why a snapshot was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotView {
    /// Its volume.
    pub volume: String,
    /// Its name.
    pub name: String,
    /// The layer with its blocks.
    pub layer: u64,
    /// The volume's size at that time, bytes.
    pub size_bytes: u64,
    /// What clients count its blocks in, bytes.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "u32"))]
    pub logical_block_bytes: LogicalBlock,
    /// When it was made, RFC 3339.
    pub created: String,
    /// The same, seconds since 1970.
    pub seconds: u64,
    /// And nanoseconds.
    pub nanos: u32,
    /// Why it was made.
    pub origin: SnapshotOrigin,
    /// The same for all that were made at one instant.
    pub cut: String,
    /// What was written between the snapshot before it and this one, and is still shown by it or by what came later:
    /// bytes on the devices, with all copies. At most that much comes back when it is deleted.
    #[serde(default)]
    pub held_bytes: u64,
    /// What would come back if it were deleted now: bytes on the devices, with all copies. Only told of a single
    /// snapshot that is asked for, since it has to be measured. Nothing while two others (a snapshot and a clone, say)
    /// lie on it: it comes back when one of them is deleted, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed_bytes: Option<u64>,
    /// Devices whose part is not, or not all, in `freed_bytes`, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freed_missing: Vec<String>,
    /// When it ends by itself, RFC 3339.
    #[serde(default)]
    pub expires: Option<String>,
    /// Volumes that were made from it.
    #[serde(default)]
    pub clones: Vec<String>,
    /// Where clients open it, read-only.
    #[serde(default)]
    pub endpoints: Vec<EndpointView>,
}

/// Query of `GET /v1/volumes/{name}/snapshots/{snapshot}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ShowSnapshot {
    /// Longest time to measure what would come back, milliseconds; 0: it is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure_ms: Option<u64>,
}

/// Body of `POST /v1/snapshots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshots {
    /// The volumes, all of them at one instant.
    pub volumes: Vec<String>,
    /// The snapshots' name; without one, the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Body of `POST /v1/volumes/{name}/revert`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RevertVolume {
    /// A snapshot's name, or a time: the newest snapshot that is not younger.
    pub to: String,
    /// Cut off whoever has the volume.
    #[serde(default)]
    pub force: bool,
}

/// Answer to `POST /v1/volumes/{name}/revert`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RevertedView {
    /// The volume.
    pub volume: VolumeView,
    /// The snapshot that it went back to.
    pub to: SnapshotView,
    /// What it was before.
    pub kept: SnapshotView,
}

/// Body of `POST /v1/volumes/{name}/clone`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CloneVolume {
    /// The clone's name.
    pub name: String,
    /// A snapshot's name, or a time; without one, the present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its size, if it is to be larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Whether clients of several nodes may use it at once; if it is not said, as for the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    /// Whether it gets a data key of its own: its blocks are encrypted anew in the background, and share no space with
    /// the source's afterwards.
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub rekey: bool,
    /// The secret that the source's key is wrapped with, which the clone has, too: refused unless it is that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub secret: Option<SecretText>,
}

/// From an age on, one snapshot in so long a time is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Thinning {
    /// One for each of these times, seconds.
    pub every_seconds: u64,
    /// As far back as this, seconds.
    pub keep_seconds: u64,
}

/// Snapshots that come and go by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Protection {
    /// Pause between two, seconds.
    pub every_seconds: u64,
    /// All are kept for so long, seconds.
    pub keep_seconds: u64,
    /// And then fewer and fewer.
    #[serde(default)]
    pub then: Vec<Thinning>,
}

impl std::fmt::Display for Protection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "every {}, kept {}", Period(self.every_seconds), Period(self.keep_seconds))?;
        for step in &self.then {
            write!(f, ", then one every {} for {}", Period(step.every_seconds), Period(step.keep_seconds))?;
        }
        Ok(())
    }
}

/// Body of `POST /v1/volumes/{name}/protect`: a pause and a time, or `off`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProtectVolume {
    /// Pause between two snapshots, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_seconds: Option<u64>,
    /// How long all of them are kept, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_seconds: Option<u64>,
    /// What is kept of them afterwards.
    #[serde(default)]
    pub then: Vec<Thinning>,
    /// Protection ends.
    #[serde(default)]
    pub off: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protection_as_people_read_it() {
        let then = vec![Thinning { every_seconds: 3_600, keep_seconds: 86_400 }];
        let protection = Protection { every_seconds: 10, keep_seconds: 3_600, then };
        assert_eq!(protection.to_string(), "every 10s, kept 1h, then one every 1h for 1d");
    }
}
