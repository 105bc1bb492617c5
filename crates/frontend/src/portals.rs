//! Where hosts come to volumes: every node serves every volume, so a discovery at one of them names the portals of all.

use azekura_base::NodeId;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// How good this path to an export is (asymmetric access: SPC-4 section 5.15, NVMe Base section 8.1). The host's writes
/// are carried out by one node (docs/decisions/0048-paths-of-a-host.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathState {
    /// What the host writes here is carried out.
    #[default]
    Optimized,
    /// What the host reads is; a write moves its writes to this node, at the price of a new connection.
    NonOptimized,
}

/// Where a node serves hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portal {
    /// The node.
    pub node: NodeId,
    /// Its address.
    pub address: SocketAddr,
}

impl Portal {
    /// The number of a node's portals among those of all nodes, as hosts see it: the portal group of iSCSI, the target
    /// port group of ALUA, the port of NVMe. From 1 to 65,535.
    #[must_use]
    pub const fn group(node: NodeId) -> u16 {
        const NUMBERS: u32 = u16::MAX as u32;
        (node.0.wrapping_sub(1) % NUMBERS + 1) as u16
    }
}

/// The portals of a cluster's nodes, as one of them knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portals {
    here: NodeId,
    others: BTreeMap<String, Vec<Portal>>,
}

static ALONE: Portals = Portals::of(NodeId(1));

impl Portals {
    /// Those of a node that knows no other one.
    #[must_use]
    pub const fn of(here: NodeId) -> Portals {
        Portals { here, others: BTreeMap::new() }
    }

    /// Those of one node, the only one.
    pub(crate) fn alone() -> &'static Portals {
        &ALONE
    }

    /// Another node serves a protocol, which is called as [`Protocol::name`](crate::Protocol::name) says. Of each node
    /// the first one counts. This node's own portals are none of these.
    pub fn add(&mut self, protocol: &str, portal: Portal) {
        let known = self.others.entry(protocol.to_owned()).or_default();
        if portal.node != self.here && known.iter().all(|other| other.node != portal.node) {
            known.push(portal);
        }
    }

    /// The number of this node's portals ([`Portal::group`]).
    #[must_use]
    pub fn group(&self) -> u16 {
        Portal::group(self.here)
    }

    /// All portals of a protocol: first this one of this node, at which the host is, then those of others.
    pub fn all<'a>(&'a self, protocol: &str, own: SocketAddr) -> impl Iterator<Item = Portal> + Clone + 'a {
        let others = self.others.get(protocol).map(Vec::as_slice).unwrap_or_default();
        [Portal { node: self.here, address: own }].into_iter().chain(others.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_a_number_that_hosts_take() {
        let of = |node| Portal::group(NodeId(node));
        assert_eq!([0, 1, 2, 65_535, 65_536].map(of), [1, 1, 2, 65_535, 1]);
    }

    #[test]
    fn this_node_is_the_first_and_once() {
        let at = |node: u32| Portal { node: NodeId(node), address: ([10, 0, 0, node as u8], 3260).into() };
        let mut portals = Portals::of(NodeId(2));
        let second = Portal { address: ([10, 0, 0, 9], 1).into(), ..at(1) };
        [at(1), at(2), at(3), second].into_iter().for_each(|portal| portals.add("iscsi", portal));
        let own = ([192, 0, 2, 1], 3260).into();
        let all: Vec<Portal> = portals.all("iscsi", own).collect();
        assert_eq!(all, [Portal { node: NodeId(2), address: own }, at(1), at(3)]);
        assert_eq!((portals.all("nvme", own).count(), portals.group()), (1, 2));
    }
}
