//! Nodes and devices, and how they leave the cluster.

use azekura_base::{DeviceId, NodeId, PeerKey};
use serde::{Deserialize, Serialize};

use crate::{AuthorityView, GrantView};

/// Where clients of one protocol reach a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EndpointView {
    /// The protocol: `nbd`. There may be others.
    pub protocol: String,
    /// The address in the protocol's own words. For `nbd` it is `host:port`, or `unix:PATH` for clients on the same
    /// machine.
    pub address: String,
    /// What a client opens there: of volumes and snapshots only, and only where the node that answers knows the
    /// protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeView {
    /// Its number.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Whether it gave a sign of life in the last seconds.
    pub alive: bool,
    /// Since when, RFC 3339.
    pub alive_since: Option<String>,
    /// It has left the cluster for good; its record goes when its devices' copies have new homes.
    #[serde(default)]
    pub removed: bool,
    /// It is shut out: no key proves that a machine is this node.
    #[serde(default)]
    pub shut_out: bool,
    /// Where other nodes reach it.
    pub data_address: String,
    /// Its REST API.
    pub api_address: String,
    /// Where its clients connect.
    #[serde(default)]
    pub endpoints: Vec<EndpointView>,
    /// Its site.
    pub site: String,
    /// Its rack.
    pub rack: String,
    /// Number of its devices.
    pub devices: usize,
    /// How many shards its data plane has, each on a thread of its own: those of its last start.
    #[serde(default = "one_shard")]
    pub shards: u8,
    /// Whether it leads the control plane.
    pub leader: bool,
    /// Resident memory, bytes, if its statistics could be had.
    pub memory_bytes: Option<u64>,
    /// Time since its start, seconds, likewise.
    pub uptime_seconds: Option<f64>,
    /// Version of its program, likewise.
    pub version: Option<String>,
}

fn one_shard() -> u8 {
    1
}

/// Whether a device takes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    /// In use.
    Up,
    /// Failed, or taken out: its copies count as lost.
    Down,
    /// To be emptied: takes no new groups.
    Draining,
}

/// How badly a device has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Its store has stopped: nothing of it is served. It may serve again after its node's next start.
    Stopped,
    /// What it held is gone for good.
    Lost,
    /// It is served, and has had more errors than a sound device has: it is to be emptied.
    Failing,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceView {
    /// Its number.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub id: DeviceId,
    /// Its name on its node.
    pub name: String,
    /// Its node.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub node: NodeId,
    /// Its node's name.
    pub node_name: String,
    /// What it is meant to be.
    pub state: DeviceState,
    /// It has left the cluster for good; its record goes when no group names it any more.
    #[serde(default)]
    pub removed: bool,
    /// What it is: `open`, another word of its node, or `unknown` while the node does not answer; `failed` or `failing`
    /// when its node has found that.
    pub status: String,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// How badly it has failed, if it has.
    #[serde(default)]
    pub failure: Option<FailureKind>,
    /// Size, bytes.
    pub capacity_bytes: u64,
    /// Bytes in use; 0 while the node does not answer.
    pub used_bytes: u64,
    /// It takes no more data.
    pub full: bool,
    /// Placement groups that need its copy: it is a member, or writes wait for it.
    pub groups: usize,
    /// Placement groups that do not need it any more, and whose data it has not given up yet.
    #[serde(default)]
    pub leaving: usize,
    /// Groups that it leads.
    pub primaries: usize,
}

impl DeviceView {
    /// Groups that are still to go before the device is empty.
    #[must_use]
    pub fn groups_left(&self) -> usize {
        self.groups + self.leaving
    }
}

/// Query of `DELETE /v1/nodes/{name}` and `DELETE /v1/devices/{name}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RemoveMember {
    /// It will never come back: other copies are to make up for its copies.
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub lost: bool,
}

/// What was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RemovedView {
    /// The node, device or storage class.
    pub removed: String,
    /// Placement groups that still name it; its record goes when there are none.
    pub groups_left: usize,
}

/// Body of `POST /v1/nodes/{name}/shut-out`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ShutOutNode {
    /// Grants that were made since then are listed, to be looked through: a time, such as `2026-11-26T10:00:00Z` or
    /// `2 days ago`. If nothing is said, all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants_since: Option<String>,
}

/// A node that was shut out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShutOutView {
    /// The node.
    pub node: String,
    /// The authority by which clients know the other nodes from now on: they have to be told. Null: there is none yet,
    /// or it could not be made, which `undone` says.
    pub authority: Option<AuthorityView>,
    /// Volumes that were taken away from its clients.
    pub detached: Vec<String>,
    /// Grants to be looked through: it may have made them, and have seen their tokens.
    pub grants: Vec<GrantView>,
    /// What is still to be done, and how.
    pub undone: Vec<String>,
}

/// Body of `POST /v1/nodes/{name}/let-in`: either a key, or `same_keys`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LetInNode {
    /// The key that the machine has made anew, 64 hexadecimal digits: its start names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub key: Option<PeerKey>,
    /// The keys that it had: it was shut out by mistake.
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub same_keys: bool,
}
