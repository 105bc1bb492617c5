//! The records as they are kept: JSON objects that a person can read with `etcdctl get --prefix /azekura/`.
//!
//! Fields that this version does not know are kept when it rewrites a record, so that versions can differ during an
//! upgrade.

use std::collections::{BTreeMap, BTreeSet};

use azekura_base::{
    AckRule, ApiAccess, DeviceId, Epoch, IoLimits, KeyGeneration, KeyId, LayerId, LogicalBlock, NodeId, PgId, Sequence,
    Transport, VolumeId,
};
use serde::{Deserialize, Serialize};

use crate::{ClassHome, ClosedRecord, CutRecord, ProtectionRecord, ScrubRecord, VolumeAccess};

/// Fields of a record that this version does not know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Unknown(pub BTreeMap<String, serde_json::Value>);

/// Time after which the copies of an absent node get new homes, unless it is set, seconds.
pub const REHOME_AFTER_SECONDS_DEFAULT: u64 = 600;
/// Time after which a volume's home follows it, unless it is set, seconds.
pub const FOLLOW_AFTER_SECONDS_DEFAULT: u64 = 300;
/// Groups that move at once for balance, unless it is set.
pub const MOVES_AT_ONCE_DEFAULT: u32 = 8;
/// Share of a device's capacity from which on people are warned, unless it is set, percent.
pub const NEARLY_FULL_PERCENT_DEFAULT: u8 = 85;
/// Share of a device's capacity from which on it takes no more data from clients, unless it is set, percent.
pub const FULL_PERCENT_DEFAULT: u8 = 95;

fn default_rehome_after() -> Option<u64> {
    Some(REHOME_AFTER_SECONDS_DEFAULT)
}

fn default_follow_after() -> Option<u64> {
    Some(FOLLOW_AFTER_SECONDS_DEFAULT)
}

fn default_moves() -> u32 {
    MOVES_AT_ONCE_DEFAULT
}

fn default_nearly_full() -> u8 {
    NEARLY_FULL_PERCENT_DEFAULT
}

fn default_full() -> u8 {
    FULL_PERCENT_DEFAULT
}

/// What can be set for the whole cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingsRecord {
    /// The copies of a node that has been absent for so long get new homes, seconds; `null`: never.
    #[serde(default = "default_rehome_after")]
    pub rehome_after_seconds: Option<u64>,
    /// A volume whose class is at home where it is attached moves its home after it has been used elsewhere for so
    /// long, seconds; `null`: never.
    #[serde(default = "default_follow_after")]
    pub follow_after_seconds: Option<u64>,
    /// Most groups that move at once to empty a device or to fill a new one. Lost copies are made anew without
    /// waiting for that.
    #[serde(default = "default_moves")]
    pub moves_at_once: u32,
    /// Share of a device's capacity from which on people are warned, percent.
    #[serde(default = "default_nearly_full")]
    pub nearly_full_percent: u8,
    /// Share of a device's capacity from which on it takes no more data from clients, percent. The rest is for copies
    /// that lose their device and come here.
    #[serde(default = "default_full")]
    pub full_percent: u8,
    /// How nodes talk with each other; a cluster from before this has `plain`.
    #[serde(default)]
    pub transport: Transport,
    /// Whether the REST API asks for grants; that of a cluster from before this is `open`.
    #[serde(default)]
    pub api_access: ApiAccess,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

impl Default for SettingsRecord {
    fn default() -> SettingsRecord {
        SettingsRecord {
            rehome_after_seconds: default_rehome_after(),
            follow_after_seconds: default_follow_after(),
            moves_at_once: default_moves(),
            nearly_full_percent: default_nearly_full(),
            full_percent: default_full(),
            transport: Transport::default(),
            api_access: ApiAccess::default(),
            unknown: Unknown::default(),
        }
    }
}

