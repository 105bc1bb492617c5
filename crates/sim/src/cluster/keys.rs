//! Keys: what is in `identity/` of each machine, what processes prove with it, and somebody who lies about his number.
//!
//! The network proves keys as TLS will: what a node is told of the other end is true. Only in mode `keys` is it told.

use crate::cluster::records::CLUSTER;
use crate::cluster::{Cluster, Scene};
use crate::kernel::network::{ConnId, Side, key_of};
use crate::kernel::process::Life;
use crate::plan::Mode;
use crate::report::Invariant;
use azekura_base::{Endpoint, NodeId, PeerKey};
use azekura_node::ConnKey;
use azekura_wire::{Hello, Message, VERSION};
use std::collections::BTreeMap;
use std::time::Duration;

/// The machine of somebody who says that he is a node that he is not.
pub(super) const LIAR: Life = Life::first(NodeId(u32::MAX - 1), 1);

/// Who has which key.
#[derive(Default)]
pub(crate) struct Keyring {
    /// The keys that were put in the place of machines' first ones.
    files: BTreeMap<NodeId, PeerKey>,
    /// What each process has read when it started.
    processes: BTreeMap<(NodeId, u64), PeerKey>,
    /// Who is at the other end of each end of a connection.
    proved: BTreeMap<ConnKey, PeerKey>,
    /// Nodes in whose place the liar answers, with this key, until then.
    impostors: BTreeMap<NodeId, (PeerKey, Duration)>,
}

impl<S: Scene> Cluster<S> {
    /// The key in a machine's folder.
    pub(crate) fn key_in_folder(&self, node: NodeId) -> PeerKey {
        let first = || self.configuration.model().nodes.get(&node).map_or_else(String::new, |node| node.uuid.clone());
        self.keyring.files.get(&node).copied().unwrap_or_else(|| PeerKey::unproved(&first()))
    }

    /// Another key is put there; the next process has it.
    pub(crate) fn put_key(&mut self, node: NodeId, key: PeerKey) {
        self.keyring.files.insert(node, key);
    }

    /// The key that a process proves.
    pub(crate) fn key_of_process(&self, life: Life) -> Option<PeerKey> {
        self.keyring.processes.get(&life.process()).copied()
    }

    /// A process starts with the key that is in its folder.
    pub(super) fn read_key(&mut self, node: NodeId, incarnation: u64) {
        let key = self.key_in_folder(node);
        self.keyring.processes.insert((node, incarnation), key);
    }

    /// Processes have connected.
    pub(super) fn prove_both(&mut self, conn: ConnId, dialler: Life, acceptor: Life) {
        for (side, other) in [(Side::Acceptor, dialler), (Side::Dialler, acceptor)] {
            if let Some(key) = self.key_of_process(other) {
                self.keyring.proved.insert(key_of(conn, side), key);
            }
        }
    }

    /// What the network has proved to an end of a connection of the other one.
    pub(super) fn proof(&self, end: ConnKey) -> Option<PeerKey> {
        self.true_key(end).filter(|_| self.plan.mode == Mode::Keys)
    }

    /// The key that the other end of a connection has.
    pub(crate) fn true_key(&self, end: ConnKey) -> Option<PeerKey> {
        self.keyring.proved.get(&end).copied()
    }

    /// The liar answers in the place of a node until then, with this key.
    pub(crate) fn answer_as(&mut self, node: NodeId, key: PeerKey, until: Duration) {
        self.keyring.impostors.insert(node, (key, until));
    }

    /// He does so no more.
    pub(crate) fn unmask(&mut self) {
        self.keyring.impostors.clear();
    }

    /// The connection that somebody gets who dials a node in whose place the liar answers.
    pub(super) fn dialled_liar(&mut self, from: Life, to: NodeId) -> Option<ConnId> {
        let (key, until) = *self.keyring.impostors.get(&to)?;
        if until <= self.now {
            self.keyring.impostors.remove(&to);
            return None;
        }
        let conn = self.network.connect(from, LIAR);
        self.keyring.proved.insert(key_of(conn, Side::Dialler), key);
        Some(conn)
    }

    /// The liar connects to a process, has this key, and says that he is that node.
    pub(crate) fn greet_as(&mut self, target: Life, says: Endpoint, key: PeerKey) {
        let conn = self.network.connect(LIAR, target);
        let end = key_of(conn, Side::Acceptor);
        self.keyring.proved.insert(end, key);
        let proof = self.proof(end);
        self.tell(target, |node| node.accepted(end, proof));
        let (to, incarnation) = (target.endpoint(), self.incarnation_of(says.node) + 1);
        let hello = Hello { version: VERSION, cluster: CLUSTER, from: says, to, incarnation, connection: conn.0 };
        self.send_from(conn, Side::Dialler, &Message::Hello(hello));
    }

    fn incarnation_of(&self, node: NodeId) -> u64 {
        self.process_on(node).map_or(1, |life| life.incarnation)
    }

    /// Something has come to the liar: he answers as the one who was dialled.
    pub(super) fn liar_hears(&mut self, conn: ConnId, side: Side, message: &Message) {
        match message {
            Message::Hello(hello) => {
                let incarnation = self.incarnation_of(hello.to.node);
                let welcome = Hello { from: hello.to, to: hello.from, incarnation, ..*hello };
                self.send_from(conn, side, &Message::Welcome(welcome));
            }
            Message::Welcome(hello) => {
                self.violate(Invariant::Keys, format!("{:?} welcomes who is not {:?}", hello.from, hello.to));
            }
            _ => {}
        }
    }
}
