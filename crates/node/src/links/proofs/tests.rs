//! Whoever proves another node's key, or none, is not talked to.

use crate::effect::ConnKey;
use crate::{ClusterView, Effect, Identity, Location, Node, NodeView};
use azekura_base::{Endpoint, NodeId, PeerKey, Transport};
use azekura_wire::{Hello, Message, VERSION};
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::time::Duration;

const ME: NodeId = NodeId(9);

fn key(number: u8) -> PeerKey {
    PeerKey([number; 32])
}

/// Nodes with these keys, and this one.
fn view(revision: u64, nodes: &[(u32, &[u8])]) -> ClusterView {
    let address = SocketAddr::from(([127, 0, 0, 1], 7000));
    let view = |(node, keys): &(u32, &[u8])| {
        let keys = keys.iter().copied().map(key).collect();
        (NodeId(*node), NodeView { address, shards: NonZeroU8::MIN, keys, location: Location::default() })
    };
    let nodes = nodes.iter().chain([&(ME.0, &[9][..])]).map(view).collect();
    ClusterView { revision, nodes, transport: Transport::Tls, ..ClusterView::default() }
}

/// A node that demands keys, and knows these.
fn node(nodes: &[(u32, &[u8])]) -> Node {
    let mut node = Node::new(Identity { cluster: 1, endpoint: Endpoint::first(ME), incarnation: 1 }, Duration::ZERO);
    node.configure(view(1, nodes));
    node
}

/// A node is dialled, since somebody asks about its process.
fn dial(node: &mut Node, peer: u32) {
    node.ask_about(NodeId(peer), 1);
    node.poll(Duration::ZERO);
}

fn hello(from: u32) -> Hello {
    let [from, to] = [NodeId(from), ME].map(Endpoint::first);
    Hello { version: VERSION, cluster: 1, from, to, incarnation: 1, connection: 1 }
}

/// What was closed, and what was said of it.
fn closed(node: &mut Node) -> (Vec<u64>, String) {
    let (mut closed, mut said) = (Vec::new(), Vec::new());
    while let Some(effect) = node.next_effect() {
        match effect {
            Effect::Close(conn) => closed.push(conn.0),
            Effect::Warn(warning) => said.push(warning.text),
            _ => {}
        }
    }
    (closed, said.join("; "))
}

/// Somebody with this key connects and says who it is.
fn greet(node: &mut Node, conn: u64, proved: Option<u8>, says: u32) -> bool {
    node.accepted(ConnKey(conn), proved.map(key));
    node.received(ConnKey(conn), Message::Hello(hello(says)));
    node.inbound_from(ConnKey(conn)).is_some()
}

#[test]
fn who_greets_is_known_by_a_key_of_its_record() {
    let mut node = node(&[(1, &[1, 11]), (2, &[2]), (3, &[])]);
    for (conn, proved, says, is_let_in) in [
        (1, Some(1), 1, true),
        (2, Some(2), 2, true),
        (3, Some(2), 1, false),
        (4, Some(77), 1, false),
        (5, None, 1, false),
        (6, Some(3), 3, false),
        (7, Some(9), 5, false),
        (8, Some(2), 9, false),
    ] {
        assert_eq!(greet(&mut node, conn, proved, says), is_let_in, "{conn}");
        let (closed, said) = closed(&mut node);
        assert_eq!(closed, if is_let_in { vec![] } else { vec![conn] }, "{said}");
    }
    let partners: Vec<(u64, u32)> = node.partners().map(|(conn, peer)| (conn.0, peer.node.0)).collect();
    assert_eq!(partners, [(1, 1), (2, 2)], "who lies about its number ends no other's connection");
    // The other of its keys is as good.
    assert!(greet(&mut node, 9, Some(11), 1));
}

#[test]
fn who_is_dialled_is_known_by_a_key_of_its_record() {
    for (proved, is_let_in) in [(Some(1), true), (Some(2), false), (None, false)] {
        let mut node = node(&[(1, &[1]), (2, &[2])]);
        dial(&mut node, 1);
        node.connected(Endpoint::first(NodeId(1)), ConnKey(5), proved.map(key));
        node.received(ConnKey(5), Message::Welcome(hello(1)));
        assert_eq!(node.partners().count() == 1, is_let_in, "{proved:?}");
        assert_eq!(closed(&mut node).0.contains(&5), !is_let_in, "{proved:?}");
    }
}

#[test]
fn connections_end_whose_keys_leave_the_records() {
    let mut node = node(&[(1, &[1, 11]), (2, &[2])]);
    dial(&mut node, 1);
    node.connected(Endpoint::first(NodeId(1)), ConnKey(5), Some(key(1)));
    node.received(ConnKey(5), Message::Welcome(hello(1)));
    assert!(greet(&mut node, 6, Some(1), 1) && greet(&mut node, 7, Some(2), 2));
    closed(&mut node);
    node.configure(view(2, &[(1, &[1, 12]), (2, &[2])]));
    assert_eq!(closed(&mut node).0, [0u64; 0], "its other key has changed");
    node.configure(view(3, &[(1, &[12]), (2, &[2])]));
    assert_eq!(closed(&mut node), (vec![6, 5], String::new()));
    assert!(!greet(&mut node, 8, Some(1), 1) && greet(&mut node, 9, Some(12), 1));
    closed(&mut node);
    node.configure(view(4, &[(1, &[12])]));
    assert_eq!(closed(&mut node).0, [7], "a node that has left has no keys");
}

