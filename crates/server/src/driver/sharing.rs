//! Clients that share memory with this process: whose bells are whose.

use azekura_reactor::{BellId, ConnId, Line};
use std::collections::{BTreeMap, BTreeSet};

mod steps;
#[cfg(test)]
mod tests;

/// The two bells of a queue, and a line to its client.
#[derive(Default)]
struct Bells {
    /// The client rings it.
    heard: Option<BellId>,
    /// This side rings it.
    kept: Option<BellId>,
    /// The client is told things by it.
    line: Option<Line>,
}

/// What a shard has of clients that share memory with it. The memory itself is with their protocols.
#[derive(Default)]
pub(super) struct SharedSide {
    conns: BTreeSet<ConnId>,
    queues: BTreeMap<(ConnId, u32), Bells>,
    heard: BTreeMap<BellId, (ConnId, u32)>,
    /// To be polled in the next turn.
    again: BTreeSet<ConnId>,
}

impl SharedSide {
    /// A client has connected whose protocol shares memory.
    fn add(&mut self, conn: ConnId) {
        self.conns.insert(conn);
    }

    /// The connections of all of them.
    fn conns(&self) -> Vec<ConnId> {
        self.conns.iter().copied().collect()
    }

    /// A protocol is to be polled in the next turn.
    fn poll_again(&mut self, conn: ConnId) {
        self.again.insert(conn);
    }

    /// Some protocols are to be polled in the next turn, which is not to wait.
    pub(super) fn has_to_poll(&self) -> bool {
        !self.again.is_empty()
    }

    /// Those that are to be polled.
    fn take_again(&mut self) -> BTreeSet<ConnId> {
        std::mem::take(&mut self.again)
    }

    /// Whose bell this is.
    fn owner(&self, bell: BellId) -> Option<(ConnId, u32)> {
        self.heard.get(&bell).copied()
    }

    /// The bell that a queue's client waits for.
    fn kept(&self, conn: ConnId, queue: u32) -> Option<BellId> {
        self.queues.get(&(conn, queue))?.kept
    }

    /// A queue has another bell that is heard. Gives the former one.
    fn hear(&mut self, conn: ConnId, queue: u32, bell: BellId) -> Option<BellId> {
        self.heard.insert(bell, (conn, queue));
        let former = self.queues.entry((conn, queue)).or_default().heard.replace(bell);
        if let Some(former) = former {
            self.heard.remove(&former);
        }
        former
    }

    /// A queue has another bell that is rung. Gives the former one.
    fn keep(&mut self, conn: ConnId, queue: u32, bell: BellId) -> Option<BellId> {
        self.queues.entry((conn, queue)).or_default().kept.replace(bell)
    }

    /// A queue has another line.
    fn reach(&mut self, conn: ConnId, queue: u32, line: Line) {
        self.queues.entry((conn, queue)).or_default().line = Some(line);
    }

    /// The client of a queue is told something. A line that is of no use any more is forgotten.
    fn tell(&mut self, conn: ConnId, queue: u32, bytes: &[u8]) {
        if let Some(Bells { line, .. }) = self.queues.get_mut(&(conn, queue)) {
            line.take_if(|line| line.tell(bytes).is_err());
        }
    }

    /// A queue is no more. Gives its bells.
    fn forget(&mut self, conn: ConnId, queue: u32) -> impl Iterator<Item = BellId> + use<> {
        let Bells { heard, kept, .. } = self.queues.remove(&(conn, queue)).unwrap_or_default();
        if let Some(bell) = heard {
            self.heard.remove(&bell);
        }
        heard.into_iter().chain(kept)
    }

    /// The connection is gone. Gives its bells.
    fn gone(&mut self, conn: ConnId) -> Vec<BellId> {
        if !self.conns.remove(&conn) {
            return Vec::new();
        }
        self.again.remove(&conn);
        let queues: Vec<u32> = self.queues.range((conn, 0)..=(conn, u32::MAX)).map(|((_, queue), _)| *queue).collect();
        queues.into_iter().flat_map(|queue| self.forget(conn, queue)).collect()
    }
}
