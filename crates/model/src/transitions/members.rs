//! Nodes and devices make themselves known. Both are recognised by an identity that they keep on their own disks, so
//! that a restart, also with another address, is the same node.

use std::net::SocketAddr;
use std::num::NonZeroU8;

use azekura_base::{ApiAccess, DeviceId, NodeId, PeerKey, Shard, Transport};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::volumes::{check_name, missing};
use crate::{
    AckRule, DeviceRecord, DeviceState, Endpoint, GroupRecord, Key, Kind, MetaError, Model, NodeRecord, Outcome,
    Records, Step, Txn, UNDERSTOOD, Unknown,
};

/// What a node says about itself.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Identity of its data folder.
    pub uuid: String,
    /// Its unique name.
    pub name: String,
    /// Where other nodes reach its data plane.
    pub data_address: SocketAddr,
    /// Where its REST API listens.
    pub api_address: SocketAddr,
    /// Where its clients connect.
    pub endpoints: Vec<Endpoint>,
    /// Its site, or empty.
    pub site: String,
    /// Its rack, or empty.
    pub rack: String,
    /// The number of this start, as its data folder has it.
    pub incarnation: u64,
    /// How many shards its data plane has.
    pub shards: NonZeroU8,
    /// The key that it proves.
    pub key: PeerKey,
    /// Its REST API speaks HTTPS, too, and knows other nodes by their keys there.
    pub api_tls: bool,
}

/// What a node says about one of its devices.
#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// Identity written on the device.
    pub uuid: String,
    /// The node that it is attached to.
    pub node: NodeId,
    /// The shard of that node which has it, as long as this process runs.
    pub shard: Shard,
    /// Its name, unique on its node.
    pub name: String,
    /// Size, bytes.
    pub capacity_bytes: u64,
    /// Of that, what clients can store.
    pub usable_bytes: u64,
}

/// A kind of record that registers itself.
trait Member: Clone + Serialize + DeserializeOwned + PartialEq {
    const COUNTER: &'static str;
    const KIND: Kind;
    fn key(id: u32) -> Key<'static>;
    /// The id of the record with the same identity.
    fn find(&self, model: &Model) -> Option<u32>;
    /// The name, if another record has it.
    fn taken_name(&self, model: &Model) -> Option<String>;
    /// Why this record can't replace the registered one.
    fn refusal(&self, _registered: &Self, _model: &Model) -> Option<MetaError> {
        None
    }
    /// Why this record can't be a new one. `invited`: it comes with a join token.
    fn refusal_of_new(&self, _model: &Model, _invited: bool) -> Option<MetaError> {
        None
    }
    /// This record with the id, and with what only the cluster decides, of the registered one.
    fn keeping(self, registered: Option<&Self>, id: u32) -> Self;
}

impl Member for NodeRecord {
    const COUNTER: &'static str = "nodes";
    const KIND: Kind = Kind::Node;

    fn key(id: u32) -> Key<'static> {
        Key::Node(NodeId(id))
    }

    fn find(&self, model: &Model) -> Option<u32> {
        model.nodes.values().find(|node| node.uuid == self.uuid).map(|node| node.id.0)
    }

    fn taken_name(&self, model: &Model) -> Option<String> {
        let other = |node: &NodeRecord| node.name == self.name && node.uuid != self.uuid && !node.removed;
        let taken = model.nodes.values().any(|node| other(&node.record));
        taken.then(|| self.name.clone())
    }

    /// Acknowledged writes may be on one copy of each site only: which site a copy is in must not change behind them.
    fn refusal(&self, registered: &NodeRecord, model: &Model) -> Option<MetaError> {
        if registered.removed {
            return Some(MetaError::Removed { kind: Kind::Node, name: registered.name.clone() });
        }
        if let Some(error) = self.wrong_key(registered, model) {
            return Some(error);
        }
        let here = |device: &DeviceId| model.devices.get(device).is_some_and(|device| device.node == registered.id);
        let by_site = |class: &str| model.classes.get(class).is_some_and(|class| class.ack_rule == AckRule::EachSite);
        let holds =
            |group: &GroupRecord| by_site(&group.class) && group.members.iter().chain(&group.in_sync).any(&here);
        let bound = self.site != registered.site && model.groups.values().any(|group| holds(&group.record));
        bound.then(|| MetaError::InvalidSetting {
            name: "site".to_owned(),
            reason: format!(
                "the node holds copies of a storage class that is acknowledged by each site, and is registered in site \
                 '{}'; drain it before it moves",
                registered.site
            ),
        })
    }

    fn refusal_of_new(&self, model: &Model, invited: bool) -> Option<MetaError> {
        if !invited && takes_invited_only(model) {
            return Some(MetaError::NotInvited { name: self.name.clone() });
        }
        let key = *self.keys.as_ref()?.first()?;
        key_owner(&self.uuid, key, model).map(|node| MetaError::KeyTaken { node, key })
    }

    fn keeping(mut self, registered: Option<&NodeRecord>, id: u32) -> NodeRecord {
        self.id = NodeId(id);
        if let Some(registered) = registered {
            self.incarnation = self.incarnation.max(registered.incarnation + 1);
            self.unknown = registered.unknown.clone();
            // What the list has, others have put there; a record from before keys gets its node's first one.
            self.keys = registered.keys.clone().or(self.keys);
        }
        self
    }
}

