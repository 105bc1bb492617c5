//! Who needs whom, when that ends, and how many links a cluster has.

use crate::{Attachments, ClusterView, ConnKey, Effect, Identity, LINK_IDLE, Location, Node, NodeView};
use azekura_base::{CHUNK_SIZE, DeviceId, Endpoint, Generation, LayerId, NodeId, PgId, Sequence, Shard, VolumeId};
use azekura_gateway::{Op, VolumeView};
use azekura_replica::GroupConfig;
use azekura_wire::{Hello, Message, VERSION};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// The shard whose needs are looked at.
const ME: u32 = 1;

fn at(node: u32) -> Endpoint {
    Endpoint::first(NodeId(node))
}

/// Nodes 1 to 9 of one shard, each with the device of its number, and these groups of devices, the first its primary.
fn view(revision: u64, groups: &[&[u32]]) -> ClusterView {
    let node = |node: u32| {
        let address = SocketAddr::from(([127, 0, 0, 1], 7000 + node as u16));
        (NodeId(node), NodeView { address, shards: NonZeroU8::MIN, keys: Vec::new(), location: Location::default() })
    };
    let group = |(pg, devices): (usize, &&[u32])| {
        let members: BTreeSet<DeviceId> = devices.iter().map(|device| DeviceId(*device)).collect();
        (PgId(pg as u32), GroupConfig::new(DeviceId(devices[0]), members))
    };
    ClusterView {
        revision,
        nodes: (1..=9).map(node).collect(),
        devices: (1..=9).map(|device| (DeviceId(device), at(device))).collect(),
        groups: groups.iter().enumerate().map(group).collect(),
        ..ClusterView::default()
    }
}

/// A volume of so many chunks in all groups of the view.
fn with_volume(mut view: ClusterView, name: &str, chunks: usize) -> ClusterView {
    let volume = VolumeView {
        id: VolumeId(7),
        name: name.to_owned(),
        size: (chunks * CHUNK_SIZE) as u64,
        logical_block: azekura_base::LogicalBlock::Bytes512,
        layer: LayerId(7),
        cut: None,
        read_only: false,
        io_timeout: None,
        groups: view.groups.keys().copied().collect(),
        group_offset: 0,
        key: None,
        limits: None,
    };
    view.volumes.insert(name.to_owned(), Arc::new(volume));
    view
}

fn node() -> Node {
    Node::new(Identity { cluster: 1, endpoint: at(ME), incarnation: 1 }, Duration::ZERO)
}

/// What happens at the given time: which nodes are dialled, and to which the connection is closed.
fn turn(node: &mut Node, now: Duration) -> (Vec<u32>, Vec<u64>) {
    node.poll(now);
    assert_eq!(node.waits_in_vain(), None);
    let (mut dialled, mut closed) = (Vec::new(), Vec::new());
    while let Some(effect) = node.next_effect() {
        match effect {
            Effect::Connect(to, ..) => dialled.push(to.node.0),
            Effect::Close(conn) => closed.push(conn.0),
            _ => {}
        }
    }
    (dialled, closed)
}

fn dials(node: &mut Node, now: Duration) -> Vec<u32> {
    turn(node, now).0
}

/// The connection that was dialled to a node stands; its number is the node's.
fn welcome(node: &mut Node, to: u32) {
    let conn = ConnKey(u64::from(to));
    node.connected(at(to), conn, None);
    let hello = Hello { version: VERSION, cluster: 1, from: at(to), to: at(ME), incarnation: 1, connection: 1 };
    node.received(conn, Message::Welcome(hello));
}

#[test]
fn who_shares_a_group_is_dialled_and_nobody_else() {
    let cases: [(&[&[u32]], &[u32]); 5] = [
        (&[], &[]),
        (&[&[2, 3]], &[]),
        (&[&[1, 2]], &[2]),
        (&[&[2, 1]], &[2]),
        (&[&[4, 1, 2], &[1, 9], &[5, 6]], &[2, 4, 9]),
    ];
    for (groups, expected) in cases {
        let mut node = node();
        node.configure(view(1, groups));
        assert_eq!(dials(&mut node, Duration::ZERO), expected, "{groups:?}");
    }
}

#[test]
fn copies_that_learn_or_were_left_behind_or_leave_are_needed_on_both_sides() {
    let member = |config: &mut GroupConfig, device| config.members.extend([DeviceId(device)]);
    let away = |config: &mut GroupConfig, device| config.away.extend([(DeviceId(device), Sequence(1))]);
    let leaving = |config: &mut GroupConfig, device| config.leaving.extend([DeviceId(device)]);
    let ways: [fn(&mut GroupConfig, u32); 3] = [member, away, leaving];
    for way in ways {
        let dialled_with = |groups: &[&[u32]], device: u32| {
            let (mut view, mut node) = (view(1, groups), node());
            view.groups.values_mut().for_each(|config| way(config, device));
            node.configure(view);
            dials(&mut node, Duration::ZERO)
        };
        assert_eq!(dialled_with(&[&[1, 2]], 5), [2, 5]);
        assert_eq!(dialled_with(&[&[4, 2]], 1), [2, 4], "its primary is asked and told, too");
    }
}