/// What may fail at once: two copies of a group never share one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureDomain {
    /// A device.
    Device,
    /// A machine.
    Host,
    /// A rack.
    Rack,
    /// A site.
    Site,
}

/// Groups that a class is about to get; kept until all of them are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// Id of the first group; the others follow.
    pub first: PgId,
    /// Number of groups.
    pub count: u32,
}

/// [`ClassRecord::io_timeout_seconds`] of a class that does not say.
pub const IO_TIMEOUT_DEFAULT_SECONDS: u64 = 30;

fn io_timeout_default() -> Option<u64> {
    Some(IO_TIMEOUT_DEFAULT_SECONDS)
}

/// A storage class: the policy of its volumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassRecord {
    /// Its unique name.
    pub name: String,
    /// Copies of every block.
    pub copies: u32,
    /// What two copies never share.
    pub failure_domain: FailureDomain,
    /// When a write is acknowledged.
    pub ack_rule: AckRule,
    /// With fewer in-sync copies than this a group is read-only.
    pub copies_min: u32,
    /// Volumes' copies may sum up to this multiple of the devices' capacity.
    pub overcommit_ratio: f64,
    /// Seconds that a request waits for a group which does not serve it, before its client gets an error; `None`: for
    /// ever.
    #[serde(default = "io_timeout_default")]
    pub io_timeout_seconds: Option<u64>,
    /// Its new volumes are encrypted, each with a key of its own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub encrypt: bool,
    /// The logical block of its new volumes.
    #[serde(default, skip_serializing_if = "LogicalBlock::is_default")]
    pub logical_block_bytes: LogicalBlock,
    /// Where one copy of every block is to be; `None`: wherever there is room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<ClassHome>,
    /// Each of its volumes has groups of its own, whose home is where the volume is attached.
    #[serde(default, skip_serializing_if = "is_false")]
    pub home_attached: bool,
    /// These are the groups that a volume of this class has of its own, with its clones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The placement groups, in the order that chunks are dealt to; empty before the first volume.
    #[serde(default)]
    pub groups: Vec<PgId>,
    /// Groups being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<GroupPlan>,
    /// It is being deleted, its groups first: it takes no volumes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deleted: bool,
    /// Time of creation, RFC 3339.
    pub created: String,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// A placement group: the unit of replication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Its number.
    pub id: PgId,
    /// The class that it belongs to.
    pub class: String,
    /// Raised by one at every change.
    #[serde(default)]
    pub version: u64,
    /// The epoch of the primary.
    pub epoch: Epoch,
    /// The device whose node orders the writes.
    pub primary: DeviceId,
    /// The process that reigns, by its incarnation; `None` when the primary has yet to claim the epoch.
    #[serde(default, rename = "reign", with = "crate::zero_is_none")]
    pub primary_incarnation: Option<u64>,
    /// Devices that hold every acknowledged write.
    pub in_sync: Vec<DeviceId>,
    /// Devices that did, and how far in the group's order each had come when it was left behind.
    #[serde(default)]
    pub away: BTreeMap<DeviceId, Sequence>,
    /// Its scrubs.
    #[serde(default)]
    pub scrub: ScrubRecord,
    /// Devices that are to hold a copy.
    pub members: Vec<DeviceId>,
    /// Devices that were to hold one and may still have its data. A device is taken out when it has given its copy up;
    /// only then can it become a member again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub leaving: BTreeSet<DeviceId>,
    /// The configuration was restored: the group is closed until all devices have said what they hold of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<ClosedRecord>,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

impl GroupRecord {
    /// The device is to hold a copy, or holds one that writes wait for.
    #[must_use]
    pub fn needs(&self, device: DeviceId) -> bool {
        self.members.contains(&device) || self.in_sync.contains(&device)
    }

    /// The record tells of the device at all: as a member, in sync, or as one that was.
    #[must_use]
    pub fn names(&self, device: DeviceId) -> bool {
        self.needs(device) || self.leaving.contains(&device) || self.away.contains_key(&device)
    }

