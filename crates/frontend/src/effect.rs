//! What a front end wants done.

use crate::attachment::VolumeUse;
use crate::nexuses::News;
use crate::reservations::ReservationRequest;
use azekura_base::{Generation, VolumeId, Warning};
use azekura_gateway::Outcome;
use std::sync::Arc;

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// At once.
    AtOnce,
    /// At once: what waits to be sent is dropped. The client's end is not told so before it closes, too, within a
    /// second: Linux's NVMe host sends from the thread that writes, which gets SIGPIPE where the other end is gone.
    Lingering,
    /// When what waits to be sent has been.
    AfterDrain,
}

/// What a front end wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<K> {
    /// There may be something to send to a client, or it can take more: at least once after each change of either.
    Touched(K),
    /// Close a connection. Of one without a socket, [`crate::Frontend::branch_gone`] is to be told at once, whatever
    /// the second says.
    Close(K, Close),
    /// Attach a volume to this node; [`crate::Frontend::volume_attached`] answers.
    Attach(VolumeUse),
    /// A client has a write for a volume that the process has to read: attach it anew, to write. What was attached
    /// before has ended then, and the host comes again.
    AttachToWrite(VolumeUse),
    /// Give an attachment of a volume back; [`crate::Frontend::volume_given_back`] answers.
    GiveBack(VolumeUse, Generation),
    /// An attachment of a volume has ended, or the volume itself: it is not used any more, and nothing is to be given
    /// back.
    Ended(VolumeUse, Generation),
    /// Something of the connection of this number here, for [`crate::Nexuses::heard`]; what [`crate::Nexuses`] says to
    /// that is for [`crate::Frontend::told`].
    Nexus(u64, News),
    /// Read the configuration, because clients ask for exports that are not known here;
    /// [`crate::Frontend::configuration_read`] answers.
    ReadConfiguration,
    /// Something is asked of the reservations of the volume of this name and number; [`crate::Frontend::reserved`]
    /// answers with this token.
    Reserves(u64, Arc<str>, VolumeId, Box<ReservationRequest>),
    /// All changes of the volume's reservations up to this one are heeded here: nothing is under way that was asked for
    /// before they were known. Told where a fence is due, and where the volume is not used, too.
    Heeds(VolumeId, u64),
    /// The client that has asked for the request of this token, which was submitted, is gone.
    Orphaned(u64),
    /// A request of [`crate::Frontend::submit`] has ended.
    Answered(u64, Outcome),
    /// Something that people should know.
    Warn(Box<Warning>),
}
