//! Those who use, trouble and watch a cluster, as it knows them.

use crate::cluster::Cluster;
use crate::cluster::cuts::Done;
use crate::kernel::network::ConnId;
use crate::kernel::process::Life;
use crate::kernel::time::Stamp;
use azekura_base::{DeviceId, Epoch, NodeId, PgId, WriteHeader};
use azekura_gateway::Outcome;
use azekura_replica::ScrubReport;
use azekura_wire::Message;
use std::fmt::Debug;
use std::time::Duration;

/// What a cluster tells whoever uses, troubles and watches it, at the moment that it happens, and what it asks of them.
pub(crate) trait Scene: Sized {
    /// Something that comes to one of them at a time that they have chosen.
    type Cue: Debug;

    /// The time has come.
    fn cue(cluster: &mut Cluster<Self>, cue: Self::Cue);

    /// A client's request is answered.
    fn answered(cluster: &mut Cluster<Self>, token: u64, outcome: Outcome);

    /// A client's request is not answered any more: its connection has ended.
    fn unanswered(cluster: &mut Cluster<Self>, token: u64);

    /// A process is gone, and with it the connections of its clients.
    fn clients_gone(cluster: &mut Cluster<Self>, life: Life);

    /// A host has lost its rights to write, and it is confirmed that nothing of it is under way.
    fn host_is_out(cluster: &mut Cluster<Self>, host: usize, at: Stamp);

    /// A process has heard of the configuration.
    fn heard(cluster: &mut Cluster<Self>, life: Life);

    /// A cut is finished, or called off.
    fn cut_is_over(cluster: &mut Cluster<Self>, id: u64, done: Option<Done>);

    /// A device can't be used any more by its node's process, which may not be for ever.
    fn device_stopped(cluster: &mut Cluster<Self>, device: DeviceId);

    /// A process is about to end without warning, if one runs.
    fn crashes(cluster: &mut Cluster<Self>, node: NodeId);

    /// A process has taken a turn.
    fn turned(cluster: &mut Cluster<Self>, life: Life);

    /// A process takes its copy for the primary of a group in an epoch.
    fn acts_as_primary(cluster: &mut Cluster<Self>, life: Life, device: DeviceId, term: (PgId, Epoch));

    /// A process is about to send a write that has its place in its group's order.
    fn orders(cluster: &mut Cluster<Self>, life: Life, write: &WriteHeader);

    /// A process sends a message.
    fn sends(cluster: &mut Cluster<Self>, life: Life, conn: ConnId, message: &Message);

    /// A heartbeat that was sent then has come over a narrow link, on a connection that is so many times slower.
    fn heartbeat_came(cluster: &mut Cluster<Self>, to: Life, sent: Duration, slowness: u32);

    /// A primary has scrubbed its group.
    fn scrubbed(cluster: &mut Cluster<Self>, group: PgId, report: &ScrubReport);

    /// Nodes complain by right.
    fn may_complain(cluster: &Cluster<Self>) -> bool;

    /// The control plane takes nothing away now.
    fn is_calm(cluster: &Cluster<Self>) -> bool;

    /// Copies stay where they are now, unless they are lost.
    fn copies_stay(cluster: &Cluster<Self>) -> bool;
}