impl NodeRecord {
    /// Why the key with which it registers is not its own: its record lists others, or another node's record lists it.
    fn wrong_key(&self, registered: &NodeRecord, model: &Model) -> Option<MetaError> {
        let key = *self.keys.as_ref()?.first()?;
        if registered.keys.as_ref().is_some_and(|keys| !keys.contains(&key)) {
            return Some(MetaError::KeyNotListed { node: registered.name.clone(), key });
        }
        key_owner(&self.uuid, key, model).map(|node| MetaError::KeyTaken { node, key })
    }
}

/// The name of the node that has this key and is not the one of this identity.
pub(super) fn key_owner(uuid: &str, key: PeerKey, model: &Model) -> Option<String> {
    let has = |node: &NodeRecord| node.keys.as_ref().is_some_and(|keys| keys.contains(&key));
    let owner = model.nodes.values().find(|node| node.uuid != uuid && !node.removed && has(&node.record));
    owner.map(|node| node.name.clone())
}

impl Member for DeviceRecord {
    const COUNTER: &'static str = "devices";
    const KIND: Kind = Kind::Device;

    fn key(id: u32) -> Key<'static> {
        Key::Device(DeviceId(id))
    }

    fn find(&self, model: &Model) -> Option<u32> {
        model.devices.values().find(|device| device.uuid == self.uuid).map(|device| device.id.0)
    }

    fn taken_name(&self, model: &Model) -> Option<String> {
        // What is gone for good has no use for its name.
        let gone = |device: &DeviceRecord| device.removed || device.is_lost();
        let same = |device: &DeviceRecord| device.node == self.node && device.name == self.name && !gone(device);
        let taken = model.devices.values().any(|device| same(device) && device.uuid != self.uuid);
        taken.then(|| self.name.clone())
    }

    fn refusal(&self, registered: &DeviceRecord, _model: &Model) -> Option<MetaError> {
        registered.removed.then(|| MetaError::Removed { kind: Kind::Device, name: registered.name.clone() })
    }

    fn keeping(mut self, registered: Option<&DeviceRecord>, id: u32) -> DeviceRecord {
        self.id = DeviceId(id);
        if let Some(registered) = registered {
            self.state = registered.state;
            self.failure.clone_from(&registered.failure);
            self.unknown = registered.unknown.clone();
        }
        self
    }
}

/// Registers a start of a node. Gives its record, with its id and an incarnation beyond all earlier ones.
///
/// # Errors
/// When its name can't be or is taken, the node was removed, has copies that bind it to its site, or its key is not in
/// its record or is another node's.
pub fn register_node(records: &Records<'_>, spec: &NodeSpec) -> Outcome<NodeRecord> {
    register_node_as(records, spec, false)
}

/// [`register_node`] of a machine that need not show a join token: whoever reaches the configuration could write the
/// record himself, and here only trusted machines reach it.
///
/// # Errors
/// As those of [`register_node`].
pub fn register_trusted_node(records: &Records<'_>, spec: &NodeSpec) -> Outcome<NodeRecord> {
    register_node_as(records, spec, true)
}

