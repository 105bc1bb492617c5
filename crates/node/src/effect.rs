//! What a node asks its event loop to do.

use crate::view::Place;
use azekura_base::{DeviceId, Differences, Endpoint, LayerId, Measured, NotTold, PgId, Warning};
use azekura_gateway::Outcome;
use azekura_replica::{Client, Flaw, GroupConfig, ScrubKind, ScrubReport};

use azekura_wire::Message;
use std::net::SocketAddr;
use std::time::Duration;

/// A connection between shards, named by the event loop; never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnKey(pub u64);

impl From<ConnKey> for Client {
    fn from(key: ConnKey) -> Client {
        Client::Conn(key.0)
    }
}

/// Why a device is out of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breakdown {
    /// What has happened, for people.
    pub reason: String,
    /// What it held is gone: it does not come back with the next start of the process.
    pub for_good: bool,
}

/// A block that a scrub or a reader has found bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBlock {
    /// Where it is.
    pub place: Place,
    /// The copy that it is bad on.
    pub device: DeviceId,
    /// What is wrong with it.
    pub flaw: Flaw,
    /// It was written anew from another copy.
    pub mended: bool,
}

/// What a group's record told of its scrubs of one kind when one was found due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubSeen {
    /// When somebody last asked for one.
    pub wanted: u64,
    /// When one last ended.
    pub done: u64,
}

impl ScrubSeen {
    fn later(self, other: ScrubSeen) -> ScrubSeen {
        ScrubSeen { wanted: self.wanted.max(other.wanted), done: self.done.max(other.done) }
    }
}

/// A scrub that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubWish {
    /// How closely it looks.
    pub kind: ScrubKind,
    /// What was known of deep scrubs.
    pub deep: ScrubSeen,
    /// The same of light ones.
    pub light: ScrubSeen,
}

impl ScrubWish {
    /// One scrub for both, which begins after both.
    pub(crate) fn and(self, other: ScrubWish) -> ScrubWish {
        let (kind, deep) = (self.kind.max(other.kind), self.deep.later(other.deep));
        ScrubWish { kind, deep, light: self.light.later(other.light) }
    }
}

/// One thing to do.
#[derive(Debug)]
pub enum Effect {
    /// Dial a shard, with TLS if so; [`crate::Node::connected`] or [`crate::Node::connect_failed`] tells how it went.
    Connect(Endpoint, SocketAddr, bool),
    /// Join a shard of the same process ([`crate::Node::join`]): both ends get a key. The other one is told
    /// [`crate::Node::accepted_local`], this one [`crate::Node::connected_local`]. What either end sends the other
    /// receives by value and in order, but that heartbeats may go ahead, and behind that that it was closed; it is lost
    /// with the process alone.
    ConnectLocal(Endpoint),
    /// Send on a connection.
    Send(ConnKey, Message),
    /// Close a connection; no [`crate::Node::closed`] follows.
    Close(ConnKey),
    /// Something for the store's device, or its map; [`crate::Node::store_done`] tells how it went.
    Store(DeviceId, azekura_store::Effect),
    /// A client's request is done.
    Complete(u64, Outcome),
    /// Change a group's configuration by compare-and-swap against the epoch before;
    /// [`crate::Node::proposal_done`] tells how it went.
    Propose(PgId, DeviceId, GroupConfig),
    /// [`crate::Node::fence`] has succeeded, or these groups have not confirmed in time.
    Fenced(u64, Result<(), Vec<PgId>>),
    /// The answer to [`crate::Node::compare_layers`].
    Compared(u64, Result<Differences, NotTold>),
    /// The answer to [`crate::Node::measure_layer`].
    Measured(u64, Result<Measured, NotTold>),
    /// Attachments may have ended: [`crate::Node::is_ended`] tells which.
    AttachmentsEnded,
    /// A primary on this node has scrubbed its group as was wished, and these are blocks that were bad.
    Scrubbed(PgId, ScrubWish, ScrubReport, Vec<FoundBlock>),
    /// Readers have met a bad block of a group that is not being scrubbed.
    Found(PgId, FoundBlock),
    /// A dropped layer's space on a device has come back.
    LayerDropped(DeviceId, LayerId),
    /// A device has given a layer's blocks to its child.
    LayerMerged(DeviceId, LayerId),
    /// A device has given up its copy of a group that it was to leave.
    CopyForgotten(DeviceId, PgId),
    /// A device's store is open, or has stopped for good; or the device answers again that was out of service.
    DeviceOpen(DeviceId, Result<(), Breakdown>),
    /// A device has not answered for so long that it is out of service, for this reason: its copies are to get new
    /// homes in time. [`Effect::DeviceOpen`] follows when the device answers.
    DeviceOut(DeviceId, String),
    /// A device that is being opened has not answered for so long. It goes into service when it is open.
    DeviceOpensLate(DeviceId, Duration),
    /// A device has had more errors than a sound one has. It goes on serving what it can.
    DeviceFailing(DeviceId, String),
    /// Nobody waits for a device any more, which has kept silent for so long; or, when false, it answers again after
    /// such a silence.
    DeviceHangs(DeviceId, bool, Duration),
    /// A write takes so long on this device, many times longer than on others, and nobody waits for it any more. Told
    /// once a minute at most.
    DeviceSlow(DeviceId, Duration),
    /// Something that people should know.
    Warn(Box<Warning>),
}
