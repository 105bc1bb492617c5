//! Volumes, and which nodes use them.

use azekura_base::{LogicalBlock, NodeId, SecretText, Size};
use serde::{Deserialize, Serialize};

use crate::{AckRule, EndpointView, LastScrubs, Period, Protection, SnapshotView};

/// How many may use a volume at once, unless somebody says otherwise when he attaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum VolumeAccess {
    /// One node's clients.
    Exclusive,
    /// Clients of any nodes.
    Shared,
}

impl std::fmt::Display for VolumeAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            VolumeAccess::Exclusive => "exclusive",
            VolumeAccess::Shared => "shared",
        })
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VolumeView {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u64,
    /// Random identity, 32 hexadecimal digits.
    pub uuid: String,
    /// Size, bytes.
    pub size_bytes: u64,
    /// What clients count its blocks in, bytes: 512 or 4096. It never changes.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "u32"))]
    pub logical_block_bytes: LogicalBlock,
    /// Its storage class.
    pub class: String,
    /// Where one copy of every block is, or on its way to; none: wherever there is room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<VolumeHome>,
    /// Copies of every block.
    pub copies: u32,
    /// How many may use it at once.
    pub access: VolumeAccess,
    /// Raised at every change of its attachments.
    pub generation: u64,
    /// The nodes whose clients use it, or may.
    pub attachments: Vec<AttachmentView>,
    /// Former users are not kept out everywhere yet.
    pub fence_due: bool,
    /// When a write is acknowledged.
    pub ack_rule: AckRule,
    /// Time of creation, RFC 3339.
    pub created: String,
    /// Encrypted, with a key that its snapshots and clones have, too.
    #[serde(default)]
    pub encrypted: bool,
    /// Who wraps its key: `file`, `vault` or `kmip`; `csi`: a secret of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_provider: Option<String>,
    /// Why the node that answers does not have its key, and serves nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_missing: Option<String>,
    /// What it was made from: `VOLUME@SNAPSHOT`.
    #[serde(default)]
    pub source: Option<String>,
    /// Number of its snapshots.
    #[serde(default)]
    pub snapshots: usize,
    /// Snapshots that come and go by themselves.
    #[serde(default)]
    pub protection: Option<Protection>,
    /// The most that its clients may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<IoLimits>,
    /// Where clients open it, at every living node: each serves every volume.
    #[serde(default)]
    pub endpoints: Vec<EndpointView>,
    /// When its copies were last compared; nothing before its placement groups are there.
    #[serde(default)]
    pub scrubbed: Option<LastScrubs>,
}

/// Where a volume keeps one copy of every block: its class's home, or where it is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VolumeHome {
    /// The site, as its nodes name it; empty: where they name none.
    pub site: String,
    /// The rack; anywhere in the site, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// The host, by its node's name; anywhere in the rack, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The volume's placement groups, with others' where it shares them.
    pub groups: usize,
    /// Those of them that have a copy in sync there.
    pub groups_there: usize,
}

impl std::fmt::Display for VolumeHome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.host, &self.rack) {
            (Some(host), _) => write!(f, "host {host}")?,
            (None, Some(rack)) if self.site.is_empty() => write!(f, "rack {rack}")?,
            (None, Some(rack)) => write!(f, "rack {}/{rack}", self.site)?,
            (None, None) => write!(f, "site {}", self.site)?,
        }
        match (self.groups_there, self.groups) {
            (there, groups) if there == groups => f.write_str(", with a copy of everything"),
            (there, groups) => write!(f, ", with a copy of {there} of {groups} placement groups yet"),
        }
    }
}

impl VolumeView {
    /// Bytes that a request has at least, whatever the protocol, and at a multiple of which it begins: what is
    /// encrypted as one, and a block of 4 KiB, can't be read and written in parts.
    #[must_use]
    pub fn request_bytes_min(&self) -> u32 {
        match (self.logical_block_bytes, self.encrypted) {
            (LogicalBlock::Bytes512, false) => 1,
            (block, _) => block.bytes(),
        }
    }
}

/// A node that may use a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AttachmentView {
    /// The node.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub node: NodeId,
    /// Its name.
    pub node_name: String,
    /// The host that uses it there, by the name that it gives itself; nothing for clients of whom no host is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The host reads through this node, and another node carries out what it writes.
    #[serde(default)]
    pub reads_only: bool,
    /// The generation that the attachment began in.
    pub generation: u64,
    /// Others that are shared may stand beside it.
    pub shared: bool,
    /// It stays until it is detached; else it ends with the node's last client.
    pub pinned: bool,
    /// A process of the node has taken it up for its clients.
    pub in_use: bool,
    /// Since when, RFC 3339.
    pub since: String,
}