#[test]
fn a_request_makes_the_shards_of_its_volume_needed_and_a_minute_without_one_ends_that() {
    let mut node = node();
    node.configure(with_volume(view(1, &[&[2, 3], &[4, 3], &[5, 6]]), "v", 2));
    assert_eq!(dials(&mut node, Duration::ZERO), [0u32; 0]);
    node.submit(1, "v", Generation(1), Op::Read { offset: 0, len: 4096 });
    assert_eq!(dials(&mut node, Duration::ZERO), [2, 3, 4], "the third group has no chunk of it");
    [2, 3, 4].into_iter().for_each(|peer| welcome(&mut node, peer));
    // Nobody answers: as long as something is under way, they are needed.
    let mut now = Duration::ZERO;
    let mut closed_at = |node: &mut Node, until: Duration| {
        let mut closed = Vec::new();
        while now < until {
            now += SECOND / 4;
            closed.extend(turn(node, now).1);
        }
        closed
    };
    let asked = [2, 3, 4].map(|peer| node.mesh.links.is_up(at(peer)));
    assert_eq!(asked, [true; 3]);
    let closed = closed_at(&mut node, SECOND * 3);
    let why = "the primary was asked and keeps silent, then the other copy; of node 4 nothing is expected";
    assert_eq!(closed, [2, 3], "{why}");
    assert!([2, 3, 4].into_iter().all(|peer| node.mesh.needs.has(at(peer))), "a request is still under way");
    let mut ended = with_volume(view(2, &[&[2, 3], &[4, 3], &[5, 6]]), "v", 2);
    ended.volumes.clear();
    node.configure(ended);
    let closed = closed_at(&mut node, SECOND * 3 + LINK_IDLE - SECOND);
    assert_eq!(closed, [0u64; 0], "a minute is not over");
    assert_eq!(closed_at(&mut node, SECOND * 3 + LINK_IDLE + SECOND), [4]);
    assert_eq!(node.mesh.links.peers().count(), 0);
    assert_eq!(dials(&mut node, SECOND * 200), [0u32; 0], "nobody dials them again");
}

#[test]
fn what_is_needed_again_in_time_stays() {
    let mut node = node();
    node.configure(view(1, &[&[1, 2]]));
    assert_eq!(dials(&mut node, Duration::ZERO), [2]);
    welcome(&mut node, 2);
    node.advance(SECOND);
    node.configure(view(2, &[&[1, 3]]));
    assert_eq!(turn(&mut node, SECOND), (vec![3], vec![]));
    let late = SECOND + LINK_IDLE - SECOND / 2;
    node.advance(late);
    node.configure(view(3, &[&[1, 2]]));
    // Node 3 has never answered: that dial is given up at once.
    assert_eq!(turn(&mut node, late), (vec![], vec![]));
    assert_eq!(node.mesh.links.peers().collect::<Vec<_>>(), [at(2)]);
    assert!(node.mesh.needs.has(at(2)));
}

#[test]
fn a_connection_that_ends_while_nobody_needs_it_is_not_dialled_again() {
    let mut node = node();
    node.configure(view(1, &[&[1, 2]]));
    assert_eq!(dials(&mut node, Duration::ZERO), [2]);
    welcome(&mut node, 2);
    node.configure(view(2, &[]));
    node.closed(ConnKey(2));
    for half_seconds in 1..400 {
        assert_eq!(turn(&mut node, SECOND / 2 * half_seconds), (vec![], vec![]));
    }
}

