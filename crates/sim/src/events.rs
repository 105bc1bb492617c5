//! What happens when: the queue of coming events, in the order of time and, at the same time, of their making.

use crate::network::{ConnId, Network, Side};
use azekura_base::{DeviceId, NodeId, PgId};
use azekura_node::ClusterView;
use azekura_replica::GroupConfig;
use azekura_store::IoId;
use azekura_wire::Message;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

/// A process's life on a node. Events for a life that has ended are void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Life {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
}

/// Something that comes.
#[derive(Debug)]
pub(crate) enum Event {
    /// A node's event loop takes a turn.
    Turn(Life),
    /// A dialled node is reached, or found absent.
    Dialled { from: Life, to: NodeId },
    /// The dialling side learns that its connection stands.
    Connected { from: Life, to: NodeId, conn: ConnId },
    /// The dialling side learns that there is nobody.
    Unreachable { from: Life, to: NodeId },
    /// Bytes arrive at an end of a connection.
    Arrive(ConnId, Side),
    /// A link that is slow takes more of what waits at an end of a connection.
    Drain(ConnId, Side),
    /// An end of a connection learns that it has ended.
    Closed(ConnId, Side),
    /// A connection has been cut for so long that it is given up, if it still is.
    TimeOut(ConnId),
    /// A message is sent once more, by a network that lies.
    Inject(ConnId, Side, Box<Message>),
    /// A disk has finished something of a life.
    Disk(DeviceId, Life, IoId),
    /// A saved map has finished the oldest thing that it was asked.
    Map(DeviceId, Life),
    /// The configuration store gets a proposal.
    Propose { from: Life, pg: PgId, device: DeviceId, config: GroupConfig },
    /// The proposal's message gets to the store although its sender has given up waiting for the answer.
    LatePropose { pg: PgId, config: GroupConfig },
    /// The proposer learns the outcome: accepted in this revision, or not.
    Proposed { to: Life, pg: PgId, device: DeviceId, version: u64, accepted: Option<u64> },
    /// A node learns of the configuration.
    Configure(Life, Arc<ClusterView>),
    /// The store is asked for what a process wants to do with a volume.
    Errand(Life, String),
    /// A process has read the configuration for clients that want what it does not know.
    Look(Life),
    /// An operator ends attachments by force.
    Usurp,
    /// An operator makes, reads or deletes a snapshot.
    Snapshot,
    /// The configuration says that the snapshots of a cut are there.
    CutDone(u64),
    /// The configuration says that a cut is not to be made after all, if it is not done.
    CallOff(u64),
    /// The leader of the control plane looks at layers that are to end.
    Leader,
    /// The next client of the relay may write.
    Relay,
    /// Clients of the volume that is lost for a while ask for more.
    Lost,
    /// A node goes away for so long.
    Away(NodeId, Duration),
    /// A client may start an operation.
    Client(usize),
    /// A node's process starts.
    Start(NodeId),
    /// A process that is to stop hands over, until then at the latest.
    Leave(Life, Duration),
    /// A process that was to stop ends.
    Exit(Life),
    /// A primary is parted from its successor.
    Part,
    /// A process ends at a moment that was waited for.
    Kill(Life),
    /// A fault happens.
    Fault,
    /// Something happens to a device.
    Wear,
    /// A device may begin to hang.
    Hang,
    /// A device that has hung may answer again.
    Answers(DeviceId),
    /// A process whose clock has stood still with it, since then, goes on.
    Resume(Life, Duration),
    /// The control plane looks where copies should be.
    Operate,
    /// Somebody asks for a scrub.
    Scrub,
    /// The leader looks whether groups can open again after the configuration was restored.
    Reopen,
}

impl Event {
    /// The process that is told of it at once: it waits while that process stands still.
    pub(crate) fn told(&self, network: &Network) -> Option<Life> {
        match self {
            Event::Turn(life)
            | Event::Disk(_, life, _)
            | Event::Map(_, life)
            | Event::Configure(life, ..)
            | Event::Errand(life, _)
            | Event::Look(life)
            | Event::Leave(life, _)
            | Event::Exit(life)
            | Event::Connected { from: life, .. }
            | Event::Unreachable { from: life, .. }
            | Event::Proposed { to: life, .. } => Some(*life),
            Event::Arrive(conn, side) | Event::Closed(conn, side) => network.life_at(*conn, *side),
            _ => None,
        }
    }
}

struct Entry {
    at: Duration,
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// The queue.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    pushed: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Duration, event: Event) {
        self.pushed += 1;
        self.heap.push(Entry { at, order: self.pushed, event });
    }

    pub(crate) fn pop(&mut self) -> Option<(Duration, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// The configurations of a group that are on their way to the store.
    pub(crate) fn proposals(&self, group: PgId) -> impl Iterator<Item = &GroupConfig> {
        self.heap.iter().filter_map(move |entry| match &entry.event {
            Event::Propose { pg, config, .. } | Event::LatePropose { pg, config } if *pg == group => Some(config),
            _ => None,
        })
    }

    /// A process is about to stop.
    pub(crate) fn has_planned_stop(&self) -> bool {
        self.heap.iter().any(|entry| matches!(entry.event, Event::Leave(..) | Event::Exit(_)))
    }

    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.heap.peek().map(|entry| entry.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_comes_first_and_then_the_order_of_making() {
        let mut queue = Queue::default();
        let at = Duration::from_millis;
        queue.push(at(2), Event::Client(1));
        queue.push(at(1), Event::Client(2));
        queue.push(at(2), Event::Client(3));
        queue.push(at(1), Event::Client(4));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|(at, event)| match event {
                Event::Client(client) => (at.as_millis(), client),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(order, [(1, 2), (1, 4), (2, 1), (2, 3)]);
    }
}
