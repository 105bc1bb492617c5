//! The records of nodes and devices.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU8;

use azekura_base::{DeviceId, NodeId, PeerKey, Shard};
use serde::{Deserialize, Serialize};

use crate::records::is_false;
use crate::{
    CLASS_HOMES, CSI_KEYS, ClassHome, ENCRYPTION, Endpoint, HOST_PATHS, HOSTS, KEY_GENERATIONS, KEY_PROVIDERS,
    KEY_VOLUMES, OWN_GROUPS, PROJECTS, RESERVATIONS, TARGETS, Unknown,
};

/// What a node's record says that it understands when its copies compare what they hold with what a write expects
/// (docs/decisions/0055-compare-and-write.md).
pub const COMPARE_AND_WRITE: &str = "compare-and-write";
/// What a node's record says that it understands when it knows volumes whose logical blocks have 4096 bytes. Versions
/// before would serve them with blocks of 512, and clients would read from wrong places.
pub const LOGICAL_BLOCKS: &str = "logical-blocks";

/// What this version understands, as its nodes' records say it.
pub const UNDERSTOOD: [&str; 14] = [
    CLASS_HOMES,
    COMPARE_AND_WRITE,
    CSI_KEYS,
    ENCRYPTION,
    HOSTS,
    HOST_PATHS,
    KEY_GENERATIONS,
    KEY_PROVIDERS,
    KEY_VOLUMES,
    LOGICAL_BLOCKS,
    OWN_GROUPS,
    PROJECTS,
    RESERVATIONS,
    TARGETS,
];

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
    /// How many shards its data plane has. Records that were written before this was noted say nothing: one.
    #[serde(default = "one_shard", skip_serializing_if = "is_one_shard")]
    pub shards: NonZeroU8,
    /// The keys that prove that a connection is the node's (docs/decisions/0037-who-may.md). `None`: the record was
    /// written before keys were noted, and the node's next start brings its own. None in the list: it is shut out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<PeerKey>>,
    /// Somebody has shut it out; `keys` is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shut_out: Option<ShutOut>,
    /// Its REST API speaks HTTPS, too, and knows other nodes by their keys there. Older versions ask for no grants.
    #[serde(default, skip_serializing_if = "is_false")]
    pub api_tls: bool,
    /// What its version can do that older ones can't, and that is refused until all nodes can.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub understands: BTreeSet<String>,
    /// It has left the cluster for good: its name is free, and the record goes when its devices' copies have new homes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub removed: bool,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

impl NodeRecord {
    /// Whether the node is at a home.
    #[must_use]
    pub fn is_at(&self, home: &ClassHome) -> bool {
        home.has(&self.site, &self.rack, &self.name)
    }

    /// The home that is this host, in its rack and its site.
    #[must_use]
    pub fn as_home(&self) -> ClassHome {
        let rack = Some(self.rack.clone()).filter(|rack| !rack.is_empty());
        ClassHome { site: self.site.clone(), rack, host: Some(self.name.clone()) }
    }
}

/// A node was shut out (docs/decisions/0037-who-may.md).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutOut {
    /// When, RFC 3339.
    pub since: String,
    /// By whom.
    pub by: String,
    /// The keys that it had: whoever has its machine has them.
    #[serde(default)]
    pub keys: Vec<PeerKey>,
}

/// What a node has that does not say.
fn one_shard() -> NonZeroU8 {
    NonZeroU8::MIN
}

fn is_one_shard(shards: &NonZeroU8) -> bool {
    *shards == one_shard()
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
    /// The shard of the node that has it. Records that were written before this was noted say nothing: the first.
    #[serde(default, skip_serializing_if = "is_first")]
    pub shard: Shard,
    /// A name for people, unique on its node.
    pub name: String,
    /// Size, bytes.
    pub capacity_bytes: u64,
    /// What clients can store on it, bytes. Records that were written before this was noted say nothing: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable_bytes: Option<u64>,
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

fn is_first(shard: &Shard) -> bool {
    *shard == Shard(0)
}

impl DeviceRecord {
    /// What clients can store on it, bytes: its size without what garbage collection needs.
    #[must_use]
    pub fn usable_bytes(&self) -> u64 {
        self.usable_bytes.unwrap_or(self.capacity_bytes)
    }

    /// What it held is gone for good.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Lost)
    }

    /// Who answers for what it holds.
    #[must_use]
    pub fn endpoint(&self) -> azekura_base::Endpoint {
        azekura_base::Endpoint { node: self.node, shard: self.shard }
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn node() -> Value {
        json!({ "id": 3, "uuid": "u", "name": "n", "data_address": "10.0.0.1:1", "api_address": "10.0.0.1:2",
            "endpoints": [], "nbd_addresses": [], "site": "", "rack": "", "incarnation": 4 })
    }

    fn device() -> Value {
        json!({ "id": 7, "uuid": "u", "node": 3, "name": "d", "capacity_bytes": 1, "state": "up" })
    }

    /// What a record says after `change`, and how it is written then.
    fn read<T: serde::de::DeserializeOwned + Serialize>(mut record: Value, change: Value) -> (T, Value) {
        let change = change.as_object().unwrap().clone();
        record.as_object_mut().unwrap().extend(change);
        let record: T = serde_json::from_value(record).unwrap();
        let written = serde_json::to_value(&record).unwrap();
        (record, written)
    }

    #[test]
    fn records_from_before_shards_are_read_and_stay_as_they_are() {
        let (record, written): (NodeRecord, _) = read(node(), json!({}));
        assert_eq!((record.shards.get(), record.keys, written), (1, None, node()));
        let (record, written): (DeviceRecord, _) = read(device(), json!({}));
        assert_eq!((record.endpoint(), written), (azekura_base::Endpoint::first(NodeId(3)), device()));
    }

    #[test]
    fn a_node_without_shards_is_no_node() {
        let mut record = node();
        record["shards"] = json!(0);
        assert!(serde_json::from_value::<NodeRecord>(record).is_err());
    }

    #[test]
    fn keys_are_their_names_and_none_of_them_is_not_the_same_as_no_list() {
        let key = PeerKey([0xab; 32]);
        for keys in [vec![], vec![key], vec![key, PeerKey([1; 32])]] {
            let (record, written): (NodeRecord, _) = read(node(), json!({ "keys": keys }));
            assert_eq!(written["keys"], json!(keys.iter().map(ToString::to_string).collect::<Vec<_>>()));
            assert_eq!(record.keys, Some(keys));
        }
        let mut record = node();
        record["keys"] = json!(["ab"]);
        assert!(serde_json::from_value::<NodeRecord>(record).is_err());
    }

    proptest! {
        #[test]
        fn shards_come_back(shards in 1u8.., shard in any::<u8>()) {
            let (record, written): (NodeRecord, _) = read(node(), json!({ "shards": shards }));
            prop_assert_eq!(record.shards.get(), shards);
            prop_assert_eq!(serde_json::from_value::<NodeRecord>(written).unwrap(), record);
            let (record, written): (DeviceRecord, _) = read(device(), json!({ "shard": shard }));
            prop_assert_eq!(record.endpoint().shard, Shard(shard));
            prop_assert_eq!(serde_json::from_value::<DeviceRecord>(written).unwrap(), record);
        }
    }
}
