//! Who proves a key that is not its node's is refused, and hung up on when the key leaves the records.

use crate::effect::ConnKey;
use crate::links::Inbound;
use crate::node::Node;
use azekura_base::{Endpoint, NodeId, PeerKey};

impl Node {
    /// Whether other processes have to prove a key: to be told before the first connection, and from then on the views
    /// say so.
    pub fn demand_keys(&mut self, needed: bool) {
        self.mesh.links.proofs.needed = needed;
    }

    /// The other end of a connection that stands has proved to have this key. One that is not its node's is told
    /// nothing, if it was dialled; who has dialled is yet to say who he is.
    pub fn proved(&mut self, conn: ConnKey, key: PeerKey) {
        let dialled = self.mesh.links.dialled_on(conn);
        if dialled.is_none() && !self.mesh.links.inbound.contains_key(&conn) {
            return;
        }
        self.mesh.links.proofs.note(conn, Some(key));
        if let Some(peer) = dialled
            && let Err(why) = self.check_key(conn, peer.node)
        {
            self.refuse_key(conn, peer, &why);
        }
    }

    /// Refuses a connection of this node that does not prove one of its keys. What has not left the process needs no
    /// proof.
    pub(in crate::links) fn check_key(&self, conn: ConnKey, node: NodeId) -> Result<(), String> {
        let proofs = &self.mesh.links.proofs;
        if self.mesh.links.local.has(conn) {
            return Ok(());
        }
        #[cfg(feature = "sabotage")]
        if crate::sabotage::ignores_keys() {
            return Ok(());
        }
        match proofs.of(conn) {
            None if proofs.needed => Err("it has proved no key".to_owned()),
            Some(key) if !self.directory.view.lists_key(node, key) => {
                Err(format!("its key {key} is none of the node's, as the configuration has them"))
            }
            _ => Ok(()),
        }
    }

    /// Closes connections whose keys have left the view.
    pub(crate) fn follow_keys(&mut self) {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::keeps_keys() {
            return;
        }
        let out: Vec<ConnKey> = self.mesh.links.out.keys().filter_map(|peer| self.mesh.links.link(*peer)).collect();
        let from = self.mesh.links.inbound.iter().filter(|(_, state)| matches!(state, Inbound::From(..)));
        let conns: Vec<ConnKey> = from.map(|(conn, _)| *conn).chain(out).collect();
        for conn in conns {
            let Some(peer) = self.other_end(conn) else { continue };
            if self.check_key(conn, peer.node).is_err() {
                self.hang_up(conn);
                self.closed(conn);
            }
        }
    }

    /// Closes a connection whose peer has not proved a key of the node that it says it is. Another node's key is told
    /// of at once; one that nobody has may be in the next revision.
    pub(in crate::links) fn refuse_key(&mut self, conn: ConnKey, peer: Endpoint, why: &str) {
        let key = self.mesh.links.proofs.of(conn);
        let nodes = &self.directory.view.nodes;
        let lies = key.is_some_and(|key| nodes.values().any(|node| node.keys.contains(&key)));
        let is_new = !lies && !self.mesh.links.proofs.is_strange(peer, self.now);
        if is_new || self.directory.revision == 0 {
            self.hang_up(conn);
            self.closed(conn);
        } else {
            self.refuse_greeting(conn, peer, why);
        }
    }

    /// The peers whose messages this node takes now, and the connections that they come on.
    pub fn partners(&self) -> impl Iterator<Item = (ConnKey, Endpoint)> + '_ {
        let links = &self.mesh.links;
        let out = links.out.keys().filter_map(|peer| Some((links.link(*peer)?, *peer)));
        let inbound = links.inbound.iter().filter_map(|(conn, state)| match state {
            Inbound::From(peer, _) => Some((*conn, *peer)),
            Inbound::Unknown(_) => None,
        });
        out.chain(inbound).filter(|(conn, _)| !links.local.has(*conn))
    }
}
