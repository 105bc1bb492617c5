//! Where space is: what volumes were promised, what is written, what snapshots share, what devices hold.
//!
//! All figures are bytes on devices, with every copy counted.

use azekura_base::DeviceId;
use serde::{Deserialize, Serialize};

/// `GET /v1/space`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SpaceView {
    /// The cluster.
    pub cluster: ClusterSpace,
    /// Classes.
    pub classes: Vec<ClassSpace>,
    /// Devices.
    pub devices: Vec<DeviceSpace>,
    /// Volumes.
    pub volumes: Vec<VolumeSpace>,
    /// Nodes that did not answer, and why: what is on their devices is not in the figures.
    pub missing: Vec<String>,
}

/// The whole cluster's space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClusterSpace {
    /// What volumes would take if every byte of them were written.
    pub provisioned_bytes: u64,
    /// The devices' sizes.
    pub physical_bytes: u64,
    /// Of that, what volumes can have when all devices are prepared and whole: overcommit limits are multiples of it.
    /// 0: a node without this figure answers.
    #[serde(default)]
    pub usable_bytes: u64,
    /// What garbage collection keeps for itself.
    pub reserved_bytes: u64,
    /// What can be stored.
    pub capacity_bytes: u64,
    /// Blocks that somebody needs.
    pub used_bytes: u64,
    /// Of those, what volumes have to themselves.
    pub unique_bytes: u64,
    /// Of those, what is in snapshots.
    pub snapshot_bytes: u64,
    /// Of those, what is on its way to be given back: of deleted volumes and snapshots, and of groups that have moved.
    pub leaving_bytes: u64,
    /// Overwritten and deleted blocks whose space has yet to be won back. It counts as free.
    pub garbage_bytes: u64,
    /// What still can be stored.
    pub free_bytes: u64,
}

/// The devices at a class's home, which have one copy of each of its blocks. Figures count one copy of each volume that
/// is at home there, of all classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HomeSpace {
    /// What volumes would take there if every byte of them were written.
    pub provisioned_bytes: u64,
    /// Sum of the devices' sizes.
    pub physical_bytes: u64,
    /// Of that, what volumes can have. 0: a node without this figure answers.
    #[serde(default)]
    pub usable_bytes: u64,
    /// What is free on them.
    pub free_bytes: u64,
}

/// A class's space: what its volumes share is counted once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassSpace {
    /// Its name.
    pub name: String,
    /// Its volumes.
    pub volumes: usize,
    /// The devices at its home, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<HomeSpace>,
    /// Its space.
    #[serde(flatten)]
    pub written: Written,
}

/// A device's space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceSpace {
    /// Its number.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub id: DeviceId,
    /// Its name.
    pub name: String,
    /// Its node's name.
    pub node_name: String,
    /// What it takes of the disk.
    pub physical_bytes: u64,
    /// Of that, what the log keeps for itself: for garbage collection, and on a new device what is not prepared yet.
    pub reserved_bytes: u64,
    /// The rest: what can be stored.
    pub capacity_bytes: u64,
    /// Blocks that somebody needs.
    pub used_bytes: u64,
    /// Overwritten and deleted blocks whose space has yet to be won back. It counts as free.
    pub garbage_bytes: u64,
    /// What still can be stored.
    pub free_bytes: u64,
    /// It takes no more data from clients.
    pub full: bool,
}

/// A volume's space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VolumeSpace {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Copies of every block.
    pub copies: u32,
    /// Its space.
    #[serde(flatten)]
    pub written: Written,
}

/// What volumes and classes have on the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Written {
    /// What it would take if every byte were written: sizes times copies.
    pub provisioned_bytes: u64,
    /// What is held for it: `unique_bytes` and `shared_bytes`.
    pub written_bytes: u64,
    /// What was written since the last snapshot: nobody else needs it.
    pub unique_bytes: u64,
    /// What it stands on: blocks of snapshots, its own or those that it was cloned from.
    pub shared_bytes: u64,
}
