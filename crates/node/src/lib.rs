//! One node's data plane, or one shard of it, sans-IO: gateway, placement groups and stores, wired together. Shards of
//! a node share nothing but the configuration and the clock: to each other they are peers, like shards of other nodes.
//!
//! A [`Node`] is driven by an event loop (the `azekura` binary's, or the simulator's): it is told what arrived and
//! what completed, and [`Node::poll`] turns that into [`Effect`]s to perform. It never blocks, and the same inputs give
//! the same effects.
//!
//! A write's way through the files: the client's request enters at `clients.rs` and leaves the gateway as a message;
//! `routing.rs` carries messages to groups, here or on other nodes (`links.rs`; `local.rs` for shards of
//! the same process), and `actions.rs` performs what groups ask for;
//! `devices.rs` holds the stores and matches their completions with what was asked (`pending.rs`); `reads.rs` keeps
//! readers from crowding them. `needs.rs` says whom there are connections to; `heartbeat.rs` keeps leases alive and
//! lets groups notice who has fallen silent;
//! `balance.rs` decides which of them bring copies up to date, and which hand over; `throttle.rs` how much of that
//! there may be beside clients' requests.
//! `fences.rs` knows which attachments of volumes stand; `fencing.rs` makes sure that all others do, and that all
//! groups of a volume have stopped before a snapshot is made. `heads.rs` knows which layer takes a volume's writes,
//! `layers.rs` the tree of layers; `questions.rs` answers what the control plane asks about them. `views.rs` makes of
//! the configuration's records what a node needs to know of them.
//!
//! A file that has state has no steps of the node: these are in `steps.rs` in the folder of its name.

mod actions;
mod balance;
mod clients;
mod condition;
mod copies;
mod devices;
mod directory;
mod effect;
mod errors;
mod fences;
mod fencing;
mod hanging;
mod heads;
mod heartbeat;
mod layers;
mod links;
mod local;
mod mesh;
mod needs;
mod node;
mod pending;
mod questions;
mod reads;
mod rekeying;
mod routing;
#[cfg(feature = "sabotage")]
#[doc(hidden)]
pub mod sabotage;
mod slow;
mod throttle;
mod unreadable;
mod view;
mod views;

pub use effect::{Breakdown, ConnKey, Effect, FoundBlock, ScrubSeen, ScrubWish};
pub use fences::Attachments;
pub use node::{GroupReport, Identity, Node};
pub use reads::ReadLimits;
pub use throttle::ThrottleReport;
pub use view::{ClusterView, Location, NodeView, Place};
pub use views::{Views, group_config, proposal_of};

use std::time::Duration;

/// A lost connection to another shard is dialled again within this time; see [`RECONNECT_MAX`].
pub const RECONNECT_INTERVAL: Duration = Duration::from_millis(200);
/// With each try that fails, the time to the next one doubles, up to this.
pub const RECONNECT_MAX: Duration = Duration::from_millis(800);
/// A connection that nothing has needed for so long is closed, unless [`Node::set_link_idle`] says otherwise (0031).
pub const LINK_IDLE: Duration = Duration::from_secs(60);
/// A node that does not take a connection for so long is dialled anew.
pub const DIAL_TIMEOUT: Duration = Duration::from_millis(1500);
/// A connection that has not finished its greeting by then is closed.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(3);
/// A node that answers nothing for so long, heartbeats included, is taken for cut off: the connection is closed and
/// dialled anew.
pub const LINK_SILENCE: Duration = Duration::from_millis(1500);
/// A device on which so many different blocks have failed their checksum, since the process started, is failing.
pub const DAMAGED_BLOCKS_MAX: usize = 256;
/// A device that has refused so many reads, since the process started, is failing.
pub const REFUSED_READS_MAX: u32 = 16;
/// A device that has not answered for so long is out of service, unless [`Node::set_device_timeout`] says otherwise
/// (0021).
pub const DEVICE_TIMEOUT: Duration = Duration::from_secs(10);
/// The shortest such time: a device that hangs for a moment is to be left alone first.
pub const DEVICE_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// Reads of clients that one device's store works on at a time; further ones wait. More than a device is given at once,
/// so that it always has the next (0017).
pub const DEVICE_READS_MAX: usize = 256;
/// Blocks of those reads (16 MiB), the last one's not counted: each may be a read of its own on the device, with its
/// buffer (0017).
pub const DEVICE_READ_BLOCKS_MAX: usize = 4096;
/// Reads that wait for one device, about 100 bytes each: the full windows of 128 gateways. Further ones are sent to
/// another copy, or to ask again (0017).
pub const DEVICE_READS_WAITING_MAX: usize = 1 << 18;
/// Connections from other nodes.
pub const INBOUND_MAX: usize = 4096;
/// Connections from whomever that have not greeted yet. When there are more, the one that has been silent for longest
/// makes room (0017).
pub const UNGREETED_MAX: usize = 256;
