//! What the configuration holds when a run begins: nodes, devices, storage classes, groups and volumes.

use crate::kernel::random::Random;
use crate::plan::{Mode, Plan};
use crate::workloads::rekeys::KEY;
use azekura_base::{CHUNK_SIZE, DeviceId, KeyGeneration, LayerId, NodeId, PeerKey, PgId, Shard, Transport, VolumeId};
use azekura_model::transitions::groups::NewGroup;
use azekura_model::transitions::identity::ensure_cluster;
use azekura_model::transitions::members::{DeviceSpec, NodeSpec, register_device, register_node};
use azekura_model::{
    AckRule, ClassRecord, ClusterRecord, DataKeyRecord, FILE_PROVIDER, FailureDomain, Key, LayerRecord, LayerState,
    Memory, Outcome, Records, SettingsRecord, Step, Txn, Unknown, VolumeAccess, VolumeRecord, WrappedKey,
};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU8;

/// The cluster's id.
pub(crate) const CLUSTER: u128 = 0x617a_656b;
/// The volume that there always is.
pub(crate) const VOLUME: &str = "volume";
pub(crate) const VOLUME_ID: VolumeId = VolumeId(1);
/// The second volume, where there is one.
pub(crate) const SECOND: &str = "second";
/// The volume, and its class, that is lost for a while, where there is one.
pub(crate) const LOST: &str = "lost";
/// The class of all volumes but the lost one.
pub(crate) const CLASS: &str = "class";
/// Volumes may promise as much as they like: what they promise is not what devices are filled with.
const OVERCOMMIT_RATIO: f64 = 1e6;
/// What records say of a device's size, bytes. All are alike, and stores have sizes of their own.
pub(crate) const CAPACITY_BYTES: u64 = 1 << 30;

/// The first of a node's devices has this number, times the node's, when a run begins.
const NUMBERS_PER_NODE: u32 = 100;

/// A configuration that `random` draws; `settings` draws what can be set for the whole cluster.
pub(crate) fn draw(plan: &Plan, random: &mut Random, mut settings: Random) -> Memory {
    let nodes: Vec<NodeId> = (1..=plan.nodes).map(NodeId).collect();
    let of = |node: NodeId| (0..plan.devices_per_node).map(move |nth| DeviceId(node.0 * NUMBERS_PER_NODE + nth));
    let mut memory = Memory::new();
    run(&mut memory, |records| ensure_cluster(records, &cluster(), &SettingsRecord::default(), None));
    for node in &nodes {
        let registered = run(&mut memory, |records| register_node(records, &node_spec(*node)));
        assert_eq!(registered.id, *node, "nodes are counted from 1");
        number_devices_from(&mut memory, of(*node).next());
        for device in of(*node) {
            let registered = run(&mut memory, |records| register_device(records, &device_spec(device, *node)));
            assert_eq!(registered.id, device, "devices of a node are counted from {NUMBERS_PER_NODE} times its number");
        }
    }
    number_devices_from(&mut memory, Some(DeviceId((plan.nodes + 1) * NUMBERS_PER_NODE)));
    let mut txn = Txn::new();
    let mut copies = plan.copies;
    let groups: Vec<PgId> = (1..=plan.groups).map(PgId).collect();
    for pg in &groups {
        let mut candidates = nodes.clone();
        if plan.mode == Mode::Lost {
            candidates.pop();
        }
        copies = plan.copies.min(candidates.len() as u32);
        let mut members = Vec::new();
        for _ in 0..copies {
            let node = candidates.swap_remove(random.below(candidates.len() as u64) as usize);
            let devices: Vec<DeviceId> = of(node).collect();
            members.push(*random.pick(&devices));
        }
        txn = put_group(txn, *pg, CLASS, members);
    }
    txn = put(txn, Key::Class(CLASS), &class(CLASS, copies, plan.ack, plan.copies_min, groups));
    let size_bytes = u64::from(plan.chunks) * CHUNK_SIZE as u64;
    let mut draw_offset = || random.below(u64::from(plan.groups)) as u32;
    let access = if plan.mode == Mode::Fsx { VolumeAccess::Exclusive } else { VolumeAccess::Shared };
    txn = put_volume(txn, VOLUME_ID, VOLUME, CLASS, size_bytes, draw_offset(), access);
    if matches!(plan.mode, Mode::Snapshots | Mode::Fsx) {
        txn = put_volume(txn, VolumeId(2), SECOND, CLASS, size_bytes, draw_offset(), access);
    } else if plan.mode == Mode::Attachments {
        txn = put_volume(txn, VolumeId(2), SECOND, CLASS, size_bytes, 0, access);
    }
    if plan.mode == Mode::Lost
        && let Some(device) = nodes.last().and_then(|node| of(*node).next())
    {
        let pg = PgId(plan.groups + 1);
        txn = put_group(txn, pg, LOST, vec![device]);
        txn = put(txn, Key::Class(LOST), &class(LOST, 1, AckRule::All, 1, vec![pg]));
        txn = put_volume(txn, VolumeId(3), LOST, LOST, size_bytes, 0, access);
    }
    let next = if matches!(plan.mode, Mode::Snapshots | Mode::Fsx) { 3_u64 } else { 4 };
    txn = put(put(txn, Key::Counter("volumes"), &next), Key::Counter("layers"), &next);
    txn = put(txn, Key::Counter("groups"), &(plan.groups + 2));
    let mut set = SettingsRecord::default();
    if plan.devices_fail {
        // Sooner than people may ask for: runs are short.
        set.rehome_after_seconds = Some(settings.between(1, 8));
        set.moves_at_once = settings.between(1, 3) as u32;
    }
    if plan.mode == Mode::Keys {
        set.transport = Transport::Tls;
    }
    if set != SettingsRecord::default() {
        txn = put(txn, Key::Settings, &set);
    }
    memory.run(&txn).expect("there are no conditions");
    if plan.rekeys {
        encrypt(&mut memory);
    }
    memory
}

