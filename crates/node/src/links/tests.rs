//! Who greets, who is dialled, and whose connections are dropped.

use super::*;
use crate::{ClusterView, Effect, Identity, Location, Node, NodeView, UNGREETED_MAX};
use azekura_base::{DeviceId, PgId, Shard};
use azekura_replica::GroupConfig;
use azekura_wire::{Message, VERSION};
use std::net::SocketAddr;
use std::num::NonZeroU8;

fn first(node: u32) -> Endpoint {
    Endpoint::first(NodeId(node))
}

fn second(node: u32) -> Endpoint {
    Endpoint { node: NodeId(node), shard: Shard(1) }
}

fn hello(from: Endpoint, incarnation: u64) -> Hello {
    Hello { version: VERSION, cluster: 1, from, to: first(9), incarnation, connection: 1 }
}

fn node() -> Node {
    Node::new(Identity { cluster: 1, endpoint: first(9), incarnation: 1 }, Duration::ZERO)
}

fn effects(node: &mut Node) -> (Vec<String>, Vec<ConnKey>) {
    let (mut warnings, mut closed) = (Vec::new(), Vec::new());
    while let Some(effect) = node.next_effect() {
        match effect {
            Effect::Warn(warning) => warnings.push(warning.text),
            Effect::Close(conn) => closed.push(conn),
            effect => panic!("unexpected {effect:?}"),
        }
    }
    (warnings, closed)
}

#[test]
fn who_looks_for_another_node_again_and_again_is_told_of_once_a_minute() {
    let mut node = node();
    let hello = Hello { version: VERSION, cluster: 1, from: first(5), to: first(6), incarnation: 1, connection: 1 };
    for n in 1..=601 {
        node.advance(Duration::from_millis(200) * n);
        node.accepted(ConnKey(u64::from(n)), None);
        node.received(ConnKey(u64::from(n)), Message::Hello(hello));
    }
    let (warnings, closed) = effects(&mut node);
    assert_eq!(closed.len(), 601, "each is closed");
    let why = "closing a connection of node 5: it looks for node 6, this is node 9";
    let more = format!("{why} (299 times more in the last minute)");
    assert_eq!(warnings, [why, &more, &more]);
}

#[test]
fn connections_that_do_not_greet_leave_room_for_nodes() {
    let mut node = node();
    let hello = |from| hello(first(from), 1);
    node.accepted(ConnKey(1), None);
    node.received(ConnKey(1), Message::Hello(hello(1)));
    for silent in 2..=10_000 {
        node.accepted(ConnKey(silent), None);
    }
    node.accepted(ConnKey(10_001), None);
    node.received(ConnKey(10_001), Message::Hello(hello(2)));
    assert_eq!(node.inbound_from(ConnKey(1)), Some(first(1)));
    assert_eq!(node.inbound_from(ConnKey(10_001)), Some(first(2)));
    assert_eq!(node.mesh.links.inbound.len(), UNGREETED_MAX + 1);
}

/// An accepted connection whose other end greets.
fn greet(node: &mut Node, conn: u64, hello: Hello) {
    node.accepted(ConnKey(conn), None);
    node.received(ConnKey(conn), Message::Hello(hello));
}

/// Connections that this node has closed.
fn closed(node: &mut Node) -> Vec<u64> {
    let effects = std::iter::from_fn(|| node.next_effect());
    let closed = effects.filter_map(|effect| match effect {
        Effect::Close(conn) => Some(conn.0),
        _ => None,
    });
    closed.collect()
}

#[test]
fn the_older_connection_of_a_shard_is_dropped_and_not_that_of_its_node() {
    let mut node = node();
    greet(&mut node, 1, hello(first(1), 1));
    greet(&mut node, 2, hello(second(1), 1));
    assert_eq!(closed(&mut node), [0u64; 0], "two shards of a node are two peers");
    greet(&mut node, 3, hello(second(1), 1));
    assert_eq!(closed(&mut node), [2]);
    let from = |conn| node.inbound_from(ConnKey(conn));
    assert_eq!([from(1), from(2), from(3)], [Some(first(1)), None, Some(second(1))]);
}

#[test]
fn connections_of_a_former_process_are_dropped_whichever_shard_the_later_one_greets_from() {
    let mut node = node();
    greet(&mut node, 1, hello(first(1), 4));
    greet(&mut node, 2, hello(second(1), 4));
    greet(&mut node, 3, hello(second(2), 4));
    greet(&mut node, 4, hello(second(1), 5));
    assert_eq!(closed(&mut node), [1, 2]);
    greet(&mut node, 5, hello(first(1), 5));
    assert_eq!(closed(&mut node), [0u64; 0], "they are of one process");
    assert!(node.has_ended(NodeId(1), 4) && !node.has_ended(NodeId(1), 5) && !node.has_ended(NodeId(2), 4));
}

#[test]
fn who_looks_for_another_shard_is_refused() {
    let mut node = node();
    greet(&mut node, 1, Hello { to: second(9), ..hello(second(5), 1) });
    let (warnings, closed) = effects(&mut node);
    assert_eq!(warnings, ["closing a connection of node 5.1: it looks for node 9.1, this is node 9"]);
    assert_eq!(closed, [ConnKey(1)]);
}