#[test]
fn where_no_key_is_demanded_who_proves_a_wrong_one_is_refused_all_the_same() {
    let mut node = Node::new(Identity { cluster: 1, endpoint: Endpoint::first(ME), incarnation: 1 }, Duration::ZERO);
    node.configure(ClusterView { transport: Transport::Both, ..view(1, &[(1, &[1])]) });
    assert!(greet(&mut node, 1, None, 1) && !greet(&mut node, 2, Some(2), 1));
}

#[test]
fn a_key_that_nobody_has_is_told_of_when_it_comes_for_long_and_another_nodes_at_once() {
    let mut node = node(&[(1, &[1]), (2, &[2])]);
    let why = "closing a connection of node 1: its key 0";
    for (conn, ms, proved, told) in [(1, 0, 7, false), (2, 1900, 7, false), (3, 1950, 2, true), (4, 2000, 7, true)] {
        node.advance(Duration::from_millis(ms));
        assert!(!greet(&mut node, conn, Some(proved), 1));
        let (ended, said) = closed(&mut node);
        assert_eq!((ended, said.contains(why)), (vec![conn], told), "{said}");
        // What is said of a peer is said once a minute.
        node.mesh.links.refusals = azekura_base::Repeats::default();
    }
    // Once it was known, it is new again.
    assert!(greet(&mut node, 5, Some(1), 1) && !greet(&mut node, 6, Some(7), 1));
    assert_eq!(closed(&mut node).1, "");
    // Who knows nothing yet says nothing.
    let mut node = Node::new(Identity { cluster: 1, endpoint: Endpoint::first(ME), incarnation: 1 }, Duration::ZERO);
    for seconds in 0..5 {
        node.advance(Duration::from_secs(seconds));
        assert!(!greet(&mut node, seconds, Some(1), 1));
    }
    assert_eq!(closed(&mut node).1, "");
}

#[test]
fn connections_without_a_key_end_when_all_have_to_prove_one() {
    let mut node = Node::new(Identity { cluster: 1, endpoint: Endpoint::first(ME), incarnation: 1 }, Duration::ZERO);
    let both = ClusterView { transport: Transport::Both, ..view(1, &[(1, &[1]), (2, &[2])]) };
    node.configure(both.clone());
    dial(&mut node, 1);
    let with_tls = std::iter::from_fn(|| node.next_effect()).find_map(|effect| match effect {
        Effect::Connect(_, _, tls) => Some(tls),
        _ => None,
    });
    assert_eq!(with_tls, Some(true));
    node.connected(Endpoint::first(NodeId(1)), ConnKey(5), None);
    node.received(ConnKey(5), Message::Welcome(hello(1)));
    assert!(greet(&mut node, 6, None, 1) && greet(&mut node, 7, Some(2), 2));
    closed(&mut node);
    node.configure(ClusterView { revision: 2, transport: Transport::Tls, ..both.clone() });
    assert_eq!(closed(&mut node), (vec![6, 5], String::new()));
    assert!(!greet(&mut node, 8, None, 1));
    node.configure(ClusterView { revision: 3, transport: Transport::Plain, ..both });
    assert!(greet(&mut node, 9, None, 1));
}

#[test]
fn a_node_that_proves_a_wrong_key_when_it_is_dialled_is_told_nothing() {
    for (proved, is_let_in) in [(1, true), (2, false)] {
        let mut node = node(&[(1, &[1]), (2, &[2])]);
        dial(&mut node, 1);
        node.connected(Endpoint::first(NodeId(1)), ConnKey(5), None);
        node.proved(ConnKey(5), key(proved));
        assert_eq!(closed(&mut node).0.contains(&5), !is_let_in, "before it says anything");
        node.received(ConnKey(5), Message::Welcome(hello(1)));
        assert_eq!(node.partners().count() == 1, is_let_in);
    }
}

#[test]
fn who_has_connected_proves_his_key_before_he_greets() {
    let mut node = node(&[(1, &[1]), (2, &[2])]);
    for (conn, proved, is_let_in) in [(1, Some(1), true), (2, Some(2), false), (3, None, false)] {
        node.accepted(ConnKey(conn), None);
        proved.into_iter().for_each(|proved| node.proved(ConnKey(conn), key(proved)));
        node.received(ConnKey(conn), Message::Hello(hello(1)));
        assert_eq!(node.inbound_from(ConnKey(conn)).is_some(), is_let_in, "{conn}");
    }
    // What is proved of a connection that has ended is forgotten.
    node.proved(ConnKey(2), key(1));
    assert_eq!(node.mesh.links.proofs.keys.len(), 1);
}
