//! What happens in a cluster, and whom it is told.

use crate::cluster::configuration::{AllReservations, DataKeyring};
use crate::cluster::front::Line;
use crate::kernel::network::{ConnId, Network, Passage, Side};
use crate::kernel::process::Life;
use crate::kernel::rings::Rings;
use azekura_base::{DeviceId, Endpoint, Generation, NodeId, PgId};
use azekura_frontend::VolumeUse;
use azekura_node::ClusterView;
use azekura_replica::GroupConfig;
use azekura_store::IoId;
use azekura_wire::Message;
use std::sync::Arc;
use std::time::Duration;

/// Something that comes. `C` is what comes to those who use, trouble and watch the cluster.
#[derive(Debug)]
pub(crate) enum Event<C> {
    /// An event loop takes a turn.
    Turn(Life),
    /// A dialled shard is reached, or found absent.
    Dialled { from: Life, to: Endpoint },
    /// The dialling side learns that its connection stands.
    Connected { from: Life, to: Endpoint, conn: ConnId },
    /// The dialling side learns that it does not get there: because nobody listens, or nobody answers.
    Unreachable { from: Life, to: Endpoint, refused: bool },
    /// Something comes on a connection.
    Link(Passage),
    /// Something comes to an end of a connection inside a process.
    Ring(ConnId, Side),
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
    Configure(Life, Arc<ClusterView>, Arc<AllReservations>, Arc<DataKeyring>),
    /// A process goes on with a command of reservations.
    Reserve(Life, u64),
    /// What a process heeds of reservations gets to the store.
    Heed(Life),
    /// The store is asked for what a process wants to do with a volume.
    Errand(Life, VolumeUse),
    /// A host has had its time to come again.
    Lingered(Life, VolumeUse, Generation),
    /// A process has read the configuration for clients that want what it does not know.
    Look(Life),
    /// What the network has held back on a client's session with a process comes.
    Late(Life, Line),
    /// The configuration says that the snapshots of a cut are there.
    CutDone(u64),
    /// The configuration says that a cut is not to be made after all, if it is not done.
    CallOff(u64),
    /// The leader of the control plane looks at layers that are to end.
    Leader,
    /// A node goes away for so long.
    Away(NodeId, Duration),
    /// A node's process starts.
    Start(NodeId),
    /// A process that is to stop hands over, until then at the latest.
    Leave(Life, Duration),
    /// A process that was to stop ends.
    Exit(Life),
    /// A device that has hung may answer again.
    Answers(DeviceId),
    /// A process whose clock has stood still with it, since then, goes on.
    Resume(Life, Duration),
    /// The control plane looks where copies should be.
    Operate,
    /// It is the turn of something outside of the cluster.
    Cue(C),
}

impl<C> Event<C> {
    /// The process that is told of it at once: it waits while that process stands still.
    pub(crate) fn receiver(&self, network: &Network, rings: &Rings) -> Option<Life> {
        match self {
            Event::Turn(life)
            | Event::Disk(_, life, _)
            | Event::Map(_, life)
            | Event::Configure(life, ..)
            | Event::Reserve(life, _)
            | Event::Heed(life)
            | Event::Errand(life, _)
            | Event::Lingered(life, ..)
            | Event::Look(life)
            | Event::Late(life, _)
            | Event::Leave(life, _)
            | Event::Exit(life)
            | Event::Connected { from: life, .. }
            | Event::Unreachable { from: life, .. }
            | Event::Proposed { to: life, .. } => Some(*life),
            Event::Link(Passage::Arrive(conn, side) | Passage::Closed(conn, side)) => network.life_at(*conn, *side),
            Event::Ring(conn, side) => rings.life_at(*conn, *side),
            _ => None,
        }
    }
}
