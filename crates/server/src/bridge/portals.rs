//! Where hosts come to the volumes of a cluster, as its nodes say in their records.

use azekura_base::NodeId;
use azekura_frontend::{Portal, Portals};
use azekura_model::Model;
use std::net::SocketAddr;

/// The portals of all nodes that have not been removed, whether they live or not: a host that looks for paths while a
/// node starts is to know that one, too.
pub(crate) fn portals(model: &Model, here: NodeId) -> Portals {
    let mut portals = Portals::of(here);
    for node in model.nodes.values().filter(|node| !node.removed) {
        for endpoint in &node.endpoints {
            // Others have no portals: a socket is for clients of the same machine.
            let Ok(address) = endpoint.address.parse::<SocketAddr>() else { continue };
            let reached = |address: SocketAddr| match address.ip().is_unspecified() {
                // It is all addresses of that machine: other nodes come to it by this one.
                true => SocketAddr::new(node.data_address.ip(), address.port()),
                false => address,
            };
            portals.add(&endpoint.protocol, Portal { node: node.id, address: reached(address) });
        }
    }
    portals
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use azekura_model::{Key, Memory, Txn};
    use serde_json::json;

    #[test]
    fn other_nodes_are_reached_where_they_say_they_are() {
        let mut memory = Memory::new();
        let node = |id: u32, endpoints: &[(&str, &str)], removed: bool| {
            let endpoints: Vec<_> =
                endpoints.iter().map(|(protocol, address)| json!({"protocol": protocol, "address": address})).collect();
            json!({
                "id": id, "uuid": format!("uuid-{id}"), "name": format!("n{id}"), "endpoints": endpoints, "removed": removed,
                "data_address": format!("10.0.0.{id}:7300"), "api_address": format!("10.0.0.{id}:7380"),
            })
        };
        let nodes = [
            node(1, &[("iscsi", "0.0.0.0:3260"), ("nvme", "10.1.0.1:4420"), ("nvme", "10.1.0.1:8009")], false),
            node(2, &[("nbd", "unix:/run/nbd"), ("vhost-user", "vol1=unix:/run/vol1"), ("iscsi", "[::]:3261")], false),
            node(3, &[("iscsi", "10.1.0.3:3260")], true),
            node(4, &[("iscsi", "10.1.0.4:3260")], false),
        ];
        let put = |txn: Txn, (id, record)| txn.put(&Key::Node(NodeId(id)).to_string(), record);
        memory.run(&(1..).zip(&nodes).fold(Txn::new(), put)).unwrap();
        let portals = portals(memory.model(), NodeId(4));
        let all = |protocol| {
            let own = "10.9.0.4:1".parse().unwrap();
            let shown = |portal: Portal| format!("{} {}", portal.node, portal.address);
            portals.all(protocol, own).map(shown).collect::<Vec<String>>()
        };
        assert_eq!(all("iscsi"), ["4 10.9.0.4:1", "1 10.0.0.1:3260", "2 10.0.0.2:3261"]);
        assert_eq!(all("nvme"), ["4 10.9.0.4:1", "1 10.1.0.1:4420"], "its discovery's address is no second portal");
        assert_eq!(all("nbd").len(), 1);
    }
}