/// Whether new nodes need join tokens: nodes prove who they are, the API asks for grants, and there is a node that can
/// make tokens.
#[must_use]
pub fn takes_invited_only(model: &Model) -> bool {
    let settings = model.settings();
    let guarded = settings.transport == Transport::Tls && settings.api_access == ApiAccess::Grants;
    guarded && model.nodes.values().any(|node| !node.removed)
}

/// [`register_node`] of one that has a join token, or not.
pub(super) fn register_node_as(records: &Records<'_>, spec: &NodeSpec, invited: bool) -> Outcome<NodeRecord> {
    check_name(Kind::Node, &spec.name)?;
    let wanted = NodeRecord {
        id: NodeId(0),
        uuid: spec.uuid.clone(),
        name: spec.name.clone(),
        data_address: spec.data_address,
        api_address: spec.api_address,
        endpoints: spec.endpoints.clone(),
        site: spec.site.clone(),
        rack: spec.rack.clone(),
        incarnation: spec.incarnation,
        shards: spec.shards,
        keys: Some(vec![spec.key]),
        shut_out: None,
        api_tls: spec.api_tls,
        understands: UNDERSTOOD.map(str::to_owned).into(),
        removed: false,
        unknown: Unknown::default(),
    };
    register(records, wanted, invited)
}

/// A node's clients connect here from now on. Gives its record.
///
/// # Errors
/// When the node is missing.
pub fn set_endpoints(records: &Records<'_>, node: NodeId, endpoints: &[Endpoint]) -> Outcome<NodeRecord> {
    let [found] = records.find_all([&Key::Node(node)])?;
    let Some(record) = found.record::<NodeRecord>()?.filter(|record| !record.removed) else {
        return Err(missing(Kind::Node, &node.to_string()).into());
    };
    if record.endpoints == endpoints {
        return Ok(Step::Done(record, found.mod_revision()));
    }
    let record = NodeRecord { endpoints: endpoints.to_vec(), ..record };
    Ok(Step::Run(Txn::new().when_as(&found).put(&found.key, &record), record))
}

/// Registers a device, or brings its record up to date; its state stays. Gives the record with its id.
///
/// # Errors
/// When its name can't be or is taken, or the device was removed.
pub fn register_device(records: &Records<'_>, spec: &DeviceSpec) -> Outcome<DeviceRecord> {
    check_name(Kind::Device, &spec.name)?;
    let wanted = DeviceRecord {
        id: DeviceId(0),
        uuid: spec.uuid.clone(),
        node: spec.node,
        shard: spec.shard,
        name: spec.name.clone(),
        capacity_bytes: spec.capacity_bytes,
        usable_bytes: Some(spec.usable_bytes),
        state: DeviceState::Up,
        failure: None,
        removed: false,
        unknown: Unknown::default(),
    };
    register(records, wanted, false)
}

fn register<M: Member>(records: &Records<'_>, wanted: M, invited: bool) -> Outcome<M> {
    let counter = records.find(&Key::Counter(M::COUNTER))?;
    // Every registration moves the counter: a model that has seen its last change knows all members.
    let model = records.model(counter.mod_revision())?;
    if let Some(name) = wanted.taken_name(model) {
        return Err(MetaError::NameTaken { kind: M::KIND, name }.into());
    }
    if let Some(id) = wanted.find(model) {
        let found = records.find(&M::key(id))?;
        let registered: Option<M> = found.record()?;
        if let Some(error) = registered.as_ref().and_then(|registered| wanted.refusal(registered, model)) {
            return Err(error.into());
        }
        let record = wanted.keeping(registered.as_ref(), id);
        if registered.as_ref() == Some(&record) {
            return Ok(Step::Done(record, found.mod_revision()));
        }
        return Ok(Step::Run(Txn::new().when_as(&found).put(&found.key, &record), record));
    }
    if let Some(error) = wanted.refusal_of_new(model, invited) {
        return Err(error.into());
    }
    let next = counter.next_id()?;
    let id = u32::try_from(next)
        .map_err(|_| MetaError::Broken { key: counter.key.clone(), reason: format!("{next} is no valid id") })?;
    let record = wanted.keeping(None, id);
    let key = M::key(id).to_string();
    let txn = Txn::new().when_as(&counter).when_absent(&key).put(&counter.key, &(next + 1)).put(&key, &record);
    Ok(Step::Run(txn, record))
}

#[cfg(test)]
#[path = "members_tests.rs"]
pub(super) mod tests;