fn address(node: u32) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7000 + node as u16))
}

/// Nodes with so many shards, each with a device. All devices have a copy of one group, so all shards need each other.
fn view(nodes: &[(u32, u8)]) -> ClusterView {
    let view = |(node, shards): &(u32, u8)| {
        let shards = NonZeroU8::new(*shards).unwrap_or(NonZeroU8::MIN);
        (NodeId(*node), NodeView { address: address(*node), shards, keys: Vec::new(), location: Location::default() })
    };
    let shards = nodes.iter().flat_map(|(node, shards)| (0..*shards).map(|shard| (*node, shard)));
    let device = |(node, shard): (u32, u8)| {
        (DeviceId(node * 256 + u32::from(shard)), Endpoint { node: NodeId(node), shard: Shard(shard) })
    };
    let devices: BTreeMap<DeviceId, Endpoint> = shards.map(device).collect();
    let group = devices.keys().next().map(|first| GroupConfig::new(*first, devices.keys().copied().collect()));
    let groups = group.into_iter().map(|group| (PgId(1), group)).collect();
    ClusterView { revision: 1, nodes: nodes.iter().map(view).collect(), devices, groups, ..ClusterView::default() }
}

fn dialled(node: &mut Node, now: u64) -> Vec<(Endpoint, SocketAddr)> {
    node.poll(Duration::from_millis(now));
    let effects = std::iter::from_fn(|| node.next_effect());
    let dialled = effects.filter_map(|effect| match effect {
        Effect::Connect(to, address, _) => Some((to, address)),
        _ => None,
    });
    dialled.collect()
}

/// A dialled connection stands, and the peer answers the greeting.
fn welcome(node: &mut Node, to: Endpoint, conn: u64, from: Endpoint) {
    node.connected(to, ConnKey(conn), None);
    let greeting = std::iter::from_fn(|| node.next_effect()).find_map(|effect| match effect {
        Effect::Send(_, Message::Hello(hello)) => Some((hello.from, hello.to)),
        _ => None,
    });
    assert_eq!(greeting, Some((first(9), to)));
    node.received(ConnKey(conn), Message::Welcome(hello(from, 1)));
}

#[test]
fn every_shard_that_is_needed_is_dialled_and_stands_alone() {
    let mut node = node();
    node.configure(view(&[(1, 2), (9, 1)]));
    assert_eq!(dialled(&mut node, 0), [(first(1), address(1)), (second(1), address(1))]);
    welcome(&mut node, first(1), 1, first(1));
    welcome(&mut node, second(1), 2, second(1));
    assert!(node.mesh.links.is_up(first(1)) && node.mesh.links.is_up(second(1)));
    node.closed(ConnKey(1));
    assert!(!node.mesh.links.is_up(first(1)) && node.mesh.links.is_up(second(1)));
    assert_eq!(dialled(&mut node, 200), [(first(1), address(1))]);
    // The node starts again with one shard.
    node.configure(view(&[(1, 1), (9, 1)]));
    assert_eq!(closed(&mut node), [2]);
    assert!(!node.mesh.links.is_up(second(1)));
}

#[test]
fn another_shard_than_the_one_that_was_looked_for_is_refused() {
    let mut node = node();
    node.configure(view(&[(1, 2), (9, 1)]));
    dialled(&mut node, 0);
    welcome(&mut node, second(1), 2, first(1));
    let (warnings, closed) = effects(&mut node);
    assert_eq!(
        warnings,
        ["closing a connection of node 1.1: it is node 1, not 1.1: two nodes have exchanged addresses"]
    );
    assert_eq!(closed, [ConnKey(2)]);
    assert!(!node.mesh.links.is_up(second(1)));
}

#[test]
fn a_refusal_of_a_dial_from_before_the_greeting_says_nothing() {
    let mut node = node();
    node.configure(view(&[(1, 1), (9, 1)]));
    assert_eq!(dialled(&mut node, 0), [(first(1), address(1))]);
    // The other process starts, and its own dial is faster than the answer that nobody listens there.
    greet(&mut node, 2, hello(first(1), 2));
    node.connect_failed(first(1), true);
    assert!(!node.has_ended(NodeId(1), 2), "it has just greeted");
    assert_eq!(dialled(&mut node, 300), [(first(1), address(1))]);
    node.connect_failed(first(1), true);
    assert!(node.has_ended(NodeId(1), 2));
}

#[test]
fn every_shard_of_the_view_has_an_address_and_no_other() {
    for nodes in [&[][..], &[(0, 1)], &[(1, 2), (3, 1)], &[(2, 255), (8, 3)]] {
        let view = view(nodes);
        let known: BTreeSet<Endpoint> = view.endpoints().collect();
        for (node, shard) in (0..9).flat_map(|node| (0..=u8::MAX).map(move |shard| (node, shard))) {
            let endpoint = Endpoint { node: NodeId(node), shard: Shard(shard) };
            let expected = known.contains(&endpoint).then(|| address(node));
            assert_eq!(view.address_of(endpoint), expected, "{endpoint}");
        }
        assert_eq!(known.len(), nodes.iter().map(|(_, shards)| usize::from(*shards)).sum::<usize>());
    }
}
