//! One node's data plane, sans-IO: gateway, placement groups and stores, wired together.
//!
//! A [`Node`] is driven by an event loop (the `azekura` binary's, or the simulator's): it is told what arrived and
//! what completed, and [`Node::poll`] turns that into [`Effect`]s to perform. It never blocks, and the same inputs give
//! the same effects.
//!
//! A write's way through the files: the client's request enters at `clients.rs` and leaves the gateway as a message;
//! `routing.rs` carries messages to groups, here or on other nodes (`links.rs`), and performs what groups ask for;
//! `devices.rs` holds the stores and matches their completions. `heartbeat.rs` keeps leases alive and
//! lets groups notice who has fallen silent; `balance.rs` decides which of them bring copies up to date, and which hand over;
//! `throttle.rs` how much of that there may be beside clients' requests.
//! `fences.rs` knows which attachments of volumes stand; `fencing.rs` makes sure that all others do, and that all groups
//! of a volume have stopped before a snapshot is made. `heads.rs` knows which layer takes a volume's writes, `layers.rs` the tree
//! of layers; `questions.rs` answers what the control plane asks about them.

mod balance;
mod clients;
mod devices;
mod effect;
mod fences;
mod fencing;
mod heads;
mod heartbeat;
mod layers;
mod links;
mod node;
mod questions;
mod routing;
mod throttle;
mod tokens;
mod view;

pub use effect::{Breakdown, ConnKey, Effect};
pub use fences::Attachments;
pub use node::{GroupReport, Identity, Node};
pub use questions::Refusal;
pub use throttle::ThrottleReport;
pub use view::ClusterView;

use std::time::Duration;

/// A lost connection to another node is dialled again after this time.
pub const RECONNECT_INTERVAL: Duration = Duration::from_millis(200);
/// A node that does not take a connection for so long is dialled anew.
pub const DIAL_TIMEOUT: Duration = Duration::from_millis(1500);
/// A connection that has not finished its greeting by then is closed.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(3);
/// A node that answers nothing for so long, heartbeats included, is taken for cut off: the connection is closed and dialled
/// anew.
pub const LINK_SILENCE: Duration = Duration::from_millis(1500);
/// A device on which so many different blocks have failed their checksum, since the process started, is failing.
pub const DAMAGED_BLOCKS_MAX: usize = 256;
/// A device that has refused so many reads, since the process started, is failing.
pub const REFUSED_READS_MAX: u32 = 16;
/// Connections from other nodes, including ones that have not greeted yet.
pub const INBOUND_MAX: usize = 4096;