#[test]
fn a_fence_waits_for_the_connections_that_it_needs() {
    let mut node = node();
    node.configure(view(1, &[&[2, 3], &[4, 3], &[1, 5]]));
    assert_eq!(dials(&mut node, Duration::ZERO), [5]);
    let attachments = Attachments { generation: Generation(2), standing: vec![Generation(2)] };
    node.fence(1, VolumeId(7), attachments, [PgId(0), PgId(1)], SECOND * 5);
    assert_eq!(dials(&mut node, Duration::ZERO), [2, 4]);
    welcome(&mut node, 2);
    node.poll(SECOND / 100);
    let asked = std::iter::from_fn(|| node.next_effect()).filter_map(|effect| match effect {
        Effect::Send(conn, Message::Fence(fence)) => Some((conn, fence.pg)),
        _ => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [(ConnKey(2), PgId(0))], "at once, and nobody who can't hear it");
    // The wish ends, and with it what it needed.
    let mut told = false;
    for quarters in 1..=28 {
        node.poll(SECOND / 4 * quarters);
        told |= std::iter::from_fn(|| node.next_effect()).any(|effect| matches!(effect, Effect::Fenced(1, Err(_))));
    }
    assert!(told);
    assert!(!node.mesh.needs.has(at(2)) && !node.mesh.needs.has(at(4)) && node.mesh.needs.has(at(5)));
}

#[test]
fn whether_a_process_has_ended_is_found_out_without_a_link() {
    let mut node = node();
    node.configure(view(1, &[]));
    assert!(!node.has_ended(NodeId(4), 7));
    node.ask_about(NodeId(4), 7);
    assert_eq!(dials(&mut node, Duration::ZERO), [4]);
    assert!(!node.has_ended(NodeId(4), 7), "nobody has answered yet");
    node.connect_failed(at(4), true);
    assert!(node.has_ended(NodeId(4), 7) && !node.has_ended(NodeId(4), 8));
    // Somebody asks about a later process: what was refused before says nothing of it.
    node.ask_about(NodeId(4), 8);
    assert!(!node.has_ended(NodeId(4), 8) && node.has_ended(NodeId(4), 7));
    assert_eq!(dials(&mut node, SECOND), [4]);
    node.ask_about(NodeId(4), 9);
    node.connect_failed(at(4), true);
    assert!(!node.has_ended(NodeId(4), 9), "that dial was begun before the question");
    assert_eq!(dials(&mut node, SECOND * 2), [4]);
    node.connect_failed(at(4), true);
    assert!(node.has_ended(NodeId(4), 9));
    // Nobody asks any more.
    assert_eq!(dials(&mut node, SECOND * 100), [0u32; 0]);
}

#[test]
fn earlier_processes_of_the_own_node_have_ended() {
    let node = Node::new(Identity { cluster: 1, endpoint: at(ME), incarnation: 5 }, Duration::ZERO);
    assert!(node.has_ended(NodeId(ME), 4) && !node.has_ended(NodeId(ME), 5));
}

/// 100 nodes of four shards, each with a device, and 4,096 groups of three copies on different nodes.
fn large_cluster() -> ClusterView {
    let mut state = 1u64;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % below
    };
    let endpoint = |device: u32| Endpoint { node: NodeId(device / 4), shard: Shard((device % 4) as u8) };
    let mut groups = BTreeMap::new();
    for pg in 0..4096 {
        let mut members: Vec<u32> = Vec::new();
        while members.len() < 3 {
            let device = draw(400);
            if members.iter().all(|member| member / 4 != device / 4) {
                members.push(device);
            }
        }
        let config = GroupConfig::new(DeviceId(members[0]), members.into_iter().map(DeviceId).collect());
        groups.insert(PgId(pg), config);
    }
    let four = NonZeroU8::new(4).expect("it is not 0");
    let node = |node: u32| {
        let address = SocketAddr::from(([10, 0, 0, node as u8], 7000));
        (NodeId(node), NodeView { address, shards: four, keys: Vec::new(), location: Location::default() })
    };
    ClusterView {
        revision: 1,
        nodes: (0..100).map(node).collect(),
        devices: (0..400).map(|device| (DeviceId(device), endpoint(device))).collect(),
        groups,
        ..ClusterView::default()
    }
}

#[test]
fn a_hundred_nodes_of_four_shards_keep_a_seventh_of_all_possible_links() {
    let view = Arc::new(large_cluster());
    let mut links = 0;
    for shard in view.endpoints() {
        let mut node = Node::new(Identity { cluster: 1, endpoint: shard, incarnation: 1 }, Duration::ZERO);
        node.join(NonZeroU8::new(4).expect("it is not 0"));
        node.configure(Arc::clone(&view));
        node.poll(Duration::ZERO);
        let effects = std::iter::from_fn(|| node.next_effect());
        links += effects.filter(|effect| matches!(effect, Effect::Connect(..) | Effect::ConnectLocal(_))).count();
    }
    let devices = |config: &GroupConfig| config.members.iter().map(|device| device.0).collect::<Vec<u32>>();
    let pairs = view.groups.values().flat_map(|config| {
        let members = devices(config);
        let pairs = members.iter().flat_map(|a| members.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b);
        pairs.collect::<Vec<_>>()
    });
    assert_eq!(links, pairs.collect::<BTreeSet<_>>().len(), "one each way for each pair that shares a group");
    assert_eq!(links, 22_676, "of 400 x 399 = 159,600");
}
