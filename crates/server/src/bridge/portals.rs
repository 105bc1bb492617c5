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
