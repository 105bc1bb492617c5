//! The observer: connects to every node as a gateway would, and asks copies when a run is over.

use crate::cluster::records::CLUSTER;
use crate::cluster::{Cluster, Scene};
use crate::kernel::network::{ConnId, Side, key_of};
use crate::kernel::process::Life;
use crate::plan::{Mode, QUIET_MAX};
use crate::report::Invariant;
use azekura_base::NodeId;
use azekura_wire::{Hello, Message, VERSION};

/// The pseudo-node that it is.
pub(super) const OBSERVER: Life = Life::first(NodeId(u32::MAX), 1);

impl<S: Scene> Cluster<S> {
    /// The observer connects to a process.
    pub(crate) fn observe(&mut self, life: Life) -> ConnId {
        let conn = self.network.connect(OBSERVER, life);
        let end = key_of(conn, Side::Acceptor);
        // No record has a key of its own.
        let needs_key = self.plan.mode == Mode::Keys;
        self.tell(life, |node| if needs_key { node.accepted_local(end) } else { node.accepted(end, None) });
        let [from, to] = [OBSERVER, life].map(Life::endpoint);
        let incarnation = OBSERVER.incarnation;
        let hello = Hello { version: VERSION, cluster: CLUSTER, from, to, incarnation, connection: conn.0 };
        let welcome = self.ask(conn, &Message::Hello(hello), |message| match message {
            Message::Welcome(_) => Some(()),
            _ => None,
        });
        if welcome.is_none() {
            self.violate(Invariant::Liveness, format!("{life:?} does not greet"));
        }
        conn
    }

    /// The observer closes its connection.
    pub(crate) fn stop_observing(&mut self, conn: ConnId) {
        self.close(key_of(conn, Side::Dialler));
    }

    /// The observer sends a message and waits for the answer that `take` recognises.
    pub(crate) fn ask<T>(
        &mut self,
        conn: ConnId,
        message: &Message,
        take: impl Fn(&Message) -> Option<T>,
    ) -> Option<T> {
        self.observed.clear();
        self.send_from(conn, Side::Dialler, message);
        let limit = self.now + QUIET_MAX;
        self.run_until(limit, |cluster| !cluster.observed.is_empty());
        self.observed.drain(..).find_map(|message| take(&message))
    }
}