    /// Every member is in sync, and nobody else is.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.members.iter().all(|device| self.in_sync.contains(device))
            && self.in_sync.iter().all(|device| self.members.contains(device))
    }

    /// Whether `device` may become a member: it is none, and it holds nothing of the group that it is about to give up.
    #[must_use]
    pub fn admits(&self, device: DeviceId) -> bool {
        !self.leaving.contains(&device) || self.in_sync.contains(&device)
    }

    /// This record with other members; what reigns and what is in sync stays. Former members are noted as leaving.
    ///
    /// How far a former member's copy had come is forgotten: the device may give the copy up at any time from now on,
    /// so if it comes back, it starts from nothing.
    #[must_use]
    pub fn with_members(&self, members: &[DeviceId]) -> GroupRecord {
        let mut record = self.clone();
        record.version += 1;
        record.members = members.to_vec();
        record.members.sort_unstable();
        record.leaving.extend(self.members.iter().chain(&self.in_sync));
        record.leaving.retain(|device| !members.contains(device));
        record.away.retain(|device, _| members.contains(device));
        record
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Its number, never used again.
    pub id: VolumeId,
    /// Random identity, for clients that want one.
    pub uuid: String,
    /// Its unique name.
    pub name: String,
    /// Size as clients see it, bytes.
    pub size_bytes: u64,
    /// What clients count its blocks in. It never changes. Volumes that were made before this was asked have 512 bytes.
    #[serde(default, skip_serializing_if = "LogicalBlock::is_default")]
    pub logical_block_bytes: LogicalBlock,
    /// Its storage class.
    pub class: String,
    /// The layer that takes its writes.
    pub head: LayerId,
    /// Where in the class's groups its first chunk goes.
    pub group_offset: u32,
    /// How many may use it at once. Volumes that were made before this was asked are shared.
    #[serde(default)]
    pub access: VolumeAccess,
    /// Time of creation, RFC 3339.
    pub created: String,
    /// A new head is being put into the place of `head`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutRecord>,
    /// Snapshots that come and go by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protection: Option<ProtectionRecord>,
    /// What it was made from, for people: `VOLUME@SNAPSHOT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The data key, where it is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// All that it shows is encrypted under this generation of its data key; `None`: under any that the key has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rekeyed: Option<KeyGeneration>,
    /// How often it has gone back to a snapshot.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reverts: u32,
    /// What its clients may ask for in a second, at each node that they connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<IoLimits>,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// Nothing is to be written of it.
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerState {
    /// It takes a volume's writes.
    Head,
    /// It will be a volume's head when the cut that made it is done.
    Next,
    /// A snapshot.
    Frozen,
    /// No snapshot any more: to be merged into the layer on top of it, or dropped, as soon as it carries less than two.
    Hidden,
    /// Every device gives what it has of it to the layer on top of it.
    Merging,
    /// To be dropped by every device.
    Deleted,
}

/// A layer: an immutable-or-head set of blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerRecord {
    /// Its number, never used again.
    pub id: LayerId,
    /// The volume that it was made for.
    pub volume: VolumeId,
    /// The layer below it.
    #[serde(default)]
    pub parent: Option<LayerId>,
    /// What it is.
    pub state: LayerState,
    /// The layer that gets what it has, while it is merging.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<LayerId>,
    /// The storage class whose groups hold it; empty in records that were written before this was noted.
    #[serde(default)]
    pub class: String,
    /// The data key of what it holds, where that is encrypted: volumes may be gone before their snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// Of a snapshot: all that it shows is encrypted under this generation of the data key; `None`: under any that the
    /// key has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rekeyed: Option<KeyGeneration>,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// The node that leads the control plane; the key ends with its lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaderRecord {
    /// The node.
    pub node: NodeId,
    /// Since when, RFC 3339.
    pub since: String,
}
