//! What stands between clients' connections and the gateway, sans-IO and for every protocol.
//!
//! A [`Protocol`] turns what its client sends into [`Event`]s, and outcomes into answers. The [`Frontend`] does the
//! rest for all protocols: it attaches the volumes that clients open, finds out about names that are not known yet, and
//! lets requests in. It is put together from parts:
//!
//! - [`Exports`]: what a connection can open, and whether it can now; [`Admission`]: by whose key or name.
//! - [`Doors`]: a limit of connections, and of the time that a client takes to say what it wants.
//! - [`Memory`]: the node's budget for payloads and answers on their way, from which each connection draws.
//! - [`Turns`]: requests enter in turn, and no connection takes the whole window while others wait.
//!
//! A process may have several front ends, one in each shard: [`Holders`] knows which of them use an attachment, and
//! [`Nexuses`] which connection goes on under which client's name.
//!
//! None of them knows a socket or a clock. Their owner names connections by a key, tells them what happens and when,
//! and asks what may go on.

mod admission;
mod attaching;
mod attachment;
mod branch;
mod branches;
mod client;
mod doors;
mod effect;
mod exports;
mod frontend;
mod heeding;
mod holders;
mod hosts;
mod limits;
mod members;
mod memory;
mod missing;
mod nexuses;
mod parties;
mod patience;
mod portals;
mod protocol;
mod request;
mod reservations;
#[cfg(feature = "sabotage")]
#[doc(hidden)]
pub mod sabotage;
mod sharing;
mod standing;
mod targets;
mod tries;
mod turns;
mod verbs;
mod work;

pub use admission::{Admission, Right, Who};
pub use attachment::{Attachment, VolumeUse};
pub use branch::{Ask, Branch, BranchEnd, BranchNews};
pub use client::Client;
pub use doors::Doors;
pub use effect::{Close, Effect};
pub use exports::{Export, Exports, Listed, Listing, MakeListing, MakeUnitsListing, Opening};
pub use frontend::{Clients, Context, Frontend};
pub use holders::{Errand, Holders, Refusal};
pub use hosts::{Admittance, HostProof, HostRight, Named};
pub use limits::{Budgets, Throttled};
pub use memory::{Memory, MemoryLimits};
pub use nexuses::{Member, News, Nexus, Nexuses, Word};
pub use portals::{PathState, Portal, Portals};
pub use protocol::{Event, Protocol, StreamProtocol, Tag};
pub use request::Request;
pub use reservations::{ReservationAnswer, ReservationRequest, Reservations};
pub use sharing::{Sharing, Wish};
pub use standing::{ReservationNews, Standing};
pub use targets::Targets;
pub use turns::{TurnLimits, Turns};
pub use verbs::{Verb, Verbs};

use std::time::Duration;

/// Connections of clients that a node takes, unless it is told otherwise (0017).
pub const CLIENTS_MAX: usize = 4096;
/// Time that a client may take for each step until it has opened what it wants to use (0017).
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The longest read or write, in bytes (32 MiB).
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// The longest compare-and-write, in bytes, which must not cross a multiple of this either: one block.
pub const COMPARED_BYTES_MAX: u32 = azekura_base::BLOCK_SIZE as u32;
/// Bytes that [`Request::Or`] takes beside its own: what is read of the volume at a time, and what is written instead
/// (320 KiB).
pub const OR_BYTES: usize = 320 << 10;
/// Requests that one connection may have under way (0017).
pub const CONNECTION_REQUESTS_MAX: usize = 1024;
/// Bytes that the requests and answers of all clients of a node may take (256 MiB). One half is for requests of up to
/// [`LARGE_REQUEST_BYTES`], the other for larger ones (0017).
pub const MEMORY_BYTES_MAX: usize = 256 << 20;
/// The least of that: the longest request has to fit into one half of it.
pub const MEMORY_BYTES_MIN: usize = 72 << 20;
/// Bytes that every connection may take whatever the others have: so much for each comes on top of the budget (0017).
pub const MEMORY_SHARE_BYTES: usize = 64 << 10;
/// A request that takes more than this many bytes is a large one: 1 MiB, and what goes with it (0017).
pub const LARGE_REQUEST_BYTES: usize = (1 << 20) + 4096;
/// Who holds memory that others wait for has to move [`STALL_BYTES_MIN`] in each period of this length.
pub const STALL_PERIOD: Duration = Duration::from_secs(10);
/// Bytes (160 KiB) that a client moves in a [`STALL_PERIOD`] at the least: who is slower than 16 KiB/s keeps others
/// waiting (0017).
pub const STALL_BYTES_MIN: usize = 160 << 10;
/// Requests of one connection that are let in one after the other in its turn (0017).
pub const TURN_REQUESTS_MAX: u32 = 8;
/// Bytes after which a turn is over: 256 KiB (0017).
pub const TURN_BYTES_MAX: usize = 256 << 10;

/// What a node's clients may take.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Connections.
    pub connections_max: usize,
    /// Bytes of requests and answers.
    pub memory_bytes_max: usize,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits { connections_max: CLIENTS_MAX, memory_bytes_max: MEMORY_BYTES_MAX }
    }
}