/// The most that the clients of a volume may ask for, at each node that they connect to. What is missing is not
/// limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct IoLimits {
    /// Requests a second: 10 to 10 million.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes read and written, a second: 1 MiB to 100 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// What was not asked for in so many seconds may be asked for later, all at once; at most 3600.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub burst_seconds: u32,
}

impl std::fmt::Display for IoLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let iops = self.iops.map(|iops| format!("{iops} requests/s"));
        let bytes = self.bytes_per_second.map(|bytes| format!("{}/s", Size::new(bytes)));
        f.write_str(&iops.into_iter().chain(bytes).collect::<Vec<_>>().join(", "))?;
        match self.burst_seconds {
            0 => Ok(()),
            seconds => write!(f, ", bursts of {}", Period(u64::from(seconds))),
        }
    }
}

/// Body of `POST /v1/volumes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Its name.
    pub name: String,
    /// Its size: a multiple of 4096 bytes.
    pub size_bytes: u64,
    /// What clients count its blocks in, bytes: 512 or 4096; as the class says, if it is not said. Its clones have the
    /// same, and it never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u32>"))]
    pub logical_block_bytes: Option<LogicalBlock>,
    /// Its storage class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Copies of every block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// When a write is acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_rule: Option<AckRule>,
    /// Clients of several nodes may use it at once.
    #[serde(default)]
    pub shared: bool,
    /// Encrypt it, with a key of its own, at the nodes that its clients connect to.
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub encrypt: bool,
    /// Encrypt it, and wrap its key with this secret: a passphrase of 12 to 1024 bytes, or `azekura-key:` and 64
    /// hexadecimal digits. Over HTTPS, or on the node's machine, alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub secret: Option<SecretText>,
    /// The most that its clients may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<IoLimits>,
}

/// Body of `POST /v1/volumes/{name}/resize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// Its new size.
    pub size_bytes: u64,
    /// It may be smaller: what is cut off is kept as a snapshot for a day.
    #[serde(default)]
    pub shrink: bool,
    /// To make it smaller, cut off whoever has it.
    #[serde(default)]
    pub force: bool,
}

/// Answer to `POST /v1/volumes/{name}/resize`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResizedView {
    /// The volume.
    #[serde(flatten)]
    pub volume: VolumeView,
    /// What keeps the data that was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<SnapshotView>,
}

/// Query of `DELETE /v1/volumes/{name}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DeleteVolume {
    /// Although it is attached.
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub force: bool,
    /// And its snapshots.
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub snapshots: bool,
}

/// Body of `POST /v1/volumes/{name}/attach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AttachVolume {
    /// The node, by its name.
    pub node: String,
    /// Beside other attachments that are shared, or alone; if it is not said, what the volume was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    /// End attachments that are in the way.
    #[serde(default)]
    pub force: bool,
}

/// Body of `POST /v1/volumes/{name}/detach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DetachVolume {
    /// The node, by its name; without one, every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Although clients use it there, which are cut off.
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub force: bool,
}

/// Body of `POST /v1/volumes/{name}/expose` and `POST /v1/volumes/{name}/unexpose`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExposeVolume {
    /// The node on whose machine the socket is, by its name; without one, the one that is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The socket, for vhost-user: a name in the folder that the node has for these, or its path there. Without one,
    /// VOLUME.sock, or all of the volume's that are to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost: Option<String>,
}

/// Body of `POST /v1/node/expose`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExposeHere {
    /// The volume.
    pub volume: String,
    /// The socket, as somebody has named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost: Option<String>,
    /// It is to go.
    #[serde(default)]
    pub ends: bool,
}

/// Answer to `POST /v1/node/expose`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Exposed {
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Body of `POST /v1/volumes/{name}/unlock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnlockVolume {
    /// The secret that its key is wrapped with.
    #[cfg_attr(test, schemars(with = "String"))]
    pub secret: SecretText,
    /// The node, by its name; without one, those that it is attached to, or else the one that is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Body of `POST /v1/volumes/{name}/secret`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeVolumeSecret {
    /// The secret that its key is wrapped with.
    #[cfg_attr(test, schemars(with = "String"))]
    pub secret: SecretText,
    /// The one that is to wrap it from now on.
    #[cfg_attr(test, schemars(with = "String"))]
    pub new_secret: SecretText,
}

/// Body of `POST /v1/node/unlock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnlockKey {
    /// The data key's number.
    pub key: u64,
    /// The secret that it is wrapped with.
    #[cfg_attr(test, schemars(with = "String"))]
    pub secret: SecretText,
}

/// Answer to `POST /v1/node/unlock`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyUnlocked {
    /// Why the secret opens nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Why not now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<String>,
}