/// All volumes have one data key.
fn encrypt(memory: &mut Memory) {
    let (generations, unknown) = (vec![wrapped_key(0)], Unknown::default());
    let record = DataKeyRecord { id: KEY, generations, writing: None, unknown };
    let mut txn = put(Txn::new(), Key::DataKey(KEY), &record);
    for volume in memory.model().volumes.values() {
        txn = put(txn, Key::Volume(&volume.name), &VolumeRecord { key: Some(KEY), ..volume.record.clone() });
    }
    for layer in memory.model().layers.values() {
        txn = put(txn, Key::Layer(layer.id), &layer.record.clone().with_key(Some(KEY)));
    }
    memory.run(&txn).expect("there are no conditions");
}

/// The nth key that was ever made. Its number is given when it is added.
pub(crate) fn wrapped_key(nth: u64) -> WrappedKey {
    let number = KeyGeneration::FIRST;
    let (provider, wrapped) = (FILE_PROVIDER.to_owned(), nth.to_string());
    WrappedKey { number, provider, wrapped, check: String::new(), created: String::new(), unknown: Unknown::default() }
}

/// Executes a transition that nobody contends with.
fn run<T>(memory: &mut Memory, transition: impl FnOnce(&Records<'_>) -> Outcome<T>) -> T {
    match transition(&Records::known(memory.model())) {
        Ok(Step::Done(value, _)) => value,
        Ok(Step::Run(txn, value)) => {
            memory.run(&txn).expect("nobody was faster");
            value
        }
        Ok(Step::Again) => unreachable!("nobody else changes anything"),
        Err(halt) => unreachable!("a cluster's beginning is refused: {halt:?}"),
    }
}

/// The next device that is registered has this number.
fn number_devices_from(memory: &mut Memory, next: Option<DeviceId>) {
    if let Some(next) = next {
        memory.run(&put(Txn::new(), Key::Counter("devices"), &next.0)).expect("there are no conditions");
    }
}

fn cluster() -> ClusterRecord {
    ClusterRecord {
        id: format!("{CLUSTER:032x}"),
        name: String::new(),
        created: String::new(),
        life: format!("{:032x}", 1),
        former_lives: Vec::new(),
        restored: None,
        requires: BTreeSet::new(),
        unknown: Unknown::default(),
    }
}

/// A device as its node registers it.
fn device_spec(id: DeviceId, node: NodeId) -> DeviceSpec {
    let name = format!("device{id}");
    DeviceSpec {
        uuid: name.clone(),
        node,
        shard: Shard(0),
        name,
        capacity_bytes: CAPACITY_BYTES,
        usable_bytes: CAPACITY_BYTES,
    }
}

fn put<T: serde::Serialize>(txn: Txn, key: Key<'_>, record: &T) -> Txn {
    txn.put(&key.to_string(), record)
}

fn put_group(txn: Txn, pg: PgId, class: &str, members: Vec<DeviceId>) -> Txn {
    let primary = members[0];
    put(txn, Key::Group(pg), &NewGroup { members, primary }.into_record(pg, class, 0))
}

fn put_volume(
    txn: Txn,
    id: VolumeId,
    name: &str,
    class: &str,
    size_bytes: u64,
    group_offset: u32,
    access: VolumeAccess,
) -> Txn {
    let head = LayerId(id.0);
    let volume = VolumeRecord {
        id,
        uuid: name.into(),
        name: name.into(),
        size_bytes,
        logical_block_bytes: azekura_base::LogicalBlock::Bytes512,
        class: class.into(),
        head,
        group_offset,
        access,
        created: String::new(),
        cut: None,
        protection: None,
        source: None,
        key: None,
        rekeyed: None,
        reverts: 0,
        limits: None,
        unknown: Unknown::default(),
    };
    let txn = put(txn, Key::Volume(name), &volume);
    put(txn, Key::Layer(head), &LayerRecord::new(head, id, None, LayerState::Head, class))
}

/// Where a node listens, as far as the records say.
pub(crate) fn address(node: NodeId) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 7000 + node.0 as u16))
}

/// Two sites; the rule that asks for them has a copy on every node.
fn node_spec(id: NodeId) -> NodeSpec {
    let (name, address) = (format!("node{id}"), address(id));
    NodeSpec {
        key: PeerKey::unproved(&name),
        api_tls: false,
        uuid: name.clone(),
        name,
        data_address: address,
        api_address: address,
        endpoints: Vec::new(),
        site: if id.0 % 2 == 1 { "east".into() } else { "west".into() },
        rack: String::new(),
        incarnation: 0,
        shards: NonZeroU8::MIN,
    }
}

fn class(name: &str, copies: u32, ack_rule: AckRule, copies_min: u32, groups: Vec<PgId>) -> ClassRecord {
    ClassRecord {
        name: name.into(),
        copies,
        failure_domain: FailureDomain::Host,
        ack_rule,
        copies_min,
        overcommit_ratio: OVERCOMMIT_RATIO,
        io_timeout_seconds: None,
        encrypt: false,
        logical_block_bytes: azekura_base::LogicalBlock::Bytes512,
        home: None,
        home_attached: false,
        parent: None,
        groups,
        plan: None,
        deleted: false,
        created: String::new(),
        unknown: Unknown::default(),
    }
}
