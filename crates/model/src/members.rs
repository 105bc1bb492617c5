//! The records of nodes and devices.

use std::net::SocketAddr;

use azekura_base::{DeviceId, NodeId};
use serde::{Deserialize, Serialize};

use crate::records::is_false;
use crate::{Endpoint, Unknown};

/// A machine that runs a node process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its number.
    pub id: NodeId,
    /// Identity of its data folder.
    pub uuid: String,
    /// A unique name for people; also its host in failure domains.
    pub name: String,
    /// Where other nodes reach its data plane.
    pub data_address: SocketAddr,
    /// Where its REST API listens.
    pub api_address: SocketAddr,
    /// Where its clients connect; kept as `endpoints`, and the NBD ones among them as `nbd_addresses`, too.
    #[serde(flatten, with = "crate::endpoints")]
    pub endpoints: Vec<Endpoint>,
    /// The site (data centre) that it stands in.
    #[serde(default)]
    pub site: String,
    /// The rack that it stands in.
    #[serde(default)]
    pub rack: String,
    /// Its last start, in numbers that grow: no two of its processes have the same, even if its data folder is put
    /// back.
    #[serde(default)]
    pub incarnation: u64,
    /// It has left the cluster for good: its name is free, and the record goes when its devices' copies have new homes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub removed: bool,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// A node's sign of life; the key ends with its lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AliveRecord {
    /// The node.
    pub node: NodeId,
    /// Since when, RFC 3339.
    pub since: String,
}

/// Whether a device takes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    /// In use.
    Up,
    /// Failed, or taken out: its copies count as lost.
    Down,
    /// To be emptied: takes no new groups.
    Draining,
}

/// A storage device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Its number.
    pub id: DeviceId,
    /// Identity written on the device.
    pub uuid: String,
    /// The node that it is attached to.
    pub node: NodeId,
    /// A name for people, unique on its node.
    pub name: String,
    /// Size, bytes.
    pub capacity_bytes: u64,
    /// Whether it takes data.
    pub state: DeviceState,
    /// What its node has found wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<DeviceFailure>,
    /// It has left the cluster for good: the record goes when no group names it any more.
    #[serde(default, skip_serializing_if = "is_false")]
    pub removed: bool,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

impl DeviceRecord {
    /// Its node serves what it holds, as far as the node's own messages say.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.failure.as_ref().is_none_or(|failure| failure.kind == FailureKind::Failing)
    }

    /// It is in use, and nothing is known to be wrong with it.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.state == DeviceState::Up && self.failure.is_none()
    }
}

/// How badly a device has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Its store has stopped: nothing of it is served. It may serve again after its node's next start.
    Stopped,
    /// What it held is gone for good.
    Lost,
    /// It is served, and has had more errors than a sound device has: it is to be emptied.
    Failing,
}

/// What a node has found wrong with one of its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFailure {
    /// How badly it has failed.
    pub kind: FailureKind,
    /// What has happened, for people.
    pub reason: String,
    /// When it was noticed, RFC 3339.
    pub since: String,
}
