//! What other threads ask of a shard, and what comes along with that.

use crate::disk::device::DeviceDir;
use crate::driver::clients::ClientConn;
use crate::driver::local::End;
use crate::driver::peers::conn::Handed;
use crate::listeners::Speak;
use azekura_base::{
    CompareLayers, DeviceId, Differences, Generation, IoStatus, LayerId, MeasureLayer, Measured, NodeId, NotTold, PgId,
    RekeyWish, Shard, VolumeId,
};
use azekura_frontend::{
    Admission, Attachment, Portals, ReservationAnswer, Reservations, Targets, Throttled, VolumeUse, Word,
};
use azekura_gateway::{Keyring, VolumeView};
use azekura_map_db::CheckpointDb;
use azekura_node::{Attachments, ClusterView, Node, ScrubWish};
use azekura_reactor::DeviceFile;
use azekura_reactor::{Released, UnixDoor};
use azekura_store::{self as store, Store};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What other threads ask of a shard.
pub enum Command {
    /// The cluster changed.
    Configure(Arc<ClusterView>),
    /// The cluster has not changed up to this revision.
    Known(u64),
    /// The keys of encrypted volumes, or why they are not to be had: before the volumes are there.
    Keys(Arc<Keyring>),
    /// What clients may of whom a key is asked.
    Admit(Arc<Admission>),
    /// Where hosts come to volumes.
    Portals(Arc<Portals>),
    /// These are the targets of several logical units.
    Targets(Arc<Targets>),
    /// A group's proposed configuration was accepted, in this revision, or was not.
    ProposalDone(PgId, DeviceId, u64, Option<u64>),
    /// Take in a device.
    AddDevice(Box<ReadyDevice>),
    /// A device's log is initialised up to this segment; the others follow, or not.
    SegmentsReady(DeviceId, u32, store::Initialisation),
    /// A device's log can't be initialised further, for this reason.
    NotInitialised(DeviceId, String),
    /// A device's map has done what it was asked for.
    MapDone(DeviceId, store::IoId, store::Done),
    /// Keep former users of a volume out.
    Fence(Fence),
    /// Freeze a volume's head layer.
    Freeze(Freeze),
    /// Find out whether these processes of other nodes have ended.
    AskAbout(Vec<(NodeId, u64)>),
    /// Trim a volume.
    Trim(Trim),
    /// Tell something about layers.
    AskOfLayers(LayerQuestion),
    /// A volume is attached to this node for its clients, or is not, and why.
    Attached(VolumeUse, Result<Attachment, String>),
    /// A volume is given back.
    GivenBack(VolumeUse),
    /// Something for a client's connection that has a nexus or wants one.
    Nexus(Word),
    /// The reservations of all volumes that have a record: before the configuration that they are of.
    Reservations(Arc<AllReservations>),
    /// What came of [`crate::driver::messages::Report::Reserves`] with this token: after the reservations that it is
    /// of.
    Reserved(u64, ReservationAnswer),
    /// The configuration was read up to this revision for [`crate::driver::messages::Report::ReadConfiguration`], or
    /// could not be.
    ConfigurationRead(Option<u64>),
    /// Serve a client that another shard has accepted, in this protocol. The client has a place already.
    TakeClient(Released, Speak),
    /// Go on with another node's connection that another shard has accepted.
    TakePeer(Box<Handed>),
    /// Another shard of this process has joined this one: its end of their connection.
    Join(End),
    /// Accept clients at another door, or at one no longer.
    Door(DoorWish),
    /// Look at the node.
    Inspect(Box<dyn FnOnce(Inspection<'_>) + Send>),
    /// Scrub a group that this node is primary of.
    Scrub(PgId, ScrubWish),
    /// Have all blocks of these volumes, and of no others, get the key that is written with: the configuration of this
    /// revision says so.
    Rekey(BTreeMap<VolumeId, RekeyWish>, u64),
    /// Take leave of the other nodes; answered with the number of groups that still wait for something.
    Leave(oneshot::Sender<usize>),
    /// Stop; answered when all devices are closed.
    Stop(oneshot::Sender<()>),
}

/// What is to become of a door of clients of this machine, named by the path of its socket. Who is connected stays.
pub enum DoorWish {
    /// It is open: clients speak this there.
    Open(PathBuf, UnixDoor, Speak),
    /// It is closed, and its file goes.
    Close(PathBuf),
}

/// The reservations of volumes that have a record.
pub type AllReservations = BTreeMap<VolumeId, Arc<Reservations>>;

/// A device whose store is ready to be driven.
pub struct ReadyDevice {
    /// Its number in the cluster.
    pub id: DeviceId,
    /// The shard that has it.
    pub shard: Shard,
    /// Its folder.
    pub dir: DeviceDir,
    /// Its log, opened and locked: a shard that serves clients can't wait for that.
    pub log: DeviceFile,
    /// The layers below layers, as the folder has them.
    pub parents: Vec<(LayerId, LayerId)>,
    /// The store, which has yet to be recovered.
    pub store: Store,
    /// The store's map.
    pub map: CheckpointDb,
}

/// What [`azekura_node::Node::fence`] is asked.
pub struct Fence {
    /// The volume.
    pub volume: VolumeId,
    /// Its attachments.
    pub attachments: Attachments,
    /// Groups that have to confirm.
    pub groups: Vec<PgId>,
    /// How long they may take.
    pub patience: Duration,
    /// Gets the outcome.
    pub answer: oneshot::Sender<Result<(), Vec<PgId>>>,
}

/// What [`azekura_node::Node::freeze`] is asked.
pub struct Freeze {
    /// The volume.
    pub volume: VolumeId,
    /// Its head layer.
    pub head: LayerId,
    /// The revision of the configuration in which the cut began.
    pub revision: u64,
    /// Groups that have to confirm.
    pub groups: Vec<PgId>,
    /// How long they may take.
    pub patience: Duration,
    /// Gets the outcome.
    pub answer: oneshot::Sender<Result<(), Vec<PgId>>>,
}

/// A trim that no client has asked for.
pub struct Trim {
    /// The volume.
    pub volume: String,
    /// An attachment of this process.
    pub attachment: Generation,
    /// From here on.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Gets the outcome.
    pub answer: oneshot::Sender<Result<(), IoStatus>>,
}

/// Gets the answer to a question about layers.
pub type Asker<T> = oneshot::Sender<Result<T, NotTold>>;

/// A question about layers.
pub enum LayerQuestion {
    /// What two layers show differently.
    Compare(CompareLayers, Asker<Differences>),
    /// What the end of a layer would give back.
    Measure(MeasureLayer, Asker<Measured>),
}

/// What can be seen from other threads.
pub struct Inspection<'a> {
    /// The node.
    pub node: &'a Node,
    /// Clients' connections, and what they have opened.
    pub connections: &'a BTreeMap<ClientConn, Arc<VolumeView>>,
    /// How much clients have waited for their volumes' limits.
    pub throttled: &'a BTreeMap<VolumeId, Throttled>,
}
