//! What comes to those who use, trouble and watch the cluster, at times that they have chosen.

use crate::kernel::process::Life;
use azekura_base::NodeId;
use std::time::Duration;

/// Whose turn it is.
#[derive(Debug)]
pub(crate) enum Cue {
    /// An operator ends attachments by force.
    Usurp,
    /// A host may put another one out.
    Preempt,
    /// Somebody looks whether the volumes' data key is to be rotated, and how far that is.
    Rekey,
    /// An operator makes, reads or deletes a snapshot.
    Snapshot,
    /// The next client of the relay may write.
    Relay,
    /// Clients of the volume that is lost for a while ask for more.
    Lost,
    /// A client may start an operation.
    Client(usize),
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
    /// Each log that is not initialised yet is so a bit further.
    Initialise,
    /// A guest comes or goes.
    Guests,
    /// A guest is taken out of the cluster, when it writes, or then at the latest.
    GuestLeaves(NodeId, Duration),
    /// The process of a guest that has left ends.
    GuestEnds(NodeId),
    /// Somebody asks for a scrub.
    Scrub,
    /// The leader looks whether groups can open again after the configuration was restored.
    Reopen,
    /// A node whose key is being changed may go on with that.
    Key(NodeId),
    /// A node gets the key back that was taken from it.
    KeyIsBack(NodeId),
}
